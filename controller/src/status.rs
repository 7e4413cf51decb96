//! What users see of a job: its status, computed anew from everything known. Equal inputs give equal texts, so that
//! nothing is written that says nothing new.

use crate::lifecycle::{Fate, Look, has_started, look};
use crate::state::World;
use crate::state::record::{Held, Record, Waits};
use crds::names::conditions;
use crds::v1alpha1::{
    BerthState, PendingDomain, PendingStatus, Phase, PlacementStatus, TrainingJob, TrainingJobStatus,
};
use crds::{Berth, Code, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use planner::Time;
use translate::adopt::Berths;
use translate::job::Inherited;

/// A moment as objects write it.
#[must_use]
pub fn stamp(time: Time) -> Option<Timestamp> {
    translate::time::timestamp(time)
}

/// A moment cut to whole seconds, where people read it.
#[must_use]
pub fn seconds(time: Time) -> Option<Timestamp> {
    stamp(Time(time.0 - time.0.rem_euclid(1_000_000)))
}

/// Sets a condition; its time of change moves only when its status does.
pub fn set(all: &mut Vec<Condition>, kind: &str, holds: bool, code: Code, message: &str, job: &TrainingJob, now: Time) {
    let status = if holds { "True" } else { "False" };
    let observed_generation = job.metadata.generation;
    let now = stamp(now).map(crds::Timestamp::to_jiff).unwrap_or_default();
    let now = k8s_openapi::jiff::Timestamp::from_second(now.as_second()).unwrap_or(now);
    let known = all.iter_mut().find(|c| c.type_ == kind);
    let reason = code.as_str().to_owned();
    match known {
        Some(condition) => {
            if condition.status != status {
                condition.last_transition_time = k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(now);
            }
            condition.status = status.to_owned();
            condition.reason = reason;
            condition.message = message.to_owned();
            condition.observed_generation = observed_generation;
        }
        None => all.push(Condition {
            type_: kind.to_owned(),
            status: status.to_owned(),
            reason,
            message: message.to_owned(),
            observed_generation,
            last_transition_time: k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(now),
        }),
    }
}

/// The status that ends a job; written before anything is stopped, so that the end survives a crash.
#[must_use]
pub fn ended(job: &TrainingJob, phase: Phase, code: Code, message: &str, now: Time) -> TrainingJobStatus {
    let mut status = job.status.clone().unwrap_or_default();
    status.phase = Some(phase);
    status.finished_at = status.finished_at.or(seconds(now));
    status.observed_generation = job.metadata.generation;
    clear_waiting(&mut status);
    set(&mut status.conditions, conditions::FINISHED, true, code, message, job, now);
    for kind in [conditions::QUEUED, conditions::RESERVED, conditions::STARTED, conditions::DEGRADED] {
        if status.conditions.iter().any(|c| c.type_ == kind) {
            set(&mut status.conditions, kind, false, code, message, job, now);
        }
    }
    status
}

fn clear_waiting(status: &mut TrainingJobStatus) {
    status.pending = None;
    status.queue_position = None;
    status.estimated_start = None;
    status.eta = None;
}

/// The whole status of a job.
#[must_use]
pub fn compute(world: &World, key: &str, job: &TrainingJob, now: Time) -> TrainingJobStatus {
    let mut status = job.status.clone().unwrap_or_default();
    let record = world.records.get(key);
    status.observed_generation = job.metadata.generation;
    let first_seen = record.map_or(now, |r| r.first_seen);
    status.submitted_at = status.submitted_at.or_else(|| stamp(first_seen));
    status.priority = priority(world, job).or(status.priority);
    let berths = world.berths(key, job);
    let seen = look(world, key, job, now);
    status.ready = Some(ready_text(job, seen.as_ref()));
    if status.phase.is_some_and(Phase::is_finished) {
        return status;
    }
    match (&seen, berths.current) {
        (Some(seen), _) => holding(world, job, &mut status, seen, record, now),
        (None, Some(berth)) if berth.spec.state == BerthState::Reserved => {
            waiting(job, &mut status, record, Some(berth), &berths, now);
        }
        _ => waiting(job, &mut status, record, None, &berths, now),
    }
    status
}

fn priority(world: &World, job: &TrainingJob) -> Option<i32> {
    let queue = translate::job::queue_name(job, world.annotations_of(job));
    let inherited = Inherited {
        namespace: world.annotations_of(job),
        queue: world.index.queues.get(queue).map(AsRef::as_ref),
        classes: &world.classes,
    };
    translate::job::priority(job, inherited).ok()
}

/// "12/16": ready pods of those the job would have at best.
fn ready_text(job: &TrainingJob, seen: Option<&Look>) -> String {
    format!("{}/{}", seen.map_or(0, Look::ready), job.spec.max_pods())
}

// --- jobs that hold nodes ---

fn holding(
    world: &World,
    job: &TrainingJob,
    status: &mut TrainingJobStatus,
    seen: &Look,
    record: Option<&Record>,
    now: Time,
) {
    clear_waiting(status);
    let berth = &seen.berth;
    status.berth.clone_from(&berth.metadata.name);
    if let Some(stopping) = &berth.spec.stopping {
        stopping_status(job, status, &stopping.cause, now);
        return;
    }
    let was_started = has_started(job, berth);
    let fresh = status.incarnation != Some(berth.spec.incarnation);
    status.incarnation = Some(berth.spec.incarnation);
    if fresh {
        status.started_at = None;
    }
    // Only a kubelet that took a pod has not refused it.
    let started = was_started || seen.is_accepted();
    status.phase = Some(if started { Phase::Running } else { Phase::Starting });
    if started && status.started_at.is_none() {
        status.started_at = seconds(now);
    }
    status.placement = Some(placement(world, berth, status.placement.as_ref(), record, fresh));
    let all = &mut status.conditions;
    let holds = format!("holds {} of Berth {}", counted(berth.spec.node_count(), "node"), name_of(berth));
    set(all, conditions::QUEUED, false, Code::Started, &holds, job, now);
    if all.iter().any(|c| c.type_ == conditions::RESERVED) {
        set(all, conditions::RESERVED, false, Code::Started, &holds, job, now);
    }
    let pods = seen.seats.len();
    let once_ready = all.iter().any(|c| c.type_ == conditions::STARTED && c.reason == Code::Running.as_str());
    match started {
        true if seen.is_ready() || (once_ready && !fresh) => {
            let text = format!("all pods have been ready: {pods}");
            set(all, conditions::STARTED, true, Code::Running, &text, job, now);
        }
        true => {
            let text = taken_text(pods);
            set(all, conditions::STARTED, true, Code::Started, &text, job, now);
        }
        false => set(all, conditions::STARTED, false, Code::Starting, "the pods are being made", job, now),
    }
    degraded(job, status, seen, record, now);
    violated(world, job, status, berth, now);
}

/// "1 node", "2 nodes".
fn counted(count: usize, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

/// That a gang has started, in words.
#[must_use]
pub fn taken_text(pods: usize) -> String {
    format!("all pods exist, and their kubelets took them: {pods}")
}

fn name_of(berth: &Berth) -> &str {
    berth.metadata.name.as_deref().unwrap_or_default()
}

fn stopping_status(job: &TrainingJob, status: &mut TrainingJobStatus, cause: &str, now: Time) {
    let code: Code = cause.split('(').next().and_then(|c| c.parse().ok()).unwrap_or(Code::RolledBack);
    status.phase = Some(match code {
        Code::Suspended => Phase::Suspended,
        Code::RolledBack | Code::PodRefused | Code::NamespaceQuota | Code::StartRefused | Code::VolumeNotBound => {
            Phase::Pending
        }
        _ => Phase::Restarting,
    });
    let message = format!("stopped: {cause}");
    set(&mut status.conditions, conditions::STARTED, false, code, &message, job, now);
}

fn placement(
    world: &World,
    berth: &Berth,
    known: Option<&PlacementStatus>,
    record: Option<&Record>,
    fresh: bool,
) -> PlacementStatus {
    let number = |n: u32| i32::try_from(n).unwrap_or(i32::MAX);
    if let Some(quality) = record.and_then(|r| r.quality.as_ref()) {
        return PlacementStatus {
            level: Some(quality.level.to_string()),
            domain: Some(quality.domain.to_string()).filter(|d| !d.is_empty()),
            domains: number(quality.domains),
            domains_at_best: number(quality.domains_at_best),
            cross_edges: number(quality.cross_edges),
        };
    }
    if let Some(known) = known.filter(|_| !fresh) {
        return known.clone();
    }
    let topology = world.state.topology();
    let nodes = translate::berth::nodes_named(berth).into_iter().filter_map(|n| world.state.find_node(n));
    let level = topology
        .shared_depth(nodes)
        .map(|(depth, domain)| topology.pool(topology.domain(domain).pool).level_name(depth).to_owned());
    PlacementStatus { level, domain: berth.spec.domain.clone(), ..PlacementStatus::default() }
}

fn degraded(job: &TrainingJob, status: &mut TrainingJobStatus, seen: &Look, record: Option<&Record>, now: Time) {
    let lost = seen.seats.iter().filter_map(|s| match &s.fate {
        Fate::Lost(failure) => Some(format!("rank {} on {} ({})", s.rank, s.node, failure.reason)),
        _ => None,
    });
    let lost: Vec<String> = lost.collect();
    let trouble = record.and_then(|r| r.undo_trouble.as_deref());
    let all = &mut status.conditions;
    if let Some(trouble) = trouble {
        set(all, conditions::DEGRADED, true, Code::UndoFailed, trouble, job, now);
    } else if !lost.is_empty() {
        let shown = lost.iter().take(4).cloned().collect::<Vec<_>>().join(", ");
        let message = format!("{} of {} members lost: {shown}", lost.len(), seen.seats.len());
        set(all, conditions::DEGRADED, true, Code::MembersLost, &message, job, now);
    } else if all.iter().any(|c| c.type_ == conditions::DEGRADED) {
        set(all, conditions::DEGRADED, false, Code::Running, "all members are there", job, now);
    }
}

/// Whether a node has left the job's required domain since the start; the job runs on.
fn violated(world: &World, job: &TrainingJob, status: &mut TrainingJobStatus, berth: &Berth, now: Time) {
    let Some(level) = job.spec.topology.required.as_deref() else { return };
    let topology = world.state.topology();
    let nodes: Vec<_> =
        translate::berth::nodes_named(berth).into_iter().filter_map(|n| world.state.find_node(n)).collect();
    let within = topology.shared_depth(nodes.iter().copied()).is_some_and(|(depth, domain)| {
        topology.pool(topology.domain(domain).pool).depth_of(level).is_some_and(|wanted| depth >= wanted)
    });
    let all = &mut status.conditions;
    if !within {
        let message = format!("the nodes no longer share one {level}: a node's labels changed, or the node is gone");
        set(all, conditions::TOPOLOGY_VIOLATED, true, Code::TopologyViolated, &message, job, now);
    } else if all.iter().any(|c| c.type_ == conditions::TOPOLOGY_VIOLATED) {
        let message = format!("all nodes share one {level}");
        set(all, conditions::TOPOLOGY_VIOLATED, false, Code::Running, &message, job, now);
    }
}

// --- jobs that wait ---

fn waiting(
    job: &TrainingJob,
    status: &mut TrainingJobStatus,
    record: Option<&Record>,
    reserved: Option<&Berth>,
    berths: &Berths<'_>,
    now: Time,
) {
    status.placement = None;
    status.berth = reserved.and_then(|b| b.metadata.name.clone());
    if status.phase == Some(Phase::Suspended) && !job.spec.suspend {
        // Whoever comes back stands at the end of the line.
        status.queued_at = stamp(now);
    }
    let restarted = berths.released.last().and_then(|b| b.spec.stopping.as_ref()).is_some_and(|s| is_restart(&s.cause));
    if job.spec.suspend {
        status.phase = Some(Phase::Suspended);
        clear_waiting(status);
        set(&mut status.conditions, conditions::QUEUED, false, Code::Suspended, "spec.suspend is true", job, now);
        stop_conditions(job, status, Code::Suspended, "spec.suspend is true", now);
        return;
    }
    status.phase = Some(match (reserved, restarted) {
        (Some(_), _) => Phase::Reserved,
        (None, true) => Phase::Restarting,
        (None, false) => Phase::Pending,
    });
    let fault = record.and_then(|r| r.fault.as_ref());
    let blocked = record.and_then(|r| r.blocked.as_ref());
    let held = fault.or(blocked).or_else(|| record.and_then(|r| r.backoff.as_ref()));
    let waits = record.and_then(|r| r.waiting.as_ref());
    let (code, message) = pending(status, held, waits);
    if let (Some(pending), Some(record)) = (status.pending.as_mut().filter(|_| held.is_none()), record) {
        pending.unblock.clone_from(&record.unblock);
    }
    let expected = waits.and_then(|w| w.start).or(record.and_then(|r| r.estimate));
    eta(status, expected.filter(|_| held.is_none()), reserved);
    set(&mut status.conditions, conditions::QUEUED, true, code, &message, job, now);
    if let Some(berth) = reserved {
        let start = berth.spec.start.and_then(|t| seconds(translate::time::time(t)));
        let start = start.map_or_else(|| "a time not known".to_owned(), |t| t.whole_seconds().to_string());
        let message = format!("{} from {start}", counted(berth.spec.node_count(), "node"));
        set(&mut status.conditions, conditions::RESERVED, true, Code::Reserved, &message, job, now);
    } else if status.conditions.iter().any(|c| c.type_ == conditions::RESERVED) {
        set(&mut status.conditions, conditions::RESERVED, false, code, "no promise stands", job, now);
    }
    stop_conditions(job, status, code, &message, now);
}

/// What no longer holds once a job holds nothing.
fn stop_conditions(job: &TrainingJob, status: &mut TrainingJobStatus, code: Code, message: &str, now: Time) {
    let stale = [conditions::STARTED, conditions::DEGRADED, conditions::TOPOLOGY_VIOLATED];
    for kind in stale {
        let known = status.conditions.iter().find(|c| c.type_ == kind);
        if known.is_some_and(|c| c.status == "True") {
            set(&mut status.conditions, kind, false, code, message, job, now);
        }
    }
}

fn is_restart(cause: &str) -> bool {
    let code = cause.split('(').next().unwrap_or_default();
    [Code::Failed, Code::NodeLost, Code::Preempted, Code::Reclaimed, Code::Drained, Code::Repair]
        .iter()
        .any(|c| c.as_str() == code)
}

fn pending(status: &mut TrainingJobStatus, held: Option<&Held>, waits: Option<&Waits>) -> (Code, String) {
    if let Some(held) = held {
        status.pending = Some(PendingStatus {
            code: held.code.as_str().to_owned(),
            message: held.message.clone(),
            ..PendingStatus::default()
        });
        status.queue_position = None;
        return (held.code, held.message.clone());
    }
    let Some(waits) = waits else {
        status.pending = None;
        return (Code::Waiting, "waits for its turn".to_owned());
    };
    let domains = waits.domains.iter().map(|d| PendingDomain {
        domain: d.domain.to_string(),
        free: d.free.into(),
        held_by_plan: d.held_by_plan.into(),
        degraded: d.degraded.into(),
        short: d.short.into(),
    });
    status.queue_position = Some(waits.position.into());
    status.pending = Some(PendingStatus {
        code: waits.code.to_owned(),
        message: waits.message.clone(),
        domains: domains.collect(),
        ..PendingStatus::default()
    });
    (waits.code.parse().unwrap_or(Code::Waiting), waits.message.clone())
}

/// A promise as it stands, an estimate with `~`; small changes of an estimate are not worth a write.
fn eta(status: &mut TrainingJobStatus, expected: Option<Time>, reserved: Option<&Berth>) {
    let promised = reserved.and_then(|b| b.spec.start);
    let estimated = expected.and_then(seconds);
    if let Some(promised) = promised {
        status.estimated_start = Some(promised);
        status.eta = seconds(translate::time::time(promised)).map(|t| t.to_string());
        return;
    }
    let near = |known: Timestamp, next: Timestamp| (known.as_micros() - next.as_micros()).abs() < 60_000_000;
    match (estimated, status.estimated_start) {
        (Some(next), Some(known)) if near(known, next) && status.eta.as_ref().is_some_and(|e| e.starts_with('~')) => {}
        (Some(next), _) => {
            status.estimated_start = Some(next);
            status.eta = Some(format!("~{next}"));
        }
        (None, _) => {
            status.estimated_start = None;
            status.eta = None;
        }
    }
}
