//! Limits for now: what a queue and its ancestors may still start, and what others' lending limits leave to borrow.

use super::Shares;
use super::columns::Columns;
use crate::ids::QueueIdx;
use crate::queue::QuotaKey;
use crate::state::{ClusterState, Tally};

/// Which rule a demand would break.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitKind {
    /// The `limit` of a queue.
    Limit,
    /// `maxRunningJobs`.
    MaxRunningJobs,
    /// The `lendingLimit` of another queue: the room is idle but may not be borrowed. Unlike the others this one is a
    /// shortage of room, which victims of queues above their guarantee can relieve.
    Lending,
    /// The guarantee, for jobs that may use no more.
    Guarantee,
}

/// A demand that a queue has no right to now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OverLimit {
    /// The rule.
    pub kind: LimitKind,
    /// The queue whose rule it is (the queue itself, an ancestor, or the one that lends).
    pub queue: QueueIdx,
    /// The quota key ([`LimitKind::MaxRunningJobs`]: of pod slots, meaningless).
    pub key: QuotaKey,
    /// Wanted of it.
    pub wanted: i64,
    /// Left of it, not negative.
    pub left: i64,
}

/// Room that lending limits keep for their own queues, for one quota key.
#[derive(Clone, Debug)]
pub(crate) struct Lending {
    column: usize,
    /// Per queue: the part of its guarantee that it may not lend; 0 without a lending limit.
    unlent: Vec<i64>,
    /// Per queue: unused room kept for it and those below: max(own, Σ children).
    kept: Vec<i64>,
    /// Per queue: Σ over its children of what is kept for them.
    kept_below: Vec<i64>,
}

impl Lending {
    /// One entry per key that any queue has a lending limit for.
    pub(crate) fn all_of(state: &ClusterState, columns: &Columns, deepest_first: &[QueueIdx]) -> Vec<Self> {
        let limited = |column: &usize| {
            let key = columns.key(*column);
            state.queues().iter().any(|q| q.lending_limit.contains_key(&key) && q.guarantee.contains_key(&key))
        };
        (0..columns.len()).filter(limited).map(|c| Self::of(state, columns, c, deepest_first)).collect()
    }

    fn of(state: &ClusterState, columns: &Columns, column: usize, deepest_first: &[QueueIdx]) -> Self {
        let key = columns.key(column);
        let unlent = |q: &crate::queue::Queue| match (q.guarantee.get(&key), q.lending_limit.get(&key)) {
            (Some(guarantee), Some(lendable)) => (guarantee - lendable).max(0),
            _ => 0,
        };
        let unlent: Vec<i64> = state.queues().iter().map(unlent).collect();
        let mut lending = Self { column, kept: vec![0; unlent.len()], kept_below: vec![0; unlent.len()], unlent };
        for &queue in deepest_first {
            let use_ = state.queue_use(queue).get(&key).copied().unwrap_or(0);
            lending.recount(queue, state.queue(queue).parent, use_);
        }
        lending
    }

    /// To be called for a queue whose use changed, after its children.
    fn recount(&mut self, queue: QueueIdx, parent: QueueIdx, use_: i64) {
        let row = queue.row();
        let own = (self.unlent[row] - use_).clamp(0, self.unlent[row]);
        let kept = own.max(self.kept_below[row]);
        let change = kept - self.kept[row];
        self.kept[row] = kept;
        if queue != QueueIdx::ROOT {
            self.kept_below[parent.row()] += change;
        }
    }
}

impl Shares<'_> {
    /// Whether a job of this queue with this demand may start now: `limit` and `maxRunningJobs` of the queue and every
    /// ancestor, and what lending limits of other queues leave. Only for the present moment: for a later one, take out
    /// what ends until then from a copy first.
    ///
    /// # Errors
    /// The first rule that says no.
    pub fn limit_left(&self, queue: QueueIdx, demand: &Tally) -> Result<(), OverLimit> {
        for here in self.snapshot.state.lineage(queue) {
            let most = self.snapshot.state.queue(here).max_running_jobs;
            if most.is_some_and(|most| self.running[here.row()] >= most) {
                return Err(OverLimit {
                    kind: LimitKind::MaxRunningJobs,
                    queue: here,
                    key: QuotaKey { pool: None, resource: crate::resources::ResourceTable::PODS },
                    wanted: 1,
                    left: 0,
                });
            }
        }
        self.growth_left(queue, demand)
    }

    /// [`Shares::limit_left`] for a running job that grows by `demand`.
    ///
    /// # Errors
    /// The first rule that says no.
    pub fn growth_left(&self, queue: QueueIdx, demand: &Tally) -> Result<(), OverLimit> {
        for here in self.snapshot.state.lineage(queue) {
            for (key, most) in &self.snapshot.state.queue(here).limit {
                let wanted = demand.get(key).copied().unwrap_or(0);
                let used = self.columns.find(*key).map_or(0, |c| self.use_.row(here)[c]);
                let left = most.saturating_sub(used);
                if wanted > 0 && wanted > left {
                    return Err(OverLimit {
                        kind: LimitKind::Limit,
                        queue: here,
                        key: *key,
                        wanted,
                        left: left.max(0),
                    });
                }
            }
        }
        self.lending_left(queue, demand)
    }

    pub(crate) fn lending_left(&self, queue: QueueIdx, demand: &Tally) -> Result<(), OverLimit> {
        for lending in &self.lending {
            let key = self.columns.key(lending.column);
            let wanted = demand.get(&key).copied().unwrap_or(0);
            if wanted <= 0 {
                continue;
            }
            let (kept, lender) = self.kept_from(lending, queue);
            let used = self.use_.row(QueueIdx::ROOT)[lending.column];
            let left = self.snapshot.state.usable().get(&key).copied().unwrap_or(0) - used - kept;
            if kept > 0 && wanted > left {
                return Err(OverLimit { kind: LimitKind::Lending, queue: lender, key, wanted, left: left.max(0) });
            }
        }
        Ok(())
    }

    /// Room kept from a queue by others, and the one that keeps most of it.
    fn kept_from(&self, lending: &Lending, queue: QueueIdx) -> (i64, QueueIdx) {
        let mut kept = 0;
        let mut most = (0, queue);
        for here in self.snapshot.state.lineage(queue).filter(|q| *q != QueueIdx::ROOT) {
            let parent = self.snapshot.state.queue(here).parent;
            kept += lending.kept_below[parent.row()] - lending.kept[here.row()];
            for &sibling in self.children[parent.row()].iter().filter(|s| **s != here) {
                if lending.kept[sibling.row()] > most.0 {
                    most = (lending.kept[sibling.row()], sibling);
                }
            }
        }
        (kept, most.1)
    }

    /// Brings the lending tables up to date along a lineage whose use changed.
    pub(crate) fn recount_lending(&mut self, queue: QueueIdx) {
        let state = self.snapshot.state;
        for lending in &mut self.lending {
            for here in state.lineage(queue) {
                lending.recount(here, state.queue(here).parent, self.use_.row(here)[lending.column]);
            }
        }
    }
}
