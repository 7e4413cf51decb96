//! Exit codes and the one way to write results.

use anyhow::{Context, Result};
use std::io::Write;
use std::path::Path;

/// Everything held.
pub(crate) const GOOD: u8 = 0;
/// The run ended, but something in it was wrong.
pub(crate) const VIOLATED: u8 = 1;
/// The input cannot be used.
pub(crate) const UNUSABLE: u8 = 2;

/// Writes to standard output; a reader that went away (`| head`) is no error.
pub(crate) fn print(text: &str) -> Result<()> {
    match std::io::stdout().lock().write_all(text.as_bytes()) {
        Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        other => other.context("failed to write to standard output"),
    }
}

/// Writes a file.
pub(crate) fn save(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text).with_context(|| format!("failed to write {}", path.display()))
}
