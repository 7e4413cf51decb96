//! Greedy packing of kinds of pods: quick, and no proof when it fails.

use super::ask::Kind;
use super::layout::Load;
use super::quest::{Part, Quest, whole};
use crate::ids::{DomainIdx, NodeIdx, ShapeIdx};
use crate::room::Room;
use std::collections::BTreeMap;

/// What is left of one node while pods are put on it.
#[derive(Debug)]
pub(crate) struct Rest<'r, R> {
    room: &'r R,
    node: NodeIdx,
    free: Option<Vec<i64>>,
}

impl<R> Clone for Rest<'_, R> {
    fn clone(&self) -> Self {
        Self { room: self.room, node: self.node, free: self.free.clone() }
    }
}

impl<'r, R: Room> Rest<'r, R> {
    /// A node nothing was put on yet.
    pub(crate) fn new(room: &'r R, node: NodeIdx) -> Self {
        Self { room, node, free: None }
    }

    /// Pods of a shape that still fit.
    pub(crate) fn holds(&self, shape: ShapeIdx) -> u32 {
        let whole = self.room.pods(self.node, shape);
        match &self.free {
            Some(free) if whole > 0 => whole.min(self.room.shapes().get(shape).requests.times_in(free)),
            _ => whole,
        }
    }

    /// Puts pods on it.
    pub(crate) fn take(&mut self, shape: ShapeIdx, pods: u32) {
        let free = self.free.get_or_insert_with(|| self.room.free(self.node).to_vec());
        for (have, need) in free.iter_mut().zip(&self.room.shapes().get(shape).requests.0) {
            *have -= need * i64::from(pods);
        }
    }
}

/// Whether one node holds every pod.
pub(crate) fn one_node<R: Room>(room: &R, kinds: &[Kind], node: NodeIdx) -> bool {
    let mut rest = Rest::new(room, node);
    kinds.iter().all(|kind| {
        let fits = rest.holds(kind.shape) >= kind.pods;
        if fits {
            rest.take(kind.shape, kind.pods);
        }
        fits
    })
}

/// Packs one kind after the other, the scarcest first.
#[derive(Debug)]
pub(crate) struct Greedy<'q, 'a, R> {
    quest: &'q Quest<'a, R>,
    rests: BTreeMap<NodeIdx, Rest<'a, R>>,
    /// What was placed.
    pub(crate) loads: Vec<Load>,
}

impl<'q, 'a, R: Room> Greedy<'q, 'a, R> {
    /// Nothing placed yet.
    pub(crate) fn new(quest: &'q Quest<'a, R>) -> Self {
        Self { quest, rests: BTreeMap::new(), loads: Vec::new() }
    }

    /// Puts these pods (by kind) into a domain; false if it did not find room for all of them.
    pub(crate) fn pack(&mut self, domain: DomainIdx, want: &[u32]) -> bool {
        let mut order: Vec<usize> = (0..want.len()).filter(|k| want[*k] > 0).collect();
        // The kind for which the domain has the fewest times what is wanted goes first.
        let scarcity = |kind: usize| {
            let free = self.quest.room.pods_in(domain, self.quest.kinds[kind].shape);
            free.saturating_mul(1024) / u64::from(want[kind])
        };
        order.sort_by_key(|kind| (scarcity(*kind), *kind));
        order.into_iter().all(|kind| self.fill(domain, kind, want[kind]) == want[kind])
    }

    /// Puts up to `want` pods of one kind into a domain and says how many it put.
    pub(crate) fn fill(&mut self, domain: DomainIdx, kind: usize, want: u32) -> u32 {
        let here = self.quest.domain(domain);
        let slice = self.quest.kinds[kind].slice;
        if want == 0 || self.quest.room.pods_in(domain, self.quest.kinds[kind].shape) == 0 {
            return 0;
        }
        match self.quest.cells[kind] {
            Some(cell) if cell == here.depth => {
                let room = self.room_in(domain, kind, want);
                self.fill_nodes(domain, kind, whole(room, slice))
            }
            Some(cell) if cell > here.depth => self.fill_parts(domain, kind, want),
            _ if self.compact(domain) => self.fill_parts(domain, kind, want),
            _ => self.fill_nodes(domain, kind, want),
        }
    }

