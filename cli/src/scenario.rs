//! `run`: a scenario through the production planner, without a cluster.

use super::output;
use anyhow::{Context, Result};
use clap::ValueEnum;
use simulator::brain::Brain;
use simulator::scenario::{Scenario, gantt, run as simulate};
use std::path::PathBuf;
use std::process::ExitCode;

/// Run a scenario through the production planner, without a cluster.
#[derive(Debug, clap::Args)]
#[command(after_help = "Several files make one scenario: manifests in one, the timeline in another.\n\nExamples:\n  \
    kubectl-berth run scenario.yaml\n  \
    kubectl-berth run cluster.yaml jobs.yaml --output json\n  \
    kubectl-berth run scenario.yaml --output svg plan.svg\n\n\
    Exit code: 0 when the run ended without a violation of the planner's laws, 1 with one, 2 for unusable input.")]
pub(crate) struct Args {
    /// Scenario files; with `--output svg`, the last name is the picture's.
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// What to print.
    #[arg(long, value_enum, default_value = "text")]
    output: Output,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Output {
    /// A timeline to read.
    Text,
    /// Events, jobs and checks.
    Json,
    /// A Gantt chart, written to the last file named.
    Svg,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let (files, picture) = match (args.output, args.files.split_last()) {
        (Output::Svg, Some((picture, rest))) if !rest.is_empty() => (rest, Some(picture)),
        (Output::Svg, _) => anyhow::bail!("--output svg needs the scenario's files and the picture's name"),
        _ => (args.files.as_slice(), None),
    };
    let mut texts = Vec::new();
    for file in files {
        let text = std::fs::read_to_string(file).with_context(|| format!("failed to read {}", file.display()))?;
        texts.push((file.display().to_string(), text));
    }
    let scenario = Scenario::read(&texts)?;
    let report = simulate(&scenario, Brain::judged_thoroughly())?;
    for fault in &report.faults {
        eprintln!("violation: {fault}");
    }
    match picture {
        Some(path) => output::save(path, &gantt::draw(&report))?,
        None if args.output == Output::Json => output::print(&format!("{}\n", serde_json::to_string_pretty(&report)?))?,
        None => output::print(&report.to_string())?,
    }
    Ok(ExitCode::from(if report.checks.violations == 0 { output::GOOD } else { output::VIOLATED }))
}
