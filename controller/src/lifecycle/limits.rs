//! Limits of time of a gang that stands: its run, its being ready, its stages, and when the next of them is due.

use super::leaving::stop_for;
use super::look::{Fate, Look, has_started};
use super::step::{Verdict, job_name};
use crate::state::World;
use crate::status::{ended, stamp};
use crds::names::conditions;
use crds::v1alpha1::{Phase, TrainingJob};
use crds::{Code, Timestamp};
use planner::{Span, Time};

/// A repair is found by the next plans or not soon.
const REPAIR_PATIENCE: Span = Span::from_secs(120);

/// Until when lost members must be replaced, if the gang is below its floor without them: no plan may leave it so.
pub(super) fn unrepaired(world: &World, key: &str, job: &TrainingJob, seen: &Look) -> Option<Time> {
    let since = world.records.get(key)?.lost_since?;
    let holds = seen.holds_without(job, |s| matches!(s.fate, Fate::Alive { .. }));
    (!holds).then(|| since + REPAIR_PATIENCE)
}

pub(super) fn over_limit(
    world: &World,
    job: &TrainingJob,
    seen: &Look,
    now: Time,
    moment: Timestamp,
) -> Option<Verdict> {
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

pub(super) fn ready_end(job: &TrainingJob, seen: &Look) -> Option<Time> {
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
pub(super) fn stage_late(
    world: &World,
    job: &TrainingJob,
    seen: &Look,
    now: Time,
    moment: Timestamp,
) -> Option<Verdict> {
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

/// When a living gang has to be looked at again: its limits.
pub(super) fn living_due(world: &World, job: &TrainingJob, seen: &Look, now: Time) -> Option<Time> {
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
