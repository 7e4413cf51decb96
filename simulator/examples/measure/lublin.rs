//! The ten published sequences of Lublin-1 and Lublin-2 without backfill: slowdown and utilisation to the printed digit.

use crate::figure::Figures;
use crate::traces::{Traces, run};
use anyhow::Result;
use berth_simulator::replay::options::{BackfillRule, OrderRule, ReplayOptions};

/// First jobs of the sequences; each runs on an empty machine.
const STARTS: [usize; 10] = [1981, 2756, 4299, 8850, 3316, 2714, 5228, 7762, 4022, 7085];

/// Log, order, published slowdown and utilisation.
const PUBLISHED: [(&str, OrderRule, &str, f64, f64); 6] = [
    ("lublin-1.swf", OrderRule::Fcfs, "FCFS", 7273.77, 0.657),
    ("lublin-1.swf", OrderRule::Sjf, "SJF", 277.35, 0.762),
    ("lublin-1.swf", OrderRule::F1, "F1", 258.37, 0.816),
    ("lublin-2.swf", OrderRule::Fcfs, "FCFS", 7842.47, 0.404),
    ("lublin-2.swf", OrderRule::Sjf, "SJF", 787.89, 0.562),
    ("lublin-2.swf", OrderRule::F1, "F1", 698.34, 0.478),
];

/// Adds the twelve figures, each as its distance from the published digits.
pub(crate) fn measure(traces: &Traces, figures: &mut Figures) -> Result<()> {
    for (file, order, name, slowdown, utilisation) in PUBLISHED {
        let (mut slow, mut used) = (0.0, 0.0);
        for start in STARTS {
            let options = ReplayOptions {
                capacity: Some(256),
                order,
                backfill: BackfillRule::None,
                slice: Some((start, 1024)),
                ..traces.options(file)
            };
            let report = run(&format!("{file} {name} from job {start}"), &options)?.report;
            slow += report.mean_bounded_slowdown / 10.0;
            used += report.utilisation_to_last_start / 10.0;
        }
        let mut add = |what: &str, got: f64, published: f64, places: i32| {
            let scale = 10f64.powi(places);
            let off = ((got * scale).round() - (published * scale).round()).abs() / scale;
            let peer = format!("{published} published (RLScheduler, SC'20); {:.1$} here", got, places as usize);
            figures.lower(format!("{file}, {name}, no backfill: {what}, off the published digits"), off, "", 0.0, peer);
        };
        add("bounded slowdown", slow, slowdown, 2);
        add("utilisation", used, utilisation, 3);
    }
    Ok(())
}
