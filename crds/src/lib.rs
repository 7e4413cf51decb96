//! Berth's API: the four kinds of `berth.dev/v1alpha1`, their schemas and rules, and every name users meet.
//!
//! Types and schema only: no I/O, no clock, no planner. Everybody else imports these.
//!
//! - [`v1alpha1`]: `TrainingJob`, `Queue`, `Topology`, `Berth`.
//! - [`Duration`], [`Timestamp`]: exact to the microsecond, in the text forms of Kubernetes.
//! - [`names`]: labels, annotations, finalizers, environment variables, condition types.
//! - [`codes`]: the closed table of reasons, with a meaning and a remedy each.

// KubeSchema copies each struct into a function body, where `pub` reaches nobody.
#![allow(unreachable_pub)]
// Columns of a kind share their attribute names; the lint takes them for repetitions.
#![allow(clippy::duplicated_attributes)]

#[cfg(feature = "cel")]
pub mod cel;
pub mod codes;
mod duration;
pub mod generated;
pub mod names;
mod pod_template;
mod quantities;
pub mod schema;
mod timestamp;
pub mod v1alpha1;

pub use codes::Code;
pub use duration::{Duration, DurationError};
pub use pod_template::unknown_fields;
pub use quantities::ResourceList;
pub use timestamp::{Timestamp, TimestampError};
pub use v1alpha1::{Berth, Queue, Topology, TrainingJob};
