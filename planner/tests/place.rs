//! Where single jobs go: worked examples of the field, each with the outcome that is right.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)] // the lints are for code outside tests
#![allow(missing_docs)]

mod place_support;

use berth_planner::job::{Communication, Placement, Seat};
use berth_planner::place::{Ask, Never, NoFit, candidates, extend, fits, never_fits, place, quality, replace};
use berth_planner::time::Time;
use place_support::{World, ask, floors, job, placed, pool, preferred, required, role, sliced};

const HOUR: i64 = 3600;

/// Pods by rack, in the order of first use.
fn by_prefix(names: &[String]) -> Vec<(String, usize)> {
    let mut counted: Vec<(String, usize)> = Vec::new();
    for name in names {
        let rack = name.rsplit_once('-').expect("known to the test").0.to_owned();
        match counted.iter_mut().find(|c| c.0 == rack) {
            Some(c) => c.1 += 1,
            None => counted.push((rack, 1)),
        }
    }
    counted
}

/// Pods by rack, most first.
fn sizes(names: &[String]) -> Vec<usize> {
    let mut counts: Vec<usize> = by_prefix(names).into_iter().map(|c| c.1).collect();
    counts.sort_unstable_by(|a, b| b.cmp(a));
    counts
}

#[test]
fn seven_pods_over_free_3_3_2_1_take_3_3_and_the_single() {
    let mut world = World::racks(&["rack"], &[("a", &[1, 1, 1]), ("b", &[1, 1, 1]), ("c", &[1, 1]), ("d", &[1])]);
    let worker = world.shape(&[1]);
    let found = placed(&world.room(), &job(vec![role("w", worker, 7)])).expect("known to the test");
    assert_eq!(found.domains, 3);
    let names = world.names(&found.placement);
    assert_eq!(by_prefix(&names), [("a".into(), 3), ("b".into(), 3), ("d".into(), 1)]);
}

#[test]
fn twelve_pods_in_slices_of_two_over_free_6_5_4_3_2_take_6_4_2() {
    let racks: Vec<(&str, &[i64])> =
        vec![("a", &[1; 6]), ("b", &[1; 5]), ("c", &[1; 4]), ("d", &[1; 3]), ("e", &[1; 2])];
    let mut world = World::racks(&["rack"], &racks);
    let worker = world.shape(&[1]);
    let found = placed(&world.room(), &job(vec![sliced("w", worker, 12, 2, "rack")])).expect("known to the test");
    let names = world.names(&found.placement);
    assert_eq!(by_prefix(&names), [("a".into(), 6), ("c".into(), 4), ("e".into(), 2)]);
}

#[test]
fn the_same_counts_hold_for_single_nodes_as_domains() {
    let mut world = World::racks(&[], &[("", &[3, 3, 2, 1])]);
    let worker = world.shape(&[1]);
    let found = placed(&world.room(), &preferred(job(vec![role("w", worker, 7)]), "node")).expect("known to the test");
    assert_eq!(found.domains, 3);
    assert_eq!(found.placement.by_node().iter().map(|n| n.2).collect::<Vec<_>>(), [3, 3, 1]);
}

#[test]
fn slices_never_leave_their_domain_though_the_sum_would_fit() {
    // Slurm 150_1: segments of 2 over blocks of 3 and 3 hold 4 nodes, not 6.
    let mut world = World::racks(&["block"], &[("a", &[1, 1, 1]), ("b", &[1, 1, 1])]);
    let worker = world.shape(&[1]);
    assert!(placed(&world.room(), &job(vec![sliced("w", worker, 4, 2, "block")])).is_ok());
    assert_eq!(placed(&world.room(), &job(vec![sliced("w", worker, 6, 2, "block")])).unwrap_err(), NoFit::Proved);
}

