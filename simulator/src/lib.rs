//! Placeholder of the simulator crate.
