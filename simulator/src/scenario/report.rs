//! A run's result: JSON as the contract has it, and a timeline to read.

use super::event::{Event, What, seconds_or_null};
use planner::Time;
use serde::Serialize;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fmt::{self, Write};

/// What became of a job.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct JobReport {
    /// When it was submitted.
    #[serde(serialize_with = "seconds_or_null")]
    pub submitted: Option<Time>,
    /// Its first start.
    #[serde(serialize_with = "seconds_or_null")]
    pub started: Option<Time>,
    /// Its end.
    #[serde(serialize_with = "seconds_or_null")]
    pub finished: Option<Time>,
    /// From submission to the first start.
    #[serde(serialize_with = "seconds_or_null")]
    pub wait: Option<Time>,
    /// Number of starts.
    pub incarnations: i64,
    /// Where it ended up.
    pub phase: String,
    /// Why it waits at the end, if it does.
    pub pending: Option<PendingReport>,
}

/// Why a job waits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PendingReport {
    /// One of the closed table.
    pub code: String,
    /// In words.
    pub message: String,
}

/// What the checker said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Checks {
    /// Plans made.
    pub cycles: u64,
    /// Plans judged.
    pub plan_checks: u64,
    /// What was wrong in them.
    pub violations: usize,
}

/// A run's result.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RunReport {
    /// The scenario's name.
    pub scenario: String,
    /// Hash of the event list.
    pub digest: String,
    /// What happened, in order.
    pub events: Vec<Event>,
    /// Every job submitted.
    pub jobs: BTreeMap<String, JobReport>,
    /// What the checker said.
    pub checks: Checks,
    /// The violations in words, for standard error.
    #[serde(skip)]
    pub faults: Vec<String>,
    /// Nodes in order, for the picture.
    #[serde(skip)]
    pub nodes: Vec<String>,
    /// When the run stopped.
    #[serde(skip)]
    pub ended: Time,
}

/// SHA-256 of the events as JSON.
#[must_use]
pub fn digest(events: &[Event]) -> String {
    let text = serde_json::to_vec(events).expect("events are plain JSON");
    Sha256::digest(&text).iter().fold(String::new(), |mut hex, byte| {
        write!(hex, "{byte:02x}").expect("a String takes every write");
        hex
    })
}

impl fmt::Display for RunReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.scenario)?;
        let width = self.events.iter().map(|e| e.job.len()).max().unwrap_or(0);
        for event in &self.events {
            writeln!(f, "{:>12}  {:<width$}  {}", clock(event.t), event.job, Line(&event.what))?;
        }
        writeln!(f)?;
        writeln!(f, "{:<width$}  {:>12} {:>12} {:>12} {:>6}  phase", "job", "wait", "started", "finished", "starts")?;
        for (name, job) in &self.jobs {
            let of = |time: Option<Time>| time.map_or("-".into(), clock);
            let (wait, started, finished) = (of(job.wait), of(job.started), of(job.finished));
            writeln!(
                f,
                "{name:<width$}  {wait:>12} {started:>12} {finished:>12} {:>6}  {}",
                job.incarnations, job.phase
            )?;
            if let Some(pending) = &job.pending {
                writeln!(f, "{:<width$}  {}: {}", "", pending.code, pending.message)?;
            }
        }
        let Checks { cycles, violations, .. } = self.checks;
        writeln!(f, "\n{cycles} plans, {violations} violations, digest {}", &self.digest[..12])
    }
}

/// A moment as `1d 02:03:04.5`.
fn clock(time: Time) -> String {
    let (seconds, micros) = (time.0.div_euclid(1_000_000), time.0.rem_euclid(1_000_000));
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    let mut text = if days > 0 { format!("{days}d ") } else { String::new() };
    write!(text, "{:02}:{:02}:{:02}", rest / 3600, rest / 60 % 60, rest % 60).expect("a String takes every write");
    if micros > 0 {
        let fraction = format!(".{micros:06}");
        text.push_str(fraction.trim_end_matches('0'));
    }
    text
}

/// An event in words.
struct Line<'a>(&'a What);

impl fmt::Display for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            // The message begins with its code, as the webhook's does.
            What::Rejected { message, .. } => write!(f, "rejected, {message}"),
            What::EditRefused { code, message } => write!(f, "edit refused, {code}: {message}"),
            What::ChangeDeferred { message } => write!(f, "change deferred: {message}"),
            What::Started { incarnation, ranks, level, domain, domains } => {
                let nodes: std::collections::BTreeSet<&str> = ranks.iter().map(|r| r.node.as_str()).collect();
                let again = if *incarnation > 1 { format!(" ({incarnation}. time)") } else { String::new() };
                write!(
                    f,
                    "started{again}: {} pods on {} nodes, {domains} domain(s), {level} {domain}",
                    ranks.len(),
                    nodes.len()
                )
            }
            What::Reserved { start, nodes, domain } => {
                write!(f, "reserved for {}: {} nodes of {domain}", clock(*start), nodes.len())
            }
            What::Pending { code, message } => write!(f, "waits, {code}: {message}"),
            What::Resized { ranks, by } => {
                write!(f, "resized to {} pods", ranks.len())?;
                by.iter().try_for_each(|by| write!(f, " for {by}"))
            }
            What::Stopped { cause, by, lost } => {
                write!(f, "stopped, {cause}")?;
                by.iter().try_for_each(|by| write!(f, " by {by}"))?;
                write!(f, ": {:.0} s of work lost", lost.as_secs_f64())
            }
            What::NodeReplaced { rank, from, to } => write!(f, "rank {rank} moved from {from} to {to}"),
            What::ReservationMoved { from, to, cause } => {
                let to = to.map_or("dropped".into(), clock);
                write!(f, "reservation {} -> {to}", clock(*from))?;
                cause.iter().try_for_each(|cause| write!(f, ", {cause}"))
            }
            What::Finished { result } => write!(f, "finished, {result}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_read_as_a_clock() {
        assert_eq!(clock(Time::from_secs(93_784)), "1d 02:03:04");
        assert_eq!(clock(Time(1_500_000)), "00:00:01.5");
    }

    #[test]
    fn the_digest_depends_on_every_event() {
        let event = |t: i64| Event { t: Time(t), job: "j".into(), what: What::Finished { result: "Succeeded".into() } };
        assert_eq!(digest(&[event(1)]), digest(&[event(1)]));
        assert_ne!(digest(&[event(1)]), digest(&[event(2)]));
        assert_eq!(digest(&[]).len(), 64);
    }
}
