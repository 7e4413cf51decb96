//! Laws 9 and 11 of placement against an exact solver that shares nothing with the planner's search: it walks the nodes
//! in tree order, tries every way to load each and remembers what is left. Small random instances: several kinds of
//! pods, slices, unknown paths, several pools, nodes that not every pod may use.
//!
//! `BERTH_LAW_CASES` sets the number of instances of each law.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)] // the lints are for code outside tests
#![allow(missing_docs)]
#![allow(unreachable_pub)]

#[path = "../place_support/mod.rs"]
mod place_support;

mod instances;
mod judge;
mod solver;

use crate::place_support::{World, ask, job, role, sliced};
use berth_planner::ids::NodeIdx;
use berth_planner::job::{Communication, JobSpec, Placement, Seat};
use berth_planner::place::{Ask, NoFit, candidates, extend, fits, place, replace};
use berth_planner::room::{FixedRoom, Room};
use instances::*;
use judge::*;
use solver::*;
use std::collections::HashMap;

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
