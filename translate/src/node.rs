//! A node's own state: what it has, whether it takes pods, whether it is lost, and when it will be away.

use crate::amounts;
use crate::error::{Fault, FieldFault, TranslateError};
use crate::ports;
use crds::Timestamp;
use crds::names::{annotations, taints};
use k8s_openapi::api::core::v1::{Node, Taint};
use planner::Time;
use planner::resources::{Amounts, PODS, ResourceTable, Rounding};
use planner::state::NodeState;

/// Pod slots of a node that does not say; what kubelets have by default.
pub const DEFAULT_PODS: i64 = 110;

/// Taints that controllers set for a node's own state: they close the node to everybody, whatever a pod tolerates, and
/// say nothing about which pods it could ever hold.
const STATE_TAINTS: [&str; 12] = [
    "node.kubernetes.io/unschedulable",
    "node.kubernetes.io/not-ready",
    "node.kubernetes.io/unreachable",
    "node.kubernetes.io/memory-pressure",
    "node.kubernetes.io/disk-pressure",
    "node.kubernetes.io/pid-pressure",
    "node.kubernetes.io/network-unavailable",
    taints::OUT_OF_SERVICE,
    "node.cloudprovider.kubernetes.io/uninitialized",
    "node.cloudprovider.kubernetes.io/shutdown",
    "ToBeDeletedByClusterAutoscaler",
    "karpenter.sh/disrupted",
];

/// Whether a taint speaks of the node's own state.
#[must_use]
pub fn is_state_taint(key: &str) -> bool {
    STATE_TAINTS.contains(&key)
}

/// What can be seen of a node without a clock.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeFacts {
    /// Condition Ready is True.
    pub ready: bool,
    /// Since when it has been as it is, if the node says; the caller compares it with `policy.nodeLostAfter`.
    pub ready_since: Option<Time>,
    /// An admin or a controller has cordoned it, or a taint of its own state closes it.
    pub cordoned: bool,
    /// Taint out-of-service: whatever ran on it may be forgotten at once.
    pub out_of_service: bool,
    /// Windows during which nothing may run on it.
    pub unavailable: Vec<(Time, Time)>,
}

impl NodeFacts {
    /// Whether it takes no new pods.
    #[must_use]
    pub fn closed(&self) -> bool {
        !self.ready || self.cordoned
    }

    /// Whether what runs on it counts as lost: at once when out of service, else after it was not ready for
    /// `lost_after`. A node that does not say since when is not lost by the clock.
    #[must_use]
    pub fn lost(&self, now: Time, lost_after: planner::Span) -> bool {
        self.out_of_service || (!self.ready && self.ready_since.is_some_and(|since| now >= since + lost_after))
    }
}

/// What can be seen of a node. An announced window that cannot be read is left out: [`windows`] says what is wrong.
#[must_use]
pub fn facts(node: &Node) -> NodeFacts {
    let conditions = node.status.as_ref().and_then(|s| s.conditions.as_ref());
    let ready = conditions.into_iter().flatten().find(|c| c.type_ == "Ready");
    let spec = node.spec.as_ref();
    let taints: Vec<&Taint> = spec.and_then(|s| s.taints.as_ref()).into_iter().flatten().collect();
    let unschedulable = spec.and_then(|s| s.unschedulable).unwrap_or(false);
    NodeFacts {
        ready: ready.is_some_and(|c| c.status == "True"),
        ready_since: ready
            .and_then(|c| c.last_transition_time.clone())
            .map(|at| crate::time::time(Timestamp::from(at))),
        cordoned: unschedulable || taints.iter().any(|t| is_state_taint(&t.key) && t.effect != "PreferNoSchedule"),
        out_of_service: taints.iter().any(|t| t.key == taints::OUT_OF_SERVICE),
        unavailable: windows(node).unwrap_or_default(),
    }
}

/// The windows an admin announced, separated by commas, sorted.
///
/// # Errors
/// If one cannot be read or ends before it starts.
pub fn windows(node: &Node) -> Result<Vec<(Time, Time)>, TranslateError> {
    let noted = node.metadata.annotations.as_ref().and_then(|a| a.get(annotations::UNAVAILABLE));
    let mut windows = Vec::new();
    for text in noted.into_iter().flat_map(|t| t.split(',')).map(str::trim).filter(|t| !t.is_empty()) {
        let window = read_window(text).ok_or_else(|| {
            let field = format!("metadata.annotations[{}]", annotations::UNAVAILABLE);
            Fault::Window(text.to_owned()).at(object(node), field)
        })?;
        windows.push(window);
    }
    windows.sort_unstable();
    Ok(windows)
}

