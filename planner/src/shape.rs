//! Pod shapes: what a pod asks for and which nodes may hold it, interned so that equal pods are one row.

use crate::ids::{NodeIdx, ShapeIdx};
use crate::resources::Amounts;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A set of nodes by row.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeSet {
    words: Vec<u64>,
}

impl NodeSet {
    /// The set of those of `count` nodes for which `holds` is true.
    #[must_use]
    pub fn of(count: usize, mut holds: impl FnMut(NodeIdx) -> bool) -> Self {
        let mut set = Self { words: vec![0; count.div_ceil(64)] };
        for row in 0..count {
            if holds(NodeIdx::of(row)) {
                set.words[row / 64] |= 1 << (row % 64);
            }
        }
        set
    }

    /// Whether a node is in the set.
    #[must_use]
    pub fn contains(&self, node: NodeIdx) -> bool {
        self.words.get(node.row() / 64).is_some_and(|w| w >> (node.row() % 64) & 1 == 1)
    }

    /// Adds or removes one node.
    pub fn set(&mut self, node: NodeIdx, member: bool) {
        let (word, bit) = (node.row() / 64, 1u64 << (node.row() % 64));
        if self.words.len() <= word {
            self.words.resize(word + 1, 0);
        }
        if member {
            self.words[word] |= bit;
        } else {
            self.words[word] &= !bit;
        }
    }

    /// Number of nodes in the set.
    #[must_use]
    pub fn len(&self) -> usize {
        self.words.iter().map(|w| w.count_ones() as usize).sum()
    }

    /// Whether no node is in the set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.words.iter().all(|w| *w == 0)
    }
}

/// One distinct kind of pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    /// What one pod takes on a node, its pod slot and its host ports (as resources of capacity 1) included.
    pub requests: Amounts,
    /// Key of the constraints (selectors, affinity, tolerations, pinned volumes, avoided nodes), made by the translator;
    /// equal keys mean equal node sets.
    pub filter: Arc<str>,
    /// The nodes that the constraints allow, whether or not they have room. Cordons and lost nodes are the node's own
    /// state and not counted here.
    pub eligible: NodeSet,
}

/// The shapes in use.
#[derive(Clone, Debug, Default)]
pub struct ShapeTable {
    shapes: Vec<Shape>,
    rows: BTreeMap<(Amounts, Arc<str>), ShapeIdx>,
}

impl ShapeTable {
    /// The row of a shape, made if new.
    pub fn intern(&mut self, shape: Shape) -> ShapeIdx {
        let key = (shape.requests.clone(), shape.filter.clone());
        if let Some(&row) = self.rows.get(&key) {
            return row;
        }
        let row = ShapeIdx::of(self.shapes.len());
        self.rows.insert(key, row);
        self.shapes.push(shape);
        row
    }

    /// One shape.
    #[must_use]
    pub fn get(&self, shape: ShapeIdx) -> &Shape {
        &self.shapes[shape.row()]
    }

    /// Replaces the nodes that shapes with this filter may use.
    pub fn set_eligible(&mut self, filter: &str, eligible: &NodeSet) {
        for shape in self.shapes.iter_mut().filter(|s| &*s.filter == filter) {
            shape.eligible = eligible.clone();
        }
    }

    /// All shapes in row order.
    #[must_use]
    pub fn all(&self) -> &[Shape] {
        &self.shapes
    }
}