#[test]
fn six_nodes_in_segments_of_three_need_two_blocks_of_three() {
    // Slurm 150_2: nodes 1-3 and 5-7 do, nodes 1-4 and 5-6 do not.
    for (blocks, fits) in [([3, 3], true), ([4, 2], false), ([4, 1], false), ([4, 4], true)] {
        let nodes: Vec<Vec<i64>> = blocks.iter().map(|n| vec![1; *n]).collect();
        let mut world = World::racks(&["block"], &[("a", &nodes[0]), ("b", &nodes[1])]);
        let worker = world.shape(&[1]);
        assert_eq!(placed(&world.room(), &job(vec![sliced("w", worker, 6, 3, "block")])).is_ok(), fits, "{blocks:?}");
    }
}

#[test]
fn a_job_waits_rather_than_span_two_required_blocks() {
    // Slurm 150_1: free 2 and 1 in different blocks hold no 3-node job.
    let mut world = World::racks(&["block"], &[("a", &[0, 0, 1, 1]), ("b", &[0, 0, 0, 1])]);
    let worker = world.shape(&[1]);
    let spec = required(job(vec![role("w", worker, 3)]), "block");
    assert_eq!(placed(&world.room(), &spec).unwrap_err(), NoFit::Proved);
}

#[test]
fn thirty_six_nodes_in_segments_of_twelve_take_12_12_12() {
    // Slurm: got 17 + 17 + 2 while the shown topology looked right.
    let mut world = World::racks(&["block"], &[("a", &[1; 17]), ("b", &[1; 17]), ("c", &[1; 17])]);
    let worker = world.shape(&[1]);
    let found = placed(&world.room(), &job(vec![sliced("w", worker, 36, 12, "block")])).expect("known to the test");
    assert_eq!(sizes(&world.names(&found.placement)), [12, 12, 12]);
}

#[test]
fn a_two_node_job_on_an_idle_cluster_uses_one_leaf() {
    let mut world = World::racks(&["leaf"], &[("a", &[1; 8]), ("b", &[1; 8])]);
    let worker = world.shape(&[1]);
    let found = placed(&world.room(), &job(vec![role("w", worker, 2)])).expect("known to the test");
    assert_eq!((found.domains, sizes(&world.names(&found.placement))), (1, vec![2]));
}

#[test]
fn blocks_smaller_than_a_segment_are_skipped_quickly() {
    let small: Vec<String> = (0..60).map(|i| format!("s{i:02}")).collect();
    let mut racks: Vec<(&str, &[i64])> = small.iter().map(|n| (n.as_str(), &[1i64, 1, 1] as &[i64])).collect();
    racks.push(("x", &[1; 8]));
    racks.push(("y", &[1; 4]));
    let mut world = World::racks(&["block"], &racks);
    let worker = world.shape(&[1]);
    let found = placed(&world.room(), &job(vec![sliced("w", worker, 12, 4, "block")])).expect("known to the test");
    assert_eq!(by_prefix(&world.names(&found.placement)), [("x".into(), 8), ("y".into(), 4)]);
}

#[test]
fn the_fourth_pod_joins_the_rack_of_the_third_not_a_fresh_block() {
    // Volcano 4343: two racks under one switch, one under another; racks of two nodes.
    let mut world = World::racks(&["block", "rack"], &[("s3/s0", &[1, 1]), ("s3/s1", &[1, 1]), ("x/s2", &[1, 1])]);
    let worker = world.shape(&[1]);
    let spec = job(vec![role("w", worker, 4)]);
    let found = placed(&world.room(), &spec).expect("known to the test");
    assert_eq!(by_prefix(&world.names(&found.placement)), [("s3-s0".into(), 2), ("s3-s1".into(), 2)]);

    let held = ["s3-s0-n0", "s3-s0-n1", "s3-s1-n0"];
    let seat = |(index, name): (u32, &&str)| Seat { role: 0, index, node: world.node(name) };
    let current = Placement { seats: (0..).zip(&held).map(seat).collect() };
    let mut room = world.room();
    for name in held {
        room.take(world.node(name), worker, 1);
    }
    assert_eq!(extend(&room, &spec, &current, 0, 1, None), Some(vec![world.node("s3-s1-n1")]));
}

