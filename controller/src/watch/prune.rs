//! What is dropped of objects before they are kept: a cluster has 150,000 pods and we read a tenth of each.

use crds::names::annotations::SELECTED_NODE;
use k8s_openapi::api::apps::v1::{DaemonSet, DaemonSetSpec};
use k8s_openapi::api::core::v1::{
    CSIPersistentVolumeSource, Container, Node, PersistentVolume, PersistentVolumeClaim, PersistentVolumeClaimSpec,
    PersistentVolumeClaimStatus, PersistentVolumeSpec, Pod,
};
use k8s_openapi::api::core::v1::{PodSpec, PodTemplateSpec};
use k8s_openapi::api::storage::v1::CSINode;
use kube::{Resource, ResourceExt};
use std::sync::Arc;

/// Drops annotations that are not ours.
pub(super) fn bare<K: Resource>(object: &mut K) {
    object.annotations_mut().retain(|name, _| name.starts_with(crds::names::DOMAIN_PREFIX));
}

/// Drops images and volumes of a node.
pub(super) fn node(node: &mut Node) {
    bare(node);
    if let Some(status) = &mut node.status {
        status.images = None;
        status.volumes_attached = None;
        status.volumes_in_use = None;
        status.config = None;
    }
}

/// Keeps of a claim how it is used and which node was chosen for it.
pub(super) fn claim(claim: &mut PersistentVolumeClaim) {
    claim.annotations_mut().retain(|name, _| name == SELECTED_NODE);
    claim.labels_mut().clear();
    let spec = claim.spec.take().unwrap_or_default();
    claim.spec = Some(PersistentVolumeClaimSpec {
        access_modes: spec.access_modes,
        storage_class_name: spec.storage_class_name,
        volume_name: spec.volume_name,
        ..PersistentVolumeClaimSpec::default()
    });
    let phase = claim.status.take().and_then(|s| s.phase);
    claim.status = Some(PersistentVolumeClaimStatus { phase, ..PersistentVolumeClaimStatus::default() });
}

/// Keeps of a volume where it can be used and whose it is.
pub(super) fn volume(volume: &mut PersistentVolume) {
    volume.annotations_mut().clear();
    volume.labels_mut().retain(|name, _| name.ends_with("/zone") || name.ends_with("/region"));
    let spec = volume.spec.take().unwrap_or_default();
    let driver = |csi: CSIPersistentVolumeSource| CSIPersistentVolumeSource {
        driver: csi.driver,
        ..CSIPersistentVolumeSource::default()
    };
    volume.spec = Some(PersistentVolumeSpec {
        claim_ref: spec.claim_ref,
        node_affinity: spec.node_affinity,
        csi: spec.csi.map(driver),
        ..PersistentVolumeSpec::default()
    });
    volume.status = None;
}

/// Keeps of a node's drivers how much each can attach.
pub(super) fn csi_node(node: &mut CSINode) {
    bare(node);
    node.spec.drivers.retain(|d| d.allocatable.as_ref().is_some_and(|a| a.count.is_some()));
    for driver in &mut node.spec.drivers {
        driver.node_id.clear();
        driver.topology_keys = None;
    }
}

/// Keeps of a set what its pods take and where they may be.
pub(super) fn daemon_set(set: &mut DaemonSet) {
    bare(set);
    let spec = set.spec.take().and_then(|s| s.template.spec);
    let template = PodTemplateSpec { spec: spec.map(|s| asking(&s)), metadata: None };
    set.spec = Some(DaemonSetSpec { template, ..DaemonSetSpec::default() });
    set.status = None;
}

/// Of a pod's spec, what it takes and which nodes it allows.
#[must_use]
pub fn asking(full: &PodSpec) -> PodSpec {
    let mut kept = PodSpec {
        containers: full.containers.clone(),
        init_containers: full.init_containers.clone(),
        node_selector: full.node_selector.clone(),
        affinity: full.affinity.clone(),
        tolerations: full.tolerations.clone(),
        overhead: full.overhead.clone(),
        resources: full.resources.clone(),
        host_network: full.host_network,
        runtime_class_name: full.runtime_class_name.clone(),
        volumes: full.volumes.clone(),
        ..PodSpec::default()
    };
    kept.containers.iter_mut().chain(kept.init_containers.iter_mut().flatten()).for_each(container);
    only_claims(&mut kept);
    kept
}

fn only_claims(spec: &mut PodSpec) {
    if let Some(volumes) = &mut spec.volumes {
        volumes.retain(|v| v.persistent_volume_claim.is_some() || v.ephemeral.is_some());
    }
}

/// A pod as it is kept.
#[must_use]
pub fn pruned_pod(full: &Pod) -> Arc<Pod> {
    let mut kept = full.clone();
    kept.managed_fields_mut().clear();
    pod(&mut kept);
    Arc::new(kept)
}

/// Keeps of a pod what it takes on its node and how it fares.
pub(super) fn pod(pod: &mut Pod) {
    bare(pod);
    if let Some(spec) = &mut pod.spec {
        spec.containers.iter_mut().for_each(container);
        spec.init_containers.iter_mut().flatten().for_each(container);
        spec.affinity = None;
        spec.tolerations = None;
        spec.image_pull_secrets = None;
        spec.ephemeral_containers = None;
        spec.security_context = None;
        // Of volumes only claims count, for disks that one node holds.
        only_claims(spec);
    }
    if let Some(status) = &mut pod.status {
        status.host_ips = None;
        status.pod_ips = None;
        for seen in status.container_statuses.iter_mut().chain(status.init_container_statuses.iter_mut()).flatten() {
            seen.image.clear();
            seen.image_id.clear();
            seen.volume_mounts = None;
        }
    }
}

fn container(container: &mut Container) {
    let kept = Container {
        name: std::mem::take(&mut container.name),
        resources: container.resources.take(),
        ports: container.ports.take().map(|mut ports| {
            ports.retain(|p| p.host_port.is_some());
            ports
        }),
        restart_policy: container.restart_policy.take(),
        ..Container::default()
    };
    *container = kept;
}
