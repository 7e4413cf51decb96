//! Law 4: a promise is kept. It moves later, is dropped or loses its domain only by a cause of the closed list that
//! names an object which could be it; it is not passed over when it is due.

use super::fate::{Change, Fate, Promise};
use super::places::{keeps_preferred, same_domain, unusable};
use super::violation::{Name, Violation};
use super::{Case, Scope, gang, nodes_of};
use crate::ids::{JobIdx, QueueIdx};
use crate::job::{Job, JobSpec, Phase, Placement, Reservation, Seat};
use crate::plan::Cause;
use crate::queue::QueueState;
use crate::state::NodeState;
use crate::time::Time;

pub(super) fn check(case: &Case<'_>, found: &mut Vec<Violation>) {
    for fate in case.fates.values() {
        made_in_time(case, fate, found);
        fate.changes.iter().for_each(|change| changed(case, fate, change, found));
        held(case, fate, found);
        if let Some((begin, promise)) = fate.begin.and_then(|b| Some((b, b.promise?))) {
            // What starts early may not lose the preferred domain it would soon have had.
            let early = case.snapshot.now < promise.start && in_patience(fate.job, promise.start);
            let floor = at_floor(&fate.job.spec, begin.placement);
            if early && !keeps_preferred(case, &fate.job.spec, promise.placement, &floor) {
                found.push(domain_lost(&fate.job.spec, fate.job.spec.locality.preferred.clone().unwrap_or_default()));
            }
        }
    }
    standing(case, found);
}

fn made_in_time(case: &Case<'_>, fate: &Fate<'_>, found: &mut Vec<Violation>) {
    let clearing = fate.job.waiting().and_then(|w| w.reservation.as_ref()).is_some_and(|r| r.clearing);
    let now_will_do = clearing || !fate.clears.is_empty();
    for Promise { start, .. } in gang::made(fate) {
        if start < case.snapshot.now || (start == case.snapshot.now && !now_will_do) {
            found.push(Violation::PromiseNotLater { job: fate.job.spec.key.clone(), start });
        }
    }
}

/// Nothing starts, and nothing is promised anew, in a queue that starts nothing or while something outside holds it.
fn held(case: &Case<'_>, fate: &Fate<'_>, found: &mut Vec<Violation>) {
    if fate.begin.is_none() && gang::made(fate).next().is_none() {
        return;
    }
    let outside = fate.job.waiting().and_then(|w| w.hold.as_ref()).map(|h| h.detail.clone());
    if let Some(by) = outside.or_else(|| closed_queue(case, fate.job)) {
        found.push(Violation::Held { job: fate.job.spec.key.clone(), by });
    }
}

/// The queue above a job, its own included, that starts nothing.
fn closed_queue(case: &Case<'_>, job: &Job) -> Option<Name> {
    let mut at = job.spec.queue;
    loop {
        let queue = case.snapshot.state.queue(at);
        if queue.state != QueueState::Open {
            return Some(queue.name.clone());
        }
        if at == QueueIdx::ROOT {
            return None;
        }
        at = queue.parent;
    }
}

fn in_patience(job: &Job, at: Time) -> bool {
    at <= job.queued_at + job.spec.locality.patience
}

/// The seats of the floor: surplus may be wherever the required level allows.
fn at_floor(spec: &JobSpec, placement: &Placement) -> Placement {
    let of_floor = |s: &&Seat| spec.roles.get(usize::from(s.role)).is_some_and(|role| s.index < role.floor);
    Placement { seats: placement.seats.iter().filter(of_floor).copied().collect() }
}

fn domain_lost(spec: &JobSpec, level: Name) -> Violation {
    Violation::DomainLost { job: spec.key.clone(), level }
}

/// One change of a standing promise.
fn changed(case: &Case<'_>, fate: &Fate<'_>, change: &Change<'_>, found: &mut Vec<Violation>) {
    let spec = &fate.job.spec;
    let Change { before, after, cause } = change;
    let later = after.is_none_or(|a| a.start > before.start);
    if let Some(cause) = cause {
        if !genuine(case, fate, before, cause) {
            found.push(Violation::FalseCause { job: spec.key.clone(), cause: cause.to_string() });
        }
        if later && postponed_too_far(case, fate, change) {
            found.push(Violation::PostponedTooFar { job: spec.key.clone() });
        }
        return;
    }
    match after {
        Some(after) if !later => {
            let keeps = if after.start == before.start {
                same_domain(case, spec, before.placement, after.placement)
            } else if in_patience(fate.job, before.start) {
                let keeps = keeps_preferred(case, spec, before.placement, after.placement);
                keeps.then_some(()).ok_or_else(|| spec.locality.preferred.clone().unwrap_or_default())
            } else {
                Ok(())
            };
            found.extend(keeps.err().map(|level| domain_lost(spec, level)));
        }
        _ => found.push(Violation::MovedWithoutCause {
            job: spec.key.clone(),
            from: before.start,
            to: after.map(|a| a.start),
        }),
    }
}

fn postponed_too_far(case: &Case<'_>, fate: &Fate<'_>, change: &Change<'_>) -> bool {
    let Some((after, Cause::HigherPriority(_))) = change.after.zip(change.cause) else { return false };
    let so_far = fate.job.waiting().map(|w| w.postponed).unwrap_or_default();
    so_far + after.start.since(change.before.start) > case.policy.max_postponement
}

