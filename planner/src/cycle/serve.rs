//! Floors of all waiting jobs, best job of the best queue first: start it, clear room for it, promise it a date, or let
//! it wait with a reason.

use super::line::Line;
use super::pass::Passed;
use super::start::Not;
use super::{Cycle, Fate};
use crate::ids::{JobIdx, QueueIdx};
use crate::job::{Placement, Reservation};
use crate::place::domains_used;
use crate::queue::{Backfill, QueueState};
use crate::reason::{Code, Reason};
use crate::share::{Contest, Head};
use crate::state::{ClusterState, RankKey};
use crate::time::{Span, Time};

/// What became of a job that was considered.
pub(super) enum Outcome {
    /// It starts.
    Started,
    /// It is held from outside: no place in the line, blocks nobody.
    Held(Reason),
    /// It waits; the first `depth` of these get a promise.
    Blocked(Reason),
}

impl<'a> Cycle<'a> {
    /// Where a waiting job stands in its queue.
    pub(super) fn rank(&self, job: JobIdx) -> RankKey {
        ClusterState::rank_key(self.job(job), job)
    }

    /// Step 5 of the cycle.
    pub(super) fn serve(&mut self) {
        let state = self.state();
        let mut lines: Vec<Line<'a>> = (0..state.queues().len())
            .map(QueueIdx::of)
            .filter(|q| !state.waiting(*q).is_empty())
            .map(|q| Line::open(state, q))
            .collect();
        if let [line] = &mut lines[..] {
            // Nobody to contend with.
            line.head = self.next_of(line);
            while let Some(job) = line.head.take() {
                self.serve_one(line, job);
                line.head = self.next_of(line);
            }
            return;
        }
        let mut contest = Contest::new(&self.shares);
        for line in &mut lines {
            self.enter(&mut contest, line);
        }
        while let Some(queue) = contest.best() {
            let Some(line) = lines.iter_mut().find(|l| l.queue == queue) else { break };
            let before = self.plan.actions.len();
            if let Some(job) = line.head.take() {
                self.serve_one(line, job);
            }
            self.enter(&mut contest, line);
            self.refresh(&mut contest, before, queue);
        }
    }

    /// Takes a line's next job as its head and tells the contest.
    fn enter(&mut self, contest: &mut Contest, line: &mut Line<'a>) {
        let Some(job) = self.next_of(line) else {
            contest.set(&self.shares, line.queue, None);
            return;
        };
        line.head = Some(job);
        let demand = self.demand(job);
        let there = self.job(job);
        let head = Head {
            priority: there.spec.priority,
            queued_at: there.queued_at,
            sequence: there.sequence,
            demand: &demand.plain,
        };
        contest.set(&self.shares, line.queue, Some(&head));
    }

    /// Tells the contest of other queues whose use changed (victims).
    fn refresh(&self, contest: &mut Contest, since: usize, served: QueueIdx) {
        for action in &self.plan.actions[since..] {
            let queue = self.job(action.job()).spec.queue;
            if queue != served {
                contest.refresh(&self.shares, queue);
            }
        }
    }

    fn serve_one(&mut self, line: &mut Line<'_>, job: JobIdx) {
        line.position += 1;
        match self.consider(line, job) {
            Outcome::Started => line.position -= 1,
            Outcome::Held(reason) => self.explain(job, line.position, reason, None),
            Outcome::Blocked(reason) => {
                line.blocked += 1;
                self.explain(job, line.position, reason, None);
                if self.state().queue(line.queue).backfill == Backfill::None && self.beyond == 0 {
                    self.close_line(line, job);
                }
            }
        }
    }

    /// Strict order: nobody passes the blocked head.
    fn close_line(&mut self, line: &mut Line<'_>, head: JobIdx) {
        let object = self.job(head).spec.key.clone();
        let rest = line.drain();
        if !self.policy.explain {
            return;
        }
        let started = |cycle: &Self, job: &JobIdx| matches!(cycle.fates.get(job), Some(Fate::Started { .. }));
        for job in rest.into_iter().filter(|job| !started(self, job)).collect::<Vec<_>>() {
            line.position += 1;
            let reason = match self.outside_hold(job) {
                Some(held) => held,
                None => Reason::of(Code::BehindHead, object.clone()),
            };
            self.explain(job, line.position, reason, None);
        }
    }

