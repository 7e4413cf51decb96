//! Limits over time: what each restricted queue uses at every later moment, reservations included (decision 4).
//!
//! A job that is not preemptible starts only while its queue and every ancestor stay within guarantee (decision 11).
//! Once it is promised a start, nothing else may spoil that moment, so its guarantee is a limit at that very instant.

use crate::ids::QueueIdx;
use crate::job::{JobSpec, Phase, Placement, Reservation};
use crate::policy::Policy;
use crate::queue::{QueueState, Quota};
use crate::state::{ClusterState, Snapshot, Tally};
use crate::time::{Span, Time};
use std::collections::BTreeMap;

/// Room that counts in a queue during a window.
#[derive(Clone, Debug)]
struct Held {
    from: Time,
    to: Time,
    tally: Tally,
    /// Counts as a running job; what a shrinking gang is giving back does not.
    job: bool,
    /// A promise to a job that is not preemptible: at `from` the guarantee must hold.
    strict: bool,
}

/// Use of one queue over time.
#[derive(Debug, Default)]
struct Page {
    holds: Vec<Held>,
}

/// Pages of the queues that are restricted.
#[derive(Debug, Default)]
pub(crate) struct QuotaBook {
    pages: BTreeMap<QueueIdx, Page>,
}

/// What a job would take, for how long, and by which rules.
#[derive(Clone, Copy, Debug)]
struct Demand<'d> {
    tally: &'d Tally,
    length: Span,
    strict: bool,
}

impl QuotaBook {
    pub(crate) fn open(snapshot: Snapshot<'_>, policy: &Policy) -> Self {
        let state = snapshot.state;
        let mut book = Self::default();
        let guaranteed =
            state.queues().iter().any(|q| !q.guarantee.is_empty()) && state.jobs().any(|(_, j)| !j.spec.preemptible);
        for (row, queue) in state.queues().iter().enumerate() {
            let restricted = !queue.limit.is_empty() || queue.max_running_jobs.is_some();
            if (restricted || guaranteed && !queue.guarantee.is_empty()) && queue.state != QueueState::Held {
                book.pages.insert(QueueIdx::of(row), Page::default());
            }
        }
        if book.pages.is_empty() {
            return book;
        }
        for (_, job) in state.jobs() {
            let held: Vec<(Time, Time, &Placement)> = match &job.phase {
                Phase::Running(r) => {
                    let to = crate::ledger::Ledger::assumed_end(r.ends, snapshot.now, policy.cycle);
                    vec![(Time(i64::MIN), to, &r.placement)]
                }
                Phase::Leaving(l) => {
                    let to = crate::ledger::Ledger::assumed_end(l.gone_by, snapshot.now, policy.cycle);
                    vec![(Time(i64::MIN), to, &l.placement)]
                }
                Phase::Waiting(w) => {
                    let window = |r: &'_ Reservation| r.counts_during(snapshot.now, policy.cycle);
                    w.reservation.iter().map(|r| (window(r).0, window(r).1, &r.placement)).collect()
                }
            };
            let strict = !job.spec.preemptible && job.waiting().is_some();
            let shed = job.shedding.iter().map(|(placement, until)| {
                let to = crate::ledger::Ledger::assumed_end(*until, snapshot.now, policy.cycle);
                (Time(i64::MIN), to, placement)
            });
            let held = held.into_iter().map(|held| (held, true));
            for ((from, to, placement), counts) in held.chain(shed.map(|held| (held, false))) {
                let mut tally = Tally::new();
                state.count_seats(&job.spec, placement, &mut tally, 1);
                book.put(state, job.spec.queue, &Held { from, to, tally, job: counts, strict });
            }
        }
        book
    }

    /// Notes that a queue holds room.
    pub(crate) fn add(&mut self, state: &ClusterState, queue: QueueIdx, from: Time, to: Time, tally: &Tally) {
        self.put(state, queue, &Held { from, to, tally: tally.clone(), job: true, strict: false });
    }

    /// Notes what a gang that runs on at a smaller size holds until its surplus is gone.
    pub(crate) fn shed(&mut self, state: &ClusterState, queue: QueueIdx, until: Time, tally: &Tally) {
        let from = Time(i64::MIN);
        self.put(state, queue, &Held { from, to: until, tally: tally.clone(), job: false, strict: false });
    }

    /// Notes a promise.
    pub(crate) fn promise(&mut self, state: &ClusterState, spec: &JobSpec, from: Time, to: Time, tally: &Tally) {
        let strict = !spec.preemptible;
        self.put(state, spec.queue, &Held { from, to, tally: tally.clone(), job: true, strict });
    }

    fn put(&mut self, state: &ClusterState, queue: QueueIdx, held: &Held) {
        if self.pages.is_empty() {
            return;
        }
        for ancestor in state.lineage(queue) {
            if let Some(page) = self.pages.get_mut(&ancestor) {
                page.holds.push(held.clone());
            }
        }
    }

    /// Forgets what a queue holds, noted with this very window.
    pub(crate) fn remove(&mut self, state: &ClusterState, queue: QueueIdx, from: Time, to: Time, tally: &Tally) {
        if self.pages.is_empty() {
            return;
        }
        for ancestor in state.lineage(queue) {
            if let Some(page) = self.pages.get_mut(&ancestor) {
                let this = |h: &Held| h.from == from && h.to == to && h.job && h.tally == *tally;
                let at = page.holds.iter().position(this);
                debug_assert!(at.is_some(), "what is forgotten was noted");
                if let Some(at) = at {
                    page.holds.swap_remove(at);
                }
            }
        }
    }

