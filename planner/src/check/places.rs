//! Law 3, and the nodes' own part of law 2: nothing new on nodes that are excluded, closed, lost or announced to be
//! away; one pool, one domain of the required level, whole slices together; changes in place stay where the gang runs.

use super::fate::Fate;
use super::holding::beyond;
use super::violation::{Name, Violation};
use super::{Case, gang, nodes_of};
use crate::ids::{DomainIdx, NodeIdx};
use crate::job::{Communication, JobSpec, Placement, Running, Seat};
use crate::time::Time;
use crate::topology::NODE_LEVEL;

pub(super) fn check(case: &Case<'_>, found: &mut Vec<Violation>) {
    let now = case.snapshot.now;
    for fate in case.fates.values() {
        let spec = &fate.job.spec;
        if let Some(begin) = fate.begin {
            allowed(case, spec, &begin.placement.seats, now, begin.ends, found);
            located(case, spec, begin.placement, found);
        }
        for promise in gang::made(fate) {
            allowed(case, spec, &promise.placement.seats, promise.start, promise.end, found);
            located(case, spec, promise.placement, found);
        }
        if let (Some(running), Some(after)) = (fate.job.running(), fate.reshaped) {
            in_place(case, fate, running, after, found);
        }
    }
}

/// Where a node is, seen from one level: in a known domain, or alone.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Spot {
    Domain(DomainIdx),
    Alone(NodeIdx),
}

fn spot(case: &Case<'_>, node: NodeIdx, level: &str) -> Spot {
    let topology = case.snapshot.state.topology();
    let mut at = topology.innermost(node);
    let levels = &topology.pool(topology.domain(at).pool).levels;
    let Some(row) = levels.iter().position(|l| level != NODE_LEVEL && &*l.name == level) else {
        return Spot::Alone(node);
    };
    loop {
        let domain = topology.domain(at);
        match (usize::from(domain.depth.0), domain.parent) {
            (depth, _) if depth == row + 1 => return Spot::Domain(at),
            (depth, Some(parent)) if depth > row + 1 => at = parent,
            _ => return Spot::Alone(node),
        }
    }
}

/// Whether all these nodes are in one known domain of a level; a single node is with itself at any level.
pub(super) fn together(case: &Case<'_>, nodes: &[NodeIdx], level: &str) -> bool {
    let mut spots = nodes.iter().map(|n| spot(case, *n, level));
    let Some(first) = spots.next() else { return true };
    spots.all(|s| s == first)
}

fn pool(case: &Case<'_>, node: NodeIdx) -> u32 {
    case.snapshot.state.topology().domain(case.snapshot.state.topology().innermost(node)).pool.0
}

fn one_pool(case: &Case<'_>, nodes: &[NodeIdx]) -> bool {
    nodes.windows(2).all(|w| pool(case, w[0]) == pool(case, w[1]))
}

/// Seats on nodes that their shapes allow and that are usable throughout a window.
fn allowed(case: &Case<'_>, spec: &JobSpec, seats: &[Seat], from: Time, until: Time, found: &mut Vec<Violation>) {
    let mut checked: Option<NodeIdx> = None;
    for seat in seats {
        let shape = case.snapshot.state.shapes.get(spec.roles[usize::from(seat.role)].shape);
        if !shape.eligible.contains(seat.node) {
            found.push(Violation::NotEligible { job: spec.key.clone(), node: case.node_name(seat.node) });
        }
        if checked != Some(seat.node) {
            checked = Some(seat.node);
            found.extend(unusable(case, &spec.key, seat.node, from, until));
        }
    }
}

/// Why a node cannot be used during a window, if so.
pub(super) fn unusable(case: &Case<'_>, job: &Name, node: NodeIdx, from: Time, until: Time) -> Option<Violation> {
    let state = case.snapshot.state.node(node);
    let (job, name) = (job.clone(), case.node_name(node));
    if state.closed || state.lost {
        return Some(Violation::UnusableNode { job, node: name });
    }
    let (from, until) = state.unavailable.iter().find(|(a, b)| *a < until && from < *b).copied()?;
    Some(Violation::InMaintenance { job, node: name, from, until })
}

/// A whole gang in one pool and one required domain, its slices each in theirs.
fn located(case: &Case<'_>, spec: &JobSpec, placement: &Placement, found: &mut Vec<Violation>) {
    let nodes = nodes_of(placement);
    if spec.communication != Communication::Independent && !one_pool(case, &nodes) {
        found.push(Violation::SpansPools { job: spec.key.clone() });
    }
    if let Some(level) = spec.locality.required.as_ref().filter(|level| !together(case, &nodes, level)) {
        found.push(Violation::SpansDomains { job: spec.key.clone(), level: level.clone() });
    }
    slices(case, spec, placement, |_| true, found);
}

/// Each slice with a seat that matters is in one domain of its level.
fn slices(
    case: &Case<'_>,
    spec: &JobSpec,
    placement: &Placement,
    matters: impl Fn(&Seat) -> bool,
    found: &mut Vec<Violation>,
) {
    for (row, role) in spec.roles.iter().enumerate() {
        let Some(slice) = &role.slice else { continue };
        let size = slice.size.max(1);
        let seats: Vec<&Seat> = placement.seats.iter().filter(|s| usize::from(s.role) == row).collect();
        for chunk in seats.chunk_by(|a, b| a.index / size == b.index / size) {
            let nodes: Vec<NodeIdx> = chunk.iter().map(|s| s.node).collect();
            if chunk.iter().any(|s| matters(s)) && !together(case, &nodes, &slice.within) {
                found.push(Violation::SliceSplit {
                    job: spec.key.clone(),
                    role: role.name.clone(),
                    slice: chunk[0].index / size,
                    level: slice.within.clone(),
                });
                break;
            }
        }
    }
}