fn read_window(text: &str) -> Option<(Time, Time)> {
    let (start, end) = text.split_once('/')?;
    let read = |moment: &str| moment.trim().parse::<Timestamp>().ok().map(crate::time::time);
    let (start, end) = (read(start)?, read(end)?);
    (start < end).then_some((start, end))
}

/// What a node can hold in all: its allocatable, [`DEFAULT_PODS`] slots where it names none, and one of each host port
/// in the table.
///
/// # Errors
/// The first amount that cannot be read.
pub fn allocatable(node: &Node, table: &mut ResourceTable) -> Result<Amounts, TranslateError> {
    let listed = node.status.as_ref().and_then(|s| s.allocatable.as_ref());
    let mut named = match listed {
        Some(list) => amounts::named(list, Rounding::Capacity)
            .map_err(|f: FieldFault| f.under("status.allocatable").of(object(node)))?,
        None => amounts::Named::new(),
    };
    named.entry(PODS.to_owned()).or_insert(DEFAULT_PODS);
    let mut amounts = amounts::rows(&named, table);
    ports::grant(&mut amounts, table);
    Ok(amounts)
}

/// A node's state as the planner keeps it; whether it is lost by the clock is the caller's to add.
///
/// # Errors
/// The first amount that cannot be read.
pub fn state(node: &Node, foreign: &Amounts, table: &mut ResourceTable) -> Result<NodeState, TranslateError> {
    let facts = facts(node);
    Ok(NodeState {
        allocatable: allocatable(node, table)?,
        foreign: foreign.clone(),
        closed: facts.closed(),
        lost: facts.out_of_service,
        health: 0,
        unavailable: facts.unavailable,
    })
}

fn object(node: &Node) -> String {
    format!("Node {}", crate::key_of(node))
}

#[cfg(test)]
mod tests {
    use super::*;
    use planner::Span;
    use serde_json::{Value, json};

    fn mk_node(value: Value) -> Node {
        serde_json::from_value(value).expect("a node")
    }

    #[test]
    fn allocatable_is_exact_and_slots_default() {
        let mut table = ResourceTable::default();
        let node = mk_node(json!({"status": {"allocatable": {"cpu": "95500m", "nvidia.com/gpu": "8"}}}));
        let amounts = allocatable(&node, &mut table).expect("readable");
        let of = |name: &str| amounts.get(table.find(name).expect("known"));
        assert_eq!((of("cpu"), of("nvidia.com/gpu"), of(PODS)), (95_500, 8, 110));
    }

    #[test]
    fn only_ready_schedulable_nodes_take_pods() {
        let ready = json!([{"type": "Ready", "status": "True"}]);
        assert!(!facts(&mk_node(json!({"status": {"conditions": ready}}))).closed());
        assert!(facts(&mk_node(json!({}))).closed(), "a node that does not say it is ready");
        assert!(facts(&mk_node(json!({"spec": {"unschedulable": true}, "status": {"conditions": ready}}))).closed());
        let pressed = json!({"spec": {"taints": [{"key": "node.kubernetes.io/disk-pressure", "effect": "NoSchedule"}]},
            "status": {"conditions": ready}});
        assert!(facts(&mk_node(pressed)).closed());
    }

    #[test]
    fn a_silent_node_is_lost_after_a_while_and_one_out_of_service_at_once() {
        let silent = mk_node(json!({"status": {"conditions": [
            {"type": "Ready", "status": "Unknown", "lastTransitionTime": "1970-01-01T00:01:40Z"}]}}));
        let facts_of = facts(&silent);
        let after = Span::from_secs(300);
        assert!(!facts_of.lost(Time::from_secs(399), after));
        assert!(facts_of.lost(Time::from_secs(400), after));
        let gone = json!({"spec": {"taints": [{"key": "node.kubernetes.io/out-of-service", "effect": "NoExecute"}]}});
        assert!(facts(&mk_node(gone)).lost(Time::ZERO, after));
    }

    #[test]
    fn announced_windows_are_read_and_bad_ones_named() {
        let noted =
            |text: &str| mk_node(json!({"metadata": {"name": "n1", "annotations": {"berth.dev/unavailable": text}}}));
        let two = noted("1970-01-01T02:00:00Z/1970-01-01T03:00:00Z, 1970-01-01T00:00:00Z/1970-01-01T00:00:10Z");
        let want = vec![(Time::ZERO, Time::from_secs(10)), (Time::from_secs(7200), Time::from_secs(10_800))];
        assert_eq!(windows(&two), Ok(want));
        for bad in ["tomorrow", "1970-01-01T02:00:00Z/1970-01-01T01:00:00Z", "1970-01-01T02:00:00Z"] {
            let error = windows(&noted(bad)).expect_err(bad).to_string();
            assert!(error.starts_with("Node n1: metadata.annotations[berth.dev/unavailable]: "), "{error}");
        }
    }
}
