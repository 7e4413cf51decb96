//! What is reported of queues.

use crate::world::*;
use berth_planner::ids::QueueIdx;
use berth_planner::share::queue_reports;
use berth_planner::state::Tally;
use berth_planner::{Span, Time};

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
