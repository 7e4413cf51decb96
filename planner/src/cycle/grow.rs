//! Surplus: queues that give room back, and elastic gangs that grow into what nobody else wants.

use super::prey::one_step_less;
use super::{Cycle, Fate};
use crate::ids::{JobIdx, QueueIdx};
use crate::job::{JobSpec, Placement, Seat};
use crate::plan::StopCause;
use crate::queue::{QueueState, QuotaKey};
use crate::state::Tally;
use crate::time::{Span, Time};

impl Cycle<'_> {
    /// Step 3 of the cycle: draining queues stop jobs at their checkpoints; over a limit that was cut, surplus goes.
    pub(super) fn give_back(&mut self) {
        let queues = self.state().queues();
        if queues.iter().any(|q| q.state == QueueState::Draining) {
            let holding: Vec<JobIdx> = self.state().holding().iter().copied().collect();
            holding.into_iter().for_each(|job| self.drain(job));
        }
        let limited = queues.iter().any(|q| !q.limit.is_empty());
        let elastic: Vec<JobIdx> = self.state().marks().elastic.iter().copied().collect();
        for job in elastic {
            self.shrink_to_spec(job);
            if limited {
                self.shrink_to_limit(job);
            }
        }
    }

    /// A gang whose `replicas` were edited below its size gives the highest indexes back.
    fn shrink_to_spec(&mut self, job: JobIdx) {
        let spec = self.spec(job);
        let settled = self.job(job).running().is_some_and(|r| !r.settling);
        let Some(seats) = self.seats(job).filter(|_| settled && spec.resizable) else { return };
        let within = |s: &&Seat| s.index < spec.roles[usize::from(s.role)].replicas;
        let kept = Placement { seats: seats.seats.iter().filter(within).copied().collect() };
        if kept.len() < seats.len() {
            self.resize(job, kept, None);
        }
    }

    fn drain(&mut self, job: JobIdx) {
        let there = self.job(job);
        let Some(running) = there.running() else { return };
        if self.fates.contains_key(&job) {
            return;
        }
        let draining =
            self.state().lineage(there.spec.queue).any(|q| self.state().queue(q).state == QueueState::Draining);
        let Some(every) = there.spec.checkpoint_every.filter(|e| draining && *e > Span::ZERO) else { return };
        let ran = self.now().since(running.started).0;
        let since = ran % every.0;
        if ran > 0 && since < self.policy.cycle.0.max(1) {
            self.stop(job, StopCause::Drained, None);
        } else {
            self.wake_at(Time(self.now().0 + every.0 - since));
        }
    }

    fn shrink_to_limit(&mut self, job: JobIdx) {
        let spec = self.spec(job);
        if !spec.is_elastic() || !spec.resizable || self.job(job).running().is_none_or(|r| r.settling) {
            return;
        }
        while let Some(seats) = self.seats(job)
            && self.over_its_limit(spec.queue)
            && let Some(less) = one_step_less(&spec, &seats)
        {
            self.resize(job, less, None);
        }
    }

    /// Whether some limit above a queue is exceeded by more than what is on its way out already.
    fn over_its_limit(&self, queue: QueueIdx) -> bool {
        let state = self.state();
        let over = |q: QueueIdx| {
            let limit = &state.queue(q).limit;
            let used = self.shares.used(q);
            let going = |key: &QuotaKey| self.being_shed(q).get(key).copied().unwrap_or(0);
            limit.iter().any(|(key, most)| used.get(key).is_some_and(|u| u > most && u - going(key) > *most))
        };
        state.lineage(queue).any(over)
    }

    /// What gangs of a queue and below were told to give back before this plan and still hold.
    fn being_shed(&self, queue: QueueIdx) -> Tally {
        let state = self.state();
        let mut tally = Tally::new();
        for job in state.marks().shedding.iter().filter_map(|row| state.job(*row)) {
            if state.lineage(job.spec.queue).any(|q| q == queue) {
                job.shedding.iter().for_each(|(p, _)| state.count_seats(&job.spec, p, &mut tally, 1));
            }
        }
        tally
    }

    /// Step 6 of the cycle: one step a round for each gang that can, best rank first, until nobody grows.
    pub(super) fn grow(&mut self) {
        let elastic: Vec<JobIdx> = self.state().marks().elastic.iter().copied().collect();
        let mut growing: Vec<JobIdx> = elastic.into_iter().filter(|job| self.may_grow(*job)).collect();
        growing.sort_by_key(|a| self.rank(*a));
        while !growing.is_empty() {
            growing.retain(|job| self.grow_one(*job));
        }
    }

    fn may_grow(&mut self, job: JobIdx) -> bool {
        let spec = self.spec(job);
        match self.fates.get(&job) {
            Some(Fate::Started { .. }) => true,
            Some(_) => false,
            None => {
                let Some(running) = self.job(job).running() else { return false };
                if !spec.resizable || running.settling || !running.lost.is_empty() {
                    return false;
                }
                if spec.replicas() as usize == running.placement.len() {
                    return false;
                }
                let next = running.resized + self.policy.resize_interval;
                // Nor twice at one instant: what was just shrunk for somebody does not grow back elsewhere.
                if running.resized > running.started && (next > self.now() || running.resized >= self.now()) {
                    self.wake_at(next);
                    return false;
                }
                true
            }
        }
    }

    /// One step more of the first role that has room; false if none has.
    fn grow_one(&mut self, job: JobIdx) -> bool {
        let spec = self.spec(job);
        let Some(seats) = self.seats(job) else { return false };
        if self.state().lineage(spec.queue).any(|q| self.state().queue(q).state != QueueState::Open) {
            return false;
        }
        for row in 0..spec.roles.len() {
            if let Some(grown) = self.one_step_more(job, &spec, &seats, row) {
                self.resize(job, grown, None);
                return true;
            }
        }
        false
    }

    fn one_step_more(&mut self, job: JobIdx, spec: &JobSpec, seats: &Placement, row: usize) -> Option<Placement> {
        let role = &spec.roles[row];
        let step = role.step();
        if seats.count(row) + step > role.replicas {
            return None;
        }
        let mut shapes: Vec<_> = spec.roles.iter().map(|r| r.shape).collect();
        shapes.sort_unstable();
        shapes.dedup();
        let end = self.held_until(job);
        let nodes = {
            let room = self.ledger.now_room(&shapes, end);
            crate::place::extend(&room, spec, seats, row, step, None)?
        };
        let mut free_indexes =
            (0..role.replicas).filter(|i| !seats.seats.iter().any(|s| usize::from(s.role) == row && s.index == *i));
        let mut grown = seats.clone();
        let mut more = Placement::default();
        for node in nodes {
            let index = free_indexes.next()?;
            let seat = Seat { role: u8::try_from(row).expect("at most 16 roles"), index, node };
            grown.seats.push(seat);
            more.seats.push(seat);
        }
        grown.seats.sort_unstable();
        let tally = self.tally(spec, &more);
        self.shares.growth_left(spec.queue, &tally).ok()?;
        if !spec.preemptible {
            self.shares.within_guarantee(spec.queue, &tally).ok()?;
        }
        let window = if end.is_never() { Span::FOREVER } else { end.since(self.now()) };
        // maxRunningJobs is not touched by growth, so the book is asked with the job itself set aside.
        let before = self.tally(spec, seats);
        let after = self.tally(spec, &grown);
        let state = self.state();
        let held_until = self.held_until(job);
        self.quota.remove(state, spec.queue, Time(i64::MIN), held_until, &before);
        let fits = self.quota.fits_for(state, spec.queue, &after, window, (self.snapshot.now, !spec.preemptible));
        self.quota.add(state, spec.queue, Time(i64::MIN), held_until, &before);
        fits.then_some(grown)
    }
}
