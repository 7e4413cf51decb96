//! What a job needs next: the one place with the order of a life. Each question is asked of what is stored, so the
//! answer survives every crash.

use super::look::{Fate, Look, SeatLook, has_started, look};
use super::pods::{attempt_for, attempts, making};
use crate::commit::converge::{Sight, converge, empty, stop};
use crate::commit::{Journal, OnRefusal, Operation, is_terminal, member, owner_uid};
use crate::state::{FlightKind, World};
use crate::status::{self, ended, stamp};
use crds::names::{conditions, finalizers};
use crds::v1alpha1::{BerthState, LastFailure, Phase, TrainingJob, TrainingJobStatus};
use crds::{Berth, Code, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use planner::{Span, Time};
use std::collections::BTreeSet;
use std::sync::Arc;
use translate::lifecycle::failure::{self, Action, Failure};
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
    fn rest() -> Self {
        Self { step: Step::Rest, due: None, refused_by: Vec::new() }
    }

    fn of(step: Step) -> Self {
        Self { step, ..Self::rest() }
    }

    fn operate(kind: FlightKind, operation: Operation) -> Self {
        Self::of(Step::Operate { kind, operation: Box::new(operation), before: None, told: None })
    }

    /// The same, told in these words.
    fn saying(mut self, text: impl Into<String>) -> Self {
        if let Step::Operate { told: Some((_, _, message)), .. } = &mut self.step {
            *message = text.into();
        }
        self
    }

    fn due_at(mut self, due: Option<Time>) -> Self {
        self.due = [self.due, due].into_iter().flatten().min();
        self
    }
}

/// A repair is found by the next plans or not soon.
const REPAIR_PATIENCE: Span = Span::from_secs(120);
/// Released Berths that are kept for people to read.
const KEPT: usize = 3;

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

fn job_name(job: &TrainingJob) -> String {
    job.metadata.name.clone().unwrap_or_default()
}

fn end_code(job: &TrainingJob) -> Code {
    let status = job.status.as_ref();
    let finished = status.and_then(|s| s.conditions.iter().find(|c| c.type_ == conditions::FINISHED));
    finished.and_then(|c| c.reason.parse().ok()).unwrap_or(Code::Succeeded)
}

// --- what is left ---

/// A job that is gone or cannot be read: only Berths that were deleted go on their way.
fn orphans(world: &World, key: &str, now: Timestamp) -> Verdict {
    for berth in world.index.berths_of_job(key) {
        if berth.metadata.deletion_timestamp.is_some() {
            let sight = sight(world, key, berth, 30, now);
            if let Some(operation) = converge(sight) {
                return Verdict::operate(kind_of(&operation), operation);
            }
        }
    }
    Verdict::rest()
}

fn leftovers(world: &World, key: &str, job: &TrainingJob, now: Timestamp) -> Option<Verdict> {
    let berths = world.berths(key, job);
    let grace = grace_seconds(job);
    let others = berths.released.iter().chain(&berths.foreign);
    for berth in others {
        let berth = world.index.berths.get(&translate::key_of(*berth))?;
        let of_namesake = Some(&berth.spec.job_uid) != job.metadata.uid.as_ref();
        // A namesake's Berth is left to the garbage collector until that deletes it.
        if of_namesake && berth.metadata.deletion_timestamp.is_none() {
            continue;
        }
        if let Some(operation) = converge(sight(world, key, berth, grace, now)) {
            return Some(Verdict::operate(kind_of(&operation), operation));
        }
    }
    let old = berths.released.len().checked_sub(KEPT + 1).and_then(|_| berths.released.first())?;
    let old = world.index.berths.get(&translate::key_of(*old))?;
    old.metadata.deletion_timestamp.is_none().then(|| Verdict::of(Step::Prune(old.clone())))
}

