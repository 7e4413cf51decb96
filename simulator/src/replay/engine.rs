//! The clock of a replay: at each distinct time all ends, all arrivals, then passes of the planner until none changes
//! anything that frees room.

use super::cluster::SplitMix;
use super::locality::{self, Leaves, Spread};
use super::options::{BackfillRule, OrderRule, PlacementOption, ReplayOptions};
use super::workload::{Work, Workload};
use crate::brain::{Brain, summary};
use planner::job::{Job, JobSpec, Locality, Phase, Placement, Role, Waiting};
use planner::plan::{Action, Plan};
use planner::policy::{PlacementRule, Policy};
use planner::private::{PrivateRules, PrivateSchedules, guarantees_covered, note_starts, private_job};
use planner::queue::{Backfill, Order, Queue, QuotaKey};
use planner::resources::{Amounts, ResourceTable};
use planner::shape::{NodeSet, Shape};
use planner::state::ClusterState;
use planner::{JobIdx, QueueIdx, ResourceIdx, ShapeIdx, Span, Time};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::sync::Arc;
use std::time::Instant;

/// Most passes at one instant: a plan that still frees room after so many would never settle.
const MOST_PASSES: u32 = 100;

/// Shorter than anything in a log.
const INSTANT: Span = Span(1000);

/// Violations that are told in words; the rest is counted.
const MOST_FAULTS: usize = 20;

/// What became of one job.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// First start.
    pub first_start: Option<Time>,
    /// When it had done all its work.
    pub finished: Option<Time>,
    /// How often it was stopped.
    pub stops: u32,
    /// Run time whose work was lost by stops.
    pub lost: Span,
    /// Whether it was ever promised a later start.
    pub promised: bool,
    /// Whether it started after its earliest promise without a recorded cause.
    pub broken: bool,
    /// How its (last) placement is spread.
    pub spread: Option<Spread>,
    started: Option<Time>,
    incarnation: u32,
    remaining: Span,
    limit: Span,
    promise: Option<Time>,
    row: Option<JobIdx>,
}

/// What happened at one distinct time, for plots and progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// When.
    pub at: Time,
    /// Units in use afterwards.
    pub used: u64,
    /// Jobs waiting afterwards.
    pub queued: usize,
}

/// The result of a run.
#[derive(Debug)]
pub struct Outcomes {
    /// By row of the workload's jobs.
    pub jobs: Vec<Outcome>,
    /// Use and queue over time.
    pub moments: Vec<Moment>,
    /// Plans made.
    pub cycles: u64,
    /// What the judge found wrong in them.
    pub violations: usize,
    /// The first of them in words.
    pub faults: Vec<String>,
    /// Nanoseconds of each plan.
    pub plan_nanos: Vec<u64>,
    /// Most jobs waiting at once.
    pub peak_queue: usize,
}

/// A replay in progress.
pub struct Engine<'a> {
    load: &'a Workload,
    options: &'a ReplayOptions,
    brain: Brain,
    policy: Policy,
    state: ClusterState,
    private: PrivateSchedules,
    unit: ResourceIdx,
    queues: Vec<QueueIdx>,
    shapes: BTreeMap<u64, ShapeIdx>,
    leaves: Leaves,
    jobs: Vec<Outcome>,
    rows: Vec<usize>,
    ends: BinaryHeap<Reverse<(Time, usize, u32)>>,
    wakes: BTreeSet<Time>,
    pinned: Vec<Option<usize>>,
    now: Time,
    next: usize,
    used: u64,
    queued: usize,
    result: Outcomes,
}

