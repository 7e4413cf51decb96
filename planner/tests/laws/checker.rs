//! The checker catches every kind of bad plan, each made by hand, and lets the good ones beside them pass.

use crate::support::build::{self, Telling, job_key, secs};
use crate::support::world::{JobDraw, NodeDraw, QueueDraw, World};
use berth_planner::check::{Violation, check, check_thoroughly};
use berth_planner::ids::{JobIdx, NodeIdx, QueueIdx};
use berth_planner::job::{Hold, Phase, Placement, Reservation, Running, Seat, Waiting};
use berth_planner::plan::{Action, Cause, Claim, Plan, Quality};
use berth_planner::policy::Policy;
use berth_planner::queue::{QueueState, QuotaKey};
use berth_planner::reason::{Code, Pending, Reason};
use berth_planner::state::ClusterState;
use berth_planner::{DomainIdx, PoolIdx, Span, Time};

/// A cluster with jobs in any phase, and plans about them.
pub struct Bench {
    pub world: World,
    pub state: ClusterState,
    pub policy: Policy,
    pub now: Time,
}

pub fn t(seconds: i64) -> Time {
    Time::from_secs(seconds)
}

impl Bench {
    pub fn new(queues: Vec<QueueDraw>) -> Self {
        Self::of(World::plain(queues))
    }

    pub fn of(world: World) -> Self {
        let state = build::empty(&world, Telling::default());
        let policy = build::policy(&world);
        Self { world, state, policy, now: t(1000) }
    }

    pub fn node(&self, row: usize) -> NodeIdx {
        self.state.find_node(&build::node_name(row)).unwrap()
    }

    /// Seats of a one-role gang, `each` on each of these nodes.
    pub fn on(&self, nodes: &[usize], each: u32) -> Placement {
        let places = nodes.iter().flat_map(|n| std::iter::repeat_n(self.node(*n), each as usize));
        let seats = (0u32..).zip(places).map(|(index, node)| Seat { role: 0, index, node }).collect();
        Placement { seats }
    }

    pub fn waiting(&mut self, draw: &JobDraw) -> JobIdx {
        let row = self.world.jobs.len();
        self.world.jobs.push(draw.clone());
        build::submit(&mut self.state, Telling::default(), &self.world.nodes, row, draw, t(0));
        self.state.find_job(&job_key(row)).unwrap()
    }

    pub fn running(&mut self, draw: &JobDraw, placement: Placement, started: i64) -> JobIdx {
        let job = self.waiting(draw);
        let ends = t(started) + self.state.job(job).unwrap().spec.window();
        self.state.update_job(job, t(0), |j| {
            j.phase = Phase::Running(Box::new(Running {
                placement,
                started: t(started),
                ends,
                lost: Vec::new(),
                guaranteed: false,
                resized: t(started),
                firm: false,
                private_start: None,
                settling: false,
            }));
        });
        job
    }

    pub fn promised(&mut self, draw: &JobDraw, placement: Placement, start: i64) -> JobIdx {
        let job = self.waiting(draw);
        let end = t(start) + self.state.job(job).unwrap().spec.window();
        let reservation = Reservation { start: t(start), end, placement, promised: t(start), clearing: false };
        self.state.update_job(job, t(0), |j| {
            j.phase = Phase::Waiting(Box::new(Waiting { reservation: Some(reservation), ..Waiting::default() }));
        });
        job
    }

    pub fn change(&mut self, job: JobIdx, change: impl FnOnce(&mut Running)) {
        self.state.update_job(job, t(0), |j| {
            if let Phase::Running(r) = &mut j.phase {
                change(r);
            }
        });
    }

    pub fn wait(&mut self, job: JobIdx, change: impl FnOnce(&mut Waiting)) {
        self.state.update_job(job, t(0), |j| {
            if let Phase::Waiting(w) = &mut j.phase {
                change(w);
            }
        });
    }

    pub fn key(&self, job: JobIdx) -> std::sync::Arc<str> {
        self.state.job(job).unwrap().spec.key.clone()
    }

