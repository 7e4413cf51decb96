//! Gangs start whole, in their domain, or not at all.

use anyhow::{Context, Result, ensure};
use berth_e2e::runner::Told;
use berth_e2e::story::{is_live, node_of, racks};
use berth_e2e::{Shape, Story, World};
use crds::names::labels;
use crds::v1alpha1::{BerthState, Phase};
use k8s_openapi::api::core::v1::{Pod, Service};
use kube::ResourceExt;
use std::collections::BTreeSet;
use std::sync::Arc;

pub(crate) fn all() -> Vec<Told> {
    berth_e2e::stories![
        a_gang_starts_whole_in_one_rack,
        an_elastic_gang_starts_at_what_fits_and_grows,
        slices_stay_inside_one_rack_each,
        a_required_rack_is_waited_for,
        a_preferred_rack_gives_way_without_patience,
        patience_waits_for_the_preferred_rack_and_ends,
        pods_know_their_gang,
        roles_start_in_order_of_dependence,
        a_node_without_labels_serves_only_jobs_without_a_level,
    ]
}

async fn a_gang_starts_whole_in_one_rack(world: Arc<World>) -> Result<()> {
    let story = Story::begin(&world, "a_gang_starts_whole_in_one_rack", Shape::new(2, 2, 4)).await?;
    story.submit("{name: train, topology: {required: rack}, roles: [{replicas: 4}]}").await?;
    let job = story.running("train", "4/4").await?;
    let pods = story.pods("train").await?;
    ensure!(pods.len() == 4, "{} pods", pods.len());
    ensure!(racks(&pods).len() == 1, "they are in {:?}", racks(&pods));
    let nodes: BTreeSet<String> = pods.values().map(node_of).collect();
    ensure!(nodes.len() == 4, "8 GPUs each, yet on {nodes:?}");
    let placement = job.status.and_then(|s| s.placement).unwrap_or_default();
    ensure!(placement.level.as_deref() == Some("rack") && placement.domains == 1, "{placement:?}");
    ensure!(story.berths("train", BerthState::Committed).await?.len() == 1);
    Ok(())
}

async fn an_elastic_gang_starts_at_what_fits_and_grows(world: Arc<World>) -> Result<()> {
    let story = Story::begin(&world, "an_elastic_gang_starts_at_what_fits_and_grows", Shape::new(1, 2, 2)).await?;
    story.submit("{name: first, topology: {required: node}, roles: [{replicas: 1}]}").await?;
    story.running("first", "1/1").await?;
    story.submit("{name: train, roles: [{replicas: 4, minReplicas: 2}]}").await?;
    story.running("train", "3/4").await?;
    let before = story.pods("train").await?;
    story.delete("first").await?;
    story.gone("first").await?;
    story.running("train", "4/4").await?;
    let after = story.pods("train").await?;
    ensure!(
        before.iter().all(|(name, pod)| after.get(name).map(ResourceExt::uid) == Some(pod.uid())),
        "growth moved pods"
    );
    ensure!(story.berths("train", BerthState::Committed).await?.len() == 1, "growth keeps the Berth");
    Ok(())
}

async fn slices_stay_inside_one_rack_each(world: Arc<World>) -> Result<()> {
    // Racks of three nodes: filling one would break the second slice.
    let story = Story::begin(&world, "slices_stay_inside_one_rack_each", Shape::new(1, 3, 3)).await?;
    story.submit("{name: train, roles: [{replicas: 6, slice: {size: 2, within: rack}}]}").await?;
    story.running("train", "6/6").await?;
    let pods = story.pods("train").await?;
    for slice in 0..3 {
        let pair = (0..2).map(|i| format!("train-worker-{}", slice * 2 + i));
        let pair =
            pair.map(|n| pods.get(&n).cloned().map(|p| (n, p))).collect::<Option<_>>().context("named by index")?;
        ensure!(racks(&pair).len() == 1, "slice {slice} is in {:?}", racks(&pair));
    }
    Ok(())
}

