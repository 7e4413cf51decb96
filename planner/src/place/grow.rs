//! Changes to a gang that runs: room for more pods, and for lost ones.

use super::near::{Home, Near, home, slice_domain};
use super::pack::Rest;
use super::quest::Part;
use crate::ids::{DomainIdx, NodeIdx, ShapeIdx};
use crate::job::{JobSpec, Placement, Role, Seat};
use crate::room::Room;
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
    let home = home(topology, spec, current)?;
    let near = Near::new(topology, current, home, scope);
    Rests { room, of: BTreeMap::new() }.fill_near(&near, &spec.roles[role], count)
}

/// New nodes for lost members, by rank: inside the domain of the required level in use and, for members of a slice, in
/// the domain of the slice's other members. A slice lost as a whole may move to another domain.
#[must_use]
pub fn replace<R: Room>(
    room: &R,
    spec: &JobSpec,
    current: &Placement,
    lost_ranks: &[u32],
) -> Option<Vec<(u32, NodeIdx)>> {
    let topology = room.topology();
    let rank = |seat: &Seat| spec.first_rank(usize::from(seat.role)) + seat.index;
    let (gone, kept): (Vec<Seat>, Vec<Seat>) = current.seats.iter().partition(|s| lost_ranks.contains(&rank(s)));
    let kept = Placement { seats: kept };
    let home = match home(topology, spec, if kept.is_empty() { current } else { &kept })? {
        // Nothing is left on the one node that held the gang: there is no home to stay in.
        Home::Node(_) if kept.is_empty() => return None,
        home => home,
    };
    let near = Near::new(topology, &kept, home, None);
    let mut rests = Rests { room, of: BTreeMap::new() };
    let mut swaps = Vec::with_capacity(gone.len());
    for group in gone.chunk_by(|a, b| slice_of(spec, a).is_some() && slice_of(spec, a) == slice_of(spec, b)) {
        let role = &spec.roles[usize::from(group[0].role)];
        let count = u32::try_from(group.len()).ok()?;
        let mate =
            kept.seats.iter().find(|s| slice_of(spec, s).is_some() && slice_of(spec, s) == slice_of(spec, &group[0]));
        let nodes = match (mate, &role.slice) {
            (Some(mate), Some(slice)) => {
                let cell = slice_domain(topology, mate.node, &slice.within);
                rests.fill(&near.nodes_of(cell), role.shape, count)
            }
            _ => rests.fill_near(&near, role, count),
        }?;
        swaps.extend(group.iter().zip(nodes).map(|(seat, node)| (rank(seat), node)));
    }
    Some(swaps)
}

/// The role and the slice of a seat, if its role has slices.
fn slice_of(spec: &JobSpec, seat: &Seat) -> Option<(u8, u32)> {
    spec.roles[usize::from(seat.role)].slice.as_ref().map(|s| (seat.role, seat.index / s.size))
}

/// What is left of the nodes touched by one change.
struct Rests<'r, R> {
    room: &'r R,
    of: BTreeMap<NodeIdx, Rest<'r, R>>,
}

impl<R: Room> Rests<'_, R> {
    /// Takes `count` pods of a role near the job; with slices all of them in one slice domain.
    fn fill_near(&mut self, near: &Near<'_>, role: &Role, count: u32) -> Option<Vec<NodeIdx>> {
        let room = self.room;
        let may = |part: &Part, least: u32| match part {
            Part::Domain(domain) => room.pods_in(*domain, role.shape) >= u64::from(least),
            Part::Node(node) => room.pods(*node, role.shape) >= least,
        };
        if let Some(slice) = &role.slice {
            let cells = near.cells(&slice.within);
            let mut fitting = cells.into_iter().filter(|cell| may(cell, count));
            return fitting.find_map(|cell| self.fill(&near.nodes_of(cell), role.shape, count));
        }
        let mut nodes = Vec::new();
        let mut found = 0u32;
        for part in near.parts.iter().filter(|part| may(part, 1)) {
            if found >= count {
                break;
            }
            for node in near.nodes_of(*part) {
                found = found.saturating_add(self.holds(node, role.shape));
                nodes.push(node);
            }
        }
        self.fill(&nodes, role.shape, count)
    }

    fn holds(&self, node: NodeIdx, shape: ShapeIdx) -> u32 {
        self.of.get(&node).map_or_else(|| self.room.pods(node, shape), |r| r.holds(shape))
    }

    /// Takes `count` pods on these nodes in order; nothing is taken if they do not all fit.
    fn fill(&mut self, nodes: &[NodeIdx], shape: ShapeIdx, count: u32) -> Option<Vec<NodeIdx>> {
        let mut chosen: Vec<(NodeIdx, u32)> = Vec::new();
        let mut left = count;
        for &node in nodes {
            let pods = self.holds(node, shape).min(left);
            if pods > 0 {
                chosen.push((node, pods));
                left -= pods;
            }
        }
        if left > 0 {
            return None;
        }
        chosen.sort_unstable();
        let mut filled = Vec::with_capacity(count as usize);
        for (node, pods) in chosen {
            self.of.entry(node).or_insert_with(|| Rest::new(self.room, node)).take(shape, pods);
            filled.extend(std::iter::repeat_n(node, pods as usize));
        }
        Some(filled)
    }
}