    pub fn start(&self, job: JobIdx, placement: Placement) -> Action {
        let ends = self.now + self.state.job(job).unwrap().spec.window();
        let quality = Quality { level: "".into(), domain: "".into(), domains: 1, domains_at_best: 1, cross_edges: 0 };
        Action::Start { job, placement, ends, guaranteed: false, quality }
    }

    pub fn reserve(&self, job: JobIdx, placement: Placement, start: Time, clears: Vec<JobIdx>) -> Action {
        let end = start + self.state.job(job).unwrap().spec.window();
        Action::Reserve { job, start, end, placement, clears }
    }

    pub fn moved(&self, job: JobIdx, from: i64, to: Option<(i64, Placement)>, cause: Option<Cause>) -> Action {
        let window = self.state.job(job).unwrap().spec.window();
        let to = to.map(|(start, placement)| (t(start), t(start) + window, placement));
        Action::Move { job, from: t(from), to, cause, clears: vec![] }
    }

    /// A plan of these actions, with a reason for everybody else who waits.
    pub fn plan(&self, actions: Vec<Action>) -> Plan {
        let started = |job: JobIdx| actions.iter().any(|a| matches!(a, Action::Start { job: j, .. } if *j == job));
        let pending = self
            .state
            .jobs()
            .filter(|(row, j)| j.waiting().is_some() && !started(*row))
            .map(|(job, _)| Pending { job, position: 1, reason: Reason::of(Code::NoCapacity, ""), start: None })
            .collect();
        Plan { actions, pending, ..Plan::default() }
    }

    pub fn judge(&self, plan: &Plan) -> Vec<Violation> {
        check(&self.state.at(self.now), &self.policy, plan).err().unwrap_or_default()
    }

    pub fn kinds(&self, actions: Vec<Action>) -> Vec<String> {
        self.judge(&self.plan(actions)).iter().map(Violation::kind).collect()
    }

    #[track_caller]
    pub fn good(&self, actions: Vec<Action>) {
        let found = self.judge(&self.plan(actions));
        assert!(found.is_empty(), "a good plan is refused: {found:?}");
    }

    #[track_caller]
    pub fn bad(&self, actions: Vec<Action>, kind: &str) {
        assert_eq!(self.kinds(actions), [kind]);
    }
}

fn one_queue() -> Bench {
    Bench::new(vec![QueueDraw::open()])
}

fn at_level(draw: JobDraw, required: &'static str) -> JobDraw {
    JobDraw { required: Some(required), ..draw }
}

// --- the plan as a document ---

#[test]
fn rows_without_a_job_and_actions_that_do_not_fit_are_caught() {
    let mut b = one_queue();
    let job = b.waiting(&JobDraw::gang(1, 8));
    let gone = Action::Guarantee { job: JobIdx(99) };
    b.bad(vec![gone], "NoSuchJob");
    b.bad(vec![Action::Guarantee { job }], "WrongPhase");
    let twice = vec![b.start(job, b.on(&[0], 1)), b.start(job, b.on(&[1], 1))];
    b.bad(twice, "WrongPhase");
}

#[test]
fn a_waiting_job_without_a_reason_and_a_started_one_with_one_are_caught() {
    let mut b = one_queue();
    let job = b.waiting(&JobDraw::gang(1, 8));
    let kinds = |p: &Plan| b.judge(p).iter().map(Violation::kind).collect::<Vec<_>>();
    assert_eq!(kinds(&Plan::default()), ["Unexplained"]);
    let mut started = b.plan(vec![b.start(job, b.on(&[0], 1))]);
    assert!(kinds(&started).is_empty());
    started.pending = b.plan(Vec::new()).pending;
    assert_eq!(kinds(&started), ["OddReason"]);
    let mut claiming = b.plan(Vec::new());
    claiming.claims.push(Claim { queue: b.state.find_queue("q0").unwrap(), job, domain: DomainIdx(0) });
    assert!(kinds(&claiming).is_empty());
    claiming.claims[0].queue = QueueIdx::ROOT;
    assert_eq!(kinds(&claiming), ["OddClaim"]);
}

