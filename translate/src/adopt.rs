//! What of a job survives in objects: its standing in the planner, from its own status and its Berths alone.
//!
//! A restarted controller and a scenario that restarts one both go through here, so nothing that matters is kept only in
//! memory.

use crate::berth;
use crate::error::TranslateError;
use crate::time;
use crds::Berth;
use crds::v1alpha1::{BerthState, Phase as JobPhase, TrainingJob, TrainingJobStatus};
use crds::{Code, Timestamp};
use planner::job::{Leaving, Phase, Reservation, Running, Waiting};
use planner::{NodeIdx, Span, Time};

/// Where a job stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Nothing more will happen, and it holds nothing: the planner need not know it.
    Finished,
    /// Suspended without a Berth: not pending, holds nothing.
    Suspended,
    /// The planner has it.
    Living(Box<Adopted>),
}

/// A job that the planner has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Adopted {
    /// Its phase.
    pub phase: Phase,
    /// What its place in the queue counts from; none before first sight.
    pub queued_at: Option<Time>,
    /// Number of the incarnation it has, or will have when it starts.
    pub incarnation: i64,
    /// Name of the Berth in force.
    pub berth: Option<String>,
}

/// The Berths of a job, told apart by uid: a namesake's are not its own.
#[derive(Clone, Debug, Default)]
pub struct Berths<'a> {
    /// The one in force: Committed, else Reserved.
    pub current: Option<&'a Berth>,
    /// Released ones, oldest first.
    pub released: Vec<&'a Berth>,
    /// Of an earlier job of the same name; the job waits until they are gone.
    pub foreign: Vec<&'a Berth>,
}

impl<'a> Berths<'a> {
    /// Sorts the Berths that bear a job's name. Two in force cannot both be: the Committed one counts, then the later.
    pub fn of(job: &TrainingJob, all: impl IntoIterator<Item = &'a Berth>) -> Self {
        let uid = job.metadata.uid.as_deref().unwrap_or_default();
        let mut berths = Self::default();
        for berth in all {
            match berth.spec.state {
                _ if berth.spec.job_uid != uid => berths.foreign.push(berth),
                BerthState::Released => berths.released.push(berth),
                _ => {
                    let firmness = |b: &Berth| (b.spec.state == BerthState::Committed, b.spec.incarnation);
                    if berths.current.is_none_or(|other| firmness(other) < firmness(berth)) {
                        berths.current = Some(berth);
                    }
                }
            }
        }
        berths.released.sort_by_key(|b| b.spec.incarnation);
        berths
    }

    /// The number of the next start: one more than any start so far. A Berth that was only Reserved started nothing, so
    /// its number is used again.
    #[must_use]
    pub fn next_incarnation(&self, status: Option<&TrainingJobStatus>) -> i64 {
        let started = self.released.iter().map(|b| b.spec.incarnation);
        let held = self.current.filter(|b| b.spec.state == BerthState::Committed).map(|b| b.spec.incarnation);
        let noted = status.filter(|s| s.started_at.is_some()).and_then(|s| s.incarnation);
        started.chain(held).chain(noted).max().unwrap_or(0) + 1
    }
}

/// Where a job stands by its objects.
///
/// # Errors
/// If its Berth in force cannot be read against the job and the nodes that `find` knows.
pub fn adopt(
    job: &TrainingJob,
    berths: &Berths<'_>,
    find: impl Fn(&str) -> Option<NodeIdx>,
) -> Result<Standing, TranslateError> {
    let status = job.status.as_ref();
    let finished = status.and_then(|s| s.phase).is_some_and(JobPhase::is_finished);
    let standing = |phase, incarnation, berth: Option<&Berth>| {
        Standing::Living(Box::new(Adopted {
            phase,
            queued_at: status.and_then(queued_at),
            incarnation,
            berth: berth.and_then(|b| b.metadata.name.clone()),
        }))
    };
    match berths.current {
        Some(berth) if berth.spec.state == BerthState::Committed => {
            let placement = berth::placement(berth, &berth::role_names(job), find)?;
            let phase = held(job, berth, placement);
            Ok(standing(phase, berth.spec.incarnation, Some(berth)))
        }
        _ if finished => Ok(Standing::Finished),
        _ if job.spec.suspend => Ok(Standing::Suspended),
        Some(berth) => {
            let placement = berth::placement(berth, &berth::role_names(job), find)?;
            let mut waiting = waits(status, berths);
            waiting.postponed = postponed(berth);
            let (start, end) = berth::window(&berth.spec);
            waiting.reservation = start.map(|start| Reservation {
                start,
                end,
                placement,
                promised: promised(berth).unwrap_or(start),
                clearing: !berth.spec.clears.is_empty(),
            });
            Ok(standing(Phase::Waiting(Box::new(waiting)), berth.spec.incarnation, Some(berth)))
        }
        None => {
            let phase = Phase::Waiting(Box::new(waits(status, berths)));
            Ok(standing(phase, berths.next_incarnation(status), None))
        }
    }
}

