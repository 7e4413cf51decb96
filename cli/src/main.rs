//! `kubectl-berth`: what users and administrators run. `run` and `replay` need no cluster.

mod codes;
mod completion;
mod output;
mod replay;
mod scenario;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Berth, a batch queue for Kubernetes GPU clusters.
#[derive(Debug, Parser)]
#[command(name = "kubectl-berth", bin_name = "kubectl berth", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    Run(scenario::Args),
    Replay(replay::Args),
    Explain(codes::Args),
    Completion(completion::Args),
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().verb {
        Verb::Run(args) => scenario::run(&args),
        Verb::Replay(args) => replay::run(&args),
        Verb::Explain(args) => codes::run(&args),
        Verb::Completion(args) => completion::run(&args),
    };
    outcome.unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::from(output::UNUSABLE)
    })
}
