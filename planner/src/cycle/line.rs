//! The waiting jobs of one leaf queue, in the order in which a cycle considers them.

use super::{Cycle, Fate};
use crate::ids::{JobIdx, QueueIdx};
use crate::queue::{Backfill, Order};
use crate::state::{ClusterState, RankKey};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque, btree_set};
use std::sync::Arc;

/// The waiting jobs of one leaf queue, in order.
pub(super) struct Line<'a> {
    pub(super) queue: QueueIdx,
    jobs: Jobs<'a>,
    /// The job to be considered next.
    pub(super) head: Option<JobIdx>,
    /// Jobs considered that wait.
    pub(super) blocked: u32,
    /// Jobs considered in all.
    pub(super) position: u32,
    /// A claim without a date has been made.
    pub(super) claimed: bool,
}

enum Jobs<'a> {
    /// All of them.
    Ranked(btree_set::Iter<'a, RankKey>),
    /// The rest of the classes that could still start now: who needs a date has got one.
    Startable(BinaryHeap<Reverse<(&'a RankKey, u32)>>, BTreeMap<u32, btree_set::Range<'a, RankKey>>),
    /// Per user, for `Fair` order: whose use is least goes first.
    ByUser(BTreeMap<Arc<str>, VecDeque<JobIdx>>),
}

impl<'a> Line<'a> {
    pub(super) fn open(state: &'a ClusterState, queue: QueueIdx) -> Self {
        let ranked = state.waiting(queue).iter();
        let jobs = match state.queue(queue).order {
            Order::Priority => Jobs::Ranked(ranked),
            Order::Fair => {
                let mut users: BTreeMap<Arc<str>, VecDeque<JobIdx>> = BTreeMap::new();
                for job in ranked.map(|key| key.5) {
                    if let Some(there) = state.job(job) {
                        users.entry(there.spec.user.clone()).or_default().push_back(job);
                    }
                }
                Jobs::ByUser(users)
            }
        };
        Self { queue, jobs, head: None, blocked: 0, position: 0, claimed: false }
    }

    pub(super) fn drain(&mut self) -> Vec<JobIdx> {
        let rest: Vec<JobIdx> = match &mut self.jobs {
            Jobs::Ranked(jobs) => jobs.map(|key| key.5).collect(),
            Jobs::Startable(..) => Vec::new(),
            Jobs::ByUser(users) => std::mem::take(users).into_values().flatten().collect(),
        };
        let head = self.head.take();
        self.jobs = Jobs::ByUser(BTreeMap::new());
        head.into_iter().chain(rest).collect()
    }
}

impl<'a> Cycle<'a> {
    /// The next job of a line that does not start in this plan.
    pub(super) fn next_of(&mut self, line: &mut Line<'a>) -> Option<JobIdx> {
        loop {
            let job = self.take_next(line)?;
            if !matches!(self.fates.get(&job), Some(Fate::Started { .. })) {
                return Some(job);
            }
        }
    }

    fn take_next(&mut self, line: &mut Line<'a>) -> Option<JobIdx> {
        let queue = line.queue;
        match &mut line.jobs {
            Jobs::Ranked(jobs) => {
                let key = jobs.next()?;
                if !self.policy.explain && self.only_starts(queue, line.blocked) {
                    line.jobs = self.startable(queue, key);
                    return self.take_next(line);
                }
                Some(key.5)
            }
            Jobs::Startable(heap, classes) => {
                // A class of which nothing fits any more is left out with all that is behind its head.
                while let Some(Reverse((key, class))) = heap.pop() {
                    let demand = self.demand(key.5);
                    if self.could_fit(&demand) {
                        if let Some(next) = classes.get_mut(&class).and_then(Iterator::next) {
                            heap.push(Reverse((next, class)));
                        }
                        return Some(key.5);
                    }
                }
                None
            }
            Jobs::ByUser(users) => {
                let heads: Vec<(Arc<str>, JobIdx)> =
                    users.iter().filter_map(|(user, jobs)| Some((user.clone(), *jobs.front()?))).collect();
                let best = heads.into_iter().min_by(|a, b| {
                    let by_use = self.users.share(queue, &a.0).cmp(&self.users.share(queue, &b.0));
                    by_use.then_with(|| self.rank(a.1).cmp(&self.rank(b.1)))
                })?;
                users.get_mut(&best.0)?.pop_front()
            }
        }
    }

    /// Whether the jobs that come now can only start or wait: all promises the queue may have are given.
    fn only_starts(&self, queue: QueueIdx, blocked: u32) -> bool {
        let given = match self.state().queue(queue).backfill {
            Backfill::None => false,
            Backfill::Depth(depth) => blocked >= depth.saturating_add(self.beyond),
        };
        given && !self.policy.preemption && self.state().reserved().len() <= blocked as usize
    }

    /// The jobs from `key` on, by class, of the classes that could start now.
    fn startable(&mut self, queue: QueueIdx, key: &'a RankKey) -> Jobs<'a> {
        let mut heap = BinaryHeap::new();
        let mut ranges = BTreeMap::new();
        for (&class, jobs) in self.state().waiting_by_class(queue) {
            let mut range = jobs.range(key..);
            let Some(first) = range.next() else { continue };
            let demand = self.demand(first.5);
            if self.could_fit(&demand) {
                heap.push(Reverse((first, class)));
                ranges.insert(class, range);
            }
        }
        Jobs::Startable(heap, ranges)
    }
}