#[test]
fn eight_ranks_fill_one_domain_before_the_next() {
    // Volcano 4233: even names in one domain, odd ones in the other.
    let names: Vec<String> = (0..8).map(|i| format!("n{i}")).collect();
    let nodes: Vec<(usize, &str, &str, &[i64])> =
        (0..8).map(|i| (0, if i % 2 == 0 { "even" } else { "odd" }, names[i].as_str(), &[1i64] as &[i64])).collect();
    let mut world = World::new(&[pool("main", &["rack"])], &nodes);
    let worker = world.shape(&[1]);
    let spec = job(vec![role("w", worker, 8)]);
    let found = placed(&world.room(), &spec).expect("known to the test");
    assert_eq!(world.names(&found.placement), ["n0", "n2", "n4", "n6", "n1", "n3", "n5", "n7"]);
    let quality = quality(&world.topology, &spec, &found.placement, 2);
    assert_eq!((quality.domains, quality.cross_edges, &*quality.level), (2, 1, "cluster"));
}

#[test]
fn pods_without_a_constraint_take_the_two_single_holes() {
    // Kueue 4474: free 2, 1, 1; two pods of one unit leave the pair for the pod of two units.
    let mut world = World::racks(&[], &[("", &[2, 1, 1])]);
    let (small, large) = (world.shape(&[1]), world.shape(&[2]));
    let mut room = world.room();
    for node in 0..3 {
        room.set_wholly_free_at(berth_planner::NodeIdx(node), if node == 0 { Time::ZERO } else { Time::NEVER });
    }
    let found = placed(&room, &job(vec![role("a", small, 2)])).expect("known to the test");
    assert_eq!(found.placement.by_node().iter().map(|n| n.0.0).collect::<Vec<_>>(), [1, 2]);
    for seat in &found.placement.seats {
        room.take(seat.node, small, 1);
    }
    assert!(placed(&room, &job(vec![role("b", large, 1)])).is_ok());
}

#[test]
fn a_single_pod_goes_to_the_broken_rack_and_the_fullest_node() {
    let mut world = World::racks(&["rack"], &[("a", &[8, 8]), ("b", &[8, 3]), ("c", &[5, 8])]);
    let pod = world.shape(&[2]);
    let mut room = world.room();
    for name in ["b-n1", "c-n0"] {
        room.set_wholly_free_at(world.node(name), Time::NEVER);
    }
    let found = placed(&room, &job(vec![role("w", pod, 1)])).expect("known to the test");
    assert_eq!(world.names(&found.placement), ["b-n1"]);
    // Promised room comes last, unhealthy nodes after healthy ones.
    room.set_promised(world.node("b-n1"), true);
    let found = placed(&room, &job(vec![role("w", pod, 1)])).expect("known to the test");
    assert_eq!(world.names(&found.placement), ["c-n0"]);
    room.set_promised(world.node("b-n1"), false);
    room.set_health(world.node("b-n1"), 1);
    let found = placed(&room, &job(vec![role("w", pod, 1)])).expect("known to the test");
    assert_eq!(world.names(&found.placement), ["c-n0"]);
}

#[test]
fn a_single_pod_takes_the_node_whose_end_moves_least() {
    let mut world = World::racks(&["rack"], &[("a", &[8, 8]), ("b", &[8, 8])]);
    let pod = world.shape(&[1]);
    let mut room = world.room();
    room.set_wholly_free_at(world.node("a-n0"), Time::from_secs(HOUR / 4));
    room.set_wholly_free_at(world.node("b-n0"), Time::from_secs(HOUR / 2));
    let found = placed(&room, &job(vec![role("w", pod, 1)])).expect("known to the test");
    assert_eq!(world.names(&found.placement), ["b-n0"]);
    assert!(found.loss.0 > 0);
}

