//! The claims of a pod against the volumes of the cluster: which nodes they allow, what has to come before a pod may be
//! made, and for which claims a node is chosen first. A pod that is bound at creation passes no scheduler that would ask.
//!
//! Attachments count as resources: `volumes/<driver>`, of which a node has as many as its CSINode says. A claim that
//! several pods of one node share counts once for each of them: stricter than a kubelet, never laxer.

use crate::amounts::Named;
use crate::pod::PodAsk;
use crds::Code;
use crds::names::annotations::SELECTED_NODE;
use k8s_openapi::api::core::v1::{
    NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, PersistentVolume, PersistentVolumeClaim, Pod, PodSpec,
    TopologySelectorTerm, Volume,
};
use k8s_openapi::api::storage::v1::{CSINode, StorageClass};
use planner::ResourceIdx;
use planner::resources::{Amounts, ResourceTable};
use std::collections::{BTreeMap, BTreeSet};

/// Begin of the name of every driver's resource.
pub const PREFIX: &str = "volumes/";
/// Provisioner of classes whose volumes are made by hand.
pub const BY_HAND: &str = "kubernetes.io/no-provisioner";
/// Attachments of a node that names no limit for a driver.
const UNLIMITED: i64 = 1 << 20;
/// Labels of volumes made before volumes had a node affinity; several zones are separated by `__`.
const ZONES: [&str; 4] = [
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
];
const DEFAULT_CLASS: &str = "storageclass.kubernetes.io/is-default-class";

/// Where what concerns storage is found.
pub trait Storage {
    /// A claim by `namespace/name`.
    fn claim(&self, key: &str) -> Option<&PersistentVolumeClaim>;
    /// A volume.
    fn volume(&self, name: &str) -> Option<&PersistentVolume>;
    /// A class.
    fn class(&self, name: &str) -> Option<&StorageClass>;
    /// The class of claims that name none.
    fn default_class(&self) -> Option<&StorageClass>;
    /// Whether some node limits the volumes of a driver.
    fn is_limited(&self, driver: &str) -> bool;
}

/// What a pod's volumes ask for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct VolumeAsk {
    /// Each must hold at the pod's node.
    pub affinities: Vec<NodeSelector>,
    /// Attachments by resource.
    pub attached: Named,
    /// Claims whose volume is made where its first pod runs: their node is chosen before that pod is made.
    pub unselected: BTreeSet<String>,
}

/// Why a pod's volumes cannot be used (yet).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeTrouble {
    /// The code.
    pub code: Code,
    /// In words.
    pub message: String,
}

fn trouble<T>(code: Code, message: String) -> Result<T, VolumeTrouble> {
    Err(VolumeTrouble { code, message })
}

/// Names of the claims that a pod's volumes name.
pub fn claims_of(spec: &PodSpec) -> impl Iterator<Item = &str> {
    let volumes = spec.volumes.iter().flatten();
    volumes.filter_map(|v| v.persistent_volume_claim.as_ref()).map(|c| c.claim_name.as_str())
}

/// Volumes that are made for each pod anew, with the name of the pod's claim.
pub fn ephemeral_claims<'a>(pod: &'a str, spec: &'a PodSpec) -> impl Iterator<Item = String> + 'a {
    let volumes = spec.volumes.iter().flatten().filter(|v| v.ephemeral.is_some());
    volumes.map(move |v| format!("{pod}-{}", v.name))
}

/// Whether any volume of a pod is a claim.
#[must_use]
pub fn has_claims(spec: &PodSpec) -> bool {
    spec.volumes.iter().flatten().any(|v| v.persistent_volume_claim.is_some() || v.ephemeral.is_some())
}