/// Growth, shrinking and replacement of a gang that runs.
fn in_place(case: &Case<'_>, fate: &Fate<'_>, running: &Running, after: &Placement, found: &mut Vec<Violation>) {
    let spec = &fate.job.spec;
    let (gone, new) = (beyond(&running.placement, after), beyond(after, &running.placement));
    if let Err(why) = change_is_allowed(case, fate, running, &gone, &new) {
        found.push(Violation::ChangeForbidden { job: spec.key.clone(), why });
    }
    let lost = |s: &Seat| running.lost.contains(&rank(spec, s));
    let same_rank = |a: &Seat, b: &Seat| (a.role, a.index) == (b.role, b.index);
    for seat in new.iter().filter(|n| gone.iter().any(|g| same_rank(g, n) && !lost(g))) {
        found.push(Violation::RankMoved { job: spec.key.clone(), rank: rank(spec, seat) });
    }
    let kept: Vec<NodeIdx> =
        running.placement.seats.iter().filter(|s| !lost(s) && !gone.contains(s)).map(|s| s.node).collect();
    allowed(case, spec, &new, case.snapshot.now, running.ends.max(case.snapshot.now), found);
    stays(case, spec, &kept, &new, found);
    slices(case, spec, after, |s| new.contains(s), found);
}

/// Rank of a seat: the replicas of the roles before, and its index.
fn rank(spec: &JobSpec, seat: &Seat) -> u32 {
    spec.roles.iter().take(usize::from(seat.role)).map(|r| r.replicas).sum::<u32>() + seat.index
}

fn change_is_allowed(
    case: &Case<'_>,
    fate: &Fate<'_>,
    running: &Running,
    gone: &[Seat],
    new: &[Seat],
) -> Result<(), &'static str> {
    let spec = &fate.job.spec;
    let swapped = |s: &Seat, to: bool| {
        fate.swaps.iter().any(|(r, old, fresh)| *r == rank(spec, s) && s.node == if to { *fresh } else { *old })
    };
    let grows = new.iter().any(|s| !swapped(s, true));
    let shrinks = gone.iter().any(|s| !swapped(s, false));
    if running.settling {
        return Err("its start is not finished");
    }
    if !fate.swaps.is_empty() && !spec.replaces_members {
        return Err("it restarts as a whole when it loses a member");
    }
    if fate.swaps.iter().any(|(rank, ..)| !running.lost.contains(rank)) {
        return Err("a member that is not lost would be replaced");
    }
    if (grows || shrinks) && !spec.resizable {
        return Err("its framework cannot change its size");
    }
    if grows && shrinks {
        return Err("it would grow and shrink at once");
    }
    // The start itself was no change of size.
    let unchanged = running.resized <= running.started;
    let rested = unchanged || case.snapshot.now.since(running.resized) >= case.policy.resize_interval;
    if grows && !rested {
        return Err("its size was changed less than resizeInterval ago");
    }
    Ok(())
}

/// New seats share the required domain (the pool without one) with members that run on.
fn stays(case: &Case<'_>, spec: &JobSpec, kept: &[NodeIdx], new: &[Seat], found: &mut Vec<Violation>) {
    let outside = |level: &str, node: NodeIdx| Violation::OutsideDomainInUse {
        job: spec.key.clone(),
        level: level.into(),
        node: case.node_name(node),
    };
    let nodes: Vec<NodeIdx> = new.iter().map(|s| s.node).collect();
    let anchors = if kept.is_empty() { &nodes[..nodes.len().min(1)] } else { kept };
    if let Some(level) = &spec.locality.required {
        let mut homes: Vec<Spot> = Vec::new();
        for at in anchors.iter().map(|n| spot(case, *n, level)) {
            if !homes.contains(&at) {
                homes.push(at);
            }
        }
        found.extend(nodes.iter().filter(|n| !homes.contains(&spot(case, **n, level))).map(|n| outside(level, *n)));
    }
    if spec.communication != Communication::Independent {
        let home = |n: &&NodeIdx| !anchors.iter().any(|a| pool(case, *a) == pool(case, **n));
        found.extend(nodes.iter().filter(home).map(|n| outside("cluster", *n)));
    }
}

/// The domain a job was promised: one of its preferred level if it had that, of the required one, of the pool. Without
/// the nodes of a cause, which need not be kept.
pub(super) fn same_domain(case: &Case<'_>, spec: &JobSpec, before: &Placement, after: &Placement) -> Result<(), Name> {
    let old = nodes_of(before);
    let both: Vec<NodeIdx> = old.iter().copied().chain(nodes_of(after)).collect();
    let levels = [spec.locality.preferred.as_ref(), spec.locality.required.as_ref()];
    if let Some(level) = levels.into_iter().flatten().find(|level| together(case, &old, level)) {
        // A gang promised one node whose path is unknown has no domain to lose.
        let kept = together(case, &both, level) || !known(case, &old, level);
        return if kept { Ok(()) } else { Err(level.clone()) };
    }
    let free = spec.communication == Communication::Independent || one_pool(case, &both);
    if free { Ok(()) } else { Err("cluster".into()) }
}

fn known(case: &Case<'_>, nodes: &[NodeIdx], level: &str) -> bool {
    nodes.first().is_some_and(|n| matches!(spot(case, *n, level), Spot::Domain(_)))
}

/// Whether a gang promised within one preferred domain still gets one.
pub(super) fn keeps_preferred(case: &Case<'_>, spec: &JobSpec, before: &Placement, after: &Placement) -> bool {
    let Some(level) = &spec.locality.preferred else { return true };
    !together(case, &nodes_of(before), level) || together(case, &nodes_of(after), level)
}