    /// Whether to fill a domain part by part, so that few parts are used.
    fn compact(&self, domain: DomainIdx) -> bool {
        let here = self.quest.domain(domain);
        !self.quest.flat && !here.children.is_empty()
    }

    fn fill_parts(&mut self, domain: DomainIdx, kind: usize, want: u32) -> u32 {
        let mut parts: Vec<(u64, Part)> =
            self.quest.parts(domain).map(|p| (self.quest.part_cap(p, kind), p)).filter(|p| p.0 > 0).collect();
        // Largest first, but the tightest one as soon as one holds all the rest; parts in use before all others.
        parts.sort_by_key(|(cap, part)| (!self.uses(*part), std::cmp::Reverse(*cap), *part));
        let mut left = want;
        while left > 0 && !parts.is_empty() {
            let fits = parts.iter().rposition(|(cap, _)| *cap >= u64::from(left));
            let (_, part) = parts.remove(fits.filter(|_| !self.uses(parts[0].1)).unwrap_or(0));
            left -= match part {
                Part::Domain(child) => self.fill(child, kind, left),
                Part::Node(node) => {
                    let cut = self.quest.cut_by_node(node, kind);
                    self.put(node, kind, left, if cut { self.quest.kinds[kind].slice } else { 1 })
                }
            };
        }
        want - left
    }

    fn uses(&self, part: Part) -> bool {
        match part {
            Part::Node(node) => self.rests.contains_key(&node),
            Part::Domain(domain) => {
                let nodes = &self.quest.domain(domain).nodes;
                self.rests.range(NodeIdx(nodes.start)..NodeIdx(nodes.end)).next().is_some()
            }
        }
    }

    fn fill_nodes(&mut self, domain: DomainIdx, kind: usize, want: u32) -> u32 {
        let mut left = want;
        for node in self.ordered(domain, kind, want) {
            if left == 0 {
                break;
            }
            left -= self.put(node, kind, left, 1);
        }
        want - left
    }

    /// Nodes of a domain in the order of use: those in use already, broken ones, then whole ones, largest first.
    fn ordered(&self, domain: DomainIdx, kind: usize, want: u32) -> Vec<NodeIdx> {
        let quest = self.quest;
        let key = |node: NodeIdx, pods: u32| {
            let fewest =
                if quest.near || (quest.is_whole(node) && !quest.flat) { u32::MAX - pods.min(want) } else { pods };
            let used = self.rests.contains_key(&node);
            let room = quest.room;
            (!used, quest.near.then_some(fewest), quest.overlap(node), room.promised(node), room.health(node), fewest)
        };
        let shape = quest.kinds[kind].shape;
        let nodes = quest.domain(domain).node_range();
        let mut keyed: Vec<_> = nodes
            .map(|n| (n, quest.room.pods(n, shape)))
            .filter(|(_, pods)| *pods > 0)
            .map(|(n, pods)| (key(n, pods), n))
            .collect();
        let most = want as usize + self.rests.len();
        if most + 64 < keyed.len() / 2 {
            keyed.select_nth_unstable(most);
            keyed.truncate(most);
        }
        keyed.sort_unstable();
        keyed.into_iter().map(|(_, n)| n).collect()
    }

    /// Pods of a kind that a domain still holds, at most `want`.
    fn room_in(&self, domain: DomainIdx, kind: usize, want: u32) -> u32 {
        let mut room = 0u32;
        for node in self.quest.domain(domain).node_range() {
            room = room.saturating_add(self.holds(node, kind));
            if room >= want {
                return want;
            }
        }
        room
    }

    fn holds(&self, node: NodeIdx, kind: usize) -> u32 {
        let shape = self.quest.kinds[kind].shape;
        self.rests.get(&node).map_or_else(|| self.quest.room.pods(node, shape), |r| r.holds(shape))
    }

    /// Puts up to `want` pods on a node, in multiples of `step`.
    fn put(&mut self, node: NodeIdx, kind: usize, want: u32, step: u32) -> u32 {
        let pods = whole(self.holds(node, kind).min(want), step);
        if pods > 0 {
            let room = self.quest.room;
            let rest = self.rests.entry(node).or_insert_with(|| Rest::new(room, node));
            rest.take(self.quest.kinds[kind].shape, pods);
            self.loads.push(Load { node, kind, pods });
        }
        pods
    }
}
