//! The order of a decision: which domains may hold the job, the fewest domains, the least broken of them.

use super::ask::{Ask, Found, Kind, Loss, NoFit, kinds};
use super::descend::Choice;
use super::independent::best_independent;
use super::layout::seats;
use super::mixed::{all_on, best_mixed, choice, exact, greedy, nodes_of, wants};
use super::quest::Quest;
use super::single::best_node;
use super::table::OutOfWork;
use super::uniform::best_uniform;
use crate::ids::{DomainIdx, PoolIdx};
use crate::job::Communication;
use crate::room::Room;
use crate::topology::{Depth, NODE_LEVEL, Topology};

/// A domain that may hold the gang: one of the required level, or a part of one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Area {
    /// The domain.
    pub(crate) domain: DomainIdx,
}

/// The best of several offers.
#[derive(Debug, Default)]
pub(crate) struct Best {
    /// Domains of the wanted level, and the choice.
    pub(crate) choice: Option<(u32, Choice)>,
    /// The search stopped somewhere without an answer.
    pub(crate) stopped: bool,
}

impl Best {
    /// Takes a choice if it is better.
    pub(crate) fn offer(&mut self, domains: u32, choice: Option<Choice>) {
        let Some(choice) = choice else { return };
        let better = |(d, c): &(u32, Choice)| (domains, choice.worth) < (*d, c.worth);
        if self.choice.as_ref().is_none_or(better) {
            self.choice = Some((domains, choice));
        }
    }

    /// Takes another best.
    pub(crate) fn add(&mut self, other: Self) {
        self.stopped |= other.stopped;
        if let Some((domains, choice)) = other.choice {
            self.offer(domains, Some(choice));
        }
    }
}

/// The best place of a job in a room.
///
/// # Errors
/// [`NoFit`], and whether that is proved.
pub fn place<R: Room>(room: &R, ask: &Ask<'_>) -> Result<Found, NoFit> {
    let kinds = kinds(ask.spec, ask.sizes);
    if kinds.is_empty() {
        return Err(NoFit::Proved);
    }
    let independent = ask.spec.communication == Communication::Independent;
    let best = if independent && ask.spec.locality.required.is_none() {
        best_independent(room, ask, &kinds)
    } else {
        best_of_all(room, ask, &kinds)
    };
    match best.choice {
        None if best.stopped => Err(NoFit::SearchLimit),
        None => Err(NoFit::Proved),
        Some((best, _)) if !independent && ask.most_domains.is_some_and(|most| best > most) => {
            Err(NoFit::TooManyDomains { best })
        }
        Some((domains, choice)) => Ok(found(room.topology(), &kinds, domains, choice)),
    }
}

fn found(topology: &Topology, kinds: &[Kind], domains: u32, mut choice: Choice) -> Found {
    let nodes = nodes_of(&choice.loads);
    let shared = topology.shared_depth(nodes.iter().copied()).map(|(_, domain)| domain);
    let root = nodes.first().map_or(DomainIdx(0), |n| topology.pool(topology.pool_of(*n)).root);
    Found {
        placement: seats(kinds, &mut choice.loads),
        domains,
        domain: shared.unwrap_or(root),
        loss: Loss(choice.worth.loss),
    }
}

/// The best place inside one pool, over all pools.
pub(crate) fn best_of_all<R: Room>(room: &R, ask: &Ask<'_>, kinds: &[Kind]) -> Best {
    let mut best = on_one_node(room, ask, kinds);
    if best.choice.is_some() && (is_alone(kinds) || counts_nodes(ask)) {
        return best;
    }
    let areas = areas(room.topology(), ask);
    for group in areas.chunk_by(|a, b| pool_of(room, *a) == pool_of(room, *b)) {
        let Some(quest) = Quest::new(room, ask, kinds, pool_of(room, group[0])) else { continue };
        if quest.required == quest.node_depth {
            continue;
        }
        best.add(if kinds.len() == 1 { best_uniform(&quest, group) } else { best_mixed(&quest, group) });
    }
    best
}

fn is_alone(kinds: &[Kind]) -> bool {
    kinds.iter().map(|k| k.pods).sum::<u32>() == 1
}

