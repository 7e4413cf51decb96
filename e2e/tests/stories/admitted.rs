//! What admission, daemons and relabelled nodes make of a plan: seen before anything is planned, or told while it runs.

use anyhow::{Result, ensure};
use berth_e2e::runner::Told;
use berth_e2e::story::node_of;
use berth_e2e::{Shape, Story, World, wait};
use crds::v1alpha1::Phase;
use crds::{Topology, TrainingJob};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::api::{Api, Patch, PatchParams};
use kube::runtime::watcher;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;

pub(crate) fn all() -> Vec<Told> {
    berth_e2e::stories![
        pods_that_their_namespace_forbids_wait_with_the_reason_and_start_when_it_allows_them,
        defaults_of_a_limit_range_are_planned_with,
        a_daemon_that_is_still_to_come_has_its_place,
        a_node_that_leaves_the_domain_is_told_and_the_gang_runs_on,
        labels_that_change_all_at_once_are_doubted,
        an_mpi_job_of_another_size_gets_another_host_file,
    ]
}

async fn label_namespace(story: &Story, labels: Value) -> Result<()> {
    let namespaces: Api<Namespace> = Api::all(story.world.client.clone());
    let patch = Patch::Merge(json!({"metadata": {"labels": labels}}));
    namespaces.patch(&story.name, &PatchParams::default(), &patch).await?;
    Ok(())
}

async fn pods_that_their_namespace_forbids_wait_with_the_reason_and_start_when_it_allows_them(
    world: Arc<World>,
) -> Result<()> {
    let story = Story::begin(&world, "pods_that_their_namespace_forbids", Shape::new(1, 1, 2)).await?;
    label_namespace(&story, json!({"pod-security.kubernetes.io/enforce": "restricted"})).await?;
    story.submit("{name: train, roles: [{replicas: 2}]}").await?;
    let job = story.pending("train", "PodRefused").await?;
    let message = job.status.and_then(|s| s.pending).map(|p| p.message).unwrap_or_default();
    ensure!(message.contains("violates PodSecurity"), "{message}");
    for state in [crds::v1alpha1::BerthState::Committed, crds::v1alpha1::BerthState::Released] {
        ensure!(story.berths("train", state).await?.is_empty(), "nothing was planned for it");
    }
    story.never_had_pods("train")?;
    label_namespace(&story, json!({"pod-security.kubernetes.io/enforce": null})).await?;
    story.running("train", "2/2").await?;
    Ok(())
}

async fn defaults_of_a_limit_range_are_planned_with(world: Arc<World>) -> Result<()> {
    let story = Story::begin(&world, "defaults_of_a_limit_range", Shape::new(1, 1, 2)).await?;
    let limits = json!([{"type": "Container", "defaultRequest": {"cpu": "60"}, "default": {"cpu": "60"}}]);
    let range = json!({
        "apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "compute", "namespace": story.name},
        "spec": {"limits": limits},
    });
    world.create(&range).await?;
    story.submit("{name: train, roles: [{replicas: 2, gpus: 1}]}").await?;
    story.running("train", "2/2").await?;
    let nodes: BTreeSet<String> = story.pods("train").await?.values().map(node_of).collect();
    ensure!(nodes.len() == 2, "twice 60 of 96 CPUs do not fit on one node: {nodes:?}");
    Ok(())
}

async fn a_daemon_that_is_still_to_come_has_its_place(world: Arc<World>) -> Result<()> {
    let story = Story::begin(&world, "a_daemon_that_is_still_to_come", Shape::new(1, 1, 2)).await?;
    let resources = json!({"limits": {"nvidia.com/gpu": "1"}});
    let place = json!({"kubernetes.io/hostname": story.node_name("b0-r0-n0")});
    let template = json!({
        "metadata": {"labels": {"app": "agent"}},
        "spec": {"nodeSelector": place, "containers": [{"name": "agent", "image": "agent", "resources": resources}]},
    });
    // No scheduler runs here, so its pod stays on its way for good.
    world
        .create(&json!({
            "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "agent", "namespace": story.name},
            "spec": {"selector": {"matchLabels": {"app": "agent"}}, "template": template},
        }))
        .await?;
    story.submit("{name: small, roles: [{replicas: 2, gpus: 7}]}").await?;
    story.running("small", "2/2").await?;
    story.delete("small").await?;
    story.gone("small").await?;
    story.submit("{name: whole, roles: [{replicas: 2}]}").await?;
    story.pending("whole", "NoCapacity").await?;
    story.never_had_pods("whole")
}

