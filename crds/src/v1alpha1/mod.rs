//! Version `v1alpha1` of `berth.dev`: one kind a file.

mod berth;
mod queue;
pub(crate) mod rules;
mod topology;
mod training_job;
mod training_job_status;

pub use berth::{Assignment, Berth, BerthSpec, BerthState, BerthStatus, Clears, Moved, Stopping};
pub use queue::{
    Backfill, BackfillMode, DecayedUse, PrivateRun, Queue, QueueDefaults, QueueOrder, QueueSpec, QueueState,
    QueueStatus, Reclaim, ReclaimFrom, UserUse,
};
pub use topology::{Drift, Level, LevelStatus, NODE_LEVEL, Preset, Topology, TopologySpec, TopologyStatus};
pub use training_job::{
    Checkpoint, Communication, FailureAction, FailurePolicy, FailureRule, MAX_PODS, Rendezvous, RendezvousKind, Role,
    RuleAction, Slice, SuccessPolicy, TopologyConstraint, TrainingJob, TrainingJobSpec,
};
pub use training_job_status::{
    LastFailure, PendingDomain, PendingStatus, Phase, PlacementStatus, TrainingJobStatus, Unblock,
};

/// API group of all kinds.
pub const GROUP: &str = "berth.dev";
/// The one version.
pub const VERSION: &str = "v1alpha1";
/// `apiVersion` of every object of ours.
pub const API_VERSION: &str = "berth.dev/v1alpha1";
