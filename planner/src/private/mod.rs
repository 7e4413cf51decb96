//! Private schedules (law 10): what each queue's jobs would do alone on its guarantee, carried along as time goes.
//!
//! A job's private start is a promise of the shared cluster: from that moment on it is guaranteed. Nothing here looks
//! ahead: a private run has the real run's length once that is known, else the job's limit; and it is known by the time
//! it counts, since a job that starts no later than privately ends no later than privately.
//!
//! The owner (controller or simulator) tells what happens, in order of time: [`PrivateSchedules::submit`],
//! [`PrivateSchedules::ended`], [`PrivateSchedules::withdrawn`], [`PrivateSchedules::set_queue`]; before each plan it
//! calls [`PrivateSchedules::advance`] and writes the starts that have come into the state ([`note_starts`]).

mod job;
mod owner;
mod pass;
mod queue;

pub use job::{PrivateEntry, PrivateJob, PrivateStart};
pub use owner::{guarantees_covered, note_starts, private_job};
pub use queue::PrivateRules;

use crate::ids::QueueIdx;
use crate::time::{Span, Time};
use queue::{PrivateQueue, Stage};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The private schedules of all queues that have one.
#[derive(Clone, Debug, Default)]
pub struct PrivateSchedules {
    queues: BTreeMap<QueueIdx, PrivateQueue>,
    homes: BTreeMap<Arc<str>, QueueIdx>,
    /// Starts found while catching up, not yet handed out.
    due: Vec<PrivateStart>,
    /// Guarantees exceed the usable cluster: nobody starts privately until they do not.
    frozen: bool,
}

impl PrivateSchedules {
    /// Without queues.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets, changes or (none) ends a queue's private cluster. Ending it forgets its jobs.
    pub fn set_queue(&mut self, queue: QueueIdx, rules: Option<PrivateRules>, now: Time) {
        self.catch_up(queue, now, false);
        match (rules, self.queues.get_mut(&queue)) {
            (Some(rules), Some(old)) if old.rules != rules => old.set_rules(rules),
            (Some(_), Some(_)) => {}
            (Some(rules), None) => {
                self.queues.insert(queue, PrivateQueue::new(rules));
            }
            (None, _) => {
                self.queues.remove(&queue);
                self.homes.retain(|_, home| *home != queue);
            }
        }
    }

    /// Stops all private starts while the guarantees together exceed the usable cluster, and lets them go on after.
    pub fn set_frozen(&mut self, frozen: bool, now: Time) {
        if frozen != self.frozen {
            for queue in self.queues.keys().copied().collect::<Vec<_>>() {
                self.catch_up(queue, now, false);
            }
            self.frozen = frozen;
            self.queues.values_mut().for_each(|q| q.stirred = true);
        }
    }

    /// A job was queued. One that is known already, or whose queue has no private cluster, changes nothing.
    pub fn submit(&mut self, queue: QueueIdx, job: PrivateJob, now: Time) {
        self.catch_up(queue, now, false);
        if let Some(private) = self.queues.get_mut(&queue)
            && !self.homes.contains_key(&job.id)
        {
            self.homes.insert(job.id.clone(), queue);
            private.add(job, None);
        }
    }

    /// A waiting job was edited: it keeps its private run if it has begun, else it is asked anew.
    pub fn edited(&mut self, job: PrivateJob, now: Time) {
        let Some(queue) = self.home(&job.id, now) else { return };
        if let Some(private) = self.queues.get_mut(&queue)
            && !private.members.get(&job.id).is_some_and(|m| matches!(m.stage, Stage::Running { .. }))
        {
            private.withdraw(&job.id);
            private.add(job, None);
        }
    }

    /// A waiting job is held back from outside (quota of the namespace, back-off), or is not any more.
    pub fn set_held(&mut self, id: &Arc<str>, held: bool, now: Time) {
        if let Some(queue) = self.home(id, now)
            && let Some(private) = self.queues.get_mut(&queue)
        {
            private.set_held(id, held);
        }
    }

    /// A job is over for good and ran for `length` in all, work undone by stops not counted.
    pub fn ended(&mut self, id: &Arc<str>, length: Span, now: Time) {
        if let Some(queue) = self.home(id, now)
            && let Some(private) = self.queues.get_mut(&queue)
        {
            private.set_length(id, length, now);
            if !private.members.contains_key(id) {
                self.homes.remove(id);
            }
        }
    }

