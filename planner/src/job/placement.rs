//! Where a gang is: a seat for each of its pods.

use super::JobSpec;
use crate::ids::NodeIdx;

/// One pod's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Seat {
    /// Row of the role.
    pub role: u8,
    /// Index in the role.
    pub index: u32,
    /// The node.
    pub node: NodeIdx,
}

/// Where a gang is or would be: seats sorted by role and index, that is, by rank.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Placement {
    /// The seats.
    pub seats: Vec<Seat>,
}

impl Placement {
    /// Pods of one role.
    #[must_use]
    pub fn count(&self, role: usize) -> u32 {
        u32::try_from(self.seats.iter().filter(|s| usize::from(s.role) == role).count()).expect("at most 20,000 pods")
    }

    /// Number of pods.
    #[must_use]
    pub fn len(&self) -> usize {
        self.seats.len()
    }

    /// Whether it has no pods.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.seats.is_empty()
    }

    /// The seats of the floor: surplus has the higher indexes.
    #[must_use]
    pub fn at_floor(&self, spec: &JobSpec) -> Self {
        let of_floor = |s: &&Seat| spec.roles.get(usize::from(s.role)).is_some_and(|role| s.index < role.floor);
        Self { seats: self.seats.iter().filter(of_floor).copied().collect() }
    }

    /// The seats that another placement of the gang does not have.
    #[must_use]
    pub fn without(&self, other: &Self) -> Self {
        let gone = |s: &&Seat| other.seats.binary_search(s).is_err();
        Self { seats: self.seats.iter().filter(gone).copied().collect() }
    }

    /// The distinct nodes, in row order.
    #[must_use]
    pub fn nodes(&self) -> Vec<NodeIdx> {
        let mut nodes: Vec<NodeIdx> = self.seats.iter().map(|s| s.node).collect();
        nodes.sort_unstable();
        nodes.dedup();
        nodes
    }

    /// Pods by (node, role), in that order: what the ledger counts.
    #[must_use]
    pub fn by_node(&self) -> Vec<(NodeIdx, u8, u32)> {
        let mut cells: Vec<(NodeIdx, u8)> = self.seats.iter().map(|s| (s.node, s.role)).collect();
        cells.sort_unstable();
        let mut counted: Vec<(NodeIdx, u8, u32)> = Vec::new();
        for (node, role) in cells {
            match counted.last_mut() {
                Some(last) if last.0 == node && last.1 == role => last.2 += 1,
                _ => counted.push((node, role, 1)),
            }
        }
        counted
    }
}
