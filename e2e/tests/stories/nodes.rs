//! What a pod that is bound at creation would bypass, and nodes that fail.

use anyhow::{Context, Result, ensure};
use berth_e2e::runner::Told;
use berth_e2e::story::{is_live, node_of, racks};
use berth_e2e::{Shape, Story, World};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;
use std::collections::BTreeSet;
use std::sync::Arc;

pub(crate) fn all() -> Vec<Told> {
    berth_e2e::stories![
        a_cordoned_node_gets_nothing,
        a_tainted_node_serves_only_who_tolerates_it,
        pod_slots_are_counted,
        a_foreign_pod_in_the_way_is_planned_around,
        a_host_port_in_use_keeps_a_node_out,
        a_lost_node_is_replaced_in_its_rack,
        a_gang_its_kubelets_refuse_is_rolled_back_whole,
    ]
}

async fn a_cordoned_node_gets_nothing(world: Arc<World>) -> Result<()> {
    let story = Story::begin(&world, "a_cordoned_node_gets_nothing", Shape::new(1, 1, 3)).await?;
    story.patch_node("b0-r0-n0", json!({"spec": {"unschedulable": true}})).await?;
    story.submit("{name: two, roles: [{replicas: 2}]}").await?;
    story.running("two", "2/2").await?;
    let nodes: BTreeSet<String> = story.pods("two").await?.values().map(node_of).collect();
    ensure!(!nodes.contains(&story.node_name("b0-r0-n0")), "{nodes:?}");
    story.submit("{name: third, roles: [{replicas: 1}]}").await?;
    story.job_until("third", "waiting", |j| j.status.as_ref().is_some_and(|s| s.pending.is_some())).await?;
    story.never_had_pods("third")?;
    story.patch_node("b0-r0-n0", json!({"spec": {"unschedulable": false}})).await?;
    story.running("third", "1/1").await?;
    Ok(())
}

async fn a_tainted_node_serves_only_who_tolerates_it(world: Arc<World>) -> Result<()> {
    let story = Story::begin(&world, "a_tainted_node_serves", Shape::new(1, 1, 1)).await?;
    let taint = json!({"spec": {"taints": [{"key": "reserved", "value": "tests", "effect": "NoSchedule"}]}});
    story.patch_node("b0-r0-n0", taint).await?;
    let tolerates = "template: {spec: {tolerations: [{key: reserved, operator: Exists}]}}";
    story.submit(&format!("{{name: tolerant, roles: [{{replicas: 1, {tolerates}}}]}}")).await?;
    story.running("tolerant", "1/1").await?;
    // Of all nodes it could have, each is tainted: that can never run as it is, and the message says so.
    story
        .refused("{name: plain, roles: [{replicas: 1}]}", &["PodFitsNoNode", "taint it does not tolerate", "reserved"])
        .await?;
    story.never_had_pods("plain")
}

/// A pod of somebody else, bound by somebody else.
fn foreign(story: &Story, name: &str, node: &str, more: serde_json::Value) -> serde_json::Value {
    let mut container = json!({"name": "main", "image": "other"});
    if let serde_json::Value::Object(more) = more {
        for (key, value) in more {
            container[key] = value;
        }
    }
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": story.name},
        "spec": {"nodeName": story.node_name(node), "containers": [container]},
    })
}

async fn pod_slots_are_counted(world: Arc<World>) -> Result<()> {
    let story = Story::begin(&world, "pod_slots_are_counted", Shape::new(1, 1, 2)).await?;
    let full = json!({"status": {"allocatable": {"pods": "1"}, "capacity": {"pods": "1"}}});
    world.nodes().patch_status(&story.node_name("b0-r0-n0"), &PatchParams::default(), &Patch::Merge(full)).await?;
    world.create(&foreign(&story, "other", "b0-r0-n0", json!({}))).await?;
    story.submit("{name: train, roles: [{replicas: 3, gpus: 1}]}").await?;
    story.running("train", "3/3").await?;
    let nodes: BTreeSet<String> = story.pods("train").await?.values().map(node_of).collect();
    ensure!(nodes == BTreeSet::from([story.node_name("b0-r0-n1")]), "all GPUs of n0 are free, but no slot: {nodes:?}");
    Ok(())
}

