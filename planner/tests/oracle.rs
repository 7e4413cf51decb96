//! Laws 9 and 11 of placement against an exact solver that shares nothing with the planner's search: it walks the nodes
//! in tree order, tries every way to load each and remembers what is left. Small random instances: several kinds of
//! pods, slices, unknown paths, several pools, nodes that not every pod may use.
//!
//! `BERTH_LAW_CASES` sets the number of instances of each law.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)] // the lints are for code outside tests
#![allow(missing_docs)]

mod place_support;

use berth_planner::ids::{DomainIdx, NodeIdx, PoolIdx};
use berth_planner::job::{Communication, JobSpec, Placement, Seat};
use berth_planner::place::{Ask, NoFit, candidates, extend, fits, place, replace};
use berth_planner::room::{FixedRoom, Room};
use berth_planner::shape::NodeSet;
use berth_planner::time::Time;
use berth_planner::topology::{Depth, PoolSpec, Topology};
use place_support::{World, ask, floors, job, pool, role, sliced};
use std::collections::HashMap;

fn cases() -> u64 {
    std::env::var("BERTH_LAW_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(4000)
}

/// SplitMix64: instances are a function of their number.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % sides
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.roll(100) < percent
    }

    fn of<'t>(&mut self, options: &[&'t str]) -> &'t str {
        options[self.roll(options.len() as u64) as usize]
    }
}

const LEVELS: [&str; 3] = ["zone", "block", "rack"];

fn world(dice: &mut Dice) -> World {
    let pools: Vec<PoolSpec> = (0..1 + dice.roll(2))
        .map(|p| {
            let skip = dice.roll(4) as usize;
            pool(&format!("p{p}"), &LEVELS[skip.min(3)..])
        })
        .collect();
    let count = 1 + dice.roll(8) as usize;
    let mut rows: Vec<(usize, String, String, [i64; 2])> = Vec::new();
    for node in 0..count {
        let pool = dice.roll(pools.len() as u64) as usize;
        let mut path = Vec::new();
        for _ in 0..pools[pool].levels.len() {
            if dice.chance(8) {
                break;
            }
            let more = path.is_empty() && dice.chance(30);
            path.push(format!("d{}", dice.roll(2 + u64::from(more))));
        }
        let free = [dice.roll(5) as i64, dice.roll(7) as i64];
        rows.push((pool, path.join("/"), format!("n{node}"), free));
    }
    let nodes: Vec<(usize, &str, &str, &[i64])> =
        rows.iter().map(|r| (r.0, r.1.as_str(), r.2.as_str(), r.3.as_slice())).collect();
    World::new(&pools, &nodes)
}

fn random_job(dice: &mut Dice, world: &mut World) -> JobSpec {
    let nodes = world.topology.node_count();
    let shapes: Vec<_> = (0..1 + dice.roll(3))
        .map(|row| {
            let requests = [dice.roll(3) as i64, dice.roll(4) as i64];
            if dice.chance(20) {
                let bits = dice.roll(1 << nodes);
                world.shape_on(&requests, NodeSet::of(nodes, |n| bits >> n.0 & 1 == 1), &format!("f{row}"))
            } else {
                world.shape(&requests)
            }
        })
        .collect();
    let levels = ["zone", "block", "rack", "node"];
    let mut left = 9;
    let mut roles = Vec::new();
    for row in 0..1 + dice.roll(3) {
        let shape = shapes[dice.roll(shapes.len() as u64) as usize];
        let name = format!("r{row}");
        if dice.chance(30) {
            let size = 2 + dice.roll(2) as u32;
            let slices = (1 + dice.roll(3) as u32).min(left / size);
            if slices > 0 {
                left -= slices * size;
                roles.push(sliced(&name, shape, slices * size, size, dice.of(&levels)));
            }
        } else {
            let pods = (1 + dice.roll(5) as u32).min(left);
            if pods > 0 {
                left -= pods;
                roles.push(role(&name, shape, pods));
            }
        }
    }
    let mut spec = job(roles);
    let depth = dice.roll(4) as usize;
    if dice.chance(50) {
        spec.locality.required = Some(levels[depth].into());
    }
    if dice.chance(40) {
        let least = if spec.locality.required.is_some() { depth } else { 0 };
        spec.locality.preferred = Some(levels[least + dice.roll(4 - least as u64) as usize].into());
    }
    if dice.chance(10) {
        spec.communication = Communication::Independent;
    }
    spec
}

