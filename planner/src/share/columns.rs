//! Amounts per queue in one dense table: a row per queue, a column per quota key that anything mentions.

use crate::ids::QueueIdx;
use crate::queue::QuotaKey;
use crate::state::{ClusterState, Tally};
use std::collections::BTreeSet;

/// The columns: every quota key that the cluster has, a queue lists or a job uses, in key order.
#[derive(Clone, Debug)]
pub(crate) struct Columns {
    keys: Vec<QuotaKey>,
}

impl Columns {
    pub(crate) fn of(state: &ClusterState) -> Self {
        let mut keys: BTreeSet<QuotaKey> = state.totals().keys().copied().collect();
        keys.extend(state.queue_use(QueueIdx::ROOT).keys());
        for queue in state.queues() {
            for quota in [&queue.guarantee, &queue.limit, &queue.lending_limit] {
                keys.extend(quota.keys());
            }
            keys.extend(queue.decayed.keys().map(|&resource| QuotaKey { pool: None, resource }));
        }
        Self { keys: keys.into_iter().collect() }
    }

    pub(crate) fn len(&self) -> usize {
        self.keys.len()
    }

    pub(crate) fn key(&self, column: usize) -> QuotaKey {
        self.keys[column]
    }

    pub(crate) fn find(&self, key: QuotaKey) -> Option<usize> {
        self.keys.binary_search(&key).ok()
    }

    /// The amounts of a tally that have a column, as (column, amount); zero amounts are left out.
    pub(crate) fn entries<'t>(&'t self, tally: &'t Tally) -> impl Iterator<Item = (usize, i64)> + 't {
        tally.iter().filter(|(_, a)| **a != 0).filter_map(|(k, a)| Some((self.find(*k)?, *a)))
    }

    /// Whether a column counts one pool only.
    pub(crate) fn is_pooled(&self, column: usize) -> bool {
        self.keys[column].pool.is_some()
    }

    /// A row of amounts back as a tally, zeros left out.
    pub(crate) fn tally(&self, row: &[i64]) -> Tally {
        self.keys.iter().zip(row).filter(|(_, a)| **a != 0).map(|(k, a)| (*k, *a)).collect()
    }
}

/// A table of one cell per queue and column.
#[derive(Clone, Debug)]
pub(crate) struct Grid<T> {
    width: usize,
    cells: Vec<T>,
}

impl<T: Clone> Grid<T> {
    pub(crate) fn new(queues: usize, columns: &Columns, value: T) -> Self {
        Self { width: columns.len(), cells: vec![value; queues * columns.len()] }
    }

    pub(crate) fn row(&self, queue: QueueIdx) -> &[T] {
        &self.cells[queue.row() * self.width..][..self.width]
    }

    pub(crate) fn row_mut(&mut self, queue: QueueIdx) -> &mut [T] {
        &mut self.cells[queue.row() * self.width..][..self.width]
    }
}
