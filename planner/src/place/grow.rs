//! Changes to a gang that runs: room for more pods, and for lost ones.

use super::pack::Rest;
use crate::ids::{DomainIdx, NodeIdx};
use crate::job::{Communication, JobSpec, Placement};
use crate::room::Room;
use crate::topology::{Depth, Topology};
use std::collections::BTreeMap;

/// Nodes for `count` more pods of a role (one step, or one slice), in the order of their indexes: inside the domain of
/// the required level in use (else the pool), nearest to the job's nodes first. `scope` narrows it further.
#[must_use]
pub fn extend<R: Room>(
    room: &R,
    spec: &JobSpec,
    current: &Placement,
    role: usize,
    count: u32,
    scope: Option<DomainIdx>,
) -> Option<Vec<NodeIdx>> {
    let topology = room.topology();
    let only = confined(topology, spec, current);
    let here = if only.is_some() { Some(None) } else { home(topology, spec, current) }?;
    let areas: Vec<DomainIdx> = match (scope, here) {
        (Some(scope), _) => vec![scope],
        (None, Some(home)) => vec![home],
        (None, None) => topology.pools().iter().map(|p| p.root).collect(),
    };
    let mut rests = Rests { room, of: BTreeMap::new() };
    let role = &spec.roles[role];
    let within = role.slice.as_ref().map(|s| &*s.within);
    for mut cell in cells(topology, current, &areas, within) {
        cell.retain(|node| only.is_none_or(|only| only == *node));
        if let Some(nodes) = rests.fill(&cell, role.shape, count) {
            return Some(nodes);
        }
    }
    None
}

/// New nodes for lost members, by rank: inside the domain of the required level in use and, for members of a slice, in
/// the domain of the slice's other members.
#[must_use]
pub fn replace<R: Room>(
    room: &R,
    spec: &JobSpec,
    current: &Placement,
    lost_ranks: &[u32],
) -> Option<Vec<(u32, NodeIdx)>> {
    let topology = room.topology();
    let mut lost = lost_ranks.to_vec();
    lost.sort_unstable();
    lost.dedup();
    let rank = |seat: &crate::job::Seat| spec.first_rank(usize::from(seat.role)) + seat.index;
    let mut kept = current.clone();
    kept.seats.retain(|s| lost.binary_search(&rank(s)).is_err());
    let basis = if kept.is_empty() { current } else { &kept };
    let only = confined(topology, spec, basis);
    let areas = match if only.is_some() { Some(None) } else { home(topology, spec, basis) }? {
        Some(home) => vec![home],
        None => topology.pools().iter().map(|p| p.root).collect(),
    };
    let mut rests = Rests { room, of: BTreeMap::new() };
    let mut swaps = Vec::new();
    let gone: Vec<_> = current.seats.iter().filter(|s| lost.binary_search(&rank(s)).is_ok()).collect();
    for group in gone.chunk_by(|a, b| slice_of(spec, a) == slice_of(spec, b) && slice_of(spec, a).1.is_some()) {
        let role = &spec.roles[usize::from(group[0].role)];
        let within = role.slice.as_ref().map(|s| &*s.within);
        let mates: Vec<NodeIdx> =
            kept.seats.iter().filter(|s| slice_of(spec, s) == slice_of(spec, group[0])).map(|s| s.node).collect();
        let options = match (within, mates.first()) {
            (Some(level), Some(mate)) => vec![slice_domain(topology, *mate, level)],
            _ => cells(topology, basis, &areas, within),
        };
        let count = u32::try_from(group.len()).ok()?;
        let nodes = options.iter().find_map(|cell| {
            let mut ordered = nearest(topology, basis, cell);
            ordered.retain(|node| only.is_none_or(|only| only == *node));
            rests.fill(&ordered, role.shape, count)
        })?;
        swaps.extend(group.iter().zip(nodes).map(|(seat, node)| (rank(seat), node)));
    }
    Some(swaps)
}

/// The role and, with slices, the slice of a seat.
fn slice_of(spec: &JobSpec, seat: &crate::job::Seat) -> (u8, Option<u32>) {
    (seat.role, spec.roles[usize::from(seat.role)].slice.as_ref().map(|s| seat.index / s.size))
}

/// The one node that a running gang may not leave: it must stay in one domain of a level, and its node is such a domain
/// by itself or is in no known one.
fn confined(topology: &Topology, spec: &JobSpec, current: &Placement) -> Option<NodeIdx> {
    let node = current.seats.first()?.node;
    let level = spec.locality.required.as_ref()?;
    let pool = topology.pool(topology.pool_of(node));
    let named = pool.depth_of(level).filter(|depth| *depth < pool.node_depth());
    if named.is_some_and(|depth| topology.domain_at(node, depth).is_some()) { None } else { Some(node) }
}

