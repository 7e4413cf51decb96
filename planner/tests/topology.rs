//! The topology tree: whole-path identity, unknown paths, node rows in the tree's order whatever the input's.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)] // the lints are for code outside tests

use berth_planner::ids::{NodeIdx, PoolIdx};
use berth_planner::topology::{Depth, Level, NodePath, PoolSpec, Topology};
use proptest::prelude::*;
use std::collections::BTreeMap;

fn pool(name: &str, levels: &[&str]) -> PoolSpec {
    let level = |name: &&str| Level { name: (*name).into(), gigabytes_per_second: 0.0 };
    PoolSpec { name: name.into(), levels: levels.iter().map(level).collect(), growable: false }
}

fn node(pool: usize, path: &[&str], name: &str) -> NodePath {
    NodePath { pool, path: path.iter().map(|p| (*p).into()).collect(), name: name.into() }
}

fn find(tree: &Topology, name: &str) -> NodeIdx {
    let row = (0..tree.node_count()).find(|r| &**tree.node_name(NodeIdx::of(*r)) == name);
    NodeIdx::of(row.expect("the node is in the tree"))
}

fn path_at(tree: &Topology, node: &str, depth: u8) -> Option<String> {
    tree.domain_at(find(tree, node), Depth(depth)).map(|d| tree.domain(d).path.to_string())
}

#[test]
fn racks_of_one_name_in_two_blocks_are_two_domains() {
    let nodes = [node(0, &["b1", "r1"], "x"), node(0, &["b2", "r1"], "y"), node(0, &["b1", "r1"], "z")];
    let tree = Topology::build(&[pool("p", &["block", "rack"])], &nodes);
    assert_eq!(tree.domains_at(PoolIdx(0), Depth(2)).count(), 2);
    assert_eq!(path_at(&tree, "x", 2).as_deref(), Some("b1/r1"));
    assert_eq!(path_at(&tree, "y", 2).as_deref(), Some("b2/r1"));
    assert_ne!(tree.domain_at(find(&tree, "x"), Depth(2)), tree.domain_at(find(&tree, "y"), Depth(2)));
    assert_eq!(tree.domain_at(find(&tree, "x"), Depth(2)), tree.domain_at(find(&tree, "z"), Depth(2)));
}

#[test]
fn a_name_that_begins_like_another_is_not_that_other() {
    let nodes = [node(0, &["rack-1"], "a"), node(0, &["rack-10"], "b"), node(0, &["rack-1"], "c")];
    let tree = Topology::build(&[pool("p", &["rack"])], &nodes);
    let sizes: Vec<(String, u32)> = tree
        .domains_at(PoolIdx(0), Depth(1))
        .map(|d| (tree.domain(d).path.to_string(), tree.domain(d).node_count()))
        .collect();
    assert_eq!(sizes, [("rack-1".to_owned(), 2), ("rack-10".to_owned(), 1)]);
}

#[test]
fn a_path_is_known_down_to_its_first_missing_level() {
    let nodes = [node(0, &["b1", "r1"], "whole"), node(0, &["b1"], "half"), node(0, &[], "none")];
    let tree = Topology::build(&[pool("p", &["block", "rack"])], &nodes);
    assert_eq!(path_at(&tree, "half", 1).as_deref(), Some("b1"));
    assert_eq!(path_at(&tree, "half", 2), None);
    assert_eq!(path_at(&tree, "none", 0).as_deref(), Some(""));
    assert_eq!(path_at(&tree, "none", 1), None);
    // The loose ones are counted above the gap, in no child, and come first.
    let root = tree.domain(tree.pool(PoolIdx(0)).root);
    assert_eq!((root.node_count(), root.loose), (3, 1));
    let block = tree.domain(tree.domain_at(find(&tree, "half"), Depth(1)).unwrap());
    assert_eq!((block.node_count(), block.loose), (2, 1));
    assert_eq!(block.node_range().next(), Some(find(&tree, "half")));
    assert_eq!(tree.shared_depth([find(&tree, "half"), find(&tree, "whole")]).map(|s| s.0), Some(Depth(1)));
}

