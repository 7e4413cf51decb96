//! How close together a placement is: leaves used against the fewest possible, and hops between its nodes.

use planner::job::Placement;
use planner::topology::Topology;
use planner::{DomainIdx, NodeIdx};
use std::collections::BTreeSet;

/// What one gang's placement costs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// Nodes.
    pub nodes: u32,
    /// Leaves in use.
    pub leaves: u32,
    /// Fewest leaves on the empty cluster.
    pub bound: u32,
    /// Mean over all pairs of nodes: 2 in one leaf, 4 in one domain a level up, 6 across.
    pub hops: f64,
}

/// Sizes of a cluster's leaves, largest first.
#[derive(Clone, Debug)]
pub struct Leaves {
    sizes: Vec<u32>,
}

impl Leaves {
    /// Of a tree: the domains that nodes' paths end in.
    #[must_use]
    pub fn of(topology: &Topology) -> Self {
        let mut count = vec![0u32; topology.domains().len()];
        for row in 0..topology.node_count() {
            count[topology.innermost(NodeIdx::of(row)).row()] += 1;
        }
        let mut sizes: Vec<u32> = count.into_iter().filter(|c| *c > 0).collect();
        sizes.sort_unstable_by(|a, b| b.cmp(a));
        Self { sizes }
    }

    /// Fewest leaves that hold so many nodes when all are free.
    #[must_use]
    pub fn bound(&self, nodes: u32) -> u32 {
        let mut held = 0;
        for (row, size) in self.sizes.iter().enumerate() {
            held += size;
            if held >= nodes {
                return u32::try_from(row + 1).unwrap_or(u32::MAX);
            }
        }
        u32::try_from(self.sizes.len()).unwrap_or(u32::MAX)
    }
}

/// Measures a gang's placement; none for a single node.
#[must_use]
pub fn spread(topology: &Topology, leaves: &Leaves, placement: &Placement) -> Option<Spread> {
    let nodes = placement.nodes();
    if nodes.len() < 2 {
        return None;
    }
    let homes: Vec<DomainIdx> = nodes.iter().map(|n| topology.innermost(*n)).collect();
    let used: BTreeSet<DomainIdx> = homes.iter().copied().collect();
    let count = u32::try_from(nodes.len()).unwrap_or(u32::MAX);
    let used_count = u32::try_from(used.len()).unwrap_or(u32::MAX);
    Some(Spread { nodes: count, leaves: used_count, bound: leaves.bound(count), hops: mean_hops(topology, &homes) })
}

fn mean_hops(topology: &Topology, homes: &[DomainIdx]) -> f64 {
    let (mut sum, mut pairs) = (0u64, 0u64);
    for (row, a) in homes.iter().enumerate() {
        for b in &homes[row + 1..] {
            let up = |d: &DomainIdx| topology.domain(*d).parent;
            sum += if a == b {
                2
            } else if up(a) == up(b) {
                4
            } else {
                6
            };
            pairs += 1;
        }
    }
    #[allow(clippy::cast_precision_loss)]
    let mean = sum as f64 / pairs as f64;
    mean
}

#[cfg(test)]
mod tests {
    use super::*;
    use planner::job::Seat;
    use planner::topology::{Level, NodePath, PoolSpec};

    fn tree() -> Topology {
        let level = |name: &str| Level { name: name.into(), gigabytes_per_second: 0.0 };
        let pool = PoolSpec { name: "".into(), levels: vec![level("psw"), level("asw")], growable: false };
        let paths = [("p0", "s0"), ("p0", "s0"), ("p0", "s1"), ("p1", "s0"), ("p1", "s0"), ("p1", "s0")];
        let nodes: Vec<NodePath> = paths
            .iter()
            .enumerate()
            .map(|(i, (p, s))| NodePath { pool: 0, path: vec![(*p).into(), (*s).into()], name: format!("n{i}").into() })
            .collect();
        Topology::build(&[pool], &nodes)
    }

    fn on(nodes: &[u32]) -> Placement {
        let seat = |(i, n): (usize, &u32)| Seat { role: 0, index: u32::try_from(i).unwrap(), node: NodeIdx(*n) };
        Placement { seats: nodes.iter().enumerate().map(seat).collect() }
    }

    #[test]
    fn hops_are_two_four_and_six() {
        let (tree, leaves) = (tree(), Leaves::of(&tree()));
        let of = |nodes: &[u32]| spread(&tree, &leaves, &on(nodes)).unwrap();
        assert_eq!((of(&[0, 1]).hops, of(&[0, 1]).leaves), (2.0, 1));
        assert_eq!((of(&[0, 2]).hops, of(&[0, 2]).leaves, of(&[0, 2]).bound), (4.0, 2, 1));
        assert_eq!(of(&[0, 3]).hops, 6.0);
        assert_eq!(of(&[0, 1, 2]).hops, 10.0 / 3.0);
        assert!(spread(&tree, &leaves, &on(&[0, 0])).is_none());
    }

    #[test]
    fn the_bound_takes_the_largest_leaves_first() {
        let leaves = Leaves::of(&tree());
        assert_eq!((leaves.bound(3), leaves.bound(4), leaves.bound(6)), (1, 2, 3));
    }
}
