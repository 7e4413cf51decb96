//! What changes the cluster from outside: nodes, shapes, queues, jobs. The derived tables follow each change.

use super::{ClusterState, NodeState, Tally};
use crate::ids::{JobIdx, NodeIdx, QueueIdx, ResourceIdx};
use crate::job::{Hold, Job, JobSpec, Phase, Waiting};
use crate::queue::{Decayed, Queue};
use crate::time::Time;
use crate::topology::{NodePath, PoolSpec, Topology};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

impl ClusterState {
    // --- nodes and shapes ---

    /// Replaces the set of nodes and their paths. Placements keep their nodes by name; a node that still holds seats
    /// but is not listed stays as a lost one with no room.
    pub fn set_nodes(&mut self, pools: &[PoolSpec], nodes: Vec<(NodePath, NodeState)>) {
        let mut listed: BTreeMap<Arc<str>, (NodePath, NodeState)> =
            nodes.into_iter().map(|(p, s)| (p.name.clone(), (p, s))).collect();
        for name in self.names_in_use() {
            listed.entry(name.clone()).or_insert_with(|| {
                (NodePath { pool: 0, path: Vec::new(), name }, NodeState { lost: true, ..NodeState::default() })
            });
        }
        let paths: Vec<NodePath> = listed.values().map(|(p, _)| p.clone()).collect();
        let topology = Topology::build(pools, &paths);
        let rows: BTreeMap<Arc<str>, NodeIdx> =
            (0..topology.node_count()).map(|r| (topology.node_name(NodeIdx::of(r)).clone(), NodeIdx::of(r))).collect();
        let old_names: Vec<Arc<str>> =
            (0..self.topology.node_count()).map(|r| self.topology.node_name(NodeIdx::of(r)).clone()).collect();
        let moved: Vec<Option<NodeIdx>> = old_names.iter().map(|n| rows.get(n).copied()).collect();
        for job in self.jobs.iter_mut().flatten() {
            for placement in job.placements_mut() {
                for seat in &mut placement.seats {
                    if let Some(row) = moved[seat.node.row()] {
                        seat.node = row;
                    }
                }
            }
        }
        let mut states = vec![NodeState::default(); rows.len()];
        for (name, row) in &rows {
            states[row.row()] = listed.remove(name).map(|(_, s)| s).unwrap_or_default();
        }
        self.topology = Arc::new(topology);
        self.nodes = states;
        self.node_rows = rows;
        self.recount_nodes();
        self.recount();
        self.freed = true;
        self.scratch.get_mut().reset();
    }

    /// Replaces one node's own state.
    pub fn set_node(&mut self, node: NodeIdx, state: NodeState) {
        self.count_node(node, -1);
        let old = std::mem::replace(&mut self.nodes[node.row()], state);
        self.count_node(node, 1);
        let new = &self.nodes[node.row()];
        let gained = (old.closed && !new.closed)
            || (old.lost && !new.lost)
            || old.foreign != new.foreign
            || old.allocatable != new.allocatable
            || old.unavailable != new.unavailable;
        self.freed |= gained;
        self.scratch.get_mut().touch(node);
    }

    /// To be called after the shape table was changed.
    pub fn shapes_changed(&mut self) {
        self.scratch.get_mut().reset();
    }

    // --- queues ---

    pub(super) fn add_queue_row(&mut self, queue: Queue) -> QueueIdx {
        let row = QueueIdx::of(self.queues.len());
        self.queue_rows.insert(queue.name.clone(), row);
        self.queues.push(queue);
        self.waiting.push(BTreeSet::new());
        self.by_class.push(BTreeMap::new());
        self.queue_use.push(Tally::new());
        self.queue_running.push(0);
        row
    }

    /// Adds or replaces a queue by name. The parent must have been added before.
    pub fn set_queue(&mut self, queue: Queue) -> QueueIdx {
        self.freed = true;
        if let Some(row) = self.find_queue(&queue.name) {
            let moved = self.queues[row.row()].parent != queue.parent;
            self.queues[row.row()] = queue;
            if moved {
                self.recount();
            }
            return row;
        }
        self.add_queue_row(queue)
    }

    // --- jobs ---

