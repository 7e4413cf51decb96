//! Private schedules: one queue alone on its guarantee, by small hand-made cases and against naive simulations.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)] // the lints are for code outside tests

use berth_planner::private::{PrivateJob, PrivateRules, PrivateSchedules, PrivateStart};
use berth_planner::queue::{Backfill, Order, Queue, QueueState, QuotaKey};
use berth_planner::{QueueIdx, ResourceIdx, Span, Time};
use proptest::prelude::*;
use std::collections::BTreeMap;

const Q: QueueIdx = QueueIdx(1);
const GPU: QuotaKey = QuotaKey { pool: None, resource: ResourceIdx(1) };
const CPU: QuotaKey = QuotaKey { pool: None, resource: ResourceIdx(2) };
const FOREVER: i64 = i64::MAX;

fn secs(n: i64) -> Time {
    Time::from_secs(n)
}

fn span(n: i64) -> Span {
    if n == FOREVER { Span::FOREVER } else { Span::from_secs(n) }
}

fn rules(gpus: i64, backfill: Backfill) -> PrivateRules {
    PrivateRules {
        capacity: [(GPU, gpus)].into(),
        max_running_jobs: None,
        order: Order::Priority,
        backfill,
        open: true,
    }
}

fn job(name: &str, at: i64, gpus: i64, limit: i64) -> PrivateJob {
    PrivateJob {
        id: name.into(),
        key: name.into(),
        user: "ann".into(),
        priority: 0,
        queued_at: secs(at),
        sequence: 0,
        demand: [(GPU, gpus)].into(),
        limit: span(limit),
    }
}

fn schedules(rules: PrivateRules) -> PrivateSchedules {
    let mut schedules = PrivateSchedules::new();
    schedules.set_queue(Q, Some(rules), Time::ZERO);
    schedules
}

fn shown(starts: &[PrivateStart]) -> Vec<(String, i64)> {
    starts.iter().map(|s| (s.id.to_string(), s.at.0 / 1_000_000)).collect()
}

/// Submits all at zero and runs until nothing more comes.
fn all_starts(rules: PrivateRules, jobs: Vec<PrivateJob>) -> BTreeMap<String, i64> {
    let mut schedules = schedules(rules);
    for job in jobs {
        schedules.submit(Q, job, Time::ZERO);
    }
    let mut starts: BTreeMap<String, i64> = shown(&schedules.advance(Time::ZERO)).into_iter().collect();
    while let Some(next) = schedules.next() {
        starts.extend(shown(&schedules.advance(next)));
    }
    starts
}

fn is(starts: &BTreeMap<String, i64>, expected: &[(&str, i64)]) {
    let expected: BTreeMap<String, i64> = expected.iter().map(|(n, t)| ((*n).to_owned(), *t)).collect();
    assert_eq!(*starts, expected);
}

#[test]
fn strict_order_lets_nobody_pass_the_blocked_head() {
    let jobs = vec![job("a", 0, 3, 10), job("b", 1, 4, 5), job("c", 2, 1, 3)];
    is(&all_starts(rules(4, Backfill::None), jobs), &[("a", 0), ("b", 10), ("c", 15)]);
}

#[test]
fn easy_lets_pass_what_ends_in_time_or_uses_what_the_head_leaves() {
    let jobs =
        vec![job("a", 0, 3, 10), job("b", 1, 4, 5), job("late", 2, 1, 11), job("just", 3, 1, 10), job("c", 4, 1, 99)];
    is(&all_starts(rules(4, Backfill::Depth(1)), jobs), &[("a", 0), ("just", 0), ("b", 10), ("late", 15), ("c", 15)]);
    let jobs = vec![job("a", 0, 3, 10), job("b", 1, 3, 5), job("spare", 2, 1, 99), job("more", 3, 1, 99)];
    is(&all_starts(rules(4, Backfill::Depth(1)), jobs), &[("a", 0), ("spare", 0), ("b", 10), ("more", 15)]);
}

#[test]
fn conservative_also_keeps_the_second_in_line_from_being_delayed() {
    // EASY lets "long" take the GPU that the head leaves; then "second" must wait for it.
    let jobs = || vec![job("a", 0, 3, 10), job("head", 1, 3, 10), job("second", 2, 4, 10), job("long", 3, 1, 100)];
    let easy = all_starts(rules(4, Backfill::Depth(1)), jobs());
    assert_eq!((easy["long"], easy["second"]), (0, 100));
    let conservative = all_starts(rules(4, Backfill::Depth(100)), jobs());
    assert_eq!((conservative["second"], conservative["long"]), (20, 30));
    let shallow = all_starts(rules(4, Backfill::Depth(2)), jobs());
    assert_eq!(shallow, conservative, "two in line hold a slot: the head and the second");
}

