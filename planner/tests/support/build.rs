//! A drawn world made into a [`ClusterState`].

use super::world::{JobDraw, NodeDraw, QueueDraw, RoleDraw, World};
use berth_planner::ids::{QueueIdx, ResourceIdx, ShapeIdx};
use berth_planner::job::{Communication, JobSpec, Locality, Phase, Role, Slice};
use berth_planner::policy::Policy;
use berth_planner::queue::{Backfill, Order, Queue, Quota, QuotaKey, ReclaimFrom};
use berth_planner::resources::Amounts;
use berth_planner::shape::{NodeSet, Shape};
use berth_planner::state::{ClusterState, NodeState};
use berth_planner::topology::{Level, NodePath, PoolSpec};
use berth_planner::{Span, Time};
use std::sync::Arc;

pub const GPU: &str = "nvidia.com/gpu";
pub const CPU: &str = "cpu";
pub const PORT: &str = "hostport/80";

/// How a world is told to the planner: names get a prefix, inputs come in another order.
#[derive(Clone, Copy, Debug, Default)]
pub struct Telling {
    pub prefix: &'static str,
    pub reversed: bool,
}

impl Telling {
    pub fn name(&self, name: &str) -> Arc<str> {
        format!("{}{name}", self.prefix).into()
    }

    /// Indexes in the order in which things are told.
    pub fn order(&self, count: usize) -> Vec<usize> {
        if self.reversed { (0..count).rev().collect() } else { (0..count).collect() }
    }
}

pub fn secs(seconds: i64) -> Span {
    Span::from_secs(seconds)
}

pub fn policy(world: &World) -> Policy {
    Policy {
        share_half_life: if world.half_life { secs(3600) } else { Span::ZERO },
        preemption: world.preemption,
        resize_interval: Span::ZERO,
        private_schedules: false,
        ..Policy::standard()
    }
}

pub fn pools(world: &World) -> Vec<PoolSpec> {
    let level = |name: &str| Level { name: name.into(), gigabytes_per_second: 0.0 };
    let first = PoolSpec { name: "h100".into(), levels: vec![level("block"), level("rack")], growable: false };
    let rest = PoolSpec { name: "".into(), levels: Vec::new(), growable: false };
    if world.pools > 1 { vec![first, rest] } else { vec![first] }
}

pub fn node_name(row: usize) -> String {
    format!("n{row:02}")
}

pub fn node_path(telling: Telling, row: usize, draw: &NodeDraw) -> NodePath {
    let block = telling.name(&format!("b{}", draw.block));
    // The same rack names in every block, and rack-1 beside rack-10: only whole paths tell them apart.
    let rack = telling.name(["rack-1", "rack-10", "rack-2"][usize::from(draw.rack % 3)]);
    let known = if draw.pool == 0 { usize::from(draw.known) } else { 0 };
    let path = [block, rack].into_iter().take(known).collect();
    NodePath { pool: draw.pool, path, name: telling.name(&node_name(row)) }
}

pub fn amounts(state: &mut ClusterState, list: &[(&str, i64)]) -> Amounts {
    let mut amounts = Amounts::default();
    for (name, amount) in list {
        let row = state.resources.intern(name);
        amounts.set(row, *amount);
    }
    amounts
}

pub fn node_state(state: &mut ClusterState, draw: &NodeDraw) -> NodeState {
    let allocatable = [(GPU, draw.gpus), (CPU, draw.cpus * 1000), ("pods", 10), (PORT, 1)];
    NodeState {
        allocatable: amounts(state, &allocatable),
        foreign: amounts(state, &[(GPU, draw.foreign), ("pods", i64::from(draw.foreign > 0))]),
        closed: draw.closed,
        lost: false,
        health: draw.health,
        unavailable: draw.away.map(|(at, len)| (Time::from_secs(at), Time::from_secs(at + len))).into_iter().collect(),
    }
}

pub fn set_nodes(state: &mut ClusterState, telling: Telling, world: &World, nodes: &[NodeDraw]) {
    let listed = telling
        .order(nodes.len())
        .into_iter()
        .map(|row| (node_path(telling, row, &nodes[row]), node_state(state, &nodes[row])))
        .collect();
    state.set_nodes(&pools(world), listed);
    set_eligible(state, telling, nodes);
}

/// Which nodes the two kinds of pods may use follows the nodes' rows.
pub fn set_eligible(state: &mut ClusterState, telling: Telling, nodes: &[NodeDraw]) {
    for filter in ["any", "untainted"] {
        let set = eligible(state, telling, nodes, filter);
        state.shapes.set_eligible(filter, &set);
    }
    state.shapes_changed();
}

fn eligible(state: &ClusterState, telling: Telling, nodes: &[NodeDraw], filter: &str) -> NodeSet {
    let tainted: Vec<_> = (0..nodes.len())
        .filter(|row| nodes[*row].tainted)
        .filter_map(|row| state.find_node(&telling.name(&node_name(row))))
        .collect();
    NodeSet::of(state.nodes().len(), |n| filter == "any" || !tainted.contains(&n))
}

pub fn gpu_quota(state: &mut ClusterState, amount: Option<i64>) -> Quota {
    let resource = state.resources.intern(GPU);
    amount.map(|a| (QuotaKey { pool: None, resource }, a)).into_iter().collect()
}

