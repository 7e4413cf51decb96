//! The CRDs' own rules, run here: the same expressions and messages as the API server's, without a server.

use std::collections::BTreeSet;

use kube::{
    CustomResourceExt,
    core::cel::{CompiledSchema, Validator, compile_schema},
};
use serde::Serialize;
use serde_json::Value;

use crate::v1alpha1::rules::queue::amounts_without_type;

/// The rules of one kind, compiled once.
pub struct Rules {
    compiled: CompiledSchema,
    expressions: BTreeSet<String>,
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
        let mut schema = serde_json::to_value(schema).expect("a schema of our own making is JSON");
        adapt(&mut schema);
        let mut expressions = BTreeSet::new();
        collect(&schema, &mut expressions);
        Self { compiled: compile_schema(&schema), expressions }
    }

    /// Every expression, as [`Broken::rule`] names it.
    pub fn expressions(&self) -> &BTreeSet<String> {
        &self.expressions
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

/// Rewrites what this engine does not know into what it does.
fn adapt(value: &mut Value) {
    match value {
        Value::String(text) => {
            for (from, to) in amounts_without_type() {
                *text = text.replace(&from, &to);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(adapt),
        Value::Object(fields) => fields.values_mut().for_each(adapt),
        _ => {}
    }
}

fn collect(value: &Value, expressions: &mut BTreeSet<String>) {
    match value {
        Value::Array(items) => items.iter().for_each(|item| collect(item, expressions)),
        Value::Object(fields) => {
            let rules = fields.get("x-kubernetes-validations").and_then(Value::as_array).into_iter().flatten();
            expressions.extend(rules.filter_map(|rule| rule["rule"].as_str().map(str::to_owned)));
            fields.values().for_each(|field| collect(field, expressions));
        }
        _ => {}
    }
}
