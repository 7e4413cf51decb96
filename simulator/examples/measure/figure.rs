//! A figure beside its mark, and the lists of them that `target/*.json` keep.

use serde::{Deserialize, Serialize};
use std::path::Path;

/// Which side of the mark is the good one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Better {
    /// At or below it.
    Lower,
    /// At or above it.
    Higher,
}

/// One figure beside its mark.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Figure {
    /// What was measured.
    pub(crate) name: String,
    /// What was seen.
    pub(crate) value: f64,
    /// Of value and mark; empty for counts.
    pub(crate) unit: String,
    /// What it is held to.
    pub(crate) mark: f64,
    /// Which side of the mark is good.
    pub(crate) better: Better,
    /// Whether the value is on that side.
    pub(crate) ok: bool,
    /// What others reach, or the reference and the raw figure.
    pub(crate) peer: String,
}

/// The figures of one verb, in the order in which they were taken.
#[derive(Debug, Default)]
pub(crate) struct Figures(pub Vec<Figure>);

impl Figures {
    /// A figure that should be at or below its mark.
    pub(crate) fn lower(
        &mut self,
        name: impl Into<String>,
        value: f64,
        unit: &str,
        mark: f64,
        peer: impl Into<String>,
    ) {
        self.push(name.into(), value, unit, mark, Better::Lower, peer.into());
    }

    /// A figure that should be at or above its mark.
    pub(crate) fn higher(
        &mut self,
        name: impl Into<String>,
        value: f64,
        unit: &str,
        mark: f64,
        peer: impl Into<String>,
    ) {
        self.push(name.into(), value, unit, mark, Better::Higher, peer.into());
    }

    fn push(&mut self, name: String, value: f64, unit: &str, mark: f64, better: Better, peer: String) {
        let ok = match better {
            Better::Lower => value <= mark,
            Better::Higher => value >= mark,
        };
        let verdict = if ok { "" } else { "  MISSED" };
        eprintln!("    {name}: {} {unit} (mark {mark}){verdict}", shown(value));
        self.0.push(Figure { name, value, unit: unit.into(), mark, better, ok, peer });
    }

    /// Writes the list as JSON.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub(crate) fn save(&self, file: &Path) -> anyhow::Result<()> {
        if let Some(folder) = file.parent() {
            std::fs::create_dir_all(folder)?;
        }
        Ok(std::fs::write(file, serde_json::to_string_pretty(&self.0)? + "\n")?)
    }

    /// Reads a list; an empty one if there is no file.
    ///
    /// # Errors
    /// If there is one that is no list of figures.
    pub(crate) fn load(file: &Path) -> anyhow::Result<Self> {
        if !file.exists() {
            return Ok(Self::default());
        }
        Ok(Self(serde_json::from_str(&std::fs::read_to_string(file)?)?))
    }

    /// The rows of a Markdown table; `why` says what is to be said of a missed one.
    pub(crate) fn rows(&self, why: impl Fn(&str) -> Option<&'static str>) -> String {
        let row = |f: &Figure| {
            let sign = if f.better == Better::Lower { "≤" } else { "≥" };
            let verdict = match (f.ok, why(&f.name)) {
                (true, _) => "ok".to_owned(),
                (false, Some(why)) => format!("**missed**: {why}"),
                (false, None) => "**missed**".to_owned(),
            };
            let unit = if f.unit.is_empty() { String::new() } else { format!(" {}", f.unit) };
            format!("| {} | {}{unit} | {sign} {} | {verdict} | {} |\n", f.name, shown(f.value), shown(f.mark), f.peer)
        };
        self.0.iter().map(row).collect()
    }
}

/// A number as tables show it: whole ones plain, small ones with three digits after the point.
pub(crate) fn shown(value: f64) -> String {
    let digits = match value.abs() {
        v if v.fract() == 0.0 => 0,
        v if v >= 1000.0 => 0,
        v if v >= 100.0 => 1,
        v if v >= 10.0 => 2,
        v if v >= 0.01 => 3,
        _ => 5,
    };
    format!("{value:.digits$}")
}

/// By how much a value is off its reference, in per cent.
pub(crate) fn deviation(value: f64, reference: f64) -> f64 {
    if reference == 0.0 { value.abs() * 100.0 } else { ((value - reference) / reference).abs() * 100.0 }
}
