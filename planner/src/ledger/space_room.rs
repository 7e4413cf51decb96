//! Room of some nodes during any window, built node by node; can be widened by taking victims off it.

use super::Ledger;
use crate::ids::{DomainIdx, NodeIdx, ShapeIdx};
use crate::room::Room;
use crate::shape::ShapeTable;
use crate::state::Snapshot;
use crate::time::Time;
use crate::topology::Topology;

/// Room of some nodes; every other node has none.
pub(crate) struct SpaceRoom<'a> {
    snapshot: Snapshot<'a>,
    from: Time,
    /// In row order.
    nodes: Vec<NodeIdx>,
    stride: usize,
    shapes: Vec<ShapeIdx>,
    free: Vec<i64>,
    pods: Vec<Vec<u32>>,
    frees_at: Vec<Time>,
    promised: Vec<bool>,
    /// Running sums of `pods` over the nodes, one more entry than nodes.
    sums: Vec<Vec<u64>>,
}

impl<'a> SpaceRoom<'a> {
    pub(super) fn open(
        ledger: &mut Ledger<'a>,
        nodes: Vec<NodeIdx>,
        shapes: &[ShapeIdx],
        from: Time,
        to: Time,
    ) -> Self {
        let snapshot = ledger.snapshot;
        let state = snapshot.state;
        let (stride, count) = (state.resources.len(), nodes.len());
        let mut room = Self {
            snapshot,
            from,
            nodes,
            stride,
            shapes: shapes.to_vec(),
            free: Vec::with_capacity(count * stride),
            pods: vec![Vec::with_capacity(count); shapes.len()],
            frees_at: Vec::with_capacity(count),
            promised: Vec::with_capacity(count),
            sums: Vec::new(),
        };
        for node in room.nodes.clone() {
            let profile = ledger.profile(node);
            let free = profile.least(from, to);
            room.promised.push(profile.drops().any(|d| d > from && d < to));
            for (column, &shape) in shapes.iter().enumerate() {
                room.pods[column].push(pods_of(snapshot, node, shape, &free));
            }
            room.free.extend_from_slice(&free);
            room.frees_at.push(ledger.wholly_free_at(node, from));
        }
        room.sum();
        room
    }

    fn sum(&mut self) {
        self.sums = self
            .pods
            .iter()
            .map(|column| {
                let mut sums = Vec::with_capacity(column.len() + 1);
                sums.push(0);
                let mut total = 0u64;
                for &pods in column {
                    total += u64::from(pods);
                    sums.push(total);
                }
                sums
            })
            .collect();
    }

    /// Replaces what is free on some nodes (others than its own are passed over).
    pub(crate) fn set_free(&mut self, nodes: &[(NodeIdx, Vec<i64>)]) {
        for (node, free) in nodes {
            let Some(at) = self.offset(*node) else { continue };
            for column in 0..self.shapes.len() {
                self.pods[column][at] = pods_of(self.snapshot, *node, self.shapes[column], free);
            }
            self.free[at * self.stride..(at + 1) * self.stride].copy_from_slice(free);
        }
        self.sum();
    }

    fn offset(&self, node: NodeIdx) -> Option<usize> {
        self.nodes.binary_search(&node).ok()
    }

    fn column(&self, shape: ShapeIdx) -> usize {
        self.shapes.iter().position(|s| *s == shape).expect("a room is opened for the shapes it is asked about")
    }
}

fn pods_of(snapshot: Snapshot<'_>, node: NodeIdx, shape: ShapeIdx, free: &[i64]) -> u32 {
    let shape = snapshot.state.shapes.get(shape);
    if shape.eligible.contains(node) { shape.requests.times_in(free) } else { 0 }
}

impl Room for SpaceRoom<'_> {
    fn topology(&self) -> &Topology {
        self.snapshot.state.topology()
    }

    fn shapes(&self) -> &ShapeTable {
        &self.snapshot.state.shapes
    }

    fn free(&self, node: NodeIdx) -> &[i64] {
        match self.offset(node) {
            Some(at) => &self.free[at * self.stride..(at + 1) * self.stride],
            None => &[],
        }
    }

    fn pods(&self, node: NodeIdx, shape: ShapeIdx) -> u32 {
        self.offset(node).map_or(0, |at| self.pods[self.column(shape)][at])
    }

    fn pods_in(&self, domain: DomainIdx, shape: ShapeIdx) -> u64 {
        let nodes = &self.topology().domain(domain).nodes;
        let before = |row: u32| self.nodes.partition_point(|n| n.0 < row);
        let sums = &self.sums[self.column(shape)];
        sums[before(nodes.end)] - sums[before(nodes.start)]
    }

    fn wholly_free_at(&self, node: NodeIdx) -> Time {
        self.offset(node).map_or(Time::NEVER, |at| self.frees_at[at]).max(self.from)
    }

    fn promised(&self, node: NodeIdx) -> bool {
        self.offset(node).is_some_and(|at| self.promised[at])
    }

    fn health(&self, node: NodeIdx) -> u8 {
        self.snapshot.state.node(node).health
    }

    fn devices(&self, node: NodeIdx) -> i64 {
        let free = self.free(node);
        let devices = self.snapshot.state.resources.devices();
        devices.iter().map(|d| free.get(d.row()).copied().unwrap_or(0).max(0)).sum()
    }
}