#[test]
fn a_window_of_another_length_than_limit_and_grace_is_caught() {
    let mut b = one_queue();
    let job = b.waiting(&JobDraw { grace: 30, ..JobDraw::gang(1, 8) });
    b.good(vec![b.start(job, b.on(&[0], 1))]);
    let Action::Start { job, placement, ends, guaranteed, quality } = b.start(job, b.on(&[0], 1)) else { panic!() };
    let short = Action::Start { job, placement, ends: Time(ends.0 - 1), guaranteed, quality };
    b.bad(vec![short], "WrongEnd");
}

// --- law 1 ---

#[test]
fn half_a_gang_seats_that_cannot_be_and_gaps_are_caught() {
    let mut b = one_queue();
    let job = b.waiting(&JobDraw::gang(3, 4));
    b.good(vec![b.start(job, b.on(&[0, 1, 2], 1))]);
    b.bad(vec![b.start(job, b.on(&[0, 1], 1))], "BelowFloor");
    b.bad(vec![b.start(job, b.on(&[0, 1, 2, 3], 1))], "BadSeat");
    let mut twice = b.on(&[0, 1, 2], 1);
    twice.seats[2].index = 1;
    b.bad(vec![b.start(job, twice)], "SeatTwice");
    let mut draw = JobDraw::gang(1, 4);
    draw.roles[0].extra = 2;
    let elastic = b.waiting(&draw);
    let mut gap = b.on(&[0, 1], 1);
    gap.seats[1].index = 2;
    b.bad(vec![b.start(elastic, gap)], "RankGap");
}

#[test]
fn half_a_slice_and_a_slice_over_two_racks_are_caught() {
    let mut b = one_queue();
    let mut draw = JobDraw::gang(2, 8);
    draw.roles[0].extra = 2;
    draw.roles[0].slice = Some((2, "rack"));
    let job = b.waiting(&draw);
    b.good(vec![b.start(job, b.on(&[0, 1, 2, 3], 1))]);
    b.bad(vec![b.start(job, b.on(&[0, 1, 2], 1))], "BrokenSlice");
    b.bad(vec![b.start(job, b.on(&[1, 2], 1))], "SliceSplit");
}

// --- law 2 ---

#[test]
fn a_full_node_is_caught_whoever_fills_it() {
    let mut b = one_queue();
    let runner = b.running(&JobDraw::gang(1, 6), b.on(&[0], 1), 950);
    let job = b.waiting(&JobDraw::gang(1, 4));
    b.good(vec![b.start(job, b.on(&[1], 1))]);
    b.bad(vec![b.start(job, b.on(&[0], 1))], "OverCapacity");
    // At the end of its window the runner makes room, not an instant earlier.
    b.good(vec![b.reserve(job, b.on(&[0], 1), t(1050), vec![])]);
    b.bad(vec![b.reserve(job, b.on(&[0], 1), Time(t(1050).0 - 1), vec![])], "OverCapacity");
    // One that is over its time is still there.
    b.now = t(1060);
    b.bad(vec![b.start(job, b.on(&[0], 1))], "OverCapacity");
    // So is one that was told to go.
    b.state.update_job(runner, t(0), |j| {
        let placement = j.running().unwrap().placement.clone();
        let leaving = berth_planner::job::Leaving { placement, gone_by: t(1060), taker: None };
        j.phase = Phase::Leaving(Box::new(leaving));
    });
    b.bad(vec![b.start(job, b.on(&[0], 1))], "OverCapacity");
}

#[test]
fn two_starts_and_a_start_under_a_promise_see_each_other() {
    let mut b = one_queue();
    let (one, two) = (b.waiting(&JobDraw::gang(1, 8)), b.waiting(&JobDraw::gang(1, 8)));
    b.bad(vec![b.start(one, b.on(&[0], 1)), b.start(two, b.on(&[0], 1))], "OverCapacity");
    b.promised(&JobDraw::gang(1, 8), b.on(&[0], 1), 1099);
    b.bad(vec![b.start(one, b.on(&[0], 1))], "OverCapacity");
    b.now = t(999);
    b.good(vec![b.start(one, b.on(&[0], 1))]);
}