impl<'a> Engine<'a> {
    /// A replay of a workload on a prepared cluster (nodes only) of this unit.
    #[must_use]
    pub fn new(
        load: &'a Workload,
        options: &'a ReplayOptions,
        brain: Brain,
        mut state: ClusterState,
        unit: ResourceIdx,
    ) -> Self {
        let queues: Vec<QueueIdx> = load
            .queues
            .iter()
            .map(|q| {
                let guarantee = q.quota.map(|units| (QuotaKey { pool: None, resource: unit }, signed(units)));
                state.set_queue(Queue {
                    order: if options.order == OrderRule::Fair { Order::Fair } else { Order::Priority },
                    backfill: backfill(options),
                    guarantee: guarantee.into_iter().collect(),
                    ..Queue::open(&q.name, QueueIdx::ROOT)
                })
            })
            .collect();
        let leaves = Leaves::of(state.topology());
        let policy = policy(options, load);
        let mut private = PrivateSchedules::new();
        if policy.private_schedules {
            for queue in &queues {
                private.set_queue(*queue, PrivateRules::of(state.queue(*queue)), Time(i64::MIN));
            }
            private.set_frozen(!guarantees_covered(&state), Time(i64::MIN));
        }
        Self {
            policy,
            private,
            jobs: load.jobs.iter().map(Outcome::of).collect(),
            pinned: vec![None; queues.len()],
            load,
            options,
            brain,
            state,
            unit,
            queues,
            shapes: BTreeMap::new(),
            leaves,
            rows: Vec::new(),
            ends: BinaryHeap::new(),
            wakes: BTreeSet::new(),
            now: Time::ZERO,
            next: 0,
            used: 0,
            queued: 0,
            result: Outcomes {
                jobs: Vec::new(),
                moments: Vec::new(),
                cycles: 0,
                violations: 0,
                faults: Vec::new(),
                plan_nanos: Vec::new(),
                peak_queue: 0,
            },
        }
    }

    /// Runs to the end of the last job. `progress` hears how many jobs are done.
    pub fn run(mut self, progress: &mut dyn FnMut(usize)) -> Outcomes {
        let mut done = 0;
        while let Some(at) = self.next_time() {
            self.now = at;
            done += self.end_jobs();
            self.admit();
            self.plan_until_settled();
            self.pin_heads();
            self.result.peak_queue = self.result.peak_queue.max(self.queued);
            self.result.moments.push(Moment { at, used: self.used, queued: self.queued });
            progress(done);
        }
        self.result.jobs = self.jobs;
        self.result
    }

    fn next_time(&mut self) -> Option<Time> {
        while self.ends.peek().is_some_and(|Reverse((_, job, n))| self.jobs[*job].incarnation != *n) {
            self.ends.pop();
        }
        let arrival = self.load.jobs.get(self.next).map(|j| j.submit);
        let end = self.ends.peek().map(|Reverse((at, ..))| *at);
        // A private start whose moment has passed has been handed out.
        let private = self.private.next().filter(|at| *at > self.now || self.result.cycles == 0);
        [arrival, end, self.wakes.first().copied(), private].into_iter().flatten().min()
    }

    fn end_jobs(&mut self) -> usize {
        let mut ended = 0;
        while let Some(Reverse((at, job, incarnation))) = self.ends.peek().copied() {
            if at > self.now {
                break;
            }
            self.ends.pop();
            let outcome = &mut self.jobs[job];
            if outcome.incarnation != incarnation || outcome.started.is_none() {
                continue;
            }
            outcome.finished = Some(self.now);
            outcome.started = None;
            let row = outcome.row.take();
            let work = &self.load.jobs[job];
            self.used -= work.units;
            self.private.ended(&work.key, work.run, self.now);
            self.settle_use(job);
            if let Some(row) = row {
                self.state.remove_job(row, self.now);
            }
            ended += 1;
        }
        ended
    }

    fn admit(&mut self) {
        while let Some(work) = self.load.jobs.get(self.next).filter(|j| j.submit <= self.now) {
            let job = self.next;
            self.next += 1;
            let spec = self.spec(work);
            let row = self.state.add_job(spec, work.submit, job as u64, Phase::Waiting(Box::default()));
            if self.rows.len() <= row.row() {
                self.rows.resize(row.row() + 1, usize::MAX);
            }
            self.rows[row.row()] = job;
            self.jobs[job].row = Some(row);
            if let Some(told) = private_job(&self.state, row) {
                self.private.submit(self.queues[work.queue], told, self.now);
            }
            self.queued += 1;
        }
    }

    /// One pod where all units are alike or one node holds them; else whole nodes, one pod each.
    fn spec(&mut self, work: &Work) -> JobSpec {
        let per_node = self.options.gpus_per_node;
        let gang = self.options.topology.is_some() && work.units > per_node;
        let (pods, each) = if gang { (work.units.div_ceil(per_node), per_node) } else { (1, work.units) };
        let pods = u32::try_from(pods).unwrap_or(u32::MAX);
        let shape = self.shape(each);
        JobSpec {
            key: work.key.clone(),
            uid: work.key.clone(),
            user: work.user.clone(),
            queue: self.queues[work.queue],
            priority: work.priority,
            preemptible: true,
            max_runtime: work.estimate,
            grace: Span::ZERO,
            expected_runtime: None,
            checkpoint_every: self.options.checkpoint,
            locality: self.locality(work, gang),
            communication: planner::job::Communication::AllReduce,
            resizable: false,
            replaces_members: false,
            roles: vec![Role { name: "worker".into(), shape, replicas: pods, floor: pods, slice: None }],
        }
    }

