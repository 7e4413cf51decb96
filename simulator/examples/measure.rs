//! Replays the public traces and prints every figure beside its mark: `measure quality` (what the schedule is worth) and
//! `measure speed` (what the replay costs). Writes `target/quality.json` or `target/bench.json`.

#![allow(clippy::print_stdout)] // printing the table is its purpose

use anyhow::{Context, Result, bail};
use berth_simulator::brain::Brain;
use berth_simulator::replay::options::{BackfillRule, OrderRule, ReplayOptions};
use berth_simulator::replay::{ReplayReport, replay};
use berth_simulator::trace::Format;
use serde::Serialize;
use std::path::{Path, PathBuf};

/// One figure beside its mark.
#[derive(Serialize)]
struct Figure {
    name: String,
    value: f64,
    unit: &'static str,
    mark: f64,
    /// `lower` or `higher`; `equal` within a tenth of a per cent for reference tables.
    better: &'static str,
    ok: bool,
    peer: String,
}

impl Figure {
    fn of(name: String, value: f64, unit: &'static str, mark: f64, better: &'static str, peer: &str) -> Self {
        let ok = match better {
            "lower" => value <= mark,
            "higher" => value >= mark,
            _ => (value - mark).abs() <= mark.abs() * 0.001,
        };
        Self { name, value, unit, mark, better, ok, peer: peer.to_owned() }
    }
}

fn traces() -> Option<PathBuf> {
    let named = std::env::var_os("BERTH_TRACES").map(PathBuf::from);
    let beside = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../shared/traces"));
    named.or(Some(beside)).filter(|p| p.is_dir())
}

fn run(options: &ReplayOptions) -> Result<ReplayReport> {
    eprintln!("replaying {} …", options.trace.display());
    Ok(replay(options, Brain::production(), &mut |_, _| ())?.report)
}

/// The ten sequences of the Lublin reference, each on an empty machine; slowdown and utilisation are means over them.
fn lublin(folder: &Path, figures: &mut Vec<Figure>) -> Result<()> {
    const STARTS: [usize; 10] = [1981, 2756, 4299, 8850, 3316, 2714, 5228, 7762, 4022, 7085];
    let marks = [
        ("lublin-1.swf", OrderRule::Fcfs, "FCFS", 7273.77, 0.657),
        ("lublin-1.swf", OrderRule::Sjf, "SJF", 277.35, 0.762),
        ("lublin-1.swf", OrderRule::F1, "F1", 258.37, 0.816),
        ("lublin-2.swf", OrderRule::Fcfs, "FCFS", 7842.47, 0.404),
        ("lublin-2.swf", OrderRule::Sjf, "SJF", 787.89, 0.562),
        ("lublin-2.swf", OrderRule::F1, "F1", 698.34, 0.478),
    ];
    for (file, order, name, slowdown, utilisation) in marks {
        let mut sums = (0.0, 0.0);
        for start in STARTS {
            let mut options = ReplayOptions::of(folder.join(file), Format::Swf);
            options.capacity = Some(256);
            options.order = order;
            options.backfill = BackfillRule::None;
            options.slice = Some((start, 1024));
            let report = run(&options)?;
            sums = (sums.0 + report.mean_bounded_slowdown, sums.1 + report.utilisation_to_last_start);
        }
        let (got, used) = (sums.0 / 10.0, sums.1 / 10.0);
        let digits = |x: f64, places: i32| (x * 10f64.powi(places)).round() / 10f64.powi(places);
        let label = format!("{file} {name}, no backfill");
        figures.push(exact(format!("{label}: bounded slowdown"), digits(got, 2), "", slowdown));
        figures.push(exact(format!("{label}: utilisation"), digits(used, 3), "", utilisation));
    }
    Ok(())
}

fn exact(name: String, value: f64, unit: &'static str, mark: f64) -> Figure {
    let ok = (value - mark).abs() < 1e-9;
    Figure { name, value, unit, mark, better: "equal", ok, peer: "published (RLScheduler, SC'20)".to_owned() }
}

/// Whole logs: mean wait within a tenth of a per cent of the tables, and no broken promise.
fn whole_logs(folder: &Path, figures: &mut Vec<Figure>) -> Result<()> {
    let rows: [(&str, Format, u64, BackfillRule, bool, f64); 9] = [
        ("lublin-1.swf", Format::Swf, 256, BackfillRule::Easy, false, 97_156.0),
        ("lublin-1.swf", Format::Swf, 256, BackfillRule::Conservative, false, 131_567.5),
        ("lublin-2.swf", Format::Swf, 256, BackfillRule::Easy, false, 9_703.6),
        ("lublin-2.swf", Format::Swf, 256, BackfillRule::Conservative, false, 9_659.3),
        ("sdsc-sp2-1998-4.rst", Format::Cqsim, 128, BackfillRule::Easy, false, 17_852.3),
        ("kit-fh2-2016-1.rst", Format::Cqsim, 24_048, BackfillRule::Easy, false, 2_592.0),
        ("kit-fh2-2016-1.rst", Format::Cqsim, 24_048, BackfillRule::Conservative, false, 2_622.2),
        ("helios-venus.csv", Format::Helios, 640, BackfillRule::Easy, false, 9_640.0),
        ("helios-venus.csv", Format::Helios, 768, BackfillRule::Easy, false, 618.2),
    ];
    for (file, format, capacity, backfill, clip, mark) in rows {
        let mut options = ReplayOptions::of(folder.join(file), format);
        options.capacity = Some(capacity);
        options.backfill = backfill;
        options.clip = clip;
        let report = run(&options)?;
        let rule = if backfill == BackfillRule::Easy { "EASY" } else { "conservative, kept" };
        let label = format!("{file} on {capacity}, {rule}");
        let peer = "reference table";
        figures.push(Figure::of(format!("{label}: mean wait"), report.mean_wait_s, "s", mark, "equal", peer));
        #[allow(clippy::cast_precision_loss)]
        let broken = report.broken_reservations as f64;
        figures.push(Figure::of(
            format!("{label}: broken promises"),
            broken,
            "",
            0.0,
            "lower",
            "1,958 (rebuilt each pass)",
        ));
    }
    Ok(())
}

