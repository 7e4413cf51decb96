//! The checker on law 6: whom a plan may stop or shrink for whom.

use super::checker::{Bench, t};
use crate::support::world::{JobDraw, QueueDraw, World};
use berth_planner::check::{Protection, Violation};
use berth_planner::ids::JobIdx;
use berth_planner::plan::{Action, StopCause};
use berth_planner::queue::QueueState;

fn stop(job: JobIdx, cause: StopCause, by: JobIdx) -> Action {
    Action::Stop { job, cause, by: Some(by) }
}

#[track_caller]
fn protected(b: &Bench, actions: Vec<Action>, expected: Protection) {
    let found = b.judge(&b.plan(actions));
    let why: Vec<_> =
        found.iter().map(|v| if let Violation::Protected { why, .. } = v { Some(*why) } else { None }).collect();
    assert_eq!(why, [Some(expected)], "{found:?}");
}

/// Everything full: one 8-GPU job of the given kind on each node, all of the first queue.
fn full(b: &mut Bench, draw: &JobDraw) -> Vec<JobIdx> {
    (0..8).map(|n| b.running(draw, b.on(&[n], 1), 950)).collect()
}

fn same_queue() -> (Bench, Vec<JobIdx>, JobIdx) {
    let mut b = Bench::new(vec![QueueDraw::open()]);
    let runners = full(&mut b, &JobDraw::gang(1, 8));
    let taker = b.waiting(&JobDraw { priority: 5, ..JobDraw::gang(2, 8) });
    (b, runners, taker)
}

/// The plan that clears nodes for the taker at once.
fn clear(b: &Bench, taker: JobIdx, victims: &[JobIdx], nodes: &[usize], cause: StopCause) -> Vec<Action> {
    let mut actions: Vec<Action> = victims.iter().map(|v| stop(*v, cause, taker)).collect();
    actions.push(b.reserve(taker, b.on(nodes, 1), b.now, victims.to_vec()));
    actions
}

#[test]
fn lower_priority_makes_way_and_no_more_of_it_than_needed() {
    let (b, v, taker) = same_queue();
    b.good(clear(&b, taker, &v[..2], &[0, 1], StopCause::Preempted));
    b.bad(clear(&b, taker, &v[..3], &[0, 1], StopCause::Preempted), "NotNeeded");
    b.bad(clear(&b, taker, &v[..1], &[0, 1], StopCause::Preempted), "OverCapacity");
}

#[test]
fn victims_whose_taker_gets_nothing_are_caught_and_so_are_takers_without_victims() {
    let (b, v, taker) = same_queue();
    let kinds = b.kinds(vec![stop(v[0], StopCause::Preempted, taker)]);
    assert_eq!(kinds, ["TakerGetsNothing", "NotNeeded"]);
    let mut actions = clear(&b, taker, &v[..2], &[0, 1], StopCause::Preempted);
    actions.remove(1);
    assert_eq!(b.kinds(actions), ["OverCapacity", "NotCleared"]);
}

#[test]
fn equal_priority_and_protected_jobs_stay() {
    let (mut b, v, taker) = same_queue();
    let plan = |b: &Bench, taker| clear(b, taker, &v[..2], &[0, 1], StopCause::Preempted);
    b.change(v[0], |r| r.firm = true);
    protected(&b, plan(&b, taker), Protection::Firm);
    b.change(v[0], |r| r.firm = false);
    b.change(v[0], |r| r.settling = true);
    protected(&b, plan(&b, taker), Protection::Settling);
    b.change(v[0], |r| r.settling = false);
    b.good(plan(&b, taker));
    let equal = b.waiting(&JobDraw::gang(1, 8));
    protected(&b, clear(&b, equal, &v[..1], &[0], StopCause::Preempted), Protection::Priority);
    b.policy.preemption = false;
    let lone = b.waiting(&JobDraw { priority: 5, ..JobDraw::gang(1, 8) });
    protected(&b, clear(&b, lone, &v[..1], &[0], StopCause::Preempted), Protection::Policy);
}

