//! `Queue`: a tenant's share, in a tree.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

use super::rules::queue as rules;
use crate::{Duration, ResourceList, Timestamp, quantities, schema};

/// What a tenant may use, and how its jobs are ordered.
#[derive(CustomResource, KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "berth.dev",
    version = "v1alpha1",
    kind = "Queue",
    doc = "A tenant's share of the cluster: guarantee, limit and weight, in a tree of queues.",
    shortname = "bq",
    category = "berth-all",
    status = "QueueStatus",
    derive = "PartialEq",
    selectable = ".spec.parent",
    printcolumn(name = "Parent", type_ = "string", json_path = ".spec.parent", description = "The queue above"),
    printcolumn(name = "State", type_ = "string", json_path = ".spec.state", description = "Whether jobs start"),
    printcolumn(name = "Weight", type_ = "integer", json_path = ".spec.weight", description = "Share beyond guarantees among siblings"),
    printcolumn(name = "GPUs", type_ = "string", json_path = ".status.gpus", description = "GPUs used / guaranteed / limit"),
    printcolumn(name = "Pending", type_ = "integer", json_path = ".status.pendingJobs", description = "Jobs that wait"),
    printcolumn(name = "Running", type_ = "integer", json_path = ".status.runningJobs", description = "Jobs that run"),
    printcolumn(name = "Share", type_ = "number", json_path = ".status.fairShare", description = "Weighted dominant share of use beyond the guarantee"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    validation = rules::parent_is_another()
)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = schema::without_null)]
#[x_kube(
    validation = rules::weight_is_positive(),
    validation = rules::guarantee_within_limit(),
    validation = rules::running_jobs_not_negative(),
    validation = rules::pending_jobs_not_negative(),
    validation = rules::default_runtime_within_limit(),
    validation = rules::runtime_limit_is_positive(),
    validation = rules::default_class_is_allowed()
)]
pub struct QueueSpec {
    /// The queue above. Absent: child of the implicit root. Jobs go to leaves only.
    #[schemars(length(min = 1, max = 253))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// Share of what is beyond guarantees among siblings; at least 1.
    #[serde(default = "one")]
    pub weight: i64,
    /// Entitlement: lent while idle, taken back when wanted. A key may name a pool: h100/nvidia.com/gpu.
    #[schemars(schema_with = "quantities::schema")]
    #[serde(default, deserialize_with = "quantities::deserialize", skip_serializing_if = "BTreeMap::is_empty")]
    pub guarantee: ResourceList,
    /// Never more than this. A resource that is absent has no limit.
    #[schemars(schema_with = "quantities::schema")]
    #[serde(default, deserialize_with = "quantities::deserialize", skip_serializing_if = "BTreeMap::is_empty")]
    pub limit: ResourceList,
    /// The most of the guarantee that may be lent. A resource that is absent: all of it.
    #[schemars(schema_with = "quantities::schema")]
    #[serde(default, deserialize_with = "quantities::deserialize", skip_serializing_if = "BTreeMap::is_empty")]
    pub lending_limit: ResourceList,
    /// Namespaces whose jobs may come here. Absent: any.
    #[schemars(schema_with = "schema::label_selector")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespaces: Option<LabelSelector>,
    /// Jobs that may run at once. Absent: no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_running_jobs: Option<i32>,
    /// Jobs that may wait at once; more are refused. Absent: no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_pending_jobs: Option<i32>,
    /// What a job gets that does not say.
    #[serde(default, skip_serializing_if = "QueueDefaults::is_empty")]
    pub defaults: QueueDefaults,
    /// The longest maxRuntime a job may ask for. Absent: no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_runtime_limit: Option<Duration>,
    /// The longest grace period a job may ask for.
    #[serde(default = "quarter_of_an_hour")]
    pub max_grace_period: Duration,
    /// Priority classes jobs may use. Empty: any but the system's.
    #[schemars(length(max = 64), inner(length(max = 253)))]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allowed_priority_classes: Vec<String>,
    /// Which of the queue's jobs is next.
    #[serde(default)]
    pub order: QueueOrder,
    /// How waiting jobs are passed by.
    #[serde(default)]
    pub backfill: Backfill,
    /// What may be taken from this queue's jobs.
    #[serde(default)]
    pub reclaim: Reclaim,
    /// Whether jobs start.
    #[serde(default)]
    pub state: QueueState,
}

impl Default for QueueSpec {
    fn default() -> Self {
        Self {
            parent: None,
            weight: one(),
            guarantee: ResourceList::new(),
            limit: ResourceList::new(),
            lending_limit: ResourceList::new(),
            namespaces: None,
            max_running_jobs: None,
            max_pending_jobs: None,
            defaults: QueueDefaults::default(),
            max_runtime_limit: None,
            max_grace_period: quarter_of_an_hour(),
            allowed_priority_classes: Vec::new(),
            order: QueueOrder::default(),
            backfill: Backfill::default(),
            reclaim: Reclaim::default(),
            state: QueueState::default(),
        }
    }
}

fn one() -> i64 {
    1
}

/// Longer graces would let a victim hold a cleared room almost as long as a short job runs.
fn quarter_of_an_hour() -> Duration {
    Duration::from_mins(15)
}

/// What a job gets that does not say.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = schema::without_null)]
pub struct QueueDefaults {
    /// Limit of a job that names none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_runtime: Option<Duration>,
    /// Priority class of a job that names none.
    #[schemars(length(min = 1, max = 253))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority_class_name: Option<String>,
}

