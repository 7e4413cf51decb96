//! From pods per node to seats: consecutive ranks share a node, then the narrowest domain.

use super::ask::Kind;
use crate::ids::NodeIdx;
use crate::job::{Placement, Seat};

/// Pods of one kind on one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Load {
    /// The node.
    pub(crate) node: NodeIdx,
    /// Row of the kind.
    pub(crate) kind: usize,
    /// Pods.
    pub(crate) pods: u32,
}

/// Seats in rank order for the loads of a gang.
///
/// Rows of nodes are in the order of the tree, so filling them in row order fills one domain before the next at every
/// level; each slice domain holds whole slices, so cutting the sequence every `slice` pods cuts no domain.
pub(crate) fn seats(kinds: &[Kind], loads: &mut [Load]) -> Placement {
    loads.sort_unstable();
    let mut placement = Placement::default();
    for (row, kind) in kinds.iter().enumerate() {
        let mut nodes = loads
            .iter()
            .filter(|l| l.kind == row)
            .flat_map(|l| std::iter::repeat_n(l.node, usize::try_from(l.pods).unwrap_or(0)));
        for &(role, pods) in &kind.roles {
            let taken = (0..pods).zip(nodes.by_ref());
            placement.seats.extend(taken.map(|(index, node)| Seat { role, index, node }));
        }
    }
    placement.seats.sort_unstable();
    placement
}
