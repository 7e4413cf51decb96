//! `replay`: a recorded workload through the production planner.

use super::output;
use anyhow::{Result, bail};
use clap::ValueEnum;
use indicatif::{ProgressBar, ProgressStyle};
use planner::Span;
use simulator::brain::Brain;
use simulator::replay::options::{BackfillRule, Estimates, OrderRule, PlacementOption, QueueRule, ReplayOptions};
use simulator::replay::{Replayed, plot, replay};
use simulator::trace::Format;
use std::path::PathBuf;
use std::process::ExitCode;

/// Replay a recorded workload through the production planner and measure the outcome.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    kubectl-berth replay --trace sdsc.rst --format cqsim --capacity 128 --backfill conservative\n  \
    kubectl-berth replay --trace helios.csv --format helios --topology topo.csv --subtree P8 --speedup 2.0 --leaf-orders 5\n  \
    kubectl-berth replay --trace philly.csv --format philly --capacity 640 --queues by-vc --quota-floor largest-job")]
pub(crate) struct Args {
    /// The log; gzip is recognised.
    #[arg(long)]
    trace: PathBuf,
    /// Format of the log.
    #[arg(long, value_enum)]
    format: LogFormat,
    /// Cluster file (Lingjun topo.csv, or YAML with Nodes and a Topology); without one, see --capacity.
    #[arg(long)]
    topology: Option<PathBuf>,
    /// Only this domain of the cluster file.
    #[arg(long, requires = "topology")]
    subtree: Option<String>,
    /// Interchangeable units, without a cluster file.
    #[arg(long)]
    capacity: Option<u64>,
    /// GPUs of a node where the cluster file does not say, and of a gang's pod.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u64).range(1..))]
    gpus_per_node: u64,
    /// Order of waiting jobs.
    #[arg(long, value_enum, default_value = "fcfs")]
    order: Order,
    /// How waiting jobs may be overtaken.
    #[arg(long, value_enum, default_value = "easy")]
    backfill: Backfill,
    /// How many waiting jobs hold a reservation (easy: 1, conservative: all; 0: none, free room goes to the first that fit).
    #[arg(long, value_parser = clap::value_parser!(u32))]
    depth: Option<u32>,
    /// Share of its run that a gang waits for fewer domains, from its first possible start.
    #[arg(long, value_parser = percent)]
    patience: Option<f64>,
    /// The longest such wait.
    #[arg(long, default_value = "30m", value_parser = span, requires = "patience")]
    patience_cap: Span,
    /// Half-life of decayed use; 0 looks at present use only.
    #[arg(long, default_value = "24h", value_parser = span)]
    half_life: Span,
    /// Mean over this many shuffled orders of leaves.
    #[arg(long, default_value_t = 0, requires = "topology")]
    leaf_orders: u32,
    /// Where estimates of run times come from.
    #[arg(long, value_enum, default_value = "log")]
    estimates: EstimateSource,
    /// Cut a run at its estimate.
    #[arg(long)]
    clip: bool,
    /// Arrivals come this many times faster.
    #[arg(long, default_value_t = 1.0, value_parser = positive)]
    speedup: f64,
    /// Only COUNT jobs of the log from number FIRST (0 is the first) on, on an empty cluster.
    #[arg(long, value_name = "FIRST:COUNT", value_parser = slice)]
    slice: Option<(usize, usize)>,
    /// How nodes are chosen; `first` and `random` are there to be compared with.
    #[arg(long, value_enum, default_value = "topology")]
    placement: Placement,
    /// How jobs are given to queues; with several, each gets a quota by its share of the work.
    #[arg(long, value_enum, default_value = "single")]
    queues: Queues,
    /// A quota is at least its queue's largest job.
    #[arg(long, value_enum)]
    quota_floor: Option<Floor>,
    /// A stopped job keeps multiples of this much work (without it: nothing).
    #[arg(long, value_parser = span)]
    checkpoint: Option<Span>,
    /// Each queue alone in its quota.
    #[arg(long)]
    partitioned: bool,
    /// Seed of shuffles and of random placement.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// What to print.
    #[arg(long, value_enum, default_value = "text")]
    output: Output,
    /// Also draw use and queue over time.
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum LogFormat {
    Swf,
    Helios,
    Philly,
    Pai,
    Cqsim,
    LingjunJobs,
    Openb,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Order {
    /// Submission.
    Fcfs,
    /// Shortest estimate first.
    Sjf,
    /// log10(estimate) x units + 870 x log10(submission).
    F1,
    /// Users by decayed use.
    Fair,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Backfill {
    /// The job picked first blocks until it fits.
    None,
    /// The first waiting job holds a reservation.
    Easy,
    /// Every waiting job (or --depth of them) holds one.
    Conservative,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum EstimateSource {
    /// The real run.
    Exact,
    /// The user's, where the log has them.
    Log,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Placement {
    Topology,
    First,
    Random,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Queues {
    ByVc,
    ByUser,
    Single,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Floor {
    LargestJob,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Output {
    Json,
    Text,
}

fn span(text: &str) -> Result<Span, String> {
    let read: crds::Duration = text.parse().map_err(|e: crds::DurationError| e.to_string())?;
    Ok(Span(i64::try_from(read.as_micros()).unwrap_or(i64::MAX)))
}

fn percent(text: &str) -> Result<f64, String> {
    let wrong = || format!("{text:?} is no share; write 10% or 0.1");
    let share = match text.strip_suffix('%') {
        Some(number) => number.trim().parse::<f64>().map_err(|_| wrong())? / 100.0,
        None => text.parse::<f64>().map_err(|_| wrong())?,
    };
    if share.is_finite() && share >= 0.0 { Ok(share) } else { Err(wrong()) }
}

fn positive(text: &str) -> Result<f64, String> {
    let number = text.trim_start_matches(['x', '×']).parse::<f64>().ok().filter(|n| n.is_finite() && *n > 0.0);
    number.ok_or_else(|| format!("{text:?} is no number above 0"))
}

fn slice(text: &str) -> Result<(usize, usize), String> {
    let parts = text.split_once(':').and_then(|(f, c)| Some((f.parse().ok()?, c.parse().ok()?)));
    parts
        .filter(|(_, count)| *count > 0)
        .ok_or_else(|| format!("{text:?} is no slice; write FIRST:COUNT, such as 1981:1024"))
}

impl Args {
    fn options(&self) -> ReplayOptions {
        ReplayOptions {
            trace: self.trace.clone(),
            format: match self.format {
                LogFormat::Swf => Format::Swf,
                LogFormat::Helios => Format::Helios,
                LogFormat::Philly => Format::Philly,
                LogFormat::Pai => Format::Pai,
                LogFormat::Cqsim => Format::Cqsim,
                LogFormat::LingjunJobs => Format::LingjunJobs,
                LogFormat::Openb => Format::Openb,
            },
            topology: self.topology.clone(),
            subtree: self.subtree.clone(),
            capacity: self.capacity,
            gpus_per_node: self.gpus_per_node,
            order: match self.order {
                Order::Fcfs => OrderRule::Fcfs,
                Order::Sjf => OrderRule::Sjf,
                Order::F1 => OrderRule::F1,
                Order::Fair => OrderRule::Fair,
            },
            backfill: match self.backfill {
                Backfill::None => BackfillRule::None,
                Backfill::Easy => BackfillRule::Easy,
                Backfill::Conservative => BackfillRule::Conservative,
            },
            depth: self.depth,
            patience: self.patience,
            patience_cap: self.patience_cap,
            half_life: self.half_life,
            leaf_orders: self.leaf_orders,
            estimates: match self.estimates {
                EstimateSource::Exact => Estimates::Exact,
                EstimateSource::Log => Estimates::Log,
            },
            clip: self.clip,
            speedup: self.speedup,
            slice: self.slice,
            placement: match self.placement {
                Placement::Topology => PlacementOption::Topology,
                Placement::First => PlacementOption::First,
                Placement::Random => PlacementOption::Random,
            },
            queues: match self.queues {
                Queues::ByVc => QueueRule::ByVc,
                Queues::ByUser => QueueRule::ByUser,
                Queues::Single => QueueRule::Single,
            },
            quota_floor: matches!(self.quota_floor, Some(Floor::LargestJob)),
            checkpoint: self.checkpoint,
            partitioned: self.partitioned,
            seed: self.seed,
        }
    }
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    if args.capacity.is_some() && args.topology.is_some() {
        bail!("--capacity and --topology exclude each other: a cluster file says what it holds");
    }
    let bar = bar();
    let mut progress = |done: usize, all: usize| {
        if bar.length() != Some(all as u64) {
            bar.set_length(all as u64);
        }
        bar.set_position(done as u64);
    };
    let Replayed { report, moments, capacity, faults } = replay(&args.options(), Brain::production(), &mut progress)?;
    bar.finish_and_clear();
    for fault in &faults {
        eprintln!("violation: {fault}");
    }
    if let Some(path) = &args.plot {
        let title = format!("replay of {}", args.trace.display());
        output::save(path, &plot::draw(&moments, capacity, &title))?;
    }
    let text = match args.output {
        Output::Json => format!("{}\n", serde_json::to_string_pretty(&report)?),
        Output::Text => report.to_string(),
    };
    output::print(&text)?;
    Ok(ExitCode::from(if report.violations == 0 { output::GOOD } else { output::VIOLATED }))
}

/// Progress on standard error, only where that is a terminal.
fn bar() -> ProgressBar {
    let bar = ProgressBar::new(0);
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len} jobs  {elapsed}  about {eta} left");
    if let Ok(style) = style {
        bar.set_style(style);
    }
    bar
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_slices_and_factors_are_read() {
        assert_eq!(percent("10%"), Ok(0.1));
        assert_eq!(percent("0.25"), Ok(0.25));
        assert_eq!(slice("1981:1024"), Ok((1981, 1024)));
        assert_eq!(positive("x2.0"), Ok(2.0));
        for (bad, read) in
            [("1:0", slice("1:0").is_err()), ("-1", positive("-1").is_err()), ("a%", percent("a%").is_err())]
        {
            assert!(read, "{bad}");
        }
    }
}
