//! The cluster of a replay: one pool of interchangeable units, or nodes and levels from a file.

use super::options::ReplayOptions;
use crate::topology::ClusterMap;
use planner::resources::{Amounts, ResourceTable};
use planner::state::{ClusterState, NodeState};
use planner::topology::{Level, NodePath, PoolSpec};
use planner::{ResourceIdx, topology};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Name of the resource that units are.
pub const UNIT: &str = "nvidia.com/gpu";

/// Pod slots of a node: never the binding resource of a replay.
const PODS: i64 = 1 << 40;

/// Shuffles reproducibly; good enough for orders of leaves and seeds of comparisons.
#[derive(Clone, Debug)]
pub struct SplitMix(pub u64);

impl SplitMix {
    /// The next number.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Puts items in a random order.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            let other = usize::try_from(self.draw() % (last as u64 + 1)).unwrap_or(0);
            items.swap(last, other);
        }
    }
}

/// One node with all units: the pool of the reference replays.
#[must_use]
pub fn pool(state: &mut ClusterState, units: u64) -> ResourceIdx {
    let unit = state.resources.intern(UNIT);
    let spec = PoolSpec { name: "".into(), levels: Vec::new(), growable: false };
    let path = NodePath { pool: 0, path: Vec::new(), name: "pool".into() };
    state.set_nodes(&[spec], vec![(path, node(unit, units))]);
    unit
}

/// Nodes and levels of a file. Rows, and so ties, follow the file's order of first appearance, or a shuffled order of
/// its leaves.
pub fn mapped(
    state: &mut ClusterState,
    map: &ClusterMap,
    options: &ReplayOptions,
    shuffle: Option<u64>,
) -> ResourceIdx {
    let unit = state.resources.intern(UNIT);
    let levels = map.levels.iter().map(|name| Level { name: name.clone(), gigabytes_per_second: 0.0 }).collect();
    let spec = PoolSpec { name: "".into(), levels, growable: false };
    let ranks = domain_ranks(map, shuffle);
    let nodes = map.nodes.iter().enumerate().map(|(row, n)| {
        let path: Vec<Arc<str>> = (0..n.path.len())
            .map(|depth| format!("{:05}-{}", ranks[&n.path[..=depth]], n.path[depth]).into())
            .collect();
        let name = format!("{row:06}").into();
        (topology::NodePath { pool: 0, path, name }, node(unit, n.gpus.unwrap_or(options.gpus_per_node)))
    });
    let nodes = nodes.collect();
    state.set_nodes(&[spec], nodes);
    unit
}

fn node(unit: ResourceIdx, units: u64) -> NodeState {
    let mut allocatable = Amounts::default();
    allocatable.set(ResourceTable::PODS, PODS);
    allocatable.set(unit, i64::try_from(units).unwrap_or(i64::MAX));
    NodeState { allocatable, ..NodeState::default() }
}

/// Numbers domains by first appearance, then shuffles those numbers if asked to.
fn domain_ranks(map: &ClusterMap, shuffle: Option<u64>) -> BTreeMap<&[Arc<str>], usize> {
    let mut ranks: BTreeMap<&[Arc<str>], usize> = BTreeMap::new();
    for node in &map.nodes {
        for depth in 1..=node.path.len() {
            let next = ranks.len();
            ranks.entry(&node.path[..depth]).or_insert(next);
        }
    }
    if let Some(seed) = shuffle {
        let mut numbers: Vec<usize> = (0..ranks.len()).collect();
        SplitMix(seed).shuffle(&mut numbers);
        for rank in ranks.values_mut() {
            *rank = numbers[*rank];
        }
    }
    ranks
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::lingjun;
    use crate::trace::{Format, Source};

    fn map() -> ClusterMap {
        lingjun::read(&Source::of("t", "ip,DSW,PSW,ASW\na,G,P1,S9\nb,G,P1,S2\nc,G,P1,S9\nd,G,P1,S5\n")).unwrap()
    }

    fn order(shuffle: Option<u64>) -> Vec<String> {
        let options = ReplayOptions::of("t".into(), Format::Helios);
        let mut state = ClusterState::new();
        mapped(&mut state, &map(), &options, shuffle);
        let tree = state.topology().clone();
        (0..tree.node_count()).map(|r| tree.node_name(planner::NodeIdx::of(r)).to_string()).collect()
    }

    #[test]
    fn leaves_keep_the_files_order_unless_shuffled() {
        assert_eq!(order(None), ["000000", "000002", "000001", "000003"]);
        let shuffled: Vec<Vec<String>> = (1..6).map(|seed| order(Some(seed))).collect();
        assert!(shuffled.iter().any(|o| *o != order(None)));
        assert_eq!(order(Some(3)), order(Some(3)));
    }
}