#[test]
fn seats_that_are_being_shed_and_foreign_pods_hold_room() {
    let mut b = one_queue();
    let runner = b.running(&JobDraw::gang(1, 8), b.on(&[1], 1), 950);
    let shed = b.on(&[0], 1);
    b.state.update_job(runner, t(0), |j| j.shedding.push((shed, t(1030))));
    let job = b.waiting(&JobDraw::gang(1, 4));
    b.bad(vec![b.start(job, b.on(&[0], 1))], "OverCapacity");
    b.good(vec![b.reserve(job, b.on(&[0], 1), t(1030), vec![])]);
    let mut draw = NodeDraw::plain(0, 1);
    draw.foreign = 6;
    let own = build::node_state(&mut b.state, &draw);
    b.state.set_node(b.node(2), own);
    b.bad(vec![b.start(job, b.on(&[2], 1))], "OverCapacity");
}

#[test]
fn host_ports_and_pod_slots_count_as_any_resource() {
    let mut b = one_queue();
    let mut draw = JobDraw::gang(2, 0);
    draw.roles[0].port = true;
    let ports = b.waiting(&draw);
    b.good(vec![b.start(ports, b.on(&[0, 1], 1))]);
    b.bad(vec![b.start(ports, b.on(&[0], 2))], "OverCapacity");
    let slots = b.waiting(&JobDraw::gang(11, 0));
    b.bad(vec![b.start(slots, b.on(&[0], 11))], "OverCapacity");
}

#[test]
fn closed_lost_and_absent_nodes_get_nothing_new() {
    let mut b = one_queue();
    let job = b.waiting(&JobDraw::gang(1, 8));
    let own = b.state.node(b.node(0)).clone();
    b.state.set_node(b.node(0), berth_planner::state::NodeState { closed: true, ..own.clone() });
    b.bad(vec![b.start(job, b.on(&[0], 1))], "UnusableNode");
    b.state.set_node(b.node(0), berth_planner::state::NodeState { lost: true, ..own.clone() });
    b.bad(vec![b.reserve(job, b.on(&[0], 1), t(2000), vec![])], "UnusableNode");
    let unavailable = vec![(t(1099), t(1200))];
    b.state.set_node(b.node(0), berth_planner::state::NodeState { unavailable, ..own });
    b.bad(vec![b.start(job, b.on(&[0], 1))], "InMaintenance");
    b.good(vec![b.reserve(job, b.on(&[0], 1), t(1200), vec![])]);
}

// --- law 3 ---

#[test]
fn excluded_nodes_other_pools_and_wider_domains_are_caught() {
    let mut world = World::plain(vec![QueueDraw::open()]);
    world.pools = 2;
    world.nodes.push(NodeDraw { pool: 1, ..NodeDraw::plain(0, 0) });
    world.nodes[0].tainted = true;
    let mut b = Bench::of(world);
    let mut draw = JobDraw::gang(2, 8);
    draw.roles[0].tolerates = false;
    let job = b.waiting(&draw);
    b.bad(vec![b.start(job, b.on(&[0, 1], 1))], "NotEligible");
    b.bad(vec![b.start(job, b.on(&[1, 8], 1))], "SpansPools");
    let independent = b.waiting(&JobDraw { communication: 3, ..JobDraw::gang(2, 8) });
    b.good(vec![b.start(independent, b.on(&[1, 8], 1))]);
    let rack = b.waiting(&at_level(JobDraw::gang(2, 8), "rack"));
    b.good(vec![b.start(rack, b.on(&[0, 1], 1))]);
    b.bad(vec![b.start(rack, b.on(&[1, 2], 1))], "SpansDomains");
    // Nodes 0 and 4 are both in a "rack-1", of different blocks.
    b.bad(vec![b.start(rack, b.on(&[0, 4], 1))], "SpansDomains");
    let node = b.waiting(&at_level(JobDraw::gang(2, 4), "node"));
    b.good(vec![b.start(node, b.on(&[0], 2))]);
    b.bad(vec![b.start(node, b.on(&[0, 1], 1))], "SpansDomains");
}

