//! What happens to the cluster from outside, and when.

use super::document::{Document, InputError};
use super::length::Length;
use planner::Time;
use serde::Deserialize;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// One happening.
#[derive(Clone, Debug, PartialEq)]
pub enum Happening {
    /// A node takes no new pods.
    Cordon(String),
    /// It takes pods again.
    Uncordon(String),
    /// A node is gone with everything on it.
    NodeLost(String),
    /// It is back, empty.
    NodeBack(String),
    /// A job is deleted by its user.
    DeleteJob(String),
    /// A job gives its room back and keeps its object.
    Suspend(String),
    /// It may run again.
    Resume(String),
    /// A node's labels change; a null removes one.
    Label {
        /// The node.
        node: String,
        /// New values.
        set: BTreeMap<String, Option<String>>,
    },
    /// A job's spec is edited.
    PatchJob(String, Map<String, Value>),
    /// A queue's spec is edited.
    PatchQueue(String, Map<String, Value>),
    /// The controller loses its memory.
    Restart,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Entry {
    at: Length,
    cordon: Option<String>,
    uncordon: Option<String>,
    node_lost: Option<String>,
    node_back: Option<String>,
    delete_job: Option<String>,
    suspend: Option<String>,
    resume: Option<String>,
    label: Option<Label>,
    patch: Option<Patch>,
    restart_controller: Option<bool>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Label {
    node: String,
    #[serde(default)]
    set: BTreeMap<String, Option<Value>>,
    #[serde(default)]
    remove: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Patch {
    job: Option<String>,
    queue: Option<String>,
    spec: Map<String, Value>,
}

/// Reads one entry of `spec.events`.
///
/// # Errors
/// If it is no entry, or says several things at once, or none.
pub fn read(document: &Document, value: Value, at: &str) -> Result<(Time, Happening), InputError> {
    let entry: Entry = document.typed(value, at)?;
    let moment = entry.at.moment();
    let mut found = named(&entry);
    found.extend(entry.label.map(label));
    if let Some(patch) = entry.patch {
        found.push(match (patch.job, patch.queue) {
            (Some(job), None) => Happening::PatchJob(job, patch.spec),
            (None, Some(queue)) => Happening::PatchQueue(queue, patch.spec),
            _ => return Err(document.error(&format!("{at}.patch"), "names a job or a queue, and exactly one of them")),
        });
    }
    if entry.restart_controller == Some(true) {
        found.push(Happening::Restart);
    }
    let mut found = found.into_iter();
    match (found.next(), found.next()) {
        (Some(happening), None) => Ok((moment, happening)),
        _ => Err(document.error(
            at,
            "needs `at` and exactly one of cordon, uncordon, nodeLost, nodeBack, deleteJob, suspend, resume, label, \
             patch, restartController: true",
        )),
    }
}

fn named(entry: &Entry) -> Vec<Happening> {
    let one = |name: &Option<String>, make: fn(String) -> Happening| name.clone().map(make);
    [
        one(&entry.cordon, Happening::Cordon),
        one(&entry.uncordon, Happening::Uncordon),
        one(&entry.node_lost, Happening::NodeLost),
        one(&entry.node_back, Happening::NodeBack),
        one(&entry.delete_job, Happening::DeleteJob),
        one(&entry.suspend, Happening::Suspend),
        one(&entry.resume, Happening::Resume),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn label(label: Label) -> Happening {
    let text = |value: Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let mut set: BTreeMap<String, Option<String>> =
        label.set.into_iter().map(|(key, value)| (key, value.filter(|v| !v.is_null()).map(text))).collect();
    set.extend(label.remove.into_iter().map(|key| (key, None)));
    Happening::Label { node: label.node, set }
}

impl Happening {
    /// The node it names, if it names one.
    #[must_use]
    pub fn node(&self) -> Option<&str> {
        match self {
            Self::Cordon(n) | Self::Uncordon(n) | Self::NodeLost(n) | Self::NodeBack(n) => Some(n),
            Self::Label { node, .. } => Some(node),
            _ => None,
        }
    }

    /// The job it names, if it names one.
    #[must_use]
    pub fn job(&self) -> Option<&str> {
        match self {
            Self::DeleteJob(j) | Self::Suspend(j) | Self::Resume(j) | Self::PatchJob(j, _) => Some(j),
            _ => None,
        }
    }

    /// The queue it names, if it names one.
    #[must_use]
    pub fn queue(&self) -> Option<&str> {
        match self {
            Self::PatchQueue(q, _) => Some(q),
            _ => None,
        }
    }
}