#[test]
fn a_gang_takes_the_rack_that_stays_tight_over_its_life() {
    // Both racks have two free nodes now; rack a has two more in a minute, rack b none before the job ends.
    let mut world = World::racks(&["rack"], &[("a", &[1, 1, 0, 0]), ("b", &[1, 1, 0, 0])]);
    let worker = world.shape(&[1]);
    let mut room = world.room();
    for (name, at) in [("a-n2", 60), ("a-n3", 60), ("b-n2", 2 * HOUR), ("b-n3", 2 * HOUR)] {
        room.set_wholly_free_at(world.node(name), Time::from_secs(at));
    }
    let found = placed(&room, &job(vec![role("w", worker, 2)])).expect("known to the test");
    assert_eq!(world.names(&found.placement), ["b-n0", "b-n1"]);
}

#[test]
fn one_node_of_unknown_path_satisfies_any_level_and_two_do_not() {
    let mut world =
        World::new(&[pool("main", &["rack"])], &[(0, "", "lost1", &[8]), (0, "", "lost2", &[8]), (0, "a", "n", &[1])]);
    let worker = world.shape(&[1]);
    let spec = |pods| required(job(vec![role("w", worker, pods)]), "rack");
    assert!(placed(&world.room(), &spec(8)).is_ok());
    assert_eq!(placed(&world.room(), &spec(9)).unwrap_err(), NoFit::Proved);
    let anywhere = placed(&world.room(), &job(vec![role("w", worker, 16)])).expect("known to the test");
    assert_eq!(anywhere.domains, 2);
}

#[test]
fn a_level_is_resolved_in_each_pool_by_name() {
    // Volcano 5732: a two-tier and a three-tier tree with a level of the same name at another depth.
    let pools = [pool("flat", &["rack"]), pool("tall", &["zone", "rack"]), pool("bare", &[])];
    let nodes: Vec<(usize, &str, &str, &[i64])> = vec![
        (0, "r", "f1", &[1]),
        (0, "r", "f2", &[1]),
        (1, "z/r", "t1", &[1]),
        (1, "z/r", "t2", &[1]),
        (1, "z/r", "t3", &[1]),
        (2, "", "u1", &[1]),
        (2, "", "u2", &[1]),
        (2, "", "u3", &[1]),
        (2, "", "u4", &[1]),
    ];
    let mut world = World::new(&pools, &nodes);
    let worker = world.shape(&[1]);
    let found = placed(&world.room(), &required(job(vec![role("w", worker, 3)]), "rack")).expect("known to the test");
    assert_eq!(world.names(&found.placement), ["t1", "t2", "t3"]);
    assert_eq!(placed(&world.room(), &required(job(vec![role("w", worker, 4)]), "rack")).unwrap_err(), NoFit::Proved);
    assert!(placed(&world.room(), &job(vec![role("w", worker, 4)])).is_ok());
    // No gang spans two pools, but members that do not talk may.
    let mut wide = job(vec![role("w", worker, 9)]);
    assert_eq!(placed(&world.room(), &wide).unwrap_err(), NoFit::Proved);
    wide.communication = Communication::Independent;
    assert!(placed(&world.room(), &wide).is_ok());
}

#[test]
fn patience_gets_an_answer_only_in_as_few_domains_as_asked() {
    let mut world = World::racks(&["rack"], &[("a", &[1, 1]), ("b", &[1, 1])]);
    let worker = world.shape(&[1]);
    let spec = job(vec![role("w", worker, 3)]);
    let sizes = floors(&spec);
    let patient = Ask { most_domains: Some(1), ..ask(&spec, &sizes) };
    assert_eq!(place(&world.room(), &patient).unwrap_err(), NoFit::TooManyDomains { best: 2 });
    assert!(place(&world.room(), &Ask { most_domains: Some(2), ..patient }).is_ok());
}

