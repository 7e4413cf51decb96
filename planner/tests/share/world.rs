//! A cluster of one node per pool; jobs are single pods of so many GPUs (and CPUs).

use berth_planner::ids::{JobIdx, NodeIdx, QueueIdx};
use berth_planner::job::{Communication, JobSpec, Locality, Phase, Placement, Role, Running, Seat, Waiting};
use berth_planner::policy::Policy;
use berth_planner::queue::{Queue, Quota, QuotaKey};
use berth_planner::resources::Amounts;
use berth_planner::shape::{NodeSet, Shape};
use berth_planner::share::{Head, Shares, Taker};
use berth_planner::state::{ClusterState, NodeState, Tally};
use berth_planner::topology::{NodePath, PoolSpec};
use berth_planner::{Span, Time};
use std::sync::Arc;

/// A cluster of one node per pool; jobs are single pods of so many GPUs (and CPUs).
pub struct World {
    pub state: ClusterState,
    pub jobs: u64,
}

pub const HOUR: Span = Span::from_secs(3600);

pub fn policy(half_life: Span) -> Policy {
    Policy { share_half_life: half_life, ..Policy::standard() }
}

impl World {
    pub fn new(gpus: i64) -> Self {
        Self::pools(&[gpus])
    }

    pub fn pools(gpus: &[i64]) -> Self {
        let mut state = ClusterState::new();
        let (gpu, cpu) = (state.resources.intern("gpu"), state.resources.intern("cpu"));
        let pools: Vec<PoolSpec> = (0..gpus.len())
            .map(|p| PoolSpec { name: format!("pool{p}").into(), levels: Vec::new(), growable: false })
            .collect();
        let nodes = gpus.iter().enumerate().map(|(pool, n)| {
            let mut allocatable = Amounts::default();
            allocatable.set(gpu, *n);
            allocatable.set(cpu, 10 * n * 1000);
            let path = NodePath { pool, path: Vec::new(), name: format!("node{pool}").into() };
            (path, NodeState { allocatable, ..NodeState::default() })
        });
        state.set_nodes(&pools, nodes.collect());
        Self { state, jobs: 0 }
    }

    pub fn key(&self, name: &str) -> QuotaKey {
        QuotaKey { pool: None, resource: self.state.resources.find(name).expect("known resource") }
    }

    pub fn gpus(&self, n: i64) -> Tally {
        [(self.key("gpu"), n)].into()
    }

    pub fn of(&self, amounts: &[(&str, i64)]) -> Tally {
        amounts.iter().map(|(r, n)| (self.key(r), *n)).collect()
    }

    pub fn queue(&mut self, name: &str, guarantee: i64) -> QueueIdx {
        let guarantee = if guarantee > 0 { self.gpus(guarantee) } else { Quota::new() };
        self.add(Queue { guarantee, ..Queue::open(name, QueueIdx::ROOT) })
    }

    pub fn add(&mut self, queue: Queue) -> QueueIdx {
        self.state.set_queue(queue)
    }

    pub fn edit(&mut self, queue: QueueIdx, change: impl FnOnce(&mut Queue)) {
        let mut row = self.state.queue(queue).clone();
        change(&mut row);
        self.state.set_queue(row);
    }

    pub fn spec(&mut self, queue: QueueIdx, user: &str, gpus: i64, cpus: i64, priority: i64) -> JobSpec {
        let mut requests = Amounts::default();
        requests.set(self.key("gpu").resource, gpus);
        requests.set(self.key("cpu").resource, cpus * 1000);
        let eligible = NodeSet::of(self.state.nodes().len(), |_| true);
        let shape = self.state.shapes.intern(Shape { requests, filter: "".into(), eligible });
        self.state.shapes_changed();
        self.jobs += 1;
        let key: Arc<str> = format!("ns/job{}", self.jobs).into();
        JobSpec {
            uid: key.clone(),
            key,
            user: user.into(),
            queue,
            priority,
            preemptible: true,
            max_runtime: HOUR,
            grace: Span::ZERO,
            expected_runtime: None,
            checkpoint_every: None,
            locality: Locality::default(),
            communication: Communication::AllReduce,
            resizable: true,
            replaces_members: false,
            roles: vec![Role { name: "worker".into(), shape, replicas: 1, floor: 1, slice: None }],
        }
    }

    pub fn run(&mut self, queue: QueueIdx, gpus: i64) -> JobIdx {
        self.run_as(queue, "ann", gpus, 0, 0)
    }

    pub fn run_as(&mut self, queue: QueueIdx, user: &str, gpus: i64, cpus: i64, node: u32) -> JobIdx {
        let spec = self.spec(queue, user, gpus, cpus, 0);
        let placement = Placement { seats: vec![Seat { role: 0, index: 0, node: NodeIdx(node) }] };
        let running = Running {
            placement,
            started: Time::ZERO,
            ends: Time::ZERO + HOUR,
            lost: Vec::new(),
            guaranteed: false,
            resized: Time::ZERO,
            firm: false,
            private_start: None,
            settling: false,
        };
        let sequence = self.jobs;
        self.state.add_job(spec, Time::ZERO, sequence, Phase::Running(Box::new(running)))
    }

    pub fn wait(&mut self, queue: QueueIdx, gpus: i64) -> JobIdx {
        let spec = self.spec(queue, "ann", gpus, 0, 0);
        let sequence = self.jobs;
        self.state.add_job(spec, Time::ZERO, sequence, Phase::Waiting(Box::<Waiting>::default()))
    }

    pub fn shares(&self) -> Shares<'_> {
        Shares::new(self.state.at(Time::ZERO), &policy(Span::ZERO))
    }
}

pub fn head(demand: &Tally, priority: i64, queued_at: i64) -> Head<'_> {
    Head { priority, queued_at: Time::from_secs(queued_at), sequence: 0, demand }
}

pub fn taker(queue: QueueIdx, demand: &Tally) -> Taker<'_> {
    Taker { queue, demand, private_start: false }
}