/// What the volumes of a pod that is to be made ask for.
///
/// # Errors
/// The first claim that cannot serve it as things stand.
pub fn ask(namespace: &str, spec: &PodSpec, storage: &impl Storage) -> Result<VolumeAsk, VolumeTrouble> {
    let mut asked = VolumeAsk::default();
    for volume in spec.volumes.iter().flatten() {
        if let Some(claim) = &volume.persistent_volume_claim {
            asked.claim(namespace, &claim.claim_name, storage)?;
        } else if volume.ephemeral.is_some() {
            asked.ephemeral(volume, storage)?;
        }
    }
    Ok(asked)
}

impl VolumeAsk {
    fn claim(&mut self, namespace: &str, name: &str, storage: &impl Storage) -> Result<(), VolumeTrouble> {
        let Some(claim) = storage.claim(&format!("{namespace}/{name}")) else {
            return trouble(
                Code::VolumeMissing,
                format!("claim \"{name}\" does not exist; make it in namespace {namespace}"),
            );
        };
        if claim.metadata.deletion_timestamp.is_some() {
            return trouble(Code::VolumeMissing, format!("claim \"{name}\" is being deleted; make it anew"));
        }
        match state_of(claim, storage) {
            ClaimState::Bound(volume) => {
                self.affinities.extend(reach(volume));
                self.attach(driver_of(volume), storage);
                Ok(())
            }
            ClaimState::ForFirstPod(class) => {
                let known = claim.metadata.annotations.as_ref().and_then(|a| a.get(SELECTED_NODE));
                if let Some(node) = known {
                    let message = format!("the volume of claim \"{name}\" is being made for node {node}");
                    return trouble(Code::VolumeNotBound, message);
                }
                self.unselected.insert(name.to_owned());
                self.affinities.extend(allowed(class));
                self.attach(Some(&class.provisioner), storage);
                Ok(())
            }
            ClaimState::ByHand(class) => {
                let class = class.metadata.name.as_deref().unwrap_or_default();
                let message = format!(
                    "claim \"{name}\" is not bound and its class {class} makes no volumes; bind it in advance, or use another class"
                );
                trouble(Code::VolumeUnsupported, message)
            }
            ClaimState::Waits(why) => trouble(Code::VolumeNotBound, format!("claim \"{name}\" {why}")),
        }
    }

    fn ephemeral(&mut self, volume: &Volume, storage: &impl Storage) -> Result<(), VolumeTrouble> {
        let template = volume.ephemeral.as_ref().and_then(|e| e.volume_claim_template.as_ref());
        let named = template.and_then(|t| t.spec.storage_class_name.as_deref());
        let class = match named {
            Some(name) => storage.class(name),
            None => storage.default_class(),
        };
        let Some(class) = class else {
            let what = named.map_or_else(|| "no default StorageClass".to_owned(), |n| format!("no StorageClass {n}"));
            let message = format!("volume \"{}\" is to be made for each pod, and there is {what}", volume.name);
            return trouble(Code::VolumeNotBound, message);
        };
        if class.provisioner == BY_HAND {
            let class = class.metadata.name.as_deref().unwrap_or_default();
            let message = format!(
                "volume \"{}\" is to be made for each pod, and its class {class} makes no volumes; use another class",
                volume.name
            );
            return trouble(Code::VolumeUnsupported, message);
        }
        if is_for_first_pod(class) {
            self.affinities.extend(allowed(class));
        }
        self.attach(Some(&class.provisioner), storage);
        Ok(())
    }

    fn attach(&mut self, driver: Option<&str>, storage: &impl Storage) {
        if let Some(driver) = driver.filter(|d| storage.is_limited(d)) {
            *self.attached.entry(format!("{PREFIX}{driver}")).or_default() += 1;
        }
    }

    /// The pod's own wishes with those of its volumes.
    ///
    /// # Errors
    /// A volume's affinity that cannot be read.
    pub fn added_to(&self, ask: PodAsk) -> Result<PodAsk, VolumeTrouble> {
        let PodAsk { mut requests, mut constraints } = ask;
        requests.extend(self.attached.clone());
        for affinity in &self.affinities {
            constraints = match constraints.with_volume(affinity) {
                Ok(narrowed) => narrowed,
                Err(fault) => {
                    let message = format!("a volume's {} cannot be read: {}", fault.field, fault.fault);
                    return trouble(Code::VolumeUnsupported, message);
                }
            };
        }
        Ok(PodAsk { requests, constraints })
    }
}

