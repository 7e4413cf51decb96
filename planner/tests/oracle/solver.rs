//! The exact solver: every way to load each node, in tree order, remembering what is left.

use crate::place_support::World;
use berth_planner::ids::{DomainIdx, NodeIdx, PoolIdx};
use berth_planner::job::{Communication, JobSpec};
use berth_planner::topology::{Depth, Topology};
use std::collections::HashMap;

/// A set of pods to place on a list of nodes in tree order.
pub struct Solver<'w> {
    world: &'w World,
    spec: &'w JobSpec,
    sizes: &'w [u32],
    nodes: Vec<NodeIdx>,
    /// For each role and position in `nodes`: an id of the slice domain.
    cells: Vec<Vec<u64>>,
    /// For each counted level, the wanted one first, and position: an id of the domain.
    counted: Vec<Vec<u64>>,
    memo: HashMap<State, Option<Vec<u32>>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    at: usize,
    left: Vec<u32>,
    /// Pods of the open slice domain beyond whole slices, by role.
    open: Vec<u32>,
    /// Whether the current domain of each counted level is in use.
    used: Vec<bool>,
}

/// An id of a node's domain at a depth: nodes outside every domain have one each.
pub fn cell_at(topology: &Topology, node: NodeIdx, depth: Depth) -> u64 {
    topology.domain_at(node, depth).map_or(1 << 40 | u64::from(node.0), |d| u64::from(d.0))
}

impl<'w> Solver<'w> {
    /// None where the pool lacks a level that a slice names.
    pub fn new(
        world: &'w World,
        spec: &'w JobSpec,
        sizes: &'w [u32],
        nodes: Vec<NodeIdx>,
        counted: &[Depth],
    ) -> Option<Self> {
        let topology = &world.topology;
        let mut cells = Vec::new();
        for (role, pods) in spec.roles.iter().zip(sizes) {
            let mut row = Vec::new();
            for node in &nodes {
                let pool = topology.pool(topology.pool_of(*node));
                row.push(match &role.slice {
                    Some(slice) if *pods > 0 => cell_at(topology, *node, pool.depth_of(&slice.within)?),
                    _ => 0,
                });
            }
            cells.push(row);
        }
        let counted =
            counted.iter().map(|depth| nodes.iter().map(|n| cell_at(topology, *n, *depth)).collect()).collect();
        Some(Self { world, spec, sizes, nodes, cells, counted, memo: HashMap::new() })
    }

    /// The fewest domains of each counted level, lexicographically; none if the pods do not fit.
    pub fn solve(&mut self) -> Option<Vec<u32>> {
        let roles = self.spec.roles.len();
        let start =
            State { at: 0, left: self.sizes.to_vec(), open: vec![0; roles], used: vec![false; self.counted.len()] };
        self.best(&start)
    }

    pub fn best(&mut self, state: &State) -> Option<Vec<u32>> {
        if state.at == self.nodes.len() {
            let done = state.left.iter().all(|l| *l == 0) && state.open.iter().all(|o| *o == 0);
            return done.then(|| vec![0; self.counted.len()]);
        }
        if let Some(known) = self.memo.get(state) {
            return known.clone();
        }
        let mut here = state.clone();
        for role in 0..here.open.len() {
            let fresh = state.at == 0 || self.cells[role][state.at] != self.cells[role][state.at - 1];
            if fresh && here.open[role] != 0 {
                self.memo.insert(state.clone(), None);
                return None;
            }
        }
        for (level, cells) in self.counted.iter().enumerate() {
            if state.at > 0 && cells[state.at] != cells[state.at - 1] {
                here.used[level] = false;
            }
        }
        let mut best: Option<Vec<u32>> = None;
        for counts in self.loads(self.nodes[state.at], &here.left) {
            let mut next = here.clone();
            next.at += 1;
            let any = counts.iter().any(|c| *c > 0);
            for (role, count) in counts.iter().enumerate() {
                next.left[role] -= count;
                let size = self.spec.roles[role].slice.as_ref().map_or(1, |s| s.size);
                next.open[role] = (next.open[role] + count) % size;
            }
            let opened: Vec<u32> = here.used.iter().map(|used| u32::from(any && !used)).collect();
            next.used.iter_mut().for_each(|used| *used |= any);
            if let Some(rest) = self.best(&next) {
                let total: Vec<u32> = rest.iter().zip(&opened).map(|(a, b)| a + b).collect();
                if best.as_ref().is_none_or(|b| total < *b) {
                    best = Some(total);
                }
            }
        }
        self.memo.insert(state.clone(), best.clone());
        best
    }