#[test]
fn a_job_runs_privately_for_its_limit_until_its_real_run_is_known() {
    let mut s = schedules(rules(4, Backfill::Depth(1)));
    s.submit(Q, job("a", 0, 4, 100), secs(0));
    s.submit(Q, job("b", 1, 4, 100), secs(0));
    assert_eq!(shown(&s.advance(secs(0))), [("a".to_owned(), 0)]);
    assert_eq!(s.next(), Some(secs(100)));
    s.ended(&"a".into(), span(30), secs(30));
    assert_eq!(shown(&s.advance(secs(30))), [("b".to_owned(), 30)]);
}

#[test]
fn a_job_that_is_over_before_its_private_start_still_has_its_private_run() {
    let mut s = schedules(rules(4, Backfill::Depth(1)));
    s.submit(Q, job("a", 0, 4, 100), secs(0));
    s.submit(Q, job("b", 1, 4, 100), secs(0));
    s.submit(Q, job("c", 2, 4, 100), secs(0));
    s.advance(secs(0));
    s.ended(&"b".into(), span(20), secs(20));
    assert_eq!(shown(&s.advance(secs(20))), []);
    assert_eq!(shown(&s.advance(secs(500))), [("b".to_owned(), 100), ("c".to_owned(), 120)], "in one leap too");
}

#[test]
fn an_end_known_too_late_frees_the_room_when_it_is_known() {
    let mut s = schedules(rules(4, Backfill::Depth(1)));
    s.submit(Q, job("a", 0, 4, FOREVER), secs(0));
    s.submit(Q, job("b", 1, 4, 10), secs(0));
    s.advance(secs(0));
    assert_eq!(s.next(), None, "an unlimited run has no end until it is known");
    s.ended(&"a".into(), span(30), secs(50));
    assert_eq!(shown(&s.advance(secs(50))), [("b".to_owned(), 50)]);
}

#[test]
fn behind_an_unlimited_run_only_jobs_with_a_limit_pass() {
    let mut s = schedules(rules(4, Backfill::Depth(1)));
    s.submit(Q, job("a", 0, 2, FOREVER), secs(0));
    s.submit(Q, job("head", 1, 4, 10), secs(0));
    s.submit(Q, job("unlimited", 2, 1, FOREVER), secs(0));
    s.submit(Q, job("limited", 3, 1, 10), secs(0));
    assert_eq!(shown(&s.advance(secs(0))), [("a".to_owned(), 0), ("limited".to_owned(), 0)]);
}

#[test]
fn jobs_larger_than_the_guarantee_or_asking_for_nothing_guaranteed_have_no_private_run() {
    let mut free = job("free", 0, 0, 10);
    free.demand = [(CPU, 8)].into();
    let jobs = vec![job("large", 0, 5, 10), free, job("a", 1, 4, 10)];
    is(&all_starts(rules(4, Backfill::Depth(1)), jobs), &[("a", 0)]);
}

#[test]
fn every_guaranteed_resource_counts() {
    let mut two = rules(4, Backfill::Depth(1));
    two.capacity.insert(CPU, 8);
    let with_cpu = |name: &str, at, gpus, cpus| PrivateJob {
        demand: [(GPU, gpus), (CPU, cpus)].into(),
        ..job(name, at, gpus, 10)
    };
    let jobs = vec![with_cpu("a", 0, 1, 6), with_cpu("b", 1, 1, 6), with_cpu("c", 2, 1, 2)];
    is(&all_starts(two, jobs), &[("a", 0), ("c", 0), ("b", 10)]);
}

#[test]
fn max_running_jobs_and_priority_hold_in_private_too() {
    let one = PrivateRules { max_running_jobs: Some(1), ..rules(4, Backfill::Depth(1)) };
    let jobs = vec![job("a", 0, 1, 10), PrivateJob { priority: 5, ..job("b", 1, 1, 10) }];
    is(&all_starts(one, jobs), &[("b", 0), ("a", 10)]);
}

