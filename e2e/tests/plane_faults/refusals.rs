//! What the cluster refuses half-way: webhooks that never answer, quotas used up by others, namespaces that go.

use crate::at_rest;
use anyhow::{Context, Result, ensure};
use berth_e2e::runner::Told;
use berth_e2e::story::{is_live, refused};
use berth_e2e::wait::{self, Objects};
use berth_e2e::{Shape, Story, World};
use futures::{StreamExt, stream};
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams};
use kube::runtime::watcher;
use serde_json::json;
use std::sync::Arc;
use tokio::net::TcpListener;

pub(crate) fn all() -> Vec<Told> {
    berth_e2e::stories![
        @alone a_strangers_webhook_that_never_answers_holds_up_its_own_namespace_alone,
        @alone our_own_webhook_that_never_answers_holds_up_nobody_elses_objects,
        @alone a_resource_quota_that_others_use_up_half_way_leaves_no_half_gang,
        @alone a_namespace_deleted_while_a_gang_is_made_goes_with_all_that_is_in_it,
    ]
}

async fn a_strangers_webhook_that_never_answers_holds_up_its_own_namespace_alone(world: Arc<World>) -> Result<()> {
    let held = Story::begin(&world, "a_webhook_that_never_answers", Shape::new(1, 1, 2)).await?;
    let free = Story::begin(&world, "beside_that_webhook", Shape::new(1, 1, 2)).await?;
    // Connections are taken and never answered.
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("https://127.0.0.1:{}/", listener.local_addr()?.port());
    let silent = tokio::spawn(async move {
        let mut all = Vec::new();
        while let Ok((connection, _)) = listener.accept().await {
            all.push(connection);
        }
    });
    let webhook = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "silent"},
        "webhooks": [{
            "name": "silent.example.com", "admissionReviewVersions": ["v1"], "sideEffects": "None", "timeoutSeconds": 1,
            "failurePolicy": "Fail", "clientConfig": {"url": url},
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": held.name}},
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}],
        }],
    });
    world.create(&webhook).await?;
    let api: Api<ValidatingWebhookConfiguration> = Api::all(world.client.clone());
    let outcome = async {
        // The server takes it up a moment after it is stored.
        let probe = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "probe", "namespace": held.name},
            "spec": {"containers": [{"name": "a", "image": "b"}]},
        });
        let taken_up = async { while world.would_create(&probe).await.is_ok() {} };
        tokio::time::timeout(wait::PATIENCE, taken_up).await.context("the webhook is not asked")?;
        held.submit("{name: train, roles: [{replicas: 8, gpus: 1}]}").await?;
        free.submit("{name: train, roles: [{replicas: 8, gpus: 1}]}").await?;
        free.running("train", "8/8").await?;
        held.never_had_pods("train")
    };
    let outcome = outcome.await;
    api.delete("silent", &DeleteParams::default()).await?;
    outcome?;
    held.running("train", "8/8").await?;
    silent.abort();
    at_rest(&world, &[&held.name, &free.name]).await
}

async fn our_own_webhook_that_never_answers_holds_up_nobody_elses_objects(world: Arc<World>) -> Result<()> {
    let story = Story::begin(&world, "our_own_webhook_stands_still", Shape::new(1, 1, 1)).await?;
    story.submit("{name: train, roles: [{replicas: 1}]}").await?;
    world.webhook.lock().await.signal("STOP")?;
    let bystander = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "bystander", "namespace": story.name},
        "spec": {"containers": [{"name": "main", "image": "other"}]},
    });
    let others = world.create(&bystander).await;
    // What was accepted goes on; what is new is refused, in the server's time.
    let runs = story.running("train", "1/1").await;
    let refusal = refused(story.submit("{name: other, roles: [{replicas: 1}]}").await, &["webhook"]);
    world.webhook.lock().await.signal("CONT")?;
    others.context("other people's pods")?;
    runs.context("the job that was accepted")?;
    refusal.context("fail closed")?;
    story.delete("train").await?;
    story.gone("train").await?;
    story.submit("{name: other, roles: [{replicas: 1}]}").await?;
    story.running("other", "1/1").await.map(drop)
}

async fn a_resource_quota_that_others_use_up_half_way_leaves_no_half_gang(world: Arc<World>) -> Result<()> {
    let story = Story::begin(&world, "a_quota_used_up_half_way", Shape::new(1, 1, 25)).await?;
    let quota = json!({
        "apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "pods", "namespace": story.name},
        "spec": {"hard": {"pods": "200"}},
    });
    world.create(&quota).await?;
    // Enough for the gang by the time it is decided, and then no more: others' pods come in between.
    story.submit("{name: train, roles: [{replicas: 200, gpus: 1}]}").await?;
    story.pods_until("train", "the first pods", |pods| !pods.is_empty()).await?;
    let others = stream::iter(0..10).map(|i| {
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": format!("other-{i}"), "namespace": story.name, "labels": {"whose": "others"}},
            "spec": {"containers": [{"name": "main", "image": "other"}]},
        });
        let world = world.clone();
        async move { world.create(&pod).await }
    });
    let made: Vec<Result<DynamicObject>> = others.buffer_unordered(10).collect().await;
    let made = made.into_iter().filter(Result::is_ok).count();
    ensure!(made > 0, "the gang was whole before anybody else came: nothing was hit half-way");
    // It is taken back whole, and waits for the quota.
    let mine = |pods: &Objects<Pod>| pods.values().filter(|p| is_live(p)).count();
    story.pods_until("train", "taken back", |pods| mine(pods) == 0).await?;
    story.pending("train", "NamespaceQuota").await?;
    let theirs = ListParams::default().labels("whose=others");
    story.api::<Pod>().delete_collection(&DeleteParams::default().grace_period(0), &theirs).await?;
    story.running("train", "200/200").await?;
    at_rest(&world, &[&story.name]).await?;
    eprintln!("        {made} pods of others came in between");
    story.delete("train").await?;
    story.gone("train").await
}

async fn a_namespace_deleted_while_a_gang_is_made_goes_with_all_that_is_in_it(world: Arc<World>) -> Result<()> {
    let story = Story::begin(&world, "a_namespace_deleted", Shape::new(1, 1, 12)).await?;
    story.submit("{name: train, roles: [{replicas: 96, gpus: 1}]}").await?;
    story.pods_until("train", "the first pods", |pods| !pods.is_empty()).await?;
    let namespaces: Api<Namespace> = Api::all(world.client.clone());
    namespaces.delete(&story.name, &DeleteParams::default()).await?;
    let only = watcher::Config::default().fields(&format!("metadata.name={}", story.name));
    wait::until(namespaces, only, "the namespace gone", Objects::is_empty).await?;
    at_rest(&world, &[&story.name]).await?;
    let left =
        Api::<Pod>::all(world.client.clone()).list(&ListParams::default().labels(crds::names::labels::JOB)).await?;
    let left: Vec<String> =
        left.iter().filter(|p| p.namespace().as_deref() == Some(&story.name)).map(ResourceExt::name_any).collect();
    ensure!(left.is_empty(), "left behind: {left:?}");
    Ok(())
}