/// How a claim stands.
#[derive(Clone, Debug)]
pub enum ClaimState<'a> {
    /// It has its volume.
    Bound(&'a PersistentVolume),
    /// Its volume is made when its first pod has a node.
    ForFirstPod(&'a StorageClass),
    /// Its volume is made by nobody.
    ByHand(&'a StorageClass),
    /// It waits for something else, in words.
    Waits(String),
}

/// How a claim stands.
#[must_use]
pub fn state_of<'a>(claim: &PersistentVolumeClaim, storage: &'a impl Storage) -> ClaimState<'a> {
    let spec = claim.spec.as_ref();
    let phase = claim.status.as_ref().and_then(|s| s.phase.as_deref());
    let volume = spec.and_then(|s| s.volume_name.as_deref()).filter(|v| !v.is_empty());
    match (phase, volume) {
        (Some("Lost"), _) => ClaimState::Waits("has lost its volume".to_owned()),
        (Some("Bound"), Some(name)) => match storage.volume(name) {
            Some(volume) => ClaimState::Bound(volume),
            None => ClaimState::Waits(format!("is bound to volume {name}, which does not exist")),
        },
        (_, Some(name)) => ClaimState::Waits(format!("waits for its volume {name}")),
        (_, None) => unbound(spec.and_then(|s| s.storage_class_name.as_deref()).filter(|c| !c.is_empty()), storage),
    }
}

fn unbound<'a>(class: Option<&str>, storage: &'a impl Storage) -> ClaimState<'a> {
    let Some(name) = class else {
        return ClaimState::Waits("is not bound and names no StorageClass that could make its volume".to_owned());
    };
    match storage.class(name) {
        None => ClaimState::Waits(format!("is not bound, and its StorageClass {name} does not exist")),
        Some(class) if class.provisioner == BY_HAND => ClaimState::ByHand(class),
        Some(class) if is_for_first_pod(class) => ClaimState::ForFirstPod(class),
        Some(_) => ClaimState::Waits("is not bound yet; see its events".to_owned()),
    }
}

fn is_for_first_pod(class: &StorageClass) -> bool {
    class.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer")
}

/// Whether a class is that of claims that name none.
#[must_use]
pub fn is_default(class: &StorageClass) -> bool {
    class.metadata.annotations.as_ref().and_then(|a| a.get(DEFAULT_CLASS)).is_some_and(|v| v == "true")
}

/// Where a volume can be used.
fn reach(volume: &PersistentVolume) -> Vec<NodeSelector> {
    let affinity = volume.spec.as_ref().and_then(|s| s.node_affinity.as_ref()?.required.clone());
    let labels = volume.metadata.labels.as_ref();
    let zones = ZONES.iter().filter_map(|zone| {
        let values = labels?.get(*zone)?.split("__").map(str::to_owned).collect();
        Some(one_of(zone, values))
    });
    affinity.into_iter().chain(zones.map(|requirement| terms(vec![vec![requirement]]))).collect()
}

/// Where volumes of a class can be made.
fn allowed(class: &StorageClass) -> Option<NodeSelector> {
    let of_term = |term: &TopologySelectorTerm| {
        let labels = term.match_label_expressions.iter().flatten();
        labels.map(|e| one_of(&e.key, e.values.clone())).collect()
    };
    let all: Vec<Vec<NodeSelectorRequirement>> = class.allowed_topologies.iter().flatten().map(of_term).collect();
    (!all.is_empty()).then(|| terms(all))
}

fn one_of(label: &str, values: Vec<String>) -> NodeSelectorRequirement {
    NodeSelectorRequirement { key: label.to_owned(), operator: "In".to_owned(), values: Some(values) }
}

