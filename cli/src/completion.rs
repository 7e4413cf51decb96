//! `completion`: shell completions.

use super::{Cli, output};
use anyhow::{Context, Result};
use clap::CommandFactory;
use clap_complete::Shell;
use std::process::ExitCode;

/// Print a completion script for a shell.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  kubectl-berth completion bash > /etc/bash_completion.d/kubectl-berth\n  \
                        kubectl-berth completion zsh > \"${fpath[1]}/_kubectl-berth\"\n  \
                        kubectl-berth completion fish > ~/.config/fish/completions/kubectl-berth.fish")]
pub(crate) struct Args {
    /// The shell.
    #[arg(value_enum)]
    shell: Shell,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "kubectl-berth", &mut script);
    output::print(&String::from_utf8(script).context("failed to make the script")?)?;
    Ok(ExitCode::from(output::GOOD))
}
