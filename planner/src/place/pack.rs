//! Packs kinds of pods on given nodes, first fit: quick, and no proof when it fails.

use super::ask::Kind;
use super::layout::Load;
use crate::ids::{NodeIdx, ShapeIdx};
use crate::room::Room;

/// What is left of one node while pods are put on it.
pub(crate) struct Rest<'r, R> {
    room: &'r R,
    node: NodeIdx,
    free: Vec<i64>,
    touched: bool,
}

impl<'r, R: Room> Rest<'r, R> {
    /// A node nothing was put on yet.
    pub(crate) fn new(room: &'r R, node: NodeIdx) -> Self {
        Self { room, node, free: Vec::new(), touched: false }
    }

    /// Pods of a shape that still fit.
    pub(crate) fn holds(&self, shape: ShapeIdx) -> u32 {
        let whole = self.room.pods(self.node, shape);
        if !self.touched || whole == 0 {
            return whole;
        }
        whole.min(self.room.shapes().get(shape).requests.times_in(&self.free))
    }

    /// Puts pods on it.
    pub(crate) fn take(&mut self, shape: ShapeIdx, pods: u32) {
        if !self.touched {
            self.free.extend_from_slice(self.room.free(self.node));
            self.touched = true;
        }
        for (have, need) in self.free.iter_mut().zip(&self.room.shapes().get(shape).requests.0) {
            *have -= need * i64::from(pods);
        }
    }
}

/// Fills the nodes in the given order with whatever is still wanted of each kind (`want`, in pods), ignoring slices.
pub(crate) fn first_fit<R: Room>(
    room: &R,
    kinds: &[Kind],
    nodes: impl Iterator<Item = NodeIdx>,
    want: &mut [u32],
    loads: &mut Vec<Load>,
) {
    for node in nodes {
        if want.iter().all(|w| *w == 0) {
            return;
        }
        let mut rest = Rest::new(room, node);
        for (row, kind) in kinds.iter().enumerate() {
            let pods = want[row].min(if want[row] == 0 { 0 } else { rest.holds(kind.shape) });
            if pods > 0 {
                rest.take(kind.shape, pods);
                want[row] -= pods;
                loads.push(Load { node, kind: row, pods });
            }
        }
    }
}
