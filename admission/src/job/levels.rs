//! The levels that a job names: they must exist, and be in the right order in some Topology.

use super::JobChange;
use crate::verdict::{Missing, Verdict, listed, quoted};
use crate::world::World;
use crds::Code;
use crds::v1alpha1::{NODE_LEVEL, Topology};
use std::collections::BTreeSet;

pub(super) fn judge(change: JobChange<'_>, world: &World, verdict: &mut Verdict) {
    let topology = &change.new.spec.topology;
    let (required, preferred) = (topology.required.as_deref(), topology.preferred.as_deref());
    if change.changed(|job| (job.spec.topology.required.clone(), job.spec.topology.preferred.clone())) {
        let known = required.is_none_or(|l| exists("spec.topology.required", l, world, verdict));
        let known = preferred.is_none_or(|l| exists("spec.topology.preferred", l, world, verdict)) && known;
        if let (Some(required), Some(preferred), true) = (required, preferred, known) {
            narrower(required, preferred, world, verdict);
        }
    }
    for (row, role) in change.new.spec.roles.iter().enumerate() {
        let Some(slice) = &role.slice else { continue };
        let of_role = |job: &crds::TrainingJob| {
            let role = job.spec.roles.iter().find(|r| r.name == role.name);
            (role.and_then(|r| r.slice.clone()).map(|s| s.within), job.spec.topology.required.clone())
        };
        let field = format!("spec.roles[{row}].slice.within");
        if change.changed(of_role)
            && exists(&field, &slice.within, world, verdict)
            && let Some(required) = required
        {
            not_wider(&field, required, &slice.within, world, verdict);
        }
    }
}

/// Depth of a level in a Topology, counted from the broadest.
fn depth(topology: &Topology, level: &str) -> Option<usize> {
    let levels = topology.spec.effective_levels();
    if level == NODE_LEVEL { Some(levels.len()) } else { levels.iter().position(|l| l.name == level) }
}

/// In each Topology that has both: how deep they are.
fn depths(a: &str, b: &str, world: &World) -> Vec<(usize, usize)> {
    world.topologies().filter_map(|(_, t)| Some((depth(t, a)?, depth(t, b)?))).collect()
}

fn exists(field: &str, level: &str, world: &World, verdict: &mut Verdict) -> bool {
    if level == NODE_LEVEL || world.topologies().any(|(_, t)| depth(t, level).is_some()) {
        return true;
    }
    let levels: Vec<String> = world.topologies().flat_map(|(_, t)| t.spec.effective_levels()).map(|l| l.name).collect();
    let mut seen = BTreeSet::new();
    let distinct = levels.iter().map(String::as_str).filter(|l| seen.insert(*l)).chain([NODE_LEVEL]);
    let fault = format!("no Topology has a level of that name; name {}", listed(distinct.collect::<Vec<_>>()));
    verdict.refuse(Code::UnknownLevel, field, quoted(level), &fault);
    verdict.miss(Missing::Level(level.to_owned()));
    false
}

fn narrower(required: &str, preferred: &str, world: &World, verdict: &mut Verdict) {
    // Equal names are refused by the job's own rules.
    let both = depths(required, preferred, world);
    if required == preferred || both.iter().any(|(r, p)| p > r) || (both.is_empty() && preferred == NODE_LEVEL) {
        return;
    }
    let fault = if both.is_empty() {
        format!(
            "no Topology has both it and the required level \"{required}\"; name a narrower level of the same Topology"
        )
    } else {
        format!("it is wider than the required level \"{required}\"; name a narrower one, or leave it out")
    };
    verdict.refuse(Code::PreferredNotNarrower, "spec.topology.preferred", quoted(preferred), &fault);
}

fn not_wider(field: &str, required: &str, within: &str, world: &World, verdict: &mut Verdict) {
    let both = depths(required, within, world);
    if required == within || within == NODE_LEVEL || both.iter().any(|(r, w)| w >= r) {
        return;
    }
    let fault = if both.is_empty() {
        format!("no Topology has both it and spec.topology.required \"{required}\"; name a level of the same Topology")
    } else {
        format!("it is wider than spec.topology.required, which is \"{required}\"; name that level or a narrower one")
    };
    verdict.refuse(Code::SliceWiderThanRequired, field, quoted(within), &fault);
}