    #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation)]
    fn locality(&self, work: &Work, gang: bool) -> Locality {
        let Some(share) = self.options.patience.filter(|_| gang) else { return Locality::default() };
        let pool = &self.state.topology().pools()[0];
        let leaf = pool.levels.last().map(|l| l.name.clone());
        let patience = Span((work.estimate.0 as f64 * share) as i64).min(self.options.patience_cap);
        Locality { required: None, preferred: leaf, patience }
    }

    fn shape(&mut self, each: u64) -> ShapeIdx {
        if let Some(shape) = self.shapes.get(&each) {
            return *shape;
        }
        let mut requests = Amounts::default();
        requests.set(ResourceTable::PODS, 1);
        requests.set(self.unit, signed(each));
        let eligible = NodeSet::of(self.state.nodes().len(), |_| true);
        let shape = self.state.shapes.intern(Shape { requests, filter: "".into(), eligible });
        self.state.shapes_changed();
        self.shapes.insert(each, shape);
        shape
    }

    fn plan_until_settled(&mut self) {
        while self.wakes.first().is_some_and(|w| *w <= self.now) {
            self.wakes.pop_first();
        }
        for _ in 0..MOST_PASSES {
            let plan = self.plan();
            self.state.planned();
            if let Some(wake) = plan.wake.filter(|w| *w > self.now) {
                self.wakes.insert(wake);
            }
            let mut frees = false;
            for action in &plan.actions {
                frees |= self.act(action);
            }
            if !frees {
                return;
            }
        }
    }

    /// What a queue used until now is written down before its use changes.
    fn settle_use(&mut self, job: usize) {
        let counts = self.load.queues.len() > 1 || self.options.order == OrderRule::Fair;
        if counts && self.policy.share_half_life > Span::ZERO {
            let work = &self.load.jobs[job];
            let (queue, half_life) = (self.queues[work.queue], self.policy.share_half_life);
            planner::share::settle(&mut self.state, queue, &work.user, self.now, half_life);
        }
    }