async fn a_required_rack_is_waited_for(world: Arc<World>) -> Result<()> {
    let story = Story::begin(&world, "a_required_rack_is_waited_for", Shape::new(1, 2, 2)).await?;
    // One node of each rack is taken: two are free, but never in one rack.
    for node in ["b0-r0-n0", "b0-r1-n0"] {
        story.patch_node(node, serde_json::json!({"metadata": {"labels": {"half": "yes"}}})).await?;
    }
    story.submit("{name: spread, roles: [{replicas: 2, template: {spec: {nodeSelector: {half: 'yes'}}}}]}").await?;
    story.running("spread", "2/2").await?;
    story.submit("{name: train, topology: {required: rack}, roles: [{replicas: 2}]}").await?;
    let waits = story
        .job_until("train", "waiting with a reason", |j| j.status.as_ref().is_some_and(|s| s.pending.is_some()))
        .await?;
    let pending = waits.status.and_then(|s| s.pending).context("it waits")?;
    ensure!(["NoDomainFits", "NoCapacity"].contains(&pending.code.as_str()), "{pending:?}");
    story.never_had_pods("train")?;
    story.delete("spread").await?;
    story.running("train", "2/2").await?;
    ensure!(racks(&story.pods("train").await?).len() == 1);
    Ok(())
}

async fn a_preferred_rack_gives_way_without_patience(world: Arc<World>) -> Result<()> {
    let story = Story::begin(&world, "a_preferred_rack_gives_way", Shape::new(1, 2, 2)).await?;
    story.submit("{name: one, roles: [{replicas: 1}]}").await?;
    story.running("one", "1/1").await?;
    story.submit("{name: train, topology: {required: block, preferred: rack}, roles: [{replicas: 3}]}").await?;
    let job = story.running("train", "3/3").await?;
    let placement = job.status.and_then(|s| s.placement).context("it is placed")?;
    ensure!(placement.domains == 2 && racks(&story.pods("train").await?).len() == 2, "{placement:?}");
    Ok(())
}

async fn patience_waits_for_the_preferred_rack_and_ends(world: Arc<World>) -> Result<()> {
    let story = Story::begin(&world, "patience_waits_and_ends", Shape::new(1, 2, 2)).await?;
    for half in ["b0-r0-n0", "b0-r1-n0"] {
        story.patch_node(half, serde_json::json!({"metadata": {"labels": {"half": "yes"}}})).await?;
    }
    // Ends at a known time, so that the preferred rack has a date.
    story
        .submit(
            "{name: spread, maxRuntime: 10m, roles: [{replicas: 2, template: {spec: {nodeSelector: {half: 'yes'}}}}]}",
        )
        .await?;
    story.running("spread", "2/2").await?;
    let rack = "topology: {required: block, preferred: rack, patience: 30m}, roles: [{replicas: 2}]";
    story.submit(&format!("{{name: patient, {rack}}}")).await?;
    // Two nodes are free now, in two racks: what it waits for is its own wish.
    story.pending("patient", "WaitingForPatience").await?;
    // Another, of one node, starts meanwhile: the planner has looked at both.
    story.submit("{name: passes, maxRuntime: 1m, roles: [{replicas: 1, runtime: 1s}]}").await?;
    story.phase("passes", Phase::Succeeded).await?;
    story.never_had_pods("patient")?;
    story.change("patient", serde_json::json!({"spec": {"topology": {"patience": "1s"}}})).await?;
    story.running("patient", "2/2").await?;
    ensure!(racks(&story.pods("patient").await?).len() == 2, "only nodes in different racks were free");
    Ok(())
}

