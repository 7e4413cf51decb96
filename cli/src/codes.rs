//! `explain`: what a reason code means and what can be done about it.

use super::output;
use anyhow::Result;
use crds::Code;
use std::fmt::Write;
use std::process::ExitCode;

/// Say what a reason code means and what can be done about it.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  kubectl-berth explain NoDomainFits\n  kubectl-berth explain            # all codes"
)]
pub(crate) struct Args {
    /// The code, as in conditions, events and metrics; without one, all are listed.
    code: Option<String>,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let Some(name) = &args.code else {
        let mut text = String::new();
        for code in Code::ALL {
            writeln!(text, "{:<30} {}", code.as_str(), code.meaning())?;
        }
        output::print(&text)?;
        return Ok(ExitCode::from(output::GOOD));
    };
    let Some(code) = find(name) else {
        anyhow::bail!("no code {name:?}; `kubectl-berth explain` lists all of them{}", guess(name));
    };
    let met: Vec<&str> = code.met().iter().map(|m| m.title()).collect();
    let text =
        format!("{}\n\n{}\nRemedy: {}\nMet as: {}\n", code.as_str(), code.meaning(), code.remedy(), met.join(", "));
    output::print(&text)?;
    Ok(ExitCode::from(output::GOOD))
}

/// A code by its name in any case.
fn find(name: &str) -> Option<Code> {
    Code::ALL.iter().copied().find(|c| c.as_str().eq_ignore_ascii_case(name))
}

/// Codes that share a beginning or contain the word.
fn guess(name: &str) -> String {
    let lower = name.to_ascii_lowercase();
    let near: Vec<&str> = Code::ALL
        .iter()
        .map(|c| c.as_str())
        .filter(|c| c.to_ascii_lowercase().contains(&lower) || lower.contains(&c.to_ascii_lowercase()))
        .collect();
    if near.is_empty() { String::new() } else { format!("; did you mean {}?", near.join(" or ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_found_in_any_case_and_guessed() {
        assert_eq!(find("nodomainfits").map(Code::as_str), Some("NoDomainFits"));
        assert!(guess("Domain").contains("NoDomainFits"));
        assert_eq!(guess("Zebra"), "");
    }
}
