//! Members that failed by their own code, and starts that a node refused: what the job's policy makes of them.

use super::leaving::stop_for;
use super::limits::ready_end;
use super::look::{Fate, Look, SeatLook};
use super::pods::making;
use super::step::{Step, Verdict, grace_seconds};
use crate::commit::converge::empty;
use crate::commit::{Journal, OnRefusal, Operation, is_terminal, member};
use crate::state::{FlightKind, World};
use crate::status::{self, ended};
use crds::v1alpha1::{LastFailure, Phase, TrainingJob, TrainingJobStatus};
use crds::{Code, Timestamp};
use planner::Time;
use translate::lifecycle::failure::{self, Action, Failure};

pub(super) fn failed(
    world: &World,
    key: &str,
    job: &TrainingJob,
    seen: &Look,
    now: Time,
    moment: Timestamp,
) -> Option<Verdict> {
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
        // The failure that ends the job restarts nothing.
        let restarts_now = decision.counted && decision.action != Action::Fail;
        status.restarts = Some(restarts + i32::from(restarts_now));
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
pub(super) fn start_refused(world: &World, job: &TrainingJob, seen: &Look, now: Timestamp) -> Option<Verdict> {
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
