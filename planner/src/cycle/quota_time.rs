//! Limits over time: what each queue with a limit uses at every later moment, reservations included (decision 4).
//!
//! Use only falls from now on unless something is reserved, so the book is opened for the queues above a reservation
//! and answers at once for all others.

use crate::ids::QueueIdx;
use crate::job::Phase;
use crate::policy::Policy;
use crate::queue::{QueueState, QuotaKey};
use crate::state::{ClusterState, Snapshot, Tally};
use crate::time::{Span, Time};
use std::collections::BTreeMap;

/// Use of one queue over time.
#[derive(Debug, Default)]
struct Page {
    holds: Vec<(Time, Time, Tally)>,
}

/// Pages of the queues that have a limit.
#[derive(Debug, Default)]
pub(crate) struct QuotaBook {
    pages: BTreeMap<QueueIdx, Page>,
}

impl QuotaBook {
    pub(crate) fn open(snapshot: Snapshot<'_>, policy: &Policy) -> Self {
        let state = snapshot.state;
        let mut book = Self::default();
        for (row, queue) in state.queues().iter().enumerate() {
            if (!queue.limit.is_empty() || queue.max_running_jobs.is_some()) && queue.state != QueueState::Held {
                book.pages.insert(QueueIdx::of(row), Page::default());
            }
        }
        if book.pages.is_empty() {
            return book;
        }
        for (_, job) in state.jobs() {
            let held: Vec<(Time, Time, &crate::job::Placement)> = match &job.phase {
                Phase::Running(r) => {
                    let to = crate::ledger::Ledger::assumed_end(r.ends, snapshot.now, policy.cycle);
                    vec![(Time(i64::MIN), to, &r.placement)]
                }
                Phase::Leaving(l) => vec![(Time(i64::MIN), l.gone_by, &l.placement)],
                Phase::Waiting(w) => w.reservation.iter().map(|r| (r.start, r.end, &r.placement)).collect(),
            };
            for (from, to, placement) in held {
                let mut tally = Tally::new();
                state.count_seats(&job.spec, placement, &mut tally, 1);
                book.add(state, job.spec.queue, from, to, &tally);
            }
        }
        book
    }

    /// Notes a hold of a queue.
    pub(crate) fn add(&mut self, state: &ClusterState, queue: QueueIdx, from: Time, to: Time, tally: &Tally) {
        if self.pages.is_empty() {
            return;
        }
        for ancestor in state.lineage(queue) {
            if let Some(page) = self.pages.get_mut(&ancestor) {
                page.holds.push((from, to, tally.clone()));
            }
        }
    }

    /// Forgets a hold of a queue (a running one whatever its start).
    pub(crate) fn remove(&mut self, state: &ClusterState, queue: QueueIdx, from: Time, to: Time, tally: &Tally) {
        if self.pages.is_empty() {
            return;
        }
        for ancestor in state.lineage(queue) {
            if let Some(page) = self.pages.get_mut(&ancestor) {
                let exact = page.holds.iter().position(|h| h.0 == from && h.1 == to && h.2 == *tally);
                let alike = || page.holds.iter().position(|h| h.2 == *tally && h.1 >= to && h.0 <= from.max(h.0));
                if let Some(at) = exact.or_else(alike) {
                    page.holds.swap_remove(at);
                }
            }
        }
    }

    /// The first moment from `from` on at which this demand keeps every limit above the queue for all of `length`.
    /// None if it never does.
    pub(crate) fn first_fit(
        &self,
        state: &ClusterState,
        queue: QueueIdx,
        demand: &Tally,
        length: Span,
        from: Time,
    ) -> Option<Time> {
        let mut at = from;
        // Each round ends at the end of some hold, so there are at most as many rounds as holds.
        for _ in 0..10_000 {
            let mut later = at;
            for ancestor in state.lineage(queue) {
                let Some(page) = self.pages.get(&ancestor) else { continue };
                later = later.max(page.first_fit(state, ancestor, demand, length, at)?);
            }
            if later == at {
                return Some(at);
            }
            at = later;
        }
        None
    }

    /// Whether the demand keeps every limit above the queue during `[from, from + length)`.
    pub(crate) fn fits(&self, state: &ClusterState, queue: QueueIdx, demand: &Tally, length: Span, from: Time) -> bool {
        self.pages.is_empty() || self.first_fit(state, queue, demand, length, from) == Some(from)
    }
}

impl Page {
    fn first_fit(
        &self,
        state: &ClusterState,
        queue: QueueIdx,
        demand: &Tally,
        length: Span,
        from: Time,
    ) -> Option<Time> {
        let limit = &state.queue(queue).limit;
        let most = state.queue(queue).max_running_jobs.map(i64::from);
        let mut starts: Vec<Time> = vec![from];
        starts.extend(self.holds.iter().map(|h| h.1).filter(|t| *t > from && !t.is_never()));
        starts.sort_unstable();
        starts.dedup();
        starts.into_iter().find(|&start| {
            let end = start + length;
            let mut moments: Vec<Time> = vec![start];
            moments.extend(self.holds.iter().map(|h| h.0).filter(|t| *t > start && *t < end));
            moments.sort_unstable();
            moments.dedup();
            moments.into_iter().all(|moment| {
                let live = || self.holds.iter().filter(move |h| h.0 <= moment && moment < h.1);
                let used = |key: &QuotaKey| live().map(|h| h.2.get(key).copied().unwrap_or(0)).sum::<i64>();
                let fits = demand
                    .iter()
                    .all(|(key, amount)| limit.get(key).is_none_or(|most| *amount <= 0 || used(key) + amount <= *most));
                let count = || i64::try_from(live().count()).unwrap_or(i64::MAX);
                fits && most.is_none_or(|most| count() < most)
            })
        })
    }
}
