//! The public traces, and one replay of one of them with a line of progress.

use crate::figure::Figures;
use crate::logs::count;
use anyhow::{Context, Result, bail};
use berth_simulator::brain::Brain;
use berth_simulator::replay::{ReplayOptions, ReplayReport, replay};
use berth_simulator::trace::Format;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Instant;

/// The folder of the traces.
#[derive(Clone, Debug)]
pub(crate) struct Traces(PathBuf);

/// A replay's figures and how long it took from reading the log to the last figure.
#[derive(Clone, Debug)]
pub(crate) struct Timed {
    /// The figures.
    pub(crate) report: ReplayReport,
    /// Seconds.
    pub(crate) wall_s: f64,
}

impl Traces {
    /// `BERTH_TRACES`, or the folder beside the repository.
    ///
    /// # Errors
    /// If there is none.
    pub(crate) fn find() -> Result<Self> {
        let named = std::env::var_os("BERTH_TRACES").map(PathBuf::from);
        let beside = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../shared/traces"));
        let folder = named.unwrap_or(beside);
        if !folder.is_dir() {
            bail!("no folder {}: set BERTH_TRACES to that of the public traces", folder.display());
        }
        Ok(Self(folder))
    }

    /// A file in it.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// The topology of the Lingjun cluster.
    pub(crate) fn lingjun(&self) -> PathBuf {
        self.0.join("../topologies/lingjun-topo.csv")
    }

    /// A replay's plain settings; the format follows from the name.
    pub(crate) fn options(&self, name: &str) -> ReplayOptions {
        let format = match name {
            n if n.starts_with("helios") => Format::Helios,
            n if n.starts_with("philly") => Format::Philly,
            n if Path::new(n).extension().is_some_and(|e| e == "rst") => Format::Cqsim,
            _ => Format::Swf,
        };
        ReplayOptions::of(self.file(name), format)
    }
}

/// Replays so far and what the checker found wrong in them.
static SEEN: Mutex<(usize, usize)> = Mutex::new((0, 0));

/// Adds what the checker said of all replays.
pub(crate) fn judge(figures: &mut Figures) {
    let (replays, violations) = SEEN.lock().map_or((0, usize::MAX), |seen| *seen);
    if replays > 0 {
        figures.lower(
            "violations that the checker found in all replays",
            count(violations),
            "",
            0.0,
            format!("{replays} replays"),
        );
    }
}

/// Replays and says so; violations are counted and the first ones told.
///
/// # Errors
/// If the replay cannot be made.
pub(crate) fn run(label: &str, options: &ReplayOptions) -> Result<Timed> {
    eprintln!("{label} …");
    let before = Instant::now();
    let replayed = replay(options, Brain::production(), &mut |_, _| ()).with_context(|| label.to_owned())?;
    let wall_s = before.elapsed().as_secs_f64();
    eprintln!("    {wall_s:.1} s, of which planning {:.1} s", replayed.report.planner_s);
    for fault in replayed.faults.iter().take(2) {
        eprintln!("    VIOLATION {fault}");
    }
    if let Ok(mut seen) = SEEN.lock() {
        *seen = (seen.0 + 1, seen.1 + replayed.report.violations);
    }
    Ok(Timed { report: replayed.report, wall_s })
}
