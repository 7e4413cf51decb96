//! The cluster as the planner sees it, kept up incrementally by one owner and lent out as a [`Snapshot`].
//!
//! Invariant: every table derived here (used room, waiting order, use of queues) agrees with the jobs' phases after each
//! mutation; [`ClusterState::audit`] recounts them from scratch and is asserted in tests.

use crate::ids::{JobIdx, NodeIdx, PoolIdx, QueueIdx, ResourceIdx};
use crate::job::{Job, JobSpec, Leaving, Phase, Placement, PlacementClass, Reservation, Running, Waiting};
use crate::ledger::{Hold, HoldKind};
use crate::plan::Action;
use crate::queue::{Decayed, Queue, QueueState, QuotaKey};
use crate::resources::{Amounts, ResourceTable};
use crate::shape::ShapeTable;
use crate::time::Time;
use crate::topology::{NodePath, PoolSpec, Topology};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A node's own state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeState {
    /// What it can hold in all.
    pub allocatable: Amounts,
    /// What pods that are not ours take.
    pub foreign: Amounts,
    /// Takes no new pods (cordoned, not ready); those on it go on.
    pub closed: bool,
    /// Gone: everything on it is lost.
    pub lost: bool,
    /// 0 healthy; higher is worse (suspect links, recent refusals). Breaks ties of placement.
    pub health: u8,
    /// Windows announced by the admin, during which nothing may run on it.
    pub unavailable: Vec<(Time, Time)>,
}

/// Position of a waiting job in its queue: priority, submission, re-queued first, sequence, key.
pub type RankKey = (i64, Time, bool, u64, Arc<str>, JobIdx);

/// Amounts by quota key, plain keys and per-pool ones.
pub type Tally = BTreeMap<QuotaKey, i64>;

/// Jobs that a cycle must look at for a reason of their own, so that it need not look at all of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Marks {
    /// Waiting and held from outside.
    pub(crate) held: BTreeSet<JobIdx>,
    /// Running with lost members.
    pub(crate) hurt: BTreeSet<JobIdx>,
    /// Waiting to restart where they were.
    pub(crate) restarting: BTreeSet<JobIdx>,
    /// Able to run at more than one size.
    pub(crate) elastic: BTreeSet<JobIdx>,
    /// Started in their queue's private cluster.
    pub(crate) private: BTreeSet<JobIdx>,
    /// With surplus seats on their way out.
    pub(crate) shedding: BTreeSet<JobIdx>,
}

impl Marks {
    fn mark(&mut self, row: JobIdx, job: &Job, add: bool) {
        let (held, hurt, restarting, private) = match &job.phase {
            Phase::Waiting(w) => (w.hold.is_some(), false, w.last_placement.is_some(), w.private_start.is_some()),
            Phase::Running(r) => (false, !r.lost.is_empty(), false, r.private_start.is_some()),
            Phase::Leaving(_) => (false, false, false, false),
        };
        let set = |marked: bool, jobs: &mut BTreeSet<JobIdx>| {
            if marked && add {
                jobs.insert(row);
            } else {
                jobs.remove(&row);
            }
        };
        set(held, &mut self.held);
        set(hurt, &mut self.hurt);
        set(restarting, &mut self.restarting);
        set(private, &mut self.private);
        // One edited below its size has to give pods back, elastic or not.
        let oversize = job.running().is_some_and(|r| r.placement.len() > job.spec.replicas() as usize);
        set(job.spec.is_elastic() || oversize, &mut self.elastic);
        set(!job.shedding.is_empty(), &mut self.shedding);
    }
}

/// The cluster. A copy costs its whole size: for questions outside the cycle only.
#[derive(Clone, Debug, Default)]
pub struct ClusterState {
    /// Names of resources.
    pub resources: ResourceTable,
    /// Pod shapes. Edit through the table's own methods, then call [`ClusterState::shapes_changed`].
    pub shapes: ShapeTable,
    topology: Arc<Topology>,
    nodes: Vec<NodeState>,
    node_rows: BTreeMap<Arc<str>, NodeIdx>,
    queues: Vec<Queue>,
    queue_rows: BTreeMap<Arc<str>, QueueIdx>,
    jobs: Vec<Option<Job>>,
    free_rows: Vec<JobIdx>,
    classes: BTreeMap<PlacementClass, u32>,
    job_rows: BTreeMap<Arc<str>, JobIdx>,
    used: Vec<Amounts>,
    holds: Vec<Vec<Hold>>,
    waiting: Vec<BTreeSet<RankKey>>,
    /// The same by placement class, for those who only ask which class could start.
    by_class: Vec<BTreeMap<u32, BTreeSet<RankKey>>>,
    running: BTreeSet<JobIdx>,
    marks: Marks,
    reserved: BTreeSet<JobIdx>,
    queue_use: Vec<Tally>,
    queue_running: Vec<u32>,
    totals: Tally,
    usable: Tally,
    freed: bool,
    /// Scratch tables that only save work; never part of the state's meaning.
    pub(crate) scratch: RefCell<crate::ledger::Scratch>,
}

