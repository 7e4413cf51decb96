//! Gangs of several kinds of pods: packed greedily where that succeeds, exactly where it does not.

use super::descend::{COMPARED_NODES, Choice, Worth};
use super::layout::Load;
use super::pack::{Greedy, one_node};
use super::quest::{Part, Quest};
use super::search::{Area, Best};
use super::single::loss_of;
use super::table::{Cost, Counts, OutOfWork, Tables, wanted_domains};
use super::wide::fewest_wanted;
use crate::ids::{DomainIdx, NodeIdx};
use crate::room::Room;

/// The best place over these areas of one pool.
pub(crate) fn best_mixed<R: Room>(quest: &Quest<'_, R>, areas: &[Area]) -> Best {
    let mut best = in_one_domain(quest, areas);
    if best.choice.is_none() {
        best.add(in_several(quest, areas));
    }
    best
}

/// Pods wanted by kind.
pub(crate) fn wants<R: Room>(quest: &Quest<'_, R>) -> Counts {
    quest.kinds.iter().map(|k| k.pods).collect()
}

/// Everything inside one domain of the wanted level, or on one node outside all of them.
fn in_one_domain<R: Room>(quest: &Quest<'_, R>, areas: &[Area]) -> Best {
    let mut parts: Vec<Part> = Vec::new();
    for area in areas {
        gather(quest, area.domain, &mut parts);
    }
    let all = parts.len();
    quest.keep_roomiest(&mut parts);
    let best = in_one_of(quest, &mut parts);
    if best.choice.is_some() || parts.len() == all {
        return best;
    }
    // None of the roomiest holds the floor: any will do.
    parts.clear();
    areas.iter().for_each(|area| gather(quest, area.domain, &mut parts));
    in_one_of(quest, &mut parts)
}

/// The best of these parts that holds everything, the tightest tried first.
fn in_one_of<R: Room>(quest: &Quest<'_, R>, parts: &mut [Part]) -> Best {
    parts.sort_unstable_by_key(|part| (quest.part_free(*part, 0), *part));
    let mut best = Best::default();
    let mut budget = COMPARED_NODES;
    let mut hard = Vec::new();
    for part in parts.iter().copied() {
        let found = match part {
            Part::Node(node) => one_node(quest.room, quest.kinds, node).then(|| all_on(quest, node)),
            Part::Domain(domain) => {
                budget = budget.saturating_sub(quest.domain(domain).node_count());
                let found = greedy(quest, domain, &wants(quest));
                if found.is_none() {
                    hard.push(domain);
                }
                found
            }
        };
        best.offer(1, found.map(|loads| choice(quest, loads)));
        if budget == 0 && best.choice.is_some() {
            return best;
        }
    }
    quest.refill();
    for domain in hard {
        if best.choice.is_some() {
            break;
        }
        match exact(quest, domain, &wants(quest)) {
            Ok(found) => best.offer(1, found.map(|loads| choice(quest, loads))),
            Err(OutOfWork) => best.stopped = true,
        }
    }
    best
}

/// Domains of the wanted level, and nodes outside them, in which each kind would fit on its own.
fn gather<R: Room>(quest: &Quest<'_, R>, domain: DomainIdx, out: &mut Vec<Part>) {
    if !quest.may_hold(domain) {
        return;
    }
    if quest.domain(domain).depth >= quest.wanted {
        out.push(Part::Domain(domain));
        return;
    }
    for part in quest.parts(domain) {
        match part {
            Part::Domain(child) => gather(quest, child, out),
            Part::Node(_) => out.push(part),
        }
    }
}

/// Several domains of the wanted level: exactly while the work lasts, else as the greedy packing comes out.
fn in_several<R: Room>(quest: &Quest<'_, R>, areas: &[Area]) -> Best {
    quest.refill();
    let mut best = Best::default();
    let mut counted: Vec<(Cost, DomainIdx)> = Vec::new();
    for area in areas {
        if quest.domain(area.domain).depth >= quest.wanted || !quest.may_hold(area.domain) {
            continue;
        }
        if let Some(choice) = greedy_at_bound(quest, area.domain) {
            best.offer(choice.0, Some(choice.1));
            continue;
        }
        match Tables::new(quest, wants(quest), true).least_cost(area.domain) {
            Ok(Some(cost)) => counted.push((cost, area.domain)),
            Ok(None) => {}
            Err(OutOfWork) => best.add(rough(quest, area.domain)),
        }
    }
    let better = |cost: Cost| best.choice.as_ref().is_none_or(|(domains, _)| wanted_domains(cost) < *domains);
    if let Some((cost, domain)) = counted.into_iter().min().filter(|c| better(c.0)) {
        match spread(quest, domain, &wants(quest)) {
            Ok(Some(loads)) => best.offer(wanted_domains(cost), Some(choice(quest, loads))),
            Ok(None) => {}
            Err(OutOfWork) => best.add(rough(quest, domain)),
        }
    }
    best
}

