//! Capacity over time, and the scratch tables that keep planning proportional to what changed.

use crate::ids::NodeIdx;

/// Tables that only save work: slot counts per shape, kept up by the nodes touched since they were last used.
#[derive(Debug, Default)]
pub struct Scratch {
    /// Nodes touched since the start, in order; counts remember how far they have read.
    pub(crate) log: Vec<NodeIdx>,
    /// Raised by every reset: all tables made before it are void.
    pub(crate) generation: u64,
}

impl Scratch {
    /// Notes that a node's free room changed.
    pub(crate) fn touch(&mut self, node: NodeIdx) {
        self.log.push(node);
    }

    /// Voids all tables.
    pub(crate) fn reset(&mut self) {
        self.log.clear();
        self.generation += 1;
    }
}