impl QueueDefaults {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Which of a queue's jobs is next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum QueueOrder {
    /// Priority, then submission.
    #[default]
    Priority,
    /// The user of less decayed use, then priority, then submission.
    Fair,
}

/// How waiting jobs are passed by.
#[derive(KubeSchema, Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = rules::depth_is_positive())]
pub struct Backfill {
    /// Who holds a reservation.
    #[serde(default)]
    pub mode: BackfillMode,
    /// Waiting jobs that hold a reservation each, in mode Conservative.
    #[serde(default = "hundred")]
    pub depth: i32,
}

impl Default for Backfill {
    fn default() -> Self {
        Self { mode: BackfillMode::default(), depth: hundred() }
    }
}

impl Backfill {
    /// Waiting jobs of the queue that hold a reservation each.
    pub fn reservations(self) -> i32 {
        match self.mode {
            BackfillMode::Conservative => self.depth,
            BackfillMode::Easy => 1,
            BackfillMode::None => 0,
        }
    }
}

fn hundred() -> i32 {
    100
}

/// Who holds a reservation while others pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum BackfillMode {
    /// The first `depth` waiting jobs.
    #[default]
    Conservative,
    /// The first waiting job.
    Easy,
    /// Nobody, and nobody passes the first: strict order.
    None,
}

/// What may be taken from this queue's jobs.
#[derive(KubeSchema, Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Reclaim {
    /// Jobs younger than this are not stopped for others.
    #[serde(default)]
    pub min_runtime: Duration,
    /// Whether room this queue borrowed may be taken back from it.
    #[serde(default)]
    pub from: ReclaimFrom,
}

/// For whom borrowed room may be taken from a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum ReclaimFrom {
    /// For anybody entitled.
    #[default]
    Any,
    /// For somebody entitled and of higher priority.
    LowerPriority,
    /// For nobody.
    Never,
}

/// Whether a queue's jobs start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum QueueState {
    /// Jobs start.
    #[default]
    Open,
    /// Nothing starts.
    Held,
    /// Nothing starts, and running jobs stop at their next checkpoint.
    Draining,
}

/// What a queue uses. Written by the controller alone.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = schema::without_null)]
pub struct QueueStatus {
    /// The generation of the spec this status speaks of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Ready, and what is wrong with the queue if not.
    #[schemars(schema_with = "schema::conditions")]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// What running jobs hold.
    #[schemars(schema_with = "quantities::schema")]
    #[serde(default, deserialize_with = "quantities::deserialize", skip_serializing_if = "BTreeMap::is_empty")]
    pub used: ResourceList,
    /// The part of `used` that is within the guarantee.
    #[schemars(schema_with = "quantities::schema")]
    #[serde(default, deserialize_with = "quantities::deserialize", skip_serializing_if = "BTreeMap::is_empty")]
    pub guaranteed: ResourceList,
    /// The part of `used` beyond the guarantee.
    #[schemars(schema_with = "quantities::schema")]
    #[serde(default, deserialize_with = "quantities::deserialize", skip_serializing_if = "BTreeMap::is_empty")]
    pub borrowed: ResourceList,
    /// The part of the guarantee that others use.
    #[schemars(schema_with = "quantities::schema")]
    #[serde(default, deserialize_with = "quantities::deserialize", skip_serializing_if = "BTreeMap::is_empty")]
    pub lent: ResourceList,
    /// GPUs used / guaranteed / limit, all kinds summed: "64/64/128".
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpus: Option<String>,
    /// Weighted dominant share of use beyond the guarantee; 0 within it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fair_share: Option<f64>,
    /// Use that fades with time, by resource.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub decayed_usage: BTreeMap<String, DecayedUse>,
    /// The same by user: those who used most.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub users: Vec<UserUse>,
    /// The same of all users beyond those named.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub other_users: BTreeMap<String, DecayedUse>,
    /// Jobs that run in the queue's private schedule: the one it would have alone with its guarantee.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub private_running: Vec<PrivateRun>,
    /// Jobs that wait.
    #[serde(default)]
    pub pending_jobs: i32,
    /// Jobs that hold nodes.
    #[serde(default)]
    pub running_jobs: i32,
    /// Waiting jobs with a promise.
    #[serde(default)]
    pub reserved_jobs: i32,
}

/// Use that halves every half life; `value` was right at `at` and readers integrate from there.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DecayedUse {
    /// In units of the resource.
    pub value: f64,
    /// The moment `value` speaks of.
    pub at: Timestamp,
}

/// One user's decayed use.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UserUse {
    /// The user as the API server names him.
    pub name: String,
    /// By resource.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub usage: BTreeMap<String, DecayedUse>,
}

/// One job of a queue's private schedule.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = schema::without_null)]
pub struct PrivateRun {
    /// Namespace/name of the job.
    pub job: String,
    /// Its uid.
    pub uid: String,
    /// When it started there.
    pub start: Timestamp,
    /// When it ends there. Absent: not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end: Option<Timestamp>,
    /// What it holds there.
    #[schemars(schema_with = "quantities::schema")]
    #[serde(default, deserialize_with = "quantities::deserialize", skip_serializing_if = "BTreeMap::is_empty")]
    pub holds: ResourceList,
}