/// A moment of the cluster.
#[derive(Clone, Copy, Debug)]
pub struct Snapshot<'a> {
    /// The cluster.
    pub state: &'a ClusterState,
    /// The moment.
    pub now: Time,
}

impl ClusterState {
    /// An empty cluster with the implicit root queue.
    #[must_use]
    pub fn new() -> Self {
        let mut state = Self::default();
        state.add_queue_row(Queue::open("", QueueIdx::ROOT));
        state
    }

    /// The cluster at a moment.
    #[must_use]
    pub fn at(&self, now: Time) -> Snapshot<'_> {
        Snapshot { state: self, now }
    }

    // --- reading ---

    /// The topology.
    #[must_use]
    pub fn topology(&self) -> &Arc<Topology> {
        &self.topology
    }

    /// One node.
    #[must_use]
    pub fn node(&self, node: NodeIdx) -> &NodeState {
        &self.nodes[node.row()]
    }

    /// All nodes in row order.
    #[must_use]
    pub fn nodes(&self) -> &[NodeState] {
        &self.nodes
    }

    /// Row of a node by name.
    #[must_use]
    pub fn find_node(&self, name: &str) -> Option<NodeIdx> {
        self.node_rows.get(name).copied()
    }

    /// What our own pods (running, leaving, being shed) take on a node.
    #[must_use]
    pub fn used(&self, node: NodeIdx) -> &Amounts {
        &self.used[node.row()]
    }

    /// Who holds room on a node (running, leaving, reserved), by promised end.
    #[must_use]
    pub fn holds(&self, node: NodeIdx) -> &[Hold] {
        &self.holds[node.row()]
    }

    /// Free amounts of a node now; zero in all when it takes no new pods. May be negative where others overfilled it.
    #[must_use]
    pub fn free_now(&self, node: NodeIdx) -> Amounts {
        let state = self.node(node);
        if state.closed || state.lost {
            return Amounts::default();
        }
        let mut free = state.allocatable.clone();
        free.add(&state.foreign, -1);
        free.add(self.used(node), -1);
        free
    }

    /// All queues; row 0 is the root.
    #[must_use]
    pub fn queues(&self) -> &[Queue] {
        &self.queues
    }

    /// One queue.
    #[must_use]
    pub fn queue(&self, queue: QueueIdx) -> &Queue {
        &self.queues[queue.row()]
    }

    /// Row of a queue by name.
    #[must_use]
    pub fn find_queue(&self, name: &str) -> Option<QueueIdx> {
        self.queue_rows.get(name).copied()
    }

    /// A queue and its ancestors, the root last.
    pub fn lineage(&self, queue: QueueIdx) -> impl Iterator<Item = QueueIdx> + '_ {
        let mut next = Some(queue);
        std::iter::from_fn(move || {
            let here = next?;
            next = (here != QueueIdx::ROOT).then(|| self.queue(here).parent);
            Some(here)
        })
    }

    /// What the jobs of a queue and below hold (running and leaving ones; reservations do not count).
    #[must_use]
    pub fn queue_use(&self, queue: QueueIdx) -> &Tally {
        &self.queue_use[queue.row()]
    }

    /// Jobs of a queue and below that hold room.
    #[must_use]
    pub fn queue_running(&self, queue: QueueIdx) -> u32 {
        self.queue_running[queue.row()]
    }

    /// One job; rows of jobs that are gone are none.
    #[must_use]
    pub fn job(&self, job: JobIdx) -> Option<&Job> {
        self.jobs.get(job.row())?.as_ref()
    }

    /// Row of a job by key.
    #[must_use]
    pub fn find_job(&self, key: &str) -> Option<JobIdx> {
        self.job_rows.get(key).copied()
    }

    /// All living jobs in row order.
    pub fn jobs(&self) -> impl Iterator<Item = (JobIdx, &Job)> + '_ {
        self.jobs.iter().enumerate().filter_map(|(row, j)| Some((JobIdx::of(row), j.as_ref()?)))
    }

    /// Waiting jobs of a leaf queue (held ones included), best first by `Priority` order.
    #[must_use]
    pub fn waiting(&self, queue: QueueIdx) -> &BTreeSet<RankKey> {
        &self.waiting[queue.row()]
    }

    /// Waiting jobs of a leaf queue by placement class.
    #[must_use]
    pub fn waiting_by_class(&self, queue: QueueIdx) -> &BTreeMap<u32, BTreeSet<RankKey>> {
        &self.by_class[queue.row()]
    }

    /// Jobs that hold room: running and leaving, in row order.
    #[must_use]
    pub fn holding(&self) -> &BTreeSet<JobIdx> {
        &self.running
    }

    /// Jobs to look at for a reason of their own.
    pub(crate) fn marks(&self) -> &Marks {
        &self.marks
    }

    /// Waiting jobs with a reservation, in row order.
    #[must_use]
    pub fn reserved(&self) -> &BTreeSet<JobIdx> {
        &self.reserved
    }

    /// Allocatable of all registered nodes, usable or not: what shares are fractions of.
    #[must_use]
    pub fn totals(&self) -> &Tally {
        &self.totals
    }

    /// What nodes that take pods have beside other people's pods: allocatable less foreign, neither closed nor lost.
    #[must_use]
    pub fn usable(&self) -> &Tally {
        &self.usable
    }

    /// Whether room came free that no promise counted on (an early end, a new node, a dropped reservation) since
    /// [`ClusterState::planned`] was last called.
    #[must_use]
    pub fn freed(&self) -> bool {
        self.freed
    }

    /// What one pod at a seat counts for in quotas: its requests under the plain key and under its pool's.
    pub fn count_seats(&self, spec: &JobSpec, placement: &Placement, tally: &mut Tally, times: i64) {
        for (node, role, count) in placement.by_node() {
            let pool = self.topology.pool_of(node);
            let shape = self.shapes.get(spec.roles[usize::from(role)].shape);
            for (resource, amount) in shape.requests.iter() {
                let amount = amount * i64::from(count) * times;
                *tally.entry(QuotaKey { pool: None, resource }).or_default() += amount;
                *tally.entry(QuotaKey { pool: Some(pool), resource }).or_default() += amount;
            }
        }
    }

    /// What a job's floor counts for in quotas: plain keys, and a pool's if no role may run anywhere else.
    #[must_use]
    pub fn floor_tally(&self, spec: &JobSpec) -> Tally {
        let pool = self.only_pool(spec);
        let mut tally = Tally::new();
        for role in &spec.roles {
            for (resource, amount) in self.shapes.get(role.shape).requests.iter() {
                let amount = amount * i64::from(role.floor);
                *tally.entry(QuotaKey { pool: None, resource }).or_default() += amount;
                if pool.is_some() {
                    *tally.entry(QuotaKey { pool, resource }).or_default() += amount;
                }
            }
        }
        tally
    }

    /// The one pool that all roles of a job are confined to by their selectors, if there is one.
    fn only_pool(&self, spec: &JobSpec) -> Option<PoolIdx> {
        let pools = self.topology.pools();
        if pools.len() < 2 {
            return pools.first().map(|_| PoolIdx(0));
        }
        let mut only = None;
        for role in &spec.roles {
            let eligible = &self.shapes.get(role.shape).eligible;
            for (row, pool) in pools.iter().enumerate() {
                if self.topology.domain(pool.root).node_range().any(|n| eligible.contains(n))
                    && *only.get_or_insert(row) != row
                {
                    return None;
                }
            }
        }
        only.map(PoolIdx::of)
    }

    // --- nodes and shapes ---

    /// Replaces the set of nodes and their paths. Placements keep their nodes by name; a node that still holds seats
    /// but is not listed stays as a lost one with no room.
    pub fn set_nodes(&mut self, pools: &[PoolSpec], nodes: Vec<(NodePath, NodeState)>) {
        let mut listed: BTreeMap<Arc<str>, (NodePath, NodeState)> =
            nodes.into_iter().map(|(p, s)| (p.name.clone(), (p, s))).collect();
        for name in self.names_in_use() {
            listed.entry(name.clone()).or_insert_with(|| {
                (NodePath { pool: 0, path: Vec::new(), name }, NodeState { lost: true, ..NodeState::default() })
            });
        }
        let paths: Vec<NodePath> = listed.values().map(|(p, _)| p.clone()).collect();
        let topology = Topology::build(pools, &paths);
        let rows: BTreeMap<Arc<str>, NodeIdx> =
            (0..topology.node_count()).map(|r| (topology.node_name(NodeIdx::of(r)).clone(), NodeIdx::of(r))).collect();
        let old_names: Vec<Arc<str>> =
            (0..self.topology.node_count()).map(|r| self.topology.node_name(NodeIdx::of(r)).clone()).collect();
        let moved: Vec<Option<NodeIdx>> = old_names.iter().map(|n| rows.get(n).copied()).collect();
        for job in self.jobs.iter_mut().flatten() {
            for placement in job.placements_mut() {
                for seat in &mut placement.seats {
                    if let Some(row) = moved[seat.node.row()] {
                        seat.node = row;
                    }
                }
            }
        }
        let mut states = vec![NodeState::default(); rows.len()];
        for (name, row) in &rows {
            states[row.row()] = listed.remove(name).map(|(_, s)| s).unwrap_or_default();
        }
        self.topology = Arc::new(topology);
        self.nodes = states;
        self.node_rows = rows;
        self.recount_nodes();
        self.recount();
        self.freed = true;
        self.scratch.get_mut().reset();
    }

    /// Replaces one node's own state.
    pub fn set_node(&mut self, node: NodeIdx, state: NodeState) {
        self.count_node(node, -1);
        let old = std::mem::replace(&mut self.nodes[node.row()], state);
        self.count_node(node, 1);
        let new = &self.nodes[node.row()];
        let gained = (old.closed && !new.closed)
            || (old.lost && !new.lost)
            || old.foreign != new.foreign
            || old.allocatable != new.allocatable
            || old.unavailable != new.unavailable;
        self.freed |= gained;
        self.scratch.get_mut().touch(node);
    }

    /// To be called after the shape table was changed.
    pub fn shapes_changed(&mut self) {
        self.scratch.get_mut().reset();
    }

    // --- queues ---

    fn add_queue_row(&mut self, queue: Queue) -> QueueIdx {
        let row = QueueIdx::of(self.queues.len());
        self.queue_rows.insert(queue.name.clone(), row);
        self.queues.push(queue);
        self.waiting.push(BTreeSet::new());
        self.by_class.push(BTreeMap::new());
        self.queue_use.push(Tally::new());
        self.queue_running.push(0);
        row
    }

    /// Adds or replaces a queue by name. The parent must have been added before.
    pub fn set_queue(&mut self, queue: Queue) -> QueueIdx {
        self.freed = true;
        if let Some(row) = self.find_queue(&queue.name) {
            let moved = self.queues[row.row()].parent != queue.parent;
            self.queues[row.row()] = queue;
            if moved {
                self.recount();
            }
            return row;
        }
        self.add_queue_row(queue)
    }

    // --- jobs ---

    /// Adds a job. One with the same key must be gone.
    pub fn add_job(&mut self, spec: JobSpec, queued_at: Time, sequence: u64, phase: Phase) -> JobIdx {
        let class = self.class_of(&spec);
        let job =
            Job { spec: Arc::new(spec), queued_at, sequence, phase, shedding: Vec::new(), last_cause: None, class };
        let row = self.free_rows.pop().unwrap_or_else(|| {
            self.jobs.push(None);
            JobIdx::of(self.jobs.len() - 1)
        });
        self.job_rows.insert(job.spec.key.clone(), row);
        self.jobs[row.row()] = Some(job);
        self.count(row, 1);
        row
    }

    /// Removes a job wherever it stands. Its room is free at once.
    pub fn remove_job(&mut self, job: JobIdx, now: Time) {
        self.note_release(job, now);
        self.count(job, -1);
        if let Some(gone) = self.jobs[job.row()].take() {
            self.job_rows.remove(&gone.spec.key);
            self.free_rows.push(job);
        }
    }

    /// Changes a job in place (spec, phase, seats, anything); the tables follow.
    pub fn update_job(&mut self, job: JobIdx, now: Time, change: impl FnOnce(&mut Job)) {
        self.note_release(job, now);
        self.count(job, -1);
        if let Some(there) = self.jobs[job.row()].as_mut() {
            let before = there.spec.clone();
            change(there);
            debug_assert_eq!(before.key, there.spec.key, "a job keeps its key");
            let after = there.spec.clone();
            if !Arc::ptr_eq(&before, &after) {
                let class = self.class_of(&after);
                if let Some(there) = self.jobs[job.row()].as_mut() {
                    there.class = class;
                }
            }
        }
        self.count(job, 1);
    }

    fn class_of(&mut self, spec: &JobSpec) -> u32 {
        let next = u32::try_from(self.classes.len()).expect("less than 2^32 kinds of jobs");
        *self.classes.entry(spec.placement_class()).or_insert(next)
    }

    /// Sets or lifts what holds a waiting job back from outside.
    pub fn set_hold(&mut self, job: JobIdx, hold: Option<crate::job::Hold>) {
        if let Some(Job { phase: Phase::Waiting(waiting), .. }) = self.jobs[job.row()].as_mut() {
            if hold.is_some() {
                self.marks.held.insert(job);
            } else {
                self.marks.held.remove(&job);
            }
            waiting.hold = hold;
        }
    }

    /// Notes a job's private start. No room changes hands by it.
    pub fn set_private_start(&mut self, job: JobIdx, start: Option<Time>) {
        match self.jobs[job.row()].as_mut().map(|j| &mut j.phase) {
            Some(Phase::Waiting(w)) => w.private_start = start,
            Some(Phase::Running(r)) => r.private_start = start,
            Some(Phase::Leaving(_)) | None => return,
        }
        if start.is_some() {
            self.marks.private.insert(job);
        } else {
            self.marks.private.remove(&job);
        }
    }

    /// Replaces what is remembered of a queue's decayed use. No room changes hands by it.
    pub fn set_decayed(
        &mut self,
        queue: QueueIdx,
        decayed: BTreeMap<ResourceIdx, Decayed>,
        users: BTreeMap<Arc<str>, BTreeMap<ResourceIdx, Decayed>>,
    ) {
        let row = &mut self.queues[queue.row()];
        (row.decayed, row.users) = (decayed, users);
    }

    /// A stopped job's pods are gone: it waits again, with its first submission time.
    pub fn requeue(&mut self, job: JobIdx, now: Time, waiting: Waiting) {
        self.update_job(job, now, |j| j.phase = Phase::Waiting(Box::new(waiting)));
    }

    /// Room shed by shrinking gangs that is free by now.
    pub fn settle_shedding(&mut self, now: Time) {
        let gone = |job: &Job| job.shedding.iter().any(|(_, until)| *until <= now);
        let due: Vec<JobIdx> =
            self.marks.shedding.iter().copied().filter(|row| self.job(*row).is_some_and(gone)).collect();
        for job in due {
            self.update_job(job, now, |j| j.shedding.retain(|(_, until)| *until > now));
        }
    }

    /// Notes that a plan was made of the present state: what came free until now has been seen.
    pub fn planned(&mut self) {
        self.freed = false;
    }

    /// Notes that room came free although no table shows it (a claim or an outside hold ended).
    pub fn note_freed(&mut self) {
        self.freed = true;
    }

    /// Carries one action out in this state, as the simulator does at once and the controller by its writes.
    ///
    /// A stopped job is left as [`Phase::Leaving`] until the owner says that it is gone, also with a grace of zero.
    pub fn apply(&mut self, action: &Action, now: Time) {
        match action {
            Action::Start { job, placement, ends, guaranteed, .. } => {
                let placement = placement.clone();
                let (ends, guaranteed) = (*ends, *guaranteed);
                self.update_job(*job, now, |j| {
                    let (firm, private_start) = match &j.phase {
                        Phase::Waiting(w) => (!w.postponed.eq(&crate::time::Span::ZERO), w.private_start),
                        _ => (false, None),
                    };
                    j.phase = Phase::Running(Box::new(Running {
                        placement,
                        started: now,
                        ends,
                        lost: Vec::new(),
                        guaranteed,
                        resized: now,
                        firm,
                        private_start,
                        settling: false,
                    }));
                });
            }
            Action::Reserve { job, start, end, placement, clears } => self.set_reservation(
                *job,
                now,
                Some(Reservation {
                    start: *start,
                    end: *end,
                    placement: placement.clone(),
                    promised: *start,
                    clearing: !clears.is_empty(),
                }),
            ),
            Action::Move { job, to, cause, from, clears } => {
                self.apply_move(*job, *from, to.as_ref(), cause.as_ref(), now);
                if !clears.is_empty()
                    && let Some(Job { phase: Phase::Waiting(w), .. }) = self.jobs[job.row()].as_mut()
                    && let Some(reservation) = w.reservation.as_mut()
                {
                    reservation.clearing = true;
                }
            }
            Action::Stop { job, by, .. } => {
                let taker = *by;
                self.update_job(*job, now, |j| {
                    let gone_by = now + j.spec.grace;
                    if let Phase::Running(r) = &mut j.phase {
                        let placement = std::mem::take(&mut r.placement);
                        j.phase = Phase::Leaving(Box::new(Leaving { placement, gone_by, taker }));
                    }
                });
            }
            Action::Resize { job, placement, .. } => self.apply_resize(*job, placement, now),
            Action::Replace { job, swaps, placement } => {
                let placement = placement.clone();
                self.update_job(*job, now, |j| {
                    if let Phase::Running(r) = &mut j.phase {
                        r.placement = placement;
                        r.lost.retain(|rank| !swaps.iter().any(|(swapped, ..)| swapped == rank));
                    }
                });
            }
            Action::Guarantee { job } => {
                if let Some(Job { phase: Phase::Running(r), .. }) = self.jobs[job.row()].as_mut() {
                    r.guaranteed = true;
                }
            }
        }
    }

    fn set_reservation(&mut self, job: JobIdx, now: Time, reservation: Option<Reservation>) {
        self.update_job(job, now, |j| {
            if let Phase::Waiting(w) = &mut j.phase {
                w.reservation = reservation;
            }
        });
    }

    fn apply_move(
        &mut self,
        job: JobIdx,
        from: Time,
        to: Option<&(Time, Time, Placement)>,
        cause: Option<&crate::plan::Cause>,
        now: Time,
    ) {
        self.update_job(job, now, |j| {
            j.last_cause = cause.cloned().or(j.last_cause.take());
            let Phase::Waiting(w) = &mut j.phase else { return };
            let earliest = w.reservation.as_ref().map_or(from, |r| r.promised);
            let clearing = w.reservation.as_ref().is_some_and(|r| r.clearing);
            w.reservation = to.map(|(start, end, placement)| {
                if matches!(cause, Some(crate::plan::Cause::HigherPriority(_))) && *start > from {
                    w.postponed = w.postponed + start.since(from);
                }
                let promised = if cause.is_some() { *start } else { earliest.min(*start) };
                Reservation { start: *start, end: *end, placement: placement.clone(), promised, clearing }
            });
        });
    }

    fn apply_resize(&mut self, job: JobIdx, placement: &Placement, now: Time) {
        self.update_job(job, now, |j| {
            let grace = j.spec.grace;
            if let Phase::Running(r) = &mut j.phase {
                let gone: Vec<_> = r.placement.seats.iter().filter(|s| !placement.seats.contains(s)).copied().collect();
                // Also with a grace of zero the pods are there until their owner says that they are gone.
                if !gone.is_empty() {
                    j.shedding.push((Placement { seats: gone }, now + grace));
                }
                r.placement = placement.clone();
                r.resized = now;
            }
        });
    }

    // --- derived tables ---

    fn note_release(&mut self, job: JobIdx, now: Time) {
        // Ends at the promised moment free nothing that a promise did not count on.
        let early = match self.job(job).map(|j| &j.phase) {
            Some(Phase::Running(r)) => r.ends > now,
            Some(Phase::Leaving(l)) => l.gone_by > now,
            Some(Phase::Waiting(w)) => w.reservation.is_some(),
            None => false,
        };
        self.freed |= early;
    }

    /// The job's place in its queue's `Priority` order.
    #[must_use]
    pub fn rank_key(job: &Job, row: JobIdx) -> RankKey {
        let requeued = matches!(&job.phase, Phase::Waiting(w) if w.requeued);
        (-job.spec.priority, job.queued_at, !requeued, job.sequence, job.spec.key.clone(), row)
    }

    fn count(&mut self, row: JobIdx, times: i64) {
        let Some(job) = self.jobs[row.row()].take() else { return };
        let add = times > 0;
        let mut held: Vec<&Placement> = job.shedding.iter().map(|(p, _)| p).collect();
        match &job.phase {
            Phase::Waiting(w) => {
                let key = Self::rank_key(&job, row);
                let waiting = &mut self.waiting[job.spec.queue.row()];
                let classes = &mut self.by_class[job.spec.queue.row()];
                if add {
                    classes.entry(job.class).or_default().insert(key.clone());
                    waiting.insert(key)
                } else {
                    if let Some(class) = classes.get_mut(&job.class) {
                        class.remove(&key);
                        if class.is_empty() {
                            classes.remove(&job.class);
                        }
                    }
                    waiting.remove(&key)
                };
                if w.reservation.is_some() {
                    if add {
                        self.reserved.insert(row)
                    } else {
                        self.reserved.remove(&row)
                    };
                }
            }
            Phase::Running(r) => held.push(&r.placement),
            Phase::Leaving(l) => held.push(&l.placement),
        }
        if !matches!(job.phase, Phase::Waiting(_)) || !job.shedding.is_empty() {
            if add {
                self.running.insert(row)
            } else {
                self.running.remove(&row)
            };
        }
        let runs = !matches!(job.phase, Phase::Waiting(_));
        let mut tally = Tally::new();
        for placement in held {
            for (node, role, count) in placement.by_node() {
                let requests = &self.shapes.get(job.spec.roles[usize::from(role)].shape).requests;
                self.used[node.row()].add(requests, i64::from(count) * times);
            }
            self.count_seats(&job.spec, placement, &mut tally, times);
        }
        self.count_holds(row, &job, add);
        self.marks.mark(row, &job, add);
        let lineage: Vec<QueueIdx> = self.lineage(job.spec.queue).collect();
        for queue in lineage {
            for (key, amount) in &tally {
                *self.queue_use[queue.row()].entry(*key).or_default() += amount;
            }
            if runs {
                let n = &mut self.queue_running[queue.row()];
                *n = if add { *n + 1 } else { n.saturating_sub(1) };
            }
        }
        self.jobs[row.row()] = Some(job);
    }

    fn count_holds(&mut self, row: JobIdx, job: &Job, add: bool) {
        for (placement, kind, from, to, predicted) in job.windows() {
            for (node, role, count) in placement.by_node() {
                let shape = job.spec.roles[usize::from(role)].shape;
                let holds = &mut self.holds[node.row()];
                if add {
                    let hold = Hold { job: row, shape, count, from, to, predicted, kind };
                    let at = holds.partition_point(|h| h.to <= to);
                    holds.insert(at, hold);
                } else {
                    holds.retain(|h| h.job != row);
                }
                self.scratch.get_mut().touch(node);
            }
        }
    }

    fn count_node(&mut self, node: NodeIdx, times: i64) {
        let pool = self.topology.pool_of(node);
        let state = &self.nodes[node.row()];
        let tally = |to: &mut Tally, amounts: &Amounts, times: i64| {
            for (resource, amount) in amounts.iter() {
                *to.entry(QuotaKey { pool: None, resource }).or_default() += amount * times;
                *to.entry(QuotaKey { pool: Some(pool), resource }).or_default() += amount * times;
            }
        };
        tally(&mut self.totals, &state.allocatable, times);
        if !state.closed && !state.lost {
            tally(&mut self.usable, &state.allocatable, times);
            tally(&mut self.usable, &state.foreign, -times);
        }
    }

    fn recount_nodes(&mut self) {
        self.totals.clear();
        self.usable.clear();
        for row in 0..self.nodes.len() {
            self.count_node(NodeIdx::of(row), 1);
        }
    }

    fn recount(&mut self) {
        self.holds = vec![Vec::new(); self.nodes.len()];
        self.used = vec![Amounts::default(); self.nodes.len()];
        for waiting in &mut self.waiting {
            waiting.clear();
        }
        self.by_class.iter_mut().for_each(BTreeMap::clear);
        self.running.clear();
        self.marks = Marks::default();
        self.reserved.clear();
        self.queue_use.iter_mut().for_each(Tally::clear);
        self.queue_running.iter_mut().for_each(|n| *n = 0);
        for row in 0..self.jobs.len() {
            self.count(JobIdx::of(row), 1);
        }
    }

    fn names_in_use(&self) -> BTreeSet<Arc<str>> {
        let mut names = BTreeSet::new();
        for job in self.jobs.iter().flatten() {
            for placement in job.placements() {
                names.extend(placement.seats.iter().map(|s| self.topology.node_name(s.node).clone()));
            }
        }
        names
    }

    /// Recounts every derived table and says which differs from the one kept up incrementally.
    ///
    /// # Errors
    /// The name of the first table that differs.
    pub fn audit(&mut self) -> Result<(), &'static str> {
        let used = self.used.clone();
        let (queue_use, running) = (self.queue_use.clone(), self.queue_running.clone());
        let (waiting, holding) = (self.waiting.clone(), self.running.clone());
        let marks = self.marks.clone();
        let by_class = self.by_class.clone();
        self.recount();
        let same = |a: &Amounts, b: &Amounts| {
            (0..a.0.len().max(b.0.len())).all(|r| a.0.get(r).unwrap_or(&0) == b.0.get(r).unwrap_or(&0))
        };
        let nonzero = |t: &Tally| t.iter().filter(|(_, v)| **v != 0).map(|(k, v)| (*k, *v)).collect::<Vec<_>>();
        if used.len() != self.used.len() || !used.iter().zip(&self.used).all(|(a, b)| same(a, b)) {
            return Err("used");
        }
        if queue_use.iter().zip(&self.queue_use).any(|(a, b)| nonzero(a) != nonzero(b)) {
            return Err("queue_use");
        }
        if running != self.queue_running {
            return Err("queue_running");
        }
        let (totals, usable) = (self.totals.clone(), self.usable.clone());
        self.recount_nodes();
        if nonzero(&totals) != nonzero(&self.totals) || nonzero(&usable) != nonzero(&self.usable) {
            return Err("totals");
        }
        if waiting != self.waiting {
            return Err("waiting");
        }
        if holding != self.running {
            return Err("running");
        }
        let nonempty = |tables: &[BTreeMap<u32, BTreeSet<RankKey>>]| {
            let classes = |t: &BTreeMap<u32, BTreeSet<RankKey>>| {
                t.iter().filter(|(_, jobs)| !jobs.is_empty()).map(|(c, jobs)| (*c, jobs.clone())).collect::<Vec<_>>()
            };
            tables.iter().map(classes).collect::<Vec<_>>()
        };
        let filed: usize = self.by_class.iter().flat_map(BTreeMap::values).map(BTreeSet::len).sum();
        if nonempty(&by_class) != nonempty(&self.by_class) || filed != self.waiting.iter().map(BTreeSet::len).sum() {
            return Err("by_class");
        }
        if marks != self.marks {
            return Err("marks");
        }
        Ok(())
    }
}

