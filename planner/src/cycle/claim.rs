//! A claim without a date (decision 5): where no start can be computed, one domain's free room goes to no lower rank.

use super::{Cycle, Demand};
use crate::ids::{DomainIdx, JobIdx, QueueIdx, ShapeIdx};
use crate::job::{JobSpec, Placement, Seat};
use crate::ledger::HoldKind;
use crate::place::Ask;
use crate::plan::Claim;
use crate::resources::Amounts;
use crate::room::FixedRoom;
use crate::time::Time;

impl Cycle<'_> {
    /// A claim without a date (decision 5): the free room of one domain goes to no lower-ranked job.
    pub(super) fn claim(&mut self, job: JobIdx, queue: QueueIdx) -> bool {
        let spec = self.spec(job);
        let demand = self.demand(job);
        let Some(domain) = self.claimed_domain(&spec, &demand) else { return false };
        let placement = self.part_of_floor(job, domain);
        if placement.is_empty() {
            return false;
        }
        self.ledger.hold(job, &spec, &placement, HoldKind::Reserved, (self.now(), Time::NEVER), Time::NEVER);
        self.plan.claims.push(Claim { queue, job, domain });
        true
    }

    /// Claims are made anew by everybody who is looked at again.
    pub(super) fn forget_claims(&mut self) {
        for Claim { job, domain, .. } in std::mem::take(&mut self.plan.claims) {
            let nodes = self.state().topology().domain(domain).node_range();
            let seats = nodes.map(|node| Seat { role: 0, index: 0, node }).collect();
            self.ledger.release(job, &Placement { seats }, HoldKind::Reserved);
        }
    }

    /// The candidate in which jobs without a limit hold least of what the job wants, and in which it can come true.
    fn claimed_domain(&mut self, spec: &JobSpec, demand: &Demand) -> Option<DomainIdx> {
        let state = self.state();
        let wanted: u64 = demand.sizes.iter().map(|s| u64::from(*s)).sum();
        let mut best: Option<(u64, DomainIdx)> = None;
        for &domain in &demand.candidates {
            let (mut room, mut unlimited) = (0, 0);
            for node in state.topology().domain(domain).node_range() {
                let there = state.node(node);
                if there.closed || there.lost {
                    continue;
                }
                let mut empty = there.allocatable.clone();
                empty.add(&there.foreign, -1);
                let mut kept = empty.clone();
                for hold in self.ledger.holds(node).filter(|h| h.to.is_never()) {
                    kept.add(&state.shapes.get(hold.shape).requests, -i64::from(hold.count));
                }
                let most = |free: &[i64]| {
                    let fit = |s: &ShapeIdx| {
                        let shape = state.shapes.get(*s);
                        if shape.eligible.contains(node) { shape.requests.times_in(free) } else { 0 }
                    };
                    u64::from(demand.shapes.iter().map(fit).max().unwrap_or(0))
                };
                room += most(&empty.0);
                unlimited += most(&empty.0) - most(&kept.0).min(most(&empty.0));
            }
            // Without jobs that never end there is a date, or nothing will ever come free.
            if unlimited > 0
                && room >= wanted
                && best.is_none_or(|(least, _)| unlimited < least)
                && self.fits_emptied(spec, demand, domain)
            {
                best = Some((unlimited, domain));
            }
        }
        best.map(|(_, domain)| domain)
    }

    /// Whether a job would fit a domain's usable nodes if all our jobs were gone; where it would not, foreign pods and
    /// cordons are in the way, and a claim would hold room for nothing.
    fn fits_emptied(&self, spec: &JobSpec, demand: &Demand, domain: DomainIdx) -> bool {
        let state = self.state();
        let range = state.topology().domain(domain).nodes.clone();
        let empty = (0u32..).zip(state.nodes()).map(|(row, node)| {
            let mut free = node.allocatable.clone();
            free.add(&node.foreign, -1);
            if node.closed || node.lost || !range.contains(&row) { Amounts::default() } else { free }
        });
        let room = FixedRoom::new(state.topology(), &state.shapes, empty.collect());
        let ask = Ask {
            spec,
            sizes: &demand.sizes,
            start: self.now(),
            predicted_end: self.now() + spec.predicted(),
            most_domains: None,
            search_limit: self.policy.search_limit,
            within: Some(domain),
        };
        crate::place::place(&room, &ask).is_ok()
    }

    /// As much of a job's floor as a domain has free now.
    fn part_of_floor(&mut self, job: JobIdx, domain: DomainIdx) -> Placement {
        let spec = self.spec(job);
        let nodes: Vec<_> = self.state().topology().domain(domain).node_range().collect();
        let mut seats = Vec::new();
        let mut left: Vec<u32> = spec.roles.iter().map(|r| r.floor).collect();
        for node in nodes {
            if self.state().node(node).closed || self.state().node(node).lost {
                continue;
            }
            let mut free = self.ledger.free_during(node, self.now(), Time::NEVER);
            for (row, role) in spec.roles.iter().enumerate() {
                let shape = self.state().shapes.get(role.shape);
                if !shape.eligible.contains(node) {
                    continue;
                }
                let take = shape.requests.times_in(&free).min(left[row]);
                for _ in 0..take {
                    let index = role.floor - left[row];
                    seats.push(Seat { role: u8::try_from(row).expect("at most 16 roles"), index, node });
                    left[row] -= 1;
                }
                shape.requests.iter().for_each(|(r, a)| free[r.row()] -= a * i64::from(take));
            }
        }
        seats.sort_unstable();
        Placement { seats }
    }
}
