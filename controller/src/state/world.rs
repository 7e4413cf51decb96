//! The planner's state kept in step with the objects: what changed is noted, and brought over in one go before planning.
//!
//! Invariant: every pod that takes room is counted exactly once, as a seat of its job or as foreign to its node.

use super::drift::Drift;
use super::index::{Changed, Index, claims_of_job, claims_of_pod, job_of_berth, job_of_pod};
use super::others::Others;
use super::probes::ProbeBook;
use super::record::Record;
use crate::args::Settings;
use crate::watch::{Change, Delta};
use crds::{Berth, Code, Queue, Topology};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Resource;
use planner::Time;
use planner::resources::Amounts;
use planner::state::ClusterState;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use translate::job::PriorityClasses;
use translate::pools::Place;
use translate::{FilterBook, PoolMap, TranslateError};

/// The picture.
pub struct World {
    /// Objects as last seen.
    pub index: Index,
    /// The planner's state.
    pub state: ClusterState,
    /// Memory of jobs.
    pub records: BTreeMap<String, Record>,
    /// Settings that meanings depend on.
    pub settings: Settings,
    /// Topologies in force.
    pub pools: PoolMap,
    /// Where nodes stand.
    pub places: BTreeMap<String, Place>,
    /// Values of priority classes.
    pub classes: PriorityClasses,
    /// What is wrong with queues, by name.
    pub queue_faults: BTreeMap<String, TranslateError>,
    /// Grows when a node's place changes.
    pub epochs: BTreeMap<String, i64>,
    /// Labels that change.
    pub drift: Drift,
    /// What dry runs said.
    pub probes: ProbeBook,
    pub(super) others: Others,
    pub(super) book: FilterBook,
    pub(super) taken: BTreeMap<String, Amounts>,
    pub(super) dirty_jobs: BTreeSet<String>,
    pub(super) dirty_nodes: BTreeSet<String>,
    pub(super) places_dirty: bool,
    pub(super) queues_dirty: bool,
    pub(super) changed: bool,
}