/// Whether nodes are the domains that the job wants fewest of: then one node is the best there is.
fn counts_nodes(ask: &Ask<'_>) -> bool {
    let locality = &ask.spec.locality;
    locality.preferred.as_ref().or(locality.required.as_ref()).is_some_and(|level| &**level == NODE_LEVEL)
}

fn pool_of<R: Room>(room: &R, area: Area) -> PoolIdx {
    room.topology().domain(area.domain).pool
}

/// Gangs that one node may hold although it is in no domain of the required level: a single node is one domain of
/// anything.
fn on_one_node<R: Room>(room: &R, ask: &Ask<'_>, kinds: &[Kind]) -> Best {
    let topology = room.topology();
    let alone = is_alone(kinds);
    let mut best: Option<(super::single::OneNode, Quest<'_, R>)> = None;
    for (root, pool) in scopes(topology, ask.within) {
        let quest = Quest::new(room, ask, kinds, pool);
        let skip = match &quest {
            Some(quest) if alone || quest.wanted == quest.node_depth => None,
            Some(quest) => Some(quest.required),
            None => None,
        };
        let quest = quest.unwrap_or_else(|| Quest::lone(room, ask, kinds, pool));
        let Some(node) = best_node(&quest, root, skip) else { continue };
        if best.as_ref().is_none_or(|(b, _)| node < *b) {
            best = Some((node, quest));
        }
    }
    let mut offered = Best::default();
    offered.offer(1, best.map(|(node, quest)| choice(&quest, all_on(&quest, node.node))));
    offered
}

/// The roots of all pools, or the one domain asked for.
fn scopes(topology: &Topology, within: Option<DomainIdx>) -> Vec<(DomainIdx, PoolIdx)> {
    match within {
        Some(domain) => vec![(domain, topology.domain(domain).pool)],
        None => topology.pools().iter().enumerate().map(|(row, pool)| (pool.root, PoolIdx::of(row))).collect(),
    }
}

/// The domains of the required level, cut to the domain asked for.
fn areas(topology: &Topology, ask: &Ask<'_>) -> Vec<Area> {
    let required = |pool: PoolIdx| match &ask.spec.locality.required {
        None => Some(Depth::ROOT),
        Some(level) => topology.pool(pool).depth_of(level),
    };
    let mut areas = Vec::new();
    for (root, pool) in scopes(topology, ask.within) {
        // Single nodes are no domains of the tree; they are looked at on their own.
        if let Some(depth) = required(pool).filter(|depth| *depth < topology.pool(pool).node_depth()) {
            add_areas(topology, root, depth, &mut areas);
        }
    }
    areas
}

/// Adds a domain at or below a depth, or its domains at that depth.
fn add_areas(topology: &Topology, domain: DomainIdx, depth: Depth, areas: &mut Vec<Area>) {
    let here = topology.domain(domain);
    if here.depth >= depth {
        areas.push(Area { domain });
    } else {
        here.child_range().for_each(|child| add_areas(topology, child, depth, areas));
    }
}

/// Whether the job fits inside one domain: the same answer as [`place`] within it, without choosing.
///
/// # Errors
/// [`NoFit`], and whether that is proved.
pub fn fits<R: Room>(room: &R, ask: &Ask<'_>, domain: DomainIdx) -> Result<(), NoFit> {
    let kinds = kinds(ask.spec, ask.sizes);
    let ask = Ask { within: Some(domain), most_domains: None, ..*ask };
    if kinds.is_empty() {
        return Err(NoFit::Proved);
    }
    let mut stopped = false;
    for area in areas(room.topology(), &ask) {
        let Some(quest) = Quest::new(room, &ask, &kinds, pool_of(room, area)) else { continue };
        if quest.required == quest.node_depth || !quest.may_hold(area.domain) {
            continue;
        }
        if kinds.len() == 1 || greedy(&quest, area.domain, &wants(&quest)).is_some() {
            return Ok(());
        }
        match exact(&quest, area.domain, &wants(&quest)) {
            Ok(Some(_)) => return Ok(()),
            Ok(None) => {}
            Err(OutOfWork) => stopped = true,
        }
    }
    match on_one_node(room, &ask, &kinds).choice {
        Some(_) => Ok(()),
        None if stopped => Err(NoFit::SearchLimit),
        None => Err(NoFit::Proved),
    }
}