pub fn queue_name(row: usize) -> String {
    format!("q{row}")
}

fn set_queue(state: &mut ClusterState, name: &str, parent: QueueIdx, draw: &QueueDraw) -> QueueIdx {
    let guarantee = gpu_quota(state, draw.guarantee);
    let limit = gpu_quota(state, draw.limit.map(|l| l.max(draw.guarantee.unwrap_or(0))));
    state.set_queue(Queue {
        weight: f64::from(draw.weight),
        guarantee,
        limit,
        max_running_jobs: draw.max_running,
        order: if draw.fair { Order::Fair } else { Order::Priority },
        backfill: if draw.depth == 0 { Backfill::None } else { Backfill::Depth(draw.depth) },
        reclaim_min_runtime: secs(draw.min_runtime),
        reclaim_from: [ReclaimFrom::Any, ReclaimFrom::LowerPriority, ReclaimFrom::Never][usize::from(draw.from)],
        ..Queue::open(name, parent)
    })
}

/// Guarantees as admission allows them: in all not more than the cluster, a parent's at least its children's.
pub fn set_queues(state: &mut ClusterState, telling: Telling, world: &World) {
    let mut left: i64 = world.nodes.iter().map(|n| n.gpus).sum();
    let mut leaves = world.queues.clone();
    for leaf in &mut leaves {
        leaf.guarantee = leaf.guarantee.map(|g| g.min(left));
        left -= leaf.guarantee.unwrap_or(0);
    }
    for row in telling.order(world.parents.len()) {
        let children = leaves.iter().filter(|l| usize::from(l.parent) == row + 1);
        let sum: i64 = children.filter_map(|l| l.guarantee).sum();
        let parent = QueueDraw { guarantee: (sum > 0).then_some(sum), ..world.parents[row].clone() };
        set_queue(state, &telling.name(&format!("p{row}")), QueueIdx::ROOT, &parent);
    }
    for row in telling.order(leaves.len()) {
        let parent = match leaves[row].parent {
            0 => QueueIdx::ROOT,
            n => state.find_queue(&telling.name(&format!("p{}", n - 1))).expect("parents are there"),
        };
        set_queue(state, &telling.name(&queue_name(row)), parent, &leaves[row]);
    }
}

fn shape(state: &mut ClusterState, telling: Telling, nodes: &[NodeDraw], role: &RoleDraw) -> ShapeIdx {
    let filter = if role.tolerates { "any" } else { "untainted" };
    let requests =
        amounts(state, &[(GPU, role.gpus), (CPU, role.cpus * 1000), ("pods", 1), (PORT, i64::from(role.port))]);
    let eligible = eligible(state, telling, nodes, filter);
    state.shapes.intern(Shape { requests, filter: filter.into(), eligible })
}

pub fn job_key(row: usize) -> String {
    format!("default/j{row:02}")
}

pub fn job_spec(state: &mut ClusterState, telling: Telling, nodes: &[NodeDraw], row: usize, draw: &JobDraw) -> JobSpec {
    let roles = draw
        .roles
        .iter()
        .enumerate()
        .map(|(r, role)| Role {
            name: format!("role{r}").into(),
            shape: shape(state, telling, nodes, role),
            replicas: role.floor + role.extra,
            floor: role.floor,
            slice: role.slice.map(|(size, within)| Slice { size, within: within.into() }),
        })
        .collect();
    JobSpec {
        key: telling.name(&job_key(row)),
        uid: telling.name(&format!("uid-{row:02}")),
        user: telling.name(["alice", "bob"][row % 2]),
        queue: state.find_queue(&telling.name(&queue_name(draw.queue))).expect("queues are there"),
        priority: draw.priority,
        preemptible: draw.preemptible,
        max_runtime: draw.limit.map_or(Span::FOREVER, secs),
        grace: secs(draw.grace),
        expected_runtime: None,
        checkpoint_every: draw.checkpoint.map(secs),
        locality: Locality {
            required: draw.required.map(Into::into),
            preferred: draw.preferred.map(Into::into),
            patience: secs(draw.patience),
        },
        communication: [
            Communication::AllReduce,
            Communication::Pipeline,
            Communication::ParameterServer,
            Communication::Independent,
        ][usize::from(draw.communication)],
        resizable: draw.resizable,
        replaces_members: draw.replaces,
        roles,
    }
}

/// Nodes and queues, no jobs yet.
pub fn empty(world: &World, telling: Telling) -> ClusterState {
    let mut state = ClusterState::new();
    for name in [CPU, GPU, PORT] {
        state.resources.intern(name);
    }
    set_nodes(&mut state, telling, world, &world.nodes);
    set_queues(&mut state, telling, world);
    state
}

/// Adds a job as waiting.
pub fn submit(state: &mut ClusterState, telling: Telling, nodes: &[NodeDraw], row: usize, draw: &JobDraw, now: Time) {
    let spec = job_spec(state, telling, nodes, row, draw);
    state.add_job(spec, now, row as u64, Phase::Waiting(Box::default()));
}

pub fn gpu(state: &ClusterState) -> ResourceIdx {
    state.resources.find(GPU).expect("interned")
}
