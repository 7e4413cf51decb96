//! Replays of public logs give the published figures, through the production planner, without a violation or a broken
//! promise. The logs are no part of the repository: `BERTH_TRACES` names their folder, else `../shared/traces` is tried.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)] // the lints are for code outside tests

use berth_simulator::brain::Brain;
use berth_simulator::replay::options::{BackfillRule, OrderRule, QueueRule, ReplayOptions};
use berth_simulator::replay::{ReplayReport, replay};
use berth_simulator::trace::Format;
use planner::Span;
use std::path::PathBuf;

/// A log's path; says so where it is missing.
fn log(name: &str) -> Option<PathBuf> {
    let folder = std::env::var_os("BERTH_TRACES")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../shared/traces"), PathBuf::from);
    let path = folder.join(name);
    if !path.exists() {
        eprintln!("SKIPPED: no {}; set BERTH_TRACES to the folder of the public logs", path.display());
        return None;
    }
    Some(path)
}

/// Replays, and holds the run to what every run is held to.
fn run(options: &ReplayOptions) -> ReplayReport {
    let replayed = replay(options, Brain::production(), &mut |_, _| {}).expect("a readable log");
    assert_eq!(replayed.faults, Vec::<String>::new());
    assert_eq!(replayed.report.broken_reservations, 0, "broken promises");
    replayed.report
}

/// First jobs of the ten published sequences of 1,024.
const SEQUENCES: [usize; 10] = [1981, 2756, 4299, 8850, 3316, 2714, 5228, 7762, 4022, 7085];

#[test]
fn lublin_without_backfill_is_as_published_to_the_digit() {
    for (name, figures) in [
        ("lublin-1.swf", [("7273.77", "0.657"), ("277.35", "0.762"), ("258.37", "0.816")]),
        ("lublin-2.swf", [("7842.47", "0.404"), ("787.89", "0.562"), ("698.34", "0.478")]),
    ] {
        let Some(trace) = log(name) else { return };
        for (order, (slowdown, utilisation)) in
            [OrderRule::Fcfs, OrderRule::Sjf, OrderRule::F1].into_iter().zip(figures)
        {
            let (mut slow, mut used) = (0.0, 0.0);
            for first in SEQUENCES {
                let report = run(&ReplayOptions {
                    capacity: Some(256),
                    order,
                    backfill: BackfillRule::None,
                    slice: Some((first, 1024)),
                    ..ReplayOptions::of(trace.clone(), Format::Swf)
                });
                slow += report.mean_bounded_slowdown / 10.0;
                used += report.utilisation_to_last_start / 10.0;
            }
            assert_eq!(
                (format!("{slow:.2}"), format!("{used:.3}")),
                (slowdown.into(), utilisation.into()),
                "{name} {order:?}"
            );
        }
    }
}

/// Whether a figure is within 0.1 % of the reference.
fn near(got: f64, want: f64) -> bool {
    (got - want).abs() <= want * 0.001
}

/// (mean wait, p99 wait, bounded slowdown, promised) of a whole log against the reference table.
fn table(name: &str, format: Format, capacity: u64, backfill: BackfillRule, want: [f64; 3]) {
    let Some(trace) = log(name) else { return };
    let report = run(&ReplayOptions { capacity: Some(capacity), backfill, ..ReplayOptions::of(trace, format) });
    let got = [report.mean_wait_s, report.p99_wait_s, report.mean_bounded_slowdown];
    assert!(got.iter().zip(&want).all(|(g, w)| near(*g, *w)), "{name} {backfill:?}: got {got:?}, want {want:?}");
}

#[test]
fn easy_on_lublin_2_and_kit_is_within_a_thousandth() {
    table("lublin-2.swf", Format::Swf, 256, BackfillRule::Easy, [9_703.6, 123_263.0, 256.63]);
    table("kit-fh2-2016-1.rst", Format::Cqsim, 24_048, BackfillRule::Easy, [2_592.0, 49_371.0, 5.24]);
}

#[test]
fn kept_conservative_on_lublin_2_is_within_a_thousandth() {
    table("lublin-2.swf", Format::Swf, 256, BackfillRule::Conservative, [9_659.3, 127_507.0, 239.57]);
}

#[test]
fn a_queue_alone_is_easy_however_the_shared_cluster_lends_and_nobody_is_later_than_alone() {
    let Some(trace) = log("philly.csv") else { return };
    let of = |depth| {
        let options = ReplayOptions {
            capacity: Some(640),
            queues: QueueRule::ByVc,
            quota_floor: true,
            half_life: Span::ZERO,
            depth,
            slice: Some((0, 4_000)),
            ..ReplayOptions::of(trace.clone(), Format::Philly)
        };
        run(&options)
    };
    let (promising, lending) = (of(None), of(Some(0)));
    let alone = |report: &ReplayReport| -> Vec<Option<f64>> {
        report.per_queue.values().map(|q| q.private_mean_delay_s).collect()
    };
    assert_eq!(alone(&promising), alone(&lending));
    assert!(alone(&lending).iter().flatten().any(|delay| *delay > 0.0), "somebody waits alone");
    assert_eq!((promising.jobs_later_than_private, lending.jobs_later_than_private), (Some(0), Some(0)));
    assert!(lending.mean_delay_s <= promising.mean_delay_s);
}
