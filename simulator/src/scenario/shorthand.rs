//! Shorthand of a Scenario as ordinary objects: lines of nodes, queues, occupants, jobs.

use super::brackets;
use super::document::{Document, InputError, quantities_as_text};
use super::length::Length;
use crds::names::annotations;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::scheduling::v1::PriorityClass;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use planner::{Span, Time};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// A line of `spec.nodes`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NodesLine {
    names: String,
    #[serde(default)]
    allocatable: BTreeMap<String, Value>,
    #[serde(default)]
    labels: BTreeMap<String, Value>,
    #[serde(default)]
    annotations: BTreeMap<String, Value>,
    #[serde(default)]
    taints: Vec<Value>,
    #[serde(default)]
    unschedulable: bool,
}

impl NodesLine {
    /// The Nodes it stands for.
    ///
    /// # Errors
    /// If its brackets or values are wrong.
    pub fn nodes(&self, document: &Document, at: &str) -> Result<Vec<Node>, InputError> {
        let names = brackets::expand(&self.names).map_err(|e| document.error(&format!("{at}.names"), e))?;
        let mut nodes = Vec::new();
        for (name, values) in names {
            let filled = |map: &BTreeMap<String, Value>, field: &str| -> Result<Map<String, Value>, InputError> {
                let mut filled = Map::new();
                for (key, value) in map {
                    let text = text_of(value);
                    let text = brackets::fill(&text, &values)
                        .map_err(|e| document.error(&format!("{at}.{field}.{key}"), e))?;
                    filled.insert(key.clone(), text.into());
                }
                Ok(filled)
            };
            let allocatable: Map<String, Value> =
                self.allocatable.iter().map(|(k, v)| (k.clone(), text_of(v).into())).collect();
            let node = json!({
                "metadata": {"name": name, "labels": filled(&self.labels, "labels")?,
                    "annotations": filled(&self.annotations, "annotations")?},
                "spec": {"taints": self.taints, "unschedulable": self.unschedulable},
                "status": {"allocatable": allocatable, "conditions": [{"type": "Ready", "status": "True"}]},
            });
            nodes.push(document.typed(node, at)?);
        }
        Ok(nodes)
    }
}

fn text_of(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// A line of `spec.occupants`: a foreign pod, present at 0.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct OccupantLine {
    /// Name of the pod.
    pub name: String,
    /// Its node.
    pub node: String,
    /// What it takes.
    #[serde(default)]
    pub requests: BTreeMap<String, Value>,
    /// When it leaves.
    pub until: Option<Length>,
}

/// A failure of a job's own code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FailLine {
    /// From the start of the incarnation.
    pub after: Length,
    /// Rank of the pod that fails.
    #[serde(default)]
    pub pod: u32,
    /// Its exit code.
    #[serde(default = "one")]
    pub exit_code: i32,
}

fn one() -> i32 {
    1
}

/// A submission: what the user's manifest says, and the truth about its run.
#[derive(Clone, Debug, PartialEq)]
pub struct Submission {
    /// When.
    pub at: Time,
    /// The manifest as submitted; not yet known to be acceptable.
    pub manifest: Value,
    /// How long it really runs; absent: its limit, else an hour.
    pub runtime: Option<Span>,
    /// Its failures.
    pub fails: Vec<FailLine>,
}

/// Fields of a TrainingJob spec that shorthand passes through.
const SPEC_FIELDS: [&str; 14] = [
    "queue",
    "priorityClassName",
    "preemptible",
    "suspend",
    "maxRuntime",
    "expectedRuntime",
    "topology",
    "communication",
    "rendezvous",
    "roles",
    "checkpoint",
    "failurePolicy",
    "successPolicy",
    "ttlAfterFinished",
];

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Own {
    name: Option<String>,
    namespace: Option<String>,
    at: Option<Length>,
    runtime: Option<Length>,
    user: Option<String>,
    pods: Option<i64>,
    min_pods: Option<i64>,
    each: Option<BTreeMap<String, Value>>,
    slice: Option<Value>,
    priority: Option<i32>,
    tolerations: Option<Vec<Value>>,
    node_selector: Option<BTreeMap<String, Value>>,
    #[serde(default)]
    fails: Vec<FailLine>,
}