    /// Adds a job. One with the same key must be gone.
    pub fn add_job(&mut self, spec: JobSpec, queued_at: Time, sequence: u64, phase: Phase) -> JobIdx {
        let class = self.class_of(&spec);
        let job =
            Job { spec: Arc::new(spec), queued_at, sequence, phase, shedding: Vec::new(), last_cause: None, class };
        let row = self.free_rows.pop().unwrap_or_else(|| {
            self.jobs.push(None);
            JobIdx::of(self.jobs.len() - 1)
        });
        self.job_rows.insert(job.spec.key.clone(), row);
        self.jobs[row.row()] = Some(job);
        self.count(row, 1);
        row
    }

    /// Removes a job wherever it stands. Its room is free at once.
    pub fn remove_job(&mut self, job: JobIdx, now: Time) {
        self.note_release(job, now);
        self.count(job, -1);
        if let Some(gone) = self.jobs[job.row()].take() {
            self.job_rows.remove(&gone.spec.key);
            self.free_rows.push(job);
        }
    }

    /// Changes a job in place (spec, phase, seats, anything); the tables follow.
    pub fn update_job(&mut self, job: JobIdx, now: Time, change: impl FnOnce(&mut Job)) {
        self.note_release(job, now);
        self.count(job, -1);
        if let Some(there) = self.jobs[job.row()].as_mut() {
            let before = there.spec.clone();
            change(there);
            debug_assert_eq!(before.key, there.spec.key, "a job keeps its key");
            let after = there.spec.clone();
            if !Arc::ptr_eq(&before, &after) {
                let class = self.class_of(&after);
                if let Some(there) = self.jobs[job.row()].as_mut() {
                    there.class = class;
                }
            }
        }
        self.count(job, 1);
    }

    fn class_of(&mut self, spec: &JobSpec) -> u32 {
        let next = u32::try_from(self.classes.len()).expect("less than 2^32 kinds of jobs");
        *self.classes.entry(spec.placement_class()).or_insert(next)
    }

    /// Sets or lifts what holds a waiting job back from outside.
    pub fn set_hold(&mut self, job: JobIdx, hold: Option<Hold>) {
        if let Some(Job { phase: Phase::Waiting(waiting), .. }) = self.jobs[job.row()].as_mut() {
            if hold.is_some() {
                self.marks.held.insert(job);
            } else {
                self.marks.held.remove(&job);
            }
            waiting.hold = hold;
        }
    }

    /// Notes a job's private start. No room changes hands by it.
    pub fn set_private_start(&mut self, job: JobIdx, start: Option<Time>) {
        match self.jobs[job.row()].as_mut().map(|j| &mut j.phase) {
            Some(Phase::Waiting(w)) => w.private_start = start,
            Some(Phase::Running(r)) => r.private_start = start,
            Some(Phase::Leaving(_)) | None => return,
        }
        if start.is_some() {
            self.marks.private.insert(job);
        } else {
            self.marks.private.remove(&job);
        }
    }

    /// Replaces what is remembered of a queue's decayed use. No room changes hands by it.
    pub fn set_decayed(
        &mut self,
        queue: QueueIdx,
        decayed: BTreeMap<ResourceIdx, Decayed>,
        users: BTreeMap<Arc<str>, BTreeMap<ResourceIdx, Decayed>>,
    ) {
        let row = &mut self.queues[queue.row()];
        (row.decayed, row.users) = (decayed, users);
    }

    /// A stopped job's pods are gone: it waits again, with its first submission time.
    pub fn requeue(&mut self, job: JobIdx, now: Time, waiting: Waiting) {
        self.update_job(job, now, |j| j.phase = Phase::Waiting(Box::new(waiting)));
    }

    /// Room shed by shrinking gangs that is free by now.
    pub fn settle_shedding(&mut self, now: Time) {
        let gone = |job: &Job| job.shedding.iter().any(|(_, until)| *until <= now);
        let due: Vec<JobIdx> =
            self.marks.shedding.iter().copied().filter(|row| self.job(*row).is_some_and(gone)).collect();
        for job in due {
            self.update_job(job, now, |j| j.shedding.retain(|(_, until)| *until > now));
        }
    }

    /// Notes that a plan was made of the present state: what came free until now has been seen.
    pub fn planned(&mut self) {
        self.freed = false;
    }

    /// Notes that room came free although no table shows it (a claim or an outside hold ended).
    pub fn note_freed(&mut self) {
        self.freed = true;
    }
}
