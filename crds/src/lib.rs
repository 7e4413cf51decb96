//! Placeholder of the crds crate.