impl Queue {
    /// Whether jobs of this queue may start.
    #[must_use]
    pub fn starts_jobs(&self) -> bool {
        self.state == QueueState::Open
    }
}

impl Job {
    /// What it holds and when: placement, kind, from, to, predicted end.
    fn windows(&self) -> Vec<(&Placement, HoldKind, Time, Time, Time)> {
        let ever = Time(i64::MIN);
        let mut all: Vec<_> =
            self.shedding.iter().map(|(p, until)| (p, HoldKind::Leaving, ever, *until, *until)).collect();
        match &self.phase {
            Phase::Waiting(w) => {
                all.extend(w.reservation.as_ref().map(|r| {
                    let predicted = (r.start + self.spec.predicted()).min(r.end);
                    (&r.placement, HoldKind::Reserved, r.start, r.end, predicted)
                }));
            }
            Phase::Running(r) => {
                let predicted = (r.started + self.spec.predicted()).min(r.ends);
                all.push((&r.placement, HoldKind::Running, ever, r.ends, predicted));
            }
            Phase::Leaving(l) => all.push((&l.placement, HoldKind::Leaving, ever, l.gone_by, l.gone_by)),
        }
        all
    }

    /// Every placement it mentions: held, reserved, remembered, being shed.
    fn placements(&self) -> Vec<&Placement> {
        let mut all: Vec<&Placement> = self.shedding.iter().map(|(p, _)| p).collect();
        match &self.phase {
            Phase::Waiting(w) => {
                all.extend(w.reservation.as_ref().map(|r| &r.placement));
                all.extend(w.last_placement.as_ref());
            }
            Phase::Running(r) => all.push(&r.placement),
            Phase::Leaving(l) => all.push(&l.placement),
        }
        all
    }

