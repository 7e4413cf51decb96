//! Clearing one domain: who of the possible victims goes, and how far, until the taker fits; and who can be spared.

use super::prey::{Prey, one_step_less};
use super::victims::{Cleared, Victim};
use super::{Cycle, Demand};
use crate::ids::{DomainIdx, JobIdx, NodeIdx, ShapeIdx};
use crate::job::{JobSpec, Placement};
use crate::ledger::{HoldKind, SpaceRoom};
use crate::place::{Ask, Found};
use crate::room::Room;
use crate::share::{Reclaim, Taker};
use crate::state::Tally;
use crate::time::{Span, Time};
use std::sync::Arc;

/// One step of clearing: a job's surplus, or the whole job.
#[derive(Clone, Debug)]
struct Step {
    prey: usize,
    whole: bool,
}

/// How much of a possible victim is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Level {
    Full,
    Floor,
    Gone,
}

impl Level {
    /// Levels that take less from the job, mildest first.
    fn milder(self, has_surplus: bool) -> Vec<Self> {
        match self {
            Self::Full => Vec::new(),
            Self::Floor => vec![Self::Full],
            Self::Gone if has_surplus => vec![Self::Full, Self::Floor],
            Self::Gone => vec![Self::Full],
        }
    }
}

/// One domain being cleared on paper for one taker.
struct Trial<'a, 'p> {
    taker: JobIdx,
    domain: DomainIdx,
    prey: &'p [Prey],
    spec: Arc<JobSpec>,
    demand: Arc<Demand>,
    tally: Tally,
    /// When everybody who could go would be gone.
    start: Time,
    room: SpaceRoom<'a>,
    /// How much of each possible victim is left.
    levels: Vec<Level>,
    taken: Vec<usize>,
    found: Option<Found>,
}

impl<'a> Cycle<'a> {
    /// Clears one domain: surplus first, then whole jobs by price, until the taker fits; then spares whom it can.
    pub(super) fn clear_domain(&mut self, job: JobIdx, domain: DomainIdx, prey: &[Prey]) -> Option<Cleared> {
        let mut trial = self.open_trial(job, domain, prey);
        let steps = self.steps(&trial);
        self.take_until_it_fits(&mut trial, steps);
        self.spare(&mut trial);
        let start = self.soonest(&trial);
        // Put everything back: choosing is not stopping.
        let chosen = trial.levels.clone();
        for row in std::mem::take(&mut trial.taken) {
            self.set_level(prey, &mut trial.levels, row, Level::Full);
        }
        let placement = trial.found?.placement;
        let victims = self.victims_of(prey, &chosen, &placement);
        (!victims.is_empty()).then_some(Cleared { victims, start, placement })
    }

