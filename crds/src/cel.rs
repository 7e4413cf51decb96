//! The CRDs' own rules, run here: the same expressions and messages as the API server's, without a server.

use kube::{
    CustomResourceExt,
    core::cel::{CompiledSchema, Validator, compile_schema},
};
use serde::Serialize;
use serde_json::Value;

/// The rules of one kind, compiled once.
pub struct Rules {
    compiled: CompiledSchema,
}

/// One rule that did not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken {
    /// Path of the field, from the root of the object.
    pub field: String,
    /// What the API server would say.
    pub message: String,
    /// The expression.
    pub rule: String,
}

impl Rules {
    /// The rules of kind `K`.
    pub fn of<K: CustomResourceExt>() -> Self {
        let schema =
            K::crd().spec.versions.into_iter().next().and_then(|v| v.schema).and_then(|s| s.open_api_v3_schema);
        let schema = serde_json::to_value(schema).expect("a schema of our own making is JSON");
        Self { compiled: compile_schema(&schema) }
    }

    /// The rules `object` breaks; with `old`, as a change of it.
    pub fn broken<K: Serialize>(&self, object: &K, old: Option<&K>) -> Vec<Broken> {
        let value = |object| serde_json::to_value(object).expect("an API object is JSON");
        self.broken_values(&value(object), old.map(value).as_ref())
    }

    /// The same for objects in their raw form.
    pub fn broken_values(&self, object: &Value, old: Option<&Value>) -> Vec<Broken> {
        match Validator::new().validate_compiled(&self.compiled, object, old) {
            Ok(()) => Vec::new(),
            Err(errors) => errors
                .iter()
                .map(|e| Broken { field: e.field_path.clone(), message: e.message.clone(), rule: e.rule.clone() })
                .collect(),
        }
    }
}
