//! Whole logs on one pool: every order and backfill rule against the reference tables, and promises that must hold.

use crate::figure::{Figures, deviation};
use crate::traces::{Timed, Traces, run};
use anyhow::Result;
use berth_simulator::replay::ReplayReport;
use berth_simulator::replay::options::{BackfillRule, Estimates, OrderRule, ReplayOptions};

/// Mean, 99th percentile and maximum of the wait, bounded slowdown, utilisation. NaN: the reference does not say.
type Row = [f64; 5];

/// What stands in a column of the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rule {
    Fcfs,
    Easy,
    Kept,
    SjfEasy,
}

impl Rule {
    fn name(self) -> &'static str {
        match self {
            Self::Fcfs => "FCFS",
            Self::Easy => "EASY",
            Self::Kept => "conservative, kept",
            Self::SjfEasy => "SJF + EASY",
        }
    }

    fn apply(self, options: &mut ReplayOptions) {
        options.order = if self == Self::SjfEasy { OrderRule::Sjf } else { OrderRule::Fcfs };
        options.backfill = match self {
            Self::Fcfs => BackfillRule::None,
            Self::Easy | Self::SjfEasy => BackfillRule::Easy,
            Self::Kept => BackfillRule::Conservative,
        };
    }
}

const NAN: f64 = f64::NAN;

/// Log, capacity, rule, reference (`replay-rules`, section 3).
const TABLE: [(&str, u64, Rule, Row); 27] = [
    ("lublin-1.swf", 256, Rule::Fcfs, [2_388_443.8, 4_711_693.0, 4_759_976.0, 66_502.48, 0.6549]),
    ("lublin-1.swf", 256, Rule::Easy, [97_156.0, 843_667.0, 1_029_731.0, 590.05, 0.9363]),
    ("lublin-1.swf", 256, Rule::Kept, [131_567.5, 810_887.0, 994_667.0, 489.20, 0.9365]),
    ("lublin-1.swf", 256, Rule::SjfEasy, [59_632.2, 1_827_088.0, 9_067_006.0, 40.56, 0.7897]),
    ("lublin-2.swf", 256, Rule::Fcfs, [1_172_120.1, 2_254_601.0, 2_304_812.0, 54_575.25, 0.4119]),
    ("lublin-2.swf", 256, Rule::Easy, [9_703.6, 123_263.0, 283_744.0, 256.63, 0.6026]),
    ("lublin-2.swf", 256, Rule::Kept, [9_659.3, 127_507.0, 282_677.0, 239.57, 0.6017]),
    ("lublin-2.swf", 256, Rule::SjfEasy, [4_889.8, 71_689.0, 563_520.0, 101.01, 0.5964]),
    ("sdsc-sp2-1998-4.rst", 128, Rule::Fcfs, [1_261_249.1, 5_291_077.0, 5_498_233.0, 11_440.26, 0.7601]),
    ("sdsc-sp2-1998-4.rst", 128, Rule::Easy, [17_852.3, 184_779.0, 459_740.0, 84.08, 0.8251]),
    ("sdsc-sp2-1998-4.rst", 128, Rule::Kept, [18_300.4, 193_694.0, 655_955.0, 80.22, 0.8249]),
    ("sdsc-sp2-1998-4.rst", 128, Rule::SjfEasy, [28_257.2, 655_606.0, 9_351_531.0, 62.02, 0.8146]),
    ("kit-fh2-2016-1.rst", 24_048, Rule::Fcfs, [8_456.1, 93_060.0, 294_082.0, 41.18, 0.5687]),
    ("kit-fh2-2016-1.rst", 24_048, Rule::Easy, [2_592.0, 49_371.0, 293_980.0, 5.24, 0.5687]),
    ("kit-fh2-2016-1.rst", 24_048, Rule::Kept, [2_622.2, 44_920.0, 293_980.0, 5.49, 0.5687]),
    ("kit-fh2-2016-1.rst", 24_048, Rule::SjfEasy, [1_885.5, 43_816.0, 250_846.0, 3.60, 0.5687]),
    ("RICC-2010-2.swf.gz", 8_192, Rule::Fcfs, [174_626.5, 419_499.0, 443_473.0, 2_680.39, 0.8260]),
    ("RICC-2010-2.swf.gz", 8_192, Rule::Easy, [22_182.8, 227_061.0, 445_901.0, 207.34, 0.8327]),
    ("RICC-2010-2.swf.gz", 8_192, Rule::SjfEasy, [19_179.2, 370_611.0, 3_854_579.0, 193.33, 0.8306]),
    ("helios-venus.csv", 640, Rule::Fcfs, [34_223.1, 228_314.0, 250_235.0, 515.27, 0.7962]),
    ("helios-venus.csv", 640, Rule::Easy, [9_640.0, 101_836.0, 174_727.0, 92.67, 0.8002]),
    ("helios-venus.csv", 640, Rule::SjfEasy, [1_097.7, 22_538.0, 978_502.0, 10.06, 0.8000]),
    ("helios-venus.csv", 768, Rule::Fcfs, [1_450.4, 23_864.0, 46_583.0, 22.56, 0.6715]),
    ("helios-venus.csv", 768, Rule::Easy, [618.2, 15_531.0, 46_934.0, 7.98, 0.6715]),
    ("helios-venus.csv", 768, Rule::Kept, [629.1, 14_462.0, 45_187.0, 7.40, 0.6715]),
    ("helios-venus.csv", 768, Rule::SjfEasy, [113.3, 3_175.0, 74_797.0, 2.29, 0.6715]),
    ("philly.csv", 512, Rule::SjfEasy, [10_238.1, 113_192.0, 4_508_660.0, 5.06, NAN]),
];

