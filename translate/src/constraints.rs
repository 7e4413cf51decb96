//! Which nodes a pod allows: selectors, required node affinity, taints, pinned volumes, avoided nodes.
//!
//! [`Constraints::key`] is their canonical text: equal texts allow the same nodes. What closes a node to everybody
//! (cordon, not ready, lost) is the node's own state and never asked here, so that "never fits" and "not now" stay
//! apart.

use crate::error::{Fault, FieldFault};
use crds::names::taints;
use k8s_openapi::api::core::v1::{
    Node, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, PodSpec, Taint, Toleration,
};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::sync::Arc;

/// Which nodes a pod allows.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Constraints {
    selector: BTreeMap<String, String>,
    /// Alternatives that must each hold one term: the pod's own affinity and one for each pinned volume.
    affinities: BTreeSet<BTreeSet<Term>>,
    tolerations: BTreeSet<Tolerated>,
    avoided: BTreeSet<String>,
}

/// All requirements of a term must hold; a term without any holds nowhere.
type Term = BTreeSet<Requirement>;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Requirement {
    subject: Subject,
    test: Test,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Subject {
    Name,
    Label(String),
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Test {
    In(BTreeSet<String>),
    NotIn(BTreeSet<String>),
    Exists,
    Absent,
    Above(i64),
    Below(i64),
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Tolerated {
    /// Empty: every key.
    key: String,
    /// Absent: every value.
    value: Option<String>,
    /// Empty: every effect.
    effect: String,
}

/// Why a node is not allowed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// A label that `nodeSelector` asks for is missing or differs.
    Selector(String),
    /// No term of a required affinity (the pod's or a volume's) holds.
    Affinity,
    /// A taint that is not tolerated, as `key=value:effect`.
    Taint(String),
    /// Starts of this pod were refused there lately.
    Avoided,
}

impl Constraints {
    /// The constraints of a pod's spec.
    ///
    /// # Errors
    /// The first requirement that cannot be read.
    pub fn of(spec: &PodSpec) -> Result<Self, FieldFault> {
        let mut constraints = Self { selector: spec.node_selector.clone().unwrap_or_default(), ..Self::default() };
        let affinity = spec.affinity.as_ref().and_then(|a| a.node_affinity.as_ref());
        if let Some(required) = affinity.and_then(|n| n.required_during_scheduling_ignored_during_execution.as_ref()) {
            let field = "affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.";
            constraints.affinities.insert(read_terms(required).map_err(|f| f.under(field))?);
        }
        for (row, toleration) in spec.tolerations.iter().flatten().enumerate() {
            let tolerated = read_toleration(toleration).map_err(|f| f.under(&format!("tolerations[{row}].")))?;
            constraints.tolerations.insert(tolerated);
        }
        Ok(constraints)
    }

    /// The same for a pod of ours: nodes dedicated to Berth take it.
    #[must_use]
    pub fn tolerating_dedicated(mut self) -> Self {
        self.tolerations.insert(Tolerated { key: taints::DEDICATED.to_owned(), value: None, effect: String::new() });
        self
    }

    /// The same where a bound volume can be used.
    ///
    /// # Errors
    /// The first requirement of the volume's affinity that cannot be read.
    pub fn with_volume(mut self, affinity: &NodeSelector) -> Result<Self, FieldFault> {
        self.affinities.insert(read_terms(affinity).map_err(|f| f.under("nodeAffinity.required."))?);
        Ok(self)
    }

    /// The same without nodes that refused such pods lately.
    #[must_use]
    pub fn avoiding(mut self, nodes: impl IntoIterator<Item = String>) -> Self {
        self.avoided.extend(nodes);
        self
    }

    /// Canonical text: equal texts allow the same nodes.
    #[must_use]
    pub fn key(&self) -> Arc<str> {
        let mut text = String::new();
        for (name, value) in &self.selector {
            let _ = write!(text, "{name:?}={value:?};");
        }
        for terms in &self.affinities {
            let _ = write!(text, "any{terms:?};");
        }
        for tolerated in &self.tolerations {
            let _ = write!(text, "{:?}={:?}:{:?};", tolerated.key, tolerated.value, tolerated.effect);
        }
        for node in &self.avoided {
            let _ = write!(text, "not {node:?};");
        }
        text.into()
    }

    /// Whether the node may hold the pod, its room and its readiness aside.
    #[must_use]
    pub fn allows(&self, node: &Node) -> bool {
        self.obstacle(node).is_none()
    }

    /// Whether the node's labels satisfy every required affinity, taints and all else aside.
    #[must_use]
    pub fn reaches(&self, node: &Node) -> bool {
        let none = BTreeMap::new();
        let labels = node.metadata.labels.as_ref().unwrap_or(&none);
        let name = node.metadata.name.as_deref().unwrap_or_default();
        self.affinities.iter().all(|terms| terms.iter().any(|term| holds(term, name, labels)))
    }

    /// The first thing that keeps the pod from the node, if anything does.
    #[must_use]
    pub fn obstacle(&self, node: &Node) -> Option<Obstacle> {
        let none = BTreeMap::new();
        let labels = node.metadata.labels.as_ref().unwrap_or(&none);
        let name = node.metadata.name.as_deref().unwrap_or_default();
        if let Some((label, value)) = self.selector.iter().find(|(label, value)| labels.get(*label) != Some(value)) {
            return Some(Obstacle::Selector(format!("{label}={value}")));
        }
        if !self.reaches(node) {
            return Some(Obstacle::Affinity);
        }
        let node_taints = node.spec.as_ref().and_then(|s| s.taints.as_ref());
        if let Some(taint) = node_taints.into_iter().flatten().find(|t| repels(t) && !self.tolerates(t)) {
            let value = taint.value.as_deref().unwrap_or_default();
            return Some(Obstacle::Taint(format!("{}={value}:{}", taint.key, taint.effect)));
        }
        self.avoided.contains(name).then_some(Obstacle::Avoided)
    }

    fn tolerates(&self, taint: &Taint) -> bool {
        self.tolerations.iter().any(|t| {
            (t.key.is_empty() || t.key == taint.key)
                && (t.effect.is_empty() || t.effect == taint.effect)
                && t.value.as_deref().is_none_or(|value| value == taint.value.as_deref().unwrap_or_default())
        })
    }
}

/// Whether a taint keeps pods away that do not tolerate it, and is not a sign of the node's own state.
fn repels(taint: &Taint) -> bool {
    matches!(taint.effect.as_str(), "NoSchedule" | "NoExecute") && !crate::node::is_state_taint(&taint.key)
}

fn read_terms(selector: &NodeSelector) -> Result<BTreeSet<Term>, FieldFault> {
    let terms = selector.node_selector_terms.iter().enumerate();
    terms.map(|(row, term)| read_term(term).map_err(|f| f.under(&format!("nodeSelectorTerms[{row}].")))).collect()
}

fn read_term(term: &NodeSelectorTerm) -> Result<Term, FieldFault> {
    let mut requirements = Term::new();
    for (row, e) in term.match_expressions.iter().flatten().enumerate() {
        let test = read_test(e).map_err(|fault| FieldFault::new(format!("matchExpressions[{row}]"), fault))?;
        requirements.insert(Requirement { subject: Subject::Label(e.key.clone()), test });
    }
    for (row, e) in term.match_fields.iter().flatten().enumerate() {
        let at = |fault| FieldFault::new(format!("matchFields[{row}]"), fault);
        if e.key != "metadata.name" {
            return Err(at(Fault::NodeField(e.key.clone())));
        }
        requirements.insert(Requirement { subject: Subject::Name, test: read_test(e).map_err(at)? });
    }
    Ok(requirements)
}

fn read_test(e: &NodeSelectorRequirement) -> Result<Test, Fault> {
    let values: BTreeSet<String> = e.values.iter().flatten().cloned().collect();
    let refuse = |accepted| Fault::Operand { operator: e.operator.clone(), value: format!("{values:?}"), accepted };
    let number = || {
        let mut each = values.iter();
        match (each.next().and_then(|v| v.parse::<i64>().ok()), each.next()) {
            (Some(number), None) => Ok(number),
            _ => Err(refuse("one whole number")),
        }
    };
    match e.operator.as_str() {
        "In" | "NotIn" if values.is_empty() => Err(refuse("one value or more")),
        "Exists" | "DoesNotExist" if !values.is_empty() => Err(refuse("no value")),
        "In" => Ok(Test::In(values)),
        "NotIn" => Ok(Test::NotIn(values)),
        "Exists" => Ok(Test::Exists),
        "DoesNotExist" => Ok(Test::Absent),
        "Gt" => number().map(Test::Above),
        "Lt" => number().map(Test::Below),
        other => {
            Err(Fault::Operator { value: other.to_owned(), accepted: "In, NotIn, Exists, DoesNotExist, Gt and Lt" })
        }
    }
}

fn holds(term: &Term, name: &str, labels: &BTreeMap<String, String>) -> bool {
    !term.is_empty()
        && term.iter().all(|requirement| {
            let value = match &requirement.subject {
                Subject::Name => Some(name),
                Subject::Label(label) => labels.get(label).map(String::as_str),
            };
            requirement.test.holds(value)
        })
}

impl Test {
    fn holds(&self, value: Option<&str>) -> bool {
        let number = || value.and_then(|v| v.parse::<i64>().ok());
        match self {
            Self::In(values) => value.is_some_and(|v| values.contains(v)),
            Self::NotIn(values) => !value.is_some_and(|v| values.contains(v)),
            Self::Exists => value.is_some(),
            Self::Absent => value.is_none(),
            Self::Above(least) => number().is_some_and(|n| n > *least),
            Self::Below(most) => number().is_some_and(|n| n < *most),
        }
    }
}

fn read_toleration(toleration: &Toleration) -> Result<Tolerated, FieldFault> {
    let key = toleration.key.clone().unwrap_or_default();
    let value = match toleration.operator.as_deref().unwrap_or("Equal") {
        "Exists" => None,
        "" | "Equal" => Some(toleration.value.clone().unwrap_or_default()),
        other => {
            let fault = Fault::Operator { value: other.to_owned(), accepted: "Exists and Equal" };
            return Err(FieldFault::new("operator", fault));
        }
    };
    Ok(Tolerated { key, value, effect: toleration.effect.clone().unwrap_or_default() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn mk_node(labels: Value, taints: Value) -> Node {
        serde_json::from_value(json!({"metadata": {"name": "n1", "labels": labels}, "spec": {"taints": taints}}))
            .expect("a node")
    }

    fn of(spec: Value) -> Constraints {
        let mut whole = json!({"containers": []});
        whole.as_object_mut().expect("an object").extend(spec.as_object().expect("an object").clone());
        Constraints::of(&serde_json::from_value(whole).expect("a spec")).expect("readable")
    }

    fn affinity(terms: Value) -> Value {
        json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}})
    }

    #[test]
    fn every_operator_means_what_it_means_to_kube_scheduler() {
        let node = mk_node(json!({"gpu": "h100", "count": "8", "odd": "x8"}), json!([]));
        for (requirement, want) in [
            (json!({"key": "gpu", "operator": "In", "values": ["h100", "a100"]}), true),
            (json!({"key": "gpu", "operator": "In", "values": ["a100"]}), false),
            (json!({"key": "gpu", "operator": "NotIn", "values": ["a100"]}), true),
            (json!({"key": "missing", "operator": "NotIn", "values": ["a100"]}), true),
            (json!({"key": "gpu", "operator": "Exists"}), true),
            (json!({"key": "missing", "operator": "DoesNotExist"}), true),
            (json!({"key": "count", "operator": "Gt", "values": ["7"]}), true),
            (json!({"key": "count", "operator": "Gt", "values": ["8"]}), false),
            (json!({"key": "count", "operator": "Lt", "values": ["9"]}), true),
            (json!({"key": "odd", "operator": "Gt", "values": ["1"]}), false),
            (json!({"key": "missing", "operator": "Lt", "values": ["9"]}), false),
        ] {
            let constraints = of(affinity(json!([{"matchExpressions": [requirement]}])));
            assert_eq!(constraints.allows(&node), want, "{requirement}");
        }
    }

    #[test]
    fn terms_are_alternatives_and_an_empty_one_holds_nowhere() {
        let node = mk_node(json!({"a": "1"}), json!([]));
        let field = |name: &str| json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]});
        assert!(of(affinity(json!([field("other"), field("n1")]))).allows(&node));
        assert!(!of(affinity(json!([field("other")]))).allows(&node));
        assert!(!of(affinity(json!([{}]))).allows(&node));
    }

    #[test]
    fn taints_repel_unless_tolerated_and_state_is_not_asked() {
        let tainted =
            |key: &str, effect: &str| mk_node(json!({}), json!([{"key": key, "value": "v", "effect": effect}]));
        let plain = of(json!({}));
        assert!(!plain.allows(&tainted("team", "NoSchedule")));
        assert!(!plain.allows(&tainted("team", "NoExecute")));
        assert!(plain.allows(&tainted("team", "PreferNoSchedule")));
        assert!(plain.allows(&tainted("node.kubernetes.io/unschedulable", "NoSchedule")));
        for toleration in [
            json!({"operator": "Exists"}),
            json!({"key": "team", "operator": "Exists"}),
            json!({"key": "team", "value": "v"}),
            json!({"key": "team", "value": "v", "effect": "NoSchedule"}),
        ] {
            assert!(of(json!({"tolerations": [toleration]})).allows(&tainted("team", "NoSchedule")), "{toleration}");
        }
        for toleration in [
            json!({"key": "team", "value": "w"}),
            json!({"key": "team", "value": "v", "effect": "NoExecute"}),
            json!({"key": "other", "operator": "Exists"}),
        ] {
            assert!(!of(json!({"tolerations": [toleration]})).allows(&tainted("team", "NoSchedule")), "{toleration}");
        }
    }

    #[test]
    fn dedicated_nodes_take_our_pods_without_being_named() {
        let node = mk_node(json!({}), json!([{"key": "berth.dev/dedicated", "value": "yes", "effect": "NoExecute"}]));
        assert!(!of(json!({})).allows(&node));
        assert!(of(json!({})).tolerating_dedicated().allows(&node));
    }

    #[test]
    fn volumes_and_avoided_nodes_narrow_what_is_allowed() {
        let node = mk_node(json!({"zone": "a"}), json!([]));
        let in_zone = |zone: &str| -> NodeSelector {
            let term = json!({"matchExpressions": [{"key": "zone", "operator": "In", "values": [zone]}]});
            serde_json::from_value(json!({"nodeSelectorTerms": [term]})).expect("a selector")
        };
        let plain = of(json!({}));
        assert!(plain.clone().with_volume(&in_zone("a")).expect("readable").allows(&node));
        assert!(!plain.clone().with_volume(&in_zone("b")).expect("readable").allows(&node));
        let avoiding = plain.clone().avoiding(["n1".to_owned()]);
        assert_eq!(avoiding.obstacle(&node), Some(Obstacle::Avoided));
        assert_ne!(avoiding.key(), plain.key());
    }

    #[test]
    fn the_key_does_not_depend_on_the_order_of_what_is_written() {
        let (a, b) = (json!({"key": "a", "operator": "Exists"}), json!({"key": "b", "operator": "Exists"}));
        let one = of(affinity(json!([{"matchExpressions": [a, b]}])));
        let two = of(affinity(json!([{"matchExpressions": [b, a]}])));
        assert_eq!(one.key(), two.key());
        let apart = of(affinity(json!([{"matchExpressions": [a]}, {"matchExpressions": [b]}])));
        assert_ne!(one.key(), apart.key(), "both in one term is not either of two terms");
    }

    #[test]
    fn what_cannot_be_read_is_named_by_its_path() {
        let spec = json!({"containers": [], "affinity": affinity(json!([{"matchExpressions": [
            {"key": "gpus", "operator": "Gt", "values": ["many"]}]}]))["affinity"]});
        let fault = Constraints::of(&serde_json::from_value(spec).expect("a spec")).expect_err("not a number");
        let prefix = "affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution";
        assert_eq!(fault.field, format!("{prefix}.nodeSelectorTerms[0].matchExpressions[0]"));
        assert_eq!(fault.fault.to_string(), r#"operator Gt does not take {"many"}; it takes one whole number"#);
    }
}
