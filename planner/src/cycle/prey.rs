//! Every job from which a taker may get room, at what price, and how much of it may go.

use super::Cycle;
use crate::ids::{JobIdx, PoolIdx, QueueIdx};
use crate::job::{Communication, JobSpec, Placement};
use crate::plan::StopCause;
use crate::queue::{QuotaKey, ReclaimFrom};
use crate::share::{Reclaim, Taker};
use crate::state::Tally;
use crate::time::{Span, Time};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::rc::Rc;

/// Seconds of work that a restart costs besides the work lost.
const RESTART_S: i64 = 60;

/// By queue, class and pool: what such a job holds, if the taker may have it.
type Verdicts = BTreeMap<(QueueIdx, u32, PoolIdx), Option<Rc<Tally>>>;

/// A job that may be a victim, and at what price.
#[derive(Clone, Debug)]
pub(super) struct Prey {
    pub(super) job: JobIdx,
    pub(super) seats: Placement,
    pub(super) cause: StopCause,
    /// Its surplus alone, if it has any that may go.
    pub(super) floor_seats: Option<Placement>,
    /// The whole job may go.
    pub(super) whole: bool,
    pub(super) priority: i64,
    /// Work lost and restart, in resource-seconds.
    pub(super) price: i64,
    pub(super) started: Time,
    pub(super) ends: Time,
}

impl Cycle<'_> {
    /// Every job from which the taker may get room, surplus or whole.
    pub(super) fn prey_of(&mut self, taker: JobIdx) -> Vec<Prey> {
        let spec = self.spec(taker);
        let demand = self.demand(taker);
        let taker_private = self.has_private_start(taker);
        let taker_of = Taker { queue: spec.queue, demand: &demand.plain, private_start: taker_private };
        let holding: Vec<JobIdx> = self.state().holding().iter().copied().collect();
        let mut prey = Vec::new();
        let mut verdicts = Verdicts::new();
        for job in holding {
            let Some(running) = self.job(job).running() else { continue };
            if running.settling || !running.lost.is_empty() {
                continue;
            }
            // Nobody starts and is stopped for another at one instant.
            if running.started >= self.now() {
                self.wake_at(self.now() + self.policy.cycle);
                continue;
            }
            let theirs = &self.job(job).spec;
            let has_surplus = theirs.resizable && theirs.is_elastic();
            let cause;
            let (mut whole, mut surplus);
            if theirs.queue == spec.queue {
                cause = if taker_private && !running.guaranteed && theirs.priority >= spec.priority {
                    StopCause::Reclaimed
                } else {
                    StopCause::Preempted
                };
                whole = theirs.priority < spec.priority && !running.firm
                    || taker_private && !running.guaranteed && running.private_start.is_none();
                surplus = has_surplus && theirs.priority <= spec.priority;
            } else if self.policy.reclaim_for_private_only && !taker_private {
                continue;
            } else {
                let allowed = match self.state().queue(theirs.queue).reclaim_from {
                    ReclaimFrom::Any => true,
                    ReclaimFrom::LowerPriority => theirs.priority < spec.priority,
                    ReclaimFrom::Never => false,
                };
                cause = StopCause::Reclaimed;
                whole = allowed && !running.guaranteed;
                surplus = allowed && has_surplus;
            }
            whole &= theirs.preemptible;
            // Most running jobs are nobody's prey: that is settled before anything is counted.
            if !whole && !surplus {
                continue;
            }
            let theirs = self.spec(job);
            let Some(seats) = self.seats(job) else { continue };
            let tally = self.verdict(&taker_of, job, &seats, &mut verdicts);
            let Some(tally) = tally else { continue };
            let young = running.started + self.state().queue(theirs.queue).reclaim_min_runtime;
            if young > self.now() && (whole || surplus) {
                self.wake_at(young);
                whole = false;
                surplus = false;
            }
            let floor_seats = if surplus { at_floor(&theirs, &seats) } else { None };
            if !whole && floor_seats.is_none() {
                continue;
            }
            let lost = self.work_lost(&theirs, running.started);
            let units =
                tally.iter().filter(|(k, _)| k.pool.is_none() && self.is_device(**k)).map(|(_, v)| *v).sum::<i64>();
            let units = units.max(i64::try_from(seats.len()).unwrap_or(i64::MAX));
            prey.push(Prey {
                job,
                seats,
                cause,
                floor_seats,
                whole,
                priority: theirs.priority,
                price: (lost + RESTART_S).saturating_mul(units),
                started: running.started,
                ends: running.ends,
            });
        }
        prey.sort_by(|a, b| {
            let key = |p: &Prey| (p.priority, p.price, Reverse(p.started));
            key(a).cmp(&key(b)).then_with(|| self.job(a.job).spec.key.cmp(&self.job(b.job).spec.key))
        });
        prey
    }

    /// What a job holds, if the taker may have it by right; jobs of one class, queue and pool have one answer.
    fn verdict(&self, taker: &Taker<'_>, job: JobIdx, seats: &Placement, known: &mut Verdicts) -> Option<Rc<Tally>> {
        let there = self.job(job);
        let theirs = &there.spec;
        let judged = |tally: Tally| {
            let by_right =
                theirs.queue == taker.queue || self.shares.may_reclaim(taker, theirs.queue, &tally) != Reclaim::No;
            by_right.then(|| Rc::new(tally))
        };
        let pools = self.state().topology().pools().len();
        let Some(first) = seats.seats.first().filter(|_| !theirs.is_elastic()) else {
            return judged(self.tally(theirs, seats));
        };
        let spans_pools = pools > 1 && theirs.communication == Communication::Independent;
        if spans_pools {
            return judged(self.tally(theirs, seats));
        }
        let key = (theirs.queue, there.class, self.state().topology().pool_of(first.node));
        known.entry(key).or_insert_with(|| judged(self.tally(theirs, seats))).clone()
    }

    /// Whether a waiting job's private start has come.
    pub(super) fn has_private_start(&self, job: JobIdx) -> bool {
        self.job(job).waiting().and_then(|w| w.private_start).is_some_and(|at| at <= self.now())
    }

    fn is_device(&self, key: QuotaKey) -> bool {
        self.state().resources.devices().contains(&key.resource)
    }

    /// Seconds of work since the last checkpoint (since the start without checkpoints).
    fn work_lost(&self, spec: &JobSpec, started: Time) -> i64 {
        let ran = self.now().since(started).0;
        let lost = match spec.checkpoint_every {
            Some(every) if every > Span::ZERO => ran % every.0,
            _ => ran,
        };
        lost / 1_000_000
    }
}

/// A job's seats at its floor; none if it has no surplus.
fn at_floor(spec: &JobSpec, seats: &Placement) -> Option<Placement> {
    let mut kept = seats.clone();
    while let Some(less) = one_step_less(spec, &kept) {
        kept = less;
    }
    (kept != *seats).then_some(kept)
}

/// One step (a pod or a slice) less of the last role that is above its floor: its highest indexes go.
pub(super) fn one_step_less(spec: &JobSpec, seats: &Placement) -> Option<Placement> {
    for (row, role) in spec.roles.iter().enumerate().rev() {
        let count = seats.count(row);
        if count < role.floor + role.step() {
            continue;
        }
        let mut mine: Vec<u32> = seats.seats.iter().filter(|s| usize::from(s.role) == row).map(|s| s.index).collect();
        mine.sort_unstable();
        let cut = mine[mine.len() - role.step() as usize];
        let kept = seats.seats.iter().filter(|s| usize::from(s.role) != row || s.index < cut).copied().collect();
        return Some(Placement { seats: kept });
    }
    None
}
