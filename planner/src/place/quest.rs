//! One question in one pool: names of levels become depths, times become overlaps.

use super::ask::{Ask, Kind};
use crate::ids::{DomainIdx, NodeIdx, PoolIdx};
use crate::job::{Communication, JobSpec};
use crate::room::Room;
use crate::time::Time;
use crate::topology::{Depth, Domain, Pool, Topology};
use std::cell::Cell;

/// Free node-time further ahead than this is not weighed: 30 days, in microseconds. It keeps the sums of jobs without a
/// limit finite; beyond one day the horizon changes no choice that could be measured.
const HORIZON: i64 = 30 * 24 * 3_600_000_000;

/// Merges of the exact tables that count as one step of the policy's search limit: about a microsecond.
const MERGES_A_STEP: u64 = 64;

/// A question in one pool.
#[derive(Clone, Debug)]
pub(crate) struct Quest<'a, R> {
    /// The free room.
    pub(crate) room: &'a R,
    /// What is asked for, by kind.
    pub(crate) kinds: &'a [Kind],
    /// All seats inside one domain of this depth.
    pub(crate) required: Depth,
    /// Fewest domains of this depth.
    pub(crate) wanted: Depth,
    /// Depth of single nodes.
    pub(crate) node_depth: Depth,
    /// For each kind the depth whose domains hold whole slices.
    pub(crate) cells: Vec<Option<Depth>>,
    /// The job names a level, so it cares for distance: nodes count as the narrowest domains.
    pub(crate) near: bool,
    /// Levels below the required one are ignored.
    pub(crate) flat: bool,
    limit: u64,
    work: Cell<u64>,
    start: Time,
    end: Time,
}

/// A part of a domain: one level narrower, or a node of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Part {
    /// A node that is in no narrower domain.
    Node(NodeIdx),
    /// A narrower domain.
    Domain(DomainIdx),
}

impl<'a, R: Room> Quest<'a, R> {
    /// The question in a pool; none where the pool lacks a level that the job requires.
    pub(crate) fn new(room: &'a R, ask: &Ask<'_>, kinds: &'a [Kind], pool: PoolIdx) -> Option<Self> {
        let pool = room.topology().pool(pool);
        let depths = Depths::of(ask.spec, pool)?;
        let mut cells = Vec::with_capacity(kinds.len());
        for kind in kinds {
            cells.push(match &kind.within {
                Some(level) => Some(pool.depth_of(level)?),
                None => None,
            });
        }
        Some(Self::at(room, ask, kinds, depths, pool.node_depth(), cells))
    }

    /// The question in a pool that lacks a level the job requires: everything must be on one node.
    pub(crate) fn lone(room: &'a R, ask: &Ask<'_>, kinds: &'a [Kind], pool: PoolIdx) -> Self {
        let node = room.topology().pool(pool).node_depth();
        let cells = kinds.iter().map(|k| k.within.as_ref().map(|_| node)).collect();
        Self::at(room, ask, kinds, Depths { required: node, wanted: node }, node, cells)
    }

    fn at(
        room: &'a R,
        ask: &Ask<'_>,
        kinds: &'a [Kind],
        depths: Depths,
        node_depth: Depth,
        cells: Vec<Option<Depth>>,
    ) -> Self {
        let locality = &ask.spec.locality;
        let flat = ask.spec.communication == Communication::Independent;
        Self {
            room,
            kinds,
            required: depths.required,
            wanted: depths.wanted,
            node_depth,
            cells,
            near: !flat && (locality.required.is_some() || locality.preferred.is_some()),
            flat,
            limit: u64::from(ask.search_limit) * MERGES_A_STEP,
            work: Cell::new(u64::from(ask.search_limit) * MERGES_A_STEP),
            start: ask.start,
            end: life_end(ask),
        }
    }

    /// Takes work off what is left of the search limit; false if that is not enough.
    pub(crate) fn spend(&self, work: u64) -> bool {
        let left = self.work.get().checked_sub(work);
        self.work.set(left.unwrap_or(0));
        left.is_some()
    }

    /// Gives a new phase of the search the whole limit again.
    pub(crate) fn refill(&self) {
        self.work.set(self.limit);
    }

