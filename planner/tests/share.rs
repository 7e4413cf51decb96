//! Queue use within a cycle, against the numbers and cases of the field.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)] // the lints are for code outside tests

use berth_planner::ids::{JobIdx, NodeIdx, QueueIdx};
use berth_planner::job::{Communication, JobSpec, Locality, Phase, Placement, Role, Running, Seat, Waiting};
use berth_planner::policy::Policy;
use berth_planner::queue::{Decayed, Order, Queue, Quota, QuotaKey};
use berth_planner::resources::Amounts;
use berth_planner::shape::{NodeSet, Shape};
use berth_planner::share::{
    Contest, Head, LimitKind, Reclaim, Shares, TOP_USERS, Taker, Users, decay, queue_reports, settle,
};
use berth_planner::state::{ClusterState, NodeState, Tally};
use berth_planner::topology::{NodePath, PoolSpec};
use berth_planner::{Span, Time};
use std::sync::Arc;

/// A cluster of one node per pool; jobs are single pods of so many GPUs (and CPUs).
struct World {
    state: ClusterState,
    jobs: u64,
}

const HOUR: Span = Span::from_secs(3600);

fn policy(half_life: Span) -> Policy {
    Policy { share_half_life: half_life, ..Policy::standard() }
}

impl World {
    fn new(gpus: i64) -> Self {
        Self::pools(&[gpus])
    }

    fn pools(gpus: &[i64]) -> Self {
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

    fn key(&self, name: &str) -> QuotaKey {
        QuotaKey { pool: None, resource: self.state.resources.find(name).expect("known resource") }
    }

    fn gpus(&self, n: i64) -> Tally {
        [(self.key("gpu"), n)].into()
    }

    fn of(&self, amounts: &[(&str, i64)]) -> Tally {
        amounts.iter().map(|(r, n)| (self.key(r), *n)).collect()
    }

    fn queue(&mut self, name: &str, guarantee: i64) -> QueueIdx {
        let guarantee = if guarantee > 0 { self.gpus(guarantee) } else { Quota::new() };
        self.add(Queue { guarantee, ..Queue::open(name, QueueIdx::ROOT) })
    }

    fn add(&mut self, queue: Queue) -> QueueIdx {
        self.state.set_queue(queue)
    }

    fn edit(&mut self, queue: QueueIdx, change: impl FnOnce(&mut Queue)) {
        let mut row = self.state.queue(queue).clone();
        change(&mut row);
        self.state.set_queue(row);
    }

    fn spec(&mut self, queue: QueueIdx, user: &str, gpus: i64, cpus: i64, priority: i64) -> JobSpec {
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

    fn run(&mut self, queue: QueueIdx, gpus: i64) -> JobIdx {
        self.run_as(queue, "ann", gpus, 0, 0)
    }

    fn run_as(&mut self, queue: QueueIdx, user: &str, gpus: i64, cpus: i64, node: u32) -> JobIdx {
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

    fn wait(&mut self, queue: QueueIdx, gpus: i64) -> JobIdx {
        let spec = self.spec(queue, "ann", gpus, 0, 0);
        let sequence = self.jobs;
        self.state.add_job(spec, Time::ZERO, sequence, Phase::Waiting(Box::<Waiting>::default()))
    }

    fn shares(&self) -> Shares<'_> {
        Shares::new(self.state.at(Time::ZERO), &policy(Span::ZERO))
    }
}

fn head(demand: &Tally, priority: i64, queued_at: i64) -> Head<'_> {
    Head { priority, queued_at: Time::from_secs(queued_at), sequence: 0, demand }
}

fn taker(queue: QueueIdx, demand: &Tally) -> Taker<'_> {
    Taker { queue, demand, private_start: false }
}

// --- shares ---

