//! Can this job start now? Quota, patience and space, in that order.

use super::Cycle;
use crate::ids::{DomainIdx, JobIdx, NodeIdx};
use crate::job::{JobSpec, Placement};
use crate::place::{Ask, Found, NoFit};
use crate::reason::{Code, Reason};
use crate::time::Time;
use std::collections::BTreeMap;

/// Why a job cannot start now.
pub(super) enum Not {
    /// A quota binds; space was not looked at.
    Quota(Reason),
    /// No room; `limit` says that the packing search gave up instead of proving it.
    Space { limit: bool },
    /// There is room, but not in as few domains as patience asks.
    Impatient,
}

impl Cycle<'_> {
    /// Whether the quotas above a job's queue let its floor start now and run its whole window.
    pub(super) fn quota_allows(&mut self, job: JobIdx) -> Result<(), Reason> {
        let spec = self.spec(job);
        let demand = self.demand(job);
        if let Err(over) = self.shares.limit_left(spec.queue, &demand.plain) {
            return Err(self.over_limit(&over));
        }
        if !spec.preemptible && self.shares.within_guarantee(spec.queue, &demand.plain).is_err() {
            let object = self.state().queue(spec.queue).name.clone();
            return Err(Reason::of(Code::NonPreemptibleNeedsGuarantee, object));
        }
        if !self.quota.fits(self.state(), &spec, &demand.plain, self.now()) {
            let object = self.state().queue(spec.queue).name.clone();
            return Err(Reason::of(Code::QueueLimit, object));
        }
        Ok(())
    }

    /// The best place for a job's floor now, if quota, patience and space allow one.
    pub(super) fn place_now(&mut self, job: JobIdx, most_domains: Option<u32>) -> Result<Placement, Not> {
        self.quota_allows(job).map_err(Not::Quota)?;
        let spec = self.spec(job);
        let class = self.job(job).class;
        let window = spec.window();
        let loosened = self.ledger.loosened;
        if let Some((seen, length)) = self.misfits.get(&class)
            && *seen == loosened
            && window >= *length
        {
            return Err(Not::Space { limit: false });
        }
        let demand = self.demand(job);
        if !self.could_fit(&demand) {
            self.misfits.insert(class, (loosened, crate::time::Span::ZERO));
            return Err(Not::Space { limit: false });
        }
        match self.search_now(job, most_domains) {
            Ok(found) => Ok(found.placement),
            Err(NoFit::TooManyDomains { .. }) => Err(Not::Impatient),
            Err(other) => {
                if most_domains.is_none() || matches!(other, NoFit::Proved) {
                    self.misfits.insert(class, (loosened, window));
                }
                Err(Not::Space { limit: matches!(other, NoFit::SearchLimit) })
            }
        }
    }

    /// Whether these very seats are free from now on for the job's whole window, on usable nodes.
    pub(super) fn seats_are_free(&mut self, spec: &JobSpec, placement: &Placement) -> bool {
        self.seats_are_free_from(spec, placement, self.now())
    }

    /// As [`Cycle::seats_are_free`], from a later moment on.
    pub(super) fn seats_are_free_from(&mut self, spec: &JobSpec, placement: &Placement, from: Time) -> bool {
        let end = from + spec.window();
        let mut free: BTreeMap<NodeIdx, Vec<i64>> = BTreeMap::new();
        placement.by_node().into_iter().all(|(node, role, count)| {
            let state = self.snapshot.state;
            let row = free.entry(node).or_insert_with(|| self.ledger.free_during(node, from, end));
            let shape = state.shapes.get(spec.roles[usize::from(role)].shape);
            let usable = !state.node(node).closed && !state.node(node).lost && shape.eligible.contains(node);
            let fits = usable && shape.requests.times_in(row) >= count;
            shape.requests.iter().for_each(|(r, a)| row[r.row()] -= a * i64::from(count));
            fits
        })
    }

    /// Cheap necessary condition, whatever is reserved: some candidate domain has enough slots for every role.
    pub(super) fn could_fit(&mut self, demand: &super::Demand) -> bool {
        let independent = demand.candidates.len() > 1 && demand.by_pool.len() > 1;
        let least: u64 = demand.sizes.iter().map(|s| u64::from(*s)).sum();
        let mut total = 0;
        for &domain in &demand.candidates {
            let slots = demand.shapes.iter().map(|s| self.ledger.at_most(domain, *s)).max().unwrap_or(0);
            total += slots;
            if slots >= least {
                return true;
            }
        }
        independent && total >= least || demand.shapes.len() > 1
    }

    fn search_now(&mut self, job: JobIdx, most_domains: Option<u32>) -> Result<Found, NoFit> {
        let spec = self.spec(job);
        let demand = self.demand(job);
        let now = self.now();
        let end = now + spec.window();
        let limit = self.policy.search_limit;
        let pools = self.pools_with_quota(job);
        let whole = pools.len() == demand.by_pool.len();
        let rule = self.policy.placement;
        let room = self.ledger.now_room(&demand.shapes, end);
        let ask = |within: Option<DomainIdx>| Ask {
            spec: &spec,
            sizes: &demand.sizes,
            start: now,
            predicted_end: now + spec.predicted(),
            most_domains,
            search_limit: limit,
            within,
        };
        if rule != crate::policy::PlacementRule::Topology {
            return super::start::by_rule(&room, &ask(None), rule, u64::from(job.0));
        }
        if whole {
            return crate::place::place(&room, &ask(None));
        }
        let mut best: Option<Found> = None;
        let mut worst = NoFit::Proved;
        for root in pools {
            match crate::place::place(&room, &ask(Some(root))) {
                Ok(found) if best.as_ref().is_none_or(|b| (found.domains, found.loss) < (b.domains, b.loss)) => {
                    best = Some(found);
                }
                Ok(_) => {}
                Err(NoFit::Proved) => {}
                Err(other) => worst = other,
            }
        }
        best.ok_or(worst)
    }

    /// Roots of the pools in which the queue's pool-bound quotas leave room for the floor.
    fn pools_with_quota(&mut self, job: JobIdx) -> Vec<DomainIdx> {
        let spec = self.spec(job);
        let demand = self.demand(job);
        let state = self.state();
        let roots = demand.by_pool.iter().filter(|(_, tally)| {
            self.shares.limit_left(spec.queue, tally).is_ok()
                && (spec.preemptible || self.shares.within_guarantee(spec.queue, tally).is_ok())
                && self.quota.fits(state, &spec, tally, self.snapshot.now)
        });
        roots.map(|(pool, _)| state.topology().pool(*pool).root).collect()
    }

    /// Whether seats lie in one known domain of the job's preferred level.
    pub(super) fn in_preferred(&self, spec: &JobSpec, placement: &Placement) -> bool {
        let topology = self.state().topology();
        let Some(level) = &spec.locality.preferred else { return false };
        let home = |node: NodeIdx| {
            let depth = topology.pool(topology.pool_of(node)).depth_of(level)?;
            topology.domain_at(node, depth)
        };
        let nodes = placement.nodes();
        let first = nodes.first().and_then(|n| home(*n));
        nodes.len() == 1 || first.is_some() && nodes.iter().all(|n| home(*n) == first)
    }

    /// The number of domains that a patient job waits for; none once its patience has run out.
    pub(super) fn patience(&mut self, job: JobIdx) -> Option<(u32, Time)> {
        let there = self.job(job);
        let locality = &there.spec.locality;
        locality.preferred.as_ref()?;
        let from_first_start = self.policy.patience_from_first_start && locality.patience > crate::time::Span::ZERO;
        let until = if from_first_start { Time::NEVER } else { there.queued_at + locality.patience };
        if until <= self.now() {
            return None;
        }
        Some((self.domains_at_best(job).max(1), until))
    }
}

