//! `TrainingJob`: a gang, roles of pods that start together or not at all, with a floor and a topology constraint.

use k8s_openapi::api::core::v1::PodTemplateSpec;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{TrainingJobStatus, rules::training_job as rules};
use crate::{Duration, pod_template, schema};

/// Most pods one job may have.
pub const MAX_PODS: i64 = 20_000;

/// What a user asks for.
#[derive(CustomResource, KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "berth.dev",
    version = "v1alpha1",
    kind = "TrainingJob",
    doc = "A gang of pods that starts whole and bound, in the nodes and at the time Berth planned for it, or not at all.",
    namespaced,
    shortname = "tj",
    category = "berth-all",
    status = "TrainingJobStatus",
    derive = "PartialEq",
    selectable = ".spec.queue",
    selectable = ".status.phase",
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase", description = "Where the job is in its life"),
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.ready", description = "Ready pods, of replicas"),
    printcolumn(name = "Queue", type_ = "string", json_path = ".spec.queue", description = "The queue that pays for it"),
    printcolumn(name = "Priority", type_ = "integer", json_path = ".status.priority", description = "Value of its priority class"),
    printcolumn(name = "Level", type_ = "string", json_path = ".status.placement.level", description = "Narrowest level that holds the whole gang"),
    printcolumn(name = "Domain", type_ = "string", json_path = ".status.placement.domain", description = "The domain of that level"),
    printcolumn(name = "ETA", type_ = "string", json_path = ".status.eta", description = "When it starts; ~ marks an estimate that is no promise"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    validation = rules::name_is_a_service_name(),
    validation = rules::host_names_fit(),
    validation = rules::queue_stays_while_held(),
    validation = rules::preemptible_stays_while_held(),
    validation = rules::required_stays_while_held(),
    validation = rules::preferred_stays_while_held(),
    validation = rules::communication_stays_while_held(),
    validation = rules::rendezvous_stays_while_held(),
    validation = rules::checkpoint_stays_while_held(),
    validation = rules::success_policy_stays_while_held(),
    validation = rules::roles_stay_while_held()
)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = schema::without_null)]
#[x_kube(
    validation = rules::role_names_are_unique(),
    validation = rules::pods_within_limit(),
    validation = rules::dependencies_exist(),
    validation = rules::dependencies_have_no_cycle(),
    validation = rules::success_roles_exist(),
    validation = rules::failure_rule_roles_exist(),
    validation = rules::max_runtime_is_positive(),
    validation = rules::expected_runtime_is_positive(),
    validation = rules::expected_within_max_runtime(),
    validation = rules::template_priority_is_the_jobs(),
    validation = rules::template_grace_is_the_jobs()
)]
pub struct TrainingJobSpec {
    /// A leaf Queue. Absent: the namespace's annotation berth.dev/queue, else the Queue `default`.
    #[schemars(length(min = 1, max = 253))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// A scheduling.k8s.io/v1 PriorityClass. Absent: the queue's default, else the global default, else 0.
    #[schemars(length(min = 1, max = 253))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority_class_name: Option<String>,
    /// May be stopped for others. A job that may not starts only within its queue's guarantee.
    #[serde(default = "yes")]
    pub preemptible: bool,
    /// Give the berth back and keep the job.
    #[serde(default)]
    pub suspend: bool,
    /// Hard limit of one incarnation, from its Started; what promises use. Absent: unlimited, and never backfilled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_runtime: Option<Duration>,
    /// For estimates and placement only: never a reason to kill, never a promise. At most maxRuntime.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected_runtime: Option<Duration>,
    /// How close together the pods must be.
    #[serde(default)]
    pub topology: TopologyConstraint,
    /// The pattern of traffic that placement serves.
    #[serde(default)]
    pub communication: Communication,
    /// Which environment the pods get to find each other.
    #[serde(default)]
    pub rendezvous: Rendezvous,
    /// The parts of the gang, in rank order.
    #[schemars(length(min = 1, max = 16))]
    pub roles: Vec<Role>,
    /// How work is saved. Absent: all work is lost when the job is stopped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<Checkpoint>,
    /// What follows when a pod fails by its own code.
    #[serde(default)]
    pub failure_policy: FailurePolicy,
    /// Which roles decide success. Absent: every pod must succeed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub success_policy: Option<SuccessPolicy>,
    /// How long the finished job is kept. Absent: for ever.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttl_after_finished: Option<Duration>,
}