fn terms(all: Vec<Vec<NodeSelectorRequirement>>) -> NodeSelector {
    let term = |requirements| NodeSelectorTerm { match_expressions: Some(requirements), match_fields: None };
    NodeSelector { node_selector_terms: all.into_iter().map(term).collect() }
}

/// Only this node, or nodes: where a disk is that one node holds at a time.
#[must_use]
pub fn only_on(nodes: impl IntoIterator<Item = String>) -> NodeSelector {
    let one = NodeSelectorRequirement {
        key: "metadata.name".to_owned(),
        operator: "In".to_owned(),
        values: Some(nodes.into_iter().collect()),
    };
    NodeSelector {
        node_selector_terms: vec![NodeSelectorTerm { match_expressions: None, match_fields: Some(vec![one]) }],
    }
}

/// Whether a selector allows one node at most, as that of a local disk does.
fn names_one_node(selector: &NodeSelector) -> bool {
    let [term] = selector.node_selector_terms.as_slice() else { return false };
    let all = term.match_expressions.iter().chain(&term.match_fields).flatten();
    let names = |r: &NodeSelectorRequirement| matches!(r.key.as_str(), "kubernetes.io/hostname" | "metadata.name");
    all.filter(|r| names(r) && r.operator == "In").any(|r| r.values.as_ref().is_some_and(|v| v.len() == 1))
}

fn driver_of(volume: &PersistentVolume) -> Option<&str> {
    Some(volume.spec.as_ref()?.csi.as_ref()?.driver.as_str())
}

/// Whether a claim of these access modes serves so many pods at once.
#[must_use]
pub fn serves(modes: &[String], pods: i64, on_one_node: bool) -> bool {
    let only = |mode: &str| !modes.is_empty() && modes.iter().all(|m| m == mode);
    pods <= 1 || !(only("ReadWriteOncePod") || only("ReadWriteOnce") && !on_one_node)
}

/// Whether a claim may be used by one pod alone.
#[must_use]
pub fn is_for_one_pod(claim: &PersistentVolumeClaim) -> bool {
    modes(claim).iter().any(|m| m == "ReadWriteOncePod")
}

/// Whether a claim may be used on one node alone.
#[must_use]
pub fn is_for_one_node(claim: &PersistentVolumeClaim) -> bool {
    !modes(claim).is_empty() && modes(claim).iter().all(|m| m == "ReadWriteOnce")
}

/// Access modes of a claim.
#[must_use]
pub fn modes(claim: &PersistentVolumeClaim) -> &[String] {
    claim.spec.as_ref().and_then(|s| s.access_modes.as_deref()).unwrap_or_default()
}

/// Whether a bound claim's volume exists on one node alone, so that its pods meet there anyway.
#[must_use]
pub fn is_local(claim: &PersistentVolumeClaim, storage: &impl Storage) -> bool {
    matches!(state_of(claim, storage), ClaimState::Bound(volume) if is_of_one_node(volume))
}

/// Whether a volume exists on one node alone.
#[must_use]
pub fn is_of_one_node(volume: &PersistentVolume) -> bool {
    reach(volume).iter().any(names_one_node)
}

/// Names of the classes that a pod's own volumes name.
pub fn classes_of(spec: &PodSpec) -> impl Iterator<Item = &str> {
    let templates = spec.volumes.iter().flatten().filter_map(|v| v.ephemeral.as_ref()?.volume_claim_template.as_ref());
    templates.filter_map(|t| t.spec.storage_class_name.as_deref())
}

