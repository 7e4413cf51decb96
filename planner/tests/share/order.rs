//! Which queue is next.

use crate::world::*;
use berth_planner::Time;
use berth_planner::ids::QueueIdx;
use berth_planner::queue::Queue;
use berth_planner::share::Contest;

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