#[test]
fn a_leader_and_its_workers_share_a_rack_where_greed_fails() {
    // The leader fits only where the workers would go first: cpu is scarce beside the units.
    let nodes: Vec<(usize, &str, &str, &[i64])> = vec![(0, "a", "n1", &[4, 4]), (0, "a", "n2", &[4, 1])];
    let mut world = World::new(&[pool("main", &["rack"])], &nodes);
    let leader = world.shape(&[0, 3]);
    let worker = world.shape(&[1, 1]);
    let spec = required(job(vec![role("leader", leader, 1), role("w", worker, 2)]), "rack");
    let found = placed(&world.room(), &spec).expect("known to the test");
    assert_eq!(world.names(&found.placement)[0], "n1");
    let spec = required(job(vec![role("leader", leader, 1), role("w", worker, 3)]), "rack");
    assert_eq!(placed(&world.room(), &spec).unwrap_err(), NoFit::Proved);
}

#[test]
fn a_gang_as_large_as_the_rack_fits_it() {
    // KAI 1217 and 577: 16 and 17 pods on an idle rack of 18 nodes.
    let mut world = World::racks(&["rack"], &[("a", &[4; 18])]);
    let worker = world.shape(&[4]);
    for pods in [16, 17, 18] {
        assert!(placed(&world.room(), &required(job(vec![role("w", worker, pods)]), "rack")).is_ok(), "{pods}");
    }
}

#[test]
fn domains_whose_names_share_a_prefix_stay_apart() {
    // Kueue 14452 and 14232: rack-1 and rack-10; a node named like its block.
    let mut world = World::new(
        &[pool("main", &["rack"])],
        &[(0, "rack-1", "rack-1", &[1]), (0, "rack-10", "a", &[1]), (0, "rack-10", "b", &[1])],
    );
    let worker = world.shape(&[1]);
    let found = placed(&world.room(), &required(job(vec![role("w", worker, 2)]), "rack")).expect("known to the test");
    assert_eq!(world.names(&found.placement), ["a", "b"]);
}

#[test]
fn lost_members_are_replaced_together_inside_the_required_domain() {
    // Kueue 14244: two nodes lost, both replaced; 14647: not both on one node's last room.
    let mut world = World::racks(&["rack"], &[("a", &[0, 0, 1, 1]), ("b", &[1, 1, 1, 1])]);
    let worker = world.shape(&[1]);
    let mut spec = required(job(vec![role("w", worker, 2)]), "rack");
    spec.roles[0].replicas = 2;
    let seats = ["a-n0", "a-n1"].iter().zip(0..).map(|(n, index)| Seat { role: 0, index, node: world.node(n) });
    let current = Placement { seats: seats.collect() };
    let swaps = replace(&world.room(), &spec, &current, &[0, 1]).expect("known to the test");
    assert_eq!(swaps, [(0, world.node("a-n2")), (1, world.node("a-n3"))]);
    let mut room = world.room();
    room.take(world.node("a-n3"), worker, 1);
    assert_eq!(replace(&room, &spec, &current, &[0, 1]), None);
    assert_eq!(replace(&room, &spec, &current, &[1]), Some(vec![(1, world.node("a-n2"))]));
}

#[test]
fn a_lost_slice_member_is_replaced_in_the_domain_of_its_slice() {
    let mut world = World::racks(&["block", "rack"], &[("x/a", &[0, 0, 1]), ("x/b", &[0, 0, 0]), ("x/c", &[1, 1])]);
    let worker = world.shape(&[1]);
    let spec = required(job(vec![sliced("w", worker, 4, 2, "rack")]), "block");
    let held = ["x-a-n0", "x-a-n1", "x-b-n0", "x-b-n1"];
    let seats = held.iter().zip(0..).map(|(n, index)| Seat { role: 0, index, node: world.node(n) });
    let current = Placement { seats: seats.collect() };
    let room = world.room();
    assert_eq!(replace(&room, &spec, &current, &[1]), Some(vec![(1, world.node("x-a-n2"))]));
    assert_eq!(replace(&room, &spec, &current, &[2]), None, "rack b has no room for the mate of rank 3");
    let both = replace(&room, &spec, &current, &[2, 3]).expect("known to the test");
    assert_eq!(both, [(2, world.node("x-c-n0")), (3, world.node("x-c-n1"))], "a whole slice may move");
}

