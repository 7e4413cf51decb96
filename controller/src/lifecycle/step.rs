//! What a job needs next: the one place with the order of a life. Each question is asked of what is stored, so the
//! answer survives every crash.

use super::claims::claims;
use super::failing::{failed, start_refused};
use super::leaving::{at_rest, drop_reservation, gone, leave, leftovers, orphans, stop_for};
use super::limits::{living_due, over_limit, stage_late, unrepaired};
use super::look::{Fate, Look, has_started, look};
use super::pods::{attempt_for, attempts, making};
use crate::commit::converge::empty;
use crate::commit::{Journal, OnRefusal, Operation, member};
use crate::state::{FlightKind, World};
use crate::status::{ended, stamp};
use crds::names::conditions;
use crds::v1alpha1::{BerthState, Phase, TrainingJob, TrainingJobStatus};
use crds::{Berth, Code, Timestamp};
use planner::Time;
use std::collections::BTreeSet;
use std::sync::Arc;
use translate::lifecycle::{backoff, success};

/// What is to be done now.
#[derive(Debug)]
pub enum Step {
    /// Nothing.
    Rest,
    /// An operation; `before` is a status to be written first, so that what it means survives a crash.
    Operate {
        /// Its kind.
        kind: FlightKind,
        /// The operation.
        operation: Box<Operation>,
        /// To be written first.
        before: Option<Box<TrainingJobStatus>>,
        /// What users are told of it.
        told: Option<(bool, Code, String)>,
    },
    /// Set the job's finalizers.
    Finalizers(Vec<String>),
    /// Delete the job: its time after the end is over.
    Delete,
    /// Delete an old Berth.
    Prune(Arc<Berth>),
}

/// What is to be done, and when to ask again though nothing happens.
#[derive(Debug)]
pub struct Verdict {
    /// Now.
    pub step: Step,
    /// Later.
    pub due: Option<Time>,
    /// Nodes whose kubelets refused pods of a start that is taken back.
    pub refused_by: Vec<String>,
}

impl Verdict {
    pub(super) fn rest() -> Self {
        Self { step: Step::Rest, due: None, refused_by: Vec::new() }
    }

    pub(super) fn of(step: Step) -> Self {
        Self { step, ..Self::rest() }
    }

    pub(super) fn operate(kind: FlightKind, operation: Operation) -> Self {
        Self::of(Step::Operate { kind, operation: Box::new(operation), before: None, told: None })
    }

    /// The same, told in these words.
    pub(super) fn saying(mut self, text: impl Into<String>) -> Self {
        if let Step::Operate { told: Some((_, _, message)), .. } = &mut self.step {
            *message = text.into();
        }
        self
    }

    pub(super) fn due_at(mut self, due: Option<Time>) -> Self {
        self.due = [self.due, due].into_iter().flatten().min();
        self
    }
}

/// The next step of a job.
#[must_use]
pub fn next(world: &World, key: &str, now: Time) -> Verdict {
    let Some(moment) = stamp(now) else { return Verdict::rest() };
    let Some(job) = world.index.jobs.get(key) else { return orphans(world, key, moment) };
    // 1. What is left of earlier incarnations and of namesakes goes first.
    if let Some(verdict) = leftovers(world, key, job, moment) {
        return verdict;
    }
    let berths = world.berths(key, job);
    let current = berths.current.and_then(|b| world.index.berths.get(&translate::key_of(b)));
    let finished = job.status.as_ref().and_then(|s| s.phase).is_some_and(Phase::is_finished);
    // 2. A job that is deleted, suspended or at its end gives back what it holds.
    let giving_up = if job.metadata.deletion_timestamp.is_some() {
        Some(Code::Deleted)
    } else if finished {
        Some(end_code(job))
    } else if job.spec.suspend {
        Some(Code::Suspended)
    } else {
        None
    };
    match (current, giving_up) {
        (None, Some(Code::Deleted)) => gone(world, key, job, berths.released.is_empty()),
        (None, _) if finished => at_rest(job, now),
        (None, _) => Verdict::rest().due_at(waiting_due(world, key, job, now)),
        (Some(berth), Some(_)) if berth.spec.state == BerthState::Reserved => drop_reservation(berth, moment),
        (Some(berth), None) if berth.spec.state == BerthState::Reserved => {
            Verdict::rest().due_at(berth.spec.start.map(translate::time::time))
        }
        // 3. A Berth on its way out goes on its way.
        (Some(berth), _) if berth.spec.stopping.is_some() || berth.metadata.deletion_timestamp.is_some() => {
            leave(world, key, job, berth, moment)
        }
        (Some(_), Some(code)) => match look(world, key, job, now) {
            Some(seen) => stop_for(world, job, &seen, code, &job_name(job), None, moment),
            None => Verdict::rest(),
        },
        // 4. A gang that stands lives on.
        (Some(_), None) => match look(world, key, job, now) {
            Some(seen) => live(world, key, job, &seen, now, moment),
            None => Verdict::rest(),
        },
    }
}