#[test]
fn a_node_without_labels_is_alone() {
    let mut world = World::plain(vec![QueueDraw::open()]);
    for node in &mut world.nodes[..2] {
        node.known = 1;
    }
    let mut b = Bench::of(world);
    let rack = b.waiting(&at_level(JobDraw::gang(2, 4), "rack"));
    b.bad(vec![b.start(rack, b.on(&[0, 1], 1))], "SpansDomains");
    b.good(vec![b.start(rack, b.on(&[0], 2))]);
    let block = b.waiting(&at_level(JobDraw::gang(2, 4), "block"));
    b.good(vec![b.start(block, b.on(&[0, 3], 1))]);
}

#[test]
fn growth_stays_in_the_domain_in_use_and_moves_nobody() {
    let mut b = one_queue();
    let mut draw = at_level(JobDraw::gang(1, 8), "rack");
    draw.roles[0].extra = 2;
    let runner = b.running(&draw, b.on(&[0], 1), 950);
    let resize = |placement, by| Action::Resize { job: runner, placement, by };
    b.good(vec![resize(b.on(&[0, 1], 1), None)]);
    b.bad(vec![resize(b.on(&[0, 2], 1), None)], "OutsideDomainInUse");
    assert_eq!(b.kinds(vec![resize(b.on(&[1], 1), None)]), ["ChangeForbidden", "RankMoved"]);
    // Between two changes of size at least the interval; the start was none.
    b.policy.resize_interval = secs(60);
    b.good(vec![resize(b.on(&[0, 1], 1), None)]);
    b.change(runner, |r| r.resized = t(960));
    b.bad(vec![resize(b.on(&[0, 1], 1), None)], "ChangeForbidden");
    b.change(runner, |r| r.resized = t(940));
    b.good(vec![resize(b.on(&[0, 1], 1), None)]);
}

#[test]
fn a_replacement_is_for_a_lost_member_in_the_domain_in_use() {
    let mut b = one_queue();
    let draw = JobDraw { replaces: true, ..at_level(JobDraw::gang(2, 4), "rack") };
    let runner = b.running(&draw, b.on(&[0, 1], 1), 950);
    let swap = |to: usize, after: &[usize]| {
        let swaps = vec![(1, b.node(1), b.node(to))];
        Action::Replace { job: runner, swaps, placement: b.on(after, 1) }
    };
    let (near, far) = (swap(0, &[0, 0]), swap(2, &[0, 2]));
    assert_eq!(b.kinds(vec![near.clone()]), ["ChangeForbidden", "RankMoved"]);
    b.change(runner, |r| r.lost = vec![1]);
    b.good(vec![near]);
    b.bad(vec![far], "OutsideDomainInUse");
}

#[test]
fn a_lost_member_holds_its_room_until_it_is_gone_unless_its_node_is_lost_too() {
    let mut b = one_queue();
    let runner = b.running(&JobDraw { replaces: true, ..JobDraw::gang(2, 8) }, b.on(&[0, 1], 1), 950);
    b.change(runner, |r| r.lost = vec![0]);
    let placement = b.on(&[7, 1], 1);
    let replaced = Action::Replace { job: runner, swaps: vec![(0, b.node(0), b.node(7))], placement };
    b.good(vec![replaced.clone()]);
    let job = b.waiting(&JobDraw::gang(1, 8));
    b.bad(vec![replaced.clone(), b.start(job, b.on(&[0], 1))], "OverCapacity");
    b.good(vec![replaced.clone(), b.start(job, b.on(&[2], 1))]);
    // On a lost node it blocks nothing: what may not start there may not for the node's sake.
    let own = b.state.node(b.node(0)).clone();
    b.state.set_node(b.node(0), berth_planner::state::NodeState { lost: true, ..own });
    b.bad(vec![replaced, b.start(job, b.on(&[0], 1))], "UnusableNode");
}

