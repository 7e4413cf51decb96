//! The filters in use and which nodes each allows, kept up node by node, so that shapes of the planner stay right while
//! nodes come, go and change their labels.

use crate::amounts;
use crate::constraints::Constraints;
use crate::pod::PodAsk;
use crate::ports;
use k8s_openapi::api::core::v1::Node;
use planner::shape::{NodeSet, Shape};
use planner::state::ClusterState;
use planner::{NodeIdx, ShapeIdx};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Where nodes are found by name.
pub trait NodeLookup {
    /// The node of a name; none for one that is gone.
    fn node(&self, name: &str) -> Option<&Node>;
}

impl NodeLookup for BTreeMap<String, Node> {
    fn node(&self, name: &str) -> Option<&Node> {
        self.get(name)
    }
}

impl NodeLookup for BTreeMap<String, Arc<Node>> {
    fn node(&self, name: &str) -> Option<&Node> {
        self.get(name).map(AsRef::as_ref)
    }
}

impl NodeLookup for BTreeMap<Arc<str>, Arc<Node>> {
    fn node(&self, name: &str) -> Option<&Node> {
        self.get(name).map(AsRef::as_ref)
    }
}

/// The filters in use, by key, with the nodes that each allows.
#[derive(Debug, Default)]
pub struct FilterBook {
    filters: BTreeMap<Arc<str>, (Constraints, NodeSet)>,
}

impl FilterBook {
    /// The shape of a pod, made if new. Host ports that nobody used so far are granted to every node.
    pub fn shape(&mut self, state: &mut ClusterState, ask: &PodAsk, nodes: &impl NodeLookup) -> ShapeIdx {
        let known = state.resources.len();
        let requests = amounts::rows(&ask.requests, &mut state.resources);
        if state.resources.len() > known {
            grant_ports(state);
        }
        let filter = ask.constraints.key();
        if !self.filters.contains_key(&filter) {
            let eligible = eligible(&ask.constraints, state, nodes);
            self.filters.insert(filter.clone(), (ask.constraints.clone(), eligible));
        }
        let eligible = self.filters[&filter].1.clone();
        let before = state.shapes.all().len();
        let shape = state.shapes.intern(Shape { requests, filter, eligible });
        if state.shapes.all().len() > before {
            state.shapes_changed();
        }
        shape
    }

    /// To be called after one node's labels or taints changed. True if some filter's answer changed.
    pub fn node_changed(&mut self, state: &mut ClusterState, row: NodeIdx, node: &Node) -> bool {
        let mut changed = false;
        for (filter, (constraints, eligible)) in &mut self.filters {
            let allowed = constraints.allows(node);
            if eligible.contains(row) != allowed {
                eligible.set(row, allowed);
                state.shapes.set_eligible(filter, eligible);
                changed = true;
            }
        }
        if changed {
            state.shapes_changed();
        }
        changed
    }

    /// To be called after [`ClusterState::set_nodes`]: rows name other nodes now.
    pub fn nodes_replaced(&mut self, state: &mut ClusterState, nodes: &impl NodeLookup) {
        for (filter, (constraints, allowed)) in &mut self.filters {
            *allowed = eligible(constraints, state, nodes);
            state.shapes.set_eligible(filter, allowed);
        }
        state.shapes_changed();
    }

    /// Number of distinct filters.
    #[must_use]
    pub fn len(&self) -> usize {
        self.filters.len()
    }

    /// Whether no pod was translated yet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.filters.is_empty()
    }
}

fn eligible(constraints: &Constraints, state: &ClusterState, nodes: &impl NodeLookup) -> NodeSet {
    let topology = state.topology();
    NodeSet::of(topology.node_count(), |row| {
        nodes.node(topology.node_name(row)).is_some_and(|node| constraints.allows(node))
    })
}

/// Gives every node one of each host port in the table; to be called when a foreign pod brought a new one.
pub fn grant_ports(state: &mut ClusterState) {
    for row in (0..state.nodes().len()).map(NodeIdx::of) {
        let mut node = state.node(row).clone();
        ports::grant(&mut node.allocatable, &state.resources);
        if node != *state.node(row) {
            state.set_node(row, node);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node;
    use crate::pools::PoolMap;
    use planner::resources::Amounts;
    use serde_json::{Value, json};

    fn mk_node(name: &str, labels: Value) -> Node {
        serde_json::from_value(json!({
            "metadata": {"name": name, "labels": labels},
            "status": {"allocatable": {"cpu": "8"}, "conditions": [{"type": "Ready", "status": "True"}]},
        }))
        .expect("a node")
    }

    fn mk_cluster(nodes: &BTreeMap<String, Node>) -> ClusterState {
        let mut state = ClusterState::new();
        let map = PoolMap::of(&[]).expect("no Topology");
        let rows = nodes
            .values()
            .map(|n| {
                let own = node::state(n, &Amounts::default(), &mut state.resources).expect("readable");
                (map.place(n).path, own)
            })
            .collect();
        state.set_nodes(map.pools(), rows);
        state
    }

    fn ask(spec: Value) -> PodAsk {
        PodAsk::of_ours(&serde_json::from_value(spec).expect("a spec")).expect("readable")
    }

    #[test]
    fn labels_that_change_later_change_the_shape_s_nodes() {
        let mut nodes = BTreeMap::from(["a", "b"].map(|n| (n.to_owned(), mk_node(n, json!({"fast": "no"})))));
        let mut state = mk_cluster(&nodes);
        let mut book = FilterBook::default();
        let wanted = ask(json!({"containers": [], "nodeSelector": {"fast": "yes"}}));
        let shape = book.shape(&mut state, &wanted, &nodes);
        assert!(state.shapes.get(shape).eligible.is_empty());
        let row = state.find_node("b").expect("is there");
        nodes.insert("b".into(), mk_node("b", json!({"fast": "yes"})));
        assert!(book.node_changed(&mut state, row, &nodes["b"]));
        assert!(!book.node_changed(&mut state, row, &nodes["b"]), "twice the same is no change");
        assert!(state.shapes.get(shape).eligible.contains(row));
        assert_eq!(book.shape(&mut state, &wanted, &nodes), shape, "the same pod is the same shape");
        assert_eq!(book.len(), 1);
    }

    #[test]
    fn a_host_port_is_there_once_on_every_node_as_soon_as_somebody_uses_it() {
        let nodes = BTreeMap::from([("a".to_owned(), mk_node("a", json!({})))]);
        let mut state = mk_cluster(&nodes);
        let port = json!({"containers": [{"name": "c", "ports": [{"containerPort": 1, "hostPort": 8080}]}]});
        let shape = FilterBook::default().shape(&mut state, &ask(port), &nodes);
        let requests = state.shapes.get(shape).requests.clone();
        assert_eq!(requests.times_in(&state.free_now(NodeIdx(0)).0), 1);
    }
}