#[test]
fn growth_stays_in_the_required_domain_and_keeps_slices_whole() {
    let mut world = World::racks(&["block", "rack"], &[("x/a", &[0, 1]), ("x/b", &[1, 1]), ("y/c", &[1, 1])]);
    let worker = world.shape(&[1]);
    let spec = required(job(vec![sliced("w", worker, 2, 2, "rack")]), "block");
    let seats = [0, 1].map(|index| Seat { role: 0, index, node: world.node("x-a-n0") });
    let current = Placement { seats: seats.to_vec() };
    let grown = extend(&world.room(), &spec, &current, 0, 2, None);
    assert_eq!(grown, Some(vec![world.node("x-b-n0"), world.node("x-b-n1")]));
    let mut room = world.room();
    room.take(world.node("x-b-n0"), worker, 1);
    assert_eq!(extend(&room, &spec, &current, 0, 2, None), None);
}

#[test]
fn what_can_never_run_says_by_how_much_it_is_short() {
    let mut world = World::racks(&["rack"], &[("a", &[4, 4]), ("b", &[4, 4, 4])]);
    let (worker, giant) = (world.shape(&[4]), world.shape(&[5]));
    let room = world.room();
    let rack = |pods| required(job(vec![role("w", worker, pods)]), "rack");
    assert_eq!(never_fits(&room, &rack(3), 1000), None);
    let Some(Never::FloorExceedsEveryDomain { domain, room: holds, short }) = never_fits(&room, &rack(5), 1000) else {
        panic!("five pods do not fit a rack of three nodes");
    };
    assert_eq!((&*world.topology.domain(domain).path, holds, short), ("b", 3, 2));
    let none = never_fits(&room, &job(vec![role("w", worker, 1), role("g", giant, 1)]), 1000);
    assert_eq!(none, Some(Never::NoNode { role: 1 }));
}

#[test]
fn candidates_are_the_required_domains_of_every_pool_that_has_the_level() {
    let pools = [pool("p", &["rack"]), pool("q", &[])];
    let nodes: Vec<(usize, &str, &str, &[i64])> = vec![(0, "a", "n1", &[1]), (0, "b", "n2", &[1]), (1, "", "n3", &[1])];
    let mut world = World::new(&pools, &nodes);
    let worker = world.shape(&[1]);
    let paths = |level: Option<&str>| -> Vec<String> {
        let spec = job(vec![role("w", worker, 1)]);
        let spec = level.map_or(spec.clone(), |l| required(spec, l));
        let found = candidates(&world.topology, &spec);
        found.iter().map(|d| world.topology.domain(*d).path.to_string()).collect()
    };
    assert_eq!(paths(Some("rack")), ["a", "b", ""]);
    assert_eq!(paths(None), ["", ""]);
    let spec = required(job(vec![role("w", worker, 1)]), "rack");
    let room = world.room();
    for domain in candidates(&world.topology, &spec) {
        assert_eq!(fits(&room, &ask(&spec, &[1]), domain), Ok(()));
        assert_eq!(fits(&room, &ask(&spec, &[2]), domain), Err(NoFit::Proved));
    }
}

#[test]
fn members_that_do_not_talk_take_the_smallest_nodes_first() {
    let mut world = World::racks(&[], &[("", &[2, 1, 1])]);
    let (small, large) = (world.shape(&[1]), world.shape(&[2]));
    let mut spec = job(vec![role("a", small, 2)]);
    spec.communication = Communication::Independent;
    let mut room = world.room();
    let found = placed(&room, &spec).expect("known to the test");
    assert_eq!(world.names(&found.placement), ["-n1", "-n2"]);
    for seat in &found.placement.seats {
        room.take(seat.node, small, 1);
    }
    assert!(placed(&room, &job(vec![role("b", large, 1)])).is_ok());
}

