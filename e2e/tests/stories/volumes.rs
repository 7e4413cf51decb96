//! Gangs whose pods need volumes. Binding and claims of single pods are the cluster's own controllers'; making volumes is
//! played here.

use anyhow::{Context, Result, ensure};
use berth_e2e::runner::Told;
use berth_e2e::story::{node_of, racks};
use berth_e2e::{Shape, Story, World, wait};
use crds::names::annotations::SELECTED_NODE;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::ResourceExt;
use kube::runtime::watcher;
use serde_json::{Value, json};
use std::sync::Arc;

pub(crate) fn all() -> Vec<Told> {
    berth_e2e::stories![
        a_missing_claim_is_waited_for,
        a_volume_is_made_where_the_gang_is_placed_and_the_gang_comes_after_it,
        a_volume_for_each_pod_is_made_where_that_pod_sits,
        a_claim_that_cannot_serve_the_gang_is_refused,
    ]
}

async fn class(story: &Story, suffix: &str, provisioner: &str) -> Result<String> {
    let name = format!("{}-{suffix}", story.name);
    let manifest = json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name},
        "provisioner": provisioner, "volumeBindingMode": "WaitForFirstConsumer",
    });
    create(story, &manifest).await?;
    Ok(name)
}

/// Kinds whose plural the harness would have to guess.
async fn create(story: &Story, manifest: &Value) -> Result<()> {
    let object: kube::api::DynamicObject = serde_json::from_value(manifest.clone())?;
    let gvk = kube::core::GroupVersionKind::try_from(&object.types.clone().context("a kind")?)?;
    let plural =
        if gvk.kind == "StorageClass" { "storageclasses".to_owned() } else { format!("{}s", gvk.kind.to_lowercase()) };
    let resource = kube::core::ApiResource::from_gvk_with_plural(&gvk, &plural);
    let api: kube::Api<kube::api::DynamicObject> = kube::Api::all_with(story.world.client.clone(), &resource);
    api.create(&kube::api::PostParams::default(), &object).await?;
    Ok(())
}

async fn claim(story: &Story, name: &str, class: &str, mode: &str) -> Result<()> {
    let manifest = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name, "namespace": story.name},
        "spec": {"storageClassName": class, "accessModes": [mode], "resources": {"requests": {"storage": "1Gi"}}},
    });
    story.world.create(&manifest).await.map(drop)
}