pub(super) fn job_name(job: &TrainingJob) -> String {
    job.metadata.name.clone().unwrap_or_default()
}

fn end_code(job: &TrainingJob) -> Code {
    let status = job.status.as_ref();
    let finished = status.and_then(|s| s.conditions.iter().find(|c| c.type_ == conditions::FINISHED));
    finished.and_then(|c| c.reason.parse().ok()).unwrap_or(Code::Succeeded)
}

fn waiting_due(world: &World, key: &str, job: &TrainingJob, now: Time) -> Option<Time> {
    let backoff = world.records.get(key).and_then(|r| r.backoff.as_ref()?.until);
    let restart = restart_backoff(job);
    [backoff, restart].into_iter().flatten().filter(|t| *t > now).min()
}

/// Until when a job waits before it starts again after its own failure.
#[must_use]
pub fn restart_backoff(job: &TrainingJob) -> Option<Time> {
    let status = job.status.as_ref()?;
    let failed = translate::time::time(status.last_failure.as_ref()?.at?);
    let started = translate::time::time(status.started_at?);
    let restarts = u32::try_from(status.restarts.unwrap_or(0)).unwrap_or(0);
    (failed >= started).then(|| failed + backoff::restart_delay(restarts, failed.since(started)))
}

/// Whole seconds between the stop signal and the kill, rounded up.
#[must_use]
pub fn grace_seconds(job: &TrainingJob) -> u32 {
    let micros = translate::job::grace(job).0;
    u32::try_from(micros.div_euclid(1_000_000) + i64::from(micros % 1_000_000 > 0)).unwrap_or(u32::MAX)
}

// --- a gang that stands ---

fn live(world: &World, key: &str, job: &TrainingJob, seen: &Look, now: Time, moment: Timestamp) -> Verdict {
    let started = has_started(job, &seen.berth);
    // 0. A gang that is over before anybody saw it run has started all the same: that is written and told first.
    if !started && seen.is_accepted() {
        return Verdict::rest();
    }
    // 1. Is it over?
    if success::has_succeeded(&job.spec, &seen.tallies(job.spec.roles.len())) {
        let message = "all deciding pods succeeded";
        let status = ended(job, Phase::Succeeded, Code::Succeeded, message, now);
        return stop_for(world, job, seen, Code::Succeeded, &job_name(job), Some(status), moment).saying(message);
    }
    if let Some(verdict) = over_limit(world, job, seen, now, moment) {
        return verdict;
    }
    // 2. Did its own code fail?
    if let Some(verdict) = failed(world, key, job, seen, now, moment) {
        return verdict;
    }
    // 3. Was its start refused by a node?
    if !started && let Some(verdict) = start_refused(world, job, seen, moment) {
        return verdict;
    }
    if !started && let Some(verdict) = stage_late(world, job, seen, now, moment) {
        return verdict;
    }
    // 4. Pods that sit nowhere go, pods that are due come.
    if !seen.strays.is_empty() {
        let delete = seen.strays.iter().map(|p| member(p, Some(grace_seconds(job)))).collect();
        let operation = Operation { delete, ..empty(&seen.berth, Journal::Standing(seen.berth.clone()), moment) };
        return Verdict::operate(FlightKind::Sweep, operation);
    }
    if let Some(verdict) = claims(world, key, job, seen, now, moment) {
        return verdict.due_at(living_due(world, job, seen, now));
    }
    if !seen.due().is_empty() {
        return complete(world, key, job, seen, started, moment);
    }
    // 5. Members that nobody replaces: a gang is complete or gone.
    let overdue = unrepaired(world, key, job, seen).filter(|_| started);
    if let (Some(end), Some(seat)) = (overdue, seen.seats.iter().find(|s| matches!(s.fate, Fate::Lost(_)))) {
        if now >= end {
            return stop_for(world, job, seen, Code::NodeLost, &seat.node, None, moment);
        }
        return Verdict::rest().due_at(living_due(world, job, seen, now)).due_at(Some(end));
    }
    Verdict::rest().due_at(living_due(world, job, seen, now))
}

fn complete(world: &World, key: &str, job: &TrainingJob, seen: &Look, started: bool, now: Timestamp) -> Verdict {
    let due: BTreeSet<i64> = seen.due().iter().map(|s| s.rank).collect();
    let next = attempts(world, key, job);
    let made = making(world, key, job, &seen.berth, |m| due.contains(&m.rank).then(|| attempt_for(&next, m)));
    let Ok(making) = made else { return Verdict::rest() };
    let on_refusal = if started { OnRefusal::Keep } else { OnRefusal::RollBack { grace_seconds: grace_seconds(job) } };
    let operation = Operation {
        companions: making.companions,
        create: making.pods,
        on_refusal,
        ..empty(&seen.berth, Journal::Standing(seen.berth.clone()), now)
    };
    Verdict::operate(FlightKind::Complete, operation)
}