impl Default for TrainingJobSpec {
    /// The defaults of the schema, and no roles yet.
    fn default() -> Self {
        Self {
            queue: None,
            priority_class_name: None,
            preemptible: yes(),
            suspend: false,
            max_runtime: None,
            expected_runtime: None,
            topology: TopologyConstraint::default(),
            communication: Communication::default(),
            rendezvous: Rendezvous::default(),
            roles: Vec::new(),
            checkpoint: None,
            failure_policy: FailurePolicy::default(),
            success_policy: None,
            ttl_after_finished: None,
        }
    }
}

fn yes() -> bool {
    true
}

/// How close together the pods must be.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = schema::without_null)]
#[x_kube(validation = rules::preferred_differs_from_required())]
pub struct TopologyConstraint {
    /// A level: never wider than one domain of it. Absent: no limit.
    #[schemars(length(min = 1, max = 63))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub required: Option<String>,
    /// A level narrower than `required`, tried first. Absent: as tight as possible at once.
    #[schemars(length(min = 1, max = 63))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred: Option<String>,
    /// How long, from submission, the job may wait for `preferred` while `required` would fit.
    #[serde(default)]
    pub patience: Duration,
}

/// The pattern of traffic between ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum Communication {
    /// Rings and trees over all ranks: fewest domains, widest links.
    #[default]
    AllReduce,
    /// Every rank to every rank: fewest domains, widest links.
    AllToAll,
    /// Each rank to the next: fewest crossings between consecutive ranks.
    Pipeline,
    /// All ranks to the first role.
    ParameterServer,
    /// No traffic: fills holes, ignores topology.
    Independent,
}

/// Which environment the pods get to find each other.
#[derive(KubeSchema, Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = rules::port_is_valid())]
pub struct Rendezvous {
    /// The framework.
    #[serde(default)]
    pub kind: RendezvousKind,
    /// Port of the coordinator.
    #[serde(default = "torch_port")]
    pub port: i32,
}

impl Default for Rendezvous {
    fn default() -> Self {
        Self { kind: RendezvousKind::default(), port: torch_port() }
    }
}

/// The port torchrun uses when nobody says otherwise.
fn torch_port() -> i32 {
    29_500
}

/// The framework whose variables the pods get, beside the BERTH_* ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum RendezvousKind {
    /// MASTER_ADDR, MASTER_PORT and torchrun's PET_*.
    #[default]
    Torch,
    /// JAX_COORDINATOR_ADDRESS, JAX_NUM_PROCESSES, JAX_PROCESS_ID.
    Jax,
    /// A host file and keys for ssh.
    Mpi,
    /// Only the BERTH_* variables, and no Service.
    None,
}

/// One part of the gang: pods made from one template.
#[derive(KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = schema::without_null)]
#[x_kube(
    validation = rules::role_runs_a_pod(),
    validation = rules::floor_is_a_pod(),
    validation = rules::floor_within_replicas(),
    validation = rules::slice_divides_replicas(),
    validation = rules::slice_divides_floor()
)]
pub struct Role {
    /// DNS label, unique in the job.
    #[schemars(length(min = 1, max = 63), regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub name: String,
    /// The most pods that may run.
    pub replicas: i32,
    /// The gang floor: fewer never run. Absent: replicas.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_replicas: Option<i32>,
    /// Groups of consecutive ranks that must share one domain of a level.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slice: Option<Slice>,
    /// Roles whose pods must all be Ready before this role's pods are made.
    #[schemars(length(max = 15), inner(length(max = 63)))]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub depends_on: Vec<String>,
    /// What each pod looks like; restartPolicy is Never (default) or OnFailure.
    #[serde(deserialize_with = "pod_template::deserialize")]
    #[schemars(schema_with = "schema::pod_template")]
    #[x_kube(
        validation = rules::template_has_containers(),
        validation = rules::template_restarts_by_itself_only_on_failure(),
        validation = rules::template_names_no_node(),
        validation = rules::template_names_no_other_scheduler(),
        validation = rules::template_has_no_gates(),
        validation = rules::template_has_no_claims(),
        validation = rules::template_has_no_spread(),
        validation = rules::template_has_no_pod_affinity(),
        validation = rules::template_has_no_pod_anti_affinity(),
        validation = rules::template_leaves_the_host_name(),
        validation = rules::template_sets_no_priority_value(),
        validation = rules::template_labels_are_not_ours(),
        validation = rules::template_annotations_are_not_ours()
    )]
    pub template: PodTemplateSpec,
}