/// Placement rules that replays compare with: first nodes in row order, or pseudo-random ones.
pub(super) fn by_rule<R: crate::room::Room>(
    room: &R,
    ask: &Ask<'_>,
    rule: crate::policy::PlacementRule,
    salt: u64,
) -> Result<Found, NoFit> {
    use crate::policy::PlacementRule;
    let topology = room.topology();
    let mut nodes: Vec<crate::ids::NodeIdx> = (0..topology.node_count()).map(crate::ids::NodeIdx::of).collect();
    if let PlacementRule::Random(seed) = rule {
        // SplitMix64 of (seed, job, node): the same on every machine.
        let key = |node: u32| {
            let mut z = seed ^ salt.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ (u64::from(node) << 32);
            z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
            z ^ (z >> 31)
        };
        nodes.sort_by_key(|n| (key(n.0), n.0));
    }
    let mut seats = Vec::new();
    let mut left: Vec<(crate::ids::NodeIdx, Vec<i64>)> = Vec::new();
    for (row, role) in ask.spec.roles.iter().enumerate() {
        let mut wanted = ask.sizes[row];
        let mut index = 0;
        for &node in &nodes {
            if wanted == 0 {
                break;
            }
            if room.pods(node, role.shape) == 0 {
                continue;
            }
            let at = left.iter().position(|(n, _)| *n == node).unwrap_or_else(|| {
                left.push((node, room.free(node).to_vec()));
                left.len() - 1
            });
            let requests = &room.shapes().get(role.shape).requests;
            let take = requests.times_in(&left[at].1).min(wanted);
            for _ in 0..take {
                seats.push(crate::job::Seat { role: u8::try_from(row).expect("at most 16 roles"), index, node });
                index += 1;
            }
            for (resource, amount) in requests.iter() {
                left[at].1[resource.row()] -= amount * i64::from(take);
            }
            wanted -= take;
        }
        if wanted > 0 {
            return Err(NoFit::Proved);
        }
    }
    let (_, domain) = topology.shared_depth(seats.iter().map(|s| s.node)).ok_or(NoFit::Proved)?;
    Ok(Found { placement: Placement { seats }, domains: 0, domain, loss: crate::place::Loss(0) })
}
