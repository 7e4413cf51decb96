//! [`Room`]: free room as one placement question sees it. The window of time, other jobs' reservations, quotas of time
//! and the usability of nodes are already taken off; what remains is space.

use crate::ids::{DomainIdx, NodeIdx, ShapeIdx};
use crate::resources::Amounts;
use crate::shape::{NodeSet, ShapeTable};
use crate::time::Time;
use crate::topology::{Domain, Topology};
use std::cell::OnceCell;

/// Free room during one fixed window of time.
pub trait Room {
    /// The tree.
    fn topology(&self) -> &Topology;

    /// The pod shapes.
    fn shapes(&self) -> &ShapeTable;

    /// The least free amounts of a node during the window, by resource row (missing rows are zero); all zero or empty
    /// when the node may not be used.
    fn free(&self, node: NodeIdx) -> &[i64];

    /// Whole pods of one shape that a node holds during the window; 0 where it is not eligible.
    fn pods(&self, node: NodeIdx, shape: ShapeIdx) -> u32;

    /// The sum of [`Room::pods`] over a domain's nodes.
    fn pods_in(&self, domain: DomainIdx, shape: ShapeIdx) -> u64;

    /// When the node is predicted to be wholly free of what runs on it now ([`Time::NEVER`] if never; not later than
    /// the window's start if it is free already).
    fn wholly_free_at(&self, node: NodeIdx) -> Time;

    /// Whether a reservation of somebody else starts on the node before the job would end (such nodes come last).
    fn promised(&self, node: NodeIdx) -> bool;

    /// 0 healthy; higher is worse.
    fn health(&self, node: NodeIdx) -> u8;

    /// Free devices of a node, all kinds together; 0 where the room does not know which resources are devices.
    fn devices(&self, _node: NodeIdx) -> i64 {
        0
    }
}

/// A [`Room`] of given free amounts that do not change with time: an empty cluster, a test, a benchmark.
///
/// Counts of a shape are made when it is first asked for and kept up by [`FixedRoom::take`].
#[derive(Clone, Debug)]
pub struct FixedRoom<'a> {
    topology: &'a Topology,
    shapes: &'a ShapeTable,
    free: Vec<Amounts>,
    wholly_free_at: Vec<Time>,
    promised: NodeSet,
    health: Vec<u8>,
    counts: Vec<OnceCell<Counts>>,
}

/// Whole pods of one shape by node and by domain.
#[derive(Clone, Debug)]
struct Counts {
    nodes: Vec<u32>,
    domains: Vec<u64>,
}

impl<'a> FixedRoom<'a> {
    /// A room with these free amounts by node row; nothing runs, nothing is promised, every node is healthy.
    #[must_use]
    pub fn new(topology: &'a Topology, shapes: &'a ShapeTable, free: Vec<Amounts>) -> Self {
        let nodes = topology.node_count();
        Self {
            topology,
            shapes,
            free,
            wholly_free_at: vec![Time(i64::MIN); nodes],
            promised: NodeSet::default(),
            health: vec![0; nodes],
            counts: vec![OnceCell::new(); shapes.all().len()],
        }
    }

    /// Says when a node is predicted to be wholly free.
    pub fn set_wholly_free_at(&mut self, node: NodeIdx, at: Time) {
        self.wholly_free_at[node.row()] = at;
    }

    /// Says whether somebody else's reservation starts on a node.
    pub fn set_promised(&mut self, node: NodeIdx, promised: bool) {
        self.promised.set(node, promised);
    }

    /// Sets the health of a node.
    pub fn set_health(&mut self, node: NodeIdx, health: u8) {
        self.health[node.row()] = health;
    }

    /// Takes (or with a negative number gives back) the room of `pods` pods of a shape on a node.
    pub fn take(&mut self, node: NodeIdx, shape: ShapeIdx, pods: i64) {
        self.free[node.row()].add(&self.shapes.get(shape).requests, -pods);
        for (row, cell) in self.counts.iter_mut().enumerate() {
            let Some(counts) = cell.get_mut() else { continue };
            let now = pods_on(self.shapes, &self.free, node, ShapeIdx::of(row));
            let before = std::mem::replace(&mut counts.nodes[node.row()], now);
            let mut at = Some(self.topology.innermost(node));
            while let Some(domain) = at {
                let sum = &mut counts.domains[domain.row()];
                *sum = *sum + u64::from(now) - u64::from(before);
                at = self.topology.domain(domain).parent;
            }
        }
    }

    fn counts(&self, shape: ShapeIdx) -> &Counts {
        self.counts[shape.row()].get_or_init(|| {
            let rows = 0..self.topology.node_count();
            let nodes: Vec<u32> = rows.map(|r| pods_on(self.shapes, &self.free, NodeIdx::of(r), shape)).collect();
            let sum = |d: &Domain| d.node_range().map(|n| u64::from(nodes[n.row()])).sum();
            let domains = self.topology.domains().iter().map(sum).collect();
            Counts { nodes, domains }
        })
    }
}

fn pods_on(shapes: &ShapeTable, free: &[Amounts], node: NodeIdx, shape: ShapeIdx) -> u32 {
    let shape = shapes.get(shape);
    if shape.eligible.contains(node) { shape.requests.times_in(&free[node.row()].0) } else { 0 }
}

impl Room for FixedRoom<'_> {
    fn topology(&self) -> &Topology {
        self.topology
    }

    fn shapes(&self) -> &ShapeTable {
        self.shapes
    }

    fn free(&self, node: NodeIdx) -> &[i64] {
        &self.free[node.row()].0
    }

    fn pods(&self, node: NodeIdx, shape: ShapeIdx) -> u32 {
        self.counts(shape).nodes[node.row()]
    }

    fn pods_in(&self, domain: DomainIdx, shape: ShapeIdx) -> u64 {
        self.counts(shape).domains[domain.row()]
    }

    fn wholly_free_at(&self, node: NodeIdx) -> Time {
        self.wholly_free_at[node.row()]
    }

    fn promised(&self, node: NodeIdx) -> bool {
        self.promised.contains(node)
    }

    fn health(&self, node: NodeIdx) -> u8 {
        self.health[node.row()]
    }
}
