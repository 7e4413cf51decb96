//! Placeholder of the admission crate.
