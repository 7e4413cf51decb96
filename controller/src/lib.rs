//! Placeholder of the controller crate.