/// Helios gangs on the Lingjun pod P8, mean over five shuffled leaf orders.
fn lingjun(folder: &Path, figures: &mut Vec<Figure>) -> Result<()> {
    let map = folder.join("../topologies/lingjun-topo.csv");
    let rows = [(1.6, 1.264, 18.0), (2.0, 1.655, 500.0), (2.3, 2.06, 4_761.0)];
    for (speedup, leaves, wait) in rows {
        let mut options = ReplayOptions::of(folder.join("helios-venus.csv"), Format::Helios);
        options.topology = Some(map.clone());
        options.subtree = Some("P8".to_owned());
        options.speedup = speedup;
        options.leaf_orders = 5;
        let report = run(&options)?;
        let label = format!("Helios on Lingjun P8, ×{speedup}, EASY");
        let got = report.mean_leaves.context("a topology replay measures leaves")?;
        figures.push(Figure::of(
            format!("{label}: mean leaves"),
            got,
            "leaves",
            leaves,
            "lower",
            "best simple packer 1.329 / 1.924 / 2.6",
        ));
        figures.push(Figure::of(
            format!("{label}: mean wait"),
            report.mean_wait_s,
            "s",
            wait,
            "lower",
            "20 / 612 / 6,563",
        ));
    }
    Ok(())
}

/// Whole replays and what a plan costs.
fn speed(folder: &Path, figures: &mut Vec<Figure>) -> Result<()> {
    let mut pooled = ReplayOptions::of(folder.join("helios-venus.csv"), Format::Helios);
    pooled.capacity = Some(640);
    let report = run(&pooled)?;
    figures.push(Figure::of(
        "Helios, 194 days, pooled: planner time".into(),
        report.planner_s,
        "s",
        1.0,
        "lower",
        "0.1 s (plain C++)",
    ));
    figures.push(Figure::of(
        "Helios, pooled: p99 of one plan".into(),
        report.planner_p99_us,
        "µs",
        1_000.0,
        "lower",
        "",
    ));
    let mut mapped = ReplayOptions::of(folder.join("helios-venus.csv"), Format::Helios);
    mapped.topology = Some(folder.join("../topologies/lingjun-topo.csv"));
    mapped.subtree = Some("P8".to_owned());
    mapped.speedup = 2.0;
    let report = run(&mapped)?;
    figures.push(Figure::of(
        "Helios on Lingjun P8 ×2.0: planner time".into(),
        report.planner_s,
        "s",
        5.0,
        "lower",
        "0.8 s (plain C++)",
    ));
    let mut ricc = ReplayOptions::of(folder.join("RICC-2010-2.swf.gz"), Format::Swf);
    ricc.capacity = Some(8_192);
    ricc.clip = true;
    let report = run(&ricc)?;
    figures.push(Figure::of(
        "RICC, 447,784 jobs: planner time".into(),
        report.planner_s,
        "s",
        10.0,
        "lower",
        "2.6 s (plain C++)",
    ));
    figures.push(Figure::of("RICC: mean wait".into(), report.mean_wait_s, "s", 22_182.8, "equal", "reference table"));
    Ok(())
}

fn main() -> Result<()> {
    let verb = std::env::args().nth(1).unwrap_or_default();
    let Some(folder) = traces() else {
        eprintln!("no traces: set BERTH_TRACES to their folder");
        return Ok(());
    };
    let mut figures = Vec::new();
    let file = match verb.as_str() {
        "quality" => {
            lublin(&folder, &mut figures)?;
            whole_logs(&folder, &mut figures)?;
            lingjun(&folder, &mut figures)?;
            "quality.json"
        }
        "speed" => {
            speed(&folder, &mut figures)?;
            "bench.json"
        }
        other => bail!("\"{other}\" is not a verb; write quality or speed"),
    };
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| PathBuf::from("target"), PathBuf::from);
    std::fs::create_dir_all(&target)?;
    std::fs::write(target.join(file), serde_json::to_string_pretty(&figures)?)?;
    println!("| figure | measured | mark | | peer |\n|---|---|---|---|---|");
    for f in &figures {
        let verdict = if f.ok { "ok" } else { "**missed**" };
        println!("| {} | {:.3} {} | {} {} | {verdict} | {} |", f.name, f.value, f.unit, f.mark, f.better, f.peer);
    }
    Ok(())
}