/// The attachments that a pod that exists holds on its node.
#[must_use]
pub fn attached(pod: &Pod, storage: &impl Storage) -> Named {
    let Some(spec) = pod.spec.as_ref().filter(|s| has_claims(s)) else { return Named::new() };
    let (namespace, name) = (pod.metadata.namespace.as_deref().unwrap_or_default(), pod.metadata.name.as_deref());
    let claims = claims_of(spec).map(str::to_owned).chain(ephemeral_claims(name.unwrap_or_default(), spec));
    let mut held = VolumeAsk::default();
    for claim in claims.filter_map(|name| storage.claim(&format!("{namespace}/{name}"))) {
        match state_of(claim, storage) {
            ClaimState::Bound(volume) => held.attach(driver_of(volume), storage),
            ClaimState::ForFirstPod(class) => held.attach(Some(&class.provisioner), storage),
            ClaimState::ByHand(_) | ClaimState::Waits(_) => {}
        }
    }
    held.attached
}

/// The limits of a node: volumes by driver.
#[must_use]
pub fn limits(node: &CSINode) -> BTreeMap<String, i64> {
    let drivers = node.spec.drivers.iter();
    drivers.filter_map(|d| Some((d.name.clone(), i64::from(d.allocatable.as_ref()?.count?)))).collect()
}

