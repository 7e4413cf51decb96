//! Placeholder of the e2e crate.