    /// The first moment from `from` on at which a job may start and run its whole window. None if it never may.
    pub(crate) fn first_fit(&self, state: &ClusterState, spec: &JobSpec, tally: &Tally, from: Time) -> Option<Time> {
        let demand = Demand { tally, length: spec.window(), strict: !spec.preemptible };
        if demand.strict && state.queue(spec.queue).guarantee.is_empty() && !tally.is_empty() {
            return None;
        }
        self.first(state, spec.queue, demand, from)
    }

    fn first(&self, state: &ClusterState, queue: QueueIdx, demand: Demand<'_>, from: Time) -> Option<Time> {
        if self.pages.is_empty() {
            return Some(from);
        }
        let mut at = from;
        // Each round ends at the end of some hold, so there are at most as many rounds as holds.
        for _ in 0..10_000 {
            let mut later = at;
            for ancestor in state.lineage(queue) {
                let Some(page) = self.pages.get(&ancestor) else { continue };
                later = later.max(page.first_fit(state, ancestor, demand, at)?);
            }
            if later == at {
                return Some(at);
            }
            at = later;
        }
        None
    }

    /// Whether a job may start at `from` and run its whole window.
    pub(crate) fn fits(&self, state: &ClusterState, spec: &JobSpec, tally: &Tally, from: Time) -> bool {
        self.first_fit(state, spec, tally, from) == Some(from)
    }

    /// Whether a queue may hold so much more during `[from, from + length)`; `strict`: within its guarantee at first.
    pub(crate) fn fits_for(
        &self,
        state: &ClusterState,
        queue: QueueIdx,
        tally: &Tally,
        length: Span,
        (from, strict): (Time, bool),
    ) -> bool {
        self.first(state, queue, Demand { tally, length, strict }, from) == Some(from)
    }
}

/// One stretch of constant use: where it begins and what is held (by key, then jobs).
struct Stretch {
    begins: Time,
    used: Vec<i64>,
    /// A strict promise begins here.
    strict: bool,
}

impl Page {
    /// Walks once over the stretches of constant use.
    fn first_fit(&self, state: &ClusterState, queue: QueueIdx, demand: Demand<'_>, from: Time) -> Option<Time> {
        let there = state.queue(queue);
        let asked: Vec<(crate::queue::QuotaKey, i64)> =
            demand.tally.iter().filter(|(_, amount)| **amount > 0).map(|(key, amount)| (*key, *amount)).collect();
        let caps = |quota: &Quota| asked.iter().map(|(k, _)| quota.get(k).copied().unwrap_or(i64::MAX)).collect();
        let (limits, guarantees): (Vec<i64>, Vec<i64>) = (caps(&there.limit), caps(&there.guarantee));
        let most = there.max_running_jobs.map_or(i64::MAX, i64::from);
        let within = |used: &[i64], caps: &[i64]| {
            asked.iter().zip(used).zip(caps).all(|(((_, more), used), cap)| used.saturating_add(*more) <= *cap)
        };
        let stretches = self.stretches(&asked, from);
        let mut at = from;
        for (row, stretch) in stretches.iter().enumerate() {
            let next = stretches.get(row + 1).map(|s| s.begins);
            if next.is_some_and(|n| n <= at) {
                continue;
            }
            if stretch.strict && at <= stretch.begins && !within(&stretch.used, &guarantees) {
                at = Time(stretch.begins.0.saturating_add(1));
            }
            let here = at >= stretch.begins;
            let jobs = stretch.used.last().copied().unwrap_or(0);
            let late = here && demand.strict && !within(&stretch.used, &guarantees);
            if late || jobs >= most || !within(&stretch.used, &limits) {
                at = next?;
            } else if next.is_none_or(|n| n >= at + demand.length) {
                return Some(at);
            }
        }
        Some(at)
    }

    fn stretches(&self, asked: &[(crate::queue::QuotaKey, i64)], from: Time) -> Vec<Stretch> {
        // (time, held row, +1 it begins / -1 it ends)
        let mut events: Vec<(Time, i64, usize)> = Vec::with_capacity(self.holds.len() * 2);
        for (row, held) in self.holds.iter().enumerate().filter(|(_, h)| h.to > from && h.from < h.to) {
            events.push((held.from.max(from), 1, row));
            if !held.to.is_never() {
                events.push((held.to, -1, row));
            }
        }
        events.sort_unstable();
        let mut used = vec![0i64; asked.len() + 1];
        let mut stretches = vec![Stretch { begins: from, used: used.clone(), strict: false }];
        for (time, sign, row) in events {
            let held = &self.holds[row];
            for (cell, (key, _)) in used.iter_mut().zip(asked) {
                *cell += sign * held.tally.get(key).copied().unwrap_or(0);
            }
            used[asked.len()] += sign * i64::from(held.job);
            let strict = sign > 0 && held.strict && held.from >= from;
            match stretches.last_mut() {
                Some(last) if last.begins == time => {
                    last.used.clone_from(&used);
                    last.strict |= strict;
                }
                _ => stretches.push(Stretch { begins: time, used: used.clone(), strict }),
            }
        }
        stretches
    }
}
