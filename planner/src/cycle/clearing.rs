//! Clearing one domain: who of the possible victims goes, and how far, until the taker fits; and who can be spared.

use super::prey::{Prey, one_step_less};
use super::victims::{Cleared, Victim};
use super::{Cycle, Demand};
use crate::ids::{DomainIdx, JobIdx, NodeIdx, ShapeIdx};
use crate::job::Placement;
use crate::ledger::HoldKind;
use crate::place::Ask;
use crate::room::Room;
use crate::share::{Reclaim, Taker};
use crate::state::Tally;
use crate::time::{Span, Time};

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

impl Cycle<'_> {
    /// Clears one domain: surplus first, then whole jobs by price, until the taker fits; then spares whom it can.
    pub(super) fn clear_domain(&mut self, job: JobIdx, domain: DomainIdx, prey: &[Prey]) -> Option<Cleared> {
        let spec = self.spec(job);
        let demand = self.demand(job);
        let range = self.state().topology().domain(domain).nodes.clone();
        let inside = |p: &Prey| p.seats.seats.iter().any(|s| range.contains(&s.node.0));
        // Quotas of the pool that the domain is in count too.
        let pool = self.state().topology().domain(domain).pool;
        let tally =
            demand.by_pool.iter().find(|(p, _)| *p == pool).map_or_else(|| demand.plain.clone(), |(_, t)| t.clone());
        let quota_bound = self.quota_allows(job).is_err() || !self.quota_after(job, &tally);
        let helps = |p: &Prey| inside(p) || quota_bound;
        let mut steps: Vec<Step> = Vec::new();
        for (row, p) in prey.iter().enumerate().filter(|(_, p)| helps(p)) {
            if p.floor_seats.is_some() {
                steps.push(Step { prey: row, whole: false });
            }
        }
        for (row, p) in prey.iter().enumerate().filter(|(_, p)| helps(p)) {
            if p.whole {
                steps.push(Step { prey: row, whole: true });
            }
        }
        let start = self.now() + self.longest_grace(prey, &steps);
        let mut room =
            self.ledger.space_room(range.map(NodeIdx).collect(), &demand.shapes, start, start + spec.window());
        let limit = self.policy.search_limit;
        let ask = Ask {
            spec: &spec,
            sizes: &demand.sizes,
            start,
            predicted_end: start + spec.predicted(),
            most_domains: None,
            search_limit: limit,
            within: Some(domain),
        };
        let mut levels: Vec<Level> = vec![Level::Full; prey.len()];
        let mut taken: Vec<usize> = Vec::new();
        let mut fits = None;
        for step in steps {
            let level = if step.whole { Level::Gone } else { Level::Floor };
            if !self.may_still_take(job, &prey[step.prey], levels[step.prey]) {
                continue;
            }
            self.set_level(prey, &mut levels, step.prey, level);
            room.set_free(&self.freed_nodes(prey, step.prey, start, start + spec.window()));
            taken.push(step.prey);
            if !self.quota_after(job, &tally) {
                continue;
            }
            if self.enough_slots(&room, domain, &demand)
                && let Ok(found) = crate::place::place(&room, &ask)
            {
                fits = Some(found);
                break;
            }
        }
        // Each that is not needed is spared, dearest first: the whole job, then its surplus.
        let sparing: Vec<usize> = if fits.is_some() { taken.iter().rev().copied().collect() } else { Vec::new() };
        for row in sparing {
            let kept = levels[row];
            for spared in kept.milder(prey[row].floor_seats.is_some()) {
                self.set_level(prey, &mut levels, row, spared);
                room.set_free(&self.freed_nodes(prey, row, start, start + spec.window()));
                match crate::place::place(&room, &ask) {
                    Ok(found) if self.quota_after(job, &tally) => {
                        fits = Some(found);
                        break;
                    }
                    _ => {
                        self.set_level(prey, &mut levels, row, kept);
                        room.set_free(&self.freed_nodes(prey, row, start, start + spec.window()));
                    }
                }
            }
        }
        let chosen = levels.clone();
        // The room was looked at when everybody who could go would be gone: those who do go may be gone sooner.
        let grace = prey.iter().zip(&chosen).filter(|(_, level)| **level != Level::Full);
        let grace = grace.map(|(p, _)| self.spec(p.job).grace).max().unwrap_or(Span::ZERO);
        let soon = self.now() + grace;
        let sooner = fits.as_ref().is_some_and(|f| soon < start && self.seats_are_free_from(&spec, &f.placement, soon));
        let start = if sooner { soon } else { start };
        // Put everything back: choosing is not stopping.
        for row in taken {
            self.set_level(prey, &mut levels, row, Level::Full);
        }
        let found = fits?;
        let mut victims: Vec<Victim> = Vec::new();
        for (p, level) in prey.iter().zip(&chosen).filter(|(_, level)| **level != Level::Full) {
            let shrunk = if *level == Level::Floor { p.floor_seats.clone() } else { None };
            victims.push(Victim { job: p.job, shrunk, cause: p.cause });
        }
        if victims.is_empty() {
            return None;
        }
        for victim in &mut victims {
            if victim.shrunk.is_some() {
                victim.shrunk = Some(self.least_shrink(prey, victim.job, job, &found.placement, start));
            }
        }
        Some(Cleared { victims, start, placement: found.placement })
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

    fn longest_grace(&self, prey: &[Prey], steps: &[Step]) -> Span {
        steps.iter().map(|s| self.spec(prey[s.prey].job).grace).max().unwrap_or(Span::ZERO)
    }

    /// Makes the ledger and the shares show a job at one level of what it holds.
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

    fn quota_after(&self, job: JobIdx, tally: &Tally) -> bool {
        let spec = &self.job(job).spec;
        self.shares.limit_left(spec.queue, tally).is_ok()
            && (spec.preemptible || self.shares.within_guarantee(spec.queue, tally).is_ok())
    }

    /// Of a job's surplus, only as many steps as the taker's seats need.
    fn least_shrink(
        &mut self,
        prey: &[Prey],
        victim: JobIdx,
        taker: JobIdx,
        seats: &Placement,
        start: Time,
    ) -> Placement {
        let Some(p) = prey.iter().find(|p| p.job == victim) else { return Placement::default() };
        let spec = self.spec(victim);
        let wanted: Vec<NodeIdx> = seats.nodes();
        let needed = |kept: &Placement| kept.seats.iter().filter(|s| wanted.contains(&s.node)).count();
        let floor = p.floor_seats.clone().unwrap_or_else(|| p.seats.clone());
        let _ = (taker, start);
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