impl Role {
    /// The floor: `minReplicas`, else `replicas`.
    pub fn floor(&self) -> i32 {
        self.min_replicas.unwrap_or(self.replicas)
    }

    /// Pods that come and go together: the slice's size, else 1.
    pub fn slice_size(&self) -> i32 {
        self.slice.as_ref().map_or(1, |slice| slice.size)
    }

    /// True when some size between the floor and `replicas` other than `replicas` may run.
    pub fn is_elastic(&self) -> bool {
        self.floor() < self.replicas
    }
}

/// Every `size` consecutive ranks of the role run inside one domain of the level `within`.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Slice {
    /// Ranks in a slice; divides replicas and minReplicas.
    #[schemars(range(min = 1, max = 20_000))]
    pub size: i32,
    /// A level, not wider than the job's required one.
    #[schemars(length(min = 1, max = 63))]
    pub within: String,
}

/// How work is saved.
#[derive(KubeSchema, Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = schema::without_null)]
#[x_kube(validation = rules::checkpoint_interval_is_positive())]
pub struct Checkpoint {
    /// The most work lost when the job is stopped. Absent: all of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub every: Option<Duration>,
    /// Time between the stop signal and the kill. Absent: the template's, else 30s.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grace_period: Option<Duration>,
}

/// What follows when a pod fails by its own code; lost nodes and preemption never count.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = rules::restarts_are_not_negative())]
pub struct FailurePolicy {
    /// Failures of the user's own code after which the job goes on.
    #[serde(default = "three_restarts")]
    pub max_restarts: i32,
    /// What follows when no rule matches.
    #[serde(default)]
    pub on_pod_failure: FailureAction,
    /// First match wins.
    #[schemars(length(max = 32))]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<FailureRule>,
    /// Not all pods Ready by then counts as a failure of the user's code.
    #[serde(default = "half_an_hour")]
    pub ready_within: Duration,
}

impl Default for FailurePolicy {
    fn default() -> Self {
        Self {
            max_restarts: three_restarts(),
            on_pod_failure: FailureAction::default(),
            rules: Vec::new(),
            ready_within: half_an_hour(),
        }
    }
}

fn three_restarts() -> i32 {
    3
}

/// Long enough for a large image and a slow model load.
fn half_an_hour() -> Duration {
    Duration::from_mins(30)
}

/// What follows a pod's failure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum FailureAction {
    /// Stop all pods and start the gang again.
    #[default]
    RestartGang,
    /// Replace the failed pod in the same incarnation.
    ReplacePod,
    /// Fail the job.
    Fail,
}

/// What a rule does; `Ignore` replaces the pod and does not count the failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum RuleAction {
    /// Fail the job at once.
    Fail,
    /// Stop all pods and start the gang again.
    RestartGang,
    /// Replace the failed pod in the same incarnation.
    ReplacePod,
    /// Replace the failed pod and do not count it.
    Ignore,
}

/// One rule; matches when every field that is given matches.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = rules::rule_matches_something(), validation = rules::exit_codes_are_failures())]
pub struct FailureRule {
    /// Exit codes of the first container that failed. Empty: any.
    #[schemars(length(max = 255))]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exit_codes: Vec<i32>,
    /// Roles the rule is for. Empty: any.
    #[schemars(length(max = 16), inner(length(max = 63)))]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub roles: Vec<String>,
    /// What is done.
    pub action: RuleAction,
}

/// Which roles decide success.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SuccessPolicy {
    /// When all pods of these roles succeeded, the rest is stopped and the job has succeeded.
    #[schemars(length(min = 1, max = 16), inner(length(max = 63)))]
    pub roles: Vec<String>,
}

impl TrainingJobSpec {
    /// Pods at the floor.
    pub fn floor_pods(&self) -> i64 {
        self.roles.iter().map(|role| i64::from(role.floor())).sum()
    }

    /// Pods at most.
    pub fn max_pods(&self) -> i64 {
        self.roles.iter().map(|role| i64::from(role.replicas)).sum()
    }
}