fn sight<'a>(world: &World, key: &str, berth: &'a Arc<Berth>, grace_seconds: u32, now: Timestamp) -> Sight<'a> {
    let uid = berth.metadata.uid.as_deref();
    let pods: Vec<Arc<Pod>> =
        world.index.pods_of_job(key).filter(|(_, p)| owner_uid(&p.metadata) == uid).map(|(_, p)| p.clone()).collect();
    let unattended = unattended(world, &pods, now);
    Sight {
        berth,
        pods,
        missing: Vec::new(),
        companions: Vec::new(),
        all_or_nothing: false,
        grace_seconds,
        unattended,
        now,
    }
}

/// Pods whose node is gone or lost.
fn unattended(world: &World, pods: &[Arc<Pod>], now: Timestamp) -> BTreeSet<String> {
    let now = translate::time::time(now);
    let is_lost = |pod: &Pod| match translate::pod::node_of(pod).and_then(|n| world.index.nodes.get(n)) {
        Some(node) => translate::node::facts(node).lost(now, world.settings.node_lost_after),
        None => true,
    };
    pods.iter().filter(|p| is_lost(p)).filter_map(|p| p.metadata.uid.clone()).collect()
}

fn kind_of(operation: &Operation) -> FlightKind {
    if operation.verify_gone {
        FlightKind::Release
    } else if matches!(operation.journal, Journal::Standing(_)) {
        FlightKind::Sweep
    } else {
        FlightKind::Stop
    }
}

fn leave(world: &World, key: &str, job: &TrainingJob, berth: &Arc<Berth>, now: Timestamp) -> Verdict {
    let grace = berth.spec.stopping.as_ref().and_then(|s| s.grace_period_seconds);
    let grace = grace.and_then(|g| u32::try_from(g).ok()).unwrap_or_else(|| grace_seconds(job));
    match converge(sight(world, key, berth, grace, now)) {
        Some(operation) => Verdict::operate(kind_of(&operation), operation),
        None => Verdict::rest(),
    }
}

fn drop_reservation(berth: &Arc<Berth>, now: Timestamp) -> Verdict {
    Verdict::operate(FlightKind::Drop, empty(berth, Journal::Delete(berth.clone()), now))
}

/// A deleted job without a Berth in force: its finalizer goes when no pod of it is left.
fn gone(world: &World, key: &str, job: &TrainingJob, no_berths: bool) -> Verdict {
    let uid = job.metadata.uid.as_deref();
    let ours = |berth: &&Arc<Berth>| Some(berth.spec.job_uid.as_str()) == uid;
    let uids: Vec<&str> =
        world.index.berths_of_job(key).filter(ours).filter_map(|b| b.metadata.uid.as_deref()).collect();
    let left = world
        .index
        .pods_of_job(key)
        .any(|(_, p)| !is_terminal(p) && owner_uid(&p.metadata).is_some_and(|o| no_berths || uids.contains(&o)));
    let kept: Vec<String> =
        job.metadata.finalizers.iter().flatten().filter(|f| *f != finalizers::JOB).cloned().collect();
    let held = job.metadata.finalizers.iter().flatten().any(|f| f == finalizers::JOB);
    if held && !left { Verdict::of(Step::Finalizers(kept)) } else { Verdict::rest() }
}

