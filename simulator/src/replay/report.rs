//! What a replay prints.

use super::engine::{Outcome, Outcomes};
use super::metrics::{self, delay_s, mean, percentile, wait_s};
use super::workload::{Work, Workload};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;

/// Figures of one queue.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct QueueReport {
    /// Its jobs.
    pub jobs: usize,
    /// Guaranteed units, if it has a quota.
    pub quota: Option<u64>,
    /// Mean wait to the first start.
    pub mean_wait_s: f64,
    /// 99th percentile of it.
    pub p99_wait_s: f64,
    /// Mean of completion − submission − run.
    pub mean_delay_s: f64,
    /// 99th percentile of it.
    pub p99_delay_s: f64,
    /// The same alone in its quota, if compared.
    pub private_mean_delay_s: Option<f64>,
    /// 99th percentile of it.
    pub private_p99_delay_s: Option<f64>,
}

/// Figures of one replay.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ReplayReport {
    /// Jobs replayed.
    pub jobs: usize,
    /// Mean wait to the first start.
    pub mean_wait_s: f64,
    /// Median of it.
    pub p50_wait_s: f64,
    /// 99th percentile of it.
    pub p99_wait_s: f64,
    /// Longest.
    pub max_wait_s: f64,
    /// Mean bounded slowdown, tau 10 s.
    pub mean_bounded_slowdown: f64,
    /// Sum of run × units / (capacity × (last end − first submission)).
    pub utilisation: f64,
    /// The same up to the last start, as the Lublin reference counts.
    pub utilisation_to_last_start: f64,
    /// Last end − first submission.
    pub makespan_s: f64,
    /// Jobs started after their earliest promise without a recorded cause.
    pub broken_reservations: usize,
    /// Mean leaves of gangs.
    pub mean_leaves: Option<f64>,
    /// Share of gangs in the fewest leaves possible.
    pub at_bound: Option<f64>,
    /// Share in one leaf of the gangs that one leaf could hold.
    pub one_leaf: Option<f64>,
    /// Mean hops between nodes of gangs.
    pub mean_hops: Option<f64>,
    /// Excess leaves weighted by node-hours.
    pub excess_leaves_node_hours: Option<f64>,
    /// Mean wait of gangs over several nodes.
    pub mean_gang_wait_s: Option<f64>,
    /// Jobs that were promised a later start.
    pub promised: usize,
    /// Mean of completion − submission − run.
    pub mean_delay_s: f64,
    /// 99th percentile of it.
    pub p99_delay_s: f64,
    /// Jobs that ended later than alone in their queue's quota, if compared.
    pub jobs_later_than_private: Option<usize>,
    /// Stops of running jobs.
    pub stops: u64,
    /// Unit-seconds lost by them over those of real work.
    pub work_lost_fraction: f64,
    /// By queue, where there are several.
    pub per_queue: BTreeMap<String, QueueReport>,
    /// Plans made.
    pub cycles: u64,
    /// What the checker found wrong in them.
    pub violations: usize,
    /// Seconds spent planning.
    pub planner_s: f64,
    /// Median of one plan.
    pub planner_p50_us: f64,
    /// 99th percentile of one plan.
    pub planner_p99_us: f64,
    /// Longest plan.
    pub planner_max_us: f64,
    /// Most jobs waiting at once.
    pub peak_queue: usize,
    /// Peak resident memory, where known.
    pub peak_rss_mib: Option<u64>,
}

