//! Who makes room for whom: candidate domains priced by the work lost, the cheapest sufficient one, a minimal set.

use super::Cycle;
use crate::ids::{DomainIdx, JobIdx, NodeIdx, QueueIdx};
use crate::job::{JobSpec, Placement, Reservation};
use crate::ledger::HoldKind;
use crate::place::Ask;
use crate::plan::StopCause;
use crate::queue::ReclaimFrom;
use crate::room::Room;
use crate::share::{Reclaim, Taker};
use crate::state::Tally;
use crate::time::{Span, Time};
use crate::topology::Depth;

/// Seconds of work that a restart costs besides the work lost.
const RESTART_S: i64 = 60;
/// Jobs whose room is at most this far away are waited for (decision 14).
const WORTH_WAITING: Span = Span::from_secs(60);
/// Domains that are priced exactly, best bound first.
const MOST_DOMAINS: usize = 64;

/// What makes one clearing cheaper than another: highest victim, work lost, victims, narrower domain, row.
type Price = (i64, i64, usize, u8, DomainIdx);

/// One job that makes room.
#[derive(Clone, Debug)]
pub(super) struct Victim {
    pub(super) job: JobIdx,
    /// What it keeps, if only its surplus goes.
    pub(super) shrunk: Option<Placement>,
    pub(super) cause: StopCause,
}

/// A decision to clear room.
#[derive(Debug)]
pub(super) struct Cleared {
    pub(super) victims: Vec<Victim>,
    pub(super) start: Time,
    pub(super) placement: Placement,
}