    /// A job was deleted or suspended before it ran, or is to be forgotten: it has no private run any more.
    pub fn withdrawn(&mut self, id: &Arc<str>, now: Time) {
        if let Some(queue) = self.home(id, now)
            && let Some(private) = self.queues.get_mut(&queue)
        {
            private.withdraw(id);
            self.homes.remove(id);
        }
    }

    /// Lets private time pass up to and including `now` and hands out the private starts that have come, in order of
    /// time, then queue, then place in it. All events up to `now` must have been told.
    pub fn advance(&mut self, now: Time) -> Vec<PrivateStart> {
        for queue in self.queues.keys().copied().collect::<Vec<_>>() {
            self.catch_up(queue, now, true);
        }
        let mut due = std::mem::take(&mut self.due);
        due.sort_by_key(|start| (start.at, start.queue));
        due
    }

    /// The next moment at which a private start may come although nothing else happens.
    #[must_use]
    pub fn next(&self) -> Option<Time> {
        let may_start = |q: &&PrivateQueue| q.rules.open && !q.waiting.is_empty();
        let ends = self.queues.values().filter(may_start).filter_map(|q| q.ends.first().map(|e| e.0));
        if self.frozen { None } else { ends.filter(|t| !t.is_never()).min() }
    }

    /// When a job started privately, if it has and that run is not over.
    #[must_use]
    pub fn started(&self, id: &Arc<str>) -> Option<Time> {
        match self.queues.get(self.homes.get(id)?)?.members.get(id)?.stage {
            Stage::Running { start, .. } => Some(start),
            _ => None,
        }
    }

    /// What `Queue.status.privateRunning[]` keeps: private runs, and jobs that are over but still to run privately.
    #[must_use]
    pub fn export(&self, queue: QueueIdx) -> Vec<PrivateEntry> {
        self.queues.get(&queue).map(PrivateQueue::export).unwrap_or_default()
    }

    /// Takes back what was exported, after a restart and after [`PrivateSchedules::set_queue`]. Entries of jobs that are
    /// known already only bring their private start back.
    pub fn restore(&mut self, queue: QueueIdx, entries: Vec<PrivateEntry>) {
        let Some(private) = self.queues.get_mut(&queue) else { return };
        for PrivateEntry { job, start, length } in entries {
            let id = job.id.clone();
            if self.homes.insert(id.clone(), queue).is_none() {
                private.add(job, length);
            }
            let running = private.members.get(&id).is_some_and(|m| matches!(m.stage, Stage::Running { .. }));
            if let (Some(start), false) = (start, running) {
                let span = private.members.get(&id).map_or(Span::ZERO, queue::Member::span);
                private.run(&id, start, start + span);
            }
        }
    }

    /// The queue of a job, whose private time is brought up to just before `now`.
    fn home(&mut self, id: &Arc<str>, now: Time) -> Option<QueueIdx> {
        let queue = *self.homes.get(id)?;
        self.catch_up(queue, now, false);
        Some(queue)
    }

    /// Lives through a queue's private ends up to `now`, each followed by a pass; at `now` itself only if `at_now`: what
    /// is told about a moment comes after the ends of that moment and before its pass.
    fn catch_up(&mut self, queue: QueueIdx, now: Time, at_now: bool) {
        let Some(private) = self.queues.get_mut(&queue) else { return };
        let mut started = Vec::new();
        loop {
            let next = private.ends.first().map(|e| e.0).filter(|t| *t < now || (at_now && *t == now));
            if next.is_none() && !(at_now && private.stirred) {
                break;
            }
            let moment = next.unwrap_or(now);
            while private.ends.first().is_some_and(|e| e.0 <= moment) {
                if let Some((_, id)) = private.ends.pop_first() {
                    private.finish(&id);
                    self.homes.remove(&id);
                }
            }
            started.clear();
            if self.frozen {
                private.stirred = false;
            } else {
                private.pass(moment, &mut started);
            }
            self.due.extend(started.iter().map(|r| PrivateStart {
                queue,
                id: r.5.clone(),
                key: r.4.clone(),
                at: moment,
            }));
            if next.is_none() {
                break;
            }
        }
    }
}