#[test]
fn what_is_not_preemptible_or_too_young_stays() {
    let mut b = Bench::new(vec![QueueDraw { guarantee: Some(64), ..QueueDraw::open() }]);
    let v = full(&mut b, &JobDraw { preemptible: false, ..JobDraw::gang(1, 8) });
    let taker = b.waiting(&JobDraw { priority: 5, ..JobDraw::gang(1, 8) });
    protected(&b, clear(&b, taker, &v[..1], &[0], StopCause::Preempted), Protection::NotPreemptible);
    let mut b = Bench::new(vec![QueueDraw { min_runtime: 60, ..QueueDraw::open() }]);
    let v = full(&mut b, &JobDraw::gang(1, 8));
    let taker = b.waiting(&JobDraw { priority: 5, ..JobDraw::gang(1, 8) });
    protected(&b, clear(&b, taker, &v[..1], &[0], StopCause::Preempted), Protection::MinRuntime);
    b.now = t(1010);
    b.good(clear(&b, taker, &v[..1], &[0], StopCause::Preempted));
}

#[test]
fn no_second_round_while_the_first_is_leaving() {
    let (mut b, v, taker) = same_queue();
    let actions = clear(&b, taker, &v[..2], &[0, 1], StopCause::Preempted);
    for action in &actions {
        b.state.apply(action, b.now);
    }
    b.good(vec![]);
    let again = vec![stop(v[2], StopCause::Preempted, taker)];
    assert!(b.kinds(again).contains(&"SecondRound".to_owned()));
}

fn two_queues(victim: QueueDraw, taker: QueueDraw) -> (Bench, Vec<JobIdx>) {
    let mut b = Bench::new(vec![victim, taker]);
    let v = full(&mut b, &JobDraw::gang(1, 8));
    (b, v)
}

fn of_second(pods: u32) -> JobDraw {
    JobDraw { queue: 1, ..JobDraw::gang(pods, 8) }
}

#[test]
fn the_entitled_take_back_what_is_lent_and_only_that() {
    let guarantee = |g| QueueDraw { guarantee: Some(g), ..QueueDraw::open() };
    let (mut b, v) = two_queues(guarantee(48), guarantee(16));
    let two = b.waiting(&of_second(2));
    b.good(clear(&b, two, &v[..2], &[0, 1], StopCause::Reclaimed));
    let three = b.waiting(&of_second(3));
    let found = b.judge(&b.plan(clear(&b, three, &v[..3], &[0, 1, 2], StopCause::Reclaimed)));
    // The third victim's queue is within its guarantee by then, and three nodes are not all guaranteed to the taker.
    let why: Vec<_> =
        found.iter().filter_map(|v| if let Violation::Protected { why, .. } = v { Some(*why) } else { None }).collect();
    assert!(why.contains(&Protection::QueueWithinGuarantee) && why.contains(&Protection::NotEntitled), "{found:?}");
}

#[test]
fn across_queues_priority_alone_takes_nothing() {
    let (mut b, v) = two_queues(QueueDraw { guarantee: Some(64), ..QueueDraw::open() }, QueueDraw::open());
    let taker = b.waiting(&JobDraw { priority: 100, ..of_second(1) });
    let found = b.judge(&b.plan(clear(&b, taker, &v[..1], &[0], StopCause::Reclaimed)));
    assert!(found.iter().any(|v| matches!(v, Violation::Protected { why: Protection::QueueWithinGuarantee, .. })));
}

#[test]
fn below_the_fair_share_takes_from_above_it_and_not_beyond() {
    let (mut b, v) = two_queues(QueueDraw::open(), QueueDraw::open());
    let four = b.waiting(&of_second(4));
    b.good(clear(&b, four, &v[..4], &[0, 1, 2, 3], StopCause::Reclaimed));
    let five = b.waiting(&of_second(5));
    let found = b.judge(&b.plan(clear(&b, five, &v[..5], &[0, 1, 2, 3, 4], StopCause::Reclaimed)));
    assert!(found.iter().any(|v| matches!(v, Violation::Protected { why: Protection::NotEntitled, .. })), "{found:?}");
}

