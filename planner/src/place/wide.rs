//! Alike pods in a domain above the wanted level: the fewest domains of each level, the wanted one first.
//!
//! The largest domains of each level, level by level inside those of the level above, are a lower bound on every level
//! and usually also a solution: then nothing needs to be searched. Otherwise the exact tables decide, and where even
//! they stop, the largest domains of the wanted level do.

use super::leaf::count_down;
use super::pack::Greedy;
use super::quest::{Part, Quest, clip};
use super::table::{Cost, Tables, unit};
use crate::ids::DomainIdx;
use crate::room::Room;
use crate::topology::Depth;

/// How pods are divided: over parts one level above the wanted one (or nodes and wanted domains themselves).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    /// Domains in use by level.
    pub(crate) cost: Cost,
    /// Pods by part.
    pub(crate) shares: Vec<(Part, u32)>,
}

/// The best division of pods over a domain that holds them.
pub(crate) fn plan_wide<R: Room>(quest: &Quest<'_, R>, domain: DomainIdx, kind: usize, pods: u32) -> Option<Plan> {
    // Where a slice spans several wanted domains their counts do not say how many whole slices they make.
    let additive = quest.cells[kind].is_none_or(|cell| cell >= quest.wanted);
    let quick = || nested(quest, domain, kind, pods, true).or_else(|| nested(quest, domain, kind, pods, false));
    if additive && let Some(plan) = quick() {
        return Some(plan);
    }
    let mut tables = Tables::new(quest, vec![pods], true);
    let divided = tables.least_cost(domain).and_then(|cost| Ok((cost, tables.divide(domain)?)));
    match divided {
        Ok((Some(cost), Some(shares))) => {
            Some(Plan { cost, shares: shares.into_iter().map(|(part, counts)| (part, counts[0])).collect() })
        }
        Ok(_) => None,
        Err(_) if additive => largest(quest, domain, kind, pods),
        Err(_) => rough(quest, domain, kind, pods),
    }
}

/// Pods that each part of a level holds, largest first.
type Sized = Vec<(u32, Part)>;

fn sized<R: Room>(quest: &Quest<'_, R>, parts: impl Iterator<Item = Part>, kind: usize) -> Sized {
    let mut sized: Sized = parts.map(|p| (clip(quest.part_cap(p, kind)), p)).filter(|p| p.0 > 0).collect();
    sized.sort_unstable_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(&b.1)));
    sized
}

/// The parts one level down: domains give theirs, nodes outside stay as they are.
fn below<R: Room>(quest: &Quest<'_, R>, parts: &[Part]) -> Vec<Part> {
    let mut next = Vec::new();
    for part in parts {
        match part {
            Part::Domain(domain) => next.extend(quest.parts(*domain)),
            Part::Node(_) => next.push(*part),
        }
    }
    next
}

/// A division that is fewest on every level at once, if the largest domains inside the largest ones are one. With
/// `tight`, the last domain of each level is the tightest that holds the rest.
fn nested<R: Room>(quest: &Quest<'_, R>, domain: DomainIdx, kind: usize, pods: u32, tight: bool) -> Option<Plan> {
    let top = quest.domain(domain).depth.0;
    let (mut all, mut chosen) = (vec![Part::Domain(domain)], vec![(pods, Part::Domain(domain))]);
    let mut cost = unit(quest.wanted, Depth(top));
    let mut above = chosen.clone();
    for depth in top + 1..=quest.wanted.0 {
        all = below(quest, &all);
        let every = sized(quest, all.iter().copied(), kind);
        let inside: Vec<Part> = chosen.iter().map(|c| c.1).collect();
        let offered = sized(quest, below(quest, &inside).into_iter(), kind);
        let caps = |s: &Sized| s.iter().map(|p| p.0).collect::<Vec<u32>>();
        let count = count_down(&caps(&offered), pods);
        if count > count_down(&caps(&every), pods) {
            return None;
        }
        cost += Cost::from(count as u64) * unit(quest.wanted, Depth(depth));
        above = chosen;
        chosen = if tight { tight_last(&offered, count, pods) } else { offered[..count].to_vec() };
    }
    Some(Plan { cost, shares: by_parent(quest, &above, &chosen, pods) })
}