/// The domain a running gang may not leave; `Some(None)` when it is free to use every pool, none when its nodes share
/// no domain of the required level (its topology is violated already).
fn home(topology: &Topology, spec: &JobSpec, current: &Placement) -> Option<Option<DomainIdx>> {
    let independent = spec.communication == Communication::Independent;
    let Some(first) = current.seats.first() else { return Some(None) };
    let pool = topology.pool(topology.pool_of(first.node));
    match &spec.locality.required {
        None if independent => Some(None),
        None => Some(Some(pool.root)),
        Some(level) => {
            let depth = pool.depth_of(level)?;
            topology.domain_at(first.node, depth.min(pool.narrowest())).map(Some)
        }
    }
}

/// The nodes of the slice domain around a node.
fn slice_domain(topology: &Topology, node: NodeIdx, level: &str) -> Vec<NodeIdx> {
    let pool = topology.pool(topology.pool_of(node));
    match pool.depth_of(level).and_then(|depth| topology.domain_at(node, depth)) {
        Some(domain) if pool.depth_of(level) != Some(pool.node_depth()) => {
            topology.domain(domain).node_range().collect()
        }
        _ => vec![node],
    }
}

/// Groups of nodes that may hold the new pods together, nearest to the job first: whole areas, or slice domains.
fn cells(topology: &Topology, current: &Placement, areas: &[DomainIdx], within: Option<&str>) -> Vec<Vec<NodeIdx>> {
    let nodes: Vec<NodeIdx> = areas.iter().flat_map(|a| topology.domain(*a).node_range()).collect();
    let ordered = nearest(topology, current, &nodes);
    let Some(level) = within else { return vec![ordered] };
    let mut seen = std::collections::BTreeSet::new();
    let mut cells = Vec::new();
    for node in ordered {
        if seen.contains(&node) {
            continue;
        }
        let cell: Vec<NodeIdx> = slice_domain(topology, node, level);
        seen.extend(cell.iter().copied());
        cells.push(nearest(topology, current, &cell));
    }
    cells
}

/// Nodes by distance to the job's own: its own nodes, then those that share the narrowest domain with one of them.
fn nearest(topology: &Topology, current: &Placement, nodes: &[NodeIdx]) -> Vec<NodeIdx> {
    let own = current.nodes();
    let mut marked: BTreeMap<DomainIdx, ()> = BTreeMap::new();
    for node in &own {
        let mut at = Some(topology.innermost(*node));
        while let Some(domain) = at {
            if marked.insert(domain, ()).is_some() {
                break;
            }
            at = topology.domain(domain).parent;
        }
    }
    let closeness = |node: NodeIdx| {
        if own.binary_search(&node).is_ok() {
            return u8::MAX;
        }
        let mut at = Some(topology.innermost(node));
        while let Some(domain) = at {
            if marked.contains_key(&domain) {
                return topology.domain(domain).depth.0;
            }
            at = topology.domain(domain).parent;
        }
        Depth::ROOT.0
    };
    let mut keyed: Vec<(u8, NodeIdx)> = nodes.iter().map(|n| (u8::MAX - closeness(*n), *n)).collect();
    keyed.sort_unstable();
    keyed.into_iter().map(|(_, n)| n).collect()
}

/// What is left of the nodes touched by one change.
struct Rests<'r, R> {
    room: &'r R,
    of: BTreeMap<NodeIdx, Rest<'r, R>>,
}

impl<R: Room> Rests<'_, R> {
    /// Takes `count` pods on these nodes in order; nothing is taken if they do not all fit.
    fn fill(&mut self, nodes: &[NodeIdx], shape: crate::ids::ShapeIdx, count: u32) -> Option<Vec<NodeIdx>> {
        let mut chosen: Vec<(NodeIdx, u32)> = Vec::new();
        let mut left = count;
        for &node in nodes {
            if left == 0 {
                break;
            }
            let holds = self.of.get(&node).map_or_else(|| self.room.pods(node, shape), |r| r.holds(shape));
            let pods = holds.min(left);
            if pods > 0 {
                chosen.push((node, pods));
                left -= pods;
            }
        }
        if left > 0 {
            return None;
        }
        chosen.sort_unstable();
        let mut filled = Vec::new();
        for (node, pods) in chosen {
            self.of.entry(node).or_insert_with(|| Rest::new(self.room, node)).take(shape, pods);
            filled.extend(std::iter::repeat_n(node, usize::try_from(pods).unwrap_or(0)));
        }
        Some(filled)
    }
}
