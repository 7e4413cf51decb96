//! Crashes. These stories disturb all others, so they run alone, after them.

use anyhow::{Context, Result, ensure};
use berth_e2e::runner::Told;
use berth_e2e::story::refused;
use berth_e2e::wait;
use berth_e2e::{Shape, Story, World};
use crds::v1alpha1::{BerthState, Phase};
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams};
use kube::config::Kubeconfig;
use kube::runtime::watcher;
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
        @alone a_reservation_outlives_the_controller,
        @alone a_broken_ca_bundle_is_mended,
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
    let ended = story.phase("train", Phase::Succeeded).await;
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
    let mut stored = Vec::new();
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
        stored.push((api, object));
    }
    store_without_schema(&world, &stored).await?;
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

/// Stores jobs that the schema refuses, as if it had once been looser: it is taken away for the moment and put back.
async fn store_without_schema(world: &World, jobs: &[(Api<DynamicObject>, DynamicObject)]) -> Result<()> {
    let crds: Api<CustomResourceDefinition> = Api::all(world.client.clone());
    let name = "trainingjobs.berth.dev";
    let schema = |of: serde_json::Value| {
        let path = "/spec/versions/0/schema/openAPIV3Schema";
        let patch = json!([{"op": "replace", "path": path, "value": of}]);
        serde_json::from_value(patch).map(Patch::<()>::Json)
    };
    let before =
        serde_json::to_value(crds.get(name).await?)?["spec"]["versions"][0]["schema"]["openAPIV3Schema"].clone();
    // Only the fields that can be selected by have to stay in it.
    let open = |fields: serde_json::Value| json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": fields});
    let text = json!({"type": "string"});
    let loose = open(json!({"spec": open(json!({"queue": text})), "status": open(json!({"phase": text}))}));
    crds.patch(name, &PatchParams::default(), &schema(loose)?).await?;
    let stored = tokio::time::timeout(wait::PATIENCE, async {
        for (api, job) in jobs {
            // The server takes a new schema up a moment after it has stored it: it is asked until it has.
            while let Err(error) = api.create(&PostParams::default(), job).await {
                ensure!(
                    matches!(&error, kube::Error::Api(status) if status.is_invalid()),
                    "{}: {error}",
                    job.name_any()
                );
            }
        }
        Ok(())
    });
    let stored = stored.await;
    crds.patch(name, &PatchParams::default(), &schema(before)?).await?;
    stored.context("the server still holds to the schema")?
}

async fn a_reservation_outlives_the_controller(world: Arc<World>) -> Result<()> {
    let story = Story::begin(&world, "a_reservation_outlives", Shape::new(1, 1, 3)).await?;
    story.submit("{name: first, maxRuntime: 30m, roles: [{replicas: 2}]}").await?;
    story.running("first", "2/2").await?;
    story.submit("{name: big, maxRuntime: 1h, roles: [{replicas: 3}]}").await?;
    let big = story.phase("big", Phase::Reserved).await?.status.context("a status")?;
    let promised = story.berths("big", BerthState::Reserved).await?.pop().context("a reservation")?;
    // Its user sees when, and why not now.
    ensure!(big.estimated_start.is_some() && big.estimated_start == promised.spec.start, "{:?}", big.estimated_start);
    ensure!(big.eta.as_deref().is_some_and(|eta| !eta.starts_with('~')), "a promise is no estimate: {:?}", big.eta);
    let code = big.pending.map(|p| p.code);
    ensure!(code.as_deref() == Some("NoCapacity"), "{code:?}");
    world.crash_controller().await?;
    // The new controller plans around what the old one promised.
    story.submit("{name: short, maxRuntime: 5m, roles: [{replicas: 1}]}").await?;
    story.running("short", "1/1").await?;
    let kept = story.berths("big", BerthState::Reserved).await?.pop().context("it still stands")?;
    ensure!(kept.uid() == promised.uid(), "another Berth took its place");
    ensure!(kept.spec.start <= promised.spec.start, "{:?}, later than {:?}", kept.spec.start, promised.spec.start);
    let table = world.plane.run("kubectl", &["--", "get", "berths", "-n", &story.name])?;
    let row = table.lines().find(|l| l.starts_with("big-1")).context("kubectl get berths shows it")?;
    ensure!(row.split_whitespace().any(|word| word == "Reserved"), "{table}");
    Ok(())
}

async fn a_broken_ca_bundle_is_mended(world: Arc<World>) -> Result<()> {
    let story = Story::begin(&world, "a_broken_ca_bundle", Shape::new(1, 1, 1)).await?;
    let configurations: Api<ValidatingWebhookConfiguration> = Api::all(world.client.clone());
    let name = crds::names::WEBHOOK_CONFIGURATION;
    let row = configurations.get(name).await?.webhooks.iter().flatten().position(|w| w.name == "validate.berth.dev");
    let path = format!("/webhooks/{}/clientConfig/caBundle", row.context("our webhook")?);
    let patch = serde_json::from_value(json!([{"op": "remove", "path": path}]))?;
    configurations.patch(name, &PatchParams::default(), &Patch::<()>::Json(patch)).await?;
    let whole = |all: &wait::Objects<ValidatingWebhookConfiguration>| {
        let ours = all.get(name).into_iter().flat_map(|c| c.webhooks.iter().flatten());
        ours.into_iter().all(|w| w.client_config.ca_bundle.is_some())
    };
    let only = watcher::Config::default().fields(&format!("metadata.name={name}"));
    wait::until(configurations, only, "the bundle is back", whole).await?;
    // The server may take a moment to see it: until then it lets nobody pass.
    let job = story.manifest("{name: train, roles: [{replicas: 1}]}")?;
    let asked = tokio::time::timeout(wait::PATIENCE, async {
        while let Err(error) = world.would_create(&job).await {
            ensure!(format!("{error:#}").contains("failed calling webhook"), "{error:#}");
        }
        Ok(())
    });
    asked.await.context("the webhook is not trusted again")?
}
