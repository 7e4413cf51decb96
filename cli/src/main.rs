//! The `kubectl-berth` command.
fn main() {}
