//! Helios gangs on the Lingjun switches: leaves against waits, mean over five shuffled orders of leaves.

use crate::figure::Figures;
use crate::logs::count;
use crate::traces::{Traces, run};
use anyhow::{Context, Result};
use berth_simulator::replay::{ReplayOptions, ReplayReport};

/// Orders of leaves that means are taken over.
const ORDERS: u32 = 5;

/// One setting with its marks.
struct Setting {
    name: &'static str,
    subtree: Option<&'static str>,
    speedup: f64,
    /// Five standing reservations and a patience of 10 %.
    patient: bool,
    /// Of at most 30 minutes.
    capped: bool,
    leaves: f64,
    wait_s: f64,
    excess: Option<f64>,
    /// Mean wait of gangs, and of the rest, under the best simple packer.
    packer: [f64; 2],
    peer: &'static str,
}

const P8: Option<&str> = Some("P8");

const SETTINGS: [Setting; 7] = [
    Setting {
        name: "P8 ×1.6, EASY",
        subtree: P8,
        speedup: 1.6,
        patient: false,
        capped: false,
        leaves: 1.264,
        wait_s: 18.0,
        excess: None,
        packer: [28.0, 20.2],
        peer: "simple packer 1.329 leaves, 20 s; first fit 4.18, 23 s",
    },
    Setting {
        name: "P8 ×2.0, EASY",
        subtree: P8,
        speedup: 2.0,
        patient: false,
        capped: false,
        leaves: 1.655,
        wait_s: 500.0,
        excess: None,
        packer: [1_342.0, 552.0],
        peer: "simple packer 1.924 leaves, 612 s; first fit 4.26, 615 s",
    },
    Setting {
        name: "P8 ×2.0, depth 5, patience 10 %",
        subtree: P8,
        speedup: 2.0,
        patient: true,
        capped: false,
        leaves: 1.578,
        wait_s: 383.0,
        excess: Some(0.23),
        packer: [1_342.0, 552.0],
        peer: "simple packer with the same patience 1.837 leaves, 449 s, excess .355",
    },
    Setting {
        name: "P8 ×2.0, depth 5, patience 10 % of at most 30 min",
        subtree: P8,
        speedup: 2.0,
        patient: true,
        capped: true,
        leaves: 1.65,
        wait_s: 420.0,
        excess: Some(0.3),
        packer: [1_342.0, 552.0],
        peer: "the gates of our own design; the study had no cap",
    },
    Setting {
        name: "P8 ×2.3, depth 5, patience 10 %",
        subtree: P8,
        speedup: 2.3,
        patient: true,
        capped: false,
        leaves: 2.06,
        wait_s: 4_761.0,
        excess: Some(0.521),
        packer: [15_729.0, 5_545.0],
        peer: "simple packer 2.6 leaves, 6,563 s",
    },
    Setting {
        name: "all 847 hosts ×9, EASY",
        subtree: None,
        speedup: 9.0,
        patient: false,
        capped: false,
        leaves: 1.257,
        wait_s: 18.0,
        excess: Some(0.046),
        packer: [56.0, 21.6],
        peer: "simple packer 1.360 leaves, 25 s, excess .092",
    },
    Setting {
        name: "all 847 hosts ×9, depth 5, patience 10 %",
        subtree: None,
        speedup: 9.0,
        patient: true,
        capped: false,
        leaves: 1.250,
        wait_s: 10.0,
        excess: Some(0.006),
        packer: [56.0, 21.6],
        peer: "simple packer 1.360 leaves, 25 s",
    },
];

/// Adds leaves, waits and excess of each setting.
pub(crate) fn measure(traces: &Traces, figures: &mut Figures) -> Result<()> {
    for setting in &SETTINGS {
        let mut options = options(traces, setting.subtree, setting.speedup);
        if setting.patient {
            options.depth = Some(5);
            options.patience = Some(0.1);
            // As in the study that the marks come from; decision 46's cap has a row of its own.
            options.patience_cap = if setting.capped { options.patience_cap } else { planner::Span::FOREVER };
        }
        let label = format!("Helios on Lingjun, {}", setting.name);
        let report = run(&label, &options)?.report;
        let leaves = report.mean_leaves.context("a replay with a topology measures leaves")?;
        let excess = report.excess_leaves_node_hours.context("a replay with a topology measures excess")?;
        figures.lower(format!("{label}: mean leaves of gangs"), leaves, "leaves", setting.leaves, setting.peer);
        figures.lower(format!("{label}: mean wait"), report.mean_wait_s, "s", setting.wait_s, setting.peer);
        if let Some(mark) = setting.excess {
            figures.lower(format!("{label}: excess leaves by node-hours"), excess, "", mark, setting.peer);
        }
        let [gangs, small] = by_class(&report)?;
        figures.lower(
            format!("{label}: mean wait of gangs"),
            gangs,
            "s",
            setting.packer[0],
            "the packer's is the mark",
        );
        figures.lower(
            format!("{label}: mean wait of the rest"),
            small,
            "s",
            setting.packer[1],
            "the packer's is the mark",
        );
        let broken = count(report.broken_reservations);
        figures.lower(format!("{label}: broken promises"), broken, "", 0.0, "15 of 9,138 when rebuilt each pass");
    }
    Ok(())
}

/// The plain replay of this trace on these switches.
pub(crate) fn options(traces: &Traces, subtree: Option<&str>, speedup: f64) -> ReplayOptions {
    ReplayOptions {
        topology: Some(traces.lingjun()),
        subtree: subtree.map(str::to_owned),
        speedup,
        leaf_orders: ORDERS,
        ..traces.options("helios-venus.csv")
    }
}

/// Gangs of the trace: jobs of more than one node.
const GANGS: f64 = 12_559.0;

/// Mean wait of gangs and of the rest.
fn by_class(report: &ReplayReport) -> Result<[f64; 2]> {
    let gangs = report.mean_gang_wait_s.context("a replay with a topology measures gangs")?;
    let all = count(report.jobs);
    Ok([gangs, (report.mean_wait_s * all - gangs * GANGS) / (all - GANGS)])
}