#[test]
fn two_borrowed_of_ten_are_200_per_mille_and_half_of_it_at_weight_two() {
    let mut w = World::new(10);
    let a = w.queue("a", 6);
    w.queue("b", 4);
    w.run(a, 8);
    assert_eq!(w.shares().present_share(a, &Tally::new(), 0).floor_times(1000), 200);
    assert_eq!(w.shares().order_share(a).floor_times(1000), 200);
    w.edit(a, |q| q.weight = 2.0);
    assert_eq!(w.shares().present_share(a, &Tally::new(), 0).floor_times(1000), 100);
}

#[test]
fn cpus_that_come_with_guaranteed_gpus_are_not_borrowed() {
    let mut w = World::new(10);
    let a = w.queue("a", 5);
    w.run_as(a, "ann", 5, 50, 0);
    assert!(w.shares().present_share(a, &Tally::new(), 0).is_zero());
    w.run_as(a, "ann", 0, 10, 0);
    assert_eq!(w.shares().present_share(a, &Tally::new(), 0).floor_times(1000), 100);
}

#[test]
fn milli_units_are_not_cut_off() {
    let mut w = World::new(10);
    let a = w.queue("a", 0);
    let b = w.queue("b", 0);
    let mut shares = w.shares();
    shares.give(a, &w.of(&[("cpu", 2)]));
    shares.give(b, &w.of(&[("cpu", 1)]));
    assert!(shares.order_share(a) > shares.order_share(b));
    assert!(!shares.order_share(b).is_zero());
}

// --- decay ---

#[test]
fn half_a_half_life_counts_293_of_1000() {
    let old = Decayed { value: 0.0, at: Time::ZERO };
    let now = decay(old, 8.0, Time::from_secs(1800), HOUR);
    assert!((now.value / 8.0 - 0.292_893).abs() < 1e-6, "{}", now.value);
    assert!((now.value - 2.343).abs() < 1e-3);
}

#[test]
fn decaying_in_steps_equals_decaying_at_once() {
    let mut stepped = Decayed { value: 5.0, at: Time::ZERO };
    for minute in 1..=240 {
        stepped = decay(stepped, 3.0, Time::from_secs(60 * minute), HOUR);
    }
    let at_once = decay(Decayed { value: 5.0, at: Time::ZERO }, 3.0, Time::from_secs(4 * 3600), HOUR);
    assert!((stepped.value - at_once.value).abs() < 1e-9);
    assert_eq!(decay(at_once, 7.0, at_once.at, Span::ZERO).value, 7.0);
    assert_eq!(decay(at_once, 7.0, Time::from_secs(99 * 3600), Span::FOREVER).value, at_once.value);
}

#[test]
fn a_queue_with_a_past_goes_after_one_without() {
    let mut w = World::new(10);
    let (a, b) = (w.queue("a", 0), w.queue("b", 0));
    let ann: Arc<str> = "ann".into();
    settle(&mut w.state, a, &ann, Time::ZERO, HOUR);
    let job = w.run(a, 8);
    settle(&mut w.state, a, &ann, Time::ZERO + HOUR, HOUR);
    w.state.remove_job(job, Time::ZERO + HOUR);
    let now = Time::from_secs(2 * 3600);
    let one = w.gpus(1);
    let heads = [(a, head(&one, 0, 0)), (b, head(&one, 0, 0))];
    let past = Shares::new(w.state.at(now), &policy(HOUR));
    assert_eq!(past.order_share(a).floor_times(1000), 200, "8 of 10 for an hour, an hour ago: .8 / 2 / 2");
    assert_eq!(past.best_queue(&heads), Some(b));
    let present = Shares::new(w.state.at(now), &policy(Span::ZERO));
    assert_eq!(present.best_queue(&heads), Some(a), "without a half-life only present use counts");
}

#[test]
fn a_burst_in_one_cycle_counts_at_once_although_nothing_has_decayed_yet() {
    let mut w = World::new(10);
    let (a, b) = (w.queue("a", 0), w.queue("b", 0));
    let one = w.gpus(1);
    let heads = [(a, head(&one, 0, 0)), (b, head(&one, 0, 0))];
    let mut shares = Shares::new(w.state.at(Time::ZERO), &policy(HOUR));
    let mut turns = Vec::new();
    for _ in 0..4 {
        let next = shares.best_queue(&heads).expect("heads wait");
        shares.give(next, &one);
        turns.push(next);
    }
    assert_eq!(turns, [a, b, a, b]);
}