/// The volume of a claim, usable in one rack of the story.
async fn volume(story: &Story, claim: &str, class: &str, rack: Option<&str>) -> Result<()> {
    let mut manifest = json!({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": format!("{}-{claim}", story.name)},
        "spec": {
            "storageClassName": class, "accessModes": ["ReadWriteMany"], "capacity": {"storage": "1Gi"},
            "claimRef": {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": story.name, "name": claim},
            "csi": {"driver": "csi.berth.test", "volumeHandle": claim}, "persistentVolumeReclaimPolicy": "Retain",
        },
    });
    if let Some(rack) = rack {
        let only = json!({"key": "fabric.topograph.run/tier-0", "operator": "In", "values": [rack]});
        manifest["spec"]["nodeAffinity"] = json!({"required": {"nodeSelectorTerms": [{"matchExpressions": [only]}]}});
    }
    create(story, &manifest).await
}

async fn selected(story: &Story, claim: &str) -> Result<String> {
    let config = watcher::Config::default().fields(&format!("metadata.name={claim}"));
    let node = |c: &PersistentVolumeClaim| c.annotations().get(SELECTED_NODE).cloned();
    let what = format!("a node chosen for claim {claim}");
    let found =
        wait::until(story.api::<PersistentVolumeClaim>(), config, &what, |all| all.values().any(|c| node(c).is_some()));
    found.await?.values().find_map(node).context("it was there")
}

fn gang(name: &str, replicas: u32, claim: &str) -> String {
    let volumes = format!("[{{name: data, persistentVolumeClaim: {{claimName: {claim}}}}}]");
    format!(
        "{{name: {name}, topology: {{required: rack}}, roles: [{{replicas: {replicas}, template: {{spec: {{volumes: {volumes}}}}}}}]}}"
    )
}

async fn a_missing_claim_is_waited_for(world: Arc<World>) -> Result<()> {
    let story = Story::begin(&world, "a_missing_claim", Shape::new(1, 2, 2)).await?;
    story.submit(&gang("train", 2, "data")).await?;
    let job = story.pending("train", "VolumeMissing").await?;
    let message = job.status.and_then(|s| s.pending).map(|p| p.message).unwrap_or_default();
    ensure!(message.contains("claim \"data\" does not exist; make it in namespace"), "{message}");
    story.never_had_pods("train")?;
    // Bound by hand to a volume of the second rack: there it starts.
    volume(&story, "data", "", Some("r1")).await?;
    claim(&story, "data", "", "ReadWriteMany").await?;
    story.running("train", "2/2").await?;
    let at = racks(&story.pods("train").await?);
    ensure!(at.iter().map(String::as_str).eq(["b0-r1"]), "the volume is in b0-r1, the gang in {at:?}");
    Ok(())
}

async fn a_volume_is_made_where_the_gang_is_placed_and_the_gang_comes_after_it(world: Arc<World>) -> Result<()> {
    let story = Story::begin(&world, "a_volume_is_made", Shape::new(1, 2, 2)).await?;
    let class = class(&story, "late", "csi.berth.test").await?;
    claim(&story, "data", &class, "ReadWriteMany").await?;
    story.submit(&gang("train", 2, "data")).await?;
    let node = selected(&story, "data").await?;
    story.never_had_pods("train")?;
    let rack = node.rsplit('-').nth(1).context("a rack in the node's name")?;
    volume(&story, "data", &class, Some(rack)).await?;
    story.running("train", "2/2").await?;
    let pods = story.pods("train").await?;
    ensure!(pods.values().any(|p| node_of(p) == node), "the volume was made for {node}");
    ensure!(racks(&pods).len() == 1, "{:?}", racks(&pods));
    Ok(())
}

async fn a_volume_for_each_pod_is_made_where_that_pod_sits(world: Arc<World>) -> Result<()> {
    let story = Story::begin(&world, "a_volume_for_each_pod", Shape::new(1, 1, 2)).await?;
    let class = class(&story, "late", "csi.berth.test").await?;
    let template = format!(
        "{{spec: {{storageClassName: {class}, accessModes: [ReadWriteOnce], resources: {{requests: {{storage: 1Gi}}}}}}}}"
    );
    let volumes = format!("[{{name: scratch, ephemeral: {{volumeClaimTemplate: {template}}}}}]");
    story
        .submit(&format!("{{name: train, roles: [{{replicas: 2, template: {{spec: {{volumes: {volumes}}}}}}}]}}"))
        .await?;
    story.running("train", "2/2").await?;
    for (name, pod) in story.pods("train").await? {
        let node = selected(&story, &format!("{name}-scratch")).await?;
        ensure!(node == node_of(&pod), "{name} sits on {}, its volume is made for {node}", node_of(&pod));
    }
    story.delete("train").await?;
    story.gone("train").await?;
    let none = |all: &wait::Objects<PersistentVolumeClaim>| all.is_empty();
    wait::until(story.api(), watcher::Config::default(), "the pods' claims gone", none).await?;
    Ok(())
}

async fn a_claim_that_cannot_serve_the_gang_is_refused(world: Arc<World>) -> Result<()> {
    let story = Story::begin(&world, "a_claim_that_cannot_serve", Shape::new(1, 1, 2)).await?;
    let late = class(&story, "late", "csi.berth.test").await?;
    let by_hand = class(&story, "hand", "kubernetes.io/no-provisioner").await?;
    claim(&story, "once", &late, "ReadWriteOnce").await?;
    claim(&story, "hand", &by_hand, "ReadWriteMany").await?;
    let words = ["VolumeUnsupported", "claim \"once\"", "ReadWriteOnce and 2 pods use it", "ReadWriteMany"];
    story.refused(&gang("shared", 2, "once"), &words).await?;
    let words = ["VolumeUnsupported", "claim \"hand\"", "its class makes no volumes", "bind it first"];
    story.refused(&gang("hand", 1, "hand"), &words).await?;
    story.never_had_pods("shared")?;
    story.never_had_pods("hand")
}
