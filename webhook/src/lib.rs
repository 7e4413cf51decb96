//! Placeholder of the webhook crate.
