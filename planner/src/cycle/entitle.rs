//! Private starts (law 10): a job whose moment in its queue's private cluster has come is guaranteed from then on. One
//! that runs on lent room keeps it; one that waits starts now, past borrowers' promises and by stopping lent jobs if need
//! be. A job with a required level or slices gets the entitlement, not the moment (decision 12).

use super::{Cycle, Fate};
use crate::ids::JobIdx;
use crate::job::{JobSpec, Reservation};
use crate::plan::{Action, Cause};
use crate::state::RankKey;
use crate::time::Time;

impl Cycle<'_> {
    /// Step 4 of the cycle.
    pub(super) fn private_starts(&mut self) {
        if !self.policy.private_schedules {
            return;
        }
        let now = self.now();
        let mut due: Vec<(Time, RankKey, JobIdx)> = Vec::new();
        let marked: Vec<JobIdx> = self.state().marks().private.iter().copied().collect();
        for job in marked {
            let there = self.job(job);
            if let Some(start) = there.waiting().and_then(|w| w.private_start)
                && start <= now
                && is_plain(&there.spec)
            {
                due.push((start, self.rank(job), job));
            }
            let came = there.running().is_some_and(|r| !r.guaranteed && r.private_start.is_some_and(|t| t <= now));
            if came && !self.fates.contains_key(&job) {
                self.plan.actions.push(Action::Guarantee { job });
            }
        }
        due.sort();
        for (_, _, job) in due {
            self.private_start(job);
        }
    }

    fn private_start(&mut self, job: JobIdx) {
        if self.fates.contains_key(&job) || self.outside_hold(job).is_some() {
            return;
        }
        let promised = self.promise(job);
        if promised.as_ref().is_some_and(|r| r.clearing && r.start > self.now()) {
            return;
        }
        if let Some(reservation) = &promised {
            self.take_out(job, reservation);
        }
        if let Ok(placement) = self.place_now(job, None) {
            self.start(job, placement);
            self.reservations = self.reservations.saturating_sub(u32::from(promised.is_some()));
            return;
        }
        let borrowers = self.promises_of_borrowers(job);
        for (other, reservation) in &borrowers {
            self.take_out(*other, reservation);
        }
        if let Ok(placement) = self.place_now(job, None) {
            self.start(job, placement);
            self.reservations = self.reservations.saturating_sub(u32::from(promised.is_some()));
        } else {
            if let Some(reservation) = &promised {
                self.put_in(job, reservation);
            }
            // The victims' room is held for it; what it then starts on stands in its reservation.
            let _ = self.clear_room(job, promised.as_ref());
        }
        self.resettle_as(&Cause::Entitled(self.spec(job).key.clone()), borrowers);
    }

    /// Promises of jobs whose own private start has not come: borrowed room, all of it.
    fn promises_of_borrowers(&self, job: JobIdx) -> Vec<(JobIdx, Reservation)> {
        let mut standing: std::collections::BTreeSet<JobIdx> = self.state().reserved().clone();
        standing.extend(self.fates.iter().filter(|(_, f)| matches!(f, Fate::Promised(Some(_)))).map(|(j, _)| *j));
        let mut borrowers: Vec<(RankKey, JobIdx, Reservation)> = standing
            .into_iter()
            .filter(|other| *other != job)
            .filter(|other| self.job(*other).waiting().is_some_and(|w| w.private_start.is_none()))
            .filter_map(|other| Some((self.rank(other), other, self.promise(other).filter(|r| !r.clearing)?)))
            .collect();
        borrowers.sort_by(|a, b| a.0.cmp(&b.0));
        borrowers.into_iter().map(|(_, other, reservation)| (other, reservation)).collect()
    }
}

/// Whether counts alone decide when a job could run privately.
fn is_plain(spec: &JobSpec) -> bool {
    spec.locality.required.is_none() && spec.roles.iter().all(|r| r.slice.is_none())
}
