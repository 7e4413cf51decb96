//! The objects of a simulated cluster, as an API server would hold them. A controller that loses its memory has these
//! and nothing else.

use super::input::{Occupant, Scenario};
use crds::v1alpha1::{BerthState, Phase, TrainingJobStatus};
use crds::{Berth, Queue, Topology, TrainingJob};
use k8s_openapi::api::core::v1::{Namespace, Node, PersistentVolume, PersistentVolumeClaim};
use planner::Time;
use planner::private::PrivateEntry;
use std::collections::{BTreeMap, BTreeSet};
use translate::adopt::Berths;
use translate::job::PriorityClasses;

/// The objects.
#[derive(Debug)]
pub struct Store {
    /// Nodes by name; lost ones stay, so that what ran on them can be told.
    pub nodes: BTreeMap<String, Node>,
    /// Names of the lost ones.
    pub lost: BTreeSet<String>,
    /// Topologies by name.
    pub topologies: BTreeMap<String, Topology>,
    /// Queues by name.
    pub queues: BTreeMap<String, Queue>,
    /// Priority classes.
    pub classes: PriorityClasses,
    /// Namespaces by name.
    pub namespaces: BTreeMap<String, Namespace>,
    /// Volumes by name.
    pub volumes: BTreeMap<String, PersistentVolume>,
    /// Claims by `namespace/name`.
    pub claims: BTreeMap<String, PersistentVolumeClaim>,
    /// Foreign pods.
    pub occupants: Vec<Occupant>,
    /// Jobs by `namespace/name`.
    pub jobs: BTreeMap<String, TrainingJob>,
    /// Berths by `namespace/name`.
    pub berths: BTreeMap<String, Berth>,
    /// `Queue.status.privateRunning` by queue, in the planner's form.
    pub private_running: BTreeMap<String, Vec<PrivateEntry>>,
    /// Order of creation of the jobs, which breaks ties of their time stamps.
    pub sequence: BTreeMap<String, u64>,
}

impl Store {
    /// The objects at time 0, without jobs.
    #[must_use]
    pub fn of(scenario: &Scenario) -> Self {
        Self {
            nodes: scenario.nodes.clone(),
            lost: BTreeSet::new(),
            topologies: scenario.topologies.clone(),
            queues: scenario.queues.clone(),
            classes: PriorityClasses::of(scenario.classes.values()),
            namespaces: scenario.namespaces.clone(),
            volumes: scenario.volumes.clone(),
            claims: scenario.claims.clone(),
            occupants: scenario.occupants.clone(),
            jobs: BTreeMap::new(),
            berths: BTreeMap::new(),
            private_running: BTreeMap::new(),
            sequence: BTreeMap::new(),
        }
    }

    /// The status of a job, made if it has none.
    pub fn status(&mut self, key: &str) -> Option<&mut TrainingJobStatus> {
        Some(self.jobs.get_mut(key)?.status.get_or_insert_default())
    }

    /// Sets a job's phase.
    pub fn set_phase(&mut self, key: &str, phase: Phase) {
        if let Some(status) = self.status(key) {
            status.phase = Some(phase);
        }
    }

    /// The Berths that bear a job's name.
    #[must_use]
    pub fn berths_of(&self, job: &TrainingJob) -> Berths<'_> {
        let name = job.metadata.name.as_deref().unwrap_or_default();
        let namespace = &job.metadata.namespace;
        Berths::of(job, self.berths.values().filter(|b| b.spec.job == name && b.metadata.namespace == *namespace))
    }

    /// The Berth in force of a job.
    pub fn current_berth(&mut self, key: &str) -> Option<&mut Berth> {
        let job = self.jobs.get(key)?;
        let name = translate::key_of(self.berths_of(job).current?);
        self.berths.get_mut(&name)
    }

    /// The room of a job is free: its Berth tells why, a mere promise is deleted.
    pub fn release(&mut self, key: &str, cause: &str) {
        let Some(berth) = self.current_berth(key) else { return };
        let name = translate::key_of(berth);
        if berth.spec.state == BerthState::Reserved {
            self.berths.remove(&name);
            return;
        }
        berth.spec.state = BerthState::Released;
        berth.status.get_or_insert_default().cause = Some(cause.to_owned());
        for other in self.berths.values_mut() {
            other.spec.clears.retain(|c| c.berth != name.rsplit('/').next().unwrap_or_default());
        }
        self.forget_old_berths(key);
    }

    /// The last three Released Berths of a job are kept.
    fn forget_old_berths(&mut self, key: &str) {
        let Some(job) = self.jobs.get(key) else { return };
        let released = self.berths_of(job).released;
        let old: Vec<String> = released.iter().rev().skip(3).map(|b| translate::key_of(*b)).collect();
        for name in old {
            self.berths.remove(&name);
        }
    }

    /// Whether somebody is still leaving to make room for this job.
    #[must_use]
    pub fn is_clearing(&self, key: &str) -> bool {
        self.jobs.get(key).and_then(|job| self.berths_of(job).current).is_some_and(|b| !b.spec.clears.is_empty())
    }

    /// Foreign pods that have left by now go.
    pub fn drop_occupants(&mut self, now: Time) -> BTreeSet<String> {
        let gone = |o: &Occupant| o.until <= now;
        let nodes = self.occupants.iter().filter(|o| gone(o)).filter_map(|o| translate::pod::node_of(&o.pod));
        let nodes = nodes.map(str::to_owned).collect();
        self.occupants.retain(|o| !gone(o));
        nodes
    }
}
