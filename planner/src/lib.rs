//! The pure planner of Berth: `plan(&Snapshot, &Policy) -> Plan`.
//!
//! It decides which gangs start now, on which nodes, which get a reservation and for when, who makes room, who grows,
//! and says for every waiting job why it waits. It is synchronous and deterministic: the same snapshot gives the same
//! plan, byte for byte. It has no clock, no I/O, no randomness and never iterates over a hash map.
//!
//! Data flow: [`state::ClusterState`] is kept up incrementally by its owner (controller or simulator);
//! [`state::ClusterState::at`] lends it as a [`state::Snapshot`]; `plan` answers with a [`plan::Plan`];
//! `check` judges that plan by other means before anybody acts on it.

pub mod check;
pub mod counterfactual;
mod cycle;
pub mod ids;
pub mod job;
pub mod ledger;
pub mod place;
pub mod plan;
pub mod policy;
pub mod private;
pub mod queue;
pub mod reason;
pub mod resources;
pub mod room;
pub mod shape;
pub mod share;
pub mod state;
pub mod time;
pub mod topology;

pub use cycle::{counterfactuals, forecast, plan};
pub use ids::{DomainIdx, JobIdx, NodeIdx, PoolIdx, QueueIdx, ResourceIdx, ShapeIdx};
pub use time::{Span, Time};
