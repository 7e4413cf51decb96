//! One queue's private cluster: its guarantee as plain counts, its jobs, and the moments at which they would run.

use super::job::{PrivateEntry, PrivateJob, Rank};
use crate::queue::{Backfill, Order, Queue, QueueState, QuotaKey};
use crate::share::Ratio;
use crate::time::{Span, Time};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What of a queue's rules holds in its private cluster too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrivateRules {
    /// Its size: the guarantee, within the limit.
    pub capacity: BTreeMap<QuotaKey, i64>,
    /// Most jobs at once.
    pub max_running_jobs: Option<u32>,
    /// Order inside.
    pub order: Order,
    /// Backfill inside.
    pub backfill: Backfill,
    /// Whether it starts jobs.
    pub open: bool,
}

impl PrivateRules {
    /// The private cluster of a queue; none without a guarantee.
    #[must_use]
    pub fn of(queue: &Queue) -> Option<Self> {
        let within_limit = |(key, g): (&QuotaKey, &i64)| (*key, queue.limit.get(key).map_or(*g, |l| *g.min(l)));
        let capacity: BTreeMap<QuotaKey, i64> =
            queue.guarantee.iter().map(within_limit).filter(|(_, g)| *g > 0).collect();
        (!capacity.is_empty()).then(|| Self {
            capacity,
            max_running_jobs: queue.max_running_jobs,
            order: queue.order,
            backfill: queue.backfill,
            open: queue.state == QueueState::Open,
        })
    }
}

/// Where a job stands in the private cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// It has no private run: larger than the guarantee, or asking for nothing that is guaranteed.
    Outside,
    /// Held back from outside: it waits without a place.
    Held,
    /// Waits, with this place.
    Waiting(Rank),
    /// Runs.
    Running { start: Time, end: Time },
}

/// A job of the private cluster.
#[derive(Clone, Debug)]
pub(super) struct Member {
    pub(super) job: PrivateJob,
    /// Demand by column; the last one counts jobs.
    pub(super) need: Vec<i64>,
    /// The real run, once known.
    pub(super) length: Option<Span>,
    pub(super) stage: Stage,
}

impl Member {
    /// How long it runs privately as far as is known: the real run, else the limit.
    pub(super) fn span(&self) -> Span {
        self.length.unwrap_or(self.job.limit)
    }
}

/// The private cluster of one queue.
#[derive(Clone, Debug)]
pub(super) struct PrivateQueue {
    pub(super) rules: PrivateRules,
    columns: Vec<QuotaKey>,
    pub(super) free: Vec<i64>,
    pub(super) members: BTreeMap<Arc<str>, Member>,
    /// Waiting jobs by need, then place: jobs of one need fit or do not fit together.
    pub(super) waiting: BTreeMap<Vec<i64>, BTreeMap<Rank, Span>>,
    /// Running jobs by end.
    pub(super) ends: BTreeSet<(Time, Arc<str>)>,
    /// Something changed since the last pass.
    pub(super) stirred: bool,
}

impl PrivateQueue {
    pub(super) fn new(rules: PrivateRules) -> Self {
        let columns: Vec<QuotaKey> = rules.capacity.keys().copied().collect();
        let mut queue = Self {
            rules,
            columns,
            free: Vec::new(),
            members: BTreeMap::new(),
            waiting: BTreeMap::new(),
            ends: BTreeSet::new(),
            stirred: true,
        };
        queue.free = queue.capacity();
        queue
    }

    fn capacity(&self) -> Vec<i64> {
        let jobs = self.rules.max_running_jobs.map_or(i64::MAX / 2, i64::from);
        self.rules.capacity.values().copied().chain([jobs]).collect()
    }

    /// Takes over new rules. Private runs go on; whether a waiting job has one at all is asked anew.
    pub(super) fn set_rules(&mut self, rules: PrivateRules) {
        let mut next = Self::new(rules);
        for (id, member) in std::mem::take(&mut self.members) {
            let stage = member.stage;
            next.add(member.job, member.length);
            match stage {
                Stage::Held => next.set_held(&id, true),
                Stage::Running { start, end } => next.run(&id, start, end),
                Stage::Outside | Stage::Waiting(_) => {}
            }
        }
        *self = next;
    }

    /// Adds a job that waits.
    pub(super) fn add(&mut self, job: PrivateJob, length: Option<Span>) {
        let need = self.columns.iter().map(|key| job.demand.get(key).copied().unwrap_or(0).max(0));
        let need: Vec<i64> = need.chain([1]).collect();
        let asks = need[..self.columns.len()].iter().any(|n| *n > 0);
        let fits = need.iter().zip(self.capacity()).all(|(n, c)| *n <= c);
        let id = job.id.clone();
        self.members.insert(id.clone(), Member { job, need, length, stage: Stage::Outside });
        if asks && fits {
            self.queue_up(&id);
        }
    }

    fn queue_up(&mut self, id: &Arc<str>) {
        if let Some(member) = self.members.get_mut(id) {
            let rank = member.job.rank(0);
            self.waiting.entry(member.need.clone()).or_default().insert(rank.clone(), member.span());
            member.stage = Stage::Waiting(rank);
            self.stirred = true;
        }
    }

    /// Takes a waiting job out of the order.
    fn step_out(&mut self, id: &Arc<str>) {
        if let Some(member) = self.members.get_mut(id)
            && let Stage::Waiting(rank) = &member.stage
        {
            if let Some(class) = self.waiting.get_mut(&member.need) {
                class.remove(rank);
                if class.is_empty() {
                    self.waiting.remove(&member.need);
                }
            }
            member.stage = Stage::Outside;
            self.stirred = true;
        }
    }

