//! What is near a running gang: its own nodes, then the rest of its narrowest domains, and so on outwards.

use super::quest::{Part, own_nodes};
use crate::ids::{DomainIdx, NodeIdx};
use crate::job::{Communication, JobSpec, Placement};
use crate::topology::Topology;
use std::collections::{BTreeMap, BTreeSet};

/// What a running gang may not leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Home {
    /// It may use every pool.
    Anywhere,
    /// One domain of the required level, or its pool.
    Domain(DomainIdx),
    /// A node that is in no domain of the required level: alone it satisfies any.
    Node(NodeIdx),
}

/// Where a gang is at home by its first seat; none when its seats share no domain of the required level any more.
pub(crate) fn home(topology: &Topology, spec: &JobSpec, current: &Placement) -> Option<Home> {
    let independent = spec.communication == Communication::Independent;
    let Some(first) = current.seats.first().map(|s| s.node) else { return Some(Home::Anywhere) };
    let pool = topology.pool(topology.pool_of(first));
    let Some(level) = &spec.locality.required else {
        return Some(if independent { Home::Anywhere } else { Home::Domain(pool.root) });
    };
    match pool.depth_of(level).and_then(|depth| topology.domain_at(first, depth)) {
        Some(domain) => Some(Home::Domain(domain)),
        None => current.seats.iter().all(|s| s.node == first).then_some(Home::Node(first)),
    }
}

/// The domain that holds the slice around a node: the node itself where it is in none.
pub(crate) fn slice_domain(topology: &Topology, node: NodeIdx, level: &str) -> Part {
    let depth = topology.pool(topology.pool_of(node)).depth_of(level);
    depth.and_then(|depth| topology.domain_at(node, depth)).map_or(Part::Node(node), Part::Domain)
}

/// Parts of the tree around a gang, nearest first, each node in one of them.
#[derive(Debug)]
pub(crate) struct Near<'t> {
    topology: &'t Topology,
    own: Vec<NodeIdx>,
    /// Rows of the nodes that may be used.
    bounds: std::ops::Range<u32>,
    /// Nearest first: its own nodes, then what shares the narrowest domain with one of them.
    pub(crate) parts: Vec<Part>,
}

impl<'t> Near<'t> {
    /// What is near a gang inside its home and, if given, inside one more domain.
    pub(crate) fn new(topology: &'t Topology, current: &Placement, home: Home, scope: Option<DomainIdx>) -> Self {
        let mut bounds = 0..u32::MAX;
        let home_domain = if let Home::Domain(domain) = home { Some(domain) } else { None };
        if let Home::Node(node) = home {
            bounds = node.0..node.0 + 1;
        }
        for domain in home_domain.into_iter().chain(scope) {
            let nodes = &topology.domain(domain).nodes;
            bounds = bounds.start.max(nodes.start)..bounds.end.min(nodes.end);
        }
        let mut near = Self { topology, own: current.nodes(), bounds, parts: Vec::new() };
        near.parts = match home {
            Home::Node(node) => vec![Part::Node(node)],
            Home::Domain(domain) => near.around(&[domain]),
            Home::Anywhere => near.around(&topology.pools().iter().map(|p| p.root).collect::<Vec<_>>()),
        };
        near
    }

    fn around(&self, roots: &[DomainIdx]) -> Vec<Part> {
        let used = self.domains_in_use();
        let mut rings: BTreeMap<std::cmp::Reverse<u8>, Vec<DomainIdx>> = BTreeMap::new();
        for domain in &used {
            rings.entry(std::cmp::Reverse(self.topology.domain(*domain).depth.0)).or_default().push(*domain);
        }
        let mut parts: Vec<Part> = self.own.iter().copied().map(Part::Node).collect();
        for domain in rings.into_values().flatten().filter(|d| roots.iter().any(|r| self.is_inside(*d, *r))) {
            let here = self.topology.domain(domain);
            let others = own_nodes(here).filter(|n| self.own.binary_search(n).is_err()).map(Part::Node);
            parts.extend(others.chain(here.child_range().filter(|c| !used.contains(c)).map(Part::Domain)));
        }
        parts.extend(roots.iter().filter(|r| !used.contains(r)).copied().map(Part::Domain));
        parts
    }

    fn domains_in_use(&self) -> BTreeSet<DomainIdx> {
        let mut used = BTreeSet::new();
        for node in &self.own {
            let mut at = Some(self.topology.innermost(*node));
            while let Some(domain) = at.filter(|d| used.insert(*d)) {
                at = self.topology.domain(domain).parent;
            }
        }
        used
    }

    fn is_inside(&self, inner: DomainIdx, outer: DomainIdx) -> bool {
        self.topology.ancestor_at(inner, self.topology.domain(outer).depth) == Some(outer)
    }

    /// Domains that may hold a slice, nearest first; a node outside every one is one of its own.
    pub(crate) fn cells(&self, level: &str) -> Vec<Part> {
        let mut seen = BTreeSet::new();
        let mut cells = Vec::new();
        for part in &self.parts {
            self.add_cells(*part, level, &mut |cell| {
                if seen.insert(cell) {
                    cells.push(cell);
                }
            });
        }
        cells
    }

    fn add_cells(&self, part: Part, level: &str, add: &mut impl FnMut(Part)) {
        let domain = match part {
            Part::Node(node) => return add(slice_domain(self.topology, node, level)),
            Part::Domain(domain) => domain,
        };
        let here = self.topology.domain(domain);
        let depth = self.topology.pool(here.pool).depth_of(level);
        if let Some(cell) = depth.and_then(|depth| self.topology.ancestor_at(domain, depth)) {
            return add(Part::Domain(cell));
        }
        own_nodes(here).for_each(|node| self.add_cells(Part::Node(node), level, add));
        here.child_range().for_each(|child| self.add_cells(Part::Domain(child), level, add));
    }

    /// Nodes of a part that may be used, the gang's own ones first.
    pub(crate) fn nodes_of(&self, part: Part) -> Vec<NodeIdx> {
        let mut nodes: Vec<NodeIdx> = match part {
            Part::Node(node) => vec![node],
            Part::Domain(domain) => self.topology.domain(domain).node_range().collect(),
        };
        nodes.retain(|n| self.bounds.contains(&n.0));
        nodes.sort_by_key(|n| (self.own.binary_search(n).is_err(), *n));
        nodes
    }
}
