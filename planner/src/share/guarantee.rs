//! Guarantees in the tree: what each queue is entitled to, and who stands above or below it.
//!
//! Guarantees are nested. The *effective* guarantee of a queue for a key is what it lists; if it lists none, the sum of
//! its children's; if they have none either, nothing. A job is entitled only if its leaf and every ancestor that lists
//! the key stay within: a parent's guarantee caps what its children may claim together. The other way round, a queue is
//! a victim only if it *and* every ancestor below the common one are above theirs: what a family does not use beyond its
//! guarantee is settled inside the family.

use super::Shares;
use super::columns::{Columns, Grid};
use super::limit::{LimitKind, OverLimit};
use crate::ids::QueueIdx;
use crate::queue::QuotaKey;
use crate::state::{ClusterState, Tally};

/// What guarantees a tree of queues has.
#[derive(Clone, Debug)]
pub(crate) struct Guarantees {
    /// Effective guarantee per queue and column; none: neither listed nor inherited from children.
    pub(crate) effective: Grid<Option<i64>>,
    /// The guarantee that shares are counted beyond: effective, and in proportion for resources the queue does not list.
    pub(crate) implied: Grid<i64>,
}

impl Guarantees {
    /// `deepest_first` lists every queue after all of its children.
    pub(crate) fn of(state: &ClusterState, columns: &Columns, deepest_first: &[QueueIdx]) -> Self {
        let count = state.queues().len();
        let mut effective: Grid<Option<i64>> = Grid::new(count, columns, None);
        let mut implied: Grid<i64> = Grid::new(count, columns, 0);
        for &queue in deepest_first {
            let row = state.queue(queue);
            for (key, amount) in &row.guarantee {
                if let Some(column) = columns.find(*key) {
                    effective.row_mut(queue)[column] = Some((*amount).max(0));
                }
            }
            let own = implied_of(state, columns, effective.row(queue));
            for (cell, own) in implied.row_mut(queue).iter_mut().zip(own) {
                *cell = (*cell).max(own);
            }
            if queue == QueueIdx::ROOT {
                continue;
            }
            for column in 0..columns.len() {
                let (own, share) = (effective.row(queue)[column], implied.row(queue)[column]);
                let parent_lists = state.queue(row.parent).guarantee.contains_key(&columns.key(column));
                if let (Some(own), false) = (own, parent_lists) {
                    let sum = &mut effective.row_mut(row.parent)[column];
                    *sum = Some(sum.unwrap_or(0).saturating_add(own));
                }
                if !parent_lists {
                    let sum = &mut implied.row_mut(row.parent)[column];
                    *sum = sum.saturating_add(share);
                }
            }
        }
        Self { effective, implied }
    }
}

/// A queue that is guaranteed half of the GPUs and lists nothing else is taken to have a right to half of the rest too:
/// else the CPUs that come with its own GPUs would count as borrowed, and could be taken from under them. Per resource:
/// what is listed, else the sum listed for pools, else the largest listed fraction of the cluster.
fn implied_of(state: &ClusterState, columns: &Columns, listed: &[Option<i64>]) -> Vec<i64> {
    let total = |key: QuotaKey| state.totals().get(&key).copied().unwrap_or(0).max(0);
    let plain = |column: usize| -> Option<i64> {
        let key = columns.key(column);
        listed[column].or_else(|| {
            let pools =
                (0..columns.len()).filter(|c| columns.is_pooled(*c) && columns.key(*c).resource == key.resource);
            pools.filter_map(|c| listed[c]).reduce(i64::saturating_add)
        })
    };
    if listed.iter().all(Option::is_none) {
        return vec![0; columns.len()];
    }
    let fractions: Vec<(i64, i64)> = (0..columns.len())
        .filter(|c| !columns.is_pooled(*c))
        .filter_map(|c| Some((plain(c)?, total(columns.key(c)))))
        .filter(|(_, total)| *total > 0)
        .collect();
    let in_proportion = |of: i64| -> i64 {
        let part = |(g, t): &(i64, i64)| i128::from(of) * i128::from(*g.min(t)) / i128::from(*t);
        i64::try_from(fractions.iter().map(part).max().unwrap_or(0)).unwrap_or(i64::MAX)
    };
    (0..columns.len())
        .map(|c| match (columns.is_pooled(c), plain(c)) {
            (true, _) => listed[c].unwrap_or(0),
            (false, Some(amount)) => amount,
            (false, None) => in_proportion(total(columns.key(c))),
        })
        .collect()
}