    /// Every way to load one node.
    pub fn loads(&self, node: NodeIdx, left: &[u32]) -> Vec<Vec<u32>> {
        let mut ways = vec![Vec::new()];
        for (role, most) in left.iter().enumerate() {
            let may = self.world.shapes.get(self.spec.roles[role].shape).eligible.contains(node);
            let most = if may { *most } else { 0 };
            ways = ways
                .into_iter()
                .flat_map(|w: Vec<u32>| (0..=most).map(move |c| w.iter().copied().chain([c]).collect::<Vec<u32>>()))
                .filter(|w| self.fits(node, w))
                .collect();
        }
        ways
    }

    pub fn fits(&self, node: NodeIdx, counts: &[u32]) -> bool {
        let free = &self.world.free[node.row()].0;
        free.iter().enumerate().all(|(resource, have)| {
            let need: i64 = counts
                .iter()
                .zip(&self.spec.roles)
                .map(|(c, r)| i64::from(*c) * self.world.shapes.get(r.shape).requests.0.get(resource).unwrap_or(&0))
                .sum();
            need <= *have
        })
    }
}

/// The exact answer for one domain: fewest domains of the wanted level and the wider ones up to the required level.
pub fn in_domain(world: &World, spec: &JobSpec, sizes: &[u32], domain: DomainIdx) -> Option<Vec<u32>> {
    let counted = counted_depths(world, spec, domain);
    let nodes = world.topology.domain(domain).node_range().collect();
    Solver::new(world, spec, sizes, nodes, &counted)?.solve()
}

pub fn counted_depths(world: &World, spec: &JobSpec, domain: DomainIdx) -> Vec<Depth> {
    let here = world.topology.domain(domain);
    let pool = world.topology.pool(here.pool);
    let required = spec.locality.required.as_ref().map_or(Some(Depth::ROOT), |l| pool.depth_of(l));
    let required = required.expect("only pools that have the level are solved");
    let preferred = spec.locality.preferred.as_ref().and_then(|l| pool.depth_of(l));
    let wanted = preferred.unwrap_or_else(|| pool.narrowest()).max(required);
    (required.0..=wanted.0).rev().map(Depth).collect()
}

/// The exact answers: (domains by level, the domain searched), for every place that the topology allows.
pub fn solve(world: &World, spec: &JobSpec, sizes: &[u32], within: Option<DomainIdx>) -> Vec<(Vec<u32>, PoolIdx)> {
    let topology = &world.topology;
    let inside = |n: &NodeIdx| within.is_none_or(|d| topology.domain(d).nodes.contains(&n.0));
    let all: Vec<NodeIdx> = (0..topology.node_count()).map(NodeIdx::of).filter(inside).collect();
    let mut answers = Vec::new();
    for node in &all {
        let alone = JobSpec { roles: spec.roles.clone(), ..spec.clone() };
        let mut bare = alone.clone();
        bare.roles.iter_mut().for_each(|r| r.slice = None);
        if Solver::new(world, &bare, sizes, vec![*node], &[]).is_some_and(|mut s| s.solve().is_some()) {
            answers.push((Vec::new(), topology.pool_of(*node)));
        }
    }
    for (row, pool) in topology.pools().iter().enumerate() {
        let Some(depth) = spec.locality.required.as_ref().map_or(Some(Depth::ROOT), |l| pool.depth_of(l)) else {
            continue;
        };
        for domain in topology.domains_at(PoolIdx::of(row), depth) {
            let nodes: Vec<NodeIdx> = topology.domain(domain).node_range().filter(|n| inside(n)).collect();
            let counted = counted_depths(world, spec, domain);
            let found = Solver::new(world, spec, sizes, nodes, &counted).and_then(|mut s| s.solve());
            answers.extend(found.map(|f| (f, PoolIdx::of(row))));
        }
    }
    let spans = spec.communication == Communication::Independent && spec.locality.required.is_none();
    if spans {
        // Pools that lack a slice's level hold the gang on one node or not at all.
        let has = |n: &NodeIdx| {
            let pool = topology.pool(topology.pool_of(*n));
            let mut slices =
                spec.roles.iter().zip(sizes).filter(|(_, p)| **p > 0).filter_map(|(r, _)| r.slice.as_ref());
            slices.all(|s| pool.depth_of(&s.within).is_some())
        };
        let nodes: Vec<NodeIdx> = all.into_iter().filter(has).collect();
        if Solver::new(world, spec, sizes, nodes, &[]).is_some_and(|mut s| s.solve().is_some()) {
            answers.push((Vec::new(), PoolIdx(0)));
        }
    }
    answers
}