#[test]
fn nobody_is_planned_into_the_room_of_a_lost_member_that_is_still_there() {
    for replaces in [true, false] {
        let mut b = one_queue();
        let runner = b.running(&JobDraw { replaces, ..JobDraw::gang(2, 8) }, b.on(&[0, 1], 1), 950);
        b.running(&JobDraw::gang(5, 8), b.on(&[2, 3, 4, 5, 6], 1), 950);
        b.change(runner, |r| r.lost = vec![0]);
        let job = b.waiting(&JobDraw::gang(1, 8));
        let plan = berth_planner::plan(&b.state.at(b.now), &b.policy);
        let starts = |j: JobIdx| plan.actions.iter().any(|a| matches!(a, Action::Start { job, .. } if *job == j));
        let replaced = plan.actions.iter().any(|a| matches!(a, Action::Replace { .. }));
        assert!(if replaces { replaced } else { starts(runner) }, "the gang goes on: {:?}", plan.actions);
        assert!(!starts(job), "{:?}", plan.actions);
        assert!(b.judge(&plan).is_empty(), "{:?}", b.judge(&plan));
        for action in &plan.actions {
            b.state.apply(action, b.now);
        }
        b.state.planned();
        let again = berth_planner::plan(&b.state.at(b.now), &b.policy);
        assert!(again.actions.is_empty(), "{:?}", again.actions);
        // When it is gone, its room is anybody's.
        b.now = t(1001);
        b.state.settle_shedding(b.now);
        b.state.note_freed();
        let later = berth_planner::plan(&b.state.at(b.now), &b.policy);
        let starts = later.actions.iter().any(|a| matches!(a, Action::Start { job: j, .. } if *j == job));
        assert!(starts, "{:?}", later.actions);
    }
}

// --- law 4 ---

#[test]
fn a_promise_moves_later_or_goes_only_by_a_true_cause() {
    let mut b = one_queue();
    let high = b.waiting(&JobDraw { priority: 5, ..JobDraw::gang(1, 8) });
    let job = b.promised(&JobDraw::gang(1, 8), b.on(&[0], 1), 1200);
    let to = |s: i64, n: usize| Some((s, b.on(&[n], 1)));
    b.good(vec![b.moved(job, 1200, to(1100, 4), None)]);
    b.bad(vec![b.moved(job, 1200, to(1201, 0), None)], "MovedWithoutCause");
    b.bad(vec![b.moved(job, 1200, None, None)], "MovedWithoutCause");
    b.bad(vec![b.moved(job, 1300, to(1100, 0), None)], "NoSuchReservation");
    let higher = Cause::HigherPriority(b.key(high));
    b.good(vec![b.moved(job, 1200, to(1300, 0), Some(higher.clone()))]);
    b.bad(vec![b.moved(job, 1200, to(1300, 0), Some(Cause::HigherPriority(b.key(job))))], "FalseCause");
    let false_causes = [
        Cause::NodeLost("n00".into()),
        Cause::NodeUnusable("n01".into()),
        Cause::TopologyChanged("n77".into()),
        Cause::ForeignPod("n00".into()),
        Cause::Overrun(b.key(high)),
        Cause::QueueEdited("elsewhere".into()),
        Cause::JobEdited(b.key(high)),
        Cause::Entitled(b.key(high)),
        Cause::Repair(b.key(high)),
        Cause::StartRefused("".into()),
        Cause::Maintenance("n00".into()),
    ];
    for cause in false_causes {
        b.bad(vec![b.moved(job, 1200, None, Some(cause))], "FalseCause");
    }
    let far = b.moved(job, 1200, to(1300, 0), Some(higher));
    b.policy.max_postponement = secs(99);
    b.bad(vec![far], "PostponedTooFar");
}

