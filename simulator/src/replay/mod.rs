//! Replays of recorded workloads: every event goes through the planner, and the outcome is measured.
//!
//! Data flow: [`options::ReplayOptions`] → [`workload::Workload`] (jobs, queues, cluster) → [`engine::Engine`] (one
//! pass per event) → [`metrics`] → [`report::ReplayReport`].

pub mod cluster;
pub mod engine;
pub mod locality;
pub mod metrics;
pub mod options;
pub mod order;
pub mod plot;
pub mod quota;
pub mod report;
mod run;
pub mod workload;

pub use options::ReplayOptions;
pub use report::ReplayReport;
pub use run::{ReplayError, Replayed, replay};
