//! YAML text as documents, and errors that name file, document, field and what is accepted.

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use std::fmt;

/// Why an input cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InputError {
    /// The file.
    pub file: String,
    /// Number of the document, from 1; 0 when it is about the whole file.
    pub document: usize,
    /// Its kind and name, as far as they are known.
    pub object: String,
    /// Path of the field; empty when it is about the whole document.
    pub field: String,
    /// What is wrong and what is accepted.
    pub problem: String,
}

impl fmt::Display for InputError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file)?;
        if self.document > 0 {
            write!(f, ": document {}", self.document)?;
        }
        if !self.object.is_empty() {
            write!(f, " ({})", self.object)?;
        }
        if !self.field.is_empty() {
            write!(f, ": {}", self.field)?;
        }
        write!(f, ": {}", self.problem)
    }
}

impl std::error::Error for InputError {}

impl InputError {
    /// About a whole file.
    #[must_use]
    pub fn of_file(file: &str, problem: impl Into<String>) -> Self {
        Self {
            file: file.to_owned(),
            document: 0,
            object: String::new(),
            field: String::new(),
            problem: problem.into(),
        }
    }
}

/// One document of a file.
#[derive(Clone, Debug)]
pub struct Document {
    file: String,
    number: usize,
    value: Value,
}

impl Document {
    /// The documents of a text, blank ones left out.
    ///
    /// # Errors
    /// If the text is no YAML.
    pub fn read_all(file: &str, text: &str) -> Result<Vec<Self>, InputError> {
        // Kubernetes reads YAML 1.2 booleans only in the form true and false: a node may be called y.
        let options = serde_saphyr::options! { strict_booleans: true };
        let values: Vec<Value> = serde_saphyr::from_multiple_with_options(text, options)
            .map_err(|e| InputError::of_file(file, format!("is no readable YAML: {e}")))?;
        let numbered = values.into_iter().enumerate().filter(|(_, v)| !v.is_null());
        Ok(numbered.map(|(row, value)| Self { file: file.to_owned(), number: row + 1, value }).collect())
    }

    /// Its `kind`, empty without one.
    #[must_use]
    pub fn kind(&self) -> &str {
        self.value.get("kind").and_then(Value::as_str).unwrap_or("")
    }

    /// Its `apiVersion`, empty without one.
    #[must_use]
    pub fn api_version(&self) -> &str {
        self.value.get("apiVersion").and_then(Value::as_str).unwrap_or("")
    }

    /// Its `metadata.name`, empty without one.
    #[must_use]
    pub fn name(&self) -> &str {
        self.value.pointer("/metadata/name").and_then(Value::as_str).unwrap_or("")
    }

    /// The raw value.
    #[must_use]
    pub fn value(&self) -> &Value {
        &self.value
    }

    /// The file it came from.
    #[must_use]
    pub fn file(&self) -> &str {
        &self.file
    }

    /// An error at a field.
    #[must_use]
    pub fn error(&self, field: &str, problem: impl Into<String>) -> InputError {
        let object = [self.kind(), self.name()].iter().filter(|p| !p.is_empty()).copied().collect::<Vec<_>>().join(" ");
        InputError {
            file: self.file.clone(),
            document: self.number,
            object,
            field: field.to_owned(),
            problem: problem.into(),
        }
    }

    /// A part of it as a type; `at` is the part's path, for errors.
    ///
    /// # Errors
    /// If the part does not have that type; the message names the field inside it.
    pub fn typed<T: DeserializeOwned>(&self, value: Value, at: &str) -> Result<T, InputError> {
        serde_path_to_error::deserialize(value).map_err(|e| {
            let inner = e.path().to_string();
            let field = match (at.is_empty(), inner.as_str()) {
                (_, ".") => at.to_owned(),
                (true, _) => inner.clone(),
                (false, _) => format!("{at}.{inner}"),
            };
            self.error(&field, e.inner().to_string())
        })
    }

    /// The whole document as an API object. Plain numbers where quantities stand are taken as such, as kubectl does.
    ///
    /// # Errors
    /// If it does not have that type.
    pub fn object<T: DeserializeOwned>(&self) -> Result<T, InputError> {
        let mut value = self.value.clone();
        quantities_as_text(&mut value);
        self.typed(value, "")
    }
}

/// Maps whose values are quantities.
const QUANTITY_MAPS: [&str; 9] =
    ["requests", "limits", "allocatable", "capacity", "overhead", "guarantee", "limit", "lendingLimit", "each"];

/// Writes plain numbers in maps of quantities as text.
pub fn quantities_as_text(value: &mut Value) {
    match value {
        Value::Object(map) => {
            for (key, inner) in map.iter_mut() {
                if QUANTITY_MAPS.contains(&key.as_str()) {
                    inner.as_object_mut().into_iter().for_each(numbers_as_text);
                }
                quantities_as_text(inner);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(quantities_as_text),
        _ => {}
    }
}

fn numbers_as_text(map: &mut Map<String, Value>) {
    for value in map.values_mut().filter(|v| v.is_number()) {
        *value = Value::String(value.to_string());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::input::tests::mk_error;

    #[test]
    fn documents_are_numbered_and_blank_ones_skipped() {
        let text = "kind: A\nmetadata: {name: x}\n---\n---\nkind: B\n";
        let documents = Document::read_all("f.yaml", text).unwrap();
        assert_eq!(documents.iter().map(Document::kind).collect::<Vec<_>>(), ["A", "B"]);
        let error = documents[0].error("spec.x", "is wrong");
        assert_eq!(error.to_string(), "f.yaml: document 1 (A x): spec.x: is wrong");
    }

    #[test]
    fn text_that_is_no_yaml_is_named() {
        assert!(mk_error("a: [1").contains("s.yaml: is no readable YAML"));
    }

    #[test]
    fn numbers_are_quantities() {
        let mut value = serde_json::json!({"spec": {"each": {"cpu": 8}, "replicas": 2}});
        quantities_as_text(&mut value);
        assert_eq!(value, serde_json::json!({"spec": {"each": {"cpu": "8"}, "replicas": 2}}));
    }
}
