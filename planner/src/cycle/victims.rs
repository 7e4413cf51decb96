//! Who makes room for whom: candidate domains priced by the work lost, the cheapest sufficient one, a minimal set.

use super::prey::Prey;
use super::serve::Outcome;
use super::{Cycle, Demand, Fate};
use crate::ids::{DomainIdx, JobIdx, NodeIdx, QueueIdx};
use crate::job::{JobSpec, Placement, Reservation};
use crate::plan::{Action, StopCause};
use crate::reason::{Code, Reason};
use crate::resources::Amounts;
use crate::state::Tally;
use crate::time::{Span, Time};
use crate::topology::Depth;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

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

impl Cycle<'_> {
    /// A promised job that could start sooner by victims whose protection has ended.
    pub(super) fn clear_room_instead(&mut self, job: JobIdx, promised: &Reservation) -> Option<Outcome> {
        let patient = self.patience(job).is_some_and(|(_, until)| promised.start <= until);
        if !self.policy.preemption || promised.clearing || patient {
            return None;
        }
        self.clear_room(job, Some(promised))
    }

    /// Stops victims for a job if that is allowed, sufficient and better than waiting.
    pub(super) fn clear_room(&mut self, job: JobIdx, promised: Option<&Reservation>) -> Option<Outcome> {
        let cleared = self.choose_victims(job, promised)?;
        if let Some(reservation) = promised {
            self.take_out(job, reservation);
        }
        let names = cleared.victims.iter().map(|v| self.job(v.job).spec.key.to_string()).collect::<Vec<_>>().join(", ");
        let victims: Vec<JobIdx> = cleared.victims.iter().map(|v| v.job).collect();
        for victim in cleared.victims {
            match victim.shrunk {
                Some(placement) => self.resize(victim.job, placement, Some(job)),
                None => self.stop(victim.job, victim.cause, Some(job)),
            }
        }
        if cleared.start <= self.now() && self.starts_beside(job, &cleared.placement) {
            // Those who go were in its way later on, not now.
            self.reservations = self.reservations.saturating_sub(u32::from(promised.is_some()));
            self.start(job, cleared.placement);
            return Some(Outcome::Started);
        }
        if let Some(reservation) = promised {
            // The old promise is pulled forward to the cleared room.
            self.move_to(job, reservation, Some((cleared.start, cleared.placement)), None, victims);
        } else {
            self.reserve(job, cleared.start, cleared.placement, victims);
        }
        let mut reason = Reason::of(Code::ClearingRoom, names);
        reason.until = Some(cleared.start);
        Some(Outcome::Blocked(reason))
    }

    /// Whether a job fits beside those who were just told to go.
    fn starts_beside(&mut self, job: JobIdx, placement: &Placement) -> bool {
        let spec = self.spec(job);
        self.quota_allows(job).is_ok() && self.seats_are_free(&spec, placement)
    }

    /// The cheapest sufficient set of victims for a job, if there is one and waiting is not better.
    pub(super) fn choose_victims(&mut self, job: JobIdx, promised: Option<&Reservation>) -> Option<Cleared> {
        // What a shorter job could not get, a longer one cannot either.
        let (key, window) = (self.preyless_key(job), self.job(job).spec.window());
        if self.preyless.get(&key).is_some_and(|shortest| window >= *shortest) {
            return None;
        }
        // Room that is being cleared is as good as held by whom it is cleared for.
        let coming = self.coming_beside(job);
        coming.iter().for_each(|(queue, tally)| self.shares.grow(*queue, tally));
        let choice = self.choose_among(job, promised);
        self.sought |= choice.is_none();
        coming.iter().for_each(|(queue, tally)| self.shares.shrink(*queue, tally));
        choice
    }

    fn preyless_key(&self, job: JobIdx) -> (QueueIdx, u32, i64, bool) {
        let there = self.job(job);
        (there.spec.queue, there.class, there.spec.priority, self.has_private_start(job))
    }

    /// What other jobs will hold once the room that is being cleared for them is free, by queue.
    fn coming_beside(&self, job: JobIdx) -> Vec<(QueueIdx, Tally)> {
        let promised = self.fates.iter().filter(|(_, f)| matches!(f, Fate::Promised(Some(_)))).map(|(row, _)| *row);
        let is_clearing = |row: &JobIdx| *row != job && self.promised(*row).is_some_and(|r| r.clearing);
        let standing = self.state().reserved().iter().copied();
        let rows: BTreeSet<JobIdx> = standing.chain(promised).filter(is_clearing).collect();
        let clearing = rows.into_iter().filter_map(|row| {
            let reservation = self.promised(row)?;
            let spec = self.spec(row);
            Some((spec.queue, self.tally(&spec, &reservation.placement)))
        });
        clearing.collect()
    }

    fn choose_among(&mut self, job: JobIdx, promised: Option<&Reservation>) -> Option<Cleared> {
        let (key, window) = (self.preyless_key(job), self.job(job).spec.window());
        let prey = self.prey_of(job);
        if prey.is_empty() {
            self.preyless.insert(key, window);
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
            self.preyless.insert(key, window);
            return None;
        };
        if self.better_to_wait(&cleared, &prey, wait) || self.spares_an_earlier_one(job, &cleared, &prey) {
            return None;
        }
        Some(cleared)
    }

    /// Whether what this clearing leaves over would have spared a victim that this plan has chosen for somebody else.
    /// Then it waits for the next plan, which sees the room of those who go: nobody is stopped in vain.
    fn spares_an_earlier_one(&mut self, job: JobIdx, cleared: &Cleared, prey: &[Prey]) -> bool {
        let earlier: Vec<JobIdx> = self
            .plan
            .actions
            .iter()
            .filter_map(|action| match action {
                Action::Stop { job, by: Some(_), .. } => Some(*job),
                _ => None,
            })
            .collect();
        if earlier.is_empty() {
            return false;
        }
        let gained = self.gained_by(job, cleared, prey);
        earlier.into_iter().any(|victim| self.would_fit_again(victim, &gained))
    }

    /// What a clearing frees on each node beyond what its taker takes there.
    fn gained_by(&self, job: JobIdx, cleared: &Cleared, prey: &[Prey]) -> BTreeMap<NodeIdx, Amounts> {
        let mut gained: BTreeMap<NodeIdx, Amounts> = BTreeMap::new();
        let mut count = |spec: &JobSpec, placement: &Placement, times: i64| {
            for (node, role, pods) in placement.by_node() {
                let requests = &self.state().shapes.get(spec.roles[usize::from(role)].shape).requests;
                gained.entry(node).or_default().add(requests, times * i64::from(pods));
            }
        };
        count(&self.spec(job), &cleared.placement, -1);
        for victim in &cleared.victims {
            if let Some(p) = prey.iter().find(|p| p.job == victim.job) {
                count(&self.spec(victim.job), &p.seats, 1);
                if let Some(kept) = &victim.shrunk {
                    count(&self.spec(victim.job), kept, -1);
                }
            }
        }
        gained
    }

    /// Whether a victim of this plan could run on beside everything else if its nodes had so much more.
    fn would_fit_again(&mut self, victim: JobIdx, gained: &BTreeMap<NodeIdx, Amounts>) -> bool {
        let there = self.job(victim);
        let Some(running) = there.running() else { return false };
        let (spec, ends, placement) = (there.spec.clone(), running.ends, &running.placement);
        let from = self.now() + spec.grace + self.policy.cycle;
        let (until, mut helped) = (ends.max(from + Span(1)), false);
        let mut fits = true;
        for (node, role, pods) in placement.by_node() {
            let mut free = Amounts(self.ledger.free_during(node, from, until));
            if let Some(more) = gained.get(&node) {
                free.add(more, 1);
                helped = true;
            }
            let requests = &self.state().shapes.get(spec.roles[usize::from(role)].shape).requests;
            fits &= requests.times_in(&free.0) >= pods;
        }
        helped && fits
    }

    /// Whether every limit holds over the whole window once the victims are gone, promises of others included.
    fn limits_allow(&mut self, job: JobIdx, cleared: &Cleared, prey: &[Prey]) -> bool {
        let state = self.state();
        let mut given: Vec<(QueueIdx, Time, Tally, Tally)> = Vec::new();
        for victim in &cleared.victims {
            let Some(p) = prey.iter().find(|p| p.job == victim.job) else { continue };
            let spec = self.spec(victim.job);
            let kept = victim.shrunk.as_ref().map(|s| self.tally(&spec, s)).unwrap_or_default();
            given.push((spec.queue, self.held_until(victim.job), self.tally(&spec, &p.seats), kept));
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
            && (start.since(now) <= self.policy.worth_waiting.max(grace) || start <= cleared.start)
        {
            return true;
        }
        let soon = now + self.policy.wait_instead_of_kill;
        let ends = |v: &Victim| prey.iter().find(|p| p.job == v.job).map_or(Time::NEVER, |p| p.ends);
        wait.is_some() && cleared.victims.iter().all(|v| v.shrunk.is_none() && ends(v) <= soon)
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
    fn domains_to_clear(&mut self, spec: &JobSpec, demand: &Demand, prey: &[Prey]) -> Vec<DomainIdx> {
        let topology = self.state().topology().clone();
        let wanted: u64 = demand.sizes.iter().map(|s| u64::from(*s)).sum();
        let mut found: Vec<(Reverse<Depth>, DomainIdx)> = Vec::new();
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
                        found.push((Reverse(Depth(depth)), domain));
                    }
                }
            }
        }
        let _ = (wanted, spec);
        found.sort_unstable();
        found.truncate(MOST_DOMAINS);
        found.into_iter().map(|(_, d)| d).collect()
    }
}
