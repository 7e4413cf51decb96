//! Users of a fair queue.

use crate::world::*;
use berth_planner::ids::QueueIdx;
use berth_planner::queue::{Decayed, Order, Queue};
use berth_planner::share::{TOP_USERS, Users, settle};
use berth_planner::{Span, Time};
use std::sync::Arc;

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
