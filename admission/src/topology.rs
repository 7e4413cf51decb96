//! Rules of a `Topology` against the others, the nodes and the jobs that name its levels.

use crate::rules;
use crate::verdict::{Verdict, quoted};
use crate::world::World;
use crds::Code;
use crds::v1alpha1::Topology;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::core::{Selector, SelectorExt};
use std::collections::BTreeSet;

/// Judges a Topology that is made or changed.
pub fn validate(new: &Topology, old: Option<&Topology>, world: &World) -> Verdict {
    let mut verdict = Verdict::default();
    if new.metadata.deletion_timestamp.is_some() {
        return verdict;
    }
    let name = translate::key_of(new);
    rules::topology(new, old, &mut verdict);
    let selector = read(new.spec.nodes.as_ref());
    match &selector {
        Err(error) => {
            let fault = format!("{error}; use matchLabels, or matchExpressions with In, NotIn, Exists, DoesNotExist");
            verdict.refuse(Code::InvalidSpec, "spec.nodes", "", &fault);
        }
        Ok(selector) if old.is_none_or(|old| old.spec.nodes != new.spec.nodes) => {
            overlap(&name, selector.as_ref(), world, &mut verdict);
        }
        Ok(_) => {}
    }
    if let Some(old) = old {
        let kept = level_names(new);
        let gone = level_names(old).into_iter().filter(|level| !kept.contains(level));
        levels_stay(&name, gone, "spec.levels", world, &mut verdict);
    }
    verdict
}

/// Judges a Topology that is to go.
pub fn validate_delete(old: &Topology, world: &World) -> Verdict {
    let mut verdict = Verdict::default();
    levels_stay(&translate::key_of(old), level_names(old).into_iter(), "metadata.name", world, &mut verdict);
    verdict
}

fn read(selector: Option<&LabelSelector>) -> Result<Option<Selector>, String> {
    selector.map(|s| Selector::try_from(s.clone()).map_err(|e| e.to_string())).transpose()
}

fn level_names(topology: &Topology) -> BTreeSet<String> {
    topology.spec.effective_levels().into_iter().map(|level| level.name).collect()
}

/// Two Topologies must not select one node. Whether they ever could is not asked: only equal selectors are sure to, and
/// nodes that are there are looked at.
fn overlap(name: &str, selector: Option<&Selector>, world: &World, verdict: &mut Verdict) {
    for (other, topology) in world.topologies().filter(|(other, _)| *other != name) {
        let Ok(theirs) = read(topology.spec.nodes.as_ref()) else { continue };
        let fault = match (selector, &theirs) {
            (None, None) => format!(
                "Topology \"{other}\" has none either, so both would describe every node; select nodes in one of them"
            ),
            (Some(a), Some(b)) if a == b => {
                format!("Topology \"{other}\" selects the same nodes; make the selectors exclude each other")
            }
            (Some(a), Some(b)) => match world.nodes().find(|node| matches(a, node) && matches(b, node)) {
                Some(node) => format!(
                    "Topology \"{other}\" selects node \"{}\" too; make the selectors exclude each other",
                    translate::key_of(node)
                ),
                None => continue,
            },
            // One with a selector goes before one without.
            _ => continue,
        };
        let value = selector.map_or_else(|| "absent".to_owned(), |s| quoted(&s.to_string()));
        verdict.refuse(Code::TopologyOverlap, "spec.nodes", value, &fault);
    }
}

fn matches(selector: &Selector, node: &Node) -> bool {
    node.metadata.labels.as_ref().is_some_and(|labels| selector.matches(labels))
}

/// A level that living jobs name may go only while another Topology has it.
fn levels_stay(name: &str, gone: impl Iterator<Item = String>, field: &str, world: &World, verdict: &mut Verdict) {
    for level in gone {
        let elsewhere = world.topologies().any(|(other, t)| other != name && level_names(t).contains(&level));
        let users: Vec<&str> =
            world.jobs().filter(|(_, job)| job.living && job.levels.contains(&level)).map(|(key, _)| key).collect();
        if elsewhere || users.is_empty() {
            continue;
        }
        let more = if users.len() > 3 { format!(" and {} more", users.len() - 3) } else { String::new() };
        let first = users.iter().take(3).copied().collect::<Vec<_>>().join(", ");
        let fault =
            format!("level \"{level}\" would go, and jobs name it ({first}{more}); keep it until they have finished");
        let value = if field == "metadata.name" { quoted(name) } else { String::new() };
        verdict.refuse(Code::LevelInUse, field, value, &fault);
    }
}