#[test]
fn a_hostname_equal_to_a_blocks_name_is_a_node_like_any_other() {
    let nodes = [node(0, &["b1"], "b1"), node(0, &["b1"], "other")];
    let tree = Topology::build(&[pool("p", &["block"])], &nodes);
    assert_eq!(tree.domains_at(PoolIdx(0), Depth(1)).count(), 1);
    assert_eq!(tree.domain(tree.pool(PoolIdx(0)).root).node_count(), 2);
}

#[test]
fn pools_share_nothing_and_may_have_no_levels() {
    let nodes = [node(0, &["b1"], "a"), node(1, &[], "b"), node(1, &["b1"], "c")];
    let tree = Topology::build(&[pool("p", &["block"]), pool("", &[])], &nodes);
    assert_eq!(tree.pool_of(find(&tree, "b")), PoolIdx(1));
    assert_eq!(tree.shared_depth([find(&tree, "a"), find(&tree, "b")]), None);
    // Labels that no level names mean nothing.
    assert_eq!(tree.innermost(find(&tree, "c")), tree.pool(PoolIdx(1)).root);
    assert_eq!(tree.pool(PoolIdx(1)).depth_of("node"), Some(Depth(1)));
    assert_eq!(tree.pool(PoolIdx(1)).depth_of("block"), None);
}

fn paths() -> impl Strategy<Value = Vec<NodePath>> {
    let one = (0usize..2, prop::collection::vec(0u8..3, 0..4));
    prop::collection::vec(one, 0..40).prop_map(|list| {
        let make = |(row, (pool, path)): (usize, (usize, Vec<u8>))| {
            let path = path.iter().map(|n| ["r-1", "r-10", "r-2"][usize::from(*n)].into()).collect();
            NodePath { pool, path, name: format!("n{row:02}").into() }
        };
        list.into_iter().enumerate().map(make).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2000) })]

    #[test]
    fn every_domain_holds_exactly_the_nodes_whose_path_begins_with_its_own(nodes in paths(), turn in 0usize..40) {
        let pools = [pool("p", &["block", "rack", "shelf"]), pool("", &["zone"])];
        let tree = Topology::build(&pools, &nodes);
        let mut turned = nodes.clone();
        turned.rotate_left(turn % nodes.len().max(1));
        let again = Topology::build(&pools, &turned);
        let names = |t: &Topology| (0..t.node_count()).map(|r| t.node_name(NodeIdx::of(r)).to_string()).collect::<Vec<_>>();
        prop_assert_eq!(names(&tree), names(&again));
        prop_assert_eq!(format!("{:?}", tree.domains()), format!("{:?}", again.domains()));
        let by_name: BTreeMap<&str, &NodePath> = nodes.iter().map(|n| (&*n.name, n)).collect();
        for domain in tree.domains() {
            let depth = usize::from(domain.depth.0);
            let inside: Vec<&str> = domain.node_range().map(|n| &**tree.node_name(n)).collect();
            let mut expected: Vec<&str> = by_name
                .values()
                .filter(|n| n.pool == domain.pool.row() && n.path.len() >= depth)
                .filter(|n| n.path[..depth].join("/") == *domain.path)
                .map(|n| &*n.name)
                .collect();
            let mut sorted = inside.clone();
            sorted.sort_unstable();
            expected.sort_unstable();
            prop_assert_eq!(sorted, expected);
        }
        for row in 0..tree.node_count() {
            let node = NodeIdx::of(row);
            let known = by_name[&**tree.node_name(node)].path.len().min(pools[tree.pool_of(node).row()].levels.len());
            prop_assert_eq!(usize::from(tree.domain(tree.innermost(node)).depth.0), known);
            prop_assert!(tree.domain(tree.innermost(node)).node_range().any(|n| n == node));
        }
    }
}
