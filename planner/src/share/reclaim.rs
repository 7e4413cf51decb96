//! Whether one queue's job may take room from another queue's: the rule that never ping-pongs.
//!
//! A victim's queue is always above what it has a right to, and what the taker gets is always within what it has a right
//! to, in the same resource. So the job that was stopped cannot come back by the same rule: with it its queue would be
//! above its right again. Guarantees and fair shares stand still during evictions (see `fair`), hence each eviction
//! shrinks what is held beyond right, and evictions end.

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
        if taker.private_start || self.entitled_below(taker.queue, taker.demand, Some(ours)) {
            return if self.family_lends(victim_queue, theirs, taker.demand, victim) {
                Reclaim::Entitled
            } else {
                Reclaim::No
            };
        }
        if self.fair_to_take(taker, ours, victim_queue, theirs, victim) { Reclaim::FairShare } else { Reclaim::No }
    }

    /// Whether every queue from the victim's up to `top` is above its guarantee in what the taker wants.
    fn family_lends(&self, victim_queue: QueueIdx, top: QueueIdx, wanted: &Tally, victim: &Tally) -> bool {
        for here in self.snapshot.state.lineage(victim_queue) {
            if !self.lends(here, wanted, victim) {
                return false;
            }
            if here == top {
                break;
            }
        }
        true
    }

    fn fair_to_take(
        &self,
        taker: &Taker,
        ours: QueueIdx,
        victim_queue: QueueIdx,
        theirs: QueueIdx,
        victim: &Tally,
    ) -> bool {
        let (state, fair) = (self.snapshot.state, self.fair());
        let plain = |tally| self.columns.entries(tally).filter(|(c, _)| !self.columns.is_pooled(*c));
        for here in state.lineage(taker.queue) {
            let (use_, right) = (self.use_.row(here), fair.row(here));
            if plain(taker.demand).any(|(c, amount)| use_[c].saturating_add(amount) > right[c]) {
                return false;
            }
            if here == ours {
                break;
            }
        }
        if !self.family_lends(victim_queue, theirs, taker.demand, victim) {
            return false;
        }
        for here in state.lineage(victim_queue) {
            let (use_, right) = (self.use_.row(here), fair.row(here));
            let wanted = |c: usize| taker.demand.get(&self.columns.key(c)).is_some_and(|w| *w > 0);
            if !plain(victim).any(|(c, _)| wanted(c) && use_[c] > right[c]) {
                return false;
            }
            if here == theirs {
                break;
            }
        }
        self.present_share(ours, taker.demand, 1) <= self.present_share(theirs, victim, -1)
    }
}
