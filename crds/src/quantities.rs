//! Maps of resource quantities as users write them: strings, or plain numbers as in a pod.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use schemars::{Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, de};
use serde_json::Value;

/// Resource name (or `<topology>/<resource>` in a queue) to amount.
pub type ResourceList = BTreeMap<String, Quantity>;

/// Most resources one list may name. With 16 the rule that compares two lists is over the API server's cost limit.
pub const MAX_RESOURCES: u32 = 15;

/// Reads `{"nvidia.com/gpu": 8}` like `{"nvidia.com/gpu": "8"}`: the typed Quantity knows strings only.
pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ResourceList, D::Error> {
    BTreeMap::<String, Value>::deserialize(deserializer)?
        .into_iter()
        .map(|(name, value)| match text_of(&value) {
            Some(text) => Ok((name, Quantity(text))),
            None => Err(de::Error::custom(format!("{name}: {value} is not a quantity: write it as \"8\" or 512Gi"))),
        })
        .collect()
}

/// The text of a quantity given as string or number.
pub(crate) fn text_of(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

/// Schema of a list of amounts; amounts are never negative.
pub(crate) fn schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "maxProperties": MAX_RESOURCES,
        "additionalProperties": {
            "x-kubernetes-int-or-string": true,
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "pattern": r"^\+?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?[0-9]+))?$",
        },
    })
}