/// The greedy packing, if no kind alone could do with fewer domains and there are no wider levels to count.
fn greedy_at_bound<R: Room>(quest: &Quest<'_, R>, domain: DomainIdx) -> Option<(u32, Choice)> {
    let loads = greedy(quest, domain, &wants(quest))?;
    let nodes = nodes_of(&loads);
    let used = quest.domains_used(&nodes);
    let bound = (0..quest.kinds.len()).map(|kind| fewest_wanted(quest, domain, kind)).max()?;
    let narrow = quest.domain(domain).depth.0 + 1 == quest.wanted.0 || quest.shares_parent(&nodes);
    (used <= bound && narrow).then(|| (used, choice(quest, loads)))
}

/// A packing without a proof that it takes the fewest domains; exact only in whether there is one.
fn rough<R: Room>(quest: &Quest<'_, R>, domain: DomainIdx) -> Best {
    quest.refill();
    let mut best = Best::default();
    let loads = match greedy(quest, domain, &wants(quest)) {
        Some(loads) => Ok(Some(loads)),
        None => exact(quest, domain, &wants(quest)),
    };
    match loads {
        Ok(Some(loads)) => {
            let nodes = nodes_of(&loads);
            best.offer(quest.domains_used(&nodes), Some(choice(quest, loads)));
        }
        Ok(None) => {}
        Err(OutOfWork) => best.stopped = true,
    }
    best
}

/// Divides the pods over the fewest domains, then packs each.
fn spread<R: Room>(quest: &Quest<'_, R>, domain: DomainIdx, want: &Counts) -> Result<Option<Vec<Load>>, OutOfWork> {
    if quest.domain(domain).depth >= quest.wanted {
        return match greedy(quest, domain, want) {
            Some(loads) => Ok(Some(loads)),
            None => exact(quest, domain, want),
        };
    }
    let Some(shares) = Tables::new(quest, want.clone(), true).divide(domain)? else { return Ok(None) };
    over(shares, |child, counts| spread(quest, child, counts))
}

/// Packs without counting domains: none is a proof that there is no way.
pub(crate) fn exact<R: Room>(
    quest: &Quest<'_, R>,
    domain: DomainIdx,
    want: &Counts,
) -> Result<Option<Vec<Load>>, OutOfWork> {
    let Some(shares) = Tables::new(quest, want.clone(), false).divide(domain)? else { return Ok(None) };
    over(shares, |child, counts| exact(quest, child, counts))
}

fn over(
    shares: Vec<(Part, Counts)>,
    inner: impl Fn(DomainIdx, &Counts) -> Result<Option<Vec<Load>>, OutOfWork>,
) -> Result<Option<Vec<Load>>, OutOfWork> {
    let mut loads = Vec::new();
    for (part, counts) in shares {
        match part {
            Part::Node(node) => loads.extend(on_node(node, &counts)),
            Part::Domain(child) => match inner(child, &counts)? {
                Some(more) => loads.extend(more),
                None => return Ok(None),
            },
        }
    }
    Ok(Some(loads))
}

fn on_node(node: NodeIdx, counts: &Counts) -> impl Iterator<Item = Load> + use<'_> {
    let used = counts.iter().enumerate().filter(|(_, pods)| **pods > 0);
    used.map(move |(kind, pods)| Load { node, kind, pods: *pods })
}

/// All pods on one node.
pub(crate) fn all_on<R: Room>(quest: &Quest<'_, R>, node: NodeIdx) -> Vec<Load> {
    on_node(node, &wants(quest)).collect()
}

/// The greedy packing of these pods in a domain, if it succeeds.
pub(crate) fn greedy<R: Room>(quest: &Quest<'_, R>, domain: DomainIdx, want: &Counts) -> Option<Vec<Load>> {
    let mut greedy = Greedy::new(quest);
    greedy.pack(domain, want).then_some(greedy.loads)
}

/// The distinct nodes of loads, in row order.
pub(crate) fn nodes_of(loads: &[Load]) -> Vec<NodeIdx> {
    let mut nodes: Vec<NodeIdx> = loads.iter().map(|l| l.node).collect();
    nodes.sort_unstable();
    nodes.dedup();
    nodes
}

/// Loads with what ranks them.
pub(crate) fn choice<R: Room>(quest: &Quest<'_, R>, loads: Vec<Load>) -> Choice {
    let nodes = nodes_of(&loads);
    let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    let worth = Worth {
        parts: if quest.near { count(nodes.len()) } else { 0 },
        loss: loss_of(quest, &nodes).0,
        promised: count(nodes.iter().filter(|n| quest.room.promised(**n)).count()),
        health: nodes.iter().map(|n| u32::from(quest.room.health(*n))).sum(),
    };
    Choice { loads, worth }
}
