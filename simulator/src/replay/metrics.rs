//! Figures of one run, by the definitions the reference tables use.

use super::engine::{Outcome, Outcomes};
use super::workload::{Work, Workload};
use planner::{Span, Time};

/// Bounded slowdown counts runs shorter than this as this long.
const TAU_S: f64 = 10.0;

/// Mean of some numbers; 0 of none.
#[must_use]
#[allow(clippy::cast_precision_loss)]
pub fn mean(values: &[f64]) -> f64 {
    if values.is_empty() { 0.0 } else { values.iter().sum::<f64>() / values.len() as f64 }
}

/// `sorted[floor(share × n)]`, from 0; 0 of none.
#[must_use]
#[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
pub fn percentile(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = (share * sorted.len() as f64).floor() as usize;
    sorted.get(at.min(sorted.len().saturating_sub(1))).copied().unwrap_or(0.0)
}

/// Seconds from submission to the first start; 0 for a job that never started.
#[must_use]
pub fn wait_s(work: &Work, outcome: &Outcome) -> f64 {
    outcome.first_start.map_or(0.0, |start| start.since(work.submit).as_secs_f64())
}

/// Seconds lost to waiting and to being stopped: completion − submission − run.
#[must_use]
pub fn delay_s(work: &Work, outcome: &Outcome) -> f64 {
    outcome.finished.map_or(0.0, |end| Span(end.0 - work.submit.0 - work.run.0).as_secs_f64())
}

/// Mean of max(1, (wait + run) / max(run, 10 s)).
#[must_use]
pub fn bounded_slowdown(load: &Workload, outcomes: &Outcomes) -> f64 {
    let each: Vec<f64> = load
        .jobs
        .iter()
        .zip(&outcomes.jobs)
        .map(|(work, outcome)| {
            let run = work.run.as_secs_f64();
            ((wait_s(work, outcome) + run) / run.max(TAU_S)).max(1.0)
        })
        .collect();
    mean(&each)
}

/// The span of a run: first submission, last start, last end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// First submission.
    pub from: Time,
    /// Last start.
    pub last_start: Time,
    /// Last end.
    pub to: Time,
}

/// The span of a run.
#[must_use]
pub fn extent(load: &Workload, outcomes: &Outcomes) -> Extent {
    let from = load.jobs.iter().map(|j| j.submit).min().unwrap_or(Time::ZERO);
    let last_start = outcomes.jobs.iter().filter_map(|o| o.first_start).max().unwrap_or(from);
    let to = outcomes.jobs.iter().filter_map(|o| o.finished).max().unwrap_or(from);
    Extent { from, last_start, to }
}

/// Sum of run × units over capacity × a span.
#[must_use]
#[allow(clippy::cast_precision_loss)]
pub fn utilisation(load: &Workload, capacity: u64, from: Time, to: Time) -> f64 {
    let work: f64 = load.jobs.iter().map(|j| j.run.as_secs_f64() * j.units as f64).sum();
    let room = capacity as f64 * to.since(from).as_secs_f64();
    if room > 0.0 { work / room } else { 0.0 }
}

/// Unit-seconds lost by stops over those of real work.
#[must_use]
#[allow(clippy::cast_precision_loss)]
pub fn work_lost_fraction(load: &Workload, outcomes: &Outcomes) -> f64 {
    let pairs = || load.jobs.iter().zip(&outcomes.jobs);
    let lost: f64 = pairs().map(|(j, o)| o.lost.as_secs_f64() * j.units as f64).sum();
    let done: f64 = pairs().map(|(j, _)| j.run.as_secs_f64() * j.units as f64).sum();
    if done > 0.0 { lost / done } else { 0.0 }
}

/// How gangs were spread.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Gangs {
    /// Mean leaves.
    pub leaves: f64,
    /// Share of gangs in the fewest leaves possible.
    pub at_bound: f64,
    /// Share in one leaf of those that one leaf could hold.
    pub one_leaf: f64,
    /// Mean over gangs of the mean hops between their nodes.
    pub hops: f64,
    /// Σ nodes × run × (leaves − bound) / Σ nodes × run.
    pub excess: f64,
}

/// Measures the gangs; none if there are none.
#[must_use]
#[allow(clippy::cast_precision_loss)]
pub fn gangs(load: &Workload, outcomes: &Outcomes) -> Option<Gangs> {
    let all: Vec<_> = load.jobs.iter().zip(&outcomes.jobs).filter_map(|(j, o)| Some((j, o.spread?))).collect();
    if all.is_empty() {
        return None;
    }
    let share = |hits: usize, of: usize| if of == 0 { 0.0 } else { hits as f64 / of as f64 };
    let fitting = all.iter().filter(|(_, s)| s.bound == 1).count();
    let hours = |j: &Work, nodes: u32| f64::from(nodes) * j.run.as_secs_f64();
    let excess: f64 = all.iter().map(|(j, s)| hours(j, s.nodes) * f64::from(s.leaves - s.bound)).sum();
    let total: f64 = all.iter().map(|(j, s)| hours(j, s.nodes)).sum();
    Some(Gangs {
        leaves: mean(&all.iter().map(|(_, s)| f64::from(s.leaves)).collect::<Vec<_>>()),
        at_bound: share(all.iter().filter(|(_, s)| s.leaves == s.bound).count(), all.len()),
        one_leaf: share(all.iter().filter(|(_, s)| s.leaves == 1).count(), fitting),
        hops: mean(&all.iter().map(|(_, s)| s.hops).collect::<Vec<_>>()),
        excess: if total > 0.0 { excess / total } else { 0.0 },
    })
}

/// Peak resident memory of this process in MiB, where the system tells.
#[must_use]
pub fn peak_rss_mib() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|l| l.starts_with("VmHWM:"))?;
    let kib: u64 = line.split_ascii_whitespace().nth(1)?.parse().ok()?;
    Some(kib / 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_percentile_is_an_element_counted_from_zero() {
        let values: Vec<f64> = (0..200).map(f64::from).collect();
        assert_eq!(percentile(&values, 0.99), 198.0);
        assert_eq!(percentile(&values, 1.0), 199.0);
        assert_eq!(percentile(&[], 0.99), 0.0);
    }
}