/// What the job's place in the queue counts from.
#[must_use]
pub fn queued_at(status: &TrainingJobStatus) -> Option<Time> {
    status.queued_at.or(status.submitted_at).map(time::time)
}

fn held(job: &TrainingJob, berth: &Berth, placement: planner::job::Placement) -> Phase {
    if let Some(stopping) = &berth.spec.stopping {
        let given = stopping.grace_period_seconds.map(Span::from_secs);
        let gone_by = time::time(stopping.at) + given.unwrap_or_else(|| crate::job::grace(job));
        return Phase::Leaving(Box::new(Leaving { placement, gone_by, taker: None }));
    }
    let status = job.status.as_ref();
    let (start, ends) = berth::window(&berth.spec);
    let noted = status.filter(|s| s.incarnation == Some(berth.spec.incarnation)).and_then(|s| s.started_at);
    let started = noted.map(time::time).or(start).unwrap_or(Time::ZERO);
    let private_start = status.and_then(|s| s.private_start).map(time::time);
    let made = berth.status.as_ref().map_or(0, |s| s.created);
    Phase::Running(Box::new(Running {
        placement,
        started,
        ends,
        lost: Vec::new(),
        guaranteed: private_start.is_some(),
        resized: started,
        firm: postponed(berth) > Span::ZERO,
        private_start,
        settling: usize::try_from(made).unwrap_or(0) < berth.spec.pods(),
    }))
}

fn waits(status: Option<&TrainingJobStatus>, berths: &Berths<'_>) -> Waiting {
    let last = berths.released.last();
    let stopped_by_us = last.and_then(|b| cause_of(b)).is_some_and(was_no_fault_of_its_own);
    Waiting {
        requeued: stopped_by_us,
        private_start: status.and_then(|s| s.private_start).map(time::time),
        ..Waiting::default()
    }
}

/// Why a Berth was given back: as it was marked before its pods went, else as its status says.
fn cause_of(berth: &Berth) -> Option<&str> {
    let marked = berth.spec.stopping.as_ref().map(|s| s.cause.as_str());
    marked.or_else(|| berth.status.as_ref()?.cause.as_deref())
}

/// Whether a Berth was given back for others or by a lost node, so that its job goes before waiting equals.
fn was_no_fault_of_its_own(cause: &str) -> bool {
    let code = cause.split('(').next().unwrap_or_default();
    [Code::Preempted, Code::Reclaimed, Code::NodeLost, Code::Drained, Code::Repair].iter().any(|c| c.as_str() == code)
}

/// The earliest start a Berth ever promised without a cause since.
fn promised(berth: &Berth) -> Option<Time> {
    berth.status.as_ref()?.promised.map(time::time)
}

/// By how much submissions of higher priority have moved a Berth's start so far.
#[must_use]
pub fn postponed(berth: &Berth) -> Span {
    let moves = berth.status.iter().flat_map(|s| &s.moved);
    moves
        .filter(|m| m.cause.starts_with(Code::HigherPriority.as_str()))
        .filter_map(|m| Some((moment(&m.from)?, moment(m.to.as_deref()?)?)))
        .fold(Span::ZERO, |sum, (from, to)| sum + to.since(from))
}