/// Whether the object a cause names exists and could be the cause.
fn genuine(case: &Case<'_>, fate: &Fate<'_>, before: &Promise<'_>, cause: &Cause) -> bool {
    let (own, now) = (&fate.job.spec, case.snapshot.now);
    let job = |key: &Name| case.snapshot.state.jobs().find(|(_, j)| j.spec.key == *key);
    let node = |name: &Name, so: &dyn Fn(&NodeState) -> bool| {
        let there = case.snapshot.state.find_node(name);
        there.is_some_and(|n| so(case.snapshot.state.node(n)) && case.node_name(n) == *name)
    };
    let of_it = |name: &Name| before.placement.seats.iter().any(|s| case.node_name(s.node) == *name);
    match cause {
        Cause::NodeLost(name) => node(name, &|n| n.lost),
        Cause::NodeUnusable(name) => of_it(name) || node(name, &|n| n.closed || n.lost),
        Cause::TopologyChanged(name) => node(name, &|_| true),
        Cause::ForeignPod(name) => node(name, &|n| n.foreign.iter().next().is_some()),
        Cause::Maintenance(name) => node(name, &|n| !n.unavailable.is_empty()),
        Cause::Overrun(key) => job(key).is_some_and(|(_, j)| over_time(j, now)),
        Cause::QueueEdited(name) => case.snapshot.state.queues().iter().any(|q| q.name == *name),
        Cause::JobEdited(key) => *key == own.key,
        Cause::HigherPriority(key) => {
            job(key).is_some_and(|(_, j)| j.spec.queue == own.queue && j.spec.priority > own.priority)
        }
        // In its own queue, a job whose private start has come goes before promises on borrowed room (decision 14).
        Cause::Entitled(key) => {
            let private = |j: &Job| started_privately(j).is_some_and(|at| at <= now);
            job(key).is_some_and(|(_, j)| j.spec.queue != own.queue || private(j))
        }
        Cause::Repair(key) => job(key).is_some_and(|(row, j)| under_repair(case, row, j)),
        Cause::StartRefused(object) => !object.is_empty(),
    }
}

fn started_privately(job: &Job) -> Option<Time> {
    match &job.phase {
        Phase::Waiting(waiting) => waiting.private_start,
        Phase::Running(running) => running.private_start,
        Phase::Leaving(_) => None,
    }
}

fn over_time(job: &Job, now: Time) -> bool {
    let held = match &job.phase {
        Phase::Running(running) => running.ends <= now,
        Phase::Leaving(leaving) => leaving.gone_by <= now,
        Phase::Waiting(_) => false,
    };
    held || job.shedding.iter().any(|(_, until)| *until <= now)
}

fn under_repair(case: &Case<'_>, row: JobIdx, job: &Job) -> bool {
    match &job.phase {
        Phase::Running(running) => !running.lost.is_empty(),
        Phase::Waiting(waiting) => waiting.repair || waiting.requeued,
        Phase::Leaving(_) => case.fates.contains_key(&row),
    }
}

/// All promises after the plan: their number, and that none is passed over.
fn standing(case: &Case<'_>, found: &mut Vec<Violation>) {
    let (mut count, mut made) = (0u32, 0u32);
    for (row, job) in case.snapshot.state.jobs() {
        let Phase::Waiting(waiting) = &job.phase else { continue };
        let fate = case.fates.get(&row);
        count += u32::from(fate.map_or(waiting.reservation.is_some(), |f| f.promise.is_some()));
        made += u32::from(fate.is_some_and(|f| f.reserved && f.promise.is_some()));
        let left_alone = fate.is_none_or(|f| f.begin.is_none() && f.changes.is_empty());
        if let Some(reservation) = waiting.reservation.as_ref().filter(|_| left_alone && waiting.hold.is_none()) {
            passed_over(case, row, job, reservation, found);
        }
    }
    if made > 0 && count > case.policy.max_reservations {
        found.push(Violation::TooManyReservations { count, most: case.policy.max_reservations });
    }
}

fn passed_over(case: &Case<'_>, row: JobIdx, job: &Job, promise: &Reservation, found: &mut Vec<Violation>) {
    let key = &job.spec.key;
    let Reservation { start, end, placement, clearing, .. } = promise;
    if *start <= case.snapshot.now && !(*clearing && somebody_leaves(case, row)) {
        found.push(Violation::PromiseIgnored { job: key.clone(), start: *start });
    }
    if case.scope == Scope::Everything {
        let bad = |n: &crate::ids::NodeIdx| unusable(case, key, *n, (*start).max(case.snapshot.now), *end).is_some();
        if let Some(node) = nodes_of(placement).into_iter().find(bad) {
            found.push(Violation::PromiseOnUnusableNode { job: key.clone(), node: case.node_name(node) });
        }
        if let Some(by) = closed_queue(case, job) {
            found.push(Violation::Held { job: key.clone(), by });
        }
    }
}

/// Whether some victim of a job is still on its way out.
fn somebody_leaves(case: &Case<'_>, taker: JobIdx) -> bool {
    case.snapshot.state.jobs().any(|(_, job)| {
        let leaves = matches!(&job.phase, Phase::Leaving(l) if l.taker == Some(taker));
        leaves || !job.shedding.is_empty()
    })
}
