//! The picture of the cluster that rules look at: live queues, topologies, nodes, classes, namespaces and jobs.
//!
//! Kept up object by object by its owner. What follows from nodes and topologies together is made when first asked for.

use crate::capacity::Capacity;
use crds::v1alpha1::{Phase, Queue, Topology, TrainingJob};
use k8s_openapi::api::core::v1::{Namespace, Node};
use k8s_openapi::api::scheduling::v1::PriorityClass;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};
use translate::job::PriorityClasses;

/// What rules need of a namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamespaceFacts {
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its annotations.
    pub annotations: BTreeMap<String, String>,
}

/// What rules need of other jobs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobFacts {
    /// Its queue.
    pub queue: String,
    /// Levels that it names.
    pub levels: BTreeSet<String>,
    /// Waits in its queue.
    pub pending: bool,
    /// Not finished.
    pub living: bool,
}

impl JobFacts {
    /// The facts of a job.
    #[must_use]
    pub fn of(job: &TrainingJob, namespace: Option<&BTreeMap<String, String>>) -> Self {
        let phase = job.status.as_ref().and_then(|s| s.phase).unwrap_or_default();
        let living = !phase.is_finished();
        let waits = matches!(phase, Phase::Pending | Phase::Reserved | Phase::Restarting);
        Self {
            queue: translate::job::queue_name(job, namespace).to_owned(),
            levels: levels(job),
            pending: living && waits && !job.spec.suspend,
            living,
        }
    }
}

/// The levels that a job names.
pub(crate) fn levels(job: &TrainingJob) -> BTreeSet<String> {
    let topology = &job.spec.topology;
    let slices = job.spec.roles.iter().filter_map(|r| r.slice.as_ref()).map(|s| &s.within);
    topology.required.iter().chain(&topology.preferred).chain(slices).cloned().collect()
}

/// The picture of the cluster.
#[derive(Clone, Debug)]
pub struct World {
    own_namespace: String,
    queues: BTreeMap<String, Arc<Queue>>,
    topologies: BTreeMap<String, Arc<Topology>>,
    nodes: BTreeMap<String, Arc<Node>>,
    classes: BTreeMap<String, Arc<PriorityClass>>,
    namespaces: BTreeMap<String, NamespaceFacts>,
    jobs: BTreeMap<String, JobFacts>,
    capacity: OnceLock<Arc<Capacity>>,
}

impl World {
    /// An empty cluster; `own_namespace` is the one that Berth itself runs in.
    #[must_use]
    pub fn new(own_namespace: &str) -> Self {
        Self {
            own_namespace: own_namespace.to_owned(),
            queues: BTreeMap::new(),
            topologies: BTreeMap::new(),
            nodes: BTreeMap::new(),
            classes: BTreeMap::new(),
            namespaces: BTreeMap::new(),
            jobs: BTreeMap::new(),
            capacity: OnceLock::new(),
        }
    }

    /// The namespace that Berth itself runs in.
    #[must_use]
    pub fn own_namespace(&self) -> &str {
        &self.own_namespace
    }

    /// Adds or replaces a queue.
    pub fn set_queue(&mut self, queue: Queue) {
        self.queues.insert(translate::key_of(&queue), Arc::new(queue));
    }

    /// Removes a queue.
    pub fn remove_queue(&mut self, name: &str) {
        self.queues.remove(name);
    }

    /// Adds or replaces a Topology.
    pub fn set_topology(&mut self, topology: Topology) {
        let name = translate::key_of(&topology);
        // Its status changes often and says little here.
        let same = self.topologies.get(&name).is_some_and(|old| old.spec == topology.spec);
        self.topologies.insert(name, Arc::new(topology));
        if !same {
            self.capacity = OnceLock::new();
        }
    }

    /// Removes a Topology.
    pub fn remove_topology(&mut self, name: &str) {
        self.topologies.remove(name);
        self.capacity = OnceLock::new();
    }

    /// Adds or replaces a node. Heartbeats change nothing.
    pub fn set_node(&mut self, node: Node) {
        let name = translate::key_of(&node);
        if self.nodes.get(&name).is_some_and(|old| is_same(old, &node)) {
            return;
        }
        self.nodes.insert(name, Arc::new(node));
        self.capacity = OnceLock::new();
    }

    /// Removes a node.
    pub fn remove_node(&mut self, name: &str) {
        if self.nodes.remove(name).is_some() {
            self.capacity = OnceLock::new();
        }
    }

