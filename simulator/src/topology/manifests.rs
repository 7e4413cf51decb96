//! A cluster file in YAML: Nodes and one Topology, as manifests or in a Scenario's shorthand.

use super::{ClusterMap, MappedNode};
use crate::replay::cluster::UNIT;
use crate::scenario::Scenario;
use crate::trace::{Source, TraceError};
use std::sync::Arc;
use translate::PoolMap;

/// Reads the nodes, by name, of the one Topology.
///
/// # Errors
/// If the file is unusable, has not exactly one Topology, or a node of unknown place.
pub fn read(source: &Source) -> Result<ClusterMap, TraceError> {
    let whole = |problem: String| source.error(0, "", problem);
    let scenario = Scenario::read(&[(source.name().to_owned(), source.text().to_owned())]);
    let scenario = scenario.map_err(|e| {
        let place = if e.field.is_empty() { String::new() } else { format!("{}: ", e.field) };
        whole(format!("document {}: {place}{}", e.document, e.problem))
    })?;
    let topologies: Vec<_> = scenario.topologies.values().collect();
    if topologies.len() != 1 {
        return Err(whole(format!("has {} Topologies; a replay needs exactly one", topologies.len())));
    }
    let pools = PoolMap::of(&topologies).map_err(|e| whole(e.to_string()))?;
    let levels: Vec<Arc<str>> = pools.pools()[0].levels.iter().map(|l| l.name.clone()).collect();
    let mut nodes = Vec::new();
    for node in scenario.nodes.values() {
        let place = pools.place(node);
        let name = place.path.name.clone();
        if place.path.path.len() < levels.len() {
            let missing = place.missing.unwrap_or_else(|| "every level".into());
            return Err(whole(format!(
                "node {name} has no label for level {missing}; a replay needs every node's place"
            )));
        }
        let gpus = node.status.as_ref().and_then(|s| s.allocatable.as_ref()?.get(UNIT)).map(|q| q.0.parse::<u64>());
        let gpus = gpus.transpose().map_err(|_| whole(format!("node {name}: {UNIT} is no whole number")))?;
        nodes.push(MappedNode { name, path: place.path.path, gpus });
    }
    if nodes.is_empty() {
        return Err(whole("has no Node".into()));
    }
    Ok(ClusterMap { levels, nodes })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shorthand_is_a_cluster_too() {
        let text = "kind: Scenario\nspec:\n  topology: [block, rack]\n  nodes:\n  - {names: \"r[0-1]n[0-1]\", \
                    allocatable: {nvidia.com/gpu: 4}, labels: {block: b0, rack: \"r{1}\"}}\n";
        let map = read(&Source::of("c.yaml", text)).unwrap();
        assert_eq!((map.levels.len(), map.nodes.len(), map.nodes[3].gpus), (2, 4, Some(4)));
        assert_eq!(&*map.nodes[3].path[1], "r1");
        let unplaced = text.replace("block: b0, ", "");
        assert!(read(&Source::of("c.yaml", &unplaced)).unwrap_err().to_string().contains("no label for level block"));
    }
}
