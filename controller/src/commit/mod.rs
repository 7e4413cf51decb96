//! The commit protocol: persist a decision in one write, then converge to it idempotently, from any point, after any
//! crash. The only module of the crate that holds write verbs (but for the Lease itself).
//!
//! [`machine`] is the protocol without I/O: `step(state, answer) -> (state, request)`. [`executor`] carries its requests
//! out and knows nothing else. [`writes`] holds the writes that decide nothing: statuses, finalizers, events.
//!
//! Invariant: a pod is created only after its Berth was journaled, and deleted only after its Berth was marked.

pub mod converge;
mod create;
pub mod executor;
pub mod machine;
pub mod operation;
pub mod request;
mod undo;
pub mod writes;

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;

pub use executor::{Executor, Fence, Report};
pub use machine::Machine;
pub use operation::{Journal, OnRefusal, Operation, Outcome, Stage, Undo};
pub use request::{Companion, Member, Selection};

use crds::Berth;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};

/// Uid of the controlling owner.
#[must_use]
pub fn owner_uid(metadata: &ObjectMeta) -> Option<&str> {
    let owners = metadata.owner_references.as_deref().unwrap_or_default();
    owners.iter().find(|o| o.controller == Some(true)).map(|o| o.uid.as_str())
}

/// The owner reference of what belongs to a Berth.
#[must_use]
pub fn owner_reference(berth: &Berth) -> OwnerReference {
    OwnerReference {
        api_version: crds::v1alpha1::API_VERSION.to_owned(),
        kind: "Berth".to_owned(),
        name: berth.metadata.name.clone().unwrap_or_default(),
        uid: berth.metadata.uid.clone().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}

/// Whether a pod has come to its end: it holds no room any more.
#[must_use]
pub fn is_terminal(pod: &Pod) -> bool {
    matches!(pod.status.as_ref().and_then(|s| s.phase.as_deref()), Some("Succeeded" | "Failed"))
}

/// What is needed to delete exactly this pod.
#[must_use]
pub fn member(pod: &Pod, grace_seconds: Option<u32>) -> Member {
    Member {
        namespace: pod.metadata.namespace.clone().unwrap_or_default(),
        name: pod.metadata.name.clone().unwrap_or_default(),
        uid: pod.metadata.uid.clone().unwrap_or_default(),
        grace_seconds,
    }
}