/// Gives a node what it can hold of each driver in the table.
pub fn grant(allocatable: &mut Amounts, table: &ResourceTable, limits: &BTreeMap<String, i64>) {
    for row in (0..table.len()).map(ResourceIdx::of) {
        if let Some(driver) = table.name(row).strip_prefix(PREFIX) {
            allocatable.set(row, limits.get(driver).copied().unwrap_or(UNLIMITED));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::Node;
    use serde_json::{Value, json};

    #[derive(Default)]
    struct Shelf {
        claims: BTreeMap<String, PersistentVolumeClaim>,
        volumes: BTreeMap<String, PersistentVolume>,
        classes: BTreeMap<String, StorageClass>,
        limited: BTreeSet<String>,
    }

    impl Storage for Shelf {
        fn claim(&self, key: &str) -> Option<&PersistentVolumeClaim> {
            self.claims.get(key)
        }
        fn volume(&self, name: &str) -> Option<&PersistentVolume> {
            self.volumes.get(name)
        }
        fn class(&self, name: &str) -> Option<&StorageClass> {
            self.classes.get(name)
        }
        fn default_class(&self) -> Option<&StorageClass> {
            self.classes.values().find(|c| is_default(c))
        }
        fn is_limited(&self, driver: &str) -> bool {
            self.limited.contains(driver)
        }
    }

    impl Shelf {
        fn with_class(mut self, name: &str, provisioner: &str, mode: &str, more: Value) -> Self {
            let mut class = json!({"metadata": {"name": name}, "provisioner": provisioner, "volumeBindingMode": mode});
            class.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
            self.classes.insert(name.into(), serde_json::from_value(class).expect("a class"));
            self
        }

        fn with_claim(mut self, name: &str, spec: Value, phase: &str, notes: Value) -> Self {
            let claim = json!({"metadata": {"name": name, "namespace": "ns", "annotations": notes}, "spec": spec, "status": {"phase": phase}});
            self.claims.insert(format!("ns/{name}"), serde_json::from_value(claim).expect("a claim"));
            self
        }

        fn with_volume(mut self, name: &str, labels: Value, spec: Value) -> Self {
            let volume = json!({"metadata": {"name": name, "labels": labels}, "spec": spec});
            self.volumes.insert(name.into(), serde_json::from_value(volume).expect("a volume"));
            self
        }
    }

    fn of_claim(claim: &str) -> PodSpec {
        let volumes = json!([{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]);
        serde_json::from_value(json!({"containers": [], "volumes": volumes})).expect("a spec")
    }

    fn refused(claim: &str, shelf: &Shelf) -> (Code, String) {
        let trouble = ask("ns", &of_claim(claim), shelf).expect_err("trouble");
        (trouble.code, trouble.message)
    }

    fn in_zone(zone: &str) -> Value {
        json!({"required": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": [zone]}]}]}})
    }

    fn mk_node(name: &str, labels: Value) -> Node {
        serde_json::from_value(json!({"metadata": {"name": name, "labels": labels}})).expect("a node")
    }

    #[test]
    fn a_bound_claim_allows_the_nodes_that_its_volume_reaches() {
        let bound = json!({"volumeName": "pv"});
        let shelf = Shelf::default().with_claim("data", bound, "Bound", json!({})).with_volume(
            "pv",
            json!({"topology.kubernetes.io/region": "x__y"}),
            json!({"nodeAffinity": in_zone("a")}),
        );
        let asked = ask("ns", &of_claim("data"), &shelf).expect("usable");
        let narrowed = asked.added_to(PodAsk::of_ours(&of_claim("data")).expect("readable")).expect("readable");
        let at = |zone: &str, region: &str| json!({"zone": zone, "topology.kubernetes.io/region": region});
        assert!(narrowed.constraints.allows(&mk_node("n", at("a", "y"))));
        assert!(!narrowed.constraints.allows(&mk_node("n", at("b", "y"))));
        assert!(!narrowed.constraints.allows(&mk_node("n", at("a", "z"))));
    }

    #[test]
    fn each_way_a_claim_can_fail_has_its_code_and_names_the_claim() {
        let shelf = Shelf::default()
            .with_class("now", "csi.x", "Immediate", json!({}))
            .with_class("hand", BY_HAND, "WaitForFirstConsumer", json!({}))
            .with_claim("lost", json!({"volumeName": "pv"}), "Lost", json!({}))
            .with_claim("gone", json!({"volumeName": "pv"}), "Bound", json!({}))
            .with_claim("static", json!({}), "Pending", json!({}))
            .with_claim("made", json!({"storageClassName": "now"}), "Pending", json!({}))
            .with_claim("hand", json!({"storageClassName": "hand"}), "Pending", json!({}))
            .with_claim("unknown", json!({"storageClassName": "nobody"}), "Pending", json!({}));
        for (claim, code, words) in [
            ("nowhere", Code::VolumeMissing, "does not exist; make it in namespace ns"),
            ("lost", Code::VolumeNotBound, "has lost its volume"),
            ("gone", Code::VolumeNotBound, "volume pv, which does not exist"),
            ("static", Code::VolumeNotBound, "names no StorageClass"),
            ("made", Code::VolumeNotBound, "is not bound yet"),
            ("hand", Code::VolumeUnsupported, "its class hand makes no volumes"),
            ("unknown", Code::VolumeNotBound, "StorageClass nobody does not exist"),
        ] {
            let (seen, message) = refused(claim, &shelf);
            assert_eq!(seen, code, "{message}");
            assert!(message.contains(&format!("\"{claim}\"")) && message.contains(words), "{message}");
        }
    }

    #[test]
    fn a_claim_that_waits_for_its_first_pod_gets_a_node_chosen_where_its_class_makes_volumes() {
        let zones = json!({"allowedTopologies": [{"matchLabelExpressions": [{"key": "zone", "values": ["a", "b"]}]}]});
        let shelf = Shelf::default()
            .with_class("late", "csi.x", "WaitForFirstConsumer", zones)
            .with_claim("data", json!({"storageClassName": "late"}), "Pending", json!({}))
            .with_claim("busy", json!({"storageClassName": "late"}), "Pending", json!({SELECTED_NODE: "n7"}));
        let asked = ask("ns", &of_claim("data"), &shelf).expect("usable");
        assert_eq!(asked.unselected, BTreeSet::from(["data".to_owned()]));
        let narrowed = asked.added_to(PodAsk::of_ours(&of_claim("data")).expect("readable")).expect("readable");
        assert!(narrowed.constraints.allows(&mk_node("n", json!({"zone": "b"}))));
        assert!(!narrowed.constraints.allows(&mk_node("n", json!({"zone": "c"}))));
        assert!(refused("busy", &shelf).1.contains("being made for node n7"));
    }

    #[test]
    fn volumes_made_for_each_pod_need_a_class_that_makes_them() {
        let spec = |class: Value| -> PodSpec {
            let template = json!({"spec": {"storageClassName": class}});
            let volumes = json!([{"name": "scratch", "ephemeral": {"volumeClaimTemplate": template}}]);
            serde_json::from_value(json!({"containers": [], "volumes": volumes})).expect("a spec")
        };
        let shelf = Shelf::default().with_class("hand", BY_HAND, "WaitForFirstConsumer", json!({}));
        assert_eq!(ask("ns", &spec(json!("hand")), &shelf).expect_err("by hand").code, Code::VolumeUnsupported);
        assert_eq!(ask("ns", &spec(Value::Null), &shelf).expect_err("none").code, Code::VolumeNotBound);
        let default = json!({"metadata": {"name": "std", "annotations": {DEFAULT_CLASS: "true"}}});
        let shelf = shelf.with_class("std", "csi.x", "WaitForFirstConsumer", default);
        assert!(ask("ns", &spec(Value::Null), &shelf).is_ok());
        assert_eq!(ephemeral_claims("p-0", &spec(Value::Null)).collect::<Vec<_>>(), ["p-0-scratch"]);
    }

    #[test]
    fn access_modes_say_how_many_pods_a_claim_serves() {
        let modes = |all: &[&str]| all.iter().map(|m| (*m).to_owned()).collect::<Vec<_>>();
        for (given, pods, one_node, want) in [
            (&["ReadWriteOnce"][..], 1, false, true),
            (&["ReadWriteOnce"], 2, false, false),
            (&["ReadWriteOnce"], 2, true, true),
            (&["ReadWriteOncePod"], 2, true, false),
            (&["ReadWriteOnce", "ReadOnlyMany"], 2, false, true),
            (&["ReadWriteMany"], 9, false, true),
            (&[], 9, false, true),
        ] {
            assert_eq!(serves(&modes(given), pods, one_node), want, "{given:?} for {pods}");
        }
    }

    #[test]
    fn a_local_disk_brings_its_pods_together() {
        let host = json!({"required": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["n1"]}]}]}});
        let shelf = Shelf::default()
            .with_claim("data", json!({"volumeName": "pv"}), "Bound", json!({}))
            .with_claim("wide", json!({"volumeName": "wide"}), "Bound", json!({}))
            .with_volume("pv", json!({}), json!({"nodeAffinity": host}))
            .with_volume("wide", json!({}), json!({"nodeAffinity": in_zone("a")}));
        assert!(is_local(&shelf.claims["ns/data"], &shelf));
        assert!(!is_local(&shelf.claims["ns/wide"], &shelf));
    }

    #[test]
    fn attachments_count_only_for_drivers_that_some_node_limits() {
        let csi = json!({"csi": {"driver": "csi.x", "volumeHandle": "1"}});
        let mut shelf = Shelf::default()
            .with_claim("data", json!({"volumeName": "pv"}), "Bound", json!({}))
            .with_volume("pv", json!({}), csi);
        assert!(ask("ns", &of_claim("data"), &shelf).expect("usable").attached.is_empty());
        shelf.limited.insert("csi.x".into());
        let want = Named::from([("volumes/csi.x".to_owned(), 1)]);
        assert_eq!(ask("ns", &of_claim("data"), &shelf).expect("usable").attached, want);
        let mut pod = Pod { spec: Some(of_claim("data")), ..Pod::default() };
        pod.metadata.namespace = Some("ns".into());
        assert_eq!(attached(&pod, &shelf), want);
        let mut table = ResourceTable::default();
        let row = table.intern("volumes/csi.x");
        let (mut limited, mut free) = (Amounts::default(), Amounts::default());
        grant(&mut limited, &table, &BTreeMap::from([("csi.x".to_owned(), 25)]));
        grant(&mut free, &table, &BTreeMap::new());
        assert_eq!((limited.get(row), free.get(row)), (25, UNLIMITED));
    }
}
