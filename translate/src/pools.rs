//! Where nodes stand: which Topology describes a node, and its path of domains by that Topology's labels.
//!
//! A Topology with a selector goes before the one without. A node that two select is in no pool of theirs but in the
//! one of nodes outside every Topology, so it serves only jobs that ask for no level. A path ends at the first level
//! whose label is missing.

use crate::error::{Fault, TranslateError};
use crds::Topology;
use crds::v1alpha1::Level;
use k8s_openapi::api::core::v1::Node;
use kube::core::{Selector, SelectorExt};
use planner::topology::{Level as PlannerLevel, NodePath, PoolSpec};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The Topologies in force, in name order, and at last the pool of all other nodes.
#[derive(Clone, Debug)]
pub struct PoolMap {
    described: Vec<Described>,
    pools: Vec<PoolSpec>,
}

#[derive(Clone, Debug)]
struct Described {
    name: Arc<str>,
    /// None: every node that no other Topology selects.
    selector: Option<Selector>,
    levels: Vec<Level>,
}

/// Where a node stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Its pool and path.
    pub path: NodePath,
    /// The first level whose label is missing although its pool has it.
    pub missing: Option<String>,
    /// The Topologies that all select it, where they are more than one.
    pub contested: Vec<Arc<str>>,
}

impl PoolMap {
    /// The map of these Topologies.
    ///
    /// # Errors
    /// If a selector cannot be read.
    pub fn of(topologies: &[&Topology]) -> Result<Self, TranslateError> {
        let mut described = topologies.iter().map(|t| read(t)).collect::<Result<Vec<_>, _>>()?;
        described.sort_by(|a, b| a.name.cmp(&b.name));
        let growable: BTreeMap<Arc<str>, bool> =
            topologies.iter().map(|t| (crate::key_of(*t).into(), t.spec.growable)).collect();
        let mut pools: Vec<PoolSpec> = described
            .iter()
            .map(|d| PoolSpec {
                name: d.name.clone(),
                levels: d.levels.iter().map(planner_level).collect(),
                growable: growable[&d.name],
            })
            .collect();
        pools.push(PoolSpec { name: "".into(), levels: Vec::new(), growable: false });
        Ok(Self { described, pools })
    }

    /// The pools as [`planner::topology::Topology::build`] takes them; the last is the one outside every Topology.
    #[must_use]
    pub fn pools(&self) -> &[PoolSpec] {
        &self.pools
    }

    /// Row of the pool outside every Topology.
    #[must_use]
    pub fn outside(&self) -> usize {
        self.described.len()
    }

    /// Rows of the Topologies that select a node: those with a selector, else those without.
    fn claimants(&self, labels: &BTreeMap<String, String>) -> Vec<usize> {
        let rows = |wanted: &dyn Fn(&Described) -> bool| -> Vec<usize> {
            (0..self.described.len()).filter(|&row| wanted(&self.described[row])).collect()
        };
        let named = rows(&|d| d.selector.as_ref().is_some_and(|s| s.matches(labels)));
        if named.is_empty() { rows(&|d| d.selector.is_none()) } else { named }
    }

    /// Where a node stands.
    #[must_use]
    pub fn place(&self, node: &Node) -> Place {
        let none = BTreeMap::new();
        let labels = node.metadata.labels.as_ref().unwrap_or(&none);
        let name: Arc<str> = node.metadata.name.as_deref().unwrap_or_default().into();
        let outside = NodePath { pool: self.outside(), path: Vec::new(), name: name.clone() };
        match self.claimants(labels).as_slice() {
            [] => Place { path: outside, missing: None, contested: Vec::new() },
            &[pool] => {
                let levels = &self.described[pool].levels;
                let path: Vec<Arc<str>> = levels.iter().map_while(|level| domain_of(level, labels)).collect();
                let missing = levels.get(path.len()).map(|level| level.name.clone());
                Place { path: NodePath { pool, path, name }, missing, contested: Vec::new() }
            }
            several => {
                let contested = several.iter().map(|&row| self.described[row].name.clone()).collect();
                Place { path: outside, missing: None, contested }
            }
        }
    }
}

fn read(topology: &Topology) -> Result<Described, TranslateError> {
    let name = crate::key_of(topology);
    let selector = match &topology.spec.nodes {
        None => None,
        Some(given) => Some(
            Selector::try_from(given.clone())
                .map_err(|e| Fault::Selector(e.to_string()).at(format!("Topology {name}"), "spec.nodes"))?,
        ),
    };
    Ok(Described { name: name.into(), selector, levels: topology.spec.effective_levels() })
}

fn planner_level(level: &Level) -> PlannerLevel {
    PlannerLevel {
        name: level.name.as_str().into(),
        gigabytes_per_second: level.gigabytes_per_second.filter(|g| g.is_finite() && *g > 0.0).unwrap_or(0.0),
    }
}

/// The node's domain at a level: by the first of the level's labels that it has.
fn domain_of(level: &Level, labels: &BTreeMap<String, String>) -> Option<Arc<str>> {
    let value = level.labels.iter().find_map(|label| labels.get(label))?;
    names_a_domain(value).then(|| value.as_str().into())
}

