//! Placeholder of the planner crate.