#[test]
fn users_of_a_fair_queue_take_turns() {
    let fair = PrivateRules { order: Order::Fair, ..rules(2, Backfill::Depth(1)) };
    let of = |user: &str, name: &str, at| PrivateJob { user: user.into(), ..job(name, at, 1, 10) };
    let jobs = vec![of("ann", "a1", 0), of("ann", "a2", 1), of("ann", "a3", 2), of("bob", "b1", 3)];
    is(&all_starts(fair, jobs), &[("a1", 0), ("b1", 0), ("a2", 10), ("a3", 10)]);
}

#[test]
fn a_held_queue_a_held_job_and_a_frozen_cluster_start_nothing() {
    let mut s = schedules(PrivateRules { open: false, ..rules(4, Backfill::Depth(1)) });
    s.submit(Q, job("a", 0, 4, 10), secs(0));
    assert_eq!(shown(&s.advance(secs(1))), []);
    s.set_queue(Q, Some(rules(4, Backfill::Depth(1))), secs(2));
    s.set_held(&"a".into(), true, secs(2));
    assert_eq!(shown(&s.advance(secs(2))), []);
    s.set_frozen(true, secs(3));
    s.set_held(&"a".into(), false, secs(3));
    assert_eq!(shown(&s.advance(secs(3))), []);
    s.set_frozen(false, secs(4));
    assert_eq!(shown(&s.advance(secs(4))), [("a".to_owned(), 4)]);
}

#[test]
fn a_guarantee_that_changes_keeps_private_runs_and_asks_the_waiting_anew() {
    let mut s = schedules(rules(4, Backfill::Depth(1)));
    s.submit(Q, job("a", 0, 4, 10), secs(0));
    s.submit(Q, job("large", 1, 6, 10), secs(0));
    s.advance(secs(0));
    s.set_queue(Q, Some(rules(8, Backfill::Depth(1))), secs(1));
    assert_eq!(shown(&s.advance(secs(1))), [], "4 of 8 are taken by a");
    assert_eq!(shown(&s.advance(secs(10))), [("large".to_owned(), 10)]);
    s.set_queue(Q, Some(rules(2, Backfill::Depth(1))), secs(11));
    s.submit(Q, job("b", 11, 1, 10), secs(11));
    assert_eq!(shown(&s.advance(secs(11))), [], "more runs than there is now");
    assert_eq!(shown(&s.advance(secs(20))), [("b".to_owned(), 20)]);
}

#[test]
fn a_withdrawn_job_leaves_no_trace_and_an_edited_one_is_asked_anew() {
    let mut s = schedules(rules(4, Backfill::Depth(1)));
    s.submit(Q, job("a", 0, 4, 10), secs(0));
    s.submit(Q, job("b", 1, 4, 10), secs(0));
    s.advance(secs(0));
    s.withdrawn(&"a".into(), secs(3));
    assert_eq!(shown(&s.advance(secs(3))), [("b".to_owned(), 3)]);
    s.submit(Q, job("c", 3, 9, 10), secs(3));
    s.edited(job("c", 3, 4, 10), secs(4));
    assert_eq!(shown(&s.advance(secs(13))), [("c".to_owned(), 13)]);
    s.edited(job("c", 3, 1, 10), secs(14));
    assert_eq!(s.started(&"c".into()), Some(secs(13)), "a private run that has begun goes on");
}

#[test]
fn rules_come_from_the_queue() {
    let mut queue = Queue::open("q", QueueIdx::ROOT);
    assert_eq!(PrivateRules::of(&queue), None);
    queue.guarantee = [(GPU, 8)].into();
    queue.limit = [(GPU, 6)].into();
    queue.state = QueueState::Draining;
    let rules = PrivateRules::of(&queue).expect("it has a guarantee");
    assert_eq!((rules.capacity[&GPU], rules.open), (6, false));
}

// --- against naive simulations ---

/// (submission, GPUs, limit, real run) of jobs 0, 1, …
type Jobs = Vec<(i64, i64, i64, i64)>;

fn some_jobs() -> impl Strategy<Value = Jobs> {
    let one = (0i64..60, 1i64..9, 1i64..30, 1i64..30);
    prop::collection::vec(one, 1..25).prop_map(|mut jobs| {
        jobs.sort_by_key(|j| j.0);
        jobs.into_iter().map(|(at, gpus, limit, run)| (at, gpus, limit, run.min(limit))).collect()
    })
}