async fn a_node_that_leaves_the_domain_is_told_and_the_gang_runs_on(world: Arc<World>) -> Result<()> {
    let story = Story::begin(&world, "a_node_that_leaves_the_domain", Shape::new(1, 2, 2)).await?;
    story.submit("{name: train, topology: {required: rack}, roles: [{replicas: 2}]}").await?;
    story.running("train", "2/2").await?;
    let before: Vec<String> =
        story.pods("train").await?.values().map(|p| p.metadata.uid.clone().unwrap_or_default()).collect();
    let node = story.pods("train").await?.values().map(node_of).next().unwrap_or_default();
    let suffix = node.strip_prefix(&format!("{}-", story.name)).unwrap_or_default().to_owned();
    let rack = node.rsplit('-').nth(1).unwrap_or_default().to_owned();
    let violated = |job: &TrainingJob| {
        let all = job.status.iter().flat_map(|s| &s.conditions);
        all.filter(|c| c.type_ == "TopologyViolated").map(|c| c.status == "True").next()
    };
    let relabel = |rack: &str| json!({"metadata": {"labels": {"fabric.topograph.run/tier-0": rack}}});
    story.patch_node(&suffix, relabel("elsewhere")).await?;
    story.job_until("train", "TopologyViolated", |j| violated(j) == Some(true)).await?;
    story.patch_node(&suffix, relabel(&rack)).await?;
    let job = story.job_until("train", "whole again", |j| violated(j) == Some(false)).await?;
    ensure!(job.status.and_then(|s| s.ready).as_deref() == Some("2/2"));
    let after: Vec<String> =
        story.pods("train").await?.values().map(|p| p.metadata.uid.clone().unwrap_or_default()).collect();
    ensure!(before == after, "no pod was touched");
    Ok(())
}

async fn labels_that_change_all_at_once_are_doubted(world: Arc<World>) -> Result<()> {
    let story = Story::begin(&world, "labels_that_change_all", Shape::new(1, 2, 2)).await?;
    story.submit("{name: before, topology: {required: rack}, roles: [{replicas: 1}]}").await?;
    story.running("before", "1/1").await?;
    // Admission judges new jobs by the labels as they are: this one is there before they change.
    story.submit("{name: near, suspend: true, topology: {required: rack}, roles: [{replicas: 2}]}").await?;
    let all = ["b0-r0-n0", "b0-r0-n1", "b0-r1-n0", "b0-r1-n1"];
    for node in all {
        story.patch_node(node, json!({"metadata": {"labels": {"fabric.topograph.run/tier-0": node}}})).await?;
    }
    let held = |t: &Topology, status: &str| {
        let all = t.status.iter().flat_map(|s| &s.conditions);
        all.into_iter().any(|c| c.type_ == "Held" && c.status == status)
    };
    let topologies: Api<Topology> = Api::all(story.world.client.clone());
    let config = || watcher::Config::default().fields(&format!("metadata.name={}", story.name));
    wait::until(topologies, config(), "Held", |all| all.values().any(|t| held(t, "True"))).await?;
    story.change("near", json!({"spec": {"suspend": false}})).await?;
    let job = story.pending("near", "TopologyHeld").await?;
    let message = job.status.and_then(|s| s.pending).map(|p| p.message).unwrap_or_default();
    ensure!(message.contains(&format!("Topology {}", story.name)), "{message}");
    // What asks for no level is not concerned.
    story.submit("{name: anywhere, roles: [{replicas: 1}]}").await?;
    story.running("anywhere", "1/1").await?;
    story.never_had_pods("near")?;
    Ok(())
}

async fn an_mpi_job_of_another_size_gets_another_host_file(world: Arc<World>) -> Result<()> {
    let story = Story::begin(&world, "an_mpi_job_of_another_size", Shape::new(1, 1, 2)).await?;
    story.submit("{name: other, roles: [{replicas: 1}]}").await?;
    story.running("other", "1/1").await?;
    let roles = "[{name: launcher, replicas: 1, gpus: 0}, {name: worker, replicas: 2, minReplicas: 1}]";
    story.submit(&format!("{{name: train, rendezvous: {{kind: Mpi}}, roles: {roles}}}")).await?;
    story.running("train", "2/3").await?;
    let hosts = || async {
        let map = story.api::<ConfigMap>().get("train-hosts").await?;
        Ok::<String, kube::Error>(map.data.into_iter().flatten().map(|(_, text)| text).collect())
    };
    let text = hosts().await?;
    ensure!(text.lines().count() == 1, "{text}");
    story.delete("other").await?;
    story.gone("other").await?;
    story.change("train", json!({"spec": {"suspend": true}})).await?;
    story.phase("train", Phase::Suspended).await?;
    story.change("train", json!({"spec": {"suspend": false}})).await?;
    story.running("train", "3/3").await?;
    let text = hosts().await?;
    let lines: Vec<&str> = text.lines().collect();
    ensure!(lines == ["train-worker-0.train slots=8", "train-worker-1.train slots=8"], "{text}");
    Ok(())
}