    fn placements_mut(&mut self) -> Vec<&mut Placement> {
        let mut all: Vec<&mut Placement> = self.shedding.iter_mut().map(|(p, _)| p).collect();
        match &mut self.phase {
            Phase::Waiting(w) => {
                all.extend(w.reservation.as_mut().map(|r| &mut r.placement));
                all.extend(w.last_placement.as_mut());
            }
            Phase::Running(r) => all.push(&mut r.placement),
            Phase::Leaving(l) => all.push(&mut l.placement),
        }
        all
    }

    /// The placements whose room it holds: running or leaving, and surplus being shed.
    #[must_use]
    pub fn held(&self) -> Vec<&Placement> {
        let mut held: Vec<&Placement> = self.shedding.iter().map(|(p, _)| p).collect();
        match &self.phase {
            Phase::Waiting(_) => {}
            Phase::Running(r) => held.push(&r.placement),
            Phase::Leaving(l) => held.push(&l.placement),
        }
        held
    }

    /// The phase of a job that only waits.
    #[must_use]
    pub fn waiting(&self) -> Option<&Waiting> {
        match &self.phase {
            Phase::Waiting(w) => Some(w),
            _ => None,
        }
    }

    /// The phase of a job that runs.
    #[must_use]
    pub fn running(&self) -> Option<&Running> {
        match &self.phase {
            Phase::Running(r) => Some(r),
            _ => None,
        }
    }
}