/// A job that may be a victim, and at what price.
#[derive(Clone, Debug)]
struct Prey {
    job: JobIdx,
    seats: Placement,
    cause: StopCause,
    /// Its surplus alone, if it has any that may go.
    floor_seats: Option<Placement>,
    /// The whole job may go.
    whole: bool,
    priority: i64,
    /// Work lost and restart, in resource-seconds.
    price: i64,
    started: Time,
    ends: Time,
}

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
    /// The cheapest sufficient set of victims for a job, if there is one and waiting is not better.
    pub(super) fn choose_victims(&mut self, job: JobIdx, promised: Option<&Reservation>) -> Option<Cleared> {
        let there = self.job(job);
        let key = (there.spec.queue, there.class, there.spec.priority);
        if self.preyless.contains(&key) {
            return None;
        }
        let prey = self.prey_of(job);
        if prey.is_empty() {
            self.preyless.insert(key);
            return None;
        }
        if let Some(reservation) = promised {
            self.take_out(job, reservation);
        }
        let choice = self.best_clearing(job, &prey).filter(|c| self.limits_allow(job, c, &prey));
        let wait = match promised {
            Some(reservation) => Some(reservation.start),
            None => choice.as_ref().and_then(|_| self.earliest(job, self.now(), None)).map(|e| e.0),
        };
        if let Some(reservation) = promised {
            self.put_in(job, reservation);
        }
        let Some(cleared) = choice else {
            self.preyless.insert(key);
            return None;
        };
        if self.better_to_wait(&cleared, &prey, wait) {
            return None;
        }
        Some(cleared)
    }

    /// Whether every limit holds over the whole window once the victims are gone, promises of others included.
    fn limits_allow(&mut self, job: JobIdx, cleared: &Cleared, prey: &[Prey]) -> bool {
        let state = self.state();
        let mut given: Vec<(QueueIdx, Time, Tally, Tally)> = Vec::new();
        for victim in &cleared.victims {
            let Some(p) = prey.iter().find(|p| p.job == victim.job) else { continue };
            let spec = self.spec(victim.job);
            let kept = victim.shrunk.as_ref().map(|s| self.tally(&spec, s)).unwrap_or_default();
            given.push((spec.queue, p.ends, self.tally(&spec, &p.seats), kept));
        }
        for (queue, ends, before, kept) in &given {
            self.quota.remove(state, *queue, Time(i64::MIN), *ends, before);
            if !kept.is_empty() {
                self.quota.add(state, *queue, Time(i64::MIN), *ends, kept);
            }
        }
        let spec = self.spec(job);
        let tally = self.tally(&spec, &cleared.placement);
        let fits = self.quota.fits(state, &spec, &tally, cleared.start);
        for (queue, ends, before, kept) in &given {
            if !kept.is_empty() {
                self.quota.remove(state, *queue, Time(i64::MIN), *ends, kept);
            }
            self.quota.add(state, *queue, Time(i64::MIN), *ends, before);
        }
        fits
    }

    /// Decision 14: wait iff the start without victims is near, or all victims end soon anyway.
    fn better_to_wait(&mut self, cleared: &Cleared, prey: &[Prey], wait: Option<Time>) -> bool {
        let now = self.now();
        let grace = cleared.victims.iter().map(|v| self.spec(v.job).grace).max().unwrap_or(Span::ZERO);
        if let Some(start) = wait
            && (start.since(now) <= WORTH_WAITING.max(grace) || start <= cleared.start)
        {
            return true;
        }
        let soon = now + self.policy.wait_instead_of_kill;
        let ends = |v: &Victim| prey.iter().find(|p| p.job == v.job).map_or(Time::NEVER, |p| p.ends);
        wait.is_some() && cleared.victims.iter().all(|v| v.shrunk.is_none() && ends(v) <= soon)
    }

    /// Every job from which the taker may get room, surplus or whole.
    fn prey_of(&mut self, taker: JobIdx) -> Vec<Prey> {
        let spec = self.spec(taker);
        let demand = self.demand(taker);
        let taker_private = self.job(taker).waiting().and_then(|w| w.private_start).is_some_and(|t| t <= self.now());
        let taker_of = Taker { queue: spec.queue, demand: &demand.plain, private_start: taker_private };
        let holding: Vec<JobIdx> = self.state().holding().iter().copied().collect();
        let mut prey = Vec::new();
        for job in holding {
            let Some(running) = self.job(job).running() else { continue };
            let Some(seats) = self.seats(job) else { continue };
            if running.settling || !running.lost.is_empty() {
                continue;
            }
            // Nobody starts and is stopped for another at one instant.
            if running.started >= self.now() {
                self.wake_at(self.now() + self.policy.cycle);
                continue;
            }
            let theirs = self.spec(job);
            let tally = self.tally(&theirs, &seats);
            let same_queue = theirs.queue == spec.queue;
            let cause;
            let (mut whole, mut surplus);
            if same_queue {
                cause = if taker_private && !running.guaranteed && theirs.priority >= spec.priority {
                    StopCause::Reclaimed
                } else {
                    StopCause::Preempted
                };
                whole = theirs.priority < spec.priority && !running.firm
                    || taker_private && !running.guaranteed && running.private_start.is_none();
                surplus = theirs.priority <= spec.priority;
            } else {
                let verdict = self.shares.may_reclaim(&taker_of, theirs.queue, &tally);
                let from = self.state().queue(theirs.queue).reclaim_from;
                let allowed = match from {
                    ReclaimFrom::Any => true,
                    ReclaimFrom::LowerPriority => theirs.priority < spec.priority,
                    ReclaimFrom::Never => false,
                };
                cause = StopCause::Reclaimed;
                whole = verdict != Reclaim::No && allowed && !running.guaranteed;
                surplus = verdict != Reclaim::No && allowed;
            }
            whole &= theirs.preemptible;
            let young = running.started + self.state().queue(theirs.queue).reclaim_min_runtime;
            if young > self.now() && (whole || surplus) {
                self.wake_at(young);
                whole = false;
                surplus = false;
            }
            let floor_seats = if surplus && theirs.resizable { at_floor(&theirs, &seats) } else { None };
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
            let key = |p: &Prey| (p.priority, p.price, std::cmp::Reverse(p.started));
            key(a).cmp(&key(b)).then_with(|| self.job(a.job).spec.key.cmp(&self.job(b.job).spec.key))
        });
        prey
    }

    fn is_device(&self, key: crate::queue::QuotaKey) -> bool {
        !matches!(self.state().resources.name(key.resource), "pods" | "cpu" | "memory" | "ephemeral-storage")
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

    fn best_clearing(&mut self, job: JobIdx, prey: &[Prey]) -> Option<Cleared> {
        let spec = self.spec(job);
        let demand = self.demand(job);
        let domains = self.domains_to_clear(&spec, &demand, prey);
        let mut best: Option<(Price, Cleared)> = None;
        for domain in domains {
            let Some(cleared) = self.clear_domain(job, domain, prey) else { continue };
            let price = |v: &Victim| {
                let p = prey.iter().find(|p| p.job == v.job);
                if v.shrunk.is_some() { 0 } else { p.map_or(0, |p| p.price) }
            };
            let highest = |v: &Victim| {
                let p = prey.iter().find(|p| p.job == v.job);
                if v.shrunk.is_some() { i64::MIN } else { p.map_or(i64::MIN, |p| p.priority) }
            };
            let key = (
                cleared.victims.iter().map(highest).max().unwrap_or(i64::MIN),
                cleared.victims.iter().map(price).sum(),
                cleared.victims.len(),
                u8::MAX - self.state().topology().domain(domain).depth.0,
                domain,
            );
            if best.as_ref().is_none_or(|(b, _)| key < *b) {
                best = Some((key, cleared));
            }
        }
        best.map(|(_, cleared)| cleared)
    }

    /// Candidate domains of every level from the narrowest up to the required one that could be large enough when
    /// cleared, narrower ones first.
    fn domains_to_clear(&mut self, spec: &JobSpec, demand: &super::Demand, prey: &[Prey]) -> Vec<DomainIdx> {
        let topology = self.state().topology().clone();
        let wanted: u64 = demand.sizes.iter().map(|s| u64::from(*s)).sum();
        let mut found: Vec<(std::cmp::Reverse<Depth>, DomainIdx)> = Vec::new();
        for &top in &demand.candidates {
            let pool = topology.pool(topology.domain(top).pool);
            for depth in (topology.domain(top).depth.0..=pool.narrowest().0).rev() {
                for domain in topology.domains_at(topology.domain(top).pool, Depth(depth)) {
                    if topology.ancestor_at(domain, topology.domain(top).depth) != Some(top) {
                        continue;
                    }
                    let free = demand.shapes.iter().map(|s| self.ledger.at_most(domain, *s)).max().unwrap_or(0);
                    let range = topology.domain(domain).nodes.clone();
                    let held: usize =
                        prey.iter().map(|p| p.seats.seats.iter().filter(|s| range.contains(&s.node.0)).count()).sum();
                    // A victim's pod may make room for several smaller ones: only empty domains are passed over.
                    if held > 0 && (free + held as u64 > 0) {
                        found.push((std::cmp::Reverse(Depth(depth)), domain));
                    }
                }
            }
        }
        let _ = (wanted, spec);
        found.sort_unstable();
        found.truncate(MOST_DOMAINS);
        found.into_iter().map(|(_, d)| d).collect()
    }

    /// Clears one domain: surplus first, then whole jobs by price, until the taker fits; then spares whom it can.
    fn clear_domain(&mut self, job: JobIdx, domain: DomainIdx, prey: &[Prey]) -> Option<Cleared> {
        let spec = self.spec(job);
        let demand = self.demand(job);
        let range = self.state().topology().domain(domain).nodes.clone();
        let inside = |p: &Prey| p.seats.seats.iter().any(|s| range.contains(&s.node.0));
        let quota_bound = self.quota_allows(job).is_err();
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
        let mut room = self.ledger.space_room(domain, &demand.shapes, start, start + spec.window());
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
            if !self.quota_after(job) {
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
                    Ok(found) if self.quota_after(job) => {
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
        let grace = victims.iter().map(|v| self.spec(v.job).grace).max().unwrap_or(Span::ZERO);
        Some(Cleared { victims, start: self.now() + grace, placement: found.placement })
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
        let private_start = self.job(taker).waiting().and_then(|w| w.private_start).is_some_and(|t| t <= self.now());
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
            (_, Level::Gone) => self.shares.take(spec.queue, &before),
            (Level::Gone, _) => self.shares.give(spec.queue, &after),
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

    fn enough_slots<R: Room>(&self, room: &R, domain: DomainIdx, demand: &super::Demand) -> bool {
        let wanted = |shape: &crate::ids::ShapeIdx| room.pods_in(domain, *shape);
        match &demand.shapes[..] {
            [only] => wanted(only) >= demand.sizes.iter().map(|s| u64::from(*s)).sum(),
            shapes => shapes.iter().all(|s| wanted(s) > 0),
        }
    }

    fn quota_after(&mut self, job: JobIdx) -> bool {
        let spec = self.spec(job);
        let demand = self.demand(job);
        self.shares.limit_left(spec.queue, &demand.plain).is_ok()
            && (spec.preemptible || self.shares.within_guarantee(spec.queue, &demand.plain).is_ok())
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
