//! Every name that users, manifests and other programs meet. Tests use the constants once and the literals once.

/// Field manager of all our writes.
pub const FIELD_MANAGER: &str = "berth";
/// `schedulerName` of our pods: they are created bound, nobody else schedules them.
pub const SCHEDULER_NAME: &str = "berth";
/// Domain of our labels and annotations; templates must not use it.
pub const DOMAIN_PREFIX: &str = "berth.dev/";
/// Namespace that `config/default` installs into.
pub const NAMESPACE: &str = "berth-system";
/// Service account of the controller in [`NAMESPACE`].
pub const CONTROLLER_ACCOUNT: &str = "berth-controller";
/// Service account of the webhook in [`NAMESPACE`].
pub const WEBHOOK_ACCOUNT: &str = "berth-webhook";
/// User name of the controller as admission sees it.
pub const CONTROLLER_USER: &str = "system:serviceaccount:berth-system:berth-controller";
/// Lease that names the leader; its `leaseTransitions` is the leader epoch.
pub const LEASE: &str = "berth-controller";
/// Service of the webhook in [`NAMESPACE`].
pub const WEBHOOK_SERVICE: &str = "berth-webhook";
/// Secret with the webhook's certificate authority in [`NAMESPACE`].
pub const WEBHOOK_SECRET: &str = "berth-webhook-ca";
/// Name of the validating and of the mutating webhook configuration.
pub const WEBHOOK_CONFIGURATION: &str = "berth";
/// The queue of jobs that name none.
pub const DEFAULT_QUEUE: &str = "default";
/// Role of an Mpi job that starts the others and appears in no host file.
pub const MPI_LAUNCHER: &str = "launcher";

/// Labels of our pods, Services and Berths.
pub mod labels {
    /// Name of the job.
    pub const JOB: &str = "berth.dev/job";
    /// Name of the role.
    pub const ROLE: &str = "berth.dev/role";
    /// Index in the role.
    pub const INDEX: &str = "berth.dev/index";
    /// Rank in the job.
    pub const RANK: &str = "berth.dev/rank";
    /// Name of the Berth; the fencing policy looks at pods that have it.
    pub const BERTH: &str = "berth.dev/berth";
    /// Number of the incarnation.
    pub const INCARNATION: &str = "berth.dev/incarnation";
}

/// Annotations we write or read.
pub mod annotations {
    /// Path of the pod's domain when it was placed.
    pub const DOMAIN_PATH: &str = "berth.dev/domain-path";
    /// Epoch of the Topology when the pod was placed.
    pub const TOPOLOGY_EPOCH: &str = "berth.dev/topology-epoch";
    /// Term of the leader that wrote the object; the fencing policy compares it with the Lease.
    pub const LEADER_EPOCH: &str = "berth.dev/leader-epoch";
    /// On a Namespace: the queue of its jobs that name none.
    pub const QUEUE: &str = "berth.dev/queue";
    /// On a TrainingJob: who created it. Written by the mutating webhook, never changed.
    pub const USER: &str = "berth.dev/user";
    /// On a Node: START/END in RFC 3339; nothing is planned into it.
    pub const UNAVAILABLE: &str = "berth.dev/unavailable";
    /// Hash of the role's template the pod was made from.
    pub const TEMPLATE_HASH: &str = "berth.dev/template-hash";
    /// On a Berth: moves of its start that its status does not show yet.
    pub const MOVED: &str = "berth.dev/moved";
    /// Cluster autoscaler: do not evict.
    pub const NOT_SAFE_TO_EVICT: &str = "cluster-autoscaler.kubernetes.io/safe-to-evict";
    /// Karpenter: do not disrupt.
    pub const DO_NOT_DISRUPT: &str = "karpenter.sh/do-not-disrupt";
    /// On a PersistentVolumeClaim: the node its volume is to be made for.
    pub const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
}

/// Finalizers.
pub mod finalizers {
    /// On a TrainingJob, until its pods are gone.
    pub const JOB: &str = "berth.dev/job";
    /// On a Berth, until its pods are gone.
    pub const BERTH: &str = "berth.dev/berth";
}

