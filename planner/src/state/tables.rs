//! The derived tables: who holds what, who waits in which order, what queues use. Each change takes a job out of them
//! and puts it in again.

use super::{ClusterState, Marks, RankKey, Tally};
use crate::ids::{JobIdx, NodeIdx, QueueIdx};
use crate::job::{Job, Phase, Placement};
use crate::ledger::{Hold, HoldKind};
use crate::queue::QuotaKey;
use crate::resources::Amounts;
use crate::time::Time;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

impl ClusterState {
    pub(super) fn note_release(&mut self, job: JobIdx, now: Time) {
        // Ends at the promised moment free nothing that a promise did not count on.
        let early = match self.job(job).map(|j| &j.phase) {
            Some(Phase::Running(r)) => r.ends > now,
            Some(Phase::Leaving(l)) => l.gone_by > now,
            Some(Phase::Waiting(w)) => w.reservation.is_some(),
            None => false,
        };
        self.freed |= early;
    }

    /// The job's place in its queue's `Priority` order.
    #[must_use]
    pub fn rank_key(job: &Job, row: JobIdx) -> RankKey {
        let requeued = matches!(&job.phase, Phase::Waiting(w) if w.requeued);
        (-job.spec.priority, job.queued_at, !requeued, job.sequence, job.spec.key.clone(), row)
    }

    pub(super) fn count(&mut self, row: JobIdx, times: i64) {
        let Some(job) = self.jobs[row.row()].take() else { return };
        let add = times > 0;
        let mut held: Vec<&Placement> = job.shedding.iter().map(|(p, _)| p).collect();
        match &job.phase {
            Phase::Waiting(w) => {
                let key = Self::rank_key(&job, row);
                let waiting = &mut self.waiting[job.spec.queue.row()];
                let classes = &mut self.by_class[job.spec.queue.row()];
                if add {
                    classes.entry(job.class).or_default().insert(key.clone());
                    waiting.insert(key)
                } else {
                    if let Some(class) = classes.get_mut(&job.class) {
                        class.remove(&key);
                        if class.is_empty() {
                            classes.remove(&job.class);
                        }
                    }
                    waiting.remove(&key)
                };
                if w.reservation.is_some() {
                    if add {
                        self.reserved.insert(row)
                    } else {
                        self.reserved.remove(&row)
                    };
                }
            }
            Phase::Running(r) => held.push(&r.placement),
            Phase::Leaving(l) => held.push(&l.placement),
        }
        if !matches!(job.phase, Phase::Waiting(_)) || !job.shedding.is_empty() {
            if add {
                self.running.insert(row)
            } else {
                self.running.remove(&row)
            };
        }
        let runs = !matches!(job.phase, Phase::Waiting(_));
        let mut tally = Tally::new();
        for placement in held {
            for (node, role, count) in placement.by_node() {
                let requests = &self.shapes.get(job.spec.roles[usize::from(role)].shape).requests;
                self.used[node.row()].add(requests, i64::from(count) * times);
            }
            self.count_seats(&job.spec, placement, &mut tally, times);
        }
        self.count_holds(row, &job, add);
        self.marks.mark(row, &job, add);
        let lineage: Vec<QueueIdx> = self.lineage(job.spec.queue).collect();
        for queue in lineage {
            for (key, amount) in &tally {
                *self.queue_use[queue.row()].entry(*key).or_default() += amount;
            }
            if runs {
                let n = &mut self.queue_running[queue.row()];
                *n = if add { *n + 1 } else { n.saturating_sub(1) };
            }
        }
        self.jobs[row.row()] = Some(job);
    }

    fn count_holds(&mut self, row: JobIdx, job: &Job, add: bool) {
        for (placement, kind, from, to, predicted) in job.windows() {
            for (node, role, count) in placement.by_node() {
                let shape = job.spec.roles[usize::from(role)].shape;
                let holds = &mut self.holds[node.row()];
                if add {
                    let hold = Hold { job: row, shape, count, from, to, predicted, kind };
                    let at = holds.partition_point(|h| h.to <= to);
                    holds.insert(at, hold);
                } else {
                    holds.retain(|h| h.job != row);
                }
                self.scratch.get_mut().touch(node);
            }
        }
    }

    pub(super) fn count_node(&mut self, node: NodeIdx, times: i64) {
        let pool = self.topology.pool_of(node);
        let state = &self.nodes[node.row()];
        let tally = |to: &mut Tally, amounts: &Amounts, times: i64| {
            for (resource, amount) in amounts.iter() {
                *to.entry(QuotaKey { pool: None, resource }).or_default() += amount * times;
                *to.entry(QuotaKey { pool: Some(pool), resource }).or_default() += amount * times;
            }
        };
        tally(&mut self.totals, &state.allocatable, times);
        if !state.closed && !state.lost {
            tally(&mut self.usable, &state.allocatable, times);
            tally(&mut self.usable, &state.foreign, -times);
        }
    }

    pub(super) fn recount_nodes(&mut self) {
        self.totals.clear();
        self.usable.clear();
        for row in 0..self.nodes.len() {
            self.count_node(NodeIdx::of(row), 1);
        }
    }

    pub(super) fn recount(&mut self) {
        self.holds = vec![Vec::new(); self.nodes.len()];
        self.used = vec![Amounts::default(); self.nodes.len()];
        for waiting in &mut self.waiting {
            waiting.clear();
        }
        self.by_class.iter_mut().for_each(BTreeMap::clear);
        self.running.clear();
        self.marks = Marks::default();
        self.reserved.clear();
        self.queue_use.iter_mut().for_each(Tally::clear);
        self.queue_running.iter_mut().for_each(|n| *n = 0);
        for row in 0..self.jobs.len() {
            self.count(JobIdx::of(row), 1);
        }
    }

    pub(super) fn names_in_use(&self) -> BTreeSet<Arc<str>> {
        let mut names = BTreeSet::new();
        for job in self.jobs.iter().flatten() {
            for placement in job.placements() {
                names.extend(placement.seats.iter().map(|s| self.topology.node_name(s.node).clone()));
            }
        }
        names
    }
}

impl Job {
    /// What it holds and when: placement, kind, from, to, predicted end.
    fn windows(&self) -> Vec<(&Placement, HoldKind, Time, Time, Time)> {
        let ever = Time(i64::MIN);
        let mut all: Vec<_> =
            self.shedding.iter().map(|(p, until)| (p, HoldKind::Leaving, ever, *until, *until)).collect();
        match &self.phase {
            Phase::Waiting(w) => {
                all.extend(w.reservation.as_ref().map(|r| {
                    let predicted = (r.start + self.spec.predicted()).min(r.end);
                    (&r.placement, HoldKind::Reserved, r.start, r.end, predicted)
                }));
            }
            Phase::Running(r) => {
                let predicted = (r.started + self.spec.predicted()).min(r.ends);
                all.push((&r.placement, HoldKind::Running, ever, r.ends, predicted));
            }
            Phase::Leaving(l) => all.push((&l.placement, HoldKind::Leaving, ever, l.gone_by, l.gone_by)),
        }
        all
    }
}
