//! Philly's fifteen virtual clusters as queues: nobody may be worse off than alone in its quota (law 10).

use crate::figure::Figures;
use crate::logs::count;
use crate::traces::{Traces, run};
use anyhow::{Context, Result};
use berth_simulator::replay::ReplayOptions;
use berth_simulator::replay::options::QueueRule;
use planner::Span;

/// One cycle, in seconds: what a queue may lose against its private cluster.
const CYCLE_S: f64 = 1.0;

/// GPUs, seconds of work that a stopped job keeps multiples of, mean delay to be below, who reaches it.
const SETTINGS: [(u64, Option<i64>, f64, &str); 4] = [
    (
        640,
        None,
        26_233.0,
        "26,233 s by EASY on the pool (12,971 jobs later); 17,500 by a simple simulation of this rule",
    ),
    (640, Some(1_800), 26_233.0, "26,233 s by EASY on the pool; 7,937 by a simple simulation of this rule"),
    (512, None, 422_828.0, "422,828 s by EASY on the pool (31,503 jobs later); 104,400 by a simple simulation"),
    (512, Some(1_800), 422_828.0, "422,828 s by EASY on the pool; 39,700 by a simple simulation"),
];

/// Adds who is worse off, the mean delay and the work lost.
pub(crate) fn measure(traces: &Traces, figures: &mut Figures) -> Result<()> {
    for (capacity, checkpoint, delay_s, peer) in SETTINGS {
        let options = ReplayOptions {
            capacity: Some(capacity),
            queues: QueueRule::ByVc,
            quota_floor: true,
            // Free room is lent to the first that fit, as in the simulation that the marks come from.
            depth: Some(0),
            half_life: Span::ZERO,
            checkpoint: checkpoint.map(Span::from_secs),
            ..traces.options("philly.csv")
        };
        let kept = if checkpoint.is_some() { "checkpoints every 30 min" } else { "no checkpoints" };
        let label = format!("Philly, 15 queues on {capacity} GPUs, {kept}");
        let report = run(&label, &options)?.report;
        let worse = |mine: f64, alone: Option<f64>| alone.is_none_or(|alone| mine > alone + CYCLE_S);
        let queues = || report.per_queue.values();
        let by_mean = queues().filter(|q| worse(q.mean_delay_s, q.private_mean_delay_s)).count();
        let by_p99 = queues().filter(|q| worse(q.p99_delay_s, q.private_p99_delay_s)).count();
        let later = report.jobs_later_than_private.context("several queues are compared with private ones")?;
        figures.lower(
            format!("{label}: queues with a worse mean delay than alone"),
            count(by_mean),
            "",
            0.0,
            "3 of 15 at 640, 8 at 512 by EASY on the pool",
        );
        figures.lower(
            format!("{label}: queues with a worse p99 delay than alone"),
            count(by_p99),
            "",
            0.0,
            "3 of 15 at 640, 5 at 512 by EASY on the pool",
        );
        figures.lower(format!("{label}: jobs that end later than alone"), count(later), "", 0.0, peer);
        figures.lower(format!("{label}: mean delay"), report.mean_delay_s, "s", delay_s, peer);
        let lost = report.work_lost_fraction * 100.0;
        let stops = format!("{} stops", report.stops);
        figures.lower(format!("{label}: work lost to stops"), lost, "%", 1.5, stops);
    }
    Ok(())
}
