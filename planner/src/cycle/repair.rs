//! Running gangs that lost members: replaced inside the required domain at once, else restarted as a whole, before any
//! new work. And gangs whose own code failed: restarted on their nodes if that delays no promise.

use super::{Cycle, Fate};
use crate::ids::{JobIdx, NodeIdx};
use crate::job::{Placement, Seat};
use crate::ledger::{HoldKind, Ledger};
use crate::plan::{Action, StopCause};
use crate::queue::QueueState;
use crate::time::{Span, Time};

impl Cycle<'_> {
    /// Step 2 of the cycle.
    pub(super) fn repair(&mut self) {
        let marks = self.state().marks();
        let mut hurt: Vec<JobIdx> = marks.hurt.iter().copied().collect();
        let mut failed: Vec<JobIdx> = marks.restarting.iter().copied().filter(|job| self.restarts(*job)).collect();
        hurt.sort_by_key(|a| self.rank(*a));
        failed.sort_by_key(|a| self.rank(*a));
        for job in hurt {
            self.repair_one(job);
        }
        for job in failed {
            self.restart_in_place(job);
        }
    }

    /// Whether a job waits for nothing but to restart where it was.
    fn restarts(&self, job: JobIdx) -> bool {
        self.job(job).waiting().is_some_and(|w| w.reservation.is_none()) && self.outside_hold(job).is_none()
    }

    fn repair_one(&mut self, job: JobIdx) {
        let Some(running) = self.job(job).running() else { return };
        let spec = self.spec(job);
        // One that is over its time stays a little longer, and may not stay where others are promised room.
        let window_end = self.held_until(job);
        let mut shapes: Vec<_> = spec.roles.iter().map(|r| r.shape).collect();
        shapes.sort_unstable();
        shapes.dedup();
        let swaps = {
            let end = if spec.replaces_members { window_end } else { self.now() + spec.window() };
            let room = self.ledger.now_room(&shapes, end);
            crate::place::replace(&room, &spec, &running.placement, &running.lost)
        };
        match swaps {
            Some(swaps) => self.swap(job, &swaps),
            None if self.shrinks_to_survivors(job) => {}
            None => self.stop(job, StopCause::NodeLost, None),
        }
    }

    /// An elastic gang whose survivors still are a gang goes on without the lost.
    fn shrinks_to_survivors(&mut self, job: JobIdx) -> bool {
        let Some(running) = self.job(job).running() else { return false };
        let spec = self.spec(job);
        if !spec.resizable || !spec.replaces_members {
            return false;
        }
        let alive = |s: &&Seat| !running.lost.contains(&(spec.first_rank(usize::from(s.role)) + s.index));
        let kept = Placement { seats: running.placement.seats.iter().filter(alive).copied().collect() };
        let whole = spec.roles.iter().enumerate().all(|(row, role)| {
            let count = kept.count(row);
            count >= role.floor && count.is_multiple_of(role.step())
        });
        if whole {
            self.resize(job, kept, None);
        }
        whole
    }

    fn swap(&mut self, job: JobIdx, swaps: &[(u32, NodeIdx)]) {
        let Some(running) = self.job(job).running() else { return };
        let spec = self.spec(job);
        let mut placement = running.placement.clone();
        let mut moved: Vec<(u32, NodeIdx, NodeIdx)> = Vec::new();
        for &(rank, to) in swaps {
            let seat = placement.seats.iter_mut().find(|s| spec.first_rank(usize::from(s.role)) + s.index == rank);
            if let Some(seat) = seat {
                moved.push((rank, seat.node, to));
                seat.node = to;
            }
        }
        if spec.replaces_members {
            let ends = running.ends;
            self.ledger.release(job, &running.placement, HoldKind::Running);
            self.ledger.hold(job, &spec, &placement, HoldKind::Running, (Time(i64::MIN), ends), ends);
            self.leave_behind(job, &running.placement, &placement);
            self.fates.insert(job, Fate::Resized { row: None, placement: placement.clone() });
            self.plan.actions.push(Action::Replace { job, swaps: moved, placement });
        } else {
            // The gang restarts as a whole at once: survivors keep their nodes, the lost are swapped. It runs its whole
            // window anew, which may reach into an absence or into what somebody was promised.
            let old = running.placement.clone();
            self.stop(job, StopCause::NodeLost, None);
            self.ledger.release(job, &old, HoldKind::Leaving);
            let gone = Ledger::assumed_end(self.now() + spec.grace, self.now(), self.policy.cycle);
            let (before, after) = (self.tally(&spec, &old), self.tally(&spec, &placement));
            let (state, ever, now) = (self.state(), Time(i64::MIN), self.now());
            self.quota.remove(state, spec.queue, ever, gone, &before);
            // The new window may reach into what a limit has promised others.
            let within = self.quota.fits(state, &spec, &after, now);
            if spec.grace == Span::ZERO && within && self.seats_are_free(&spec, &placement) {
                self.leave_behind(job, &old, &placement);
                self.start(job, placement);
            } else {
                self.quota.add(state, spec.queue, ever, gone, &before);
                let gone_by = self.now() + spec.grace;
                self.ledger.hold(job, &spec, &old, HoldKind::Leaving, (Time(i64::MIN), gone_by), gone_by);
            }
        }
    }

    /// A member that is lost for its gang may still be on its way out, and its node has no room for others before it is
    /// gone. On a node that is lost it blocks nothing.
    fn leave_behind(&mut self, job: JobIdx, before: &Placement, after: &Placement) {
        let spec = self.spec(job);
        let stuck = self.state().on_living_nodes(before.without(after));
        if stuck.is_empty() {
            return;
        }
        let gone_by = self.now() + spec.grace;
        self.ledger.hold(job, &spec, &stuck, HoldKind::Leaving, (Time(i64::MIN), gone_by), gone_by);
        let gone = Ledger::assumed_end(gone_by, self.now(), self.policy.cycle);
        self.quota.shed(self.state(), spec.queue, gone, &self.tally(&spec, &stuck));
        self.wake_at(gone_by);
    }

    /// The same seats, but for those on nodes that take no pods any more.
    fn with_lost_swapped(&mut self, job: JobIdx, mut placement: Placement) -> Option<Placement> {
        let spec = self.spec(job);
        let rank = |s: &Seat| spec.first_rank(usize::from(s.role)) + s.index;
        let gone = |s: &&Seat| {
            let state = self.snapshot.state.node(s.node);
            state.closed || state.lost
        };
        let lost: Vec<u32> = placement.seats.iter().filter(gone).map(rank).collect();
        if lost.is_empty() {
            return Some(placement);
        }
        let mut shapes: Vec<_> = spec.roles.iter().map(|r| r.shape).collect();
        shapes.sort_unstable();
        shapes.dedup();
        let end = self.now() + spec.window();
        let swaps = {
            let room = self.ledger.now_room(&shapes, end);
            crate::place::replace(&room, &spec, &placement, &lost)?
        };
        for seat in &mut placement.seats {
            if let Some((_, to)) = swaps.iter().find(|(swapped, _)| *swapped == rank(seat)) {
                seat.node = *to;
            }
        }
        Some(placement)
    }

    /// After a failure of the user's code (or a repair by restart) the gang starts again on its nodes at once if the
    /// new window delays nobody; else it waits in line.
    fn restart_in_place(&mut self, job: JobIdx) {
        let there = self.job(job);
        let Some(placement) = there.waiting().and_then(|w| w.last_placement.clone()) else { return };
        if self.state().lineage(there.spec.queue).any(|q| self.state().queue(q).state != QueueState::Open) {
            return;
        }
        if self.quota_allows(job).is_err() {
            return;
        }
        let spec = self.spec(job);
        let Some(placement) = self.with_lost_swapped(job, placement) else { return };
        if self.seats_are_free(&spec, &placement) {
            self.start(job, placement);
        }
    }
}