#[test]
fn ancestors_have_the_sum_of_their_leaves_pasts() {
    let mut w = World::new(10);
    let p = w.queue("p", 0);
    let a = w.add(Queue::open("a", p));
    let b = w.add(Queue::open("b", p));
    let gpu = w.key("gpu").resource;
    for leaf in [a, b] {
        w.edit(leaf, |q| q.decayed = [(gpu, Decayed { value: 2.0, at: Time::ZERO })].into());
    }
    let shares = Shares::new(w.state.at(Time::ZERO + HOUR), &policy(HOUR));
    assert_eq!(shares.order_share(a).floor_times(1000), 100);
    assert_eq!(shares.order_share(p).floor_times(1000), 200);
}

// --- order ---

#[test]
fn queues_below_guarantee_go_first_and_priority_decides_among_equals() {
    let mut w = World::new(20);
    let (a, b, c) = (w.queue("a", 5), w.queue("b", 5), w.queue("c", 0));
    w.run(a, 1);
    let one = w.gpus(1);
    let mut heads = vec![(a, head(&one, 0, 5)), (b, head(&one, 10, 9)), (c, head(&one, 99, 0))];
    assert_eq!(w.shares().best_queue(&heads), Some(b), "in quota, the higher priority");
    heads[1].1.priority = 0;
    assert_eq!(w.shares().best_queue(&heads), Some(a), "then the older");
    heads[1].1.queued_at = Time::from_secs(5);
    assert_eq!(w.shares().best_queue(&heads), Some(a), "then the name");
    w.run(a, 4);
    w.run(b, 5);
    assert_eq!(w.shares().best_queue(&heads), Some(c), "beyond guarantees, equal shares: priority again");
    let heads = [(a, head(&one, 0, 5)), (b, head(&one, 0, 4))];
    assert_eq!(w.shares().best_queue(&heads), Some(b));
}

#[test]
fn a_gang_that_overshoots_its_guarantee_yields_to_one_that_fits_and_passes_one_without_guarantee() {
    let mut w = World::new(20);
    let (a, b, c) = (w.queue("a", 10), w.queue("b", 10), w.queue("c", 0));
    w.run(a, 8);
    let (eight, four) = (w.gpus(8), w.gpus(4));
    assert_eq!(w.shares().best_queue(&[(a, head(&eight, 9, 0)), (b, head(&four, 0, 1))]), Some(b));
    assert_eq!(w.shares().best_queue(&[(a, head(&eight, 0, 1)), (c, head(&four, 9, 0))]), Some(a));
}

#[test]
fn families_are_compared_where_they_meet_not_leaf_against_leaf() {
    let mut w = World::new(100);
    let (p, r) = (w.queue("p", 0), w.queue("r", 0));
    let p1 = w.add(Queue::open("p1", p));
    let p2 = w.add(Queue::open("p2", p));
    let r1 = w.add(Queue::open("r1", r));
    w.run(p1, 30);
    w.run(r1, 20);
    let one = w.gpus(1);
    let heads = [(p2, head(&one, 0, 0)), (r1, head(&one, 0, 0))];
    assert_eq!(w.shares().best_queue(&heads), Some(r1), "p2 has nothing, but its family has more than r");
    w.edit(p, |q| q.weight = 2.0);
    let shares = w.shares();
    assert_eq!(shares.best_queue(&heads), Some(p2), "at weight 2 the family has less: 15 against 20");
    assert_eq!(shares.lca_child(p2, r1), (p, r));
    assert_eq!(shares.lca_child(p1, p2), (p1, p2));
    assert_eq!(shares.lca_child(p1, p1), (p1, p1));
}