impl Shares<'_> {
    /// Whether the queue could give a job of this floor room by its own guarantee: use + floor ≤ guarantee in every
    /// listed resource that the job requests, in the leaf and in every ancestor that lists it. A queue that lists none of
    /// the resources the job requests is entitled to nothing.
    ///
    /// `demand` holds plain keys, and those of a pool if the job is bound to that pool.
    #[must_use]
    pub fn entitled(&self, queue: QueueIdx, demand: &Tally) -> bool {
        self.entitled_below(queue, demand, None)
    }

    /// [`Shares::entitled`] with ancestors looked at only up to and including `top`.
    pub(crate) fn entitled_below(&self, queue: QueueIdx, demand: &Tally, top: Option<QueueIdx>) -> bool {
        let mut lists_any = false;
        for (column, amount) in self.columns.entries(demand) {
            for here in self.snapshot.state.lineage(queue) {
                let listed = self.listed(here, column);
                if here == queue {
                    lists_any |= listed.is_some();
                }
                if listed.is_some_and(|g| self.use_.row(here)[column].saturating_add(amount) > g) {
                    return false;
                }
                if Some(here) == top {
                    break;
                }
            }
        }
        lists_any
    }

    /// Whether the queue and every ancestor stay within guarantee with this demand: what a job that is not preemptible
    /// needs (decision 11). Resources the queue does not list are free; a queue that lists none at all has no guarantee.
    ///
    /// # Errors
    /// The first queue and key that would go over.
    pub fn within_guarantee(&self, queue: QueueIdx, demand: &Tally) -> Result<(), OverLimit> {
        let over = |queue, column, wanted, left: i64| OverLimit {
            kind: LimitKind::Guarantee,
            queue,
            key: self.columns.key(column),
            wanted,
            left: left.max(0),
        };
        if self.snapshot.state.queue(queue).guarantee.is_empty() {
            let first = self.columns.entries(demand).max_by_key(|(c, _)| self.scarcity(demand, *c));
            return first.map_or(Ok(()), |(column, wanted)| Err(over(queue, column, wanted, 0)));
        }
        for here in self.snapshot.state.lineage(queue) {
            for (column, wanted) in self.columns.entries(demand) {
                if let Some(g) = self.listed(here, column) {
                    let left = g.saturating_sub(self.use_.row(here)[column]);
                    if wanted > left {
                        return Err(over(here, column, wanted, left));
                    }
                }
            }
        }
        Ok(())
    }

    /// Whether the queue uses more than its guarantee of anything it lists; a queue without guarantee: whether it uses
    /// anything at all.
    #[must_use]
    pub fn above_guarantee(&self, queue: QueueIdx) -> bool {
        let (use_, guarantee) = (self.use_.row(queue), self.guarantees.effective.row(queue));
        let has_any = guarantee.iter().any(Option::is_some);
        use_.iter().zip(guarantee).any(|(u, g)| match g {
            Some(g) => u > g,
            None => !has_any && *u > 0,
        })
    }

    /// Whether, in some listed resource that the job requests, the queue uses less than its guarantee.
    #[must_use]
    pub fn below_guarantee(&self, queue: QueueIdx, demand: &Tally) -> bool {
        self.columns.entries(demand).any(|(column, amount)| {
            let guarantee = self.guarantees.effective.row(queue)[column];
            amount > 0 && guarantee.is_some_and(|g| self.use_.row(queue)[column] < g)
        })
    }

    /// Whether a queue with `more` added stays within its right to a column: what it lists, or its part in proportion of
    /// what it does not list. A column of one pool is a right only where it is listed.
    pub(super) fn has_right(&self, queue: QueueIdx, column: usize, more: i64) -> bool {
        let right = self.guarantees.implied.row(queue)[column];
        right > 0 && self.use_.row(queue)[column].saturating_add(more) <= right
    }

    /// Whether a queue holds more of a column than it has a right to; of a pool whose key it does not list: more of the
    /// resource at all.
    pub(super) fn exceeds_right(&self, queue: QueueIdx, column: usize) -> bool {
        let exceeds = |c: usize| self.use_.row(queue)[c] > self.guarantees.implied.row(queue)[c];
        if self.columns.is_pooled(column) && self.guarantees.effective.row(queue)[column].is_none() {
            let everywhere = QuotaKey { pool: None, ..self.columns.key(column) };
            return self.columns.find(everywhere).is_some_and(exceeds);
        }
        exceeds(column)
    }

    /// What a queue itself lists for a column.
    pub(crate) fn listed(&self, queue: QueueIdx, column: usize) -> Option<i64> {
        self.snapshot.state.queue(queue).guarantee.get(&self.columns.key(column)).copied()
    }

    /// Demand as parts per million of the cluster: names the resource that matters most.
    fn scarcity(&self, demand: &Tally, column: usize) -> i128 {
        let key = self.columns.key(column);
        let total = self.snapshot.state.totals().get(&key).copied().unwrap_or(0).max(1);
        i128::from(demand.get(&key).copied().unwrap_or(0)) * 1_000_000 / i128::from(total)
    }
}