    /// Why a job is not considered at all.
    pub(super) fn outside_hold(&self, job: JobIdx) -> Option<Reason> {
        let there = self.job(job);
        if let Some(hold) = there.waiting().and_then(|w| w.hold.as_ref())
            && hold.until.is_none_or(|until| until > self.now())
        {
            let mut reason = Reason::of(hold.code, hold.detail.clone());
            reason.until = hold.until;
            return Some(reason);
        }
        let closed =
            self.state().lineage(there.spec.queue).find(|q| self.state().queue(*q).state != QueueState::Open)?;
        Some(Reason::of(Code::QueueHeld, self.state().queue(closed).name.clone()))
    }

    fn consider(&mut self, line: &mut Line<'_>, job: JobIdx) -> Outcome {
        if matches!(self.fates.get(&job), Some(Fate::Started { .. })) {
            return Outcome::Started;
        }
        if let Some(held) = self.outside_hold(job) {
            return Outcome::Held(held);
        }
        if let Some(Fate::Promised(Some(reservation))) = self.fates.get(&job)
            && reservation.clearing
        {
            // Its victims were told to go a moment ago: it starts in a later plan, when they are gone, grace or not.
            let reservation = reservation.clone();
            return Outcome::Blocked(self.why_promised(job, &reservation));
        }
        match self.promise(job) {
            Some(reservation) => self.consider_promised(job, &reservation),
            None => self.consider_new(line, job),
        }
    }

    /// A job with a date: starts when it is due, or earlier when room came free.
    fn consider_promised(&mut self, job: JobIdx, old: &Reservation) -> Outcome {
        let due = old.start <= self.now();
        let patience = self.patience(job).filter(|(_, until)| old.start <= *until);
        if !due && !self.freed {
            // Nothing came free that the promise did not count on; only a victim's protection may have ended.
            return self.clear_room_instead(job, old).unwrap_or_else(|| Outcome::Blocked(self.why_promised(job, old)));
        }
        let goal = match self.policy.patience_from_first_start {
            // What was waited for is not given up for a sooner start in more domains.
            true if patience.is_some() => Some(domains_used(self.state().topology(), &self.spec(job), &old.placement)),
            _ => patience.map(|p| p.0),
        };
        self.take_out(job, old);
        let here = if due { self.same_seats(job, old) } else { None };
        let place = match here {
            Some(placement) => Ok(placement),
            // Its room is being cleared where it was promised, and nowhere else.
            None if due && old.clearing => Err(Not::Space { limit: false }),
            None => self.place_now(job, goal),
        };
        // While patience lasts a preferred domain that was promised is not given up for a sooner start without one.
        let spec = self.spec(job);
        let held_to = patience.is_some() && !due && self.in_preferred(&spec, &old.placement);
        let place = place.ok().filter(|p| !held_to || self.in_preferred(&spec, p));
        if let Some(placement) = place {
            self.start(job, placement);
            self.reservations = self.reservations.saturating_sub(1);
            return Outcome::Started;
        }
        if old.clearing {
            // Its room is being cleared where it was promised, and nowhere else.
            self.put_in(job, old);
            return Outcome::Blocked(self.why_promised(job, old));
        }
        let now = self.now();
        let sooner = self.earliest_before(job, now, old.start, goal).filter(|(start, _)| now < *start);
        let sooner = sooner.filter(|(_, p)| !held_to || self.in_preferred(&spec, p));
        match self.pass_lower_promised(job, old, sooner.as_ref().map_or(old.start, |s| s.0), goal, held_to) {
            Passed::Started => return Outcome::Started,
            Passed::Sooner => {}
            Passed::No => match sooner {
                Some((start, placement)) => self.move_to(job, old, Some((start, placement)), None, Vec::new()),
                None => self.put_in(job, old),
            },
        }
        if matches!(self.fates.get(&job), Some(Fate::Started { .. })) {
            return Outcome::Started;
        }
        let promised = self.promise(job).unwrap_or_else(|| old.clone());
        if let Some(outcome) = self.clear_room_instead(job, &promised) {
            return outcome;
        }
        Outcome::Blocked(self.why_promised(job, &promised))
    }

    /// The promised seats, if they are free now and the quota allows.
    pub(super) fn same_seats(&mut self, job: JobIdx, reservation: &Reservation) -> Option<Placement> {
        self.quota_allows(job).ok()?;
        let spec = self.spec(job);
        self.seats_are_free(&spec, &reservation.placement).then(|| reservation.placement.clone())
    }

