//! The controller of Berth: it watches the cluster, keeps the planner's picture of it, plans at its own pace, and
//! carries plans out by the commit protocol.
//!
//! Flow: [`watch`] -> [`state`] -> snapshot -> plan -> check -> [`commit`] -> watch. One task owns all mutable state
//! ([`engine`]); everybody else sends it messages over one bounded channel.
//!
//! Invariant: only [`commit`] writes to the API server (and [`lease`] its Lease).

pub mod app;
pub mod args;
pub mod clock;
pub mod commit;
pub mod engine;
pub mod health;
pub mod http;
pub mod knobs;
pub mod lease;
pub mod lifecycle;
pub mod metrics;
pub mod quota;
pub mod sabotage;
pub mod state;
pub mod status;
pub mod telemetry;
pub mod traces;
pub mod watch;