/// Discoverers write these where they know nothing; nodes must not meet in a domain of that name.
fn names_a_domain(value: &str) -> bool {
    let lower = value.to_ascii_lowercase();
    !matches!(lower.as_str(), "" | "-" | "none" | "unknown" | "n-a" | "n/a" | "no-topology")
        && !lower.starts_with("00000000-0000-0000-0000-000000000000")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn mk_topology(name: &str, spec: Value) -> Topology {
        let object =
            json!({"apiVersion": "berth.dev/v1alpha1", "kind": "Topology", "metadata": {"name": name}, "spec": spec});
        serde_json::from_value(object).expect("a Topology")
    }

    fn mk_node(labels: Value) -> Node {
        serde_json::from_value(json!({"metadata": {"name": "n1", "labels": labels}})).expect("a node")
    }

    fn two_levels(nodes: Value) -> Value {
        json!({"nodes": nodes, "levels": [
            {"name": "block", "labels": ["new/block", "old/block"]}, {"name": "rack", "labels": ["rack"]}]})
    }

    fn path(place: &Place) -> Vec<&str> {
        place.path.path.iter().map(AsRef::as_ref).collect()
    }

    #[test]
    fn the_first_label_present_counts_and_a_gap_ends_the_path() {
        let topology = mk_topology("default", two_levels(Value::Null));
        let map = PoolMap::of(&[&topology]).expect("readable");
        let at = |labels: Value| map.place(&mk_node(labels));
        assert_eq!(path(&at(json!({"new/block": "b1", "old/block": "x", "rack": "r1"}))), ["b1", "r1"]);
        assert_eq!(path(&at(json!({"old/block": "b0", "rack": "r1"}))), ["b0", "r1"]);
        let gap = at(json!({"rack": "r1"}));
        assert_eq!((path(&gap), gap.missing.as_deref()), (vec![], Some("block")));
        let below = at(json!({"new/block": "b1"}));
        assert_eq!((path(&below), below.missing.as_deref()), (vec!["b1"], Some("rack")));
    }

    #[test]
    fn words_for_nothing_are_no_domains() {
        let topology = mk_topology("default", two_levels(Value::Null));
        let map = PoolMap::of(&[&topology]).expect("readable");
        for word in ["", "none", "Unknown", "no-topology", "00000000-0000-0000-0000-000000000000.32766"] {
            assert_eq!(
                path(&map.place(&mk_node(json!({"new/block": word, "rack": "r1"})))),
                Vec::<&str>::new(),
                "{word:?}"
            );
        }
    }

    #[test]
    fn a_selector_goes_before_none_and_two_contest_the_node() {
        let all = mk_topology("all", two_levels(Value::Null));
        let fast = mk_topology("fast", two_levels(json!({"matchLabels": {"gpu": "h100"}})));
        let also = mk_topology("also", two_levels(json!({"matchExpressions": [{"key": "new", "operator": "Exists"}]})));
        let map = PoolMap::of(&[&all, &fast, &also]).expect("readable");
        let names: Vec<&str> = map.pools().iter().map(|p| &*p.name).collect();
        assert_eq!(names, ["all", "also", "fast", ""]);
        assert_eq!(map.place(&mk_node(json!({"gpu": "h100"}))).path.pool, 2);
        assert_eq!(map.place(&mk_node(json!({"gpu": "a100"}))).path.pool, 0);
        let both = map.place(&mk_node(json!({"gpu": "h100", "new": "1", "new/block": "b1"})));
        assert_eq!(both.path.pool, map.outside());
        assert!(both.path.path.is_empty());
        assert_eq!(both.contested.len(), 2);
    }

    #[test]
    fn nodes_outside_every_topology_share_one_pool_without_levels() {
        let fast = mk_topology("fast", two_levels(json!({"matchLabels": {"gpu": "h100"}})));
        let map = PoolMap::of(&[&fast]).expect("readable");
        let place = map.place(&mk_node(json!({"rack": "r1"})));
        assert_eq!((place.path.pool, place.missing.is_none(), place.contested.len()), (1, true, 0));
    }

    #[test]
    fn presets_stand_for_their_levels() {
        for preset in ["Topograph", "Aws", "Gke", "Oci", "CoreWeave", "Nebius", "Crusoe"] {
            let topology = mk_topology("default", json!({"preset": preset}));
            let map = PoolMap::of(&[&topology]).expect("readable");
            assert!(map.pools()[0].levels.len() >= 2, "{preset}");
        }
        let topograph = mk_topology("default", json!({"preset": "Aws"}));
        let map = PoolMap::of(&[&topograph]).expect("readable");
        let layer = |n| format!("topology.k8s.aws/network-node-layer-{n}");
        let node = mk_node(json!({layer(1): "top", layer(2): "mid", layer(3): "near"}));
        assert_eq!(path(&map.place(&node)), ["top", "mid", "near"]);
    }

    #[test]
    fn a_selector_that_cannot_be_read_is_named() {
        let bad = mk_topology("bad", two_levels(json!({"matchExpressions": [{"key": "a", "operator": "Like"}]})));
        let error = PoolMap::of(&[&bad]).expect_err("no such operator").to_string();
        assert!(error.starts_with("Topology bad: spec.nodes: "), "{error}");
    }
}
