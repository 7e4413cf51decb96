//! Crashes. These stories disturb all others, so they run alone, after them.

use anyhow::{Context, Result, ensure};
use berth_e2e::runner::Told;
use berth_e2e::story::refused;
use berth_e2e::wait;
use berth_e2e::{Shape, Story, World};
use crds::v1alpha1::BerthState;
use kube::api::{Api, DynamicObject, PostParams};
use kube::config::Kubeconfig;
use kube::{Client, Config, ResourceExt};
use serde_json::json;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

pub(crate) fn all() -> Vec<Told> {
    berth_e2e::stories![
        @alone a_controller_killed_while_it_makes_a_gang_makes_no_pod_twice,
        @alone a_controller_killed_while_jobs_run_disturbs_none_of_them,
        @alone a_dead_webhook_blocks_only_our_own_kinds,
        @alone a_malformed_object_already_stored_never_stops_the_controller,
    ]
}

async fn a_controller_killed_while_it_makes_a_gang_makes_no_pod_twice(world: Arc<World>) -> Result<()> {
    let story = Story::begin(&world, "a_controller_killed_while_it", Shape::new(1, 1, 12)).await?;
    story.submit("{name: train, roles: [{replicas: 96, gpus: 1}]}").await?;
    story.pods_until("train", "the first pods", |pods| !pods.is_empty()).await?;
    let before = story.pods("train").await?.len();
    world.crash_controller().await?;
    story.running("train", "96/96").await?;
    let ever = story.ever("train");
    let names: BTreeSet<&String> = ever.iter().collect();
    ensure!(
        ever.len() == 96 && names.len() == 96,
        "{} pods by {} names, {before} before the crash",
        ever.len(),
        names.len()
    );
    ensure!(story.berths("train", BerthState::Committed).await?.len() == 1);
    eprintln!("        killed at {before} of 96 pods");
    Ok(())
}

async fn a_controller_killed_while_jobs_run_disturbs_none_of_them(world: Arc<World>) -> Result<()> {
    let story = Story::begin(&world, "a_controller_killed_while_jobs_run", Shape::new(1, 1, 2)).await?;
    story.submit("{name: runs, roles: [{replicas: 1}]}").await?;
    story.running("runs", "1/1").await?;
    let uid =
        |pods: &wait::Objects<k8s_openapi::api::core::v1::Pod>| pods.values().map(ResourceExt::uid).collect::<Vec<_>>();
    let before = uid(&story.pods("runs").await?);
    world.crash_controller().await?;
    story.submit("{name: next, roles: [{replicas: 1}]}").await?;
    story.running("next", "1/1").await?;
    ensure!(uid(&story.pods("runs").await?) == before, "the running job was disturbed");
    ensure!(story.ever("runs").len() == 1);
    Ok(())
}

async fn a_dead_webhook_blocks_only_our_own_kinds(world: Arc<World>) -> Result<()> {
    let story = Story::begin(&world, "a_dead_webhook_blocks_only", Shape::new(1, 1, 1)).await?;
    story.submit("{name: train, roles: [{replicas: 1, runtime: 4s}]}").await?;
    world.webhook.lock().await.kill();
    let refusal = refused(story.submit("{name: other, roles: [{replicas: 1}]}").await, &["webhook"]);
    let bystander = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "bystander", "namespace": story.name},
        "spec": {"containers": [{"name": "main", "image": "other"}]},
    });
    let others = world.create(&bystander).await;
    // The controller's own writes pass: the job goes on to its end.
    let ended = story.phase("train", crds::v1alpha1::Phase::Succeeded).await;
    let mut webhook = world.webhook.lock().await;
    webhook.start()?;
    webhook.ready(Duration::from_secs(120)).await?;
    refusal.context("fail closed")?;
    others.context("other people's pods")?;
    ended.map(drop)
}

async fn a_malformed_object_already_stored_never_stops_the_controller(world: Arc<World>) -> Result<()> {
    let story = Story::begin(&world, "a_malformed_object_already_stored", Shape::new(1, 1, 1)).await?;
    // By the one user whose writes the webhook does not review: as if it had been stored before the webhook came.
    let mut config = Config::from_custom_kubeconfig(
        Kubeconfig::read_from(world.plane.admin())?,
        &kube::config::KubeConfigOptions::default(),
    )
    .await?;
    config.auth_info.impersonate = Some(crds::names::CONTROLLER_USER.to_owned());
    config.auth_info.impersonate_groups = Some(vec!["system:masters".to_owned()]);
    let past = Client::try_from(config)?;
    for (name, template) in [
        ("no-list", json!({"spec": {"containers": "train"}})),
        (
            "no-quantity",
            json!({"spec": {"containers": [{"name": "a", "image": "b", "resources": {"limits": {"nvidia.com/gpu": "many"}}}]}}),
        ),
        ("no-spec", json!({})),
    ] {
        let mut job = story.manifest(&format!("{{name: {name}, roles: [{{replicas: 1}}]}}"))?;
        job["spec"]["roles"][0]["template"] = template;
        let object: DynamicObject = serde_json::from_value(job)?;
        let kind = kube::core::ApiResource::erase::<crds::TrainingJob>(&());
        let api: Api<DynamicObject> = Api::namespaced_with(past.clone(), &story.name, &kind);
        api.create(&PostParams::default(), &object)
            .await
            .with_context(|| format!("{name} must get past the schema"))?;
    }
    story.submit("{name: good, roles: [{replicas: 1}]}").await?;
    story.running_raw("good").await?;
    // A controller that starts anew has to survive them as well.
    world.crash_controller().await?;
    story.delete_raw("good").await?;
    story.submit("{name: next, roles: [{replicas: 1}]}").await?;
    story.running_raw("next").await?;
    for name in ["no-list", "no-quantity", "no-spec"] {
        story.never_had_pods(name)?;
    }
    Ok(())
}
