//! Claims of a gang that stands: their nodes are chosen and their volumes awaited before any pod is made, and volumes
//! that are made for each pod get the pod's own node as soon as their claims appear.

use super::leaving::stop_for;
use super::look::{Fate, Look};
use super::step::Verdict;
use crate::commit::converge::empty;
use crate::commit::{Journal, Selection, owner_uid};
use crate::state::{FlightKind, World};
use crds::names::annotations::SELECTED_NODE;
use crds::v1alpha1::TrainingJob;
use crds::{Code, Timestamp};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use planner::{Span, Time};
use std::collections::BTreeMap;
use translate::Constraints;
use translate::volumes::{self, ClaimState};

/// Volumes that were not made by then are not waited for.
const BOUND_WITHIN: Span = Span::from_secs(300);

/// What the claims of a gang need; none if they stand in nobody's way.
pub(super) fn claims(
    world: &World,
    key: &str,
    job: &TrainingJob,
    seen: &Look,
    now: Time,
    moment: Timestamp,
) -> Option<Verdict> {
    let makes = !seen.due().is_empty();
    // 1. Nodes for claims that have none.
    let mut selections = of_pods(world, seen);
    if makes {
        selections.extend(of_job(world, key, job, seen));
    }
    if !selections.is_empty() {
        let operation = crate::commit::Operation {
            claims: selections,
            ..empty(&seen.berth, Journal::Standing(seen.berth.clone()), moment)
        };
        return Some(Verdict::operate(FlightKind::Claims, operation));
    }
    // 2. Volumes before pods.
    makes.then(|| awaited(world, key, job, seen, now, moment)).flatten()
}

/// Choices for claims that all pods of a role share: the node of the role's first seat.
pub(crate) fn of_job(world: &World, key: &str, job: &TrainingJob, seen: &Look) -> Vec<Selection> {
    let first = |role: usize| seen.seats.iter().find(|s| s.role == role).map(|s| s.node.clone());
    selections(world, job, world.claims_to_select(key, job, first))
}

/// Names as choices, for claims that are there.
pub(crate) fn selections(world: &World, job: &TrainingJob, chosen: BTreeMap<String, String>) -> Vec<Selection> {
    let namespace = job.metadata.namespace.clone().unwrap_or_default();
    let choices = chosen.into_iter().filter_map(|(name, node)| {
        let uid = world.index.claims.get(&format!("{namespace}/{name}"))?.metadata.uid.clone()?;
        Some(Selection { namespace: namespace.clone(), name, uid, node })
    });
    choices.collect()
}

/// Choices for claims that were made for one pod: the node where it sits.
fn of_pods(world: &World, seen: &Look) -> Vec<Selection> {
    let alive = seen.seats.iter().filter(|s| matches!(s.fate, Fate::Alive { .. }));
    let mut all = Vec::new();
    for (seat, pod) in alive.filter_map(|s| Some((s, s.pod.as_ref()?))) {
        let Some(spec) = pod.spec.as_ref() else { continue };
        let namespace = pod.metadata.namespace.clone().unwrap_or_default();
        for name in volumes::ephemeral_claims(pod.metadata.name.as_deref().unwrap_or_default(), spec) {
            let Some(claim) = world.index.claims.get(&format!("{namespace}/{name}")) else { continue };
            let Some(uid) = claim.metadata.uid.clone() else { continue };
            if owner_uid(&claim.metadata) == pod.metadata.uid.as_deref() && waits_for_node(world, claim) {
                all.push(Selection { namespace: namespace.clone(), name, uid, node: seat.node.clone() });
            }
        }
    }
    all
}

fn waits_for_node(world: &World, claim: &PersistentVolumeClaim) -> bool {
    let chosen = claim.metadata.annotations.iter().any(|a| a.contains_key(SELECTED_NODE));
    !chosen && matches!(volumes::state_of(claim, &world.index), ClaimState::ForFirstPod(_))
}

/// The wait for volumes that are being made, with its end; and volumes that were made where the gang cannot use them.
fn awaited(world: &World, key: &str, job: &TrainingJob, seen: &Look, now: Time, moment: Timestamp) -> Option<Verdict> {
    for row in 0..job.spec.roles.len() {
        match world.reach_of_role(key, job, row) {
            Err(trouble) => {
                let end = translate::berth::window(&seen.berth.spec).0.unwrap_or(now) + BOUND_WITHIN;
                if now < end {
                    return Some(Verdict::rest().due_at(Some(end)));
                }
                return Some(stop_for(world, job, seen, Code::VolumeNotBound, &trouble.message, None, moment));
            }
            Ok(affinities) => {
                let reached = affinities.iter().try_fold(Constraints::default(), Constraints::with_volume).ok()?;
                let out = seen
                    .seats
                    .iter()
                    .filter(|s| s.role == row && s.fate == Fate::Missing)
                    .find(|s| world.index.nodes.get(&s.node).is_some_and(|node| !reached.reaches(node)));
                if let Some(seat) = out {
                    let object = format!(
                        "a volume of role {} was made where {} cannot use it",
                        job.spec.roles[row].name, seat.node
                    );
                    return Some(stop_for(world, job, seen, Code::VolumeNotBound, &object, None, moment));
                }
            }
        }
    }
    None
}
