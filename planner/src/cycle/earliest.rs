//! The earliest start of a job over all domains that satisfy it, by the plan as it stands.
//!
//! Per domain, slot counts over time give the moments at which the floor might fit (a necessary condition); a moment is
//! tried exactly only when it is the next one over all domains. Nodes that have no room at all before a moment are not
//! looked at: on a full cluster those are nearly all.

use super::{Cycle, Demand};
use crate::ids::{DomainIdx, JobIdx, NodeIdx, ShapeIdx};
use crate::job::{JobSpec, Placement};
use crate::ledger::Ledger;
use crate::place::{Ask, Found};
use crate::time::{Span, Time};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Exact tries of one search; a job that needs more keeps waiting without a date.
const MOST_TRIES: u32 = 400;
/// Nodes looked at first, beside one for each pod; eight times as many each time they are not enough.
const NODES_AT_FIRST: usize = 64;

/// What a search up to a moment found.
enum Searched {
    /// The earliest start.
    Found(Time, Found),
    /// Nothing so far.
    NotYet,
    /// It stopped at its limit.
    Stopped,
}

impl Cycle<'_> {
    /// The earliest start from `from` on at which quota and space hold for the whole window, with the best seats then.
    pub(super) fn earliest(&mut self, job: JobIdx, from: Time, most_domains: Option<u32>) -> Option<(Time, Placement)> {
        self.earliest_before(job, from, Time::NEVER, most_domains)
    }

    /// As [`Cycle::earliest`], if it is before a moment.
    pub(super) fn earliest_before(
        &mut self,
        job: JobIdx,
        from: Time,
        before: Time,
        most_domains: Option<u32>,
    ) -> Option<(Time, Placement)> {
        let spec = self.spec(job);
        let demand = self.demand(job);
        let mut at = from;
        for _ in 0..64 {
            at = self.quota.first_fit(self.state(), &spec, &demand.plain, at)?;
            if at >= before {
                return None;
            }
            let (start, found) = self.earliest_space(&spec, &demand, (at, before), most_domains)?;
            let tally = self.tally(&spec, &found.placement);
            let fits = self.quota.first_fit(self.state(), &spec, &tally, start);
            match fits {
                Some(when) if when == start => return Some((start, found.placement)),
                Some(when) => at = when,
                // A pool-bound quota rules this pool out for good; others are tried from the next moment on.
                None => at = Time(start.0 + 1),
            }
        }
        None
    }

    fn earliest_space(
        &mut self,
        spec: &JobSpec,
        demand: &Demand,
        (from, before): (Time, Time),
        most_domains: Option<u32>,
    ) -> Option<(Time, Found)> {
        let spans_pools =
            spec.communication == crate::job::Communication::Independent && spec.locality.required.is_none();
        if spans_pools && demand.candidates.len() > 1 {
            return self.earliest_anywhere(spec, demand, from).filter(|(at, _)| *at < before);
        }
        // Nodes that open late matter only if those that open sooner are not enough.
        let shape = demand.shapes.first()?;
        let mut nodes = demand.sizes.iter().fold(NODES_AT_FIRST, |sum, size| sum.saturating_add(*size as usize));
        loop {
            // Before a known date hardly any do.
            let all_at_once = demand.shapes.len() > 1 || !before.is_never();
            let until = if all_at_once { Time::NEVER } else { self.ledger.opened(&demand.candidates, *shape, nodes) };
            let last = until.min(Time(before.0.saturating_sub(1)));
            match self.earliest_until(spec, demand, (from, last), most_domains) {
                Searched::Found(at, found) => return Some((at, found)),
                Searched::Stopped => return None,
                Searched::NotYet if last < until || until.is_never() => return None,
                Searched::NotYet => nodes = nodes.saturating_mul(8),
            }
        }
    }

    /// The earliest start that is not later than `last`.
    fn earliest_until(
        &mut self,
        spec: &JobSpec,
        demand: &Demand,
        (from, last): (Time, Time),
        most_domains: Option<u32>,
    ) -> Searched {
        let mut queue: BinaryHeap<Reverse<(Time, usize, usize)>> = BinaryHeap::new();
        let mut moments: Vec<Vec<Time>> = Vec::with_capacity(demand.candidates.len());
        for (row, &domain) in demand.candidates.iter().enumerate() {
            let nodes = self.ledger.open_by(domain, &demand.shapes, last);
            let mut times = possible_moments(&mut self.ledger, &nodes, spec, demand, from);
            times.truncate(times.partition_point(|t| *t <= last));
            if let Some(&first) = times.first() {
                queue.push(Reverse((first, row, 0)));
            }
            moments.push(times);
        }
        let mut best: Option<(Time, Found)> = None;
        let mut tries = 0;
        while let Some(Reverse((at, row, nth))) = queue.pop() {
            if best.as_ref().is_some_and(|(time, _)| *time < at) {
                break;
            }
            if tries >= MOST_TRIES {
                return best.map_or(Searched::Stopped, |(at, found)| Searched::Found(at, found));
            }
            tries += 1;
            match self.place_at(spec, demand, demand.candidates[row], at, most_domains) {
                Some(found) => {
                    let better = best.as_ref().is_none_or(|(_, b)| (found.domains, found.loss) < (b.domains, b.loss));
                    if better {
                        best = Some((at, found));
                    }
                }
                None => {
                    if let Some(&next) = moments[row].get(nth + 1) {
                        queue.push(Reverse((next, row, nth + 1)));
                    }
                }
            }
        }
        best.map_or(Searched::NotYet, |(at, found)| Searched::Found(at, found))
    }

    /// For jobs that may span pools: the moments of all pools together, each tried over the whole cluster.
    fn earliest_anywhere(&mut self, spec: &JobSpec, demand: &Demand, from: Time) -> Option<(Time, Found)> {
        let mut times: Vec<Time> = vec![from];
        for row in 0..self.state().topology().node_count() {
            for hold in self.ledger.holds(NodeIdx::of(row)) {
                times.push(Ledger::assumed_end(hold.to, self.snapshot.now, self.policy.cycle));
            }
            // Room comes back at the end of an announced absence too.
            let there = self.state().node(NodeIdx::of(row));
            times.extend(there.unavailable.iter().map(|(_, back)| *back));
        }
        times.retain(|t| *t >= from && !t.is_never());
        times.sort_unstable();
        times.dedup();
        times.into_iter().take(MOST_TRIES as usize).find_map(|at| {
            let mut free = Vec::new();
            for row in 0..self.state().topology().node_count() {
                let node = NodeIdx::of(row);
                let least = self.ledger.free_during(node, at, at + spec.window());
                free.push(crate::resources::Amounts(least));
            }
            let room = crate::room::FixedRoom::new(self.state().topology(), &self.state().shapes, free);
            crate::place::place(&room, &self.ask(spec, demand, at, None, None)).ok().map(|found| (at, found))
        })
    }

    fn ask<'q>(
        &self,
        spec: &'q JobSpec,
        demand: &'q Demand,
        start: Time,
        most_domains: Option<u32>,
        within: Option<DomainIdx>,
    ) -> Ask<'q> {
        Ask {
            spec,
            sizes: &demand.sizes,
            start,
            predicted_end: start + spec.predicted(),
            most_domains,
            search_limit: self.policy.search_limit,
            within,
        }
    }

    /// The best seats inside one domain for a window that starts at `at`.
    pub(super) fn place_at(
        &mut self,
        spec: &JobSpec,
        demand: &Demand,
        domain: DomainIdx,
        at: Time,
        most_domains: Option<u32>,
    ) -> Option<Found> {
        let nodes = self.ledger.open_by(domain, &demand.shapes, at);
        let room = self.ledger.space_room(nodes, &demand.shapes, at, at + spec.window());
        crate::place::place(&room, &self.ask(spec, demand, at, most_domains, Some(domain))).ok()
    }
}

