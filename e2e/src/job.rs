//! A short way to write jobs: the fields of the spec beside `name`, and for each role what its pods ask for and how the
//! fake kubelet plays them (`gpus`, `runtime`, `exit`, `reason`, `refuse`, `start-delay`, `stop-delay`). Everything else
//! is as in a manifest; `template` is merged in last.

use anyhow::{Context, Result};
use serde_json::{Map, Value, json};

/// How the fake kubelet plays a pod; see `hack/controlplane/README.md`.
const PLAYED: [&str; 6] = ["runtime", "exit", "reason", "refuse", "start-delay", "stop-delay"];

/// The manifest of a job in a story's namespace, queue and pool.
///
/// # Errors
/// If `text` is no YAML mapping with a name.
pub fn manifest(text: &str, namespace: &str, queue: &str, pool: &str) -> Result<Value> {
    let mut spec: Map<String, Value> = serde_saphyr::from_str(text).with_context(|| format!("in {text}"))?;
    let name = spec.remove("name").context("a job has a name")?;
    let labels = spec.remove("labels").unwrap_or_else(|| json!({}));
    spec.entry("queue").or_insert_with(|| json!(queue));
    for role in spec.get_mut("roles").and_then(Value::as_array_mut).into_iter().flatten() {
        expand(role.as_object_mut().context("a role is a mapping")?, pool);
    }
    Ok(json!({
        "apiVersion": "berth.dev/v1alpha1", "kind": "TrainingJob",
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": spec,
    }))
}

fn expand(role: &mut Map<String, Value>, pool: &str) {
    role.entry("name").or_insert_with(|| json!("worker"));
    let gpus = role.remove("gpus").unwrap_or_else(|| json!(8));
    let mut annotations = Map::new();
    for key in PLAYED {
        if let Some(value) = role.remove(key) {
            annotations.insert(format!("kubelet.test/{key}"), value);
        }
    }
    let mut template = json!({
        "metadata": {"annotations": annotations},
        "spec": {
            "nodeSelector": {"pool": pool},
            "containers": [{"name": "train", "image": "train", "resources": {"limits": {"nvidia.com/gpu": gpus}}}],
        },
    });
    if let Some(more) = role.remove("template") {
        merge(&mut template, more);
    }
    role.insert("template".to_owned(), template);
}

/// Lays `more` over `base`, mapping by mapping.
fn merge(base: &mut Value, more: Value) {
    match (base, more) {
        (Value::Object(base), Value::Object(more)) => {
            for (key, value) in more {
                merge(base.entry(key).or_insert(Value::Null), value);
            }
        }
        (base, more) => *base = more,
    }
}