    /// The tree.
    pub(crate) fn topology(&self) -> &'a Topology {
        self.room.topology()
    }

    /// One domain.
    pub(crate) fn domain(&self, domain: DomainIdx) -> &'a Domain {
        self.topology().domain(domain)
    }

    /// Microseconds of the job's life during which a node would be wholly free.
    pub(crate) fn overlap(&self, node: NodeIdx) -> i64 {
        self.end.0.saturating_sub(self.room.wholly_free_at(node).0.max(self.start.0)).max(0)
    }

    /// The job's life in microseconds, within the horizon.
    pub(crate) fn life(&self) -> i64 {
        (self.end.0 - self.start.0).max(0)
    }

    /// Whether nothing runs on a node when the job starts.
    pub(crate) fn is_whole(&self, node: NodeIdx) -> bool {
        self.room.wholly_free_at(node) <= self.start
    }

    /// Parts of a domain: its loose nodes (all nodes at the narrowest level), then its narrower domains.
    pub(crate) fn parts(&self, domain: DomainIdx) -> impl Iterator<Item = Part> + use<'a, R> {
        let domain = self.domain(domain);
        own_nodes(domain).map(Part::Node).chain(domain.child_range().map(Part::Domain))
    }

    /// Whether a node is a slice domain of its own for a kind.
    pub(crate) fn cut_by_node(&self, node: NodeIdx, kind: usize) -> bool {
        self.cells[kind].is_some_and(|depth| self.domain(self.topology().innermost(node)).depth < depth)
    }

    /// Pods of a kind that a node holds, in whole slices where a slice may not leave it.
    pub(crate) fn node_cap(&self, node: NodeIdx, kind: usize) -> u32 {
        let pods = self.room.pods(node, self.kinds[kind].shape);
        if pods > 0 && self.cut_by_node(node, kind) { whole(pods, self.kinds[kind].slice) } else { pods }
    }

    /// Pods of a kind that a domain holds on its own, in whole slices where they may not leave it.
    pub(crate) fn cap(&self, domain: DomainIdx, kind: usize) -> u64 {
        let asked = &self.kinds[kind];
        let slice = u64::from(asked.slice);
        let pods = self.room.pods_in(domain, asked.shape);
        let depth = self.domain(domain).depth;
        match self.cells[kind] {
            None => pods,
            Some(cell) if cell < depth => pods,
            Some(_) if pods < slice => 0,
            Some(cell) if cell == depth => pods / slice * slice,
            Some(_) => self.parts(domain).map(|part| self.part_cap(part, kind)).sum(),
        }
    }

    /// Pods of a kind that a part holds.
    pub(crate) fn part_cap(&self, part: Part, kind: usize) -> u64 {
        match part {
            Part::Node(node) => u64::from(self.node_cap(node, kind)),
            Part::Domain(domain) => self.cap(domain, kind),
        }
    }

    /// Pods of a kind without regard to slices, of a part.
    pub(crate) fn part_free(&self, part: Part, kind: usize) -> u64 {
        match part {
            Part::Node(node) => u64::from(self.room.pods(node, self.kinds[kind].shape)),
            Part::Domain(domain) => self.room.pods_in(domain, self.kinds[kind].shape),
        }
    }

    /// Domains of the wanted level that nodes (in row order) use; a node outside them counts as one.
    pub(crate) fn domains_used(&self, nodes: &[NodeIdx]) -> u32 {
        let at = |n: &NodeIdx| match self.topology().domain_at(*n, self.wanted) {
            Some(domain) => Part::Domain(domain),
            None => Part::Node(*n),
        };
        u32::try_from(nodes.chunk_by(|a, b| at(a) == at(b)).count()).unwrap_or(u32::MAX)
    }

    /// Whether nodes lie in one domain of the level above the wanted one: then no wider level can have fewer.
    pub(crate) fn shares_parent(&self, nodes: &[NodeIdx]) -> bool {
        let parent = |n: &NodeIdx| self.topology().domain_at(*n, Depth(self.wanted.0.saturating_sub(1)));
        nodes.first().and_then(parent).is_some_and(|first| nodes.iter().all(|n| parent(n) == Some(first)))
    }

    /// Keeps of equal parts those with the narrowest domain around that has room for all a gang may grow to.
    pub(crate) fn keep_roomiest(&self, parts: &mut Vec<Part>) {
        if parts.len() < 2 || self.kinds.iter().all(|k| k.most <= k.pods) {
            return;
        }
        let reach = |part: &Part| {
            let mut at = match part {
                Part::Domain(domain) => Some(*domain),
                Part::Node(node) => Some(self.topology().innermost(*node)),
            };
            let mut levels = u8::from(matches!(part, Part::Node(_)));
            while let Some(domain) = at.filter(|d| !self.could_grow_in(*d)) {
                at = self.domain(domain).parent;
                levels += 1;
            }
            levels
        };
        let least = parts.iter().map(reach).min();
        parts.retain(|part| Some(reach(part)) == least);
    }

    fn could_grow_in(&self, domain: DomainIdx) -> bool {
        self.kinds.iter().all(|kind| self.room.pods_in(domain, kind.shape) >= u64::from(kind.most))
    }

    /// Whether each kind on its own fits in a domain: no answer is certain, and cheap.
    pub(crate) fn may_hold(&self, domain: DomainIdx) -> bool {
        (0..self.kinds.len()).all(|kind| self.cap(domain, kind) >= u64::from(self.kinds[kind].pods))
    }
}

/// The largest multiple of `slice` that is not more than `pods`.
pub(crate) fn whole(pods: u32, slice: u32) -> u32 {
    pods / slice * slice
}

/// A number of pods as gangs count them.
pub(crate) fn clip(pods: u64) -> u32 {
    u32::try_from(pods).unwrap_or(u32::MAX)
}

/// Nodes of a domain that are in no narrower one.
pub(crate) fn own_nodes(domain: &Domain) -> impl Iterator<Item = NodeIdx> + use<> {
    let end = if domain.children.is_empty() { domain.nodes.end } else { domain.nodes.start + domain.loose };
    (domain.nodes.start..end).map(NodeIdx)
}

fn life_end(ask: &Ask<'_>) -> Time {
    Time(ask.predicted_end.0.min(ask.start.0.saturating_add(HORIZON)).max(ask.start.0))
}

/// The depths that matter in one pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Depths {
    /// All seats inside one domain of this depth.
    pub(crate) required: Depth,
    /// Fewest domains of this depth.
    pub(crate) wanted: Depth,
}

impl Depths {
    /// The depths of a job in a pool; none if the pool lacks the required level.
    pub(crate) fn of(spec: &JobSpec, pool: &Pool) -> Option<Self> {
        let required = match &spec.locality.required {
            Some(level) => pool.depth_of(level)?,
            None => Depth::ROOT,
        };
        let preferred = spec.locality.preferred.as_ref().and_then(|level| pool.depth_of(level));
        let wanted = match spec.communication {
            Communication::Independent => required,
            _ => preferred.unwrap_or_else(|| pool.narrowest()).max(required),
        };
        Some(Self { required, wanted })
    }
}