fn moment(text: &str) -> Option<Time> {
    text.parse::<Timestamp>().ok().map(time::time)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::tests::mk_job;
    use serde_json::{Value, json};

    fn mk_berth(incarnation: i64, state: &str, spec: Value, status: Value) -> Berth {
        let mut whole = json!({
            "job": "llama", "jobUid": "job-uid", "incarnation": incarnation, "queue": "a", "state": state,
            "start": "1970-01-01T00:00:10Z", "end": "1970-01-01T01:00:00Z",
            "assignments": [{"role": "worker", "firstIndex": 0, "perNode": 1, "nodes": ["n0", "n1"]}],
        });
        whole.as_object_mut().expect("an object").extend(spec.as_object().expect("an object").clone());
        serde_json::from_value(json!({
            "apiVersion": "berth.dev/v1alpha1", "kind": "Berth",
            "metadata": {"name": format!("llama-{incarnation}"), "namespace": "team-a"}, "spec": whole, "status": status,
        }))
        .expect("a Berth")
    }

    fn adopted(status: Value, berths: &[Berth]) -> Standing {
        let mut job = mk_job(json!({}));
        job.status = serde_json::from_value(status).expect("a status");
        let find = |name: &str| ["n0", "n1"].iter().position(|n| *n == name).map(NodeIdx::of);
        adopt(&job, &Berths::of(&job, berths), find).expect("readable")
    }

    fn living(standing: Standing) -> Adopted {
        match standing {
            Standing::Living(adopted) => *adopted,
            other => panic!("not living: {other:?}"),
        }
    }

    #[test]
    fn a_reserved_berth_is_a_promise_kept() {
        let status = json!({"promised": "1970-01-01T00:00:05Z", "moved": [
            {"from": "1970-01-01T00:00:05Z", "to": "1970-01-01T00:00:08Z", "cause": "HigherPriority(team-a/x)"},
            {"from": "1970-01-01T00:00:08Z", "to": "1970-01-01T00:00:10Z", "cause": "NodeLost(n9)"}]});
        let berth = mk_berth(1, "Reserved", json!({}), status);
        let found = living(adopted(json!({"submittedAt": "1970-01-01T00:00:01.5Z"}), &[berth]));
        assert_eq!((found.incarnation, found.berth.as_deref()), (1, Some("llama-1")));
        assert_eq!(found.queued_at, Some(Time(1_500_000)));
        let Phase::Waiting(waiting) = found.phase else { panic!("it waits") };
        let kept = waiting.reservation.expect("it is promised");
        assert_eq!(
            (kept.start, kept.end, kept.promised),
            (Time::from_secs(10), Time::from_secs(3600), Time::from_secs(5))
        );
        assert_eq!((kept.placement.len(), waiting.postponed), (2, Span::from_secs(3)));
    }

    #[test]
    fn a_committed_berth_runs_guaranteed_from_its_private_start_on() {
        let berth = mk_berth(2, "Committed", json!({}), json!({"created": 2}));
        let status =
            json!({"incarnation": 2, "startedAt": "1970-01-01T00:00:12Z", "privateStart": "1970-01-01T00:00:02Z"});
        let Phase::Running(running) = living(adopted(status, std::slice::from_ref(&berth))).phase else {
            panic!("it runs")
        };
        assert_eq!((running.started, running.ends), (Time::from_secs(12), Time::from_secs(3600)));
        assert!(running.guaranteed && !running.settling && !running.firm);
        let older = json!({"incarnation": 1, "startedAt": "1970-01-01T00:00:01Z"});
        let Phase::Running(running) = living(adopted(older, &[berth])).phase else { panic!("it runs") };
        assert_eq!((running.started, running.guaranteed), (Time::from_secs(10), false), "an older incarnation's start");
    }

    #[test]
    fn a_berth_that_is_being_stopped_leaves_by_its_grace() {
        let stopping = json!({"stopping": {"cause": "Preempted(team-a/x)", "at": "1970-01-01T00:01:00Z", "gracePeriodSeconds": 60}});
        let berth = mk_berth(1, "Committed", stopping, Value::Null);
        let Phase::Leaving(leaving) = living(adopted(json!({"phase": "Failed"}), &[berth])).phase else {
            panic!("it leaves")
        };
        assert_eq!(leaving.gone_by, Time::from_secs(120));
    }

    #[test]
    fn a_job_that_was_preempted_waits_before_its_equals_and_counts_on() {
        let berth = mk_berth(3, "Released", json!({}), json!({"cause": "Preempted(team-a/x)"}));
        let found = living(adopted(json!({"queuedAt": "1970-01-01T00:00:07Z"}), &[berth]));
        assert_eq!((found.incarnation, found.queued_at), (4, Some(Time::from_secs(7))));
        assert!(matches!(found.phase, Phase::Waiting(w) if w.requeued && w.reservation.is_none()));
        let failed = mk_berth(1, "Released", json!({}), json!({"cause": "Failed(llama-worker-0)"}));
        assert!(matches!(living(adopted(json!({}), &[failed])).phase, Phase::Waiting(w) if !w.requeued));
    }

    #[test]
    fn a_reservation_s_number_is_used_again_and_a_namesake_s_berth_is_not_its_own() {
        let job = mk_job(json!({}));
        let reserved = mk_berth(2, "Reserved", json!({}), Value::Null);
        let foreign = mk_berth(9, "Committed", json!({"jobUid": "another"}), Value::Null);
        let all = [reserved, foreign];
        let berths = Berths::of(&job, &all);
        assert_eq!((berths.next_incarnation(None), berths.foreign.len()), (1, 1));
        assert_eq!(berths.current.map(|b| b.spec.incarnation), Some(2));
    }

    #[test]
    fn finished_and_suspended_jobs_hold_nothing() {
        assert_eq!(adopted(json!({"phase": "Succeeded"}), &[]), Standing::Finished);
        let mut job = mk_job(json!({"suspend": true}));
        job.status = None;
        assert_eq!(adopt(&job, &Berths::default(), |_| None), Ok(Standing::Suspended));
    }
}
