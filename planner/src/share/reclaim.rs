//! Whether one queue's job may take room from another queue's: the rule that never ping-pongs.
//!
//! Everything is compared per resource: what a taker gets must be within its right in the very resource in which the
//! victim's queue, and every family of it below the common ancestor, holds more than its own right. So the job that was
//! stopped cannot come back by the same rule: with it its queue would be above its right again. Rights stand still during
//! evictions (fair shares count what is in use and what waits, see `fair`), hence each eviction shrinks what is held
//! beyond right, and evictions end.

use super::Shares;
use crate::ids::QueueIdx;
use crate::state::Tally;

/// For whom room is wanted.
#[derive(Clone, Copy, Debug)]
pub struct Taker<'t> {
    /// Its queue.
    pub queue: QueueIdx,
    /// Its floor.
    pub demand: &'t Tally,
    /// Its private start has come: it is entitled whatever its queue borrows besides.
    pub private_start: bool,
}

/// By what right a running job of another queue may be stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reclaim {
    /// The taker is within its guarantee and the victim's queue above its own.
    Entitled,
    /// The taker's queue stays within its fair share, the victim's is above its own, and after the exchange the taker's
    /// share is not above the victim's.
    FairShare,
    /// By none.
    No,
}

impl Shares<'_> {
    /// By what right `victim`, held by a job of another queue (or a part of an elastic one), may be taken for the taker.
    ///
    /// Judged where the two families meet: the children of the lowest common ancestor, and everything below them on both
    /// sides. Victims chosen before must have been taken out by [`Shares::take`], so that a queue is never taken below
    /// what it has a right to by several small bites. (One indivisible job may straddle the line: it is borrowed.)
    ///
    /// The caller looks at the job itself: lent or guaranteed, `reclaim.from`, `reclaim.minRuntime`, firm.
    #[must_use]
    pub fn may_reclaim(&self, taker: &Taker, victim_queue: QueueIdx, victim: &Tally) -> Reclaim {
        let (ours, theirs) = self.lca_child(taker.queue, victim_queue);
        if ours == theirs {
            return Reclaim::No;
        }
        let entitled = taker.private_start || self.entitled_below(taker.queue, taker.demand, Some(ours));
        let own = |column: usize, amount: i64| {
            // What the queue borrows besides does not count against a private start.
            let more = if taker.private_start { -self.use_.row(taker.queue)[column] } else { amount };
            self.has_right(taker.queue, column, more)
        };
        let may_take = |column: usize, amount: i64| {
            let above = || self.lineage_to(taker.queue, ours).skip(1);
            entitled
                && own(column, amount)
                && (taker.private_start || above().all(|q| self.not_beyond_right(q, column, amount)))
        };
        let exceeds = |column: usize| self.lineage_to(victim_queue, theirs).all(|q| self.exceeds_right(q, column));
        let shared: Vec<(usize, i64)> =
            self.columns.entries(taker.demand).filter(|(c, _)| victim.contains_key(&self.columns.key(*c))).collect();
        if shared.iter().any(|(column, amount)| may_take(*column, *amount) && exceeds(*column)) {
            return Reclaim::Entitled;
        }
        let fair = self.fair();
        let plain = |c: &usize| !self.columns.is_pooled(*c);
        let within_share = self.columns.entries(taker.demand).filter(|(c, _)| plain(c)).all(|(c, amount)| {
            self.lineage_to(taker.queue, ours).all(|q| self.use_.row(q)[c].saturating_add(amount) <= fair.row(q)[c])
        });
        let above_share =
            |c: usize| self.lineage_to(victim_queue, theirs).all(|q| self.use_.row(q)[c] > fair.row(q)[c]);
        // What its own guarantee covers would come back at once, by a better right.
        let covered = self.covered(victim_queue, theirs, victim);
        if within_share
            && !covered
            && shared.iter().any(|(c, _)| plain(c) && exceeds(*c) && above_share(*c))
            && self.present_share(ours, taker.demand, 1) <= self.present_share(theirs, victim, -1)
        {
            return Reclaim::FairShare;
        }
        Reclaim::No
    }

    /// Whether a job that runs would be entitled to its room if it asked for it again.
    fn covered(&self, queue: QueueIdx, top: QueueIdx, held: &Tally) -> bool {
        let mut lists_any = false;
        for (column, _) in self.columns.entries(held) {
            lists_any |= self.listed(queue, column).is_some();
            let mut line = self.lineage_to(queue, top);
            if line.any(|q| self.listed(q, column).is_some_and(|g| self.use_.row(q)[column] > g)) {
                return false;
            }
        }
        lists_any
    }

    /// Whether a queue with `more` added stays within its right to a column, if it has any: ancestors without guarantee
    /// do not bind.
    fn not_beyond_right(&self, queue: QueueIdx, column: usize, more: i64) -> bool {
        let binds =
            self.guarantees.effective.row(queue)[column].is_some() || self.guarantees.implied.row(queue)[column] > 0;
        !binds || self.has_right(queue, column, more)
    }

    /// A queue and its ancestors up to and including `top`.
    fn lineage_to(&self, queue: QueueIdx, top: QueueIdx) -> impl Iterator<Item = QueueIdx> + '_ {
        let mut over = false;
        self.snapshot.state.lineage(queue).take_while(move |q| !std::mem::replace(&mut over, *q == top))
    }
}