#[test]
fn a_thousand_queues_take_turns_and_the_kept_contest_agrees_with_a_new_one() {
    let mut w = World::new(100_000);
    let leaves: Vec<QueueIdx> = (0..1000)
        .map(|n| {
            let parent = if n % 10 == 0 { QueueIdx::ROOT } else { QueueIdx::of(n / 10 * 10 + 1) };
            w.add(Queue { weight: 1.0 + (n % 7) as f64, ..Queue::open(&format!("q{n:04}"), parent) })
        })
        .filter(|q| q.row() % 10 != 1)
        .collect();
    let one = w.gpus(1);
    let mut shares = w.shares();
    let mut contest = Contest::new(&shares);
    for leaf in &leaves {
        contest.set(&shares, *leaf, Some(&head(&one, 0, 0)));
    }
    let start = std::time::Instant::now();
    for turn in 0..3000 {
        let next = contest.best().expect("heads wait");
        if turn % 500 == 0 {
            let heads: Vec<_> = leaves.iter().map(|q| (*q, head(&one, 0, 0))).collect();
            assert_eq!(shares.best_queue(&heads), Some(next));
        }
        shares.give(next, &one);
        contest.refresh(&shares, next);
    }
    eprintln!("3,000 turns among 900 queues: {:?}", start.elapsed());
    let turns = |q: QueueIdx| shares.used(q).values().sum::<i64>();
    let weight = |q: QueueIdx| w.state.queue(q).weight;
    assert_eq!(leaves.iter().map(|q| turns(*q)).sum::<i64>(), 3000);
    for pair in leaves.windows(2).filter(|p| w.state.queue(p[0]).parent == w.state.queue(p[1]).parent) {
        for (a, b) in [(pair[0], pair[1]), (pair[1], pair[0])] {
            let (mine, theirs) = ((turns(a) - 1) as f64 / weight(a), turns(b) as f64 / weight(b));
            assert!(mine <= theirs, "the last turn of {a:?} ({mine}) was {b:?}'s ({theirs})");
        }
    }
}

#[test]
fn undoing_a_start_restores_every_figure() {
    let mut w = World::new(10);
    let p = w.queue("p", 4);
    let a = w.add(Queue {
        max_running_jobs: Some(2),
        lending_limit: w.gpus(1),
        guarantee: w.gpus(3),
        ..Queue::open("a", p)
    });
    w.run(a, 1);
    let before = format!("{:?}", w.shares());
    let mut shares = w.shares();
    shares.give(a, &w.gpus(5));
    assert_ne!(format!("{shares:?}"), before);
    shares.take(a, &w.gpus(5));
    assert_eq!(format!("{shares:?}"), before);
}

// --- limits ---

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

// --- fair share ---

#[test]
fn fair_share_is_guarantee_then_water_filling_by_weight() {
    let mut w = World::new(100);
    let (a, b, c) = (w.queue("a", 40), w.queue("b", 0), w.queue("c", 0));
    w.edit(c, |q| q.weight = 2.0);
    for queue in [a, b, c] {
        w.wait(queue, 100);
    }
    let shares = w.shares();
    let fair = |q| shares.fair_share(q).get(&w.key("gpu")).copied().unwrap_or(0);
    assert_eq!((fair(a), fair(b), fair(c)), (55, 15, 30), "60 beyond guarantees at 1:1:2");
}

#[test]
fn fair_share_is_capped_by_demand_and_limit_and_what_is_left_goes_on() {
    let mut w = World::new(100);
    let (a, b, c, d) = (w.queue("a", 40), w.queue("b", 0), w.queue("c", 0), w.queue("d", 0));
    w.edit(c, |q| q.limit = [(q_gpu(), 20)].into());
    w.wait(a, 10);
    w.wait(b, 100);
    w.wait(c, 100);
    w.run(d, 1);
    let shares = w.shares();
    let fair = |q| shares.fair_share(q).get(&w.key("gpu")).copied().unwrap_or(0);
    assert_eq!((fair(a), fair(b), fair(c), fair(d)), (10, 69, 20, 1));
}

fn q_gpu() -> QuotaKey {
    World::new(1).key("gpu")
}

