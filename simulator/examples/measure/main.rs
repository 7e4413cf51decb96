//! Measures what the schedule is worth (`measure quality`) and what it costs (`measure speed`), each figure beside its
//! mark. Figures go to `target/quality.json` and `target/bench.json`; `measure table` prints both as one table.
//! A second word runs only the parts whose name holds it, and writes nothing: `measure quality lingjun`.

#![allow(clippy::print_stdout)] // printing tables is its purpose

extern crate planner as berth_planner;

mod cycles;
mod figure;
mod lingjun;
mod logs;
mod lublin;
mod openb;
mod philly;
mod reasons;
mod replays;
mod traces;
#[path = "../../../planner/benches/worlds/mod.rs"]
mod worlds;

use anyhow::{Result, bail};
use figure::Figures;
use std::path::PathBuf;
use traces::Traces;

/// A part of a verb: its name and what it adds.
type Part = (&'static str, fn(&Traces, &mut Figures) -> Result<()>);

const QUALITY: [Part; 5] = [
    ("lublin", lublin::measure),
    ("logs", logs::measure),
    ("lingjun", lingjun::measure),
    ("philly", philly::measure),
    ("openb", openb::measure),
];

const SPEED: [Part; 10] = [
    ("helios-pooled", replays::helios),
    ("helios-on-lingjun", replays::helios_on_lingjun),
    ("ricc", replays::ricc),
    ("decisions", cycles::decisions),
    ("throughput", cycles::throughput),
    ("many-pods", cycles::many_pods),
    ("many-domains", cycles::many_domains),
    ("preemption", cycles::preemption),
    ("curve", cycles::curve),
    ("memory", cycles::memory),
];

/// The lists stand in `target` of the repository, wherever Cargo builds.
fn list(name: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../target")).join(name)
}

fn measure(parts: &[Part], only: Option<&str>, file: &str) -> Result<()> {
    let traces = Traces::find()?;
    let mut figures = Figures::default();
    for (name, part) in parts.iter().filter(|(name, _)| only.is_none_or(|o| name.contains(o))) {
        eprintln!("== {name}");
        part(&traces, &mut figures)?;
    }
    traces::judge(&mut figures);
    if only.is_none() {
        figures.save(&list(file))?;
    }
    print!("{}", figures.rows(reasons::why));
    Ok(())
}

fn main() -> Result<()> {
    let mut words = std::env::args().skip(1);
    let (verb, only) = (words.next().unwrap_or_default(), words.next());
    match verb.as_str() {
        "quality" => measure(&QUALITY, only.as_deref(), "quality.json"),
        "speed" => measure(&SPEED, only.as_deref(), "bench.json"),
        "table" => {
            println!("| figure | measured | mark | verdict | others |\n|---|---|---|---|---|");
            for file in ["bench.json", "quality.json"] {
                print!("{}", Figures::load(&list(file))?.rows(reasons::why));
            }
            Ok(())
        }
        "memory" => {
            println!("{}", cycles::hold().unwrap_or(0));
            Ok(())
        }
        other => bail!("\"{other}\" is not a verb; write quality, speed or table"),
    }
}
