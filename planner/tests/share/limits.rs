//! Limits, lending limits, and guarantees of jobs that are not preemptible.

use crate::world::*;
use berth_planner::ids::QueueIdx;
use berth_planner::queue::{Queue, QuotaKey};
use berth_planner::share::LimitKind;

#[test]
fn every_ancestors_limit_holds() {
    let mut w = World::new(100);
    let p = w.add(Queue { limit: w.gpus(10), ..Queue::open("p", QueueIdx::ROOT) });
    let a = w.add(Queue { limit: w.gpus(8), ..Queue::open("a", p) });
    let b = w.add(Queue::open("b", p));
    let mut shares = w.shares();
    assert_eq!(shares.limit_left(a, &w.gpus(9)).map_err(|o| (o.queue, o.left)), Err((a, 8)));
    shares.give(b, &w.gpus(7));
    let over = shares.limit_left(a, &w.gpus(4)).expect_err("3 are left in p");
    assert_eq!((over.kind, over.queue, over.wanted, over.left), (LimitKind::Limit, p, 4, 3));
    assert!(shares.limit_left(a, &w.gpus(3)).is_ok());
    assert!(shares.limit_left(a, &w.of(&[("cpu", 1)])).is_ok(), "unlisted resources are free");
}

#[test]
fn max_running_jobs_counts_starts_of_the_cycle_but_not_growth() {
    let mut w = World::new(100);
    let a = w.add(Queue { max_running_jobs: Some(2), ..Queue::open("a", QueueIdx::ROOT) });
    w.run(a, 1);
    let mut shares = w.shares();
    assert!(shares.limit_left(a, &w.gpus(1)).is_ok());
    shares.give(a, &w.gpus(1));
    assert_eq!(shares.limit_left(a, &w.gpus(1)).map_err(|o| o.kind), Err(LimitKind::MaxRunningJobs));
    assert!(shares.growth_left(a, &w.gpus(1)).is_ok());
    shares.shrink(a, &w.gpus(1));
    assert!(shares.limit_left(a, &w.gpus(1)).is_err());
    shares.take(a, &w.gpus(1));
    assert!(shares.limit_left(a, &w.gpus(1)).is_ok());
}

#[test]
fn a_lending_limit_keeps_the_rest_of_the_guarantee_unborrowed() {
    let mut w = World::new(20);
    let a = w.add(Queue { guarantee: w.gpus(10), lending_limit: w.gpus(4), ..Queue::open("a", QueueIdx::ROOT) });
    let b = w.queue("b", 10);
    let mut shares = w.shares();
    let over = shares.limit_left(b, &w.gpus(15)).expect_err("6 of a's 10 stay");
    assert_eq!((over.kind, over.queue, over.left), (LimitKind::Lending, a, 14));
    assert!(shares.limit_left(b, &w.gpus(14)).is_ok());
    assert!(shares.limit_left(a, &w.gpus(20)).is_ok(), "not kept from its owner");
    shares.give(a, &w.gpus(5));
    assert!(shares.limit_left(b, &w.gpus(14)).is_ok(), "of the 6, 1 is still unused: 20 - 5 - 1");
    assert!(shares.limit_left(b, &w.gpus(15)).is_err());
}

#[test]
fn jobs_that_are_not_preemptible_stay_within_every_guarantee() {
    let mut w = World::new(20);
    let p = w.queue("p", 8);
    let a = w.add(Queue { guarantee: w.gpus(6), ..Queue::open("a", p) });
    let b = w.add(Queue { guarantee: w.gpus(6), ..Queue::open("b", p) });
    let free = w.queue("free", 0);
    let mut shares = w.shares();
    assert!(shares.within_guarantee(a, &w.gpus(6)).is_ok());
    assert!(shares.within_guarantee(a, &w.gpus(7)).is_err());
    shares.give(b, &w.gpus(4));
    assert_eq!(shares.within_guarantee(a, &w.gpus(6)).map_err(|o| (o.queue, o.left)), Err((p, 4)));
    assert_eq!(shares.within_guarantee(free, &w.gpus(1)).map_err(|o| (o.queue, o.wanted, o.left)), Err((free, 1, 0)));
}

#[test]
fn a_quota_of_one_pool_counts_only_there() {
    let mut w = World::pools(&[8, 8]);
    let pooled = QuotaKey { pool: Some(berth_planner::PoolIdx(1)), ..w.key("gpu") };
    let a = w.add(Queue {
        guarantee: [(pooled, 4)].into(),
        limit: [(pooled, 6)].into(),
        ..Queue::open("a", QueueIdx::ROOT)
    });
    w.run_as(a, "ann", 8, 0, 0);
    let shares = w.shares();
    assert!(!shares.above_guarantee(a), "what it has is in the other pool");
    assert!(shares.limit_left(a, &w.gpus(8)).is_ok());
    let mut there = w.gpus(5);
    there.insert(pooled, 5);
    assert!(!shares.entitled(a, &there));
    there.insert(pooled, 4);
    assert!(shares.entitled(a, &there));
    there.insert(pooled, 7);
    assert!(shares.limit_left(a, &there).is_err());
}
