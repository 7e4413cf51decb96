//! How good a placement is, in the words of the job's status.

use super::quest::Depths;
use crate::ids::{DomainIdx, NodeIdx};
use crate::job::{JobSpec, Placement};
use crate::plan::Quality;
use crate::topology::{Depth, Topology};

/// The quality of a placement; `domains_at_best` is what the caller knows of the empty cluster.
#[must_use]
pub fn quality(topology: &Topology, spec: &JobSpec, placement: &Placement, domains_at_best: u32) -> Quality {
    let nodes = || placement.seats.iter().map(|s| s.node);
    let Some(first) = placement.seats.first() else {
        return Quality { level: "".into(), domain: "".into(), domains: 0, domains_at_best, cross_edges: 0 };
    };
    let pool = topology.pool(topology.pool_of(first.node));
    let (level, domain) = match topology.shared_depth(nodes()) {
        Some((depth, _)) if depth == pool.node_depth() => {
            (pool.level_name(depth).into(), topology.node_name(first.node).clone())
        }
        Some((depth, domain)) => (pool.level_name(depth).into(), topology.domain(domain).path.clone()),
        None => (pool.level_name(Depth::ROOT).into(), "".into()),
    };
    let narrow = |node: NodeIdx| domain_or_node(topology, node, topology.pool(topology.pool_of(node)).narrowest());
    let pairs = placement.seats.windows(2).filter(|pair| narrow(pair[0].node) != narrow(pair[1].node));
    Quality {
        level,
        domain,
        domains: domains_used(topology, spec, placement),
        domains_at_best,
        cross_edges: u32::try_from(pairs.count()).unwrap_or(u32::MAX),
    }
}

/// Domains of the wanted level that a placement uses; a node whose path is unknown there counts as one.
#[must_use]
pub(crate) fn domains_used(topology: &Topology, spec: &JobSpec, placement: &Placement) -> u32 {
    let mut used: Vec<(Option<DomainIdx>, Option<NodeIdx>)> = Vec::new();
    for seat in &placement.seats {
        let pool = topology.pool(topology.pool_of(seat.node));
        let depth = Depths::of(spec, pool).map_or(pool.node_depth(), |d| d.wanted);
        let key = domain_or_node(topology, seat.node, depth);
        if used.last() != Some(&key) {
            used.push(key);
        }
    }
    used.sort_unstable();
    used.dedup();
    u32::try_from(used.len()).unwrap_or(u32::MAX)
}

/// The domain of a node at a depth, or the node itself where there is none.
pub(crate) fn domain_or_node(topology: &Topology, node: NodeIdx, depth: Depth) -> (Option<DomainIdx>, Option<NodeIdx>) {
    let domain = topology.domain_at(node, depth);
    (domain, domain.is_none().then_some(node))
}
