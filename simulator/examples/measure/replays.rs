//! How long whole replays take.

use crate::figure::Figures;
use crate::traces::{Traces, run};
use anyhow::Result;

/// All of a half-year's GPU jobs on one pool.
pub(crate) fn helios(traces: &Traces, figures: &mut Figures) -> Result<()> {
    let mut pooled = traces.options("helios-venus.csv");
    pooled.capacity = Some(640);
    let timed = run("Helios, 194 days, pooled", &pooled)?;
    let peer = format!("plain C++ 0.1 s; planning {:.2} s of it", timed.report.planner_s);
    figures.lower("Helios, 194 days, pooled: whole replay", timed.wall_s, "s", 1.0, peer);
    figures.lower("Helios, pooled: p99 of one plan", timed.report.planner_p99_us, "µs", 1_000.0, "");
    Ok(())
}

/// The same jobs as gangs on a real, irregular topology.
pub(crate) fn helios_on_lingjun(traces: &Traces, figures: &mut Figures) -> Result<()> {
    let mapped = simulator_on_p8(traces);
    let timed = run("Helios on Lingjun P8 ×2.0", &mapped)?;
    let peer = format!("plain C++ 0.8 s; planning {:.2} s of it", timed.report.planner_s);
    figures.lower("Helios with topology (Lingjun P8 ×2.0): whole replay", timed.wall_s, "s", 5.0, peer);
    Ok(())
}

/// Half a million jobs, up to 17,000 of them waiting.
pub(crate) fn ricc(traces: &Traces, figures: &mut Figures) -> Result<()> {
    let mut ricc = traces.options("RICC-2010-2.swf.gz");
    ricc.capacity = Some(8_192);
    ricc.clip = true;
    let timed = run("RICC, 447,784 jobs", &ricc)?;
    let peer = format!("plain C++ 2.6 s; planning {:.2} s of it", timed.report.planner_s);
    figures.lower("RICC, 447,784 jobs: whole replay", timed.wall_s, "s", 10.0, peer);
    Ok(())
}

fn simulator_on_p8(traces: &Traces) -> berth_simulator::replay::ReplayOptions {
    berth_simulator::replay::ReplayOptions { leaf_orders: 0, ..crate::lingjun::options(traces, Some("P8"), 2.0) }
}
