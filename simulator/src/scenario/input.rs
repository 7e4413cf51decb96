//! A scenario file as objects, submissions and a timeline.

use super::document::{Document, InputError};
use super::knobs::Knobs;
use super::length::Length;
use super::shorthand::{self, NodesLine, OccupantLine, Submission};
use super::timeline::{self, Happening};
use crds::{Queue, Topology};
use k8s_openapi::api::core::v1::{Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::scheduling::v1::PriorityClass;
use planner::Time;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// Where the clock stops when the file does not say.
const HORIZON: Time = Time::from_secs(10 * 365 * 24 * 3600);

/// A foreign pod: its name, what it is, and when it leaves.
#[derive(Clone, Debug)]
pub struct Occupant {
    /// The pod, bound to its node.
    pub pod: Pod,
    /// When it leaves.
    pub until: Time,
}

/// Everything a run starts from.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Its name.
    pub name: String,
    /// When the run stops.
    pub horizon: Time,
    /// Nodes by name.
    pub nodes: BTreeMap<String, Node>,
    /// Topologies by name.
    pub topologies: BTreeMap<String, Topology>,
    /// Queues by name.
    pub queues: BTreeMap<String, Queue>,
    /// Priority classes by name.
    pub classes: BTreeMap<String, PriorityClass>,
    /// Namespaces by name.
    pub namespaces: BTreeMap<String, Namespace>,
    /// Volumes by name.
    pub volumes: BTreeMap<String, PersistentVolume>,
    /// Volume claims by `namespace/name`.
    pub claims: BTreeMap<String, PersistentVolumeClaim>,
    /// Foreign pods.
    pub occupants: Vec<Occupant>,
    /// Jobs in file order.
    pub submissions: Vec<Submission>,
    /// What happens, in order of time, then of the file.
    pub timeline: Vec<(Time, Happening)>,
    /// Knobs.
    pub knobs: Knobs,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Spec {
    horizon: Option<Length>,
    #[serde(default)]
    topology: Vec<String>,
    #[serde(default)]
    nodes: Vec<NodesLine>,
    #[serde(default)]
    queues: Vec<Map<String, Value>>,
    #[serde(default)]
    occupants: Vec<OccupantLine>,
    #[serde(default)]
    jobs: Vec<Map<String, Value>>,
    #[serde(default)]
    events: Vec<Value>,
    #[serde(default)]
    policy: Knobs,
}

/// Kinds that are read; the last two are skipped.
const KINDS: &str = "Node, Pod, Queue, Topology, TrainingJob, PriorityClass, PersistentVolume, PersistentVolumeClaim, \
                     Namespace, Scenario, Expect";

impl Scenario {
    /// Reads one scenario from files' texts; `files` are (name, text).
    ///
    /// # Errors
    /// The first thing that cannot be used: file, document, field and what is accepted.
    pub fn read(files: &[(String, String)]) -> Result<Self, InputError> {
        let mut scenario = Self::empty();
        let mut named = false;
        let mut documents = 0;
        for (file, text) in files {
            for document in Document::read_all(file, text)? {
                documents += 1;
                if document.kind() == "Scenario" {
                    if named {
                        return Err(document.error("kind", "a second Scenario; one document of that kind is accepted"));
                    }
                    named = true;
                }
                scenario.take(&document)?;
            }
        }
        if documents == 0 {
            let file = files.iter().map(|(file, _)| file.as_str()).collect::<Vec<_>>().join(", ");
            return Err(InputError::of_file(&file, format!("holds no document; accepted kinds: {KINDS}")));
        }
        if scenario.name.is_empty() {
            let stem = files.first().map(|(file, _)| std::path::Path::new(file).file_stem());
            scenario.name = stem.flatten().map_or_else(|| "scenario".into(), |s| s.to_string_lossy().into_owned());
        }
        if scenario.queues.is_empty() {
            let queue = json!({"metadata": {"name": "default"}, "spec": {}});
            scenario.queues.insert("default".into(), serde_json::from_value(queue).expect("an empty Queue is one"));
        }
        scenario.timeline.sort_by_key(|(at, _)| *at);
        scenario.names_are_real(files)?;
        Ok(scenario)
    }

    fn empty() -> Self {
        Self {
            name: String::new(),
            horizon: HORIZON,
            nodes: BTreeMap::new(),
            topologies: BTreeMap::new(),
            queues: BTreeMap::new(),
            classes: BTreeMap::new(),
            namespaces: BTreeMap::new(),
            volumes: BTreeMap::new(),
            claims: BTreeMap::new(),
            occupants: Vec::new(),
            submissions: Vec::new(),
            timeline: Vec::new(),
            knobs: Knobs::default(),
        }
    }

    fn take(&mut self, document: &Document) -> Result<(), InputError> {
        of_our_group(document)?;
        match document.kind() {
            "Node" => self.add_node(document, document.object()?, ""),
            "Pod" => self.add_pod(document),
            "Queue" => put(&mut self.queues, document, document.object()?, ""),
            "Topology" => put(&mut self.topologies, document, document.object()?, ""),
            "PriorityClass" => put(&mut self.classes, document, document.object()?, ""),
            "Namespace" => put(&mut self.namespaces, document, document.object()?, ""),
            "PersistentVolume" => put(&mut self.volumes, document, document.object()?, ""),
            "PersistentVolumeClaim" => {
                let mut claim: PersistentVolumeClaim = document.object()?;
                claim.metadata.namespace.get_or_insert_with(|| "default".into());
                put(&mut self.claims, document, claim, "")
            }
            "TrainingJob" => self.add_job(document),
            "Scenario" => self.add_spec(document),
            "Expect" => Ok(()),
            "" => Err(document.error("kind", format!("is missing; accepted: {KINDS}"))),
            other => Err(document.error("kind", format!("{other:?} is not used here; accepted: {KINDS}"))),
        }
    }

    fn add_node(&mut self, document: &Document, mut node: Node, at: &str) -> Result<(), InputError> {
        let status = node.status.get_or_insert_default();
        if status.conditions.is_none() {
            let ready = json!([{"type": "Ready", "status": "True"}]);
            status.conditions = serde_json::from_value(ready).ok();
        }
        if let Err(e) = translate::node::windows(&node) {
            return Err(document.error(&e.field, e.fault.to_string()));
        }
        put(&mut self.nodes, document, node, at)
    }

    fn add_pod(&mut self, document: &Document) -> Result<(), InputError> {
        let mut pod: Pod = document.object()?;
        pod.metadata.namespace.get_or_insert_with(|| "default".into());
        if translate::pod::node_of(&pod).is_none() {
            return Err(
                document.error("spec.nodeName", "is missing; a pod here is a foreign one that occupies its node")
            );
        }
        self.occupants.push(Occupant { pod, until: Time::NEVER });
        Ok(())
    }

    fn add_job(&mut self, document: &Document) -> Result<(), InputError> {
        let mut manifest = document.value().clone();
        super::document::quantities_as_text(&mut manifest);
        let Some(meta) = manifest.get_mut("metadata").and_then(Value::as_object_mut) else {
            return Err(document.error("metadata", "is missing; a TrainingJob needs a name"));
        };
        if !meta.get("name").is_some_and(Value::is_string) {
            return Err(document.error("metadata.name", "is missing; a TrainingJob needs a name"));
        }
        meta.entry("namespace").or_insert_with(|| "default".into());
        let notes = meta.entry("annotations").or_insert_with(|| json!({}));
        if let Some(notes) = notes.as_object_mut() {
            notes.entry(crds::names::annotations::USER).or_insert_with(|| "user".into());
        }
        self.submissions.push(Submission { at: Time::ZERO, manifest, runtime: None, fails: Vec::new() });
        Ok(())
    }

    fn add_spec(&mut self, document: &Document) -> Result<(), InputError> {
        document.name().clone_into(&mut self.name);
        let spec = document.value().get("spec").cloned().unwrap_or_else(|| json!({}));
        let spec: Spec = document.typed(spec, "spec")?;
        if let Some(horizon) = spec.horizon {
            self.horizon = horizon.moment();
        }
        self.knobs = spec.policy;
        if !spec.topology.is_empty() {
            let levels: Vec<Value> = spec.topology.iter().map(|l| json!({"name": l, "labels": [l]})).collect();
            let topology = json!({"metadata": {"name": "default"}, "spec": {"levels": levels}});
            put(&mut self.topologies, document, document.typed(topology, "spec.topology")?, "spec.topology")?;
        }
        for (row, line) in spec.nodes.iter().enumerate() {
            let at = format!("spec.nodes[{row}]");
            for node in line.nodes(document, &at)? {
                self.add_node(document, node, &at)?;
            }
        }
        for (row, line) in spec.queues.into_iter().enumerate() {
            let at = format!("spec.queues[{row}]");
            put(&mut self.queues, document, queue(document, line, &at)?, &at)?;
        }
        for (row, line) in spec.occupants.into_iter().enumerate() {
            self.occupants.push(occupant(document, &line, &format!("spec.occupants[{row}]"))?);
        }
        for (row, line) in spec.jobs.into_iter().enumerate() {
            let job = shorthand::job(document, line, &format!("spec.jobs[{row}]"), &mut self.classes)?;
            self.submissions.push(job);
        }
        for (row, value) in spec.events.into_iter().enumerate() {
            let at = format!("spec.events[{row}]");
            let (moment, mut happening) = timeline::read(document, value, &at)?;
            if let Happening::PatchJob(job, patch) = happening {
                let patch = shorthand::job_patch(document, patch, &format!("{at}.patch.spec"), &mut self.classes)?;
                happening = Happening::PatchJob(job, patch);
            }
            self.timeline.push((moment, happening));
        }
        Ok(())
    }

    /// Every node, job and queue that occupants and the timeline name must exist.
    fn names_are_real(&self, files: &[(String, String)]) -> Result<(), InputError> {
        let jobs: Vec<String> = self.submissions.iter().map(Submission::name).collect();
        let file = files.first().map(|(file, _)| file.clone()).unwrap_or_default();
        let wrong = |field: String, problem: String| InputError {
            file: file.clone(),
            document: 0,
            object: String::new(),
            field,
            problem,
        };
        for occupant in &self.occupants {
            let node = translate::pod::node_of(&occupant.pod).unwrap_or_default();
            if !self.nodes.contains_key(node) {
                let pod = occupant.pod.metadata.name.clone().unwrap_or_default();
                return Err(wrong(format!("occupant {pod}"), format!("stands on node {node:?}, which does not exist")));
            }
        }
        for (at, happening) in &self.timeline {
            let at = format!("spec.events at {}s", at.as_secs_f64());
            if let Some(node) = happening.node().filter(|n| !self.nodes.contains_key(*n)) {
                return Err(wrong(at, format!("names node {node:?}, which does not exist")));
            }
            if let Some(job) = happening.job().filter(|j| !jobs.iter().any(|known| known == j)) {
                return Err(wrong(at, format!("names job {job:?}, which is never submitted")));
            }
            if let Some(queue) = happening.queue().filter(|q| !self.queues.contains_key(*q)) {
                return Err(wrong(at, format!("names queue {queue:?}, which does not exist")));
            }
        }
        if let Some(twice) = (1..jobs.len()).find(|row| jobs[..*row].contains(&jobs[*row])) {
            return Err(wrong("jobs".into(), format!("{:?} is submitted twice; names must differ", jobs[twice])));
        }
        Ok(())
    }
}

impl Submission {
    /// The job as events name it: `name`, or `namespace/name` outside namespace `default`.
    #[must_use]
    pub fn name(&self) -> String {
        let text = |path: &str| self.manifest.pointer(path).and_then(Value::as_str).unwrap_or("");
        match (text("/metadata/namespace"), text("/metadata/name")) {
            ("" | "default", name) => name.to_owned(),
            (namespace, name) => format!("{namespace}/{name}"),
        }
    }
}

/// A Queue of somebody else's group is not ours. Manifests without an `apiVersion` are taken at their word.
fn of_our_group(document: &Document) -> Result<(), InputError> {
    let expected = match document.kind() {
        "Scenario" => "sim.berth.dev/v1alpha1",
        "TrainingJob" | "Queue" | "Topology" => "berth.dev/v1alpha1",
        _ => return Ok(()),
    };
    match document.api_version() {
        "" => Ok(()),
        given if given == expected => Ok(()),
        given => Err(document.error("apiVersion", format!("is {given:?}; {expected} is accepted"))),
    }
}

fn put<K: kube::Resource>(
    map: &mut BTreeMap<String, K>,
    document: &Document,
    object: K,
    at: &str,
) -> Result<(), InputError> {
    let key = translate::key_of(&object);
    let field = if at.is_empty() { "metadata.name" } else { at };
    if key.is_empty() {
        return Err(document.error(field, "is missing; every object needs a name"));
    }
    if map.contains_key(&key) {
        return Err(document.error(field, format!("{key:?} is there twice; names must differ")));
    }
    map.insert(key, object);
    Ok(())
}

fn queue(document: &Document, mut line: Map<String, Value>, at: &str) -> Result<Queue, InputError> {
    let name = line.remove("name").unwrap_or(Value::Null);
    let mut spec = Value::Object(line);
    super::document::quantities_as_text(&mut spec);
    known_queue_fields(document, &spec, at)?;
    document.typed(json!({"metadata": {"name": name}, "spec": spec}), at)
}

fn known_queue_fields(document: &Document, spec: &Value, at: &str) -> Result<(), InputError> {
    const FIELDS: [&str; 15] = [
        "parent",
        "weight",
        "guarantee",
        "limit",
        "lendingLimit",
        "namespaces",
        "maxRunningJobs",
        "maxPendingJobs",
        "defaults",
        "maxRuntimeLimit",
        "maxGracePeriod",
        "allowedPriorityClasses",
        "order",
        "backfill",
        "reclaim",
    ];
    let keys = spec.as_object().into_iter().flat_map(Map::keys);
    match keys.into_iter().find(|k| *k != "state" && !FIELDS.contains(&k.as_str())) {
        None => Ok(()),
        Some(unknown) => {
            let problem = format!("no such field; accepted: name, state, {}", FIELDS.join(", "));
            Err(document.error(&format!("{at}.{unknown}"), problem))
        }
    }
}

fn occupant(document: &Document, line: &OccupantLine, at: &str) -> Result<Occupant, InputError> {
    let mut resources = json!({"requests": line.requests});
    super::document::quantities_as_text(&mut resources);
    let pod = json!({
        "metadata": {"name": line.name, "namespace": "default"},
        "spec": {"nodeName": line.node, "containers": [{"name": "main", "resources": resources}]},
    });
    let pod: Pod = document.typed(pod, at)?;
    if let Err(e) = translate::pod::taken(&pod) {
        return Err(document.error(&format!("{at}.requests"), e.fault.to_string()));
    }
    Ok(Occupant { pod, until: line.until.map_or(Time::NEVER, Length::moment) })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A scenario from the lines under `spec:`.
    pub(crate) fn mk_scenario(spec: &str) -> Scenario {
        let text = format!("apiVersion: sim.berth.dev/v1alpha1\nkind: Scenario\nmetadata: {{name: s}}\nspec:\n{spec}");
        Scenario::read(&[("s.yaml".into(), text)]).unwrap_or_else(|e| panic!("{e}"))
    }

    /// The error of an unusable text.
    pub(crate) fn mk_error(text: &str) -> String {
        Scenario::read(&[("s.yaml".into(), text.into())]).unwrap_err().to_string()
    }

    #[test]
    fn a_queue_is_made_when_there_is_none() {
        let scenario = mk_scenario("  horizon: 2h\n  topology: [block, rack]\n");
        assert_eq!(scenario.queues.keys().collect::<Vec<_>>(), ["default"]);
        assert_eq!(scenario.horizon, Time::from_secs(7200));
        assert_eq!(scenario.topologies["default"].spec.levels[1].labels, ["rack"]);
    }

    #[test]
    fn what_cannot_be_used_is_named() {
        assert!(
            mk_error("kind: Deployment\nmetadata: {name: d}\n")
                .contains("\"Deployment\" is not used here; accepted: Node")
        );
        assert_eq!(
            mk_error("apiVersion: scheduling.volcano.sh/v1beta1\nkind: Queue\nmetadata: {name: q}\n"),
            "s.yaml: document 1 (Queue q): apiVersion: is \"scheduling.volcano.sh/v1beta1\"; berth.dev/v1alpha1 is accepted"
        );
        assert!(mk_error("# nothing\n").starts_with("s.yaml: holds no document; accepted kinds: Node, Pod"));
        assert!(mk_error("kind: Scenario\nspec:\n  hours: 3\n").contains("unknown field `hours`"));
        assert!(
            mk_error("kind: Scenario\nspec:\n  queues: [{name: q, share: 3}]\n")
                .contains("spec.queues[0].share: no such field")
        );
        assert!(
            mk_error("kind: Scenario\nspec:\n  events: [{at: 1m, cordon: n9}]\n")
                .contains("names node \"n9\", which does not exist")
        );
        assert!(mk_error("kind: Scenario\nspec:\n  events: [{at: 1m}]\n").contains("exactly one of cordon"));
        assert!(mk_error("kind: Scenario\nspec:\n  horizon: 2d\n").contains("spec.horizon: \"2d\" is not a duration"));
    }
}