#[test]
fn whole_units_go_by_largest_remainder_and_add_up() {
    let mut w = World::new(10);
    let queues = [w.queue("a", 0), w.queue("b", 0), w.queue("c", 0)];
    for queue in queues {
        w.wait(queue, 10);
    }
    let shares = w.shares();
    let fair = queues.map(|q| shares.fair_share(q).get(&w.key("gpu")).copied().unwrap_or(0));
    assert_eq!(fair, [4, 3, 3]);
}

// --- reclaim ---

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

// --- users ---

#[test]
fn users_of_a_fair_queue_take_turns_by_decayed_use() {
    let mut w = World::new(10);
    let a = w.add(Queue { order: Order::Fair, ..Queue::open("a", QueueIdx::ROOT) });
    let (ann, bob, eve): (Arc<str>, Arc<str>, Arc<str>) = ("ann".into(), "bob".into(), "eve".into());
    settle(&mut w.state, a, &ann, Time::ZERO, HOUR);
    w.run_as(a, "ann", 4, 0, 0);
    settle(&mut w.state, a, &bob, Time::ZERO, HOUR);
    w.run_as(a, "bob", 2, 0, 0);
    let at = Time::ZERO + HOUR;
    let mut users = Users::new(w.state.at(at), &policy(HOUR));
    assert_eq!(users.share(a, &ann).floor_times(1000), 200, "4 of 10 for one half-life");
    assert_eq!(users.share(a, &bob).floor_times(1000), 100);
    assert!(users.share(a, &eve).is_zero());
    users.give(a, &eve, &w.gpus(3));
    assert_eq!(users.share(a, &eve).floor_times(1000), 300);
    users.take(a, &eve, &w.gpus(3), true);
    assert!(users.share(a, &eve).is_zero());
    let present = Users::new(w.state.at(at), &policy(Span::ZERO));
    assert_eq!(present.share(a, &ann).floor_times(1000), 400);
}

#[test]
fn only_the_top_users_are_kept_by_name_and_nothing_is_lost() {
    let mut w = World::new(10);
    let a = w.add(Queue { order: Order::Fair, ..Queue::open("a", QueueIdx::ROOT) });
    let gpu = w.key("gpu").resource;
    w.edit(a, |q| {
        for n in 0..300 {
            let used = Decayed { value: f64::from(n + 1), at: Time::ZERO };
            q.users.insert(format!("u{n:03}").into(), [(gpu, used)].into());
        }
    });
    let before: f64 = w.state.queue(a).users.values().map(|u| u[&gpu].value).sum();
    settle(&mut w.state, a, &"u299".into(), Time::ZERO, HOUR);
    let users = &w.state.queue(a).users;
    assert_eq!(users.len(), TOP_USERS + 1);
    assert!(users.contains_key("u100") && !users.contains_key("u099"));
    let after: f64 = users.values().map(|u| u[&gpu].value).sum();
    assert!((before - after).abs() < 1e-9);
}

// --- reports ---

#[test]
fn the_report_says_who_borrows_and_who_lends() {
    let mut w = World::new(10);
    let (a, b, c) = (w.queue("a", 6), w.queue("b", 4), w.queue("c", 0));
    w.run(a, 8);
    w.run(c, 1);
    w.wait(b, 4);
    let reports = queue_reports(w.state.at(Time::ZERO), &policy(Span::ZERO));
    let gpus = |t: &Tally| t.get(&w.key("gpu")).copied().unwrap_or(0);
    let of = |q: QueueIdx| {
        let r = &reports[q.row()];
        (gpus(&r.used), gpus(&r.guaranteed), gpus(&r.borrowed), gpus(&r.lent), gpus(&r.fair_share))
    };
    assert_eq!(of(a), (8, 6, 2, 0, 6));
    assert_eq!(of(b), (0, 4, 0, 3, 4));
    assert_eq!(of(c), (1, 0, 1, 0, 0));
    assert!((reports[a.row()].share - 0.2).abs() < 1e-9);
}
