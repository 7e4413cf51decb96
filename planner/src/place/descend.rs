//! Alike pods in one domain, from the top down: as few parts as possible at each level, the least broken ones.

use super::layout::Load;
use super::leaf::{Chosen, Leaf};
use super::quest::{Part, Quest};
use super::split::{Item, split};
use super::wide::{Plan, plan_wide};
use crate::ids::{DomainIdx, NodeIdx};
use crate::room::Room;

/// Nodes read at most to compare domains that are equal in count; the tightest are compared first and one always is.
/// It covers whole clusters of a thousand nodes and keeps a decision on larger ones short.
pub(crate) const COMPARED_NODES: u32 = 1024;

/// A choice with what ranks it among equals, smallest first.
#[derive(Clone, Debug, Default)]
pub(crate) struct Choice {
    /// Pods by node and kind.
    pub(crate) loads: Vec<Load>,
    /// What ranks it.
    pub(crate) worth: Worth,
}

/// What ranks choices that use equally many domains of the wanted and wider levels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Worth {
    /// Narrower parts in use, nodes included where the job names a level.
    pub(crate) parts: u32,
    /// Free node-time broken.
    pub(crate) loss: i128,
    /// Nodes that others wait for.
    pub(crate) promised: u32,
    /// Sum of the nodes' health.
    pub(crate) health: u32,
}

impl Choice {
    /// A choice of nodes of one leaf.
    pub(crate) fn of(chosen: Chosen, kind: usize, near: bool) -> Self {
        let parts = if near { u32::try_from(chosen.pods.len()).unwrap_or(u32::MAX) } else { 0 };
        let worth = Worth { parts, loss: chosen.loss.0, promised: chosen.promised, health: chosen.health };
        let loads = chosen.pods.into_iter().map(|(node, pods)| Load { node, kind, pods }).collect();
        Self { loads, worth }
    }

    /// Adds another choice to this one.
    pub(crate) fn add(&mut self, other: Self) {
        self.loads.extend(other.loads);
        self.worth.parts += other.worth.parts;
        self.worth.loss += other.worth.loss;
        self.worth.promised += other.worth.promised;
        self.worth.health += other.worth.health;
    }
}

/// The best choice of nodes for `pods` pods of a kind in a domain that holds them.
pub(crate) fn descend<R: Room>(quest: &Quest<'_, R>, domain: DomainIdx, kind: usize, pods: u32) -> Option<Choice> {
    let here = quest.domain(domain);
    if here.depth < quest.wanted && here.depth.0 + 1 < quest.wanted.0 {
        return carry_out(quest, &plan_wide(quest, domain, kind, pods)?, kind);
    }
    let flat = quest.flat && quest.cells[kind].is_none();
    if here.depth >= quest.wanted && (here.children.is_empty() || flat) {
        let most = if quest.near { u32::MAX } else { pods };
        let mut leaf = Leaf::read_for(quest, here.node_range(), kind, most);
        return Some(Choice::of(leaf.choose(pods, quest.near), kind, quest.near));
    }
    let counted = u32::from(here.depth >= quest.wanted);
    if let Some(mut single) = best_part(quest, quest.parts(domain), kind, pods) {
        single.worth.parts += counted;
        return Some(single);
    }
    let items: Vec<Item> = quest.parts(domain).filter_map(|part| Item::read(quest, part, kind)).collect();
    let mut all = Choice::default();
    for (part, pods) in split(quest, kind, &items, pods)? {
        all.add(inside(quest, part, kind, pods)?);
        all.worth.parts += counted;
    }
    Some(all)
}

/// Chooses nodes for a division over wide parts.
pub(crate) fn carry_out<R: Room>(quest: &Quest<'_, R>, plan: &Plan, kind: usize) -> Option<Choice> {
    let mut all = Choice::default();
    for (part, pods) in &plan.shares {
        all.add(inside(quest, *part, kind, *pods)?);
    }
    Some(all)
}

/// The best single part that holds all pods, if any does. Compares the tightest few.
pub(crate) fn best_part<R: Room>(
    quest: &Quest<'_, R>,
    parts: impl Iterator<Item = Part>,
    kind: usize,
    pods: u32,
) -> Option<Choice> {
    let mut fitting: Vec<(u64, Part)> = parts
        .filter(|part| quest.part_cap(*part, kind) >= u64::from(pods))
        .map(|part| (quest.part_free(part, kind), part))
        .collect();
    if fitting.len() > 1 {
        fitting.sort_unstable_by_key(|(free, part)| (*free, *part));
    }
    let mut best: Option<Choice> = None;
    let mut budget = COMPARED_NODES;
    for (_, part) in fitting {
        let Some(choice) = inside(quest, part, kind, pods) else { continue };
        if best.as_ref().is_none_or(|b| choice.worth < b.worth) {
            best = Some(choice);
        }
        let read = match part {
            Part::Node(_) => 1,
            Part::Domain(domain) => quest.domain(domain).node_count(),
        };
        budget = budget.saturating_sub(read);
        if budget == 0 {
            break;
        }
    }
    best
}

/// The best choice inside one part.
pub(crate) fn inside<R: Room>(quest: &Quest<'_, R>, part: Part, kind: usize, pods: u32) -> Option<Choice> {
    match part {
        Part::Domain(domain) => descend(quest, domain, kind, pods),
        Part::Node(node) => Some(alone(quest, node, kind, pods)),
    }
}

fn alone<R: Room>(quest: &Quest<'_, R>, node: NodeIdx, kind: usize, pods: u32) -> Choice {
    let chosen = Leaf::read(quest, std::iter::once(node), kind).choose(pods, false);
    Choice::of(chosen, kind, quest.near)
}