// --- the exact solver ---

/// A set of pods to place on a list of nodes in tree order.
struct Solver<'w> {
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
struct State {
    at: usize,
    left: Vec<u32>,
    /// Pods of the open slice domain beyond whole slices, by role.
    open: Vec<u32>,
    /// Whether the current domain of each counted level is in use.
    used: Vec<bool>,
}

/// An id of a node's domain at a depth: nodes outside every domain have one each.
fn cell_at(topology: &Topology, node: NodeIdx, depth: Depth) -> u64 {
    topology.domain_at(node, depth).map_or(1 << 40 | u64::from(node.0), |d| u64::from(d.0))
}

impl<'w> Solver<'w> {
    /// None where the pool lacks a level that a slice names.
    fn new(
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
    fn solve(&mut self) -> Option<Vec<u32>> {
        let roles = self.spec.roles.len();
        let start =
            State { at: 0, left: self.sizes.to_vec(), open: vec![0; roles], used: vec![false; self.counted.len()] };
        self.best(&start)
    }

    fn best(&mut self, state: &State) -> Option<Vec<u32>> {
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
    fn loads(&self, node: NodeIdx, left: &[u32]) -> Vec<Vec<u32>> {
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

    fn fits(&self, node: NodeIdx, counts: &[u32]) -> bool {
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
fn in_domain(world: &World, spec: &JobSpec, sizes: &[u32], domain: DomainIdx) -> Option<Vec<u32>> {
    let counted = counted_depths(world, spec, domain);
    let nodes = world.topology.domain(domain).node_range().collect();
    Solver::new(world, spec, sizes, nodes, &counted)?.solve()
}

fn counted_depths(world: &World, spec: &JobSpec, domain: DomainIdx) -> Vec<Depth> {
    let here = world.topology.domain(domain);
    let pool = world.topology.pool(here.pool);
    let required = spec.locality.required.as_ref().map_or(Some(Depth::ROOT), |l| pool.depth_of(l));
    let required = required.expect("only pools that have the level are solved");
    let preferred = spec.locality.preferred.as_ref().and_then(|l| pool.depth_of(l));
    let wanted = preferred.unwrap_or_else(|| pool.narrowest()).max(required);
    (required.0..=wanted.0).rev().map(Depth).collect()
}

/// The exact answers: (domains by level, the domain searched), for every place that the topology allows.
fn solve(world: &World, spec: &JobSpec, sizes: &[u32], within: Option<DomainIdx>) -> Vec<(Vec<u32>, PoolIdx)> {
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

// --- what every answer must satisfy ---

fn check(world: &World, spec: &JobSpec, sizes: &[u32], placement: &Placement, within: Option<DomainIdx>) {
    let topology = &world.topology;
    for (row, size) in sizes.iter().enumerate() {
        let indexes: Vec<u32> =
            placement.seats.iter().filter(|s| usize::from(s.role) == row).map(|s| s.index).collect();
        assert_eq!(indexes, (0..*size).collect::<Vec<u32>>(), "role {row} has all its indexes, in order");
    }
    assert_eq!(placement.len(), sizes.iter().sum::<u32>() as usize);
    let mut free = world.free.clone();
    for seat in &placement.seats {
        let shape = world.shapes.get(spec.roles[usize::from(seat.role)].shape);
        assert!(shape.eligible.contains(seat.node));
        free[seat.node.row()].add(&shape.requests, -1);
        assert!(free[seat.node.row()].0.iter().all(|a| *a >= 0), "over capacity");
        assert!(within.is_none_or(|d| topology.domain(d).nodes.contains(&seat.node.0)));
    }
    let together = |nodes: Vec<NodeIdx>, level: &str| {
        let first = nodes[0];
        let pool = topology.pool(topology.pool_of(first));
        nodes.iter().all(|n| *n == first)
            || pool.depth_of(level).is_some_and(|d| {
                nodes.iter().all(|n| topology.pool_of(*n) == topology.pool_of(first))
                    && nodes.iter().all(|n| cell_at(topology, *n, d) == cell_at(topology, first, d))
            })
    };
    if let Some(level) = &spec.locality.required {
        assert!(together(placement.nodes(), level), "required level violated");
    } else if spec.communication != Communication::Independent {
        let pool = topology.pool_of(placement.seats[0].node);
        assert!(placement.nodes().iter().all(|n| topology.pool_of(*n) == pool), "spans pools");
    }
    for (row, role) in spec.roles.iter().enumerate() {
        let Some(slice) = &role.slice else { continue };
        let seats: Vec<NodeIdx> =
            placement.seats.iter().filter(|s| usize::from(s.role) == row).map(|s| s.node).collect();
        for chunk in seats.chunks(slice.size as usize) {
            assert!(together(chunk.to_vec(), &slice.within), "slice torn");
        }
    }
}

/// Domains by level of a placement, the wanted level first.
fn domains_of(world: &World, spec: &JobSpec, placement: &Placement) -> Vec<u32> {
    let topology = &world.topology;
    let root = topology.pool(topology.pool_of(placement.seats[0].node)).root;
    let counted = counted_depths(world, spec, root);
    let count = |depth: &Depth| {
        let mut cells: Vec<u64> = placement.nodes().iter().map(|n| cell_at(topology, *n, *depth)).collect();
        cells.sort_unstable();
        cells.dedup();
        cells.len() as u32
    };
    counted.iter().map(count).collect()
}

fn instance(number: u64) -> (World, JobSpec, Vec<u32>, u64) {
    instance_of(number, false)
}

/// With `wide`, most jobs may use a whole pool and so several domains of the wanted level.
fn instance_of(number: u64, wide: bool) -> (World, JobSpec, Vec<u32>, u64) {
    let mut dice = Dice(number.wrapping_mul(0xD129_0F1B_CA5D_1E2F) ^ 0xBE57);
    let mut world = world(&mut dice);
    let mut spec = random_job(&mut dice, &mut world);
    while spec.roles.is_empty() {
        spec = random_job(&mut dice, &mut world);
    }
    if wide && dice.chance(80) {
        spec.locality.required = None;
        spec.communication = Communication::AllReduce;
        world.free.iter_mut().for_each(|f| f.0[1..].iter_mut().for_each(|a| *a += 1));
    }
    let sizes = floors(&spec);
    (world, spec, sizes, dice.roll(u64::MAX))
}

/// Some nodes run something for a while, some are promised, some are suspect: none of it may change what fits.
fn room<'w>(world: &'w World, salt: u64) -> FixedRoom<'w> {
    let mut dice = Dice(salt);
    let mut room = world.room();
    for row in 0..world.topology.node_count() {
        let node = NodeIdx::of(row);
        if dice.chance(50) {
            room.set_wholly_free_at(node, Time::from_secs(dice.roll(6000) as i64));
        }
        room.set_promised(node, dice.chance(20));
        room.set_health(node, dice.roll(2) as u8);
    }
    room
}

#[test]
fn a_no_agrees_with_the_exact_solver_and_a_yes_holds_every_law() {
    let (mut yes, mut no) = (0u64, 0u64);
    for number in 0..cases() {
        let (world, spec, sizes, salt) = instance(number);
        let exact = solve(&world, &spec, &sizes, None);
        match place(&room(&world, salt), &ask(&spec, &sizes)) {
            Ok(found) => {
                check(&world, &spec, &sizes, &found.placement, None);
                assert!(!exact.is_empty(), "instance {number}: placed what cannot be placed");
                yes += 1;
            }
            Err(NoFit::Proved) => {
                assert!(exact.is_empty(), "instance {number}: a false no, {exact:?}");
                no += 1;
            }
            Err(other) => panic!("instance {number}: {other:?} on a small instance"),
        }
    }
    eprintln!("law 9: {} instances, {yes} placed, {no} proved impossible", cases());
    assert!(yes * 5 > cases() && no * 10 > cases(), "instances must be of both kinds: {yes} and {no}");
}

#[test]
fn a_no_for_one_domain_agrees_with_the_exact_solver() {
    let (mut yes, mut no) = (0u64, 0u64);
    for number in 0..cases() {
        let (world, spec, sizes, salt) = instance(number);
        let room = room(&world, salt);
        for domain in candidates(&world.topology, &spec) {
            let exact = !solve(&world, &spec, &sizes, Some(domain)).is_empty();
            let answer = fits(&room, &ask(&spec, &sizes), domain);
            assert_eq!(answer, if exact { Ok(()) } else { Err(NoFit::Proved) }, "instance {number}, {domain:?}");
            let placed = place(&room, &Ask { within: Some(domain), ..ask(&spec, &sizes) });
            assert_eq!(placed.is_ok(), exact, "instance {number}, {domain:?}: place and fits differ");
            if let Ok(found) = placed {
                check(&world, &spec, &sizes, &found.placement, Some(domain));
            }
            if exact { yes += 1 } else { no += 1 }
        }
    }
    eprintln!("law 9 by domain: {yes} fit, {no} proved impossible");
}

#[test]
fn the_candidates_together_answer_as_the_whole() {
    for number in 0..cases() {
        let (world, spec, sizes, salt) = instance(number);
        if spec.communication == Communication::Independent {
            continue;
        }
        let room = room(&world, salt);
        let whole = place(&room, &ask(&spec, &sizes)).is_ok();
        let any = candidates(&world.topology, &spec)
            .into_iter()
            .any(|domain| fits(&room, &ask(&spec, &sizes), domain).is_ok());
        assert_eq!(whole, any, "instance {number}");
    }
}

#[test]
fn no_answer_uses_more_domains_than_the_exact_solver() {
    let (mut several, mut all) = (0u64, 0u64);
    while several * 4 < cases() {
        let (world, spec, sizes, salt) = instance_of(all, true);
        let number = all;
        all += 1;
        assert!(all < 100 * cases(), "too few instances need several domains: {several}");
        if spec.communication == Communication::Independent {
            continue;
        }
        let Ok(found) = place(&room(&world, salt), &ask(&spec, &sizes)) else { continue };
        let exact = solve(&world, &spec, &sizes, None);
        let fewest = exact.iter().map(|(v, _)| v.first().copied().unwrap_or(1)).min().unwrap();
        assert_eq!(found.domains, fewest, "instance {number}: domains of the wanted level");
        if fewest > 1 {
            // Inside its pool it also uses the fewest of the wider levels.
            let pool = world.topology.pool_of(found.placement.seats[0].node);
            let best = exact.iter().filter(|(_, p)| *p == pool).map(|(v, _)| v).min().unwrap();
            assert_eq!(domains_of(&world, &spec, &found.placement), *best, "instance {number}: wider levels");
            several += 1;
        }
    }
    eprintln!("law 11: {all} instances, {several} in several domains");
}

/// Nodes that a gang at `placement` may grow to, by the law and not by the planner.
fn reach(world: &World, spec: &JobSpec, placement: &Placement) -> Vec<NodeIdx> {
    let topology = &world.topology;
    let first = placement.seats[0].node;
    let pool = topology.pool(topology.pool_of(first));
    let all = (0..topology.node_count()).map(NodeIdx::of);
    match &spec.locality.required {
        None if spec.communication == Communication::Independent => all.collect(),
        None => all.filter(|n| topology.pool_of(*n) == topology.pool_of(first)).collect(),
        Some(level) => {
            let same = |n: &NodeIdx| {
                *n == first
                    || (topology.pool_of(*n) == topology.pool_of(first)
                        && pool.depth_of(level).is_some_and(|d| {
                            topology.domain_at(first, d).is_some()
                                && topology.domain_at(*n, d) == topology.domain_at(first, d)
                        }))
            };
            all.filter(same).collect()
        }
    }
}

#[test]
#[ignore = "open: growth finds room where the exact search leaves none (instance 419)"]
fn growth_finds_room_exactly_where_the_laws_leave_some() {
    let (mut grown, mut full) = (0u64, 0u64);
    for number in 0..cases() {
        let (world, spec, sizes, salt) = instance(number);
        let mut room = room(&world, salt);
        let Ok(found) = place(&room, &ask(&spec, &sizes)) else { continue };
        for seat in &found.placement.seats {
            room.take(seat.node, spec.roles[usize::from(seat.role)].shape, 1);
        }
        let row = (salt % spec.roles.len() as u64) as usize;
        let (role, step) = (&spec.roles[row], spec.roles[row].step());
        let reach = reach(&world, &spec, &found.placement);
        let cell = |n: &NodeIdx| match &role.slice {
            None => 0,
            Some(slice) => {
                let pool = world.topology.pool(world.topology.pool_of(*n));
                let depth = pool.depth_of(&slice.within);
                depth.map_or(1 << 40 | u64::from(n.0), |d| cell_at(&world.topology, *n, d))
            }
        };
        let mut sums: HashMap<u64, u32> = HashMap::new();
        for node in &reach {
            *sums.entry(cell(node)).or_default() += room.pods(*node, role.shape);
        }
        let some = sums.values().any(|pods| *pods >= step);
        let nodes = extend(&room, &spec, &found.placement, row, step, None);
        assert_eq!(nodes.is_some(), some, "instance {number}");
        let Some(nodes) = nodes else {
            full += 1;
            continue;
        };
        let mut larger = sizes.clone();
        larger[row] += step;
        let mut seats = found.placement.seats.clone();
        seats.extend((sizes[row]..).zip(&nodes).map(|(index, node)| Seat { role: row as u8, index, node: *node }));
        seats.sort_unstable();
        check(&world, &spec, &larger, &Placement { seats }, None);
        grown += 1;
    }
    eprintln!("growth: {grown} grew, {full} had no room");
    assert!(grown * 20 > cases() && full * 20 > cases());
}

#[test]
fn repair_keeps_every_law_and_uses_no_lost_node() {
    let mut repaired = 0u64;
    for number in 0..cases() {
        let (world, spec, sizes, salt) = instance(number);
        let Ok(found) = place(&room(&world, salt), &ask(&spec, &sizes)) else { continue };
        let nodes = found.placement.nodes();
        let lost = nodes[(salt % nodes.len() as u64) as usize];
        let mut free = world.free.clone();
        free[lost.row()].0.iter_mut().for_each(|a| *a = 0);
        let mut room = FixedRoom::new(&world.topology, &world.shapes, free);
        let rank = |s: &Seat| spec.first_rank(usize::from(s.role)) + s.index;
        let (gone, kept): (Vec<Seat>, Vec<Seat>) = found.placement.seats.iter().partition(|s| s.node == lost);
        for seat in &kept {
            room.take(seat.node, spec.roles[usize::from(seat.role)].shape, 1);
        }
        let ranks: Vec<u32> = gone.iter().map(rank).collect();
        let Some(swaps) = replace(&room, &spec, &found.placement, &ranks) else { continue };
        assert_eq!(swaps.iter().map(|s| s.0).collect::<Vec<_>>(), ranks, "instance {number}: every lost rank once");
        assert!(swaps.iter().all(|s| s.1 != lost), "instance {number}: the lost node again");
        let mut seats = kept;
        seats.extend(gone.iter().zip(&swaps).map(|(seat, (_, node))| Seat { node: *node, ..*seat }));
        seats.sort_unstable();
        check(&world, &spec, &sizes, &Placement { seats }, None);
        repaired += 1;
    }
    eprintln!("repair: {repaired} repaired");
    assert!(repaired * 30 > cases(), "too few repairs: {repaired}");
}

#[test]
fn the_same_question_has_the_same_answer() {
    for number in 0..cases().min(500) {
        let (world, spec, sizes, salt) = instance(number);
        let (one, two) = (room(&world, salt), room(&world, salt));
        assert_eq!(place(&one, &ask(&spec, &sizes)), place(&two, &ask(&spec, &sizes)), "instance {number}");
        assert_eq!(one.topology().node_count(), two.topology().node_count());
    }
}

#[test]
fn the_exact_solver_itself_knows_the_worked_examples() {
    let mut world = World::racks(&["rack"], &[("a", &[3]), ("b", &[3]), ("c", &[2]), ("d", &[1])]);
    let worker = world.shape(&[1]);
    let spec = job(vec![role("w", worker, 7)]);
    let root = world.topology.pools()[0].root;
    assert_eq!(in_domain(&world, &spec, &[7], root), Some(vec![3, 1]));
    assert_eq!(in_domain(&world, &spec, &[10], root), None);
    let spec = job(vec![sliced("w", worker, 8, 2, "rack")]);
    assert_eq!(in_domain(&world, &spec, &[6], root), Some(vec![3, 1]));
    assert_eq!(in_domain(&world, &spec, &[8], root), None);
}