    /// A job without a date.
    fn consider_new(&mut self, line: &mut Line<'_>, job: JobIdx) -> Outcome {
        let patience = self.patience(job);
        let refused = match self.place_now(job, patience.map(|p| p.0)) {
            Ok(placement) => {
                self.start(job, placement);
                return Outcome::Started;
            }
            Err(not) => not,
        };
        if let Some((goal, until)) = patience {
            if let Some(outcome) = self.wait_for_preferred(line, job, goal, until) {
                return outcome;
            }
            // Patience is of no use: the best there is will do.
            if let Ok(placement) = self.place_now(job, None) {
                self.start(job, placement);
                return Outcome::Started;
            }
        }
        if self.policy.preemption
            && let Some(outcome) = self.clear_room(job, None)
        {
            return outcome;
        }
        if let Some(outcome) = self.pass_lower(line, job) {
            // With the others' promises out of the way, clearing room may have become possible too.
            self.preyless.clear();
            let promised = self.promise(job);
            return promised.and_then(|p| self.clear_room_instead(job, &p)).unwrap_or(outcome);
        }
        self.promise_date(line, job, &refused)
    }

    /// Patience has not run out: wait for the preferred level if the plan shows it in time.
    fn wait_for_preferred(&mut self, line: &Line<'_>, job: JobIdx, goal: u32, until: Time) -> Option<Outcome> {
        let (start, placement) = if self.policy.patience_from_first_start {
            self.due_a_promise(line).then(|| self.fewer_domains_soon(job, goal))??
        } else {
            self.earliest_before(job, self.now(), until + Span(1), Some(goal))?
        };
        self.wake_at(until);
        if start > self.now() && self.due_a_promise(line) {
            self.reserve(job, start, placement, Vec::new());
        }
        let level = self.spec(job).locality.preferred.clone().unwrap_or_else(|| "".into());
        let mut reason = Reason::of(Code::WaitingForPatience, level);
        reason.until = Some(start);
        Some(Outcome::Blocked(reason))
    }

    /// The start in fewest domains, not later than the patience after the first start in any number of them.
    fn fewer_domains_soon(&mut self, job: JobIdx, best: u32) -> Option<(Time, Placement)> {
        let (now, spec) = (self.now(), self.spec(job));
        let (first, anywhere) = match self.place_now(job, None) {
            Ok(placement) => (now, placement),
            Err(_) => self.earliest(job, now, None)?,
        };
        let until = first + spec.locality.patience + Span(1);
        let used = |cycle: &Self, p: &Placement| domains_used(cycle.state().topology(), &spec, p);
        let (mut fewest, mut found) = (used(self, &anywhere), None);
        while fewest > best
            && let Some(fewer) = self.earliest_before(job, now, until, Some(fewest - 1)).filter(|f| f.0 > now)
        {
            fewest = used(self, &fewer.1);
            found = Some(fewer);
        }
        found
    }

    pub(super) fn due_a_promise(&self, line: &Line<'_>) -> bool {
        let deep = match self.state().queue(line.queue).backfill {
            Backfill::None => self.beyond > 0,
            Backfill::Depth(depth) => line.blocked < depth.saturating_add(self.beyond),
        };
        deep && self.reservations < self.policy.max_reservations
    }

    /// The earliest start as a reservation, or a claim where there is no date.
    fn promise_date(&mut self, line: &mut Line<'_>, job: JobIdx, refused: &Not) -> Outcome {
        let reason = |cycle: &mut Self| cycle.why_not(job, refused);
        if !self.due_a_promise(line) {
            return Outcome::Blocked(reason(self));
        }
        // A start "now" that was just refused waits for pods that are on their way out at this very instant.
        match self.earliest(job, self.now(), None).filter(|(start, _)| *start > self.now()) {
            Some((start, placement)) => {
                let mut reason = reason(self);
                reason.until = Some(start);
                self.reserve(job, start, placement, Vec::new());
                Outcome::Blocked(reason)
            }
            None => {
                let reason = reason(self);
                if !line.claimed && matches!(refused, Not::Space { .. }) {
                    line.claimed = self.claim(job, line.queue);
                }
                Outcome::Blocked(reason)
            }
        }
    }
}
