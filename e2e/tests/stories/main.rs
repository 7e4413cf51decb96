//! Stories on a real API server; see [`berth_e2e`].

mod faults;
mod lifecycle;
mod nodes;
mod refusals;
mod shares;
mod starts;

use std::process::ExitCode;

fn main() -> ExitCode {
    let all = [starts::all(), shares::all(), nodes::all(), lifecycle::all(), refusals::all(), faults::all()];
    berth_e2e::runner::main("stories", all.into_iter().flatten().collect())
}