#[test]
fn a_gang_on_one_node_of_unknown_path_grows_only_there() {
    let mut world = World::new(&[pool("main", &["rack"])], &[(0, "", "lost", &[3]), (0, "a", "n", &[8])]);
    let worker = world.shape(&[1]);
    let spec = required(job(vec![role("w", worker, 2)]), "rack");
    let seat = |index| Seat { role: 0, index, node: world.node("lost") };
    let current = Placement { seats: vec![seat(0), seat(1)] };
    let mut room = world.room();
    room.take(world.node("lost"), worker, 2);
    assert_eq!(extend(&room, &spec, &current, 0, 1, None), Some(vec![world.node("lost")]));
    room.take(world.node("lost"), worker, 1);
    assert_eq!(extend(&room, &spec, &current, 0, 1, None), None);
}

#[test]
fn growth_takes_the_own_nodes_then_the_own_rack_then_the_own_block() {
    let racks: [(&str, &[i64]); 3] = [("x/a", &[2, 1]), ("x/b", &[1]), ("y/c", &[9])];
    let mut world = World::racks(&["block", "rack"], &racks);
    let worker = world.shape(&[1]);
    let spec = job(vec![role("w", worker, 1)]);
    let current = Placement { seats: vec![Seat { role: 0, index: 0, node: world.node("x-a-n1") }] };
    let mut room = world.room();
    room.take(world.node("x-a-n1"), worker, 1);
    let mut order = Vec::new();
    for _ in 0..4 {
        let node = extend(&room, &spec, &current, 0, 1, None).expect("known to the test")[0];
        room.take(node, worker, 1);
        order.push(world.topology.node_name(node).to_string());
    }
    assert_eq!(order, ["x-a-n0", "x-a-n0", "x-b-n0", "y-c-n0"]);
    let only_own_rack = world.topology.innermost(world.node("x-a-n0"));
    assert_eq!(extend(&room, &spec, &current, 0, 1, Some(only_own_rack)), None);
}

#[test]
fn the_loss_is_the_integral_it_claims_to_be() {
    // Three nodes, free from 0, 30 minutes and never; the job runs one hour. c(t) is 1, then 2.
    let mut world = World::racks(&["rack"], &[("a", &[1, 1, 1])]);
    let worker = world.shape(&[1]);
    let mut room = world.room();
    room.set_wholly_free_at(world.node("a-n1"), Time::from_secs(HOUR / 2));
    room.set_wholly_free_at(world.node("a-n2"), Time::NEVER);
    let half = i128::from(HOUR / 2) * 1_000_000;
    // One pod goes to the node that never frees: nothing is broken.
    assert_eq!(placed(&room, &job(vec![role("w", worker, 1)])).expect("known to the test").loss.0, 0);
    // Two: that one and the node that frees half way: there c is 2 and k 1, 4 - 1.
    assert_eq!(placed(&room, &job(vec![role("w", worker, 2)])).expect("known to the test").loss.0, 3 * half);
    // Three: k is 1 then 2, so 1 - 0 in the first half and 4 - 0 in the second.
    assert_eq!(placed(&room, &job(vec![role("w", worker, 3)])).expect("known to the test").loss.0, half + 4 * half);
}

#[test]
fn an_elastic_gang_starts_where_it_can_grow_in_one_block() {
    // The floor fits rack x/a, the tightest, but only block y has room for all that the gang may become.
    let racks: [(&str, &[i64]); 4] = [("x/a", &[1; 4]), ("x/b", &[0; 4]), ("y/a", &[1; 5]), ("y/b", &[1; 5])];
    let mut world = World::racks(&["block", "rack"], &racks);
    let worker = world.shape(&[1]);
    let mut spec = job(vec![role("w", worker, 8)]);
    spec.roles[0].floor = 4;
    let found = placed(&world.room(), &spec).expect("known to the test");
    assert_eq!(by_prefix(&world.names(&found.placement)), [("y-a".into(), 4)]);
    spec.roles[0].replicas = 4;
    let found = placed(&world.room(), &spec).expect("known to the test");
    assert_eq!(by_prefix(&world.names(&found.placement)), [("x-a".into(), 4)]);
}
