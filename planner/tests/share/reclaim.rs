//! Who may take room from whom.

use crate::world::*;
use berth_planner::ids::QueueIdx;
use berth_planner::queue::Queue;
use berth_planner::share::{Reclaim, Taker};

#[test]
fn one_straddling_job_is_evicted_once_and_never_comes_back_by_right() {
    // Q1 (3 of 8) runs one job of 4; Q2 (5 of 8) runs 1 and waits with 4.
    let mut w = World::new(8);
    let (q1, q2) = (w.queue("q1", 3), w.queue("q2", 5));
    w.run(q1, 4);
    w.run(q2, 1);
    w.wait(q2, 4);
    let four = w.gpus(4);
    let mut shares = w.shares();
    assert_eq!(shares.may_reclaim(&taker(q2, &four), q1, &four), Reclaim::Entitled);
    shares.take(q1, &four);
    shares.give(q2, &four);
    assert_eq!(shares.may_reclaim(&taker(q1, &four), q2, &four), Reclaim::No);
    assert_eq!(shares.may_reclaim(&taker(q1, &four), q2, &w.gpus(1)), Reclaim::No);
}

#[test]
fn a_guarantee_stays_reachable_beside_siblings_that_borrow_the_rest() {
    // Parent 9; three children guaranteed 2 (3), two run one job of 4 each.
    let mut w = World::new(9);
    let p = w.add(Queue { limit: w.gpus(9), ..Queue::open("p", QueueIdx::ROOT) });
    let child = |w: &mut World, name: &str| {
        let (guarantee, limit) = (w.gpus(3), w.gpus(5));
        w.add(Queue { guarantee, limit, ..Queue::open(name, p) })
    };
    let (a, b, c) = (child(&mut w, "a"), child(&mut w, "b"), child(&mut w, "c"));
    w.run(a, 4);
    w.run(b, 4);
    let (two, four) = (w.gpus(2), w.gpus(4));
    let shares = w.shares();
    assert_eq!(shares.may_reclaim(&taker(c, &two), a, &four), Reclaim::Entitled);
    assert_eq!(shares.may_reclaim(&taker(c, &four), a, &four), Reclaim::No, "4 is beyond its right of 3");
    let heads = [(a, head(&four, 0, 0)), (c, head(&four, 0, 9))];
    assert_eq!(shares.best_queue(&heads), Some(c), "but the next free room is its own");
}

#[test]
fn a_family_within_its_guarantee_is_protected_whatever_its_children_do_among_themselves() {
    let mut w = World::new(20);
    let (p, r) = (w.queue("p", 10), w.queue("r", 10));
    let p1 = w.add(Queue { guarantee: w.gpus(8), ..Queue::open("p1", p) });
    let p2 = w.add(Queue { guarantee: w.gpus(2), ..Queue::open("p2", p) });
    let r1 = w.add(Queue { guarantee: w.gpus(10), ..Queue::open("r1", r) });
    w.run(p2, 10);
    let (eight, two) = (w.gpus(8), w.gpus(2));
    let shares = w.shares();
    assert_eq!(shares.may_reclaim(&taker(r1, &eight), p2, &two), Reclaim::No, "p as a whole is within its guarantee");
    assert_eq!(shares.may_reclaim(&taker(p1, &eight), p2, &eight), Reclaim::Entitled, "inside p it borrows from p1");
}

#[test]
fn a_queue_with_only_a_limit_neither_takes_by_guarantee_nor_is_protected() {
    let mut w = World::new(10);
    let a = w.queue("a", 10);
    let b = w.add(Queue { limit: w.gpus(10), ..Queue::open("b", QueueIdx::ROOT) });
    w.run(b, 5);
    let five = w.gpus(5);
    let shares = w.shares();
    assert!(!shares.entitled(b, &w.gpus(1)));
    assert!(shares.above_guarantee(b));
    assert_eq!(shares.may_reclaim(&taker(a, &w.gpus(6)), b, &five), Reclaim::Entitled);
    assert_eq!(shares.may_reclaim(&taker(b, &five), a, &five), Reclaim::No);
}

#[test]
fn a_queue_at_or_below_its_guarantee_is_never_a_victim() {
    let mut w = World::new(12);
    let (a, b) = (w.queue("a", 6), w.queue("b", 6));
    w.run(a, 6);
    w.wait(b, 6);
    let one = w.gpus(1);
    assert_eq!(w.shares().may_reclaim(&taker(b, &one), a, &one), Reclaim::No);
    w.run(a, 2);
    let mut shares = w.shares();
    assert_eq!(shares.may_reclaim(&taker(b, &one), a, &one), Reclaim::Entitled);
    shares.take(a, &one);
    assert_eq!(shares.may_reclaim(&taker(b, &one), a, &one), Reclaim::Entitled);
    shares.take(a, &one);
    assert_eq!(shares.may_reclaim(&taker(b, &one), a, &one), Reclaim::No, "small bites do not add up below the line");
}

#[test]
fn resources_are_compared_one_by_one_never_summed() {
    let mut w = World::new(10);
    let a = w.add(Queue { guarantee: w.of(&[("gpu", 5), ("cpu", 20_000)]), ..Queue::open("a", QueueIdx::ROOT) });
    let b = w.add(Queue { guarantee: w.of(&[("gpu", 5), ("cpu", 80_000)]), ..Queue::open("b", QueueIdx::ROOT) });
    w.run_as(b, "ann", 2, 90, 0);
    let gpu_job = w.gpus(3);
    let cpu_job = w.of(&[("cpu", 10_000)]);
    let held = w.of(&[("gpu", 2), ("cpu", 90_000)]);
    let shares = w.shares();
    assert_eq!(shares.may_reclaim(&taker(a, &gpu_job), b, &held), Reclaim::No, "b borrows CPUs, a wants GPUs");
    assert_eq!(shares.may_reclaim(&taker(a, &cpu_job), b, &held), Reclaim::Entitled);
}