/// Moments from `from` on at which the slot counts of some nodes allow the floor, ascending. Between two of them nothing
/// gets better.
fn possible_moments(
    ledger: &mut Ledger<'_>,
    nodes: &[NodeIdx],
    spec: &JobSpec,
    demand: &Demand,
    from: Time,
) -> Vec<Time> {
    let window = spec.window();
    let wanted: Vec<(ShapeIdx, u64)> = demand
        .shapes
        .iter()
        .map(|shape| {
            let pods = spec.roles.iter().zip(&demand.sizes).filter(|(r, _)| r.shape == *shape);
            (*shape, pods.map(|(_, size)| u64::from(*size)).sum())
        })
        .collect();
    if let [(shape, 1)] = wanted[..] {
        return single_pod_moments(ledger, nodes, shape, window, from);
    }
    // (time, column, change of the count)
    let mut changes: Vec<(Time, usize, i64)> = Vec::new();
    let mut counts: Vec<i64> = vec![0; wanted.len()];
    for &node in nodes {
        for (column, (shape, _)) in wanted.iter().enumerate() {
            let shape = ledger.state().shapes.get(*shape);
            if !shape.eligible.contains(node) {
                continue;
            }
            let mut before = 0;
            for (at, pods) in ledger.profile(node).steps(&shape.requests, window, from) {
                let pods = i64::from(pods);
                if at <= from {
                    counts[column] += pods;
                } else if pods != before {
                    changes.push((at, column, pods - before));
                }
                before = pods;
            }
        }
    }
    changes.sort_unstable_by_key(|c| (c.0, c.1));
    let enough =
        |counts: &[i64]| wanted.iter().zip(counts).all(|((_, w), have)| *have >= 0 && have.unsigned_abs() >= *w);
    let mut moments = Vec::new();
    if enough(&counts) {
        moments.push(from);
    }
    let mut row = 0;
    while row < changes.len() {
        let at = changes[row].0;
        let mut gained = false;
        while row < changes.len() && changes[row].0 == at {
            counts[changes[row].1] += changes[row].2;
            gained |= changes[row].2 > 0;
            row += 1;
        }
        if gained && enough(&counts) {
            moments.push(at);
        }
    }
    moments
}

fn single_pod_moments(
    ledger: &mut Ledger<'_>,
    nodes: &[NodeIdx],
    shape: ShapeIdx,
    window: Span,
    from: Time,
) -> Vec<Time> {
    let mut best: Option<Time> = None;
    for &node in nodes {
        let shape = ledger.state().shapes.get(shape);
        if !shape.eligible.contains(node) {
            continue;
        }
        if let Some(at) = ledger.profile(node).first_slot(&shape.requests, window, from)
            && best.is_none_or(|b| at < b)
        {
            best = Some(at);
            if at <= from {
                break;
            }
        }
    }
    best.into_iter().collect()
}
