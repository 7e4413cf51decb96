//! Room from now until a moment: the slot counts, corrected on the nodes where something is reserved before it.

use super::Scratch;
use crate::ids::{DomainIdx, NodeIdx, ShapeIdx};
use crate::room::Room;
use crate::shape::ShapeTable;
use crate::state::Snapshot;
use crate::time::{Span, Time};
use crate::topology::Topology;
use std::collections::BTreeMap;

/// What reservations leave of a booked node.
struct Booked {
    free: Vec<i64>,
    pods: Vec<u32>,
}

/// Room during `[now, end)` for pods of a few shapes.
pub(crate) struct NowRoom<'s> {
    snapshot: Snapshot<'s>,
    scratch: &'s Scratch,
    shapes: Vec<ShapeIdx>,
    /// Nodes with something reserved before the end.
    booked: BTreeMap<u32, Booked>,
    /// By how much the booked nodes lower a domain's count, per shape.
    lowered: BTreeMap<DomainIdx, Vec<u64>>,
}

impl<'s> NowRoom<'s> {
    pub(super) fn open(
        snapshot: Snapshot<'s>,
        cycle: Span,
        scratch: &'s mut Scratch,
        shapes: &[ShapeIdx],
        end: Time,
    ) -> Self {
        let state = snapshot.state;
        for &shape in shapes {
            scratch.table(state, shape);
        }
        let mut booked = BTreeMap::new();
        let mut lowered: BTreeMap<DomainIdx, Vec<u64>> = BTreeMap::new();
        let candidates: Vec<u32> = scratch.booked.iter().copied().collect();
        for row in candidates {
            let node = NodeIdx(row);
            let profile = scratch.profile(snapshot, cycle, node);
            if profile.first_booking() >= end {
                continue;
            }
            let free = profile.least(snapshot.now, end);
            let mut pods = Vec::with_capacity(shapes.len());
            for &shape in shapes {
                let table = scratch.table_ref(shape);
                let before = table.node[node.row()];
                pods.push(before.min(state.shapes.get(shape).requests.times_in(&free)));
            }
            let mut at = Some(state.topology().innermost(node));
            while let Some(domain) = at {
                let cells = lowered.entry(domain).or_insert_with(|| vec![0; shapes.len()]);
                for (row, &shape) in shapes.iter().enumerate() {
                    cells[row] += u64::from(scratch.table_ref(shape).node[node.row()] - pods[row]);
                }
                at = state.topology().domain(domain).parent;
            }
            booked.insert(node.0, Booked { free, pods });
        }
        Self { snapshot, scratch, shapes: shapes.to_vec(), booked, lowered }
    }

    fn column(&self, shape: ShapeIdx) -> usize {
        self.shapes.iter().position(|s| *s == shape).expect("a room is opened for the shapes it is asked about")
    }
}

impl Room for NowRoom<'_> {
    fn topology(&self) -> &Topology {
        self.snapshot.state.topology()
    }

    fn shapes(&self) -> &ShapeTable {
        &self.snapshot.state.shapes
    }

    fn free(&self, node: NodeIdx) -> &[i64] {
        match self.booked.get(&node.0) {
            Some(booked) => &booked.free,
            None => self.scratch.free_row(node),
        }
    }

    fn pods(&self, node: NodeIdx, shape: ShapeIdx) -> u32 {
        match self.booked.get(&node.0) {
            Some(booked) => booked.pods[self.column(shape)],
            None => self.scratch.table_ref(shape).node[node.row()],
        }
    }

    fn pods_in(&self, domain: DomainIdx, shape: ShapeIdx) -> u64 {
        let all = self.scratch.table_ref(shape).domain[domain.row()];
        match self.lowered.get(&domain) {
            Some(cells) if !self.lowered.is_empty() => all - cells[self.column(shape)],
            _ => all,
        }
    }

    fn wholly_free_at(&self, node: NodeIdx) -> Time {
        self.scratch.wholly_free_at(self.snapshot, node)
    }

    fn promised(&self, node: NodeIdx) -> bool {
        self.booked.contains_key(&node.0)
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
