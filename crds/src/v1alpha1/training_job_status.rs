//! Status of a `TrainingJob`: what `kubectl get` and `kubectl describe` tell without any other tool.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Timestamp, schema};

/// What became of the job so far. Written by the controller alone.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = schema::without_null)]
pub struct TrainingJobStatus {
    /// Where the job is in its life.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,
    /// The generation of the spec this status speaks of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Queued, Reserved, Started, Degraded, TopologyViolated, Finished, ChangeDeferred.
    #[schemars(schema_with = "schema::conditions")]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// Name of the job's current Berth.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub berth: Option<String>,
    /// Number of the current or last incarnation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub incarnation: Option<i64>,
    /// Value of the job's priority class.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<i32>,
    /// Place among the waiting jobs of its queue, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue_position: Option<i64>,
    /// When the job is expected to start; a promise only while a Reserved Berth stands.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub estimated_start: Option<Timestamp>,
    /// `estimatedStart` for a column; a leading ~ marks an estimate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub eta: Option<String>,
    /// Restarts of the gang, or of one of its pods, after failures of the user's own code; at most `failurePolicy.maxRestarts`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restarts: Option<i32>,
    /// Stops that were not the job's fault: preemption, lost nodes, draining.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disruptions: Option<i32>,
    /// First sight of the job. Written once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub submitted_at: Option<Timestamp>,
    /// What the job's place in the queue counts from, where a resume set it anew; else submittedAt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queued_at: Option<Timestamp>,
    /// Start of the current incarnation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    /// End of the job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Timestamp>,
    /// When the job would have started had its queue been alone with its guarantee; guaranteed from then on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub private_start: Option<Timestamp>,
    /// Ready pods, of replicas: "12/16".
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready: Option<String>,
    /// Where it runs and how good that is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub placement: Option<PlacementStatus>,
    /// Why it does not run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pending: Option<PendingStatus>,
    /// The last failure of a pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_failure: Option<LastFailure>,
}

/// Where a job is in its life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum Phase {
    /// Waits, without a promise.
    #[default]
    Pending,
    /// Waits, with nodes and a time promised.
    Reserved,
    /// Its room is taken and its pods are being made.
    Starting,
    /// All pods were accepted by their nodes.
    Running,
    /// Stopped, and about to start again.
    Restarting,
    /// Its user took it out of the queue.
    Suspended,
    /// Ended well.
    Succeeded,
    /// Ended badly.
    Failed,
}

impl Phase {
    /// True once nothing more will happen.
    pub fn is_finished(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed)
    }
}

/// Where the gang runs and how good that is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = schema::without_null)]
pub struct PlacementStatus {
    /// Narrowest level that holds the whole gang.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub level: Option<String>,
    /// Path of the domain of that level.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub domain: Option<String>,
    /// Domains of the wanted level in use.
    #[serde(default)]
    pub domains: i32,
    /// Fewest domains the gang could ever use.
    #[serde(default)]
    pub domains_at_best: i32,
    /// Consecutive ranks that do not share a domain of the wanted level.
    #[serde(default)]
    pub cross_edges: i32,
}

/// Why the job does not run, and what would change that.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PendingStatus {
    /// One of the codes of docs/reference/codes.md.
    pub code: String,
    /// The same with names and numbers.
    pub message: String,
    /// The best few domains, best first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub domains: Vec<PendingDomain>,
    /// Single changes that would start the job, found by planning it again with each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unblock: Vec<Unblock>,
}

/// How far one domain is from holding the gang, in pods of the gang.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PendingDomain {
    /// Path of the domain.
    pub domain: String,
    /// Pods of the gang that fit now.
    pub free: i64,
    /// Pods of the gang that fit but for reservations of others.
    pub held_by_plan: i64,
    /// Pods of the gang that would fit on nodes that cannot be used now.
    pub degraded: i64,
    /// Pods of the gang's floor that find no room.
    pub short: i64,
}

/// One change and its effect.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Unblock {
    /// What would be changed: "topology.required: block".
    pub change: String,
    /// What would follow: "starts now in b0".
    pub effect: String,
}

/// The last failure of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = schema::without_null)]
pub struct LastFailure {
    /// Name of the pod.
    pub pod: String,
    /// Node it ran on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Exit code of the first container that failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// Reason as the kubelet or our own code gave it.
    pub reason: String,
    /// The same in words.
    #[serde(default)]
    pub message: String,
    /// When; restart back-off counts from it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<Timestamp>,
}
