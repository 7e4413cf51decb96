//! `Berth`: what a job is given, nodes by rank × a time window. Written by the controller alone.

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::rules::berth as rules;
use crate::{Timestamp, schema};

/// What a job is given. One write of it is the commit point of a start.
#[derive(CustomResource, KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "berth.dev",
    version = "v1alpha1",
    kind = "Berth",
    plural = "berths",
    doc = "What a job is given: nodes by rank in a window of time. All Berths together are the cluster's plan, present and future.",
    namespaced,
    shortname = "berth",
    // Not `berth`: kubectl prefers a category to a name, and `kubectl get berth NAME` would stop working.
    category = "berth-all",
    status = "BerthStatus",
    derive = "PartialEq",
    selectable = ".spec.job",
    selectable = ".spec.state",
    selectable = ".spec.queue",
    printcolumn(name = "Job", type_ = "string", json_path = ".spec.job", description = "Whose it is"),
    printcolumn(
        name = "State",
        type_ = "string",
        json_path = ".spec.state",
        description = "Reserved, Committed or Released"
    ),
    printcolumn(name = "Start", type_ = "string", json_path = ".spec.start", description = "When it begins"),
    printcolumn(
        name = "End",
        type_ = "string",
        json_path = ".spec.end",
        description = "When its room is free at the latest"
    ),
    printcolumn(name = "Nodes", type_ = "integer", json_path = ".status.nodes", description = "How many nodes"),
    printcolumn(
        name = "Domain",
        type_ = "string",
        json_path = ".spec.domain",
        description = "Narrowest domain that holds them all"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = schema::without_null)]
#[x_kube(
    validation = rules::job_stays(),
    validation = rules::job_uid_stays(),
    validation = rules::incarnation_stays(),
    validation = rules::released_is_final(),
    validation = rules::committed_is_not_taken_back(),
    validation = rules::end_after_start()
)]
pub struct BerthSpec {
    /// Name of the job, in the same namespace.
    #[schemars(length(min = 1, max = 253))]
    pub job: String,
    /// Its uid: a namesake gets nothing.
    #[schemars(length(max = 64))]
    pub job_uid: String,
    /// Starts of the job before this one, plus one.
    pub incarnation: i64,
    /// Leaf queue that pays for it.
    #[schemars(length(max = 253))]
    pub queue: String,
    /// How firm it is.
    pub state: BerthState,
    /// When it begins.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start: Option<Timestamp>,
    /// When its room is free at the latest: start, limit and grace. Absent: unlimited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end: Option<Timestamp>,
    /// The Topology its domains belong to. Absent: the pool without one.
    #[schemars(length(max = 253))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub topology: Option<String>,
    /// Epoch of that Topology when the nodes were chosen.
    #[serde(default)]
    pub epoch: i64,
    /// Hash of the chosen nodes' paths: differs when one of them was moved meanwhile.
    #[serde(default)]
    pub nodes_hash: String,
    /// Term of the leader that wrote it.
    #[serde(default)]
    pub leader_epoch: i64,
    /// Generation of the job it was planned from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job_generation: Option<i64>,
    /// Narrowest domain that holds all nodes; absent when there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub domain: Option<String>,
    /// Nodes by rank, grouped.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub assignments: Vec<Assignment>,
    /// Whose room is being freed for it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub clears: Vec<Clears>,
    /// Set before the first pod is deleted: the pods go, and nothing is made any more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stopping: Option<Stopping>,
}

/// How firm a Berth is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum BerthState {
    /// Promised for later.
    Reserved,
    /// Held now: pods are being made, run or are leaving.
    Committed,
    /// Given back.
    Released,
}

/// Consecutive indexes of one role on nodes of one domain: node i holds `perNode` indexes from
/// `firstIndex + i × perNode`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Assignment {
    /// Path of the domain; empty for nodes without one.
    #[serde(default)]
    pub domain: String,
    /// Name of the role.
    pub role: String,
    /// First index in the role.
    pub first_index: i32,
    /// Indexes on each node.
    pub per_node: i32,
    /// Names of the nodes, in the order of the indexes.
    pub nodes: Vec<String>,
}

impl Assignment {
    /// Every index of the group with its node.
    pub fn indexes(&self) -> impl Iterator<Item = (i32, &str)> {
        let each = self.per_node.max(0);
        self.nodes.iter().zip(0i32..).flat_map(move |(node, i)| {
            let first = self.first_index.saturating_add(i.saturating_mul(each));
            (first..first.saturating_add(each)).map(move |index| (index, node.as_str()))
        })
    }
}

/// Room of another job that is being freed for this one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Clears {
    /// Namespace/name of the victim's Berth.
    pub berth: String,
    /// Its uid.
    pub uid: String,
    /// Ranks that go. Empty: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ranks: Vec<i64>,
}

/// Why and since when the pods of a Berth go.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = schema::without_null)]
pub struct Stopping {
    /// `Code(object)`, a code of docs/reference/codes.md.
    pub cause: String,
    /// When it was decided.
    pub at: Timestamp,
    /// Whole seconds between the stop signal and the kill.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grace_period_seconds: Option<i64>,
}

/// How far a Berth has come. Written by the controller alone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = schema::without_null)]
pub struct BerthStatus {
    /// Pods that exist.
    #[serde(default)]
    pub created: i32,
    /// Pods accepted by their kubelets.
    #[serde(default)]
    pub bound: i32,
    /// Pods that run.
    #[serde(default)]
    pub running: i32,
    /// How many nodes it names.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nodes: Option<i32>,
    /// Why it moved, was released or was refused: `Code(object)`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
    /// The earliest start ever promised; what "later" is measured against.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub promised: Option<Timestamp>,
    /// Changes of the promised start, the last 20.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub moved: Vec<Moved>,
}

/// One change: of the promised start (times) or of a rank's node (names).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = schema::without_null)]
pub struct Moved {
    /// What it was.
    pub from: String,
    /// What it became. Absent: dropped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// `Code(object)`.
    pub cause: String,
}

impl BerthSpec {
    /// Distinct nodes it names.
    pub fn node_count(&self) -> usize {
        let mut nodes: Vec<&str> = self.assignments.iter().flat_map(|a| a.nodes.iter().map(String::as_str)).collect();
        nodes.sort_unstable();
        nodes.dedup();
        nodes.len()
    }

    /// Pods it holds room for.
    pub fn pods(&self) -> usize {
        self.assignments.iter().map(|a| a.nodes.len() * usize::try_from(a.per_node).unwrap_or(0)).sum()
    }
}