async fn a_foreign_pod_in_the_way_is_planned_around(world: Arc<World>) -> Result<()> {
    let story = Story::begin(&world, "a_foreign_pod_in_the_way", Shape::new(1, 1, 3)).await?;
    let takes = json!({"resources": {"limits": {"nvidia.com/gpu": "4"}}});
    world.create(&foreign(&story, "other", "b0-r0-n1", takes)).await?;
    story.submit("{name: two, roles: [{replicas: 2}]}").await?;
    story.running("two", "2/2").await?;
    let nodes: BTreeSet<String> = story.pods("two").await?.values().map(node_of).collect();
    ensure!(!nodes.contains(&story.node_name("b0-r0-n1")), "{nodes:?}");
    story.submit("{name: third, roles: [{replicas: 1}]}").await?;
    story.job_until("third", "waiting", |j| j.status.as_ref().is_some_and(|s| s.pending.is_some())).await?;
    story.never_had_pods("third")?;
    story.api::<Pod>().delete("other", &DeleteParams::default().grace_period(0)).await?;
    story.running("third", "1/1").await?;
    Ok(())
}

async fn a_host_port_in_use_keeps_a_node_out(world: Arc<World>) -> Result<()> {
    let story = Story::begin(&world, "a_host_port_in_use", Shape::new(1, 1, 2)).await?;
    let port = json!({"ports": [{"containerPort": 9000, "hostPort": 9000}]});
    world.create(&foreign(&story, "other", "b0-r0-n0", port)).await?;
    let wants =
        "template: {spec: {containers: [{name: train, image: train, ports: [{containerPort: 9000, hostPort: 9000}]}]}}";
    story.submit(&format!("{{name: train, roles: [{{replicas: 1, {wants}}}]}}")).await?;
    story.running("train", "1/1").await?;
    let nodes: Vec<String> = story.pods("train").await?.values().map(node_of).collect();
    ensure!(nodes == [story.node_name("b0-r0-n1")], "{nodes:?}");
    Ok(())
}

async fn a_lost_node_is_replaced_in_its_rack(world: Arc<World>) -> Result<()> {
    let story = Story::begin(&world, "a_lost_node_is_replaced", Shape::new(1, 2, 3)).await?;
    story.submit("{name: train, topology: {required: rack}, roles: [{replicas: 2}]}").await?;
    story.running("train", "2/2").await?;
    let before = story.pods("train").await?;
    let home = racks(&before);
    let lost = before.values().next().map(node_of).context("a pod")?;
    world.plane.run("fail-node", &[&lost])?;
    let job = story
        .job_until("train", "running again, elsewhere", |j| {
            j.status.as_ref().is_some_and(|s| s.disruptions == Some(1) && s.ready.as_deref() == Some("2/2"))
        })
        .await?;
    let status = job.status.context("a status")?;
    ensure!(status.restarts.unwrap_or(0) == 0, "a lost node is not the user's failure: {:?}", status.restarts);
    let after: std::collections::BTreeMap<_, _> =
        story.pods("train").await?.into_iter().filter(|(_, p)| node_of(p) != lost).collect();
    ensure!(after.len() == 2 && racks(&after) == home, "they are in {:?}, before in {home:?}", racks(&after));
    story.world.nodes().delete(&lost, &DeleteParams::default()).await?;
    Ok(())
}

async fn a_gang_its_kubelets_refuse_is_rolled_back_whole(world: Arc<World>) -> Result<()> {
    let story = Story::begin(&world, "a_gang_its_kubelets_refuse", Shape::new(1, 1, 2)).await?;
    story.submit("{name: train, roles: [{replicas: 1}, {name: odd, replicas: 1, refuse: OutOfcpu}]}").await?;
    story.pods_until("train", "pods made", |pods| !pods.is_empty()).await?;
    story.berth_until("train", "rolled back", |b| b.spec.state == crds::v1alpha1::BerthState::Released).await?;
    story.pods_until("train", "nothing left of it", |pods| pods.values().all(|p| !is_live(p))).await?;
    let job = story.job("train").await?;
    ensure!(job.status.as_ref().and_then(|s| s.started_at).is_none(), "it never started: {:?}", job.status);
    ensure!(story.ever("train").iter().all(|n| n.starts_with("train-")), "{}", job.name_any());
    Ok(())
}
