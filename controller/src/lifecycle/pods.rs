//! The objects made for a Berth: pods of seats, complete and bound, and what they need beside them.

use crate::commit::Companion;
use crate::state::World;
use crate::state::seat_of;
use crds::Berth;
use crds::v1alpha1::TrainingJob;
use k8s_openapi::api::core::v1::Pod;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use translate::TranslateError;
use translate::lifecycle::environment::{Member, members};
use translate::lifecycle::naming;
use translate::lifecycle::objects;
use translate::lifecycle::pod::{PodArgs, pod_of};

/// What is to be made.
#[derive(Debug, Default)]
pub struct Making {
    /// Pods, by rank.
    pub pods: Vec<Arc<Pod>>,
    /// One pod of each role among them, for dry runs.
    pub probes: Vec<Arc<Pod>>,
    /// What they need beside them.
    pub companions: Vec<Companion>,
}

/// Makes the pods of those seats of a Berth that `wanted` names an attempt for.
///
/// # Errors
/// If the job cannot be read as stored.
pub fn making(
    world: &World,
    key: &str,
    job: &TrainingJob,
    berth: &Berth,
    wanted: impl Fn(&Member<'_>) -> Option<u32>,
) -> Result<Making, TranslateError> {
    // A Berth that is about to be created has no uid yet; the protocol sets the true owner when it has.
    let mut stored = berth.clone();
    stored.metadata.uid.get_or_insert_with(|| "to-be-created".to_owned());
    let queue = translate::job::queue_name(job, world.annotations_of(job));
    let queue = world.index.queues.get(queue).map(AsRef::as_ref);
    let class = translate::job::priority_class(job, queue, &world.classes);
    let mut making = Making::default();
    let mut probed = BTreeSet::new();
    for member in members(job, &stored) {
        let Some(attempt) = wanted(&member) else { continue };
        let args = PodArgs { job, berth: &stored, member: &member, attempt, priority_class: class, leader_epoch: 0 };
        let pod = Arc::new(pod_of(&args)?);
        if probed.insert(member.role) {
            making.probes.push(pod.clone());
        }
        making.pods.push(pod);
    }
    let known = world.records.get(key).is_some_and(|r| r.companions_made);
    if !known && !making.pods.is_empty() {
        making.companions.extend(objects::service(job)?.map(|s| Companion::Service(Arc::new(s))));
        making.companions.extend(super::keys::ssh_secret(job).map(|s| Companion::Secret(Arc::new(s))));
    }
    // The host file is that of the incarnation: each start writes it anew.
    if !making.pods.is_empty() {
        making.companions.extend(objects::hosts(job, &stored)?.map(|c| Companion::ConfigMap(Arc::new(c))));
    }
    Ok(making)
}

/// The number of the next attempt for each seat that had pods: one more than the last that is still known.
#[must_use]
pub fn attempts(world: &World, key: &str, job: &TrainingJob) -> BTreeMap<(String, i32), u32> {
    let name = job.metadata.name.as_deref().unwrap_or_default();
    let mut next = BTreeMap::new();
    for (_, pod) in world.index.pods_of_job(key) {
        let (Some(role), Some(index)) = seat_of(pod) else { continue };
        let index = i32::try_from(index).unwrap_or(i32::MAX);
        let pod = pod.metadata.name.as_deref().unwrap_or_default();
        let attempt = naming::attempt_of(pod, name, role, index).unwrap_or(0) + 1;
        let most = next.entry((role.to_owned(), index)).or_insert(attempt);
        *most = attempt.max(*most);
    }
    next
}

/// The attempt to make for a member: 1 where no pod of its seat is known.
#[must_use]
pub fn attempt_for(attempts: &BTreeMap<(String, i32), u32>, member: &Member<'_>) -> u32 {
    attempts.get(&(member.role_name.to_owned(), member.index)).copied().unwrap_or(1)
}
