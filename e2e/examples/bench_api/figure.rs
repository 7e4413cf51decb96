//! A figure beside its mark, with the runs it is the median of, and the list of them that `target/bench-api.json` keeps.

use anyhow::Result;
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
    /// The median of the runs.
    pub(crate) value: f64,
    /// Of value and mark.
    pub(crate) unit: String,
    /// What it is held to; none: it is only told.
    pub(crate) mark: Option<f64>,
    /// Which side of the mark is good.
    pub(crate) better: Better,
    /// Whether the value is on that side.
    pub(crate) ok: bool,
    /// What others reach, and how it was measured.
    pub(crate) peer: String,
    /// Every run, in order.
    pub(crate) runs: Vec<f64>,
}

/// The figures so far, by name: a part that is measured anew replaces its own.
#[derive(Debug, Default)]
pub(crate) struct Figures(pub Vec<Figure>);

impl Figures {
    /// A figure that should be at or below its mark.
    pub(crate) fn lower(&mut self, name: &str, runs: &[f64], unit: &str, mark: Option<f64>, peer: &str) {
        self.put(name, runs, unit, mark, Better::Lower, peer);
    }

    /// A figure that should be at or above its mark.
    pub(crate) fn higher(&mut self, name: &str, runs: &[f64], unit: &str, mark: Option<f64>, peer: &str) {
        self.put(name, runs, unit, mark, Better::Higher, peer);
    }

    fn put(&mut self, name: &str, runs: &[f64], unit: &str, mark: Option<f64>, better: Better, peer: &str) {
        let value = median(runs);
        let ok = mark.is_none_or(|mark| match better {
            Better::Lower => value <= mark,
            Better::Higher => value >= mark,
        });
        let figure = Figure {
            name: name.to_owned(),
            value,
            unit: unit.to_owned(),
            mark,
            better,
            ok,
            peer: peer.to_owned(),
            runs: runs.to_vec(),
        };
        eprintln!("    {}", figure.line());
        match self.0.iter_mut().find(|known| known.name == name) {
            Some(known) => *known = figure,
            None => self.0.push(figure),
        }
    }

    /// Reads a list; an empty one if there is no file.
    pub(crate) fn load(file: &Path) -> Result<Self> {
        if !file.exists() {
            return Ok(Self::default());
        }
        Ok(Self(serde_json::from_str(&std::fs::read_to_string(file)?)?))
    }

    /// Writes the list as JSON.
    pub(crate) fn save(&self, file: &Path) -> Result<()> {
        if let Some(folder) = file.parent() {
            std::fs::create_dir_all(folder)?;
        }
        Ok(std::fs::write(file, serde_json::to_string_pretty(&self.0)? + "\n")?)
    }

    /// The Markdown table.
    pub(crate) fn table(&self) -> String {
        let rows: String = self.0.iter().map(Figure::row).collect();
        format!("| figure | median | runs | mark | verdict | others, and how |\n|---|---|---|---|---|---|\n{rows}")
    }
}

impl Figure {
    fn line(&self) -> String {
        let runs: Vec<String> = self.runs.iter().map(|v| shown(*v)).collect();
        let verdict = if self.ok { "" } else { "  MISSED" };
        format!("{}: {} {} of {runs:?}{verdict}", self.name, shown(self.value), self.unit)
    }

    fn row(&self) -> String {
        let sign = if self.better == Better::Lower { "≤" } else { "≥" };
        let (mark, verdict) = match (self.mark, self.ok) {
            (None, _) => ("".to_owned(), ""),
            (Some(mark), true) => (format!("{sign} {}", shown(mark)), "ok"),
            (Some(mark), false) => (format!("{sign} {}", shown(mark)), "**missed**"),
        };
        let runs: Vec<String> = self.runs.iter().map(|v| shown(*v)).collect();
        let (name, value, unit, peer) = (&self.name, shown(self.value), &self.unit, &self.peer);
        format!("| `{name}` | {value} {unit} | {} | {mark} | {verdict} | {peer} |\n", runs.join(", "))
    }
}

/// The middle one; of two the mean. Nothing was run: not a number.
pub(crate) fn median(runs: &[f64]) -> f64 {
    let mut sorted = runs.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => sorted[n / 2],
        n => f64::midpoint(sorted[n / 2 - 1], sorted[n / 2]),
    }
}

fn shown(value: f64) -> String {
    let digits = match value.abs() {
        v if v.fract() == 0.0 => 0,
        v if v >= 100.0 => 0,
        v if v >= 10.0 => 1,
        _ => 2,
    };
    format!("{value:.digits$}")
}
