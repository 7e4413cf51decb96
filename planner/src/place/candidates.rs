//! Which domains may hold a job, and whether any ever could.

use super::ask::{Ask, NoFit, kinds};
use super::search::place;
use crate::ids::{DomainIdx, ShapeIdx};
use crate::job::JobSpec;
use crate::room::Room;
use crate::time::Time;
use crate::topology::{Depth, Domain, Topology};

/// The domains to ask for, one by one, with [`Ask::within`] or [`super::fits`]: those of the required level of every
/// pool that has it, the pools' roots without one.
///
/// A gang that one node holds satisfies every level, so the root of a pool with nodes outside every domain of the level
/// follows its domains; asked within it, the answer is a domain of the level or such a node. `required: node` gives the
/// roots. So does `Independent`, which may also span them (ask without `within`).
#[must_use]
pub fn candidates(topology: &Topology, spec: &JobSpec) -> Vec<DomainIdx> {
    let mut found = Vec::new();
    for (row, pool) in topology.pools().iter().enumerate() {
        let depth = spec.locality.required.as_ref().map_or(Some(Depth::ROOT), |level| pool.depth_of(level));
        let root = topology.domain(pool.root);
        if root.node_count() == 0 {
            continue;
        }
        match depth {
            Some(depth) if depth == Depth::ROOT || depth == pool.node_depth() => found.push(pool.root),
            Some(depth) => {
                let before = found.len();
                found.extend(topology.domains_at(crate::ids::PoolIdx::of(row), depth));
                let covered: u32 = found[before..].iter().map(|d| topology.domain(*d).node_count()).sum();
                if covered < root.node_count() {
                    found.push(pool.root);
                }
            }
            None => found.push(pool.root),
        }
    }
    found
}

/// Why a job can never run on a cluster, however empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Never {
    /// No node is large enough, or allowed, for a pod of this role.
    NoNode {
        /// Row of the role.
        role: usize,
    },
    /// Every node could hold some, but no domain of the required level all of the floor.
    FloorExceedsEveryDomain {
        /// The domain that holds the most of it.
        domain: DomainIdx,
        /// Pods of the floor that it holds.
        room: u32,
        /// Pods missing.
        short: u32,
    },
}

/// Whether the floor of a job fits nowhere in a room that holds all registered nodes, empty. None also when the search
/// stopped at its limit.
#[must_use]
pub fn never_fits<R: Room>(empty: &R, spec: &JobSpec, search_limit: u32) -> Option<Never> {
    let holds = |shape: ShapeIdx| empty.topology().pools().iter().any(|p| empty.pods_in(p.root, shape) > 0);
    if let Some(role) = spec.roles.iter().position(|r| r.floor > 0 && !holds(r.shape)) {
        return Some(Never::NoNode { role });
    }
    let sizes: Vec<u32> = spec.roles.iter().map(|r| r.floor).collect();
    let ask = Ask {
        spec,
        sizes: &sizes,
        start: Time::ZERO,
        predicted_end: Time::ZERO,
        most_domains: None,
        search_limit,
        within: None,
    };
    match place(empty, &ask) {
        Err(NoFit::Proved) => Some(largest(empty, spec, &ask)),
        _ => None,
    }
}

/// The domain that holds the most pods of the floor, by counts of each role on its own.
fn largest<R: Room>(empty: &R, spec: &JobSpec, ask: &Ask<'_>) -> Never {
    let wanted = spec.floor();
    let (domain, room) = candidates(empty.topology(), spec)
        .into_iter()
        .map(|domain| (domain, room_for(empty, ask, domain)))
        .fold((DomainIdx(0), 0), |best, next| if next.1 > best.1 { next } else { best });
    // Each role may fit on its own and all of them not: then at least one pod is missing.
    let room = room.min(wanted.saturating_sub(1));
    Never::FloorExceedsEveryDomain { domain, room, short: wanted - room }
}

/// Pods of the floor that a domain holds, each shape counted on its own, whole slices.
pub(crate) fn room_for<R: Room>(room: &R, ask: &Ask<'_>, domain: DomainIdx) -> u32 {
    let here = room.topology().domain(domain);
    let whole_pool = here.depth == Depth::ROOT && ask.spec.locality.required.is_some();
    kinds(ask.spec, ask.sizes)
        .iter()
        .map(|kind| {
            let pods = if whole_pool { best_node(room, here, kind.shape) } else { room.pods_in(domain, kind.shape) };
            u32::try_from(pods.min(u64::from(kind.pods))).unwrap_or(kind.pods) / kind.slice * kind.slice
        })
        .sum()
}

fn best_node<R: Room>(room: &R, domain: &Domain, shape: ShapeIdx) -> u64 {
    domain.node_range().map(|n| u64::from(room.pods(n, shape))).max().unwrap_or(0)
}