/// A finished job that holds nothing: it waits for its time to be over.
fn at_rest(job: &TrainingJob, now: Time) -> Verdict {
    let ttl = job.spec.ttl_after_finished.map(translate::time::span);
    let ended = job.status.as_ref().and_then(|s| s.finished_at).map(translate::time::time);
    match (ttl, ended) {
        (Some(ttl), Some(ended)) if now >= ended + ttl => Verdict::of(Step::Delete),
        (Some(ttl), Some(ended)) => Verdict::rest().due_at(Some(ended + ttl)),
        _ => Verdict::rest(),
    }
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

/// Stops a gang: its Berth is marked with the cause, its pods are told to go.
#[must_use]
pub fn stop_for(
    world: &World,
    job: &TrainingJob,
    seen: &Look,
    code: Code,
    object: &str,
    before: Option<TrainingJobStatus>,
    now: Timestamp,
) -> Verdict {
    let cause = format!("{code}({object})");
    let grace_seconds = grace_seconds(job);
    let sight = Sight {
        berth: &seen.berth,
        pods: seen.pods.clone(),
        missing: Vec::new(),
        companions: Vec::new(),
        all_or_nothing: false,
        grace_seconds,
        unattended: unattended(world, &seen.pods, now),
        now,
    };
    let operation = Box::new(stop(&seen.berth, &cause, &sight));
    let warning = !matches!(code, Code::Succeeded | Code::Suspended | Code::Deleted);
    let told = Some((warning, code, format!("stopped: {cause}")));
    Verdict::of(Step::Operate { kind: FlightKind::Stop, operation, before: before.map(Box::new), told })
}

// --- a gang that stands ---

fn live(world: &World, key: &str, job: &TrainingJob, seen: &Look, now: Time, moment: Timestamp) -> Verdict {
    let started = has_started(job, &seen.berth);
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

/// Until when lost members must be replaced, if the gang is below its floor without them: no plan may leave it so.
fn unrepaired(world: &World, key: &str, job: &TrainingJob, seen: &Look) -> Option<Time> {
    let since = world.records.get(key)?.lost_since?;
    let holds = seen.holds_without(job, |s| matches!(s.fate, Fate::Alive { .. }));
    (!holds).then(|| since + REPAIR_PATIENCE)
}

fn over_limit(world: &World, job: &TrainingJob, seen: &Look, now: Time, moment: Timestamp) -> Option<Verdict> {
    let ends = limit_end(world, job)?;
    if now < ends {
        return None;
    }
    let limit = max_runtime(world, job)?;
    let message = format!("ran into its maxRuntime of {limit}");
    let status = ended(job, Phase::Failed, Code::RuntimeExceeded, &message, now);
    Some(stop_for(world, job, seen, Code::RuntimeExceeded, &job_name(job), Some(status), moment).saying(message))
}

fn max_runtime(world: &World, job: &TrainingJob) -> Option<crds::Duration> {
    let queue = translate::job::queue_name(job, world.annotations_of(job));
    translate::job::max_runtime(job, world.index.queues.get(queue).map(AsRef::as_ref))
}

fn limit_end(world: &World, job: &TrainingJob) -> Option<Time> {
    let started = job.status.as_ref()?.started_at?;
    let berth_is_current =
        job.status.as_ref()?.conditions.iter().any(|c| c.type_ == conditions::STARTED && c.status == "True");
    let limit = max_runtime(world, job).filter(|_| berth_is_current)?;
    Some(translate::time::time(started) + translate::time::span(limit))
}

fn ready_end(job: &TrainingJob, seen: &Look) -> Option<Time> {
    let status = job.status.as_ref()?;
    let was_ready = status
        .conditions
        .iter()
        .any(|c| c.type_ == conditions::STARTED && c.status == "True" && c.reason == Code::Running.as_str());
    if was_ready || seen.is_ready() || !has_started(job, &seen.berth) {
        return None;
    }
    Some(translate::time::time(status.started_at?) + translate::time::span(job.spec.failure_policy.ready_within))
}

fn failed(world: &World, key: &str, job: &TrainingJob, seen: &Look, now: Time, moment: Timestamp) -> Option<Verdict> {
    let counted = job.status.as_ref().and_then(|s| s.last_failure.as_ref()).map(|f| f.pod.clone());
    let failures = seen.seats.iter().filter_map(|s| match (&s.fate, &s.pod) {
        (Fate::Failed(failure), Some(pod)) => Some((s, pod.metadata.name.clone().unwrap_or_default(), failure.clone())),
        _ => None,
    });
    let mut failures: Vec<(&SeatLook, String, Failure)> = failures.collect();
    // What was counted already is only to be carried out.
    failures.sort_by_key(|(seat, pod, _)| (Some(pod) != counted.as_ref(), seat.rank));
    let late = ready_end(job, seen).filter(|end| now >= *end);
    let (role, seat, pod, failure) = match failures.into_iter().next() {
        Some((seat, pod, failure)) => (seat.role, Some(seat), pod, failure),
        None => {
            let seat = seen.seats.iter().find(|s| !matches!(s.fate, Fate::Alive { ready: true, .. } | Fate::Succeeded));
            let seat = seat.filter(|_| late.is_some())?;
            let message =
                format!("not ready within failurePolicy.readyWithin of {}", job.spec.failure_policy.ready_within);
            let failure = Failure { exit_code: None, reason: "NotReady".to_owned(), message };
            let pod = seat.pod.as_ref().and_then(|p| p.metadata.name.clone()).unwrap_or_default();
            (seat.role, None, pod, failure)
        }
    };
    let before = job.status.clone().unwrap_or_default();
    let is_counted = counted.as_ref() == Some(&pod);
    let restarts = before.restarts.unwrap_or(0) - i32::from(is_counted);
    let policy = &job.spec.failure_policy;
    let decision = failure::decide(policy, &job.spec.roles[role].name, failure.exit_code, restarts.max(0));
    let mut status = status::compute(world, key, job, now);
    if !is_counted {
        note_failure(&mut status, seat, &pod, &failure, moment);
        status.restarts = Some(restarts + i32::from(decision.counted));
    }
    let told = describe(&pod, &failure);
    match (decision.action, seat) {
        (Action::Fail, _) => {
            let why = if decision.exhausted {
                format!("{told}; failurePolicy.maxRestarts of {} is used up", policy.max_restarts)
            } else {
                told
            };
            let with_failure = TrainingJob { status: Some(status), ..job.clone() };
            let status = ended(&with_failure, Phase::Failed, Code::Failed, &why, now);
            Some(stop_for(world, job, seen, Code::Failed, &pod, Some(status), moment).saying(why))
        }
        (Action::ReplacePod | Action::Ignore, Some(seat)) => {
            let operation = replace_in_place(world, key, job, seen, seat, moment)?;
            Some(Verdict::of(Step::Operate {
                kind: FlightKind::Replace,
                operation: Box::new(operation),
                before: (!is_counted).then(|| Box::new(status)),
                told: Some((true, Code::Failed, format!("{told}; the pod is replaced"))),
            }))
        }
        (Action::RestartGang | Action::ReplacePod | Action::Ignore, _) => {
            status.phase = Some(Phase::Restarting);
            let used = status.restarts.unwrap_or(0);
            let before = (!is_counted).then_some(status);
            let text = format!("{told}; the gang restarts ({used} of {} restarts used)", policy.max_restarts);
            Some(stop_for(world, job, seen, Code::Failed, &pod, before, moment).saying(text))
        }
    }
}

fn describe(pod: &str, failure: &Failure) -> String {
    let code = failure.exit_code.map(|c| format!(" with exit code {c}")).unwrap_or_default();
    let message = if failure.message.is_empty() { String::new() } else { format!(": {}", failure.message) };
    format!("pod {pod} failed{code} ({}){message}", failure.reason)
}

fn note_failure(status: &mut TrainingJobStatus, seat: Option<&SeatLook>, pod: &str, failure: &Failure, now: Timestamp) {
    status.last_failure = Some(LastFailure {
        pod: pod.to_owned(),
        node: seat.map(|s| s.node.clone()),
        exit_code: failure.exit_code,
        reason: failure.reason.clone(),
        message: failure.message.clone(),
        at: Some(now),
    });
}

/// A new pod for a seat, on the same node.
fn replace_in_place(
    world: &World,
    key: &str,
    job: &TrainingJob,
    seen: &Look,
    seat: &SeatLook,
    now: Timestamp,
) -> Option<Operation> {
    let making = making(world, key, job, &seen.berth, |m| (m.rank == seat.rank).then_some(seat.attempt)).ok()?;
    let journal = Journal::Standing(seen.berth.clone());
    // A pod that restarted too often in place still lives: it goes first.
    let alive = seat.pod.iter().filter(|p| !is_terminal(p)).map(|p| member(p, Some(grace_seconds(job))));
    let stays = |s: &SeatLook| s.rank != seat.rank && matches!(s.fate, Fate::Alive { .. });
    let holds = seen.holds_without(job, stays);
    Some(Operation {
        on_refusal: if holds { OnRefusal::Keep } else { OnRefusal::RollBack { grace_seconds: grace_seconds(job) } },
        delete: alive.collect(),
        create: making.pods,
        companions: making.companions,
        ..empty(&seen.berth, journal, now)
    })
}

/// Before Started, a member that its node refused or lost takes the whole start back.
fn start_refused(world: &World, job: &TrainingJob, seen: &Look, now: Timestamp) -> Option<Verdict> {
    let lost: Vec<(&SeatLook, &Failure)> = seen
        .seats
        .iter()
        .filter_map(|s| match &s.fate {
            Fate::Lost(failure) => Some((s, failure)),
            _ => None,
        })
        .collect();
    let (seat, failure) = lost.first()?;
    let code = if failure.reason == "NodeLost" { Code::NodeLost } else { Code::StartRefused };
    let object = format!("{}: {}", seat.node, failure.reason);
    let mut verdict = stop_for(world, job, seen, code, &object, None, now);
    verdict.refused_by = lost.iter().map(|(s, _)| s.node.clone()).collect();
    Some(verdict)
}

/// When the stage that others wait for has to be ready: counted from the birth of its last pod.
fn stage_end(world: &World, job: &TrainingJob, seen: &Look) -> Option<Time> {
    if !seen.seats.iter().any(|s| s.fate == Fate::Missing) || job.spec.roles.iter().all(|r| r.depends_on.is_empty()) {
        return None;
    }
    let born = seen.pods.iter().filter_map(|p| p.metadata.creation_timestamp.clone());
    let last = born.map(|t| translate::time::time(t.into())).max()?;
    Some(last + world.settings.stage_timeout)
}

/// A stage that does not get ready in its time takes the whole start back.
fn stage_late(world: &World, job: &TrainingJob, seen: &Look, now: Time, moment: Timestamp) -> Option<Verdict> {
    let end = stage_end(world, job, seen).filter(|end| now >= *end)?;
    let waits = seen
        .seats
        .iter()
        .find(|s| !matches!(s.fate, Fate::Alive { ready: true, .. } | Fate::Succeeded | Fate::Missing))?;
    let role = &job.spec.roles[waits.role].name;
    let object = format!("role {role} was not ready by {}, and others depend on it", stamp(end)?);
    let mut verdict = stop_for(world, job, seen, Code::RolledBack, &object, None, moment);
    verdict.refused_by.push(waits.node.clone());
    Some(verdict)
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

/// When a living gang has to be looked at again: its limits.
fn living_due(world: &World, job: &TrainingJob, seen: &Look, now: Time) -> Option<Time> {
    let accept = seen.seats.iter().filter_map(|s| match (&s.fate, &s.pod) {
        (Fate::Alive { accepted: false, .. }, Some(pod)) => {
            let made = pod.metadata.creation_timestamp.clone().map(|t| translate::time::time(t.into()))?;
            Some(made + world.settings.accept_timeout + Span::from_secs(1))
        }
        _ => None,
    });
    let silent = seen.seats.iter().filter_map(|s| {
        let facts = translate::node::facts(world.index.nodes.get(&s.node)?);
        let since = facts.ready_since.filter(|_| !facts.ready)?;
        Some(since + world.settings.node_lost_after)
    });
    let stage = stage_end(world, job, seen);
    let limits = [limit_end(world, job), ready_end(job, seen), accept.min(), silent.min(), stage];
    limits.into_iter().flatten().filter(|t| *t > now).min()
}