#[test]
fn guaranteed_gpus_protect_the_cpus_that_come_with_them_and_no_more() {
    let mut w = World::new(10);
    let a = w.add(Queue { guarantee: w.of(&[("cpu", 30_000)]), ..Queue::open("a", QueueIdx::ROOT) });
    let b = w.queue("b", 5);
    w.run_as(b, "ann", 5, 50, 0);
    let cpus = w.of(&[("cpu", 30_000)]);
    let held = w.of(&[("gpu", 5), ("cpu", 50_000)]);
    assert_eq!(w.shares().may_reclaim(&taker(a, &cpus), b, &held), Reclaim::No, "half of the GPUs, half of the CPUs");
    w.run_as(b, "ann", 0, 20, 0);
    let hog = w.of(&[("cpu", 20_000)]);
    assert_eq!(w.shares().may_reclaim(&taker(a, &cpus), b, &hog), Reclaim::Entitled);
}

#[test]
fn a_guarantee_of_gpus_reaches_the_cpus_it_needs() {
    let mut w = World::new(10);
    let (a, b) = (w.queue("a", 5), w.queue("b", 0));
    w.run_as(b, "ann", 0, 90, 0);
    let gang = w.of(&[("gpu", 4), ("cpu", 40_000)]);
    let greedy = w.of(&[("gpu", 4), ("cpu", 60_000)]);
    let hog = w.of(&[("cpu", 90_000)]);
    assert_eq!(w.shares().may_reclaim(&taker(a, &gang), b, &hog), Reclaim::Entitled);
    assert_eq!(w.shares().may_reclaim(&taker(a, &greedy), b, &hog), Reclaim::No, "half of the CPUs is its part");
}

#[test]
fn without_guarantees_fair_shares_are_restored_and_then_rest() {
    let mut w = World::new(12);
    let (a, b, c) = (w.queue("a", 0), w.queue("b", 0), w.queue("c", 0));
    for _ in 0..6 {
        w.run(a, 1);
        w.run(b, 1);
    }
    for _ in 0..8 {
        w.wait(a, 1);
        w.wait(c, 1);
    }
    let one = w.gpus(1);
    let mut shares = w.shares();
    let mut evicted = Vec::new();
    while let Some(victim) = [a, b].into_iter().find(|v| shares.may_reclaim(&taker(c, &one), *v, &one) != Reclaim::No) {
        shares.take(victim, &one);
        shares.give(c, &one);
        evicted.push(victim);
        assert!(evicted.len() < 20, "evictions end");
    }
    assert_eq!(evicted, [a, a, b, b], "the deficit and no more; nobody below its share of 4");
    for (taker_queue, victim) in [(a, b), (b, a), (a, c), (b, c)] {
        assert_eq!(shares.may_reclaim(&taker(taker_queue, &one), victim, &one), Reclaim::No);
    }
}

#[test]
fn an_eviction_for_fair_share_never_turns_the_tables() {
    let mut w = World::new(16);
    let (a, b) = (w.queue("a", 0), w.queue("b", 0));
    w.run(a, 10);
    w.run(a, 6);
    w.wait(b, 8);
    let (eight, five, six, ten) = (w.gpus(8), w.gpus(5), w.gpus(6), w.gpus(10));
    let shares = w.shares();
    assert_eq!(shares.may_reclaim(&taker(b, &eight), a, &ten), Reclaim::No, "8 against 6 afterwards");
    assert_eq!(shares.may_reclaim(&taker(b, &five), a, &six), Reclaim::FairShare);
    assert_eq!(shares.may_reclaim(&taker(b, &five), a, &ten), Reclaim::FairShare, "5 against 6 afterwards");
}

#[test]
fn siblings_do_not_evict_each_other_in_a_loop() {
    // Two elastic gangs in two queues, as many one-pod slices as there is room; nobody is guaranteed anything.
    let mut w = World::new(6);
    let (a, b) = (w.queue("a", 0), w.queue("b", 0));
    for _ in 0..5 {
        w.run(a, 1);
    }
    w.run(b, 1);
    for _ in 0..4 {
        w.wait(b, 1);
    }
    let one = w.gpus(1);
    let mut shares = w.shares();
    for (round, (taker_queue, victim)) in [(b, a), (a, b)].into_iter().cycle().take(40).enumerate() {
        if shares.may_reclaim(&taker(taker_queue, &one), victim, &one) != Reclaim::No {
            assert!(round < 6, "still evicting in round {round}");
            shares.shrink(victim, &one);
            shares.grow(taker_queue, &one);
        }
    }
    let gpus = |q| shares.used(q)[&w.key("gpu")];
    assert_eq!((gpus(a), gpus(b)), (3, 3));
}

#[test]
fn a_private_start_may_reclaim_although_its_queue_borrows_besides() {
    let mut w = World::new(10);
    let (a, b) = (w.queue("a", 4), w.queue("b", 4));
    w.run(a, 4);
    w.run(b, 6);
    let (two, six) = (w.gpus(2), w.gpus(6));
    let shares = w.shares();
    assert_eq!(shares.may_reclaim(&taker(a, &two), b, &six), Reclaim::No);
    let private = Taker { private_start: true, ..taker(a, &two) };
    assert_eq!(shares.may_reclaim(&private, b, &six), Reclaim::Entitled);
    assert_eq!(shares.may_reclaim(&private, a, &w.gpus(4)), Reclaim::No, "never by this rule in its own queue");
}
