//! Reads a pod template out of the preserved JSON of a TrainingJob; never loses a field without saying so.

use k8s_openapi::api::core::v1::PodTemplateSpec;
use serde::{Deserialize, Deserializer, de};
use serde_json::Value;

use crate::quantities;

/// Parses as the API server would: quantities may be numbers, and a fault is named by its path.
pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<PodTemplateSpec, D::Error> {
    let mut raw = Value::deserialize(deserializer)?;
    quantities_as_text(&mut raw);
    serde_path_to_error::deserialize(raw)
        .map_err(|e| de::Error::custom(format!("template.{}: {}", e.path(), e.inner())))
}

/// Maps whose values are quantities, and single fields that are one.
fn quantities_as_text(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(quantities_as_text),
        Value::Object(fields) => {
            for (name, field) in fields {
                match (name.as_str(), field) {
                    ("requests" | "limits" | "overhead" | "capacity", Value::Object(amounts)) => {
                        amounts.values_mut().for_each(number_as_text);
                    }
                    ("sizeLimit" | "divisor", amount) => number_as_text(amount),
                    (_, field) => quantities_as_text(field),
                }
            }
        }
        _ => {}
    }
}

fn number_as_text(value: &mut Value) {
    if value.is_number()
        && let Some(text) = quantities::text_of(value)
    {
        *value = Value::String(text);
    }
}

/// Paths in a raw template that the typed one does not know: misspelt, or newer than this build. They would be lost
/// when pods are made, so admission refuses them.
pub fn unknown_fields(raw: &Value) -> Vec<String> {
    let Ok(typed) = deserialize(raw.clone()) else { return Vec::new() };
    let Ok(kept) = serde_json::to_value(typed) else { return Vec::new() };
    let mut unknown = Vec::new();
    missing(raw, &kept, "template", &mut unknown);
    unknown
}

fn missing(raw: &Value, kept: &Value, path: &str, unknown: &mut Vec<String>) {
    match (raw, kept) {
        (Value::Object(raw), Value::Object(kept)) => {
            for (name, value) in raw {
                let path = format!("{path}.{name}");
                match kept.get(name) {
                    Some(kept) => missing(value, kept, &path, unknown),
                    None if is_empty(value) => {}
                    None => unknown.push(path),
                }
            }
        }
        (Value::Array(raw), Value::Array(kept)) => {
            for (index, (raw, kept)) in raw.iter().zip(kept).enumerate() {
                missing(raw, kept, &format!("{path}[{index}]"), unknown);
            }
        }
        _ => {}
    }
}

/// The typed form may leave out what says nothing.
fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn amounts_may_be_numbers_as_in_a_pod() {
        let raw = json!({"spec": {"containers": [{"name": "main", "resources": {"limits": {"nvidia.com/gpu": 8, "cpu": "1500m"}}}]}});
        let template = deserialize(raw).expect("a pod's template");
        let container = template.spec.expect("a spec").containers.remove(0);
        let limits = container.resources.expect("resources").limits.expect("limits");
        assert_eq!(limits["nvidia.com/gpu"].0, "8");
    }

    #[test]
    fn a_fault_is_named_by_its_path() {
        let raw = json!({"spec": {"containers": [{"name": "a"}, {"name": "b", "image": 7}]}});
        let fault = deserialize(raw).expect_err("an image is a text").to_string();
        assert!(fault.starts_with("template.spec.containers[1].image: "), "{fault}");
    }

    #[test]
    fn fields_this_build_does_not_know_are_named() {
        let raw = json!({"spec": {"containers": [{"name": "a", "imagePolicy": "x", "env": []}], "nodeSelectors": {"a": "b"}}});
        assert_eq!(unknown_fields(&raw), ["template.spec.containers[0].imagePolicy", "template.spec.nodeSelectors"]);
    }
}
