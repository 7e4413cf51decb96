//! The kinds that are watched, each with what is kept of it.

use super::prune::{bare, claim, csi_node, daemon_set, node, pod, volume};
use super::{Change, Watcher};
use crate::health::Pulse;
use crate::metrics::Metrics;
use crds::{Berth, Queue, Topology, TrainingJob};
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{
    LimitRange, Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod, ResourceQuota,
};
use k8s_openapi::api::node::v1::RuntimeClass;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::scheduling::v1::PriorityClass;
use k8s_openapi::api::storage::v1::{CSINode, StorageClass};
use kube::api::Api;
use kube::core::DeserializeGuard;
use kube::{Client, Resource};
use serde::de::DeserializeOwned;
use std::fmt::Debug;
use std::sync::Arc;
use tokio::sync::mpsc;

/// A change of some object of the cluster.
#[derive(Clone, Debug)]
pub enum Delta {
    /// A node.
    Node(Change<Node>),
    /// A pod that is bound, ours or not.
    Pod(Change<Pod>),
    /// A job, if it can be read.
    Job(Change<DeserializeGuard<TrainingJob>>),
    /// A queue, if it can be read.
    Queue(Change<DeserializeGuard<Queue>>),
    /// A topology, if it can be read.
    Topology(Change<DeserializeGuard<Topology>>),
    /// A Berth, if it can be read.
    Berth(Change<DeserializeGuard<Berth>>),
    /// A priority class.
    PriorityClass(Change<PriorityClass>),
    /// A namespace.
    Namespace(Change<Namespace>),
    /// A limit range.
    LimitRange(Change<LimitRange>),
    /// A quota of a namespace.
    ResourceQuota(Change<ResourceQuota>),
    /// A runtime class.
    RuntimeClass(Change<RuntimeClass>),
    /// A disruption budget.
    DisruptionBudget(Change<PodDisruptionBudget>),
    /// A set of pods, one for each node.
    DaemonSet(Change<DaemonSet>),
    /// A pod of another scheduler that was promised a node and is not bound yet.
    Nominated(Change<Pod>),
    /// A claim of a volume.
    Claim(Change<PersistentVolumeClaim>),
    /// A volume.
    Volume(Change<PersistentVolume>),
    /// A class of volumes.
    StorageClass(Change<StorageClass>),
    /// What a node can attach.
    CsiNode(Change<CSINode>),
}

/// Every kind that is watched, by the name used in health and metrics.
const KINDS: [&str; 18] = [
    "Node",
    "Pod",
    "TrainingJob",
    "Queue",
    "Topology",
    "Berth",
    "PriorityClass",
    "Namespace",
    "LimitRange",
    "ResourceQuota",
    "RuntimeClass",
    "PodDisruptionBudget",
    "DaemonSet",
    "NominatedPod",
    "PersistentVolumeClaim",
    "PersistentVolume",
    "StorageClass",
    "CSINode",
];

/// What all watchers share.
#[derive(Clone)]
struct Shared {
    client: Client,
    sender: mpsc::Sender<Delta>,
    pulse: Arc<Pulse>,
    metrics: Arc<Metrics>,
}

/// Begins all watches; they end when the receiver is dropped.
pub fn spawn_all(client: Client, sender: mpsc::Sender<Delta>, pulse: Arc<Pulse>, metrics: Arc<Metrics>) {
    pulse.expect(&KINDS);
    let shared = Shared { client, sender, pulse, metrics };
    shared.spawn::<Node>("Node", None, node, Delta::Node);
    // Usage needs every bound pod, whoever bound it; pods that wait for other schedulers are not our business.
    shared.spawn::<Pod>("Pod", Some("spec.nodeName!="), pod, Delta::Pod);
    shared.spawn::<DeserializeGuard<TrainingJob>>("TrainingJob", None, |_| {}, Delta::Job);
    shared.spawn::<DeserializeGuard<Queue>>("Queue", None, |_| {}, Delta::Queue);
    shared.spawn::<DeserializeGuard<Topology>>("Topology", None, |_| {}, Delta::Topology);
    shared.spawn::<DeserializeGuard<Berth>>("Berth", None, |_| {}, Delta::Berth);
    shared.spawn::<PriorityClass>("PriorityClass", None, bare, Delta::PriorityClass);
    shared.spawn::<Namespace>("Namespace", None, |_| {}, Delta::Namespace);
    shared.spawn::<LimitRange>("LimitRange", None, bare, Delta::LimitRange);
    shared.spawn::<ResourceQuota>("ResourceQuota", None, bare, Delta::ResourceQuota);
    shared.spawn::<RuntimeClass>("RuntimeClass", None, bare, Delta::RuntimeClass);
    shared.spawn::<PodDisruptionBudget>("PodDisruptionBudget", None, bare, Delta::DisruptionBudget);
    shared.spawn::<DaemonSet>("DaemonSet", None, daemon_set, Delta::DaemonSet);
    let promised = Some("spec.nodeName=,status.nominatedNodeName!=");
    shared.spawn::<Pod>("NominatedPod", promised, pod, Delta::Nominated);
    shared.spawn::<PersistentVolumeClaim>("PersistentVolumeClaim", None, claim, Delta::Claim);
    shared.spawn::<PersistentVolume>("PersistentVolume", None, volume, Delta::Volume);
    // A default class says so in an annotation.
    shared.spawn::<StorageClass>("StorageClass", None, |_| {}, Delta::StorageClass);
    shared.spawn::<CSINode>("CSINode", None, csi_node, Delta::CsiNode);
}

impl Shared {
    fn spawn<K>(
        &self,
        kind: &'static str,
        fields: Option<&'static str>,
        prune: fn(&mut K),
        wrap: fn(Change<K>) -> Delta,
    ) where
        K: Resource + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
        K::DynamicType: Default,
    {
        let Self { client, sender, pulse, metrics } = self.clone();
        let watcher = Watcher { kind, api: Api::all(client), fields, prune, wrap, sender, pulse, metrics };
        tokio::spawn(watcher.run());
    }
}
