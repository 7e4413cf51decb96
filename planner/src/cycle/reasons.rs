//! Why a job waits: the binding constraint, the best few domains, nodes passed over by cause.

use super::Cycle;
use super::start::Not;
use crate::ids::{DomainIdx, JobIdx, NodeIdx};
use crate::job::Reservation;
use crate::ledger::HoldKind;
use crate::reason::{Code, DomainReport, NodeFilters, Pending, Reason};
use crate::share::{LimitKind, OverLimit};
use crate::time::Time;

/// Rows of the per-domain table.
const MOST_DOMAINS: usize = 3;

impl Cycle<'_> {
    /// Notes in the plan why a job waits.
    pub(super) fn explain(&mut self, job: JobIdx, position: u32, reason: Reason, start: Option<Time>) {
        if let Some(until) = reason.until.filter(|_| reason.code == Code::RestartBackoff) {
            self.wake_at(until);
        }
        if self.policy.explain {
            let start = start.or_else(|| self.promised(job).map(|r| r.start));
            self.plan.pending.push(Pending { job, position, reason, start });
        }
    }

    pub(super) fn over_limit(&self, over: &OverLimit) -> Reason {
        let queue = self.state().queue(over.queue).name.clone();
        if over.kind == LimitKind::MaxRunningJobs {
            let mut reason = Reason::of(Code::MaxRunningJobs, queue);
            reason.available = i64::from(self.state().queue(over.queue).max_running_jobs.unwrap_or(0));
            return reason;
        }
        let mut reason = Reason::of(Code::QueueLimit, queue);
        reason.resource = self.state().resources.name(over.key.resource).into();
        reason.wanted = over.wanted;
        reason.available = over.left;
        reason
    }

    /// Why a job with a promise does not start before it.
    pub(super) fn why_promised(&mut self, job: JobIdx, promised: &Reservation) -> Reason {
        if !self.policy.explain {
            return Reason::of(Code::NoCapacity, "");
        }
        if promised.clearing {
            let mut reason = Reason::of(Code::ClearingRoom, self.leaving_for(job));
            reason.until = Some(promised.start);
            return reason;
        }
        let mut reason = match self.quota_allows_again(job, promised) {
            Err(reason) => reason,
            Ok(()) if self.is_patience_alone(job, promised) => {
                let level = self.spec(job).locality.preferred.clone().unwrap_or_else(|| "".into());
                Reason::of(Code::WaitingForPatience, level)
            }
            Ok(()) => self.why_no_room_but_its_own(job, promised),
        };
        reason.until = Some(promised.start);
        reason
    }

    /// Whether the job could start now, but for the preferred level that it waits for. Its own promise is set aside to see.
    fn is_patience_alone(&mut self, job: JobIdx, promised: &Reservation) -> bool {
        let patient = self.patience(job).is_some_and(|(_, until)| promised.start <= until);
        if !patient || self.promise(job).as_ref() != Some(promised) {
            return false;
        }
        self.take_out(job, promised);
        let fits = self.place_now(job, None).is_ok();
        self.put_in(job, promised);
        fits
    }

    fn quota_allows_again(&mut self, job: JobIdx, promised: &Reservation) -> Result<(), Reason> {
        let spec = self.spec(job);
        let tally = self.tally(&spec, &promised.placement);
        let state = self.state();
        self.quota.remove(state, spec.queue, promised.start, promised.end, &tally);
        let answer = self.quota_allows(job);
        self.quota.promise(state, &spec, promised.start, promised.end, &tally);
        answer
    }

    fn leaving_for(&self, job: JobIdx) -> String {
        let leaving = self
            .state()
            .jobs()
            .filter(|(_, j)| matches!(&j.phase, crate::job::Phase::Leaving(l) if l.taker == Some(job)));
        leaving.map(|(_, j)| j.spec.key.to_string()).collect::<Vec<_>>().join(", ")
    }

    /// Why a job without a promise does not start now.
    pub(super) fn why_not(&mut self, job: JobIdx, refused: &Not) -> Reason {
        match refused {
            Not::Quota(reason) => reason.clone(),
            Not::Impatient => Reason::of(Code::WaitingForPatience, ""),
            Not::Space { .. } if !self.policy.explain => Reason::of(Code::NoCapacity, ""),
            Not::Space { limit, .. } => self.why_no_room(job, *limit).0,
        }
    }

    /// What a job's own promise holds is not held by others: of its seats, those whose nodes have room now are free to it.
    fn why_no_room_but_its_own(&mut self, job: JobIdx, promised: &Reservation) -> Reason {
        let (mut reason, rows) = self.why_no_room(job, false);
        let demand = self.demand(job);
        for (report, domain) in reason.domains.iter_mut().zip(rows) {
            // A domain's nodes are one range of rows.
            let mut nodes = self.state().topology().domain(domain).node_range();
            let Some(first) = nodes.next() else { continue };
            let last = nodes.next_back().unwrap_or(first);
            let seats = promised.placement.seats.iter().filter(|s| (first..=last).contains(&s.node));
            let open = seats.filter(|s| demand.shapes.iter().any(|shape| self.ledger.slots(s.node, *shape) > 0));
            let own = u32::try_from(open.count()).unwrap_or(u32::MAX).min(report.held_by_plan);
            report.held_by_plan -= own;
            report.free += own;
            report.short = report.short.saturating_sub(own);
        }
        reason.available = reason.domains.first().map_or(0, |d| i64::from(d.free));
        reason
    }

    /// The same for all jobs of a class, with the domains of its table.
    fn why_no_room(&mut self, job: JobIdx, stopped_at_limit: bool) -> (Reason, Vec<DomainIdx>) {
        let key = (self.job(job).class, stopped_at_limit);
        if let Some(known) = self.no_room.get(&key) {
            return known.clone();
        }
        let reason = self.find_why_no_room(job, stopped_at_limit);
        self.no_room.insert(key, reason.clone());
        reason
    }

    fn find_why_no_room(&mut self, job: JobIdx, stopped_at_limit: bool) -> (Reason, Vec<DomainIdx>) {
        let spec = self.spec(job);
        let demand = self.demand(job);
        let floor = spec.floor();
        let filters = self.filters(job);
        let (domains, rows) = self.domain_table(job);
        let best = domains.first().map_or(0, |d| d.free + d.held_by_plan);
        let state = self.state();
        let topology = state.topology();
        let total: u64 = topology
            .pools()
            .iter()
            .map(|p| demand.shapes.iter().map(|s| self.ledger.at_most(p.root, *s)).max().unwrap_or(0))
            .max()
            .unwrap_or(0);
        let nodes = u32::try_from(topology.node_count()).unwrap_or(u32::MAX);
        let level = spec.locality.required.clone();
        let (code, object) = if stopped_at_limit {
            (Code::SearchLimit, "".into())
        } else if filters.not_eligible + filters.unusable == nodes {
            (Code::NoUsableNode, "".into())
        } else if best >= floor {
            let holder = self.holder_before_end(job);
            match holder {
                Some(key) => (Code::HeldByReservation, key),
                None => (Code::NoCapacity, "".into()),
            }
        } else if let Some(level) = level.filter(|_| total >= u64::from(floor)) {
            if filters.unknown_path > 0 && topology.pools().iter().all(|p| topology.domain(p.root).children.is_empty())
            {
                (Code::TopologyUnknown, level)
            } else {
                (Code::NoDomainFits, level)
            }
        } else {
            (Code::NoCapacity, "".into())
        };
        let reason = Reason {
            wanted: i64::from(floor),
            available: i64::from(domains.first().map_or(0, |d| d.free)),
            domains,
            filters,
            ..Reason::of(code, object)
        };
        (reason, rows)
    }

    /// The first job whose reservation, on a node that this one could have, begins before this one would end.
    fn holder_before_end(&mut self, job: JobIdx) -> Option<std::sync::Arc<str>> {
        let end = self.now() + self.spec(job).window();
        let demand = self.demand(job);
        let mut holders: Vec<(Time, JobIdx)> = Vec::new();
        for node in (0..self.state().topology().node_count()).map(NodeIdx::of) {
            let state = self.state();
            if !demand.shapes.iter().any(|s| state.shapes.get(*s).eligible.contains(node)) {
                continue;
            }
            let holds = self.ledger.holds(node);
            holders.extend(
                holds.filter(|h| h.kind == HoldKind::Reserved && h.job != job && h.from < end).map(|h| (h.from, h.job)),
            );
        }
        let first = holders.into_iter().min()?;
        Some(self.job(first.1).spec.key.clone())
    }

    fn filters(&mut self, job: JobIdx) -> NodeFilters {
        let spec = self.spec(job);
        let demand = self.demand(job);
        let state = self.state();
        let topology = state.topology();
        let mut filters = NodeFilters::default();
        for row in 0..topology.node_count() {
            let node = NodeIdx::of(row);
            let there = state.node(node);
            let pool = topology.pool(topology.pool_of(node));
            let known = spec.locality.required.as_ref().is_none_or(|level| {
                pool.depth_of(level)
                    .is_none_or(|depth| depth == pool.node_depth() || topology.domain_at(node, depth).is_some())
            });
            let eligible = demand.shapes.iter().any(|s| state.shapes.get(*s).eligible.contains(node));
            if there.closed || there.lost {
                filters.unusable += 1;
            } else if !eligible {
                filters.not_eligible += 1;
            } else if !known {
                filters.unknown_path += 1;
            } else {
                let full = demand.shapes.iter().all(|s| self.ledger.slots(node, *s) == 0);
                filters.full += u32::from(full);
            }
        }
        filters
    }

    /// The candidates with most room, free or promised away.
    fn domain_table(&mut self, job: JobIdx) -> (Vec<DomainReport>, Vec<DomainIdx>) {
        let spec = self.spec(job);
        let demand = self.demand(job);
        let floor = spec.floor();
        let most = |counts: Vec<u64>| u32::try_from(counts.into_iter().max().unwrap_or(0)).unwrap_or(u32::MAX);
        let mut rows: Vec<(u32, DomainIdx)> = demand
            .candidates
            .iter()
            .map(|&domain| (most(demand.shapes.iter().map(|s| self.ledger.at_most(domain, *s)).collect()), domain))
            .collect();
        rows.sort_by_key(|(slots, domain)| (std::cmp::Reverse(*slots), *domain));
        rows.truncate(MOST_DOMAINS);
        let end = self.now() + spec.window();
        let state = self.state();
        let domains = rows.iter().map(|(_, domain)| *domain).collect();
        let reports = rows
            .into_iter()
            .map(|(slots, domain)| {
                let there = state.topology().domain(domain);
                let free = {
                    let room = self.ledger.now_room(&demand.shapes, end);
                    most(demand.shapes.iter().map(|s| crate::room::Room::pods_in(&room, domain, *s)).collect())
                };
                let degraded = there
                    .node_range()
                    .filter(|n| state.node(*n).closed || state.node(*n).lost)
                    .map(|n| {
                        let fit = |s: &crate::ids::ShapeIdx| {
                            let shape = state.shapes.get(*s);
                            if shape.eligible.contains(n) {
                                shape.requests.times_in(&state.node(n).allocatable.0)
                            } else {
                                0
                            }
                        };
                        demand.shapes.iter().map(fit).max().unwrap_or(0)
                    })
                    .sum();
                let path = if there.path.is_empty() { "cluster".into() } else { there.path.clone() };
                DomainReport {
                    domain: path,
                    free,
                    held_by_plan: slots.saturating_sub(free),
                    degraded,
                    short: floor.saturating_sub(free),
                }
            })
            .collect();
        (reports, domains)
    }
}
