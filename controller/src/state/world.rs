//! The planner's state kept in step with the objects: what changed is noted, and brought over in one go before planning.
//!
//! Invariant: every pod that takes room is counted exactly once, as a seat of its job or as foreign to its node.

use super::index::{Changed, Index, job_of_berth, job_of_pod};
use super::record::{Held, Record};
use crate::args::Settings;
use crate::commit::owner_uid;
use crate::watch::{Change, Delta};
use crds::v1alpha1::BerthState;
use crds::{Berth, Code, Queue, Topology, TrainingJob};
use k8s_openapi::api::core::v1::{Node, Pod, PodSpec};
use kube::Resource;
use planner::job::{Hold, Phase, Waiting};
use planner::reason;
use planner::resources::Amounts;
use planner::state::{ClusterState, NodeState};
use planner::topology::NodePath;
use planner::{JobIdx, ShapeIdx, Time};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use translate::adopt::{Adopted, Berths, Standing, adopt};
use translate::job::{Inherited, PriorityClasses};
use translate::pools::Place;
use translate::{FilterBook, PodAsk, PoolMap, TranslateError};

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
    book: FilterBook,
    taken: BTreeMap<String, Amounts>,
    dirty_jobs: BTreeSet<String>,
    dirty_nodes: BTreeSet<String>,
    places_dirty: bool,
    queues_dirty: bool,
    changed: bool,
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
            Delta::Namespace(change) => self.related(change, |i| &mut i.namespaces),
            Delta::LimitRange(change) => self.related(change, |i| &mut i.limit_ranges),
            Delta::RuntimeClass(change) => self.related(change, |i| &mut i.runtime_classes),
            Delta::ResourceQuota(change) => {
                for (key, ..) in self.index.change_table(|i| &mut i.quotas, change) {
                    let namespace = super::split_key(&key).0.to_owned();
                    self.quota_changed(&namespace);
                }
            }
            Delta::DisruptionBudget(_) => {}
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

    fn all_jobs_dirty(&mut self) {
        self.dirty_jobs.extend(self.index.jobs.keys().cloned());
    }

    /// A quota has moved: jobs that it refused may try again.
    fn quota_changed(&mut self, namespace: &str) {
        for (key, record) in &mut self.records {
            let waits = record.backoff.as_ref().is_some_and(|b| b.code == Code::NamespaceQuota);
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
            }
            match after {
                Some(pod) => {
                    let taken = translate::pod::taken(pod).unwrap_or_default();
                    let known = self.state.resources.len();
                    let rows = translate::amounts::rows(&taken, &mut self.state.resources);
                    if self.state.resources.len() > known {
                        translate::filters::grant_ports(&mut self.state);
                    }
                    self.taken.insert(key.clone(), rows);
                }
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
            self.places_dirty |= moved;
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
                self.dirty_jobs.insert(job_of_berth(berth));
                let unknown = |n: &&str| self.state.find_node(n).is_none();
                self.places_dirty |= translate::berth::nodes_named(berth).iter().any(unknown);
                self.dirty_nodes.extend(translate::berth::nodes_named(berth).into_iter().map(str::to_owned));
            }
        }
    }

    /// Brings the planner's state in step. Jobs that an operation is under way for keep what was assumed.
    pub fn sync(&mut self, jobs: &BTreeSet<String>, now: Time) {
        // 1. Nodes and where they stand.
        if std::mem::take(&mut self.places_dirty) {
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
        // 4. What others take on nodes, which depends on what is ours.
        for name in std::mem::take(&mut self.dirty_nodes) {
            self.sync_node(&name, now);
        }
    }

    // --- nodes ---

    fn rebuild_nodes(&mut self, now: Time) {
        let topologies: Vec<&Topology> = self.index.topologies.values().map(AsRef::as_ref).collect();
        match PoolMap::of(&topologies) {
            Ok(pools) => self.pools = pools,
            Err(error) => tracing::error!(%error, "a Topology cannot be read; the last readable ones stay in force"),
        }
        let places: BTreeMap<String, Place> =
            self.index.nodes.iter().map(|(name, node)| (name.clone(), self.pools.place(node))).collect();
        self.raise_epochs(&places);
        self.places = places;
        let nodes: Vec<Arc<Node>> = self.index.nodes.values().cloned().collect();
        let mut listed: Vec<(NodePath, NodeState)> = Vec::with_capacity(nodes.len());
        for node in nodes {
            let path = self.places[node.metadata.name.as_deref().unwrap_or_default()].path.clone();
            let state = self.node_state(&node, now);
            listed.push((path, state));
        }
        listed.extend(self.vanished_nodes());
        self.state.set_nodes(self.pools.pools(), listed);
        self.book.nodes_replaced(&mut self.state, &self.index.nodes);
        self.changed = true;
    }

    /// Nodes that Berths in force still name although they are gone: lost, so that their Berths can be read.
    fn vanished_nodes(&self) -> Vec<(NodePath, NodeState)> {
        let in_force = self.index.berths.values().filter(|b| b.spec.state != BerthState::Released);
        let named: BTreeSet<&str> = in_force.flat_map(|b| translate::berth::nodes_named(b)).collect();
        let gone = named.into_iter().filter(|name| !self.index.nodes.contains_key(*name));
        gone.map(|name| {
            let path = NodePath { pool: self.pools.outside(), path: Vec::new(), name: name.into() };
            (path, NodeState { lost: true, closed: true, ..NodeState::default() })
        })
        .collect()
    }

    fn raise_epochs(&mut self, places: &BTreeMap<String, Place>) {
        for (row, pool) in self.pools.pools().iter().enumerate() {
            let of_pool = |all: &BTreeMap<String, Place>| -> Vec<NodePath> {
                all.values().filter(|p| p.path.pool == row).map(|p| p.path.clone()).collect()
            };
            let epoch = self.epochs.entry(pool.name.to_string()).or_insert_with(|| {
                let stored = self.index.topologies.get(&*pool.name);
                stored.and_then(|t| t.status.as_ref()?.epoch).unwrap_or(0)
            });
            if of_pool(places) != of_pool(&self.places) {
                *epoch += 1;
            }
        }
    }

    fn sync_node(&mut self, name: &str, now: Time) {
        let Some(row) = self.state.find_node(name) else { return };
        let Some(node) = self.index.nodes.get(name).cloned() else { return };
        let next = self.node_state(&node, now);
        if next != *self.state.node(row) {
            self.state.set_node(row, next);
            self.changed = true;
        }
        self.changed |= self.book.node_changed(&mut self.state, row, &node);
    }

    fn node_state(&mut self, node: &Node, now: Time) -> NodeState {
        let name = node.metadata.name.as_deref().unwrap_or_default();
        let foreign = self.foreign(name);
        match translate::node::state(node, &foreign, &mut self.state.resources) {
            Ok(mut state) => {
                state.lost |= translate::node::facts(node).lost(now, self.settings.node_lost_after);
                state
            }
            Err(error) => {
                tracing::warn!(%error, "a node cannot be read and takes no pods");
                NodeState { closed: true, foreign, ..NodeState::default() }
            }
        }
    }

    /// What pods take on a node that are no seat of a job the planner has.
    fn foreign(&self, node: &str) -> Amounts {
        let mut sum = Amounts::default();
        for (key, pod) in self.index.pods_of_node(node) {
            if !self.is_seat(pod)
                && !crate::sabotage::is(crate::sabotage::Sabotage::BlindToOthers)
                && let Some(taken) = self.taken.get(key)
            {
                sum.add(taken, 1);
            }
        }
        sum
    }

    fn is_seat(&self, pod: &Pod) -> bool {
        let Some(job) = job_of_pod(pod) else { return false };
        let Some(row) = self.state.find_job(&job) else { return false };
        let owner = owner_uid(&pod.metadata);
        let berth = self.index.berths_of_job(&job).find(|b| b.metadata.uid.as_deref() == owner);
        // While a start is under way its pods may be seen before its Berth is.
        let starting = self.records.get(&job).is_some_and(|r| r.flight.is_some());
        if !berth.map_or(starting, |b| b.spec.state == BerthState::Committed) {
            return false;
        }
        let (Some(role), Some(index)) = seat_of(pod) else { return false };
        let held = match self.state.job(row).map(|j| &j.phase) {
            Some(Phase::Running(r)) => &r.placement,
            Some(Phase::Leaving(l)) => &l.placement,
            _ => return false,
        };
        let Some(job) = self.index.jobs.get(&job) else { return false };
        let Some(role) = job.spec.roles.iter().position(|r| r.name == role) else { return false };
        let node = translate::pod::node_of(pod).and_then(|n| self.state.find_node(n));
        let seat = held.seats.binary_search_by(|s| (usize::from(s.role), s.index).cmp(&(role, index)));
        seat.is_ok_and(|at| Some(held.seats[at].node) == node)
    }

    // --- jobs ---

    /// The Berths of a job, told apart.
    #[must_use]
    pub fn berths<'a>(&'a self, key: &str, job: &TrainingJob) -> Berths<'a> {
        let mut berths = Berths::of(job, self.index.berths_of_job(key).map(AsRef::as_ref));
        if crate::sabotage::is(crate::sabotage::Sabotage::NoAdoption) {
            berths.released.extend(berths.current.take());
        }
        berths
    }

    fn sync_job(&mut self, key: &str, now: Time) {
        let Some(job) = self.index.jobs.get(key).cloned() else {
            self.forget_job(key, now);
            return;
        };
        let uid = job.metadata.uid.clone().unwrap_or_default();
        if self.records.get(key).is_some_and(|r| r.uid != uid) {
            self.forget_job(key, now);
        }
        let queue = translate::job::queue_name(&job, self.annotations_of(&job)).to_owned();
        let record = self.records.entry(key.to_owned()).or_insert_with(|| {
            let mut record = Record::new(&uid, now);
            if job.status.as_ref().is_none_or(|s| s.started_at.is_none() && s.finished_at.is_none()) {
                record.trace = Some(crate::traces::StartTrace::begin(key, &uid, &queue));
            }
            record
        });
        if record.flight.is_some() {
            return;
        }
        let standing = {
            let berths = self.berths(key, &job);
            adopt(&job, &berths, |name| self.state.find_node(name)).map(|s| (s, !berths.foreign.is_empty()))
        };
        let fault = match standing {
            Ok((Standing::Living(adopted), namesake)) => self.set_job(key, &job, *adopted, namesake, now),
            Ok(_) => {
                self.remove_from_plan(key, now);
                Ok(())
            }
            Err(error) => Err(error),
        };
        let fault = fault.err().map(|error| {
            self.remove_from_plan(key, now);
            Held { code: error.fault.code(), message: error.to_string(), until: None }
        });
        if let Some(record) = self.records.get_mut(key) {
            record.fault = fault;
        }
    }

    fn set_job(
        &mut self,
        key: &str,
        job: &TrainingJob,
        adopted: Adopted,
        namesake: bool,
        now: Time,
    ) -> Result<(), TranslateError> {
        if job.metadata.deletion_timestamp.is_some() && matches!(adopted.phase, Phase::Waiting(_)) {
            self.remove_from_plan(key, now);
            return Ok(());
        }
        let shapes = self.shapes(key, job, now)?;
        let queue = translate::job::queue_name(job, self.annotations_of(job)).to_owned();
        let spec = {
            let inherited = Inherited {
                namespace: self.annotations_of(job),
                queue: self.index.queues.get(&queue).map(AsRef::as_ref),
                classes: &self.classes,
            };
            translate::job::spec(job, inherited, &shapes, &self.state)?
        };
        if matches!(adopted.phase, Phase::Waiting(_)) {
            self.hold_by_quota(key, job);
        }
        let phase = self.refined(key, job, adopted.phase, namesake, now);
        let record = &self.records[key];
        let queued_at = adopted.queued_at.unwrap_or(record.first_seen);
        match self.state.find_job(key) {
            Some(row) => {
                let same = self
                    .state
                    .job(row)
                    .is_some_and(|j| *j.spec == spec && j.phase == phase && j.queued_at == queued_at);
                if !same {
                    self.state.update_job(row, now, |j| {
                        j.spec = Arc::new(spec);
                        j.phase = phase;
                        j.queued_at = queued_at;
                    });
                    self.changed = true;
                    self.nodes_of_job_dirty(row);
                }
            }
            None => {
                let row = self.state.add_job(spec, queued_at, 0, phase);
                self.changed = true;
                self.nodes_of_job_dirty(row);
            }
        }
        Ok(())
    }

    /// The adopted phase with what only the living controller knows: members lost, holds, takers.
    fn refined(&self, key: &str, job: &TrainingJob, phase: Phase, namesake: bool, now: Time) -> Phase {
        let known = self.state.find_job(key).and_then(|row| self.state.job(row)).map(|j| &j.phase);
        match phase {
            Phase::Running(mut running) => {
                let look = crate::lifecycle::look(self, key, job, now);
                running.lost = look.as_ref().map(crate::lifecycle::Look::lost_ranks).unwrap_or_default();
                running.settling = look.as_ref().is_none_or(|l| !l.is_complete());
                if let Some(Phase::Running(before)) = known {
                    running.guaranteed |= before.guaranteed;
                    running.resized = running.resized.max(before.resized);
                    running.private_start = running.private_start.or(before.private_start);
                    if before.settling && !running.settling && before.started < running.started {
                        running.started = before.started;
                    }
                }
                Phase::Running(running)
            }
            Phase::Leaving(mut leaving) => {
                if let Some(Phase::Leaving(before)) = known {
                    leaving.taker = before.taker;
                }
                Phase::Leaving(leaving)
            }
            Phase::Waiting(mut waiting) => {
                self.refine_waiting(key, job, &mut waiting, namesake, now);
                if let Some(Phase::Waiting(before)) = known {
                    waiting.private_start = waiting.private_start.or(before.private_start);
                }
                Phase::Waiting(waiting)
            }
        }
    }

    fn refine_waiting(&self, key: &str, job: &TrainingJob, waiting: &mut Waiting, namesake: bool, now: Time) {
        let record = self.records.get(key);
        let backoff = record.and_then(|r| r.backoff.clone()).filter(|b| b.until.is_none_or(|until| until > now));
        let restart = crate::lifecycle::restart_backoff(job).filter(|until| *until > now);
        let hold = |code, detail: &str, until| Some(Hold { code, detail: detail.into(), until });
        waiting.hold = if namesake {
            hold(reason::Code::PreviousIncarnationLeaving, key, None)
        } else if let Some(backoff) = backoff {
            let code = match backoff.code {
                Code::NamespaceQuota => reason::Code::NamespaceQuota,
                _ => reason::Code::StartRefused,
            };
            hold(code, &backoff.message, backoff.until)
        } else if let Some(until) = restart {
            hold(reason::Code::RestartBackoff, key, Some(until))
        } else {
            None
        };
        if let Some((placement, repair)) = self.last_placement(key, job) {
            waiting.last_placement = Some(placement);
            waiting.repair = repair;
        }
    }

    /// A job whose floor its namespace's quota does not allow is not planned at all: it takes nobody's room, promises
    /// nothing, and is looked at again when the quota moves.
    fn hold_by_quota(&mut self, key: &str, job: &TrainingJob) {
        let message = self.over_quota(key, job);
        let Some(record) = self.records.get_mut(key) else { return };
        let by_quota = |held: &Held| held.code == Code::NamespaceQuota && held.until.is_none();
        match message {
            Some(message) => record.backoff = Some(Held { code: Code::NamespaceQuota, message, until: None }),
            None if record.backoff.as_ref().is_some_and(by_quota) => record.backoff = None,
            None => {}
        }
    }

    fn over_quota(&self, key: &str, job: &TrainingJob) -> Option<String> {
        let of_job =
            |q: &&Arc<k8s_openapi::api::core::v1::ResourceQuota>| q.metadata.namespace == job.metadata.namespace;
        let quotas: Vec<_> = self.index.quotas.values().filter(of_job).map(AsRef::as_ref).collect();
        if quotas.is_empty() {
            return None;
        }
        let mut gang = Vec::new();
        for (row, role) in job.spec.roles.iter().enumerate() {
            let pod = Arc::new(Pod { spec: Some(self.effective_pod(key, job, row)), ..Pod::default() });
            gang.extend((0..role.floor()).map(|_| pod.clone()));
        }
        crate::quota::exceeded(quotas, &gang)
    }

    /// Where the last incarnation ran, if it ended by its own failure (or lost a node): it may start there again.
    fn last_placement(&self, key: &str, job: &TrainingJob) -> Option<(planner::job::Placement, bool)> {
        let berths = self.berths(key, job);
        let last = berths.released.last().filter(|_| berths.current.is_none())?;
        let cause = last.spec.stopping.as_ref()?.cause.split('(').next()?.to_owned();
        if cause != Code::Failed.as_str() {
            return None;
        }
        let roles = translate::berth::role_names(job);
        let placement = translate::berth::placement(last, &roles, |name| self.state.find_node(name)).ok()?;
        let fits = job.spec.roles.iter().enumerate().all(|(row, role)| {
            let count = placement.count(row);
            i64::from(count) >= i64::from(role.floor()) && i64::from(count) <= i64::from(role.replicas)
        });
        fits.then_some((placement, false))
    }

    fn nodes_of_job_dirty(&mut self, row: JobIdx) {
        let nodes = match self.state.job(row).map(|j| &j.phase) {
            Some(Phase::Running(r)) => r.placement.nodes(),
            Some(Phase::Leaving(l)) => l.placement.nodes(),
            _ => Vec::new(),
        };
        for node in nodes {
            self.dirty_nodes.insert(self.state.topology().node_name(node).to_string());
        }
    }

    fn shapes(&mut self, key: &str, job: &TrainingJob, now: Time) -> Result<Vec<ShapeIdx>, TranslateError> {
        let mut shapes = Vec::with_capacity(job.spec.roles.len());
        let avoided: Vec<String> = self.records.get(key).map_or_else(Vec::new, |r| {
            r.avoided.iter().filter(|(_, (until, _))| *until > now).map(|(node, _)| node.clone()).collect()
        });
        for row in 0..job.spec.roles.len() {
            let spec = self.effective_pod(key, job, row);
            let ask = PodAsk::of_ours(&spec)
                .map_err(|f| f.under(&format!("spec.roles[{row}].template.spec.")).of(translate::job::object(job)))?;
            let ask = translate::job::narrowed(ask, |c| c.avoiding(avoided.iter().cloned()));
            shapes.push(self.book.shape(&mut self.state, &ask, &self.index.nodes));
        }
        Ok(shapes)
    }

    /// The pod of a role as the API server would make it: by a dry run where one was answered, else by what its
    /// RuntimeClass and LimitRanges say.
    fn effective_pod(&self, key: &str, job: &TrainingJob, role: usize) -> PodSpec {
        if let Some(probed) = self.records.get(key).and_then(|r| r.asks.get(role)?.clone()) {
            return (*probed).clone();
        }
        let mut spec = job.spec.roles[role].template.spec.clone().unwrap_or_default();
        if let Some(class) = spec.runtime_class_name.as_ref().and_then(|name| self.index.runtime_classes.get(name)) {
            spec = translate::defaults::with_runtime_class(spec, class);
        }
        let namespace = job.metadata.namespace.as_deref().unwrap_or_default();
        let ranges = self.index.limit_ranges.values().filter(|r| r.metadata.namespace.as_deref() == Some(namespace));
        translate::defaults::with_limit_ranges(spec, ranges.map(AsRef::as_ref))
    }

    /// Annotations of a job's namespace.
    #[must_use]
    pub fn annotations_of(&self, job: &TrainingJob) -> Option<&BTreeMap<String, String>> {
        let namespace = self.index.namespaces.get(job.metadata.namespace.as_deref()?)?;
        namespace.metadata.annotations.as_ref()
    }

    fn remove_from_plan(&mut self, key: &str, now: Time) {
        if let Some(row) = self.state.find_job(key) {
            self.nodes_of_job_dirty(row);
            self.state.remove_job(row, now);
            self.changed = true;
        }
    }

    fn forget_job(&mut self, key: &str, now: Time) {
        // What an unreadable job holds stays counted as its pods: they are foreign to the planner now.
        self.remove_from_plan(key, now);
        self.records.remove(key);
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

/// Role and index that a pod's labels tell.
#[must_use]
pub fn seat_of(pod: &Pod) -> (Option<&str>, Option<u32>) {
    let labels = pod.metadata.labels.as_ref();
    let role = labels.and_then(|l| l.get(crds::names::labels::ROLE)).map(String::as_str);
    let index = labels.and_then(|l| l.get(crds::names::labels::INDEX)).and_then(|i| i.parse().ok());
    (role, index)
}
