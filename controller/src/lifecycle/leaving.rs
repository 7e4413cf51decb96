//! How a Berth goes: marked with its cause, its pods told to go, given back when none is left; and what is left of
//! earlier incarnations and of namesakes.

use super::look::Look;
use super::step::{Step, Verdict, grace_seconds};
use crate::commit::converge::{Sight, converge, empty, stop};
use crate::commit::{Journal, Operation, is_terminal, owner_uid};
use crate::state::{FlightKind, World};
use crds::names::finalizers;
use crds::v1alpha1::{TrainingJob, TrainingJobStatus};
use crds::{Berth, Code, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use planner::Time;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Released Berths that are kept for people to read.
const KEPT: usize = 3;

/// A job that is gone or cannot be read: only Berths that were deleted go on their way.
pub(super) fn orphans(world: &World, key: &str, now: Timestamp) -> Verdict {
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

pub(super) fn leftovers(world: &World, key: &str, job: &TrainingJob, now: Timestamp) -> Option<Verdict> {
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

pub(super) fn leave(world: &World, key: &str, job: &TrainingJob, berth: &Arc<Berth>, now: Timestamp) -> Verdict {
    let grace = berth.spec.stopping.as_ref().and_then(|s| s.grace_period_seconds);
    let grace = grace.and_then(|g| u32::try_from(g).ok()).unwrap_or_else(|| grace_seconds(job));
    match converge(sight(world, key, berth, grace, now)) {
        Some(operation) => Verdict::operate(kind_of(&operation), operation),
        None => Verdict::rest(),
    }
}

pub(super) fn drop_reservation(berth: &Arc<Berth>, now: Timestamp) -> Verdict {
    Verdict::operate(FlightKind::Drop, empty(berth, Journal::Delete(berth.clone()), now))
}

/// A deleted job without a Berth in force: its finalizer goes when no pod of it is left.
pub(super) fn gone(world: &World, key: &str, job: &TrainingJob, no_berths: bool) -> Verdict {
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
pub(super) fn at_rest(job: &TrainingJob, now: Time) -> Verdict {
    let ttl = job.spec.ttl_after_finished.map(translate::time::span);
    let ended = job.status.as_ref().and_then(|s| s.finished_at).map(translate::time::time);
    match (ttl, ended) {
        (Some(ttl), Some(ended)) if now >= ended + ttl => Verdict::of(Step::Delete),
        (Some(ttl), Some(ended)) => Verdict::rest().due_at(Some(ended + ttl)),
        _ => Verdict::rest(),
    }
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