    /// Replaces all nodes and Topologies by what was read in one go.
    pub fn replace_capacity(&mut self, nodes: Vec<Node>, topologies: Vec<Topology>) {
        self.nodes = nodes.into_iter().map(|n| (translate::key_of(&n), Arc::new(n))).collect();
        self.topologies = topologies.into_iter().map(|t| (translate::key_of(&t), Arc::new(t))).collect();
        self.capacity = OnceLock::new();
    }

    /// Adds or replaces a priority class.
    pub fn set_priority_class(&mut self, class: PriorityClass) {
        self.classes.insert(translate::key_of(&class), Arc::new(class));
    }

    /// Removes a priority class.
    pub fn remove_priority_class(&mut self, name: &str) {
        self.classes.remove(name);
    }

    /// Adds or replaces a namespace.
    pub fn set_namespace(&mut self, namespace: &Namespace) {
        let facts = NamespaceFacts {
            labels: namespace.metadata.labels.clone().unwrap_or_default(),
            annotations: namespace.metadata.annotations.clone().unwrap_or_default(),
        };
        self.namespaces.insert(translate::key_of(namespace), facts);
    }

    /// Removes a namespace.
    pub fn remove_namespace(&mut self, name: &str) {
        self.namespaces.remove(name);
    }

    /// Adds or replaces a job.
    pub fn set_job(&mut self, job: &TrainingJob) {
        let annotations = job.metadata.namespace.as_ref().and_then(|n| self.namespaces.get(n)).map(|f| &f.annotations);
        let facts = JobFacts::of(job, annotations);
        self.jobs.insert(translate::key_of(job), facts);
    }

    /// Removes a job by `namespace/name`.
    pub fn remove_job(&mut self, key: &str) {
        self.jobs.remove(key);
    }

    /// One queue.
    #[must_use]
    pub fn queue(&self, name: &str) -> Option<&Queue> {
        self.queues.get(name).map(AsRef::as_ref)
    }

    /// All queues by name.
    pub fn queues(&self) -> impl Iterator<Item = (&str, &Queue)> {
        self.queues.iter().map(|(name, queue)| (name.as_str(), queue.as_ref()))
    }

    /// The children of a queue.
    pub fn children<'a>(&'a self, parent: &'a str) -> impl Iterator<Item = (&'a str, &'a Queue)> {
        self.queues().filter(move |(_, queue)| queue.spec.parent.as_deref() == Some(parent))
    }

    /// A queue's ancestors, nearest first; ends where the tree is broken.
    #[must_use]
    pub fn ancestors(&self, queue: &Queue) -> Vec<(&str, &Queue)> {
        let mut found: Vec<(&str, &Queue)> = Vec::new();
        let mut next = queue.spec.parent.as_deref();
        while let Some((name, above)) = next.and_then(|n| self.queues.get_key_value(n)) {
            if found.len() > self.queues.len() {
                break;
            }
            found.push((name, above));
            next = above.spec.parent.as_deref();
        }
        found
    }

    /// All Topologies by name.
    pub fn topologies(&self) -> impl Iterator<Item = (&str, &Topology)> {
        self.topologies.iter().map(|(name, topology)| (name.as_str(), topology.as_ref()))
    }

    /// All nodes by name.
    pub fn nodes(&self) -> impl Iterator<Item = &Node> {
        self.nodes.values().map(AsRef::as_ref)
    }

    /// The priority classes.
    #[must_use]
    pub fn classes(&self) -> PriorityClasses {
        PriorityClasses::of(self.classes.values().map(AsRef::as_ref))
    }

    /// One namespace.
    #[must_use]
    pub fn namespace(&self, name: &str) -> Option<&NamespaceFacts> {
        self.namespaces.get(name)
    }

    /// All jobs by `namespace/name`.
    pub fn jobs(&self) -> impl Iterator<Item = (&str, &JobFacts)> {
        self.jobs.iter().map(|(key, facts)| (key.as_str(), facts))
    }

    /// What the registered nodes hold and where they stand.
    #[must_use]
    pub fn capacity(&self) -> Arc<Capacity> {
        self.capacity.get_or_init(|| Arc::new(Capacity::of(&self.topologies, &self.nodes))).clone()
    }
}

/// Whether nothing changed that decides where pods fit or whether the node is up.
fn is_same(old: &Node, new: &Node) -> bool {
    let allocatable = |n: &Node| n.status.as_ref().and_then(|s| s.allocatable.clone());
    let taints = |n: &Node| n.spec.as_ref().and_then(|s| s.taints.clone());
    let ready = |n: &Node| translate::node::facts(n).closed();
    old.metadata.labels == new.metadata.labels
        && taints(old) == taints(new)
        && allocatable(old) == allocatable(new)
        && ready(old) == ready(new)
}
