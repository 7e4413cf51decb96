//! The one picture of the cluster: objects as last seen ([`index`]), with our own writes on top before any watch shows
//! them ([`assumed`]), and the planner's state derived from them ([`world`]). One owner; nobody else has a reference.

pub mod assumed;
pub mod drift;
pub mod index;
mod jobs;
mod nodes;
mod others;
pub mod probes;
pub mod record;
mod storage;
pub mod world;

pub use index::Index;
pub use nodes::seat_of;
pub use record::{Flight, FlightKind, Record};
pub use world::World;

/// Splits `namespace/name`.
#[must_use]
pub fn split_key(key: &str) -> (&str, &str) {
    key.split_once('/').unwrap_or(("", key))
}