#[test]
fn a_promise_keeps_its_domain_unless_it_comes_sooner() {
    let mut b = one_queue();
    let job = b.promised(&at_level(JobDraw::gang(2, 8), "rack"), b.on(&[0, 1], 1), 1200);
    let to = |b: &Bench, s: i64, nodes: &[usize]| Some((s, b.on(nodes, 1)));
    b.bad(vec![b.moved(job, 1200, to(&b, 1200, &[2, 3]), None)], "DomainLost");
    b.good(vec![b.moved(job, 1200, to(&b, 1150, &[2, 3]), None)]);
    let patient = JobDraw { preferred: Some("rack"), patience: 2000, ..JobDraw::gang(2, 8) };
    let patient = b.promised(&patient, b.on(&[4, 5], 1), 1400);
    b.bad(vec![b.moved(patient, 1400, to(&b, 1300, &[5, 6]), None)], "DomainLost");
    b.bad(vec![b.start(patient, b.on(&[5, 6], 1))], "DomainLost");
    b.good(vec![b.moved(patient, 1400, to(&b, 1300, &[6, 7]), None)]);
}

#[test]
fn a_promise_is_later_than_now_and_not_passed_over() {
    let mut b = one_queue();
    let job = b.waiting(&JobDraw::gang(1, 8));
    b.bad(vec![b.reserve(job, b.on(&[0], 1), t(1000), vec![])], "PromiseNotLater");
    b.good(vec![b.reserve(job, b.on(&[0], 1), t(1001), vec![])]);
    b.policy.max_reservations = 0;
    b.bad(vec![b.reserve(job, b.on(&[0], 1), t(1001), vec![])], "TooManyReservations");
    b.promised(&JobDraw::gang(1, 8), b.on(&[1], 1), 1000);
    b.bad(vec![], "PromiseIgnored");
}

#[test]
fn a_promise_left_on_a_node_that_cannot_keep_it_is_seen_by_the_thorough_check() {
    let mut b = one_queue();
    b.promised(&JobDraw::gang(1, 8), b.on(&[1], 1), 1200);
    let own = b.state.node(b.node(1)).clone();
    b.state.set_node(b.node(1), berth_planner::state::NodeState { closed: true, ..own });
    b.good(vec![]);
    let found = check_thoroughly(&b.state.at(b.now), &b.policy, &b.plan(vec![])).unwrap_err();
    assert_eq!(found.iter().map(Violation::kind).collect::<Vec<_>>(), ["PromiseOnUnusableNode"]);
}

// --- law 5 ---

#[test]
fn closed_queues_and_held_jobs_get_nothing() {
    let mut b = one_queue();
    let job = b.waiting(&JobDraw::gang(1, 8));
    b.wait(job, |w| w.hold = Some(Hold { code: Code::NamespaceQuota, detail: "quota".into(), until: None }));
    b.bad(vec![b.start(job, b.on(&[0], 1))], "Held");
    b.wait(job, |w| w.hold = None);
    b.good(vec![b.start(job, b.on(&[0], 1))]);
    let mut queue = b.state.queue(b.state.find_queue("q0").unwrap()).clone();
    queue.state = QueueState::Held;
    b.state.set_queue(queue);
    b.bad(vec![b.start(job, b.on(&[0], 1))], "Held");
}

#[test]
fn limits_of_a_queue_and_its_parents_hold_over_time() {
    let mut world = World::plain(vec![QueueDraw { parent: 1, ..QueueDraw::open() }]);
    world.parents.push(QueueDraw { limit: Some(16), ..QueueDraw::open() });
    let mut b = Bench::of(world);
    b.running(&JobDraw::gang(1, 8), b.on(&[0], 1), 950);
    let job = b.waiting(&JobDraw::gang(2, 8));
    b.bad(vec![b.start(job, b.on(&[2, 3], 1))], "OverLimit");
    b.bad(vec![b.reserve(job, b.on(&[2, 3], 1), t(1049), vec![])], "OverLimit");
    b.good(vec![b.reserve(job, b.on(&[2, 3], 1), t(1050), vec![])]);
}