/// Second by second; room per second is counted anew each time, and nothing is shared with the module.
fn naive(jobs: &Jobs, capacity: i64, depth: usize) -> Vec<i64> {
    let mut start = vec![-1i64; jobs.len()];
    for now in 0..4000 {
        // Known ends are past; what runs is expected to end at its limit.
        let runs = |start: &[i64], i: usize| start[i] >= 0 && start[i] + jobs[i].3 > now;
        let mut room = vec![capacity; 400];
        let take = |room: &mut Vec<i64>, from: i64, until: i64, gpus: i64| {
            (from - now..until - now).for_each(|t| room[t as usize] -= gpus);
        };
        (0..jobs.len())
            .filter(|i| runs(&start, *i))
            .for_each(|i| take(&mut room, now, start[i] + jobs[i].2, jobs[i].1));
        let waiting: Vec<usize> = (0..jobs.len()).filter(|i| start[*i] < 0 && jobs[*i].0 <= now).collect();
        let mut seats = depth;
        for i in waiting {
            let fits = |room: &Vec<i64>, t: i64| {
                (t..t + jobs[i].2).all(|s| room.get(s as usize).is_none_or(|free| *free >= jobs[i].1))
            };
            if fits(&room, 0) {
                start[i] = now;
                take(&mut room, now, now + jobs[i].2, jobs[i].1);
            } else if seats > 0 {
                seats -= 1;
                let slot = (0..300).find(|t| fits(&room, *t)).expect("it fits the empty cluster");
                let until = (now + slot + jobs[i].2).min(now + 400);
                take(&mut room, now + slot, until, jobs[i].1);
            }
        }
    }
    start
}

fn by_module(jobs: &Jobs, capacity: i64, depth: u32, restart_at: Option<i64>) -> Vec<i64> {
    let mut s = schedules(rules(capacity, Backfill::Depth(depth)));
    let mut start = vec![-1i64; jobs.len()];
    for now in 0..4000 {
        for (i, j) in jobs.iter().enumerate() {
            if start[i] >= 0 && start[i] + j.3 == now {
                s.ended(&format!("{i:02}").into(), span(j.3), secs(now));
            }
            if j.0 == now {
                let new = PrivateJob { sequence: i as u64, ..job(&format!("{i:02}"), j.0, j.1, j.2) };
                s.submit(Q, new, secs(now));
            }
        }
        for (id, at) in shown(&s.advance(secs(now))) {
            start[id.parse::<usize>().expect("a number")] = at;
        }
        if restart_at == Some(now) {
            // Living jobs are told again, the rest comes from what was exported.
            let entries = s.export(Q);
            s = schedules(rules(capacity, Backfill::Depth(depth)));
            s.restore(Q, entries);
            for (i, j) in jobs.iter().enumerate().filter(|(i, j)| j.0 <= now && start[*i] < 0) {
                let known = PrivateJob { sequence: i as u64, ..job(&format!("{i:02}"), j.0, j.1, j.2) };
                s.submit(Q, known, secs(now));
            }
        }
    }
    start
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(120))]

    #[test]
    fn easy_agrees_with_a_second_by_second_simulation(jobs in some_jobs()) {
        prop_assert_eq!(by_module(&jobs, 8, 1, None), naive(&jobs, 8, 1));
    }

    #[test]
    fn conservative_agrees_with_a_second_by_second_simulation(jobs in some_jobs(), depth in 2u32..6) {
        prop_assert_eq!(by_module(&jobs, 8, depth, None), naive(&jobs, 8, depth as usize));
    }

    #[test]
    fn a_restart_changes_nothing(jobs in some_jobs(), at in 0i64..80, depth in 1u32..4) {
        prop_assert_eq!(by_module(&jobs, 8, depth, Some(at)), by_module(&jobs, 8, depth, None));
    }

    #[test]
    fn private_use_never_exceeds_the_guarantee(jobs in some_jobs(), depth in 1u32..6) {
        let start = by_module(&jobs, 8, depth, None);
        for t in 0..200 {
            let used: i64 = (0..jobs.len()).filter(|i| start[*i] <= t && t < start[*i] + jobs[*i].3).map(|i| jobs[i].1).sum();
            prop_assert!(used <= 8);
        }
        prop_assert!(start.iter().all(|s| *s >= 0), "every job that fits starts");
    }
}