impl ReplayReport {
    /// Measures a run on a cluster of `capacity` units.
    #[must_use]
    pub fn of(load: &Workload, outcomes: &Outcomes, capacity: u64) -> Self {
        let pairs: Vec<(&Work, &Outcome)> = load.jobs.iter().zip(&outcomes.jobs).collect();
        let waits: Vec<f64> = pairs.iter().map(|(j, o)| wait_s(j, o)).collect();
        let delays: Vec<f64> = pairs.iter().map(|(j, o)| delay_s(j, o)).collect();
        let extent = metrics::extent(load, outcomes);
        let gangs = metrics::gangs(load, outcomes);
        let gang_waits: Vec<f64> =
            pairs.iter().filter(|(_, o)| o.spread.is_some()).map(|(j, o)| wait_s(j, o)).collect();
        #[allow(clippy::cast_precision_loss)]
        let micros: Vec<f64> = outcomes.plan_nanos.iter().map(|n| *n as f64 / 1e3).collect();
        Self {
            jobs: pairs.len(),
            mean_wait_s: mean(&waits),
            p50_wait_s: percentile(&waits, 0.5),
            p99_wait_s: percentile(&waits, 0.99),
            max_wait_s: waits.iter().copied().fold(0.0, f64::max),
            mean_bounded_slowdown: metrics::bounded_slowdown(load, outcomes),
            utilisation: metrics::utilisation(load, capacity, extent.from, extent.to),
            utilisation_to_last_start: metrics::utilisation(load, capacity, extent.from, extent.last_start),
            makespan_s: extent.to.since(extent.from).as_secs_f64(),
            broken_reservations: outcomes.jobs.iter().filter(|o| o.broken).count(),
            mean_leaves: gangs.map(|g| g.leaves),
            at_bound: gangs.map(|g| g.at_bound),
            one_leaf: gangs.map(|g| g.one_leaf),
            mean_hops: gangs.map(|g| g.hops),
            excess_leaves_node_hours: gangs.map(|g| g.excess),
            mean_gang_wait_s: gangs.map(|_| mean(&gang_waits)),
            promised: outcomes.jobs.iter().filter(|o| o.promised).count(),
            mean_delay_s: mean(&delays),
            p99_delay_s: percentile(&delays, 0.99),
            jobs_later_than_private: None,
            stops: outcomes.jobs.iter().map(|o| u64::from(o.stops)).sum(),
            work_lost_fraction: metrics::work_lost_fraction(load, outcomes),
            per_queue: per_queue(load, outcomes),
            cycles: outcomes.cycles,
            violations: outcomes.violations,
            planner_s: micros.iter().sum::<f64>() / 1e6,
            planner_p50_us: percentile(&micros, 0.5),
            planner_p99_us: percentile(&micros, 0.99),
            planner_max_us: micros.iter().copied().fold(0.0, f64::max),
            peak_queue: outcomes.peak_queue,
            peak_rss_mib: metrics::peak_rss_mib(),
        }
    }

    /// Adds how every queue fares alone in its quota, given those runs in queue order.
    pub fn compare_private(&mut self, load: &Workload, outcomes: &Outcomes, private: &[Outcomes]) {
        let mut later = 0;
        for (queue, alone) in private.iter().enumerate() {
            let mine: Vec<(&Work, &Outcome)> =
                load.jobs.iter().zip(&outcomes.jobs).filter(|(j, _)| j.queue == queue).collect();
            let delays: Vec<f64> = mine.iter().zip(&alone.jobs).map(|((j, _), p)| delay_s(j, p)).collect();
            later += mine.iter().zip(&alone.jobs).filter(|((_, o), p)| o.finished > p.finished).count();
            if let Some(report) = self.per_queue.get_mut(&*load.queues[queue].name) {
                report.private_mean_delay_s = Some(mean(&delays));
                report.private_p99_delay_s = Some(percentile(&delays, 0.99));
            }
        }
        self.jobs_later_than_private = Some(later);
    }

    /// The mean of several runs of the same workload (sums for counts of plans and time).
    #[must_use]
    #[allow(clippy::cast_precision_loss)]
    pub fn mean_of(runs: &[Self]) -> Option<Self> {
        let first = runs.first()?;
        let over = |of: fn(&Self) -> f64| mean(&runs.iter().map(of).collect::<Vec<_>>());
        let some = |of: fn(&Self) -> Option<f64>| {
            first.mean_leaves.map(|_| mean(&runs.iter().filter_map(of).collect::<Vec<_>>()))
        };
        Some(Self {
            mean_wait_s: over(|r| r.mean_wait_s),
            p50_wait_s: over(|r| r.p50_wait_s),
            p99_wait_s: over(|r| r.p99_wait_s),
            max_wait_s: over(|r| r.max_wait_s),
            mean_bounded_slowdown: over(|r| r.mean_bounded_slowdown),
            utilisation: over(|r| r.utilisation),
            utilisation_to_last_start: over(|r| r.utilisation_to_last_start),
            makespan_s: over(|r| r.makespan_s),
            mean_delay_s: over(|r| r.mean_delay_s),
            p99_delay_s: over(|r| r.p99_delay_s),
            mean_leaves: some(|r| r.mean_leaves),
            at_bound: some(|r| r.at_bound),
            one_leaf: some(|r| r.one_leaf),
            mean_hops: some(|r| r.mean_hops),
            excess_leaves_node_hours: some(|r| r.excess_leaves_node_hours),
            mean_gang_wait_s: some(|r| r.mean_gang_wait_s),
            broken_reservations: runs.iter().map(|r| r.broken_reservations).sum(),
            violations: runs.iter().map(|r| r.violations).sum(),
            cycles: runs.iter().map(|r| r.cycles).sum(),
            planner_s: runs.iter().map(|r| r.planner_s).sum(),
            planner_p50_us: over(|r| r.planner_p50_us),
            planner_p99_us: over(|r| r.planner_p99_us),
            planner_max_us: runs.iter().map(|r| r.planner_max_us).fold(0.0, f64::max),
            ..first.clone()
        })
    }
}

