//! Carries a plan's actions out in the state.

use super::ClusterState;
use crate::ids::JobIdx;
use crate::job::{Job, Leaving, Phase, Placement, Reservation, Running, Seat};
use crate::plan::{Action, Cause};
use crate::time::{Span, Time};
use std::collections::BTreeSet;

impl ClusterState {
    /// Carries one action out in this state, as the simulator does at once and the controller by its writes.
    ///
    /// A stopped job is left as [`Phase::Leaving`] until the owner says that it is gone, also with a grace of zero.
    pub fn apply(&mut self, action: &Action, now: Time) {
        match action {
            Action::Start { job, placement, ends, guaranteed, .. } => {
                let placement = placement.clone();
                let (ends, guaranteed) = (*ends, *guaranteed);
                // A gang that restarts at once may leave a member behind.
                let leaving = self.job(*job).and_then(|j| match &j.phase {
                    Phase::Leaving(l) => Some((l.placement.without(&placement), l.gone_by)),
                    _ => None,
                });
                let behind = leaving.map(|(seats, gone_by)| (self.on_living_nodes(seats), gone_by));
                self.update_job(*job, now, |j| {
                    j.shedding.extend(behind.filter(|(seats, _)| !seats.is_empty()));
                    let (firm, private_start) = match &j.phase {
                        Phase::Waiting(w) => (!w.postponed.eq(&Span::ZERO), w.private_start),
                        _ => (false, None),
                    };
                    j.phase = Phase::Running(Box::new(Running {
                        placement,
                        started: now,
                        ends,
                        lost: Vec::new(),
                        guaranteed,
                        resized: now,
                        firm,
                        private_start,
                        settling: false,
                    }));
                });
            }
            Action::Reserve { job, start, end, placement, clears } => self.set_reservation(
                *job,
                now,
                Some(Reservation {
                    start: *start,
                    end: *end,
                    placement: placement.clone(),
                    promised: *start,
                    clearing: !clears.is_empty(),
                }),
            ),
            Action::Move { job, to, cause, from, clears } => {
                self.apply_move(*job, *from, to.as_ref(), cause.as_ref(), now);
                if !clears.is_empty()
                    && let Some(Job { phase: Phase::Waiting(w), .. }) = self.jobs[job.row()].as_mut()
                    && let Some(reservation) = w.reservation.as_mut()
                {
                    reservation.clearing = true;
                }
            }
            Action::Stop { job, by, .. } => {
                let taker = *by;
                self.update_job(*job, now, |j| {
                    let gone_by = now + j.spec.grace;
                    if let Phase::Running(r) = &mut j.phase {
                        let placement = std::mem::take(&mut r.placement);
                        j.phase = Phase::Leaving(Box::new(Leaving { placement, gone_by, taker }));
                    }
                });
            }
            Action::Resize { job, placement, .. } => self.apply_resize(*job, placement, now),
            Action::Replace { job, swaps, placement } => {
                let placement = placement.clone();
                let running = self.job(*job).and_then(Job::running);
                let behind = running.map(|r| self.on_living_nodes(r.placement.without(&placement)));
                self.update_job(*job, now, |j| {
                    let gone_by = now + j.spec.grace;
                    j.shedding.extend(behind.filter(|seats| !seats.is_empty()).map(|seats| (seats, gone_by)));
                    if let Phase::Running(r) = &mut j.phase {
                        r.placement = placement;
                        r.lost.retain(|rank| !swaps.iter().any(|(swapped, ..)| swapped == rank));
                    }
                });
            }
            Action::Guarantee { job } => {
                if let Some(Job { phase: Phase::Running(r), .. }) = self.jobs[job.row()].as_mut() {
                    r.guaranteed = true;
                }
            }
        }
    }

    /// The seats whose nodes are not lost.
    pub(crate) fn on_living_nodes(&self, mut seats: Placement) -> Placement {
        seats.seats.retain(|s| !self.node(s.node).lost);
        seats
    }

    fn set_reservation(&mut self, job: JobIdx, now: Time, reservation: Option<Reservation>) {
        self.update_job(job, now, |j| {
            if let Phase::Waiting(w) = &mut j.phase {
                w.reservation = reservation;
            }
        });
    }

    fn apply_move(
        &mut self,
        job: JobIdx,
        from: Time,
        to: Option<&(Time, Time, Placement)>,
        cause: Option<&Cause>,
        now: Time,
    ) {
        self.update_job(job, now, |j| {
            j.last_cause = cause.cloned().or(j.last_cause.take());
            let Phase::Waiting(w) = &mut j.phase else { return };
            let earliest = w.reservation.as_ref().map_or(from, |r| r.promised);
            let clearing = w.reservation.as_ref().is_some_and(|r| r.clearing);
            w.reservation = to.map(|(start, end, placement)| {
                if matches!(cause, Some(Cause::HigherPriority(_))) && *start > from {
                    w.postponed = w.postponed + start.since(from);
                }
                let promised = if cause.is_some() { *start } else { earliest.min(*start) };
                Reservation { start: *start, end: *end, placement: placement.clone(), promised, clearing }
            });
        });
    }

    fn apply_resize(&mut self, job: JobIdx, placement: &Placement, now: Time) {
        self.update_job(job, now, |j| {
            let grace = j.spec.grace;
            if let Phase::Running(r) = &mut j.phase {
                let gone = r.placement.without(placement);
                // Also with a grace of zero the pods are there until their owner says that they are gone.
                if !gone.is_empty() {
                    j.shedding.push((gone, now + grace));
                }
                // A lost member that the gang goes on without is nobody's to replace.
                let spec = &j.spec;
                let rank = |s: &Seat| spec.first_rank(usize::from(s.role)) + s.index;
                let kept: BTreeSet<u32> = placement.seats.iter().map(rank).collect();
                r.lost.retain(|lost| kept.contains(lost));
                r.placement = placement.clone();
                r.resized = now;
            }
        });
    }
}