    fn plan(&mut self) -> Plan {
        let starts = self.private.advance(self.now);
        note_starts(&mut self.state, &starts);
        let snapshot = self.state.at(self.now);
        let before = Instant::now();
        let plan = (self.brain.plan)(&snapshot, &self.policy);
        let took = u64::try_from(before.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let faults = (self.brain.faults)(&snapshot, &self.policy, &plan);
        self.result.violations += faults.len();
        let room = MOST_FAULTS.saturating_sub(self.result.faults.len()).min(faults.len());
        if room > 0 {
            self.result.faults.push(format!("the plan: {}", summary(&snapshot, &plan)));
        }
        self.result
            .faults
            .extend(faults.into_iter().take(room).map(|f| format!("at {} s: {f}", self.now.as_secs_f64())));
        self.result.plan_nanos.push(took);
        self.result.cycles += 1;
        plan
    }

    /// Carries one action out; true if it freed room, so that another pass may do more.
    fn act(&mut self, action: &Action) -> bool {
        let job = self.rows[action.job().row()];
        if matches!(action, Action::Start { .. } | Action::Stop { .. }) {
            self.settle_use(job);
        }
        self.state.apply(action, self.now);
        match action {
            Action::Start { placement, .. } => {
                self.start(job, placement);
                false
            }
            Action::Reserve { start, .. } => {
                self.promise(job, *start);
                false
            }
            Action::Move { to, cause, .. } => {
                if cause.is_some() {
                    self.jobs[job].promise = None;
                }
                if let Some((start, ..)) = to {
                    self.promise(job, *start);
                }
                to.is_none()
            }
            Action::Stop { .. } => {
                self.stop(job);
                true
            }
            Action::Resize { .. } | Action::Replace { .. } | Action::Guarantee { .. } => false,
        }
    }

    fn start(&mut self, job: usize, placement: &Placement) {
        let spread = locality::spread(self.state.topology(), &self.leaves, placement);
        let outcome = &mut self.jobs[job];
        outcome.first_start.get_or_insert(self.now);
        outcome.started = Some(self.now);
        outcome.incarnation += 1;
        outcome.broken |= outcome.promise.take().is_some_and(|promise| self.now > promise);
        outcome.spread = spread;
        self.ends.push(Reverse((self.now + outcome.remaining, job, outcome.incarnation)));
        self.used += self.load.jobs[job].units;
        self.queued -= 1;
        for pin in &mut self.pinned {
            if *pin == Some(job) {
                *pin = None;
            }
        }
    }

    fn promise(&mut self, job: usize, start: Time) {
        if start <= self.now {
            return;
        }
        let outcome = &mut self.jobs[job];
        outcome.promised = true;
        outcome.promise = Some(outcome.promise.map_or(start, |p| p.min(start)));
        // A kept start is itself an event.
        self.wakes.insert(start);
    }

    fn stop(&mut self, job: usize) {
        let outcome = &mut self.jobs[job];
        let (Some(started), Some(row)) = (outcome.started.take(), outcome.row) else { return };
        let ran = self.now.since(started);
        let kept = self.options.checkpoint.map_or(0, |every| ran.0 / every.0.max(1) * every.0);
        outcome.incarnation += 1;
        outcome.stops += 1;
        outcome.lost = outcome.lost + Span(ran.0 - kept);
        outcome.remaining = Span(outcome.remaining.0 - kept);
        outcome.limit = Span((outcome.limit.0 - kept).max(1));
        let limit = outcome.limit;
        self.used -= self.load.jobs[job].units;
        self.queued += 1;
        let private_start = self.state.job(row).and_then(|j| match &j.phase {
            Phase::Running(r) => r.private_start,
            Phase::Waiting(w) => w.private_start,
            Phase::Leaving(_) => None,
        });
        self.state.requeue(row, self.now, Waiting { requeued: true, private_start, ..Waiting::default() });
        self.state.update_job(row, self.now, |j| respecify(j, |spec| spec.max_runtime = limit));
    }

    /// Without backfill the job picked first blocks until it fits, whoever arrives meanwhile: it is pinned to the
    /// front of its queue.
    fn pin_heads(&mut self) {
        if self.options.backfill != BackfillRule::None {
            return;
        }
        for queue in 0..self.queues.len() {
            if self.pinned[queue].is_some() {
                continue;
            }
            let head = self.state.waiting(self.queues[queue]).first().map(|key| key.5);
            if let Some(row) = head {
                self.pinned[queue] = Some(self.rows[row.row()]);
                self.state.update_job(row, self.now, |j| respecify(j, |spec| spec.priority = i64::MAX));
            }
        }
    }
}

impl Outcome {
    fn of(work: &Work) -> Self {
        Self { remaining: work.run, limit: work.estimate, ..Self::default() }
    }
}

fn respecify(job: &mut Job, change: impl FnOnce(&mut JobSpec)) {
    change(Arc::make_mut(&mut job.spec));
}

fn backfill(options: &ReplayOptions) -> Backfill {
    match options.backfill {
        BackfillRule::None => Backfill::None,
        BackfillRule::Easy => Backfill::Depth(options.depth.unwrap_or(1)),
        BackfillRule::Conservative => Backfill::Depth(options.depth.unwrap_or(u32::MAX)),
    }
}

fn policy(options: &ReplayOptions, load: &Workload) -> Policy {
    let guarantees = load.queues.iter().any(|q| q.quota.is_some());
    Policy {
        share_half_life: options.half_life,
        max_reservations: u32::MAX,
        max_postponement: Span::FOREVER,
        // Law 10 is judged to the second: who is due does not wait for somebody to end, only for those who are leaving at
        // this very instant; that is what a cycle this short tells apart.
        cycle: if guarantees { INSTANT } else { Policy::standard().cycle },
        worth_waiting: INSTANT,
        wait_instead_of_kill: Span::ZERO,
        explain: false,
        preemption: guarantees,
        private_schedules: guarantees,
        reclaim_for_private_only: guarantees,
        patience_from_first_start: true,
        placement: match options.placement {
            PlacementOption::Topology => PlacementRule::Topology,
            PlacementOption::First => PlacementRule::First,
            PlacementOption::Random => PlacementRule::Random(SplitMix(options.seed).draw()),
        },
        ..Policy::standard()
    }
}

fn signed(units: u64) -> i64 {
    i64::try_from(units).unwrap_or(i64::MAX)
}