/// Taints.
pub mod taints {
    /// Nodes for Berth alone; our pods tolerate it by themselves.
    pub const DEDICATED: &str = "berth.dev/dedicated";
    /// Node whose pods may be forgotten.
    pub const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";
}

/// Condition types.
pub mod conditions {
    /// TrainingJob: waits in its queue.
    pub const QUEUED: &str = "Queued";
    /// TrainingJob: nodes and a time are promised.
    pub const RESERVED: &str = "Reserved";
    /// TrainingJob: all pods exist and none was refused.
    pub const STARTED: &str = "Started";
    /// TrainingJob: runs with less than it should, or an undo has not succeeded yet.
    pub const DEGRADED: &str = "Degraded";
    /// TrainingJob: a node drifted out of the required domain.
    pub const TOPOLOGY_VIOLATED: &str = "TopologyViolated";
    /// TrainingJob: nothing more will happen.
    pub const FINISHED: &str = "Finished";
    /// TrainingJob: an edit waits, since it would move somebody's promise.
    pub const CHANGE_DEFERRED: &str = "ChangeDeferred";
    /// Queue, Topology: usable.
    pub const READY: &str = "Ready";
    /// Topology: labels are changing.
    pub const DRIFTING: &str = "Drifting";
    /// Topology: a mass change is doubted; the last trusted places are used.
    pub const HELD: &str = "Held";
    /// Topology: other schedulers may take its nodes.
    pub const SHARED: &str = "Shared";
}

/// Environment variables every container gets; one the user set is never overwritten.
pub mod env {
    /// Name of the job.
    pub const JOB: &str = "BERTH_JOB";
    /// Name of the role.
    pub const ROLE: &str = "BERTH_ROLE";
    /// Index in the role.
    pub const INDEX: &str = "BERTH_INDEX";
    /// Rank in the job.
    pub const RANK: &str = "BERTH_RANK";
    /// Pods at creation.
    pub const WORLD_SIZE: &str = "BERTH_WORLD_SIZE";
    /// Host name of rank 0.
    pub const COORDINATOR: &str = "BERTH_COORDINATOR";
    /// Path of the pod's domain.
    pub const DOMAIN_PATH: &str = "BERTH_DOMAIN_PATH";
    /// Number of the incarnation.
    pub const INCARNATION: &str = "BERTH_INCARNATION";
    /// Torch: host of rank 0.
    pub const MASTER_ADDR: &str = "MASTER_ADDR";
    /// Torch: port of rank 0.
    pub const MASTER_PORT: &str = "MASTER_PORT";
    /// torchrun: nodes, `min:max` for an elastic job.
    pub const PET_NNODES: &str = "PET_NNODES";
    /// torchrun: rank of the node.
    pub const PET_NODE_RANK: &str = "PET_NODE_RANK";
    /// torchrun: host of rank 0.
    pub const PET_MASTER_ADDR: &str = "PET_MASTER_ADDR";
    /// torchrun: port of rank 0.
    pub const PET_MASTER_PORT: &str = "PET_MASTER_PORT";
    /// torchrun, elastic: `c10d`.
    pub const PET_RDZV_BACKEND: &str = "PET_RDZV_BACKEND";
    /// torchrun, elastic: host and port of rank 0.
    pub const PET_RDZV_ENDPOINT: &str = "PET_RDZV_ENDPOINT";
    /// torchrun, elastic: name of the rendezvous.
    pub const PET_RDZV_ID: &str = "PET_RDZV_ID";
    /// Jax: host and port of process 0.
    pub const JAX_COORDINATOR_ADDRESS: &str = "JAX_COORDINATOR_ADDRESS";
    /// Jax: pods at creation.
    pub const JAX_NUM_PROCESSES: &str = "JAX_NUM_PROCESSES";
    /// Jax: rank.
    pub const JAX_PROCESS_ID: &str = "JAX_PROCESS_ID";
}
