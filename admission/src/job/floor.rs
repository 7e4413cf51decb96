//! A gang's floor against the limits of its queue and of those above: more than a limit never starts, more than what is
//! left of it only waits.

use super::{JobChange, queue_of};
use crate::verdict::Verdict;
use crate::world::World;
use crds::Code;
use crds::v1alpha1::{Communication, Queue, TrainingJob};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use planner::resources::Rounding;
use std::collections::BTreeMap;
use translate::amounts::{self, Named};

pub(super) fn judge(change: JobChange<'_>, queue: Option<&Queue>, world: &World, verdict: &mut Verdict) {
    let Some(queue) = queue else { return };
    let Some(floor) = floor_of(change.new) else { return };
    if !grew(change, &floor, world) {
        return;
    }
    let (name, _) = queue_of(change.new, world);
    let lineage: Vec<(&str, &Queue)> = std::iter::once((name.as_str(), queue)).chain(world.ancestors(queue)).collect();
    for (name, queue) in &lineage {
        plain_limits(change.new, name, queue, &floor, verdict);
    }
    pool_limits(change.new, &lineage, &floor, world, verdict);
    if !change.new.spec.preemptible {
        needs_guarantee(&name, queue, &floor, verdict);
    }
}

/// What all pods of the floor request together; none for a template that cannot be read, which is refused elsewhere.
fn floor_of(job: &TrainingJob) -> Option<Named> {
    let asks = translate::job::asks(job).ok()?;
    let mut sum = Named::new();
    for (role, ask) in job.spec.roles.iter().zip(asks) {
        for (name, amount) in ask.requests {
            let of_role = amount.saturating_mul(i64::from(role.floor().max(0)));
            let all = sum.entry(name).or_default();
            *all = all.saturating_add(of_role);
        }
    }
    Some(sum)
}

/// Whether the floor asks for more of anything than before, or of another queue.
fn grew(change: JobChange<'_>, floor: &Named, world: &World) -> bool {
    let Some(old) = change.old else { return true };
    let before = floor_of(old).unwrap_or_default();
    change.changed(|job| queue_of(job, world).0)
        || floor.iter().any(|(name, now)| *now > before.get(name).copied().unwrap_or(0))
}

fn amount_of(list: &BTreeMap<String, Quantity>, key: &str, resource: &str) -> Option<i64> {
    amounts::parse(resource, list.get(key)?, Rounding::Capacity).ok()
}

fn plain_limits(job: &TrainingJob, name: &str, queue: &Queue, floor: &Named, verdict: &mut Verdict) {
    for (resource, wanted) in floor {
        let Some(limit) = amount_of(&queue.spec.limit, resource, resource) else { continue };
        let text = |amount| amounts::quantity(resource, amount).0;
        if *wanted > limit {
            too_large(job, name, resource, &text(*wanted), &text(limit), verdict);
            continue;
        }
        let status = queue.status.as_ref();
        let used = status.and_then(|s| amount_of(&s.used, resource, resource)).unwrap_or(0);
        if used.saturating_add(*wanted) > limit {
            verdict.warn(format!(
                "the floor asks for {} {resource} and queue \"{name}\" has {} left of its limit of {}: the job waits until some are given back",
                text(*wanted),
                text((limit - used).max(0)),
                text(limit),
            ));
        }
    }
}

fn too_large(job: &TrainingJob, name: &str, resource: &str, wanted: &str, limit: &str, verdict: &mut Verdict) {
    let fault = format!(
        "that floor asks for {wanted} {resource}, more than the limit of queue \"{name}\", which is {limit}; lower minReplicas or the requests, or have the limit raised"
    );
    verdict.refuse(Code::FloorExceedsQueueLimit, "spec.roles", floor_text(job), &fault);
}

/// The floor in words: `a floor of 3 pods (launcher 1, worker 2)`.
pub(super) fn floor_text(job: &TrainingJob) -> String {
    let roles: Vec<String> = job.spec.roles.iter().map(|r| format!("{} {}", r.name, r.floor())).collect();
    format!("a floor of {} pods ({})", job.spec.floor_pods(), roles.join(", "))
}

/// A limit in one pool refuses a job only if there is no other pool to go to.
fn pool_limits(job: &TrainingJob, lineage: &[(&str, &Queue)], floor: &Named, world: &World, verdict: &mut Verdict) {
    // An Independent job may use several pools, so no single one bounds it.
    if job.spec.communication == Communication::Independent {
        return;
    }
    let capacity = world.capacity();
    let pools = capacity.tree.pools().iter().filter(|p| capacity.tree.domain(p.root).node_count() > 0);
    let mut barred = Vec::new();
    for pool in pools {
        let over = lineage.iter().find_map(|(name, queue)| {
            let found = floor.iter().find_map(|(resource, wanted)| {
                let limit = amount_of(&queue.spec.limit, &format!("{}/{resource}", pool.name), resource)?;
                (*wanted > limit).then_some((resource, *wanted, limit))
            });
            found.map(|(resource, wanted, limit)| (*name, resource, wanted, limit))
        });
        match over {
            Some(over) if !pool.name.is_empty() => barred.push((pool.name.clone(), over)),
            _ => return,
        }
    }
    if let Some((pool, (name, resource, wanted, limit))) = barred.first() {
        let text = |amount| amounts::quantity(resource, amount).0;
        too_large(job, name, &format!("{pool}/{resource}"), &text(*wanted), &text(*limit), verdict);
    }
}

/// A job that may not be preempted starts only within its queue's guarantee: a larger one cannot start as things stand.
fn needs_guarantee(name: &str, queue: &Queue, floor: &Named, verdict: &mut Verdict) {
    for (resource, wanted) in floor {
        let listed = amount_of(&queue.spec.guarantee, resource, resource);
        if listed.is_some_and(|guarantee| *wanted > guarantee)
            || (queue.spec.guarantee.is_empty() && resource == "pods")
        {
            verdict.warn(format!(
                "preemptible: false starts only within guarantees, and that of queue \"{name}\" is smaller than the floor: the job waits until it is raised"
            ));
            return;
        }
    }
}
