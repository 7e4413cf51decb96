//! Faults on a real control plane, one after another: processes are killed, stopped and restarted in the middle of a
//! gang's life. After each, the invariants hold, nothing is left behind, and nothing moves any more.
//!
//! `BERTH_KILLS=N` kills the controller until a gang was hit at N points of its life (20).
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)] // the lints are for code outside tests

mod kills;
mod leaders;
mod refusals;
mod server;

use berth_e2e::{World, runner, settled};
use std::process::ExitCode;
use std::time::Duration;

/// Terms short enough to wait them out often, long enough for a busy machine.
const SETTINGS: &[(&str, &str)] = &[("BERTH_LEASE_SECONDS", "8"), ("BERTH_WRITE_SECONDS", "4")];

fn main() -> ExitCode {
    let stories = [kills::all(), leaders::all(), server::all(), refusals::all()];
    runner::main_with("plane_faults", SETTINGS, stories.into_iter().flatten().collect())
}

/// The invariants hold, soon, and go on holding.
async fn at_rest(world: &World, namespaces: &[&str]) -> anyhow::Result<()> {
    settled::settled(world, namespaces, Duration::from_secs(60), Duration::from_secs(4)).await
}
