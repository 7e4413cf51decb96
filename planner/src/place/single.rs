//! One node for the whole gang: the broken one whose end moves least, then the fullest.

use super::ask::{Kind, Loss};
use super::leaf::Leaf;
use super::pack::one_node;
use super::quest::{Quest, own_nodes};
use crate::ids::{DomainIdx, NodeIdx};
use crate::resources::Amounts;
use crate::room::Room;
use crate::topology::Depth;

/// Fixed point of the ratio of free to requested amounts.
const RATIO: i64 = 4096;

/// A node with what ranks it, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct OneNode {
    /// Free node-time that taking it breaks.
    pub(crate) loss: Loss,
    /// Somebody else waits for it.
    promised: bool,
    health: u8,
    /// Free devices, asked for or not: they are what a cluster runs out of, so the node with fewest goes first.
    devices: i64,
    /// What is free of the resource that binds, in multiples of the request: the fullest node first.
    tight: i64,
    /// Wholly free nodes of its domain.
    whole: u32,
    /// The node.
    pub(crate) node: NodeIdx,
}

/// The best single node below a domain for all pods of the gang, domains of depth `skip` and deeper left out.
pub(crate) fn best_node<R: Room>(quest: &Quest<'_, R>, domain: DomainIdx, skip: Option<Depth>) -> Option<OneNode> {
    let here = quest.domain(domain);
    let free = quest.kinds.iter().all(|k| quest.room.pods_in(domain, k.shape) > 0);
    if !free || skip.is_some_and(|skip| here.depth >= skip) {
        return None;
    }
    let narrowest = here.depth.0 + 1 == quest.node_depth.0;
    let own = if narrowest { best_of_leaf(quest, domain) } else { best_loose(quest, domain) };
    let below = here.child_range().filter_map(|child| best_node(quest, child, skip));
    own.into_iter().chain(below).min()
}

fn best_loose<R: Room>(quest: &Quest<'_, R>, domain: DomainIdx) -> Option<OneNode> {
    let nodes = own_nodes(quest.domain(domain)).filter(|n| holds(quest, *n));
    nodes
        .map(|node| {
            let whole = u32::from(quest.is_whole(node));
            OneNode { loss: Loss(i128::from(quest.overlap(node))), ..ranked(quest, node, whole) }
        })
        .min()
}

fn best_of_leaf<R: Room>(quest: &Quest<'_, R>, domain: DomainIdx) -> Option<OneNode> {
    let nodes = || quest.domain(domain).node_range();
    // Within one domain the loss grows with the node's overlap, so the smallest overlap is the least loss.
    let mut best: Option<(i64, OneNode)> = None;
    let mut whole = 0u32;
    for node in nodes() {
        whole += u32::from(quest.is_whole(node));
        let overlap = quest.overlap(node);
        if best.as_ref().is_some_and(|(least, _)| overlap > *least) || !holds(quest, node) {
            continue;
        }
        if let Some((least, first)) = &best
            && overlap == *least
            && alike(quest.room, node, first.node)
        {
            continue;
        }
        let here = (overlap, ranked(quest, node, 0));
        if best.as_ref().is_none_or(|b| here < *b) {
            best = Some(here);
        }
    }
    let (overlap, best) = best?;
    let shared: i128 = if overlap == 0 { 0 } else { nodes().map(|n| i128::from(quest.overlap(n).min(overlap))).sum() };
    let loss = Loss((2 * shared - i128::from(overlap)).max(0));
    Some(OneNode { loss, whole, ..best })
}

/// Whether nothing but its row tells a node from an earlier one.
fn alike<R: Room>(room: &R, node: NodeIdx, earlier: NodeIdx) -> bool {
    room.free(node) == room.free(earlier)
        && room.promised(node) == room.promised(earlier)
        && room.health(node) == room.health(earlier)
}

fn ranked<R: Room>(quest: &Quest<'_, R>, node: NodeIdx, whole: u32) -> OneNode {
    let requests = |kind: &Kind| &quest.room.shapes().get(kind.shape).requests;
    let free = quest.room.free(node);
    let tight = quest.kinds.first().map_or(0, |kind| tightness(requests(kind), free));
    OneNode {
        loss: Loss(0),
        promised: quest.room.promised(node),
        health: quest.room.health(node),
        devices: quest.room.devices(node),
        tight,
        whole,
        node,
    }
}

/// Free amount of the resource that binds, in 4096ths of the request.
fn tightness(requests: &Amounts, free: &[i64]) -> i64 {
    let ratio = |(row, need): (usize, &i64)| free.get(row).copied().unwrap_or(0).saturating_mul(RATIO) / need;
    requests.0.iter().enumerate().filter(|(_, need)| **need > 0).map(ratio).min().unwrap_or(0)
}

fn holds<R: Room>(quest: &Quest<'_, R>, node: NodeIdx) -> bool {
    match quest.kinds {
        [kind] => quest.room.pods(node, kind.shape) >= kind.pods,
        kinds => one_node(quest.room, kinds, node),
    }
}

/// The loss of a set of nodes, domain by domain.
pub(crate) fn loss_of<R: Room>(quest: &Quest<'_, R>, nodes: &[NodeIdx]) -> Loss {
    let topology = quest.topology();
    let home = |n: &NodeIdx| {
        let domain = topology.innermost(*n);
        let narrowest = topology.domain(domain).depth.0 + 1 == quest.node_depth.0;
        (domain, (!narrowest).then_some(*n))
    };
    let groups = nodes.chunk_by(|a, b| home(a) == home(b));
    Loss(
        groups
            .map(|group| match home(&group[0]) {
                (_, Some(node)) => i128::from(quest.overlap(node)),
                (domain, None) => {
                    let mut leaf = Leaf::read(quest, topology.domain(domain).node_range(), 0);
                    leaf.loss(group.iter().map(|n| quest.overlap(*n)).collect()).0
                }
            })
            .sum(),
    )
}