async fn pods_know_their_gang(world: Arc<World>) -> Result<()> {
    let story = Story::begin(&world, "pods_know_their_gang", Shape::new(1, 1, 3)).await?;
    story
        .submit("{name: train, topology: {required: rack}, roles: [{name: chief, replicas: 1}, {replicas: 2}]}")
        .await?;
    story.running("train", "3/3").await?;
    let pods = story.pods("train").await?;
    let last = pods.get("train-worker-1").context("named <job>-<role>-<index>")?;
    ensure!(last.labels().get(labels::RANK).map(String::as_str) == Some("2"), "{:?}", last.labels());
    let spec = last.spec.as_ref().context("a spec")?;
    ensure!(spec.hostname.as_deref() == Some("train-worker-1") && spec.subdomain.as_deref() == Some("train"));
    ensure!(spec.scheduler_name.as_deref() == Some("berth"));
    let env = |name: &str| value_of(last, name);
    for (name, value) in [
        ("BERTH_JOB", "train"),
        ("BERTH_ROLE", "worker"),
        ("BERTH_INDEX", "1"),
        ("BERTH_RANK", "2"),
        ("BERTH_WORLD_SIZE", "3"),
        ("BERTH_INCARNATION", "1"),
        ("MASTER_ADDR", "train-chief-0.train"),
        ("PET_NODE_RANK", "2"),
    ] {
        ensure!(env(name).is_some_and(|v| v.starts_with(value)), "{name} is {:?}, not {value}", env(name));
    }
    let service = story.api::<Service>().get("train").await?.spec.context("a Service named like the job")?;
    ensure!(service.cluster_ip.as_deref() == Some("None") && service.publish_not_ready_addresses == Some(true));
    Ok(())
}

fn value_of(pod: &Pod, name: &str) -> Option<String> {
    let container = pod.spec.as_ref()?.containers.first()?;
    container.env.as_ref()?.iter().find(|e| e.name == name)?.value.clone()
}

async fn roles_start_in_order_of_dependence(world: Arc<World>) -> Result<()> {
    let story = Story::begin(&world, "roles_start_in_order_of_dependence", Shape::new(1, 1, 3)).await?;
    let roles = "[{replicas: 2, dependsOn: [chief]}, {name: chief, replicas: 1, start-delay: 3s}]";
    story.submit(&format!("{{name: train, roles: {roles}}}")).await?;
    let early = story.pods_until("train", "the chief", |pods| !pods.is_empty()).await?;
    ensure!(early.len() == 1 && early.contains_key("train-chief-0"), "{:?}", early.keys());
    story.running("train", "3/3").await?;
    let pods = story.pods("train").await?;
    let ready = |pod: &Pod| {
        let conditions = pod.status.as_ref().and_then(|s| s.conditions.clone()).unwrap_or_default();
        conditions.into_iter().find(|c| c.type_ == "Ready").and_then(|c| c.last_transition_time).map(|t| t.0)
    };
    let chief = pods.get("train-chief-0").and_then(ready).context("ready since")?;
    for worker in pods.values().filter(|p| is_live(p) && p.name_any().contains("worker")) {
        let made = worker.metadata.creation_timestamp.as_ref().context("a time")?.0;
        ensure!(made >= chief, "{} was made at {made}, before the chief was ready at {chief}", worker.name_any());
    }
    Ok(())
}

async fn a_node_without_labels_serves_only_jobs_without_a_level(world: Arc<World>) -> Result<()> {
    let story = Story::begin(&world, "a_node_without_labels", Shape::new(1, 1, 2)).await?;
    for bare in ["bare-0", "bare-1"] {
        world.create(&story.node(bare, None, 8)).await?;
    }
    story.submit("{name: holder, topology: {required: rack}, roles: [{replicas: 2}]}").await?;
    story.running("holder", "2/2").await?;
    let labelled = racks(&story.pods("holder").await?);
    ensure!(labelled.len() == 1 && labelled.iter().all(|r| r.ends_with("b0-r0")), "{labelled:?}");
    // One node is always inside one rack; two whose racks nobody knows may not be.
    story.submit("{name: train, topology: {required: rack}, roles: [{replicas: 2}]}").await?;
    story.job_until("train", "waiting", |j| j.status.as_ref().is_some_and(|s| s.pending.is_some())).await?;
    story.submit("{name: anywhere, roles: [{replicas: 2}]}").await?;
    story.running("anywhere", "2/2").await?;
    let nodes: BTreeSet<String> = story.pods("anywhere").await?.values().map(node_of).collect();
    ensure!(nodes.iter().all(|n| n.contains("-bare-")), "{nodes:?}");
    story.never_had_pods("train")?;
    let train = story.job("train").await?;
    ensure!(train.status.and_then(|s| s.phase) != Some(Phase::Running));
    Ok(())
}