    pub(super) fn set_held(&mut self, id: &Arc<str>, held: bool) {
        match (self.members.get(id).map(|m| &m.stage), held) {
            (Some(Stage::Waiting(_)), true) => {
                self.step_out(id);
                if let Some(member) = self.members.get_mut(id) {
                    member.stage = Stage::Held;
                }
            }
            (Some(Stage::Held), false) => self.queue_up(id),
            _ => {}
        }
    }

    /// A job runs privately from `start` to `end`.
    pub(super) fn run(&mut self, id: &Arc<str>, start: Time, end: Time) {
        self.step_out(id);
        if let Some(member) = self.members.get_mut(id) {
            member.stage = Stage::Running { start, end };
            self.free.iter_mut().zip(&member.need).for_each(|(f, n)| *f -= n);
            self.ends.insert((end, id.clone()));
        }
    }

    /// A private run is over.
    pub(super) fn finish(&mut self, id: &Arc<str>) {
        if let Some(member) = self.members.remove(id)
            && let Stage::Running { end, .. } = member.stage
        {
            self.free.iter_mut().zip(&member.need).for_each(|(f, n)| *f += n);
            self.ends.remove(&(end, id.clone()));
            self.stirred = true;
        }
    }

    /// The real run of a job is known.
    pub(super) fn set_length(&mut self, id: &Arc<str>, length: Span, now: Time) {
        let Some(member) = self.members.get_mut(id) else { return };
        member.length = Some(length);
        match &mut member.stage {
            Stage::Running { start, end } => {
                let known = (*start + length).max(now);
                self.ends.remove(&(*end, id.clone()));
                self.ends.insert((known, id.clone()));
                *end = known;
                // Others' windows look different now.
                self.stirred = true;
            }
            Stage::Waiting(rank) => {
                if let Some(span) = self.waiting.get_mut(&member.need).and_then(|c| c.get_mut(rank)) {
                    *span = length;
                }
                self.stirred = true;
            }
            // Over before it ever had a place: nothing to carry along.
            Stage::Outside | Stage::Held => {
                self.members.remove(id);
            }
        }
    }

    /// Takes a job out that will never have a real run.
    pub(super) fn withdraw(&mut self, id: &Arc<str>) {
        self.step_out(id);
        self.finish(id);
    }

    /// Gives users of a `Fair` queue their turns anew: again and again the user of least use (dominant, by capacity),
    /// counting the turns already given, goes next with its best job.
    pub(super) fn take_turns(&mut self) {
        if self.rules.order != Order::Fair {
            return;
        }
        let capacity = self.capacity();
        let share = |use_: &[i64]| {
            let parts = use_.iter().zip(&capacity).filter(|(_, c)| **c > 0);
            let ratio = |(u, c): (&i64, &i64)| Ratio::new(u128::from(u.unsigned_abs()), u128::from(c.unsigned_abs()));
            parts.map(ratio).max().unwrap_or(Ratio::ZERO)
        };
        let mut use_: BTreeMap<Arc<str>, Vec<i64>> = BTreeMap::new();
        let mut lines: BTreeMap<Arc<str>, Vec<Arc<str>>> = BTreeMap::new();
        let mut by_rank: Vec<(Rank, &Member)> = Vec::new();
        for member in self.members.values() {
            match member.stage {
                Stage::Waiting(_) => by_rank.push((member.job.rank(0), member)),
                Stage::Running { .. } => {
                    let sum = use_.entry(member.job.user.clone()).or_insert_with(|| vec![0; capacity.len()]);
                    sum.iter_mut().zip(&member.need).for_each(|(s, n)| *s += n);
                }
                Stage::Outside | Stage::Held => {}
            }
        }
        by_rank.sort_by(|a, b| b.0.cmp(&a.0));
        for (_, member) in by_rank {
            lines.entry(member.job.user.clone()).or_default().push(member.job.id.clone());
        }
        let none = vec![0; capacity.len()];
        let mut users: BTreeSet<(Ratio, Arc<str>)> =
            lines.keys().map(|u| (share(use_.get(u).unwrap_or(&none)), u.clone())).collect();
        let mut turn = 0;
        self.waiting.clear();
        while let Some((_, user)) = users.pop_first() {
            let Some(id) = lines.get_mut(&user).and_then(Vec::pop) else { continue };
            let Some(member) = self.members.get_mut(&id) else { continue };
            turn += 1;
            let rank = member.job.rank(turn);
            self.waiting.entry(member.need.clone()).or_default().insert(rank.clone(), member.span());
            member.stage = Stage::Waiting(rank);
            let sum = use_.entry(user.clone()).or_insert_with(|| none.clone());
            sum.iter_mut().zip(&member.need).for_each(|(s, n)| *s += n);
            users.insert((share(sum), user));
        }
    }

    /// What a restart needs: private runs, and jobs that are over but still to run privately.
    pub(super) fn export(&self) -> Vec<PrivateEntry> {
        let entry = |m: &Member| {
            let start = match m.stage {
                Stage::Running { start, .. } => Some(start),
                Stage::Waiting(_) if m.length.is_some() => None,
                _ => return None,
            };
            Some(PrivateEntry { job: m.job.clone(), start, length: m.length })
        };
        self.members.values().filter_map(entry).collect()
    }
}
