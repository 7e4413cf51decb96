//! What a world is furnished with: nodes in racks, a topology, queues, priority classes, jobs.

use super::World;
use crate::fake_api::{Key, Store};
use serde_json::{Value, json};

/// The namespace of all jobs.
pub const TEAM: &str = "team";
/// GPUs of a node.
pub const GPUS: u64 = 8;

/// A node in a rack of a block.
#[must_use]
pub fn node(name: &str, rack: &str) -> Value {
    let all = json!({"cpu": "64", "memory": "512Gi", "pods": "110", "nvidia.com/gpu": GPUS.to_string()});
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "labels": {"net/block": "b0", "net/rack": rack, "pool": "all", "kubernetes.io/hostname": name}},
        "spec": {},
        "status": {
            "capacity": all, "allocatable": all,
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}],
        },
    })
}

/// A queue.
#[must_use]
pub fn queue(name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "berth.dev/v1alpha1", "kind": "Queue", "metadata": {"name": name}, "spec": spec})
}

/// A pod of somebody else, bound to a node.
#[must_use]
pub fn foreign_pod(name: &str, node: &str, gpus: u64) -> Value {
    let resources =
        json!({"requests": {"nvidia.com/gpu": gpus.to_string()}, "limits": {"nvidia.com/gpu": gpus.to_string()}});
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "others"},
        "spec": {"nodeName": node, "containers": [{"name": "c", "image": "i", "resources": resources}]},
    })
}

/// A job from the short form of `crate::job`.
///
/// # Panics
/// If the text is no YAML: it is a constant of ours.
#[must_use]
pub fn job(text: &str) -> Value {
    crate::job::manifest(text, TEAM, "main", "all").expect("a job in short form")
}

/// The key of a job.
#[must_use]
pub fn job_key(name: &str) -> Key {
    Key { kind: "TrainingJob", namespace: TEAM.to_owned(), name: name.to_owned() }
}

/// The key of a node.
#[must_use]
pub fn node_key(name: &str) -> Key {
    Key { kind: "Node", namespace: String::new(), name: name.to_owned() }
}

/// Phase of a job; empty if it has none or is gone.
#[must_use]
pub fn phase<'a>(store: &'a Store, name: &str) -> &'a str {
    store.get(&job_key(name)).and_then(|j| j["status"]["phase"].as_str()).unwrap_or_default()
}

/// `status.ready` of a job.
#[must_use]
pub fn ready<'a>(store: &'a Store, name: &str) -> &'a str {
    store.get(&job_key(name)).and_then(|j| j["status"]["ready"].as_str()).unwrap_or_default()
}

/// Pods of a job that hold room.
#[must_use]
pub fn live_pods(store: &Store, name: &str) -> usize {
    let of_job = |pod: &Value| pod["metadata"]["labels"]["berth.dev/job"].as_str() == Some(name);
    let over = |pod: &Value| matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
    store.list("Pod", TEAM).filter(|(_, pod)| of_job(pod) && !over(pod)).count()
}

impl World {
    /// Furnishes a world with `nodes` nodes, two to a rack, and queue `main`.
    pub fn furnish(&self, nodes: usize) {
        for name in [TEAM, "others", crds::names::NAMESPACE] {
            self.create(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}));
        }
        for (name, value) in [("high", 1000), ("low", 10)] {
            self.create(&json!({
                "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": value,
            }));
        }
        let levels = json!([{"name": "block", "labels": ["net/block"]}, {"name": "rack", "labels": ["net/rack"]}]);
        self.create(&json!({
            "apiVersion": "berth.dev/v1alpha1", "kind": "Topology", "metadata": {"name": "default"}, "spec": {"levels": levels},
        }));
        self.create(&queue("main", &json!({})));
        for at in 0..nodes {
            self.add_node(at);
        }
    }

    /// Adds a node by its number.
    pub fn add_node(&self, at: usize) {
        let node = node(&format!("n{at}"), &format!("r{}", at / 2));
        self.create(&node);
        // A node registers itself and then reports.
        let key = node_key(&format!("n{at}"));
        self.api.shared().with(|server, now| {
            let status = json!({"status": node["status"]});
            let _ = server.by("kubelet", crate::fake_api::Verb::Patch, &key, Some("status"), status, now);
        });
    }
}
