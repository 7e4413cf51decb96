//! Schema parts that the derives cannot make: Kubernetes types, and absence without `null`.

use schemars::{Schema, SchemaGenerator, json_schema};
use serde_json::{Map, Value, json};

/// Longest name of an object or a level.
pub const MAX_NAME: u32 = 63;

/// Makes an optional field absent or a value, never `null`: the server drops an explicit null of such a field before
/// it applies defaults and rules, so `has(self.x)` means what it says.
pub fn without_null(schema: &mut Schema) {
    let Some(Value::Object(properties)) = schema.get_mut("properties") else { return };
    for property in properties.values_mut() {
        if let Value::Object(property) = property {
            drop_null(property);
        }
    }
}

fn drop_null(property: &mut Map<String, Value>) {
    if let Some(Value::Array(types)) = property.get_mut("type") {
        types.retain(|t| t != "null");
        if let [only] = types.as_slice() {
            let only = only.clone();
            property.insert("type".into(), only);
        }
    }
    if let Some(Value::Array(values)) = property.get_mut("enum") {
        values.retain(|v| !v.is_null());
    }
    if let Some(Value::Array(mut branches)) = property.remove("anyOf") {
        let before = branches.len();
        branches.retain(|b| b.get("type") != Some(&json!("null")));
        match branches.as_slice() {
            [Value::Object(only)] if before == 2 => {
                for (key, value) in only {
                    property.entry(key).or_insert_with(|| value.clone());
                }
            }
            _ => {
                property.insert("anyOf".into(), Value::Array(branches));
            }
        }
    }
}

/// `metav1.LabelSelector`.
pub(crate) fn label_selector(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "properties": {
            "matchLabels": {"type": "object", "additionalProperties": {"type": "string"}},
            "matchExpressions": {
                "type": "array",
                "items": {
                    "type": "object",
                    "required": ["key", "operator"],
                    "properties": {
                        "key": {"type": "string"},
                        "operator": {"type": "string", "enum": ["In", "NotIn", "Exists", "DoesNotExist"]},
                        "values": {"type": "array", "items": {"type": "string"}},
                    },
                },
            },
        },
    })
}

/// A list of `metav1.Condition`, one of each type.
pub(crate) fn conditions(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
        "items": {
            "type": "object",
            "required": ["type", "status", "lastTransitionTime", "reason", "message"],
            "properties": {
                "type": {"type": "string"},
                "status": {"type": "string", "enum": ["True", "False", "Unknown"]},
                "observedGeneration": {"type": "integer", "format": "int64"},
                "lastTransitionTime": {"type": "string", "format": "date-time"},
                "reason": {"type": "string"},
                "message": {"type": "string"},
            },
        },
    })
}

/// A `core/v1` PodTemplateSpec: whatever a pod may hold is kept, and only what our rules look at is spelled out, so
/// that the whole CRD stays small enough for a client-side `kubectl apply`.
pub(crate) fn pod_template(_: &mut SchemaGenerator) -> Schema {
    let object = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let objects = json!({"type": "array", "items": object});
    let texts = json!({"type": "object", "maxProperties": 64, "additionalProperties": {"type": "string"}});
    json_schema!({
        "type": "object",
        "required": ["spec"],
        "x-kubernetes-preserve-unknown-fields": true,
        "properties": {
            "metadata": {
                "type": "object",
                "x-kubernetes-preserve-unknown-fields": true,
                "properties": {"labels": texts, "annotations": texts},
            },
            "spec": {
                "type": "object",
                "required": ["containers"],
                "x-kubernetes-preserve-unknown-fields": true,
                "properties": {
                    "containers": objects,
                    "restartPolicy": {"type": "string", "maxLength": 16, "default": "Never"},
                    "nodeName": {"type": "string", "maxLength": 253},
                    "schedulerName": {"type": "string", "maxLength": 253},
                    "hostname": {"type": "string", "maxLength": 63},
                    "subdomain": {"type": "string", "maxLength": 63},
                    "priorityClassName": {"type": "string", "maxLength": 253},
                    "priority": {"type": "integer", "format": "int32"},
                    "terminationGracePeriodSeconds": {"type": "integer", "format": "int64"},
                    "schedulingGates": objects,
                    "resourceClaims": objects,
                    "topologySpreadConstraints": objects,
                    "affinity": {
                        "type": "object",
                        "x-kubernetes-preserve-unknown-fields": true,
                        "properties": {"podAffinity": object, "podAntiAffinity": object},
                    },
                },
            },
        },
    })
}
