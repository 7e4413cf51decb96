//! Standing promises give way to a job newly ranked above them (decision 3), and are settled anew around it.

use super::line::Line;
use super::serve::Outcome;
use super::{Cycle, Fate};
use crate::ids::JobIdx;
use crate::job::Reservation;
use crate::plan::Cause;
use crate::reason::{Code, Reason};
use crate::state::RankKey;
use crate::time::{Span, Time};
use std::collections::BTreeSet;

/// What a job with a date got from promises below it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Passed {
    /// Nothing.
    No,
    /// A sooner date.
    Sooner,
    /// It starts.
    Started,
}

impl Cycle<'_> {
    /// Standing promises of lower-ranked jobs give way to a job newly ranked above them (decision 3): same queue and
    /// higher priority, or another queue within its guarantee against borrowers.
    pub(super) fn pass_lower(&mut self, line: &Line<'_>, job: JobIdx) -> Option<Outcome> {
        if !self.due_a_promise(line) {
            return None;
        }
        let yielding = self.yielding_to(job);
        if yielding.is_empty() {
            return None;
        }
        let without = self.earliest(job, self.now(), None);
        for (other, reservation) in &yielding {
            self.take_out(*other, reservation);
        }
        let with = self.earliest(job, self.now(), None);
        let gains = match (&with, &without) {
            (Some(w), Some(wo)) => w.0 < wo.0,
            (Some(_), None) => true,
            _ => false,
        };
        let may_start = self.quota_allows(job).is_ok();
        let Some((start, placement)) = with.filter(|w| gains && (may_start || w.0 > self.now())) else {
            for (other, reservation) in &yielding {
                self.put_in(*other, reservation);
            }
            return None;
        };
        let outcome = if start <= self.now() {
            self.start(job, placement);
            Outcome::Started
        } else {
            self.reserve(job, start, placement, Vec::new());
            let mut reason = Reason::of(Code::NoCapacity, "");
            reason.until = Some(start);
            reason.wanted = i64::from(self.spec(job).floor());
            Outcome::Blocked(reason)
        };
        self.resettle(job, yielding);
        Some(outcome)
    }

    /// The same for a job that has a date already (its priority was raised, or room came free that a lower one holds).
    /// Its own reservation is out of the ledger. True if it has a sooner one now.
    pub(super) fn pass_lower_promised(
        &mut self,
        job: JobIdx,
        old: &Reservation,
        sooner_than: Time,
        most_domains: Option<u32>,
        in_preferred: bool,
    ) -> Passed {
        let spec = self.spec(job);
        let lower = self.state().reserved().iter().any(|other| {
            let theirs = &self.job(*other).spec;
            theirs.queue == spec.queue && theirs.priority < spec.priority
        });
        if !lower {
            return Passed::No;
        }
        let mut yielding = self.yielding_to(job);
        yielding.retain(|(other, r)| self.spec(*other).queue == spec.queue && r.start < sooner_than);
        if yielding.is_empty() {
            return Passed::No;
        }
        for (other, reservation) in &yielding {
            self.take_out(*other, reservation);
        }
        let may_start = self.quota_allows(job).is_ok();
        let now = self.now();
        let sooner = self.earliest(job, now, most_domains);
        let sooner = sooner.filter(|(_, p)| !in_preferred || self.in_preferred(&spec, p));
        let Some((start, placement)) = sooner.filter(|(s, _)| *s < sooner_than && (may_start || *s > now)) else {
            for (other, reservation) in &yielding {
                self.put_in(*other, reservation);
            }
            return Passed::No;
        };
        let passed = if start > now {
            self.move_to(job, old, Some((start, placement)), None, Vec::new());
            Passed::Sooner
        } else {
            self.reservations = self.reservations.saturating_sub(1);
            self.start(job, placement);
            Passed::Started
        };
        self.resettle(job, yielding);
        passed
    }

    /// The reservations that a job may displace, in the order of their ranks.
    fn yielding_to(&mut self, job: JobIdx) -> Vec<(JobIdx, Reservation)> {
        let spec = self.spec(job);
        let demand = self.demand(job);
        let entitled = self.shares.entitled(spec.queue, &demand.plain);
        let mut standing: BTreeSet<JobIdx> = self.state().reserved().clone();
        standing.extend(self.fates.iter().filter(|(_, f)| matches!(f, Fate::Promised(Some(_)))).map(|(j, _)| *j));
        let mut yielding: Vec<(RankKey, JobIdx, Reservation)> = Vec::new();
        for other in standing {
            let Some(reservation) = self.promise(other) else { continue };
            if reservation.clearing || other == job {
                continue;
            }
            let theirs = self.spec(other);
            let postponed = self.job(other).waiting().map_or(Span::ZERO, |w| w.postponed);
            let lower = theirs.queue == spec.queue
                && theirs.priority < spec.priority
                && postponed < self.policy.max_postponement;
            let borrower = entitled && theirs.queue != spec.queue && {
                let tally = self.demand(other).plain.clone();
                !self.shares.entitled(theirs.queue, &tally)
            };
            if lower || borrower {
                yielding.push((self.rank(other), other, reservation));
            }
        }
        yielding.sort_by(|a, b| a.0.cmp(&b.0));
        yielding.into_iter().map(|(_, other, reservation)| (other, reservation)).collect()
    }

    /// Puts displaced reservations back: as they were where that still fits, else at their new earliest start.
    fn resettle(&mut self, winner: JobIdx, displaced: Vec<(JobIdx, Reservation)>) {
        let key = self.spec(winner).key.clone();
        let queue = self.spec(winner).queue;
        let (own, others): (Vec<_>, Vec<_>) =
            displaced.into_iter().partition(|(job, _)| self.spec(*job).queue == queue);
        self.resettle_as(&Cause::HigherPriority(key.clone()), own);
        self.resettle_as(&Cause::Entitled(key), others);
    }

    /// As [`Cycle::resettle`], for one cause.
    pub(super) fn resettle_as(&mut self, cause: &Cause, displaced: Vec<(JobIdx, Reservation)>) {
        let mut moved = Vec::new();
        for (other, reservation) in displaced {
            self.put_in(other, &reservation);
            let spoiled = reservation.placement.nodes().into_iter().any(|node| {
                let free = self.ledger.free_during(node, reservation.start, reservation.end);
                free.iter().any(|f| *f < 0)
            });
            let over = {
                let spec = self.spec(other);
                let tally = self.tally(&spec, &reservation.placement);
                let state = self.state();
                let window = reservation.counts_during(self.now(), self.policy.cycle);
                self.quota.remove(state, spec.queue, window.0, window.1, &tally);
                let fits = self.quota.fits(state, &spec, &tally, reservation.start);
                self.quota.promise(state, &spec, window.0, window.1, &tally);
                !fits
            };
            if spoiled || over {
                self.take_out(other, &reservation);
                moved.push((other, reservation));
            }
        }
        for (other, reservation) in moved {
            self.remake(other, &reservation, cause.clone());
        }
    }
}