    fn open_trial<'p>(&mut self, taker: JobIdx, domain: DomainIdx, prey: &'p [Prey]) -> Trial<'a, 'p> {
        let (spec, demand) = (self.spec(taker), self.demand(taker));
        // Quotas of the pool that the domain is in count too.
        let pool = self.state().topology().domain(domain).pool;
        let tally =
            demand.by_pool.iter().find(|(p, _)| *p == pool).map_or_else(|| demand.plain.clone(), |(_, t)| t.clone());
        let grace = prey.iter().map(|p| self.spec(p.job).grace).max().unwrap_or(Span::ZERO);
        let start = self.now() + grace;
        let nodes = self.state().topology().domain(domain).node_range().collect();
        let room = self.ledger.space_room(nodes, &demand.shapes, start, start + spec.window());
        let levels = vec![Level::Full; prey.len()];
        Trial { taker, domain, prey, spec, demand, tally, start, room, levels, taken: Vec::new(), found: None }
    }

    /// Everybody's surplus first, then whole jobs. Who is elsewhere helps only where a quota binds.
    fn steps(&mut self, trial: &Trial<'_, '_>) -> Vec<Step> {
        let range = self.state().topology().domain(trial.domain).nodes.clone();
        let quota_bound = !self.quota_after(trial);
        let inside = |p: &Prey| p.seats.seats.iter().any(|s| range.contains(&s.node.0));
        let helping = trial.prey.iter().enumerate().filter(|(_, p)| quota_bound || inside(p));
        let helping: Vec<(usize, &Prey)> = helping.collect();
        let surplus = helping.iter().filter(|(_, p)| p.floor_seats.is_some());
        let whole = helping.iter().filter(|(_, p)| p.whole);
        let step = |prey: usize, whole: bool| Step { prey, whole };
        surplus.map(|(row, _)| step(*row, false)).chain(whole.map(|(row, _)| step(*row, true))).collect()
    }

    fn take_until_it_fits(&mut self, trial: &mut Trial<'_, '_>, steps: Vec<Step>) {
        for Step { prey: row, whole } in steps {
            if !self.may_still_take(trial.taker, &trial.prey[row], trial.levels[row]) {
                continue;
            }
            self.set_trial(trial, row, if whole { Level::Gone } else { Level::Floor });
            trial.taken.push(row);
            if self.quota_after(trial) && self.enough_slots(&trial.room, trial.domain, &trial.demand) {
                trial.found = self.place_in(trial);
            }
            if trial.found.is_some() {
                return;
            }
        }
    }

    /// Each that is not needed is spared, dearest first: the whole job, then its surplus.
    fn spare(&mut self, trial: &mut Trial<'_, '_>) {
        if trial.found.is_none() {
            return;
        }
        for row in trial.taken.clone().into_iter().rev() {
            let kept = trial.levels[row];
            for spared in kept.milder(trial.prey[row].floor_seats.is_some()) {
                self.set_trial(trial, row, spared);
                let found = if self.quota_after(trial) { self.place_in(trial) } else { None };
                if found.is_some() {
                    trial.found = found;
                    break;
                }
                self.set_trial(trial, row, kept);
            }
        }
    }

    /// The room was looked at when everybody who could go would be gone: those who do go may be gone sooner.
    fn soonest(&mut self, trial: &Trial<'_, '_>) -> Time {
        let going = trial.prey.iter().zip(&trial.levels).filter(|(_, level)| **level != Level::Full);
        let grace = going.map(|(p, _)| self.spec(p.job).grace).max().unwrap_or(Span::ZERO);
        let soon = self.now() + grace;
        let Some(found) = trial.found.as_ref().filter(|_| soon < trial.start) else { return trial.start };
        let tally = self.tally(&trial.spec, &found.placement);
        let sooner = self.quota.fits(self.state(), &trial.spec, &tally, soon)
            && self.seats_are_free_from(&trial.spec, &found.placement, soon);
        if sooner { soon } else { trial.start }
    }

    /// Who goes, in the order in which they were judged: surplus before whole jobs.
    fn victims_of(&mut self, prey: &[Prey], chosen: &[Level], placement: &Placement) -> Vec<Victim> {
        let at = |level: Level| prey.iter().zip(chosen).filter(move |(_, l)| **l == level).map(|(p, _)| p);
        let mut victims: Vec<Victim> = Vec::new();
        for p in at(Level::Floor) {
            let shrunk = Some(self.least_shrink(p, placement));
            victims.push(Victim { job: p.job, shrunk, cause: p.cause });
        }
        victims.extend(at(Level::Gone).map(|p| Victim { job: p.job, shrunk: None, cause: p.cause }));
        victims
    }

    fn place_in(&self, trial: &Trial<'_, '_>) -> Option<Found> {
        let ask = Ask {
            spec: &trial.spec,
            sizes: &trial.demand.sizes,
            start: trial.start,
            predicted_end: trial.start + trial.spec.predicted(),
            most_domains: None,
            search_limit: self.policy.search_limit,
            within: Some(trial.domain),
        };
        crate::place::place(&trial.room, &ask).ok()
    }

    /// Shows one possible victim at a level, in the books and in the room that is looked at.
    fn set_trial(&mut self, trial: &mut Trial<'_, '_>, row: usize, to: Level) {
        self.set_level(trial.prey, &mut trial.levels, row, to);
        let (from, to) = (trial.start, trial.start + trial.spec.window());
        trial.room.set_free(&self.freed_nodes(trial.prey, row, from, to));
    }

    /// Whether another queue is still above its right after what was taken from it before: several small bites must not
    /// take it below. (Sparing others later only leaves it more.)
    fn may_still_take(&mut self, taker: JobIdx, prey: &Prey, level: Level) -> bool {
        let (spec, theirs) = (self.spec(taker), self.spec(prey.job));
        if theirs.queue == spec.queue {
            return true;
        }
        let seats = if level == Level::Floor { prey.floor_seats.as_ref().unwrap_or(&prey.seats) } else { &prey.seats };
        let (demand, held) = (self.demand(taker), self.tally(&theirs, seats));
        let private_start = self.has_private_start(taker);
        let taker = Taker { queue: spec.queue, demand: &demand.plain, private_start };
        self.shares.may_reclaim(&taker, theirs.queue, &held) != Reclaim::No
    }

    /// Makes the ledger, the quota book and the shares show a job at one level of what it holds.
    fn set_level(&mut self, prey: &[Prey], levels: &mut [Level], row: usize, to: Level) {
        let p = &prey[row];
        let from = std::mem::replace(&mut levels[row], to);
        if from == to {
            return;
        }
        let spec = self.spec(p.job);
        let seats = |level: Level| match level {
            Level::Full => p.seats.clone(),
            Level::Floor => p.floor_seats.clone().unwrap_or_else(|| p.seats.clone()),
            Level::Gone => Placement::default(),
        };
        self.ledger.release(p.job, &p.seats, HoldKind::Running);
        if to != Level::Gone {
            self.ledger.hold(p.job, &spec, &seats(to), HoldKind::Running, (Time(i64::MIN), p.ends), p.ends);
        }
        let (before, after) = (self.tally(&spec, &seats(from)), self.tally(&spec, &seats(to)));
        let (state, until, ever) = (self.state(), self.held_until(p.job), Time(i64::MIN));
        if from != Level::Gone {
            self.quota.remove(state, spec.queue, ever, until, &before);
        }
        if to != Level::Gone {
            self.quota.add(state, spec.queue, ever, until, &after);
        }
        // A job that goes whole leaves its queue's count of running jobs too.
        match (from, to) {
            (_, Level::Gone) => self.shares.leave(spec.queue, &before),
            (Level::Gone, _) => self.shares.stay(spec.queue, &after),
            _ => {
                self.shares.shrink(spec.queue, &before);
                self.shares.grow(spec.queue, &after);
            }
        }
    }

    fn freed_nodes(&mut self, prey: &[Prey], row: usize, from: Time, to: Time) -> Vec<(NodeIdx, Vec<i64>)> {
        let nodes = prey[row].seats.nodes();
        nodes.into_iter().map(|node| (node, self.ledger.free_during(node, from, to))).collect()
    }

    fn enough_slots<R: Room>(&self, room: &R, domain: DomainIdx, demand: &Demand) -> bool {
        let wanted = |shape: &ShapeIdx| room.pods_in(domain, *shape);
        match &demand.shapes[..] {
            [only] => wanted(only) >= demand.sizes.iter().map(|s| u64::from(*s)).sum(),
            shapes => shapes.iter().all(|s| wanted(s) > 0),
        }
    }

    /// Whether quotas let the taker start, once those who go are gone, and run its whole window.
    fn quota_after(&mut self, trial: &Trial<'_, '_>) -> bool {
        let state = self.state();
        self.shares.lending_left(trial.spec.queue, &trial.tally).is_ok()
            && self.quota.fits(state, &trial.spec, &trial.tally, trial.start)
    }

    /// Of a job's surplus, only as many steps as the taker's seats need.
    fn least_shrink(&mut self, p: &Prey, seats: &Placement) -> Placement {
        let spec = self.spec(p.job);
        let wanted: Vec<NodeIdx> = seats.nodes();
        let needed = |kept: &Placement| kept.seats.iter().filter(|s| wanted.contains(&s.node)).count();
        let floor = p.floor_seats.clone().unwrap_or_else(|| p.seats.clone());
        // Highest indexes go first; stop as soon as no seat that the taker wants is left above the floor.
        let mut kept = p.seats.clone();
        while needed(&kept) > needed(&floor) {
            match one_step_less(&spec, &kept) {
                Some(less) => kept = less,
                None => break,
            }
        }
        if kept == p.seats { floor } else { kept }
    }
}
