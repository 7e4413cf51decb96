//! Use that decays.

use crate::world::*;
use berth_planner::queue::{Decayed, Queue};
use berth_planner::share::{Shares, decay, settle};
use berth_planner::{Span, Time};
use std::sync::Arc;

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