#[test]
fn reclaim_settings_of_the_victims_queue_rule() {
    let closed = QueueDraw { from: 2, ..QueueDraw::open() };
    let (mut b, v) = two_queues(closed, QueueDraw { guarantee: Some(8), ..QueueDraw::open() });
    let taker = b.waiting(&of_second(1));
    protected(&b, clear(&b, taker, &v[..1], &[0], StopCause::Reclaimed), Protection::ReclaimFrom);
    let lower = QueueDraw { from: 1, ..QueueDraw::open() };
    let (mut b, v) = two_queues(lower, QueueDraw { guarantee: Some(8), ..QueueDraw::open() });
    let taker = b.waiting(&of_second(1));
    protected(&b, clear(&b, taker, &v[..1], &[0], StopCause::Reclaimed), Protection::ReclaimFrom);
    let higher = b.waiting(&JobDraw { priority: 1, ..of_second(1) });
    b.good(clear(&b, higher, &v[..1], &[0], StopCause::Reclaimed));
    b.change(v[0], |r| r.guaranteed = true);
    protected(&b, clear(&b, higher, &v[..1], &[0], StopCause::Reclaimed), Protection::Guaranteed);
}

#[test]
fn surplus_goes_first_and_never_below_the_floor() {
    let mut b = Bench::new(vec![QueueDraw::open()]);
    let mut draw = JobDraw::gang(6, 8);
    draw.roles[0].extra = 2;
    let runner = b.running(&draw, b.on(&[0, 1, 2, 3, 4, 5, 6, 7], 1), 950);
    let taker = b.waiting(&JobDraw::gang(2, 8));
    let shrink = |nodes: &[usize]| Action::Resize { job: runner, placement: b.on(nodes, 1), by: Some(taker) };
    let promise = b.reserve(taker, b.on(&[6, 7], 1), b.now, vec![runner]);
    b.good(vec![shrink(&[0, 1, 2, 3, 4, 5]), promise.clone()]);
    b.bad(vec![shrink(&[0, 1, 2, 3, 4]), promise], "BelowFloor");
    let early = vec![shrink(&[0, 1, 2, 3, 4, 5]), b.start(taker, b.on(&[6, 7], 1))];
    assert!(b.kinds(early).contains(&"OverCapacity".to_owned()));
}

#[test]
fn a_limit_may_be_what_a_victim_is_needed_for() {
    let mut b = Bench::new(vec![QueueDraw { limit: Some(8), ..QueueDraw::open() }]);
    let runner = b.running(&JobDraw::gang(1, 8), b.on(&[0], 1), 950);
    let taker = b.waiting(&JobDraw { priority: 5, ..JobDraw::gang(1, 8) });
    b.good(clear(&b, taker, &[runner], &[1], StopCause::Preempted));
}

#[test]
fn stops_for_reasons_that_are_not_so_are_caught() {
    let (mut b, v, _) = same_queue();
    let plain = |cause| Action::Stop { job: v[0], cause, by: None };
    b.bad(vec![plain(StopCause::Preempted)], "FalseStop");
    b.bad(vec![plain(StopCause::NodeLost)], "FalseStop");
    b.bad(vec![plain(StopCause::Drained)], "FalseStop");
    b.change(v[0], |r| r.lost = vec![0]);
    b.good(vec![plain(StopCause::NodeLost)]);
    let mut queue = b.state.queue(b.state.find_queue("q0").unwrap()).clone();
    queue.state = QueueState::Draining;
    b.state.set_queue(queue);
    let with_checkpoint = b.running(&JobDraw { checkpoint: Some(40), ..JobDraw::gang(1, 0) }, b.on(&[0], 1), 950);
    b.good(vec![Action::Stop { job: with_checkpoint, cause: StopCause::Drained, by: None }]);
    b.now = t(980);
    b.bad(vec![Action::Stop { job: with_checkpoint, cause: StopCause::Drained, by: None }], "FalseStop");
}

#[test]
fn subtrees_are_compared_below_their_common_ancestor() {
    let leaf = |parent, guarantee| QueueDraw { parent, guarantee, ..QueueDraw::open() };
    let mut world = World::plain(vec![leaf(1, Some(8)), leaf(1, None), leaf(2, Some(56))]);
    world.parents = vec![QueueDraw::open(), QueueDraw::open()];
    let mut b = Bench::of(world);
    let v: Vec<JobIdx> =
        (0..8).map(|n| b.running(&JobDraw { queue: 1, ..JobDraw::gang(1, 8) }, b.on(&[n], 1), 950)).collect();
    // The other subtree is entitled to 56; this one keeps the 8 that it guarantees to its first leaf.
    let seven = b.waiting(&JobDraw { queue: 2, ..JobDraw::gang(7, 8) });
    b.good(clear(&b, seven, &v[..7], &[0, 1, 2, 3, 4, 5, 6], StopCause::Reclaimed));
}
