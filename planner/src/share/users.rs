//! Order among the users of a queue with `order: Fair`: least decayed dominant use first.

use super::decay::{decay, use_by_user};
use super::{FINE, Ratio};
use crate::ids::{JobIdx, QueueIdx, ResourceIdx};
use crate::job::{Job, Placement};
use crate::policy::Policy;
use crate::queue::{Order, QuotaKey};
use crate::state::{Snapshot, Tally};
use crate::time::Span;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Decayed use by queue, user and resource at the snapshot's moment, with what this cycle gave.
#[derive(Clone, Debug)]
pub struct Users<'a> {
    snapshot: Snapshot<'a>,
    half_life: Span,
    use_: BTreeMap<(QueueIdx, Arc<str>), BTreeMap<ResourceIdx, i128>>,
}

impl<'a> Users<'a> {
    /// Integrates the use of every user of every `Fair` queue up to now. Costs nothing if there is no such queue.
    #[must_use]
    #[allow(clippy::cast_possible_truncation, clippy::cast_precision_loss)]
    pub fn new(snapshot: Snapshot<'a>, policy: &Policy) -> Self {
        let (state, half_life) = (snapshot.state, policy.share_half_life);
        let mut users = Self { snapshot, half_life, use_: BTreeMap::new() };
        for (row, queue) in state.queues().iter().enumerate().filter(|(_, q)| q.order == Order::Fair) {
            let row = QueueIdx::of(row);
            let present = use_by_user(state, row);
            if half_life <= Span::ZERO {
                for (user, tally) in present {
                    users.change(row, &user, &tally, 1);
                }
                continue;
            }
            for (user, decayed) in &queue.users {
                let use_ = users.use_.entry((row, user.clone())).or_default();
                for (resource, old) in decayed {
                    let key = QuotaKey { pool: None, resource: *resource };
                    let now = present.get(user).and_then(|t| t.get(&key)).copied().unwrap_or(0);
                    let value = decay(*old, now as f64, snapshot.now, half_life).value;
                    use_.insert(*resource, (value * FINE as f64).round() as i128);
                }
            }
        }
        users
    }

    /// As [`super::Shares::count_this_instant`].
    pub(crate) fn count_this_instant(&mut self) {
        let Snapshot { state, now } = self.snapshot;
        if self.half_life <= Span::ZERO {
            for job in state.marks().leaving.union(&state.marks().shedding).filter_map(|row| state.job(*row)) {
                let running = job.running().map(|r| &r.placement);
                for placement in job.held().into_iter().filter(|p| running.is_none_or(|r| !std::ptr::eq(*p, r))) {
                    self.seats(job, placement, -1);
                }
            }
            return;
        }
        for (_, row) in state.marks().started.range((now, JobIdx(0))..) {
            if let Some((job, running)) = state.job(*row).and_then(|j| Some((j, j.running()?))) {
                self.seats(job, &running.placement.at_floor(&job.spec), 1);
            }
        }
    }

    fn seats(&mut self, job: &Job, placement: &Placement, times: i128) {
        if self.snapshot.state.queue(job.spec.queue).order == Order::Fair {
            let mut tally = Tally::new();
            self.snapshot.state.count_seats(&job.spec, placement, &mut tally, 1);
            self.change(job.spec.queue, &job.spec.user, &tally, times);
        }
    }

    /// A job of the user changes its size: its past stays counted, so only present use changes.
    pub(crate) fn resize(&mut self, queue: QueueIdx, user: &Arc<str>, before: &Tally, after: &Tally) {
        if self.snapshot.state.queue(queue).order == Order::Fair && self.half_life <= Span::ZERO {
            self.change(queue, user, before, -1);
            self.change(queue, user, after, 1);
        }
    }

    fn change(&mut self, queue: QueueIdx, user: &Arc<str>, tally: &Tally, times: i128) {
        let use_ = self.use_.entry((queue, user.clone())).or_default();
        for (key, amount) in tally.iter().filter(|(k, _)| k.pool.is_none()) {
            *use_.entry(key.resource).or_default() += i128::from(*amount) * FINE * times;
        }
    }

    /// A job of the user starts in this cycle. Queues of another order are not counted.
    pub fn give(&mut self, queue: QueueIdx, user: &Arc<str>, tally: &Tally) {
        if self.snapshot.state.queue(queue).order == Order::Fair {
            self.change(queue, user, tally, 1);
        }
    }

    /// A job of the user stops in this cycle. Its past stays counted; only with a half-life of zero, where use is what
    /// is held now, or to undo a start of this cycle, does it go down.
    pub fn take(&mut self, queue: QueueIdx, user: &Arc<str>, tally: &Tally, undo: bool) {
        if self.snapshot.state.queue(queue).order == Order::Fair && (undo || self.half_life <= Span::ZERO) {
            self.change(queue, user, tally, -1);
        }
    }

    /// The user's decayed use as a fraction of the cluster, largest over resources. Who is not listed has none.
    #[must_use]
    pub fn share(&self, queue: QueueIdx, user: &Arc<str>) -> Ratio {
        let Some(use_) = self.use_.get(&(queue, user.clone())) else { return Ratio::ZERO };
        let of_total = |(resource, value): (&ResourceIdx, &i128)| {
            let key = QuotaKey { pool: None, resource: *resource };
            let total = self.snapshot.state.totals().get(&key).copied().unwrap_or(0).max(0).unsigned_abs();
            if total == 0 {
                Ratio::ZERO
            } else {
                Ratio::new(value.max(&0).unsigned_abs(), u128::from(total) * FINE.unsigned_abs())
            }
        };
        use_.iter().map(of_total).max().unwrap_or(Ratio::ZERO)
    }
}
