//! Clusters of any size for benchmarks: nodes spread evenly over levels, gangs that come and go, one cycle at a time as
//! the controller makes it.
#![allow(dead_code, unreachable_pub, missing_docs, clippy::expect_used)] // every benchmark uses its part

use berth_planner::check::check;
use berth_planner::ids::{JobIdx, QueueIdx, ResourceIdx, ShapeIdx};
use berth_planner::job::{Communication, JobSpec, Locality, Phase, Role};
use berth_planner::plan::{Action, Plan};
use berth_planner::policy::Policy;
use berth_planner::queue::Queue;
use berth_planner::resources::{Amounts, ResourceTable};
use berth_planner::shape::{NodeSet, Shape};
use berth_planner::state::{ClusterState, NodeState};
use berth_planner::topology::{Level, NodePath, PoolSpec};
use berth_planner::{Span, Time};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// What a gang asks for.
#[derive(Clone, Copy, Debug)]
pub struct Gang {
    pub pods: u32,
    /// GPUs of a pod.
    pub gpus: i64,
    pub required: Option<&'static str>,
    pub priority: i64,
    pub minutes: i64,
}

impl Gang {
    pub fn of(pods: u32, gpus: i64) -> Self {
        Self { pods, gpus, required: None, priority: 0, minutes: 60 }
    }

    pub fn within(self, level: &'static str) -> Self {
        Self { required: Some(level), ..self }
    }
}

/// What one cycle took.
#[derive(Clone, Debug)]
pub struct Cycled {
    pub planning: Duration,
    pub checking: Duration,
    pub applying: Duration,
    pub plan: Plan,
}

impl Cycled {
    pub fn starts(&self) -> usize {
        self.plan.actions.iter().filter(|a| matches!(a, Action::Start { .. })).count()
    }
}

/// A cluster with one queue.
pub struct World {
    pub state: ClusterState,
    pub policy: Policy,
    pub now: Time,
    queue: QueueIdx,
    gpu: ResourceIdx,
    shapes: BTreeMap<i64, ShapeIdx>,
    made: u64,
}

impl World {
    /// `levels` are (name, number of domains), broadest first; every domain has equally many nodes.
    pub fn new(nodes: usize, gpus: i64, levels: &[(&str, usize)]) -> Self {
        let mut state = ClusterState::new();
        let gpu = state.resources.intern("nvidia.com/gpu");
        let level = |(name, _): &(&str, usize)| Level { name: (*name).into(), gigabytes_per_second: 0.0 };
        let pool = PoolSpec { name: "".into(), levels: levels.iter().map(level).collect(), growable: false };
        let listed = (0..nodes).map(|row| {
            let path = levels.iter().map(|(name, count)| format!("{name}{:05}", row * count / nodes).into()).collect();
            let mut allocatable = Amounts::default();
            allocatable.set(ResourceTable::PODS, 110);
            allocatable.set(gpu, gpus);
            let node = NodeState { allocatable, ..NodeState::default() };
            (NodePath { pool: 0, path, name: format!("n{row:06}").into() }, node)
        });
        let listed = listed.collect();
        state.set_nodes(&[pool], listed);
        let queue = state.set_queue(Queue::open("default", QueueIdx::ROOT));
        let policy = Policy { private_schedules: false, ..Policy::standard() };
        Self { state, policy, now: Time::from_secs(1), queue, gpu, shapes: BTreeMap::new(), made: 0 }
    }

    /// A gang is submitted.
    pub fn submit(&mut self, gang: Gang) -> JobIdx {
        self.made += 1;
        let shape = self.shape(gang.gpus);
        let spec = JobSpec {
            key: format!("default/j{:07}", self.made).into(),
            uid: format!("{:07}", self.made).into(),
            user: "user".into(),
            queue: self.queue,
            priority: gang.priority,
            preemptible: true,
            max_runtime: Span::from_secs(gang.minutes * 60),
            grace: Span::ZERO,
            expected_runtime: None,
            checkpoint_every: None,
            locality: Locality { required: gang.required.map(Into::into), preferred: None, patience: Span::ZERO },
            communication: Communication::AllReduce,
            resizable: false,
            replaces_members: true,
            roles: vec![Role { name: "worker".into(), shape, replicas: gang.pods, floor: gang.pods, slice: None }],
        };
        self.state.add_job(spec, self.now, self.made, Phase::Waiting(Box::default()))
    }

    fn shape(&mut self, gpus: i64) -> ShapeIdx {
        if let Some(known) = self.shapes.get(&gpus) {
            return *known;
        }
        let mut requests = Amounts::default();
        requests.set(ResourceTable::PODS, 1);
        requests.set(self.gpu, gpus);
        let eligible = NodeSet::of(self.state.nodes().len(), |_| true);
        let shape = self.state.shapes.intern(Shape { requests, filter: "".into(), eligible });
        self.state.shapes_changed();
        self.shapes.insert(gpus, shape);
        shape
    }

    /// A job is done.
    pub fn end(&mut self, job: JobIdx) {
        self.state.remove_job(job, self.now);
    }

    /// Jobs that run, in row order.
    pub fn running(&self) -> Vec<JobIdx> {
        self.state.holding().iter().copied().collect()
    }

    /// One cycle, a second later: plan, check, apply.
    pub fn cycle(&mut self) -> Cycled {
        self.now = self.now + Span::from_secs(1);
        let snapshot = self.state.at(self.now);
        let start = Instant::now();
        let plan = berth_planner::plan(&snapshot, &self.policy);
        let planned = Instant::now();
        check(&snapshot, &self.policy, &plan).expect("a plan of a benchmark passes the checker");
        let checked = Instant::now();
        for action in &plan.actions {
            self.state.apply(action, self.now);
        }
        self.state.planned();
        let applied = Instant::now();
        Cycled { planning: planned - start, checking: checked - planned, applying: applied - checked, plan }
    }

    /// Cycles until nothing is decided any more.
    pub fn settle(&mut self) {
        while !self.cycle().plan.actions.is_empty() {}
    }
}
