//! Two controllers, one of which stands still while the other takes over.

use crate::at_rest;
use anyhow::{Context, Result, ensure};
use berth_e2e::runner::Told;
use berth_e2e::story::refused;
use berth_e2e::wait::{self, Objects};
use berth_e2e::{Shape, Story, World};
use crds::names::{CONTROLLER_ACCOUNT, LEASE, NAMESPACE, annotations, labels};
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Api, DynamicObject, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::runtime::watcher;
use kube::{Client, Config};
use serde_json::json;
use std::sync::Arc;

pub(crate) fn all() -> Vec<Told> {
    berth_e2e::stories![
        @alone a_leader_that_stands_still_while_another_takes_over_writes_nothing_when_it_wakes,
        @alone the_server_refuses_what_a_former_leader_writes,
        @alone a_lease_that_somebody_removed_is_made_anew_above_every_epoch_written,
    ]
}

async fn a_leader_that_stands_still_while_another_takes_over_writes_nothing_when_it_wakes(
    world: Arc<World>,
) -> Result<()> {
    let story = Story::begin(&world, "a_leader_that_stands_still", Shape::new(1, 1, 12)).await?;
    let (mut other, _) = world.replica()?;
    other.start()?;
    let epoch = lease(&world).await?.1;
    // 1. It stands still in the middle of a gang.
    story.submit("{name: train, roles: [{replicas: 96, gpus: 1}]}").await?;
    story.pods_until("train", "the first pods", |pods| !pods.is_empty()).await?;
    world.controller.lock().await.signal("STOP")?;
    let at = story.pods("train").await?.len();
    // 2. The other one takes over, and completes what was begun.
    story.running("train", "96/96").await?;
    let (_, later) = lease(&world).await?;
    ensure!(later > epoch, "nobody took the Lease: epoch {later}");
    ensure!(story.ever("train").len() == 96, "{} pods ever", story.ever("train").len());
    // 3. The world goes on: another gang takes the very nodes.
    story.delete("train").await?;
    story.gone("train").await?;
    story.submit("{name: next, roles: [{replicas: 96, gpus: 1}]}").await?;
    story.running("next", "96/96").await?;
    // 4. The first one wakes up, finds that it does not lead, and ends.
    let controller = world.controller.lock().await;
    controller.signal("CONT")?;
    let ended = controller.ended();
    tokio::time::timeout(wait::PATIENCE, ended).await.context("it goes on although another leads")?;
    drop(controller);
    at_rest(&world, &[&story.name]).await?;
    ensure!(story.ever("next").len() == 96 && story.ever("train").len() == 96, "pods were made twice");
    ensure!(lease(&world).await?.1 == later, "the Lease changed hands again");
    // 5. With the other one gone, whoever is left leads.
    other.kill();
    story.delete("next").await?;
    story.gone("next").await?;
    ensure!(lease(&world).await?.1 > later);
    eprintln!("        it stood still at {at} of 96 pods");
    Ok(())
}

async fn the_server_refuses_what_a_former_leader_writes(world: Arc<World>) -> Result<()> {
    let story = Story::begin(&world, "the_server_refuses", Shape::new(1, 1, 1)).await?;
    let kubeconfig = Kubeconfig::read_from(world.plane.token(CONTROLLER_ACCOUNT)?)?;
    let client = Client::try_from(Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?)?;
    let (_, epoch) = lease(&world).await?;
    let pod = |epoch: Option<i32>| {
        let mut metadata = json!({"name": "stale", "namespace": story.name, "labels": {labels::BERTH: "x"}});
        if let Some(epoch) = epoch {
            metadata["annotations"] = json!({annotations::LEADER_EPOCH: epoch.to_string()});
        }
        let spec = json!({"containers": [{"name": "a", "image": "b"}]});
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    };
    let kind = kube::core::ApiResource::erase::<k8s_openapi::api::core::v1::Pod>(&());
    let pods: Api<DynamicObject> = Api::namespaced_with(client, &story.name, &kind);
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    for stale in [Some(epoch - 1), Some(epoch + 1), None] {
        let object: DynamicObject = serde_json::from_value(pod(stale))?;
        let answer = pods.create(&dry, &object).await;
        refused(answer.map_err(Into::into), &["StaleLeader", &epoch.to_string()])
            .with_context(|| format!("{stale:?}"))?;
    }
    let object: DynamicObject = serde_json::from_value(pod(Some(epoch)))?;
    pods.create(&dry, &object).await.context("the leader's own epoch")?;
    Ok(())
}

async fn a_lease_that_somebody_removed_is_made_anew_above_every_epoch_written(world: Arc<World>) -> Result<()> {
    let story = Story::begin(&world, "a_lease_that_somebody_removed", Shape::new(1, 1, 4)).await?;
    story.submit("{name: before, roles: [{replicas: 2}]}").await?;
    story.running("before", "2/2").await?;
    let (_, epoch) = lease(&world).await?;
    leases(&world).delete(LEASE, &kube::api::DeleteParams::default()).await?;
    let again = move |all: &Objects<Lease>| all.values().filter_map(transitions).any(|t| t > epoch);
    let only = watcher::Config::default().fields(&format!("metadata.name={LEASE}"));
    wait::until(leases(&world), only, "a Lease of a later epoch", again).await?;
    // The new leader's writes pass the fence, and what ran goes on.
    story.submit("{name: after, roles: [{replicas: 2}]}").await?;
    story.running("after", "2/2").await?;
    ensure!(story.ever("before").len() == 2, "the running job was disturbed");
    at_rest(&world, &[&story.name]).await
}

fn leases(world: &World) -> Api<Lease> {
    Api::namespaced(world.client.clone(), NAMESPACE)
}

fn transitions(lease: &Lease) -> Option<i32> {
    lease.spec.as_ref().and_then(|s| s.lease_transitions)
}

/// Holder and epoch.
async fn lease(world: &World) -> Result<(String, i32)> {
    let lease = leases(world).get(LEASE).await?;
    let epoch = transitions(&lease).context("an epoch")?;
    Ok((lease.spec.and_then(|s| s.holder_identity).unwrap_or_default(), epoch))
}
