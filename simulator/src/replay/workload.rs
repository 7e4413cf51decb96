//! From a log's rows to the jobs, queues and quotas of one replay.

use super::options::{Estimates, QueueRule, ReplayOptions};
use super::order;
use super::quota::{self, Demand};
use crate::trace::{Format, TraceJob};
use planner::{Span, Time};
use std::collections::BTreeMap;
use std::sync::Arc;

/// One job to replay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Work {
    /// Key in the planner: unique, in the order of ties.
    pub key: Arc<str>,
    /// Arrival on the replay's clock.
    pub submit: Time,
    /// How long it really runs.
    pub run: Span,
    /// What the planner takes as its limit.
    pub estimate: Span,
    /// Units in all.
    pub units: u64,
    /// Row of its queue in [`Workload::queues`].
    pub queue: usize,
    /// Who submitted it.
    pub user: Arc<str>,
    /// Priority that makes the wanted order.
    pub priority: i64,
}

/// A queue of a replay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkQueue {
    /// Name.
    pub name: Arc<str>,
    /// Guaranteed units; none when there is one queue for all.
    pub quota: Option<u64>,
}

/// Everything that arrives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workload {
    /// Jobs by arrival, then the log's tie rule.
    pub jobs: Vec<Work>,
    /// Queues by name.
    pub queues: Vec<WorkQueue>,
}

/// Makes the workload of a log on a cluster of `capacity` units.
#[must_use]
pub fn build(log: Vec<TraceJob>, options: &ReplayOptions, capacity: u64) -> Workload {
    let rows = select(log, options);
    let names = queue_names(&rows, options.queues);
    let quotas = quotas(&rows, &names, options, capacity);
    let queues: Vec<WorkQueue> = names
        .iter()
        .enumerate()
        .map(|(row, name)| WorkQueue { name: name.clone(), quota: quotas.as_ref().map(|q| q[row]) })
        .collect();
    let place: BTreeMap<&str, usize> = names.iter().enumerate().map(|(row, name)| (&**name, row)).collect();
    let width = rows.len().to_string().len();
    let origin = rows.first().map_or(Time::ZERO, |r| r.submit);
    let jobs = rows
        .iter()
        .enumerate()
        .map(|(row, r)| work(r, row, width, place[queue_of(r, options.queues)], origin, options));
    Workload { jobs: jobs.collect(), queues }
}

fn select(mut log: Vec<TraceJob>, options: &ReplayOptions) -> Vec<TraceJob> {
    // The Helios log starts with one lone job, 7.5 days before the second: gangs are replayed without it.
    if options.format == Format::Helios && options.topology.is_some() && log.len() > 1 {
        log.remove(0);
    }
    match options.slice {
        Some((first, count)) => log.into_iter().skip(first).take(count).collect(),
        None => log,
    }
}

fn work(r: &TraceJob, row: usize, width: usize, queue: usize, origin: Time, options: &ReplayOptions) -> Work {
    let estimate = match (options.estimates, r.estimate) {
        (Estimates::Log, Some(estimate)) => estimate,
        _ => r.run,
    };
    let run = if options.clip { r.run.min(estimate) } else { r.run };
    Work {
        key: format!("{row:0width$}").into(),
        submit: arrival(r.submit, origin, options.speedup),
        run,
        estimate,
        units: r.units,
        queue,
        user: if r.user.is_empty() { "user".into() } else { r.user.clone() },
        priority: order::priority(options.order, estimate, r.units, r.submit),
    }
}

#[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation)]
fn arrival(submit: Time, origin: Time, speedup: f64) -> Time {
    if (speedup - 1.0).abs() < f64::EPSILON {
        return submit;
    }
    Time(((submit.0 - origin.0) as f64 / speedup).round() as i64)
}

fn queue_of(r: &TraceJob, rule: QueueRule) -> &str {
    let name = match rule {
        QueueRule::Single => "",
        QueueRule::ByVc => &r.queue,
        QueueRule::ByUser => &r.user,
    };
    if name.is_empty() { "default" } else { name }
}

fn queue_names(rows: &[TraceJob], rule: QueueRule) -> Vec<Arc<str>> {
    let names: std::collections::BTreeSet<&str> = rows.iter().map(|r| queue_of(r, rule)).collect();
    names.into_iter().map(Into::into).collect()
}

#[allow(clippy::cast_precision_loss)]
fn quotas(rows: &[TraceJob], names: &[Arc<str>], options: &ReplayOptions, capacity: u64) -> Option<Vec<u64>> {
    if options.queues == QueueRule::Single {
        return options.partitioned.then(|| vec![capacity]);
    }
    let mut demands: BTreeMap<&str, Demand> = BTreeMap::new();
    for r in rows {
        let d = demands.entry(queue_of(r, options.queues)).or_insert(Demand { work: 0.0, largest: 0 });
        d.work += r.run.as_secs_f64() * r.units as f64;
        d.largest = d.largest.max(r.units);
    }
    let demands: Vec<Demand> = names.iter().map(|n| demands[&**n]).collect();
    Some(quota::divide(capacity, &demands, options.quota_floor))
}

impl Workload {
    /// The jobs of one queue alone.
    #[must_use]
    pub fn only(&self, queue: usize) -> Self {
        let jobs = self.jobs.iter().filter(|j| j.queue == queue).map(|j| Work { queue: 0, ..j.clone() }).collect();
        Self { jobs, queues: vec![WorkQueue { quota: None, ..self.queues[queue].clone() }] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(submit: i64, run: i64, units: u64, queue: &str) -> TraceJob {
        TraceJob {
            id: "x".into(),
            submit: Time::from_secs(submit),
            tie: 0,
            run: Span::from_secs(run),
            estimate: Some(Span::from_secs(50)),
            units,
            user: "".into(),
            queue: queue.into(),
        }
    }

    #[test]
    fn queues_get_quotas_by_work_and_runs_are_clipped_on_demand() {
        let log = vec![row(0, 100, 6, "a"), row(10, 50, 4, "b")];
        let options =
            ReplayOptions { queues: QueueRule::ByVc, clip: true, ..ReplayOptions::of("t".into(), Format::Swf) };
        let load = build(log, &options, 8);
        assert_eq!(load.queues[0], WorkQueue { name: "a".into(), quota: Some(6) });
        assert_eq!(load.queues[1].quota, Some(2));
        assert_eq!((load.jobs[0].run, load.jobs[0].estimate), (Span::from_secs(50), Span::from_secs(50)));
        assert_eq!(load.only(1).jobs.len(), 1);
    }

    #[test]
    fn speedup_counts_from_the_first_job_and_the_lone_helios_job_is_dropped() {
        let log = vec![row(0, 1, 1, ""), row(100, 1, 1, ""), row(300, 1, 1, "")];
        let mut options = ReplayOptions { speedup: 2.0, ..ReplayOptions::of("t".into(), Format::Helios) };
        let times = |o: &ReplayOptions| build(log.clone(), o, 8).jobs.iter().map(|j| j.submit).collect::<Vec<_>>();
        assert_eq!(times(&options), [Time::ZERO, Time::from_secs(50), Time::from_secs(150)]);
        options.topology = Some("topo.csv".into());
        assert_eq!(times(&options), [Time::ZERO, Time::from_secs(100)]);
    }
}