#[test]
fn a_limit_for_one_pool_counts_only_there() {
    let mut world = World::plain(vec![QueueDraw::open()]);
    world.pools = 2;
    world.nodes.push(NodeDraw { pool: 1, ..NodeDraw::plain(0, 0) });
    let mut b = Bench::of(world);
    let mut queue = b.state.queue(b.state.find_queue("q0").unwrap()).clone();
    queue.limit = [(QuotaKey { pool: Some(PoolIdx(0)), resource: build::gpu(&b.state) }, 4)].into();
    b.state.set_queue(queue);
    let job = b.waiting(&JobDraw::gang(1, 8));
    b.bad(vec![b.start(job, b.on(&[0], 1))], "OverLimit");
    b.good(vec![b.start(job, b.on(&[8], 1))]);
}

#[test]
fn max_running_jobs_counts_promises_too() {
    let mut b = Bench::new(vec![QueueDraw { max_running: Some(1), ..QueueDraw::open() }]);
    let (one, two) = (b.waiting(&JobDraw::gang(1, 1)), b.waiting(&JobDraw::gang(1, 1)));
    b.bad(vec![b.start(one, b.on(&[0], 1)), b.start(two, b.on(&[1], 1))], "TooManyRunning");
    let late = |s| b.reserve(two, b.on(&[1], 1), t(s), vec![]);
    b.bad(vec![b.start(one, b.on(&[0], 1)), late(1099)], "TooManyRunning");
    b.good(vec![b.start(one, b.on(&[0], 1)), late(1100)]);
}

#[test]
fn what_is_not_preemptible_does_not_borrow() {
    let mut b = Bench::new(vec![QueueDraw { guarantee: Some(8), ..QueueDraw::open() }]);
    let draw = JobDraw { preemptible: false, ..JobDraw::gang(1, 8) };
    let (one, two) = (b.waiting(&draw), b.waiting(&draw));
    b.good(vec![b.start(one, b.on(&[0], 1))]);
    b.bad(vec![b.start(one, b.on(&[0], 1)), b.start(two, b.on(&[1], 1))], "NonPreemptibleBorrows");
}

#[test]
fn unlimited_jobs_are_never_assumed_to_end() {
    let mut b = one_queue();
    b.running(&JobDraw { limit: None, ..JobDraw::gang(1, 8) }, b.on(&[0], 1), 0);
    let job = b.waiting(&JobDraw::gang(1, 8));
    b.bad(vec![b.reserve(job, b.on(&[0], 1), t(1_000_000_000), vec![])], "OverCapacity");
    let endless = b.waiting(&JobDraw { limit: None, ..JobDraw::gang(1, 8) });
    assert_eq!(b.state.job(endless).unwrap().spec.window(), Span::FOREVER);
    b.promised(&JobDraw::gang(1, 8), b.on(&[1], 1), 900_000);
    b.bad(vec![b.start(endless, b.on(&[1], 1))], "OverCapacity");
}

#[test]
fn room_that_a_lending_limit_keeps_back_is_lent_to_nobody() {
    // Of 64 GPUs a is guaranteed 32 and lends at most 8 of them: 24 stay for it.
    let mut b = Bench::new(vec![QueueDraw { guarantee: Some(32), ..QueueDraw::open() }, QueueDraw::open()]);
    let mut lender = b.state.queue(b.state.find_queue("q0").unwrap()).clone();
    lender.lending_limit = build::gpu_quota(&mut b.state, Some(8));
    b.state.set_queue(lender);
    let other = JobDraw { queue: 1, ..JobDraw::gang(1, 8) };
    for node in 0..4 {
        b.running(&other, b.on(&[node], 1), 950);
    }
    let (one, two) = (b.waiting(&other), b.waiting(&other));
    let own = b.waiting(&JobDraw::gang(1, 8));
    b.good(vec![b.start(one, b.on(&[4], 1))]);
    b.bad(vec![b.start(one, b.on(&[4], 1)), b.start(two, b.on(&[5], 1))], "OverLent");
    // What the lender itself takes is not kept back any more, and costs nobody his room.
    b.good(vec![b.start(own, b.on(&[5], 1)), b.start(one, b.on(&[4], 1))]);
}
