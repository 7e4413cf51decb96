//! The cluster as the planner sees it, kept up incrementally by one owner and lent out as a [`Snapshot`].
//!
//! Invariant: every table derived here (used room, waiting order, use of queues) agrees with the jobs' phases after each
//! mutation; [`ClusterState::audit`] recounts them from scratch and is asserted in tests.

mod apply;
mod audit;
mod edit;
mod marks;
mod tables;

pub(crate) use marks::Marks;

use crate::ids::{JobIdx, NodeIdx, PoolIdx, QueueIdx};
use crate::job::{Job, JobSpec, Placement, PlacementClass};
use crate::ledger::Hold;
use crate::queue::{Queue, QuotaKey};
use crate::resources::{Amounts, ResourceTable};
use crate::shape::ShapeTable;
use crate::time::Time;
use crate::topology::Topology;
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
}