/// Shorthand fields beside those of the spec, for messages.
const OWN_FIELDS: &str = "name, namespace, at, runtime, user, pods, minPods, each, slice, priority, tolerations, \
                          nodeSelector, fails";

/// Splits shorthand from pass-through fields.
fn split(document: &Document, line: Map<String, Value>, at: &str) -> Result<(Own, Map<String, Value>), InputError> {
    let (spec, own): (Map<String, Value>, Map<String, Value>) =
        line.into_iter().partition(|(key, _)| SPEC_FIELDS.contains(&key.as_str()));
    let known: Vec<&str> = OWN_FIELDS.split(", ").map(str::trim).collect();
    if let Some(unknown) = own.keys().find(|k| !known.contains(&k.as_str())) {
        let problem =
            format!("no such field; accepted: {OWN_FIELDS}, and the TrainingJob fields {}", SPEC_FIELDS.join(", "));
        return Err(document.error(&format!("{at}.{unknown}"), problem));
    }
    Ok((document.typed(Value::Object(own), at)?, spec))
}

/// A line of `spec.jobs`. A `priority` becomes the class `priority-N`, added to `classes`.
///
/// # Errors
/// If a field is unknown or of the wrong type. What admission has to judge is passed on as it is.
pub fn job(
    document: &Document,
    line: Map<String, Value>,
    at: &str,
    classes: &mut BTreeMap<String, PriorityClass>,
) -> Result<Submission, InputError> {
    let (own, mut spec) = split(document, line, at)?;
    let Some(name) = own.name.clone() else {
        return Err(document.error(&format!("{at}.name"), "is missing; every job needs a name"));
    };
    if spec.contains_key("roles") && (own.pods.is_some() || own.min_pods.is_some() || own.slice.is_some()) {
        return Err(
            document.error(at, "has `roles` and one of `pods`, `minPods`, `slice`: those describe the one role")
        );
    }
    apply(&own, &mut spec, true, classes);
    let mut meta = json!({"name": name, "namespace": own.namespace.as_deref().unwrap_or("default")});
    meta["annotations"] = json!({annotations::USER: own.user.as_deref().unwrap_or("user")});
    let manifest = json!({"apiVersion": "berth.dev/v1alpha1", "kind": "TrainingJob", "metadata": meta, "spec": spec});
    Ok(Submission {
        at: own.at.unwrap_or_default().moment(),
        manifest,
        runtime: own.runtime.map(|l| l.0),
        fails: own.fails,
    })
}

/// A patch of a job's spec with shorthand written out; roles are named, so that they can be merged.
///
/// # Errors
/// If a field is unknown or of the wrong type.
pub fn job_patch(
    document: &Document,
    patch: Map<String, Value>,
    at: &str,
    classes: &mut BTreeMap<String, PriorityClass>,
) -> Result<Map<String, Value>, InputError> {
    let (own, mut spec) = split(document, patch, at)?;
    apply(&own, &mut spec, false, classes);
    Ok(spec)
}

/// Writes shorthand into a spec. `whole`: fields that a new job needs are made up.
fn apply(own: &Own, spec: &mut Map<String, Value>, whole: bool, classes: &mut BTreeMap<String, PriorityClass>) {
    if let Some(priority) = own.priority {
        let class = format!("priority-{priority}");
        classes.entry(class.clone()).or_insert_with(|| PriorityClass {
            metadata: ObjectMeta { name: Some(class.clone()), ..ObjectMeta::default() },
            value: priority,
            ..PriorityClass::default()
        });
        spec.insert("priorityClassName".into(), class.into());
    }
    if !spec.contains_key("roles") {
        let mut role = Map::new();
        let mut put = |key: &str, value: Option<Value>| value.map(|v| role.insert(key.into(), v));
        put("replicas", own.pods.map(Into::into).or(whole.then(|| 1.into())));
        put("minReplicas", own.min_pods.map(Into::into));
        put("slice", own.slice.clone());
        if whole || !role.is_empty() || own.each.is_some() {
            role.insert("name".into(), "worker".into());
            spec.insert("roles".into(), vec![Value::Object(role)].into());
        }
    }
    let roles = spec.get_mut("roles").and_then(Value::as_array_mut);
    for role in roles.into_iter().flatten().filter_map(Value::as_object_mut) {
        template(own, role, whole);
    }
}