/// Philly's pool with the file row as tie: one program printed these, so they are held to the same tenth of a per cent.
const PHILLY: [(Rule, Row); 2] = [
    (Rule::Fcfs, [475_770.5, 869_387.0, 901_927.0, 2_713.85, 0.7309]),
    (Rule::Easy, [422_828.2, 835_259.0, 882_779.0, 1_665.21, 0.7309]),
];

/// What a rule that plans anew each pass breaks.
const REBUILT: &str = "1,958 on SDSC, 71 on KIT when rebuilt each pass";

/// Adds one figure a row: the largest deviation of its five columns. Answers with the replay of RICC under EASY.
pub(crate) fn measure(traces: &Traces, figures: &mut Figures) -> Result<()> {
    let philly = PHILLY.map(|(rule, row)| ("philly.csv", 512, rule, row));
    for (file, capacity, rule, reference) in TABLE.into_iter().chain(philly) {
        let mut options = traces.options(file);
        options.capacity = Some(capacity);
        // RICC's runs are cut at the user's estimate (7,094 jobs).
        options.clip = file.starts_with("RICC");
        rule.apply(&mut options);
        let label = format!("{file} on {capacity}, {}", rule.name());
        let Timed { report, .. } = run(&label, &options)?;
        let got = columns(&report);
        let pairs = got.iter().zip(&reference).filter(|(_, r)| !r.is_nan());
        let worst = pairs.map(|(g, r)| printed(*g, *r)).fold(0.0, f64::max);
        let peer = format!("mean wait {:.1} s here, {:.1} s in the reference", got[0], reference[0]);
        figures.lower(format!("{label}: largest deviation of five columns"), worst, "%", 0.1, peer);
        if rule != Rule::Fcfs {
            figures.lower(format!("{label}: broken promises"), count(report.broken_reservations), "", 0.0, REBUILT);
        }
    }
    exact_estimates(traces, figures)
}

/// With exact estimates, nothing may break either (the logs above run with their users' estimates).
fn exact_estimates(traces: &Traces, figures: &mut Figures) -> Result<()> {
    let logs = [("sdsc-sp2-1998-4.rst", 128), ("kit-fh2-2016-1.rst", 24_048), ("RICC-2010-2.swf.gz", 8_192)];
    for (file, capacity) in logs {
        for rule in [Rule::Easy, Rule::Kept] {
            if rule == Rule::Kept && file.starts_with("RICC") {
                continue;
            }
            let mut options = traces.options(file);
            options.capacity = Some(capacity);
            options.clip = file.starts_with("RICC");
            options.estimates = Estimates::Exact;
            rule.apply(&mut options);
            let label = format!("{file} on {capacity}, {}, exact estimates", rule.name());
            let report = run(&label, &options)?.report;
            let peer = format!("{} promised", report.promised);
            figures.lower(format!("{label}: broken promises"), count(report.broken_reservations), "", 0.0, peer);
        }
    }
    Ok(())
}

fn columns(report: &ReplayReport) -> Row {
    [report.mean_wait_s, report.p99_wait_s, report.max_wait_s, report.mean_bounded_slowdown, report.utilisation]
}

/// Deviation in per cent; a value that rounds to the printed digits has none.
fn printed(got: f64, reference: f64) -> f64 {
    let places = [0, 1, 2, 3, 4].into_iter().find(|p| {
        let scale = 10f64.powi(*p);
        (reference * scale - (reference * scale).round()).abs() < 1e-6
    });
    let scale = 10f64.powi(places.unwrap_or(4));
    if ((got - reference) * scale).abs() <= 0.5 + 1e-9 { 0.0 } else { deviation(got, reference) }
}

#[allow(clippy::cast_precision_loss)] // counts of jobs are small
pub(crate) fn count(n: usize) -> f64 {
    n as f64
}
