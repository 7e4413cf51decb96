//! Which queue is next: those below guarantee first, then by hierarchical weighted dominant share of decayed use.

use super::columns::{Columns, Grid};
use super::decay::decay;
use super::{Contest, FINE, Ratio, Shares};
use crate::ids::QueueIdx;
use crate::queue::QuotaKey;
use crate::state::{Snapshot, Tally};
use crate::time::{Span, Time};

/// The best waiting job of a queue, as far as the choice of the queue needs it.
#[derive(Clone, Copy, Debug)]
pub struct Head<'d> {
    /// Its priority.
    pub priority: i64,
    /// Its submission.
    pub queued_at: Time,
    /// Its place among equal submissions (file order; 0 on a cluster).
    pub sequence: u64,
    /// What its floor counts for in quotas.
    pub demand: &'d Tally,
}

/// Where a queue stands among its siblings, better first: class, share; equals are told apart by their heads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Standing {
    /// 0: the head fits the queue's guarantee; 1: the queue is below its guarantee but the head overshoots it; 2: else.
    pub class: u8,
    /// Decayed use beyond the guarantee as a fraction of the cluster, by weight.
    pub share: Ratio,
}

/// A weight in whole 2^-20 parts; those too small to count are the smallest.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
pub(super) fn fixed_weight(weight: f64) -> u128 {
    let parts = (weight * 1_048_576.0).round();
    if parts.is_finite() && parts >= 1.0 { parts.min(1e15) as u128 } else { 1 }
}

/// Decayed use at the snapshot's moment: each leaf's integrated exactly, ancestors as sums.
#[allow(clippy::cast_possible_truncation, clippy::cast_precision_loss)]
pub(super) fn history(
    snapshot: Snapshot,
    half_life: Span,
    columns: &Columns,
    deepest_first: &[QueueIdx],
) -> Grid<i128> {
    let state = snapshot.state;
    let mut grid: Grid<i128> = Grid::new(state.queues().len(), columns, 0);
    if half_life <= Span::ZERO {
        return grid;
    }
    for &queue in deepest_first {
        for (resource, old) in &state.queue(queue).decayed {
            let key = QuotaKey { pool: None, resource: *resource };
            let Some(column) = columns.find(key) else { continue };
            let present = state.queue_use(queue).get(&key).copied().unwrap_or(0);
            let value = decay(*old, present as f64, snapshot.now, half_life).value;
            grid.row_mut(queue)[column] += (value * FINE as f64).round() as i128;
        }
        if queue != QueueIdx::ROOT {
            let row = grid.row(queue).to_vec();
            let parent = grid.row_mut(state.queue(queue).parent);
            parent.iter_mut().zip(row).for_each(|(sum, part)| *sum += part);
        }
    }
    grid
}

impl Shares<'_> {
    /// Use beyond guarantee as a fraction of the cluster, largest over resources, by weight; of decayed use plus what
    /// this cycle gave. With a half-life of zero: of present use.
    pub(super) fn share_for_order(&self, queue: QueueIdx) -> Ratio {
        if self.half_life <= Span::ZERO {
            return self.dominant(queue, |column| i128::from(self.use_.row(queue)[column]) * FINE);
        }
        self.dominant(queue, |column| {
            // A victim's past stays.
            let given = i128::from(self.given.row(queue)[column].max(0));
            self.history.row(queue)[column] + given * FINE
        })
    }

    /// The share that victims are judged by: of present use plus `more` (negative: less), never decayed.
    #[must_use]
    pub fn present_share(&self, queue: QueueIdx, more: &Tally, times: i64) -> Ratio {
        self.dominant(queue, |column| {
            let change = more.get(&self.columns.key(column)).copied().unwrap_or(0) * times;
            i128::from(self.use_.row(queue)[column].saturating_add(change)) * FINE
        })
    }

    /// The share that queues are ordered by, see [`Standing`].
    #[must_use]
    pub fn order_share(&self, queue: QueueIdx) -> Ratio {
        self.order_share[queue.row()]
    }

    /// Keys of one pool count only for queues that list them.
    fn dominant(&self, queue: QueueIdx, use_: impl Fn(usize) -> i128) -> Ratio {
        let implied = self.guarantees.implied.row(queue);
        let mut most = Ratio::ZERO;
        for (column, implied) in implied.iter().enumerate() {
            if self.columns.is_pooled(column) && self.guarantees.effective.row(queue)[column].is_none() {
                continue;
            }
            let over = use_(column) - i128::from(*implied) * FINE;
            let total = self.snapshot.state.totals().get(&self.columns.key(column)).copied().unwrap_or(0);
            if over > 0 && total > 0 {
                // 2^20 parts of use over 2^20 parts of weight: the scales cancel.
                let (over, total) = (over.unsigned_abs(), u128::from(total.unsigned_abs()));
                most = most.max(Ratio::new(over, total * self.weights[queue.row()]));
            }
        }
        most
    }

    /// Where a queue stands with the head of its family's best job.
    #[must_use]
    pub fn standing(&self, queue: QueueIdx, demand: &Tally) -> Standing {
        let class = if self.family_entitled(queue, demand) {
            0
        } else if self.below_guarantee(queue, demand) {
            1
        } else {
            2
        };
        Standing { class, share: self.order_share(queue) }
    }

    /// Whether a demand fits the queue's own effective guarantee, ancestors aside: they compete at their own level.
    fn family_entitled(&self, queue: QueueIdx, demand: &Tally) -> bool {
        let mut lists_any = false;
        for (column, amount) in self.columns.entries(demand) {
            if let Some(guarantee) = self.guarantees.effective.row(queue)[column] {
                lists_any = true;
                if self.use_.row(queue)[column].saturating_add(amount) > guarantee {
                    return false;
                }
            }
        }
        lists_any
    }

    /// The queue whose head goes next. `heads` holds at most one head per queue.
    ///
    /// To ask again and again within a cycle, keep a [`Contest`]: it only looks at what changed.
    #[must_use]
    pub fn best_queue(&self, heads: &[(QueueIdx, Head)]) -> Option<QueueIdx> {
        let mut contest = Contest::new(self);
        for (queue, head) in heads {
            contest.set(self, *queue, Some(head));
        }
        contest.best()
    }
}