fn per_queue(load: &Workload, outcomes: &Outcomes) -> BTreeMap<String, QueueReport> {
    let mut reports = BTreeMap::new();
    for (row, queue) in load.queues.iter().enumerate() {
        let mine: Vec<(&Work, &Outcome)> =
            load.jobs.iter().zip(&outcomes.jobs).filter(|(j, _)| j.queue == row).collect();
        let waits: Vec<f64> = mine.iter().map(|(j, o)| wait_s(j, o)).collect();
        let delays: Vec<f64> = mine.iter().map(|(j, o)| delay_s(j, o)).collect();
        reports.insert(
            queue.name.to_string(),
            QueueReport {
                jobs: mine.len(),
                quota: queue.quota,
                mean_wait_s: mean(&waits),
                p99_wait_s: percentile(&waits, 0.99),
                mean_delay_s: mean(&delays),
                p99_delay_s: percentile(&delays, 0.99),
                private_mean_delay_s: None,
                private_p99_delay_s: None,
            },
        );
    }
    reports
}

impl fmt::Display for ReplayReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "jobs                  {:>14}", self.jobs)?;
        writeln!(f, "wait mean / p50       {:>14.1} / {:.1} s", self.mean_wait_s, self.p50_wait_s)?;
        writeln!(f, "wait p99 / max        {:>14.1} / {:.1} s", self.p99_wait_s, self.max_wait_s)?;
        writeln!(f, "bounded slowdown      {:>14.2}", self.mean_bounded_slowdown)?;
        writeln!(f, "utilisation           {:>14.4}", self.utilisation)?;
        writeln!(f, "makespan              {:>14.0} s", self.makespan_s)?;
        writeln!(f, "promised / broken     {:>14} / {}", self.promised, self.broken_reservations)?;
        writeln!(f, "delay mean / p99      {:>14.1} / {:.1} s", self.mean_delay_s, self.p99_delay_s)?;
        if let (Some(leaves), Some(bound), Some(excess)) =
            (self.mean_leaves, self.at_bound, self.excess_leaves_node_hours)
        {
            writeln!(f, "leaves / at bound     {leaves:>14.3} / {:.1} %", bound * 100.0)?;
            writeln!(f, "excess leaves (node-h){excess:>14.3}")?;
            writeln!(f, "hops                  {:>14.3}", self.mean_hops.unwrap_or(0.0))?;
        }
        if let Some(later) = self.jobs_later_than_private {
            writeln!(f, "later than private    {later:>14} jobs")?;
        }
        if self.stops > 0 {
            writeln!(f, "stops / work lost     {:>14} / {:.2} %", self.stops, self.work_lost_fraction * 100.0)?;
        }
        writeln!(f, "plans / violations    {:>14} / {}", self.cycles, self.violations)?;
        writeln!(f, "planner               {:>14.3} s in all", self.planner_s)?;
        writeln!(
            f,
            "a plan p50/p99/max    {:>14.1} / {:.1} / {:.1} us",
            self.planner_p50_us, self.planner_p99_us, self.planner_max_us
        )?;
        writeln!(f, "longest queue         {:>14}", self.peak_queue)?;
        if self.per_queue.len() > 1 {
            writeln!(
                f,
                "\n{:<20} {:>8} {:>7} {:>14} {:>14} {:>14}",
                "queue", "jobs", "quota", "mean delay s", "p99 delay s", "alone, mean s"
            )?;
            for (name, q) in &self.per_queue {
                let quota = q.quota.map_or("-".to_owned(), |n| n.to_string());
                let alone = q.private_mean_delay_s.map_or("-".to_owned(), |n| format!("{n:.1}"));
                writeln!(
                    f,
                    "{name:<20} {:>8} {quota:>7} {:>14.1} {:>14.1} {alone:>14}",
                    q.jobs, q.mean_delay_s, q.p99_delay_s
                )?;
            }
        }
        Ok(())
    }
}
