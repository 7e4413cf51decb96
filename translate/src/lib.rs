//! Placeholder of the translate crate.
