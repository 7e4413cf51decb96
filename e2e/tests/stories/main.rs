//! Stories on a real API server; see [`berth_e2e`].
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)] // the lints are for code outside tests
#![allow(clippy::needless_pass_by_value)] // manifests are written in place, where a borrow would only be noise

mod admitted;
mod faults;
mod lifecycle;
mod nodes;
mod refusals;
mod shares;
mod starts;
mod volumes;

use std::process::ExitCode;

fn main() -> ExitCode {
    let all = [
        starts::all(),
        volumes::all(),
        admitted::all(),
        shares::all(),
        nodes::all(),
        lifecycle::all(),
        refusals::all(),
        faults::all(),
    ];
    berth_e2e::runner::main("stories", all.into_iter().flatten().collect())
}
