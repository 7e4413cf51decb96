//! [`Room`]: free room as one placement question sees it. The window of time, other jobs' reservations, quotas of time
//! and the usability of nodes are already taken off; what remains is space.

use crate::ids::{DomainIdx, NodeIdx, ShapeIdx};
use crate::shape::ShapeTable;
use crate::time::Time;
use crate::topology::Topology;

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
}
