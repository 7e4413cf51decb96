//! Between Kubernetes objects and the planner's types, in both directions: the one parser of the edge.
//!
//! Pure: no client, no clock, no I/O. Controller, webhook, simulator and CLI all read objects through here, so that all
//! of them understand the same thing by the same manifest. An error names object, field, value and what is accepted.
//!
//! - [`pod`], [`constraints`], [`filters`]: what a pod asks for and which nodes allow it, as a planner shape.
//! - [`volumes`]: what its claims add to that, and what has to come before a pod may be made.
//! - [`node`], [`pools`]: what a node has and where it stands under the Topologies.
//! - [`queue`], [`job`]: queues and jobs as the planner reads them.
//! - [`berth`], [`adopt`]: plans as objects, and what of a plan survives in objects.
//! - [`lifecycle`]: what follows when pods end, and every object made for a job.

// Fixtures take `json!` literals, which read better as values.
#![cfg_attr(test, allow(clippy::needless_pass_by_value))]

pub mod adopt;
pub mod amounts;
pub mod berth;
pub mod constraints;
pub mod defaults;
pub mod error;
pub mod filters;
pub mod job;
pub mod lifecycle;
pub mod node;
pub mod pod;
pub mod pools;
pub mod ports;
pub mod queue;
pub mod time;
pub mod volumes;

pub use constraints::Constraints;
pub use error::{Fault, TranslateError};
pub use filters::{FilterBook, NodeLookup};
pub use pod::PodAsk;
pub use pools::PoolMap;

/// `namespace/name`, or the name alone for objects of the cluster.
#[must_use]
pub fn key_of<K: kube::Resource>(object: &K) -> String {
    let meta = object.meta();
    let name = meta.name.as_deref().unwrap_or_default();
    match &meta.namespace {
        Some(namespace) => format!("{namespace}/{name}"),
        None => name.to_owned(),
    }
}
