//! The empty cluster: what the registered nodes hold in all and where they stand, ready or not.

use crds::Topology;
use k8s_openapi::api::core::v1::Node;
use planner::NodeIdx;
use planner::resources::{Amounts, ResourceTable};
use planner::topology::Topology as Tree;
use std::collections::BTreeMap;
use std::sync::Arc;
use translate::PoolMap;

/// The empty cluster. Nodes and Topologies that cannot be read are left out: others must not suffer for them.
#[derive(Debug)]
pub struct Capacity {
    /// The tree of all registered nodes.
    pub tree: Tree,
    /// Names of resources.
    pub resources: ResourceTable,
    /// What each node can hold, by row.
    pub allocatable: Vec<Amounts>,
    /// Whether each node takes new pods now, by row.
    pub open: Vec<bool>,
    nodes: Vec<Arc<Node>>,
}

impl Capacity {
    /// The capacity of these nodes under these Topologies.
    #[must_use]
    pub fn of(topologies: &BTreeMap<String, Arc<Topology>>, nodes: &BTreeMap<String, Arc<Node>>) -> Self {
        let readable: Vec<&Topology> =
            topologies.values().map(AsRef::as_ref).filter(|t| PoolMap::of(&[t]).is_ok()).collect();
        let map =
            PoolMap::of(&readable).unwrap_or_else(|_| PoolMap::of(&[]).expect("no Topology cannot be unreadable"));
        let mut resources = ResourceTable::default();
        let mut listed: BTreeMap<String, (Arc<Node>, Amounts)> = BTreeMap::new();
        let mut paths = Vec::with_capacity(nodes.len());
        for (name, node) in nodes {
            let Ok(allocatable) = translate::node::allocatable(node, &mut resources) else { continue };
            paths.push(map.place(node).path);
            listed.insert(name.clone(), (node.clone(), allocatable));
        }
        let tree = Tree::build(map.pools(), &paths);
        let (mut by_row, mut allocatable) = (Vec::new(), Vec::new());
        for row in (0..tree.node_count()).map(NodeIdx::of) {
            let (node, amounts) = listed.remove(&**tree.node_name(row)).expect("the tree has the listed nodes");
            by_row.push(node);
            allocatable.push(amounts);
        }
        let open = by_row.iter().map(|node| !translate::node::facts(node).closed()).collect();
        Self { tree, resources, allocatable, open, nodes: by_row }
    }

    /// A node by row.
    #[must_use]
    pub fn node(&self, row: NodeIdx) -> &Node {
        &self.nodes[row.row()]
    }

    /// All nodes' amounts together.
    #[must_use]
    pub fn total(&self) -> Amounts {
        let mut sum = Amounts::default();
        for amounts in &self.allocatable {
            sum.add(amounts, 1);
        }
        sum
    }
}
