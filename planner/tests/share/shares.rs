//! Shares against the numbers of the field.

use crate::world::*;
use berth_planner::state::Tally;

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
