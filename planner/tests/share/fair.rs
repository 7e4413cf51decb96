//! Fair shares.

use crate::world::*;
use berth_planner::queue::QuotaKey;

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
