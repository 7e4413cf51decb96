//! Standing reservations: does each still hold? If not, other nodes in its domain at the same time; else a later start
//! or none, with the cause written down (decision 3).

use super::Cycle;
use crate::ids::{DomainIdx, JobIdx, NodeIdx};
use crate::job::{Job, Phase, Reservation};
use crate::ledger::{HoldKind, Ledger};
use crate::plan::Cause;
use crate::queue::QueueState;
use crate::time::Time;
use crate::topology::Depth;
use std::sync::Arc;

impl Cycle<'_> {
    /// Goes through all reservations in the order of their starts.
    pub(super) fn keep_promises(&mut self) {
        let state = self.state();
        let mut standing: Vec<(Time, JobIdx)> = state
            .reserved()
            .iter()
            .filter_map(|&job| Some((state.job(job)?.waiting()?.reservation.as_ref()?.start, job)))
            .collect();
        standing.sort_by(|a, b| a.0.cmp(&b.0).then_with(|| self.rank(a.1).cmp(&self.rank(b.1))));
        let mut broken: Vec<(JobIdx, Reservation, Cause)> = Vec::new();
        for &(_, job) in &standing {
            let Some(reservation) = self.promise(job) else { continue };
            if let Some(cause) = self.dropped(job) {
                self.take_out(job, &reservation);
                self.move_to(job, &reservation, None, Some(cause), Vec::new());
            } else if let Some(cause) = self.broken(job, &reservation) {
                self.take_out(job, &reservation);
                broken.push((job, reservation, cause));
            } else {
                self.wake_at(reservation.start);
                if reservation.clearing {
                    self.wake_at(reservation.start + self.policy.cycle);
                }
            }
        }
        for (job, reservation, cause) in broken {
            self.mend(job, &reservation, cause);
        }
        let now = self.now();
        for (_, job) in standing.into_iter().take_while(|(start, _)| *start <= now) {
            self.start_if_due(job);
        }
    }

    /// Who is due and finds its very seats free starts before anybody else is looked at: what is cleared or given for
    /// others in this plan must not be in its way.
    fn start_if_due(&mut self, job: JobIdx) {
        let Some(reservation) = self.promise(job).filter(|r| r.start <= self.now()) else { return };
        if self.outside_hold(job).is_some() || self.fates.contains_key(&job) {
            return;
        }
        self.take_out(job, &reservation);
        match self.same_seats(job, &reservation) {
            Some(placement) => {
                self.reservations = self.reservations.saturating_sub(1);
                self.start(job, placement);
            }
            None => self.put_in(job, &reservation),
        }
    }

    /// Whether something outside the plan ends the promise altogether.
    fn dropped(&self, job: JobIdx) -> Option<Cause> {
        let there = self.job(job);
        let closed = self.state().lineage(there.spec.queue).find(|q| self.state().queue(*q).state != QueueState::Open);
        if let Some(queue) = closed {
            return Some(Cause::QueueEdited(self.state().queue(queue).name.clone()));
        }
        let hold = there.waiting()?.hold.as_ref().filter(|h| h.until.is_none_or(|until| until > self.now()))?;
        Some(Cause::StartRefused(hold.detail.clone()))
    }

    /// Why a reservation cannot stand as it is.
    fn broken(&mut self, job: JobIdx, reservation: &Reservation) -> Option<Cause> {
        let spec = self.spec(job);
        let topology = self.state().topology().clone();
        let name = |node: NodeIdx| topology.node_name(node).clone();
        let from = reservation.start.max(self.now());
        let end = if reservation.start < from { from + spec.window() } else { reservation.end };
        // Victims may take until the end of the cycle after their time to be gone; only then it is an overrun.
        let leaving = reservation.clearing && self.now() < reservation.start + self.policy.cycle;
        for (node, role, _) in reservation.placement.by_node() {
            let state = self.state().node(node);
            if state.lost {
                return Some(Cause::NodeLost(name(node)));
            }
            let shape = self.state().shapes.get(spec.roles[usize::from(role)].shape);
            if state.closed || !shape.eligible.contains(node) {
                return Some(Cause::NodeUnusable(name(node)));
            }
            if state.unavailable.iter().any(|(start, stop)| *start < end && from < *stop) {
                return Some(Cause::Maintenance(name(node)));
            }
            // Their pods may be on the node for so long; nobody else's excuse anything.
            let going: Vec<Time> =
                self.ledger.holds(node).filter(|h| h.kind == HoldKind::Leaving).map(|h| h.to).collect();
            let in_time = |until: &Time| self.snapshot.now < *until + self.policy.cycle;
            let leaving = leaving && !going.is_empty() && going.iter().all(in_time);
            if !leaving && self.ledger.free_during(node, from, end).iter().any(|free| *free < 0) {
                return Some(self.who_took(job, node, from));
            }
        }
        if let Some(node) = self.out_of_domain(job, reservation) {
            return Some(Cause::TopologyChanged(name(node)));
        }
        if leaving && self.victims_are_going(job) { None } else { self.quota_broken(job, reservation, from) }
    }

    /// Whether somebody who makes room for a job is still there, and not over the time to go.
    fn victims_are_going(&self, taker: JobIdx) -> bool {
        let in_time = |until: Time| self.now() < until + self.policy.cycle;
        let goes = |job: &Job| {
            let leaves = matches!(&job.phase, Phase::Leaving(l) if l.taker == Some(taker) && in_time(l.gone_by));
            leaves || job.shedding.iter().any(|(_, until)| in_time(*until))
        };
        self.state().holding().iter().filter_map(|row| self.state().job(*row)).any(goes)
    }

    fn quota_broken(&mut self, job: JobIdx, reservation: &Reservation, from: Time) -> Option<Cause> {
        let spec = self.spec(job);
        let tally = self.tally(&spec, &reservation.placement);
        let state = self.state();
        let window = reservation.counts_during(self.now(), self.policy.cycle);
        self.quota.remove(state, spec.queue, window.0, window.1, &tally);
        let fits = self.quota.fits(state, &spec, &tally, from);
        self.quota.promise(state, &spec, window.0, window.1, &tally);
        // A limit that others of the queue fill for longer than planned is their overrun; else somebody edited it.
        if fits {
            return None;
        }
        let overdue = state.holding().iter().find(|j| {
            state.job(**j).is_some_and(|other| {
                other.spec.queue == spec.queue && other.running().is_some_and(|r| r.ends <= self.snapshot.now)
            })
        });
        Some(match overdue {
            Some(&other) => Cause::Overrun(self.job(other).spec.key.clone()),
            None => Cause::QueueEdited(state.queue(spec.queue).name.clone()),
        })
    }

    /// Whose fault it is that a node has less room than was promised.
    fn who_took(&self, job: JobIdx, node: NodeIdx, from: Time) -> Cause {
        let now = self.now();
        let overdue = self
            .ledger
            .holds(node)
            .filter(|h| h.job != job && h.kind != HoldKind::Reserved)
            .filter(|h| h.to <= now || (h.to <= from && Ledger::assumed_end(h.to, now, self.policy.cycle) > from))
            .min_by_key(|h| (h.to, h.job));
        if let Some(hold) = overdue {
            return Cause::Overrun(self.job(hold.job).spec.key.clone());
        }
        let name: Arc<str> = self.state().topology().node_name(node).clone();
        if self.state().node(node).foreign.iter().next().is_some() {
            return Cause::ForeignPod(name);
        }
        Cause::NodeUnusable(name)
    }

    /// A node whose labels have moved it out of the promised domain.
    fn out_of_domain(&self, job: JobIdx, reservation: &Reservation) -> Option<NodeIdx> {
        let spec = self.spec(job);
        let topology = self.state().topology();
        let nodes = reservation.placement.nodes();
        let (&first, rest) = nodes.split_first()?;
        let pool = topology.pool(topology.pool_of(first));
        if let Some(level) = &spec.locality.required
            && !rest.is_empty()
        {
            let depth = pool.depth_of(level)?;
            let home = topology.domain_at(first, depth);
            if home.is_none() {
                return Some(first);
            }
            if let Some(&stray) = rest.iter().find(|n| topology.domain_at(**n, depth) != home) {
                return Some(stray);
            }
        }
        for (row, role) in spec.roles.iter().enumerate() {
            let Some(slice) = &role.slice else { continue };
            let Some(depth) = pool.depth_of(&slice.within) else { continue };
            let seats: Vec<_> = reservation.placement.seats.iter().filter(|s| usize::from(s.role) == row).collect();
            for chunk in seats.chunks(slice.size as usize) {
                let home = topology.domain_at(chunk[0].node, depth);
                let stray = chunk.iter().find(|s| s.node != chunk[0].node && topology.domain_at(s.node, depth) != home);
                if let Some(seat) = stray {
                    return Some(seat.node);
                }
            }
        }
        None
    }

    /// Other nodes in the promised domain at the same time, else the earliest start there is.
    fn mend(&mut self, job: JobIdx, reservation: &Reservation, cause: Cause) {
        let spec = self.spec(job);
        let demand = self.demand(job);
        let at = reservation.start.max(self.now());
        if at == reservation.start
            && (at > self.now() || self.quota_allows(job).is_ok())
            && let Some(domain) = self.promised_domain(job, reservation)
            && let Some(found) = self.place_at(&spec, &demand, domain, at, None)
            // Other nodes do not help where a limit is what broke it.
            && self.quota.fits(self.state(), &spec, &self.tally(&spec, &found.placement), at)
        {
            if at > self.now() {
                self.move_to(job, reservation, Some((at, found.placement)), None, Vec::new());
            } else {
                self.reservations = self.reservations.saturating_sub(1);
                self.start(job, found.placement);
            }
            return;
        }
        self.remake(job, reservation, cause);
    }

    /// A promise that cannot stand (it is out of the ledger) is made anew for the earliest start there is. Where that is
    /// now, it is given up with its cause, and the job starts.
    pub(super) fn remake(&mut self, job: JobIdx, reservation: &Reservation, cause: Cause) {
        let now = self.now();
        let mut next = self.earliest(job, now, None);
        if next.as_ref().is_some_and(|(start, _)| *start <= now) {
            if let Ok(placement) = self.place_now(job, None) {
                self.move_to(job, reservation, None, Some(cause), Vec::new());
                self.start(job, placement);
                self.plan.pending.retain(|p| p.job != job);
                return;
            }
            // What the room waits for is there for a cycle at least.
            next = self.earliest(job, now + self.policy.cycle, None);
        }
        self.move_to(job, reservation, next, Some(cause), Vec::new());
    }

    /// The domain that a promise is about: of its preferred level if it has that, of the required one, else the pool.
    fn promised_domain(&self, job: JobIdx, reservation: &Reservation) -> Option<DomainIdx> {
        let topology = self.state().topology();
        let nodes = reservation.placement.nodes();
        let &first = nodes.first()?;
        let pool = topology.pool(topology.pool_of(first));
        let preferred = self.job(job).spec.locality.preferred.as_ref().and_then(|level| pool.depth_of(level));
        if let Some(home) = preferred.and_then(|depth| topology.domain_at(first, depth))
            && nodes.iter().all(|n| Some(home) == preferred.and_then(|depth| topology.domain_at(*n, depth)))
        {
            return Some(home);
        }
        let depth = match &self.spec(job).locality.required {
            Some(level) => pool.depth_of(level)?,
            None => Depth::ROOT,
        };
        topology.domain_at(first, depth.min(pool.narrowest()))
    }
}