impl World {
    /// An empty world.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self {
            index: Index::default(),
            state: ClusterState::new(),
            records: BTreeMap::new(),
            settings,
            pools: PoolMap::of(&[]).expect("no Topology, nothing to misread"),
            places: BTreeMap::new(),
            classes: PriorityClasses::default(),
            queue_faults: BTreeMap::new(),
            epochs: BTreeMap::new(),
            drift: Drift::default(),
            probes: ProbeBook::default(),
            others: Others::default(),
            book: FilterBook::default(),
            taken: BTreeMap::new(),
            dirty_jobs: BTreeSet::new(),
            dirty_nodes: BTreeSet::new(),
            places_dirty: true,
            queues_dirty: true,
            changed: true,
        }
    }

    /// Takes one change in and notes what it touches.
    pub fn apply(&mut self, delta: Delta) {
        match delta {
            Delta::Pod(change) => {
                let changed = self.index.change_pods(change);
                self.pods_changed(&changed);
            }
            Delta::Node(change) => {
                let changed = self.index.change_nodes(change);
                self.nodes_changed(&changed);
            }
            Delta::Job(change) => {
                for (key, ..) in self.index.change_jobs(change) {
                    self.dirty_jobs.insert(key);
                }
                let unreadable = self.index.unreadable_jobs.keys().cloned();
                self.dirty_jobs.extend(unreadable);
            }
            Delta::Berth(change) => {
                let changed = self.index.change_guarded_berths(change);
                self.berths_changed(&changed);
            }
            Delta::Queue(change) => {
                let changed = self.index.change_queues(change);
                if changed.iter().any(|(_, before, after)| spec_differs(before, after, |q: &Queue| &q.spec)) {
                    self.queues_dirty = true;
                    self.all_jobs_dirty();
                }
            }
            Delta::Topology(change) => {
                let changed = self.index.change_topologies(change);
                if changed.iter().any(|(_, before, after)| spec_differs(before, after, |t: &Topology| &t.spec)) {
                    self.places_dirty = true;
                }
            }
            Delta::PriorityClass(change) => {
                self.index.change_table(|i| &mut i.classes, change);
                self.classes = PriorityClasses::of(self.index.classes.values().map(AsRef::as_ref));
                self.all_jobs_dirty();
            }
            Delta::Namespace(change) => {
                for (name, ..) in self.index.change_table(|i| &mut i.namespaces, change) {
                    // What its labels refused, they may allow now.
                    self.probes.forget_refusals(&name);
                    self.all_jobs_dirty();
                }
            }
            Delta::LimitRange(change) => self.related(change, |i| &mut i.limit_ranges),
            Delta::RuntimeClass(change) => self.related(change, |i| &mut i.runtime_classes),
            Delta::ResourceQuota(change) => {
                for (key, ..) in self.index.change_table(|i| &mut i.quotas, change) {
                    let namespace = super::split_key(&key).0.to_owned();
                    self.quota_changed(&namespace);
                }
            }
            Delta::DisruptionBudget(_) => {}
            Delta::DaemonSet(change) => self.daemons_changed(change),
            Delta::Nominated(change) => self.nominated_changed(change),
            Delta::Claim(change) => self.claims_changed(change),
            Delta::Volume(change) => self.volumes_changed(change),
            Delta::StorageClass(change) => self.classes_changed(change),
            Delta::CsiNode(change) => self.csi_nodes_changed(change),
        }
    }

    /// Takes an answer to our own write in, before any watch shows it.
    pub fn assume_pods(&mut self, pods: Vec<Arc<Pod>>) {
        for pod in pods {
            self.apply(Delta::Pod(Change::Set(crate::watch::pruned_pod(&pod))));
        }
    }

    /// The same for a Berth.
    pub fn assume_berth(&mut self, berth: Arc<Berth>) {
        let changed = self.index.change_berths(Change::Set(berth));
        self.berths_changed(&changed);
    }

    /// A job has to be looked at.
    pub fn touch_job(&mut self, key: &str) {
        self.dirty_jobs.insert(key.to_owned());
    }

    /// Jobs that have to be looked at since the last call.
    pub fn take_dirty(&mut self) -> BTreeSet<String> {
        std::mem::take(&mut self.dirty_jobs)
    }

    /// Whether the planner's state changed since the last call.
    pub fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.changed)
    }

    /// The planner has to look again.
    pub fn note_changed(&mut self) {
        self.changed = true;
    }

    fn related<K: Resource>(&mut self, change: Change<K>, table: impl Fn(&mut Index) -> &mut super::index::Table<K>) {
        if !self.index.change_table(table, change).is_empty() {
            self.all_jobs_dirty();
        }
    }

    pub(super) fn all_jobs_dirty(&mut self) {
        self.dirty_jobs.extend(self.index.jobs.keys().cloned());
    }

    /// A quota has moved: jobs that it refused may try again.
    fn quota_changed(&mut self, namespace: &str) {
        self.probes.forget_quota_refusals(namespace);
        for (key, record) in &mut self.records {
            let by_quota = |held: &super::record::Held| held.code == Code::NamespaceQuota;
            let waits = record.backoff.as_ref().or(record.blocked.as_ref()).is_some_and(by_quota);
            if waits && super::split_key(key).0 == namespace {
                record.backoff = None;
                self.dirty_jobs.insert(key.clone());
            }
        }
    }

    fn pods_changed(&mut self, changed: &Changed<Pod>) {
        for (key, before, after) in changed {
            for pod in [before, after].into_iter().flatten() {
                if let Some(node) = translate::pod::node_of(pod) {
                    self.dirty_nodes.insert(node.to_owned());
                }
                self.dirty_jobs.extend(job_of_pod(pod));
                self.exclusive_claims_moved(&claims_of_pod(pod));
            }
            match after {
                Some(pod) => self.note_taken(key, pod),
                None => {
                    self.taken.remove(key);
                }
            }
        }
    }

    fn nodes_changed(&mut self, changed: &Changed<Node>) {
        for (name, before, after) in changed {
            let moved = match (before, after) {
                (Some(_), Some(node)) => self.places.get(name) != Some(&self.pools.place(node)),
                _ => true,
            };
            // While labels are doubted, those that come back look as if nothing had moved.
            self.places_dirty |= moved || self.drift.has_doubts();
            self.dirty_nodes.insert(name.clone());
            if moved || liveness_differs(before.as_deref(), after.as_deref()) {
                let jobs: Vec<String> = self.index.pods_of_node(name).filter_map(|(_, p)| job_of_pod(p)).collect();
                self.dirty_jobs.extend(jobs);
            }
        }
    }

    fn berths_changed(&mut self, changed: &Changed<Berth>) {
        for (_, before, after) in changed {
            for berth in [before, after].into_iter().flatten() {
                let job = job_of_berth(berth);
                let claims = self.index.jobs.get(&job).map(|job| claims_of_job(job)).unwrap_or_default();
                self.exclusive_claims_moved(&Vec::from_iter(claims));
                self.dirty_jobs.insert(job);
                let unknown = |n: &&str| self.state.find_node(n).is_none();
                self.places_dirty |= translate::berth::nodes_named(berth).iter().any(unknown);
                self.dirty_nodes.extend(translate::berth::nodes_named(berth).into_iter().map(str::to_owned));
            }
        }
    }

    /// Brings the planner's state in step. Jobs that an operation is under way for keep what was assumed.
    pub fn sync(&mut self, jobs: &BTreeSet<String>, now: Time) {
        // 1. Nodes and where they stand.
        let due = self.drift.due().is_some_and(|due| due <= now);
        if std::mem::take(&mut self.places_dirty) || due {
            self.rebuild_nodes(now);
            self.queues_dirty = true;
        }
        // 2. Queues, which count by pool.
        if std::mem::take(&mut self.queues_dirty) {
            let queues: Vec<&Queue> = self.index.queues.values().map(AsRef::as_ref).collect();
            let faults = translate::queue::sync(&mut self.state, &queues);
            self.queue_faults = faults.into_iter().map(|f| (f.object.clone(), f)).collect();
            self.changed = true;
        }
        // 3. Jobs, which need both.
        for key in jobs {
            self.sync_job(key, now);
        }
        self.weigh_promises();
        // 4. What others take on nodes, which depends on what is ours.
        for name in std::mem::take(&mut self.dirty_nodes) {
            self.sync_node(&name, now);
        }
    }
}

fn spec_differs<K, S: PartialEq>(before: &Option<Arc<K>>, after: &Option<Arc<K>>, spec: impl Fn(&K) -> &S) -> bool {
    match (before, after) {
        (Some(before), Some(after)) => spec(before) != spec(after),
        _ => true,
    }
}

/// Whether what runs on a node may fare differently now.
fn liveness_differs(before: Option<&Node>, after: Option<&Node>) -> bool {
    before.map(translate::node::facts) != after.map(translate::node::facts)
}
