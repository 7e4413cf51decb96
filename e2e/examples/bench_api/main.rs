//! What a gang costs against the real API server, beside bare loops in the same run. Figures go to `target/bench-api.json`;
//! `bench_api table` prints them. Words name the parts to run; without any, all that give figures.
#![allow(clippy::print_stdout)] // printing tables is its purpose

mod anatomy;
mod churn;
mod figure;
mod gangs;
mod loops;
mod restart;
mod usage;
mod yard;

use anyhow::{Result, bail};
use berth_e2e::World;
use figure::Figures;
use std::path::PathBuf;
use std::sync::Arc;

/// The last is for whoever asks why; it gives no figure.
const PARTS: [&str; 6] = ["thousand", "fours", "churn", "memory", "restart", "anatomy"];

/// The list stands in `target` of the repository, wherever Cargo builds.
fn list() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../target/bench-api.json"))
}

#[tokio::main]
async fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if words == ["table"] {
        print!("{}", Figures::load(&list())?.table());
        return Ok(());
    }
    let _ = rustls::crypto::ring::default_provider().install_default();
    let parts: Vec<&str> =
        if words.is_empty() { PARTS[..5].to_vec() } else { words.iter().map(String::as_str).collect() };
    if let Some(unknown) = parts.iter().find(|part| !PARTS.contains(part)) {
        bail!("\"{unknown}\" is not a part; write some of {PARTS:?}");
    }
    for part in parts {
        eprintln!("== {part}");
        // Each in a world of its own: what one leaves behind must not weigh on the next.
        let world = Arc::new(World::up("bench-api").await?);
        let mut figures = Figures::load(&list())?;
        match part {
            "thousand" => gangs::thousand(&world, &mut figures).await?,
            "fours" => gangs::fours(&world, &mut figures).await?,
            "churn" => churn::measure(&world, &mut figures).await?,
            "memory" => churn::memory(&world, &mut figures).await?,
            "restart" => restart::measure(&world, &mut figures).await?,
            _ => anatomy::measure(&world).await?,
        }
        figures.save(&list())?;
    }
    Ok(())
}