/// The largest parts, but in place of the last one the tightest that holds the rest.
fn tight_last(sized: &Sized, count: usize, pods: u32) -> Sized {
    let (head, tail) = sized.split_at(count.saturating_sub(1));
    let left = pods - head.iter().map(|p| p.0).sum::<u32>().min(pods);
    let last = tail.iter().rev().find(|p| p.0 >= left).or(tail.first());
    head.iter().chain(last).copied().collect()
}

/// Sums the shares of wanted domains by the part above that holds them, so that it can divide them by loss.
fn by_parent<R: Room>(quest: &Quest<'_, R>, above: &Sized, chosen: &Sized, pods: u32) -> Vec<(Part, u32)> {
    let mut shares: Vec<(Part, u32)> = above.iter().map(|p| (p.1, 0)).collect();
    shares.sort_unstable();
    let mut left = pods;
    for (cap, part) in chosen {
        let parent = match part {
            Part::Domain(domain) => quest.domain(*domain).parent.map(Part::Domain),
            Part::Node(node) => Some(Part::Domain(quest.topology().innermost(*node))),
        };
        let home = |p: Part| shares.binary_search_by_key(&p, |s| s.0).ok();
        let Some(row) = home(*part).or_else(|| parent.and_then(home)) else { continue };
        let taken = left.min(*cap);
        shares[row].1 += taken;
        left -= taken;
    }
    shares.retain(|s| s.1 > 0);
    shares
}

/// The largest domains of the wanted level, wherever they are: fewest of that level, not proved so for wider ones.
fn largest<R: Room>(quest: &Quest<'_, R>, domain: DomainIdx, kind: usize, pods: u32) -> Option<Plan> {
    let mut parts = vec![Part::Domain(domain)];
    let mut above = Vec::new();
    for _ in quest.domain(domain).depth.0..quest.wanted.0 {
        above = std::mem::take(&mut parts);
        parts = below(quest, &above);
    }
    let offered = sized(quest, parts.into_iter(), kind);
    let count = count_down(&offered.iter().map(|p| p.0).collect::<Vec<u32>>(), pods);
    let chosen = tight_last(&offered, count, pods);
    let above: Sized = above.into_iter().map(|part| (0, part)).collect();
    let cost = Cost::from(count as u64) * unit(quest.wanted, quest.wanted);
    Some(Plan { cost, shares: by_parent(quest, &above, &chosen, pods) })
}

/// Whatever the greedy packing gives.
fn rough<R: Room>(quest: &Quest<'_, R>, domain: DomainIdx, kind: usize, pods: u32) -> Option<Plan> {
    let mut greedy = Greedy::new(quest);
    if greedy.fill(domain, kind, pods) < pods {
        return None;
    }
    let mut nodes: Vec<_> = greedy.loads.iter().map(|l| l.node).collect();
    nodes.sort_unstable();
    let cost = Cost::from(quest.domains_used(&nodes)) * unit(quest.wanted, quest.wanted);
    Some(Plan { cost, shares: greedy.loads.iter().map(|l| (Part::Node(l.node), l.pods)).collect() })
}

/// Fewest domains of the wanted level that pods of one kind need inside a domain, whatever else is asked: a lower bound.
pub(crate) fn fewest_wanted<R: Room>(quest: &Quest<'_, R>, domain: DomainIdx, kind: usize) -> u32 {
    let mut parts = vec![Part::Domain(domain)];
    for _ in quest.domain(domain).depth.0..quest.wanted.0 {
        parts = below(quest, &parts);
    }
    let caps: Vec<u32> = sized(quest, parts.into_iter(), kind).iter().map(|p| p.0).collect();
    u32::try_from(count_down(&caps, quest.kinds[kind].pods)).unwrap_or(u32::MAX)
}