/// Gives a role a template, or its template a container for `each` and the job's tolerations and selector.
fn template(own: &Own, role: &mut Map<String, Value>, whole: bool) {
    let each = role.remove("each").or_else(|| own.each.as_ref().map(|e| json!(e)));
    if !whole && each.is_none() {
        return;
    }
    let template = role.entry("template").or_insert_with(|| json!({"spec": {}}));
    let Some(pod) = template.as_object_mut().map(|t| t.entry("spec").or_insert_with(|| json!({}))) else { return };
    let Some(pod) = pod.as_object_mut() else { return };
    let containers = pod.entry("containers").or_insert_with(|| json!([]));
    if let Some(containers) = containers.as_array_mut()
        && (each.is_some() || containers.is_empty())
    {
        let name = if containers.is_empty() { "main" } else { "each" };
        let mut resources = json!({"requests": each, "limits": each});
        quantities_as_text(&mut resources);
        if each.is_none() {
            resources = json!({});
        }
        containers.push(json!({"name": name, "image": "simulated", "resources": resources}));
    }
    if let Some(tolerations) = &own.tolerations {
        pod.entry("tolerations").or_insert_with(|| json!(tolerations));
    }
    if let Some(selector) = &own.node_selector {
        pod.entry("nodeSelector").or_insert_with(|| json!(selector));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::input::tests::{mk_error, mk_scenario};

    #[test]
    fn a_short_job_becomes_a_manifest() {
        let scenario = mk_scenario(
            "  jobs:\n  - {name: j, at: 5s, user: alice, pods: 4, minPods: 2, each: {nvidia.com/gpu: 8}, priority: 7, \
             slice: {size: 2, within: rack}, maxRuntime: 1h, runtime: 10m, fails: [{after: 1m, pod: 3, exitCode: 9}]}\n",
        );
        let job = &scenario.submissions[0];
        assert_eq!((job.at, job.runtime), (Time::from_secs(5), Some(Span::from_secs(600))));
        assert_eq!((job.fails[0].pod, job.fails[0].exit_code), (3, 9));
        let spec = &job.manifest["spec"];
        assert_eq!(spec["priorityClassName"], "priority-7");
        let role = &spec["roles"][0];
        assert_eq!((&role["replicas"], &role["minReplicas"]), (&json!(4), &json!(2)));
        let container = &role["template"]["spec"]["containers"][0];
        assert_eq!(container["resources"]["requests"]["nvidia.com/gpu"], "8");
        assert_eq!(job.manifest["metadata"]["annotations"]["berth.dev/user"], "alice");
        assert_eq!(scenario.classes["priority-7"].value, 7);
    }

    #[test]
    fn each_applies_under_roles_too_and_adds_to_their_containers() {
        let scenario = mk_scenario(
            "  jobs:\n  - {name: j, each: {cpu: 1}, roles: [{name: a, replicas: 1}, {name: b, replicas: 1, each: {cpu: 2}}]}\n",
        );
        let roles = &scenario.submissions[0].manifest["spec"]["roles"];
        let cpu =
            |role: usize| roles[role]["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"].clone();
        assert_eq!((cpu(0), cpu(1)), (json!("1"), json!("2")));
        assert!(roles[1].get("each").is_none());
    }

    #[test]
    fn unknown_fields_list_what_is_accepted() {
        let error = mk_error(
            "apiVersion: sim.berth.dev/v1alpha1\nkind: Scenario\nmetadata: {name: s}\nspec:\n  jobs:\n  - {name: j, gpus: 8}\n",
        );
        assert!(
            error.starts_with("s.yaml: document 1 (Scenario s): spec.jobs[0].gpus: no such field; accepted: name"),
            "{error}"
        );
        let error = mk_error("kind: Scenario\nspec:\n  jobs:\n  - {name: j, pods: many}\n");
        assert!(error.contains("spec.jobs[0].pods") && error.contains("many"), "{error}");
    }

    #[test]
    fn a_line_of_nodes_stands_for_many() {
        let scenario =
            mk_scenario("  nodes:\n  - {names: \"r[0-1]n[0-1]\", allocatable: {cpu: 8}, labels: {rack: \"r{1}\"}}\n");
        let nodes = &scenario.nodes;
        assert_eq!(nodes.len(), 4);
        assert_eq!(nodes["r1n0"].metadata.labels.as_ref().unwrap()["rack"], "r1");
    }
}
