//! What a replay is asked to do: the command line as types.

use crate::trace::Format;
use planner::Span;
use std::path::PathBuf;

/// Order of waiting jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OrderRule {
    /// Submission, then the log's tie rule.
    Fcfs,
    /// Shortest estimate first.
    Sjf,
    /// F1 of Carastan-Santos and de Camargo: log10(estimate) × units + 870 × log10(submit).
    F1,
    /// Users by decayed use, then submission.
    Fair,
}

/// How waiting jobs may be overtaken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackfillRule {
    /// The job picked first blocks until it fits; nobody is picked again meanwhile.
    None,
    /// The first waiting job holds a reservation.
    Easy,
    /// The first `--depth` waiting jobs hold one each (all, without `--depth`).
    Conservative,
}

/// Where run-time estimates come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Estimates {
    /// The real run.
    Exact,
    /// The user's, as in the log; the real run where there is none.
    Log,
}

/// How jobs are given to queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueRule {
    /// One queue for all.
    Single,
    /// One per virtual cluster or group of the log.
    ByVc,
    /// One per user of the log.
    ByUser,
}

/// How nodes are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlacementOption {
    /// As the product does.
    Topology,
    /// First nodes that fit, for comparison.
    First,
    /// Random nodes by `--seed`, for comparison.
    Random,
}

/// A replay's settings.
#[derive(Clone, Debug, PartialEq)]
pub struct ReplayOptions {
    /// The log.
    pub trace: PathBuf,
    /// Its format.
    pub format: Format,
    /// A cluster file; without one, a pool of `capacity` units.
    pub topology: Option<PathBuf>,
    /// Only this domain of the cluster file.
    pub subtree: Option<String>,
    /// Interchangeable units, without a cluster file.
    pub capacity: Option<u64>,
    /// GPUs of a node where the cluster file does not say, and what a pod of a gang takes.
    pub gpus_per_node: u64,
    /// Order of waiting jobs.
    pub order: OrderRule,
    /// Overtaking.
    pub backfill: BackfillRule,
    /// Waiting jobs that hold a reservation (one under `Easy`, all under `Conservative` if absent). None with 0: room that
    /// is free is lent to the first that fit, and only the quotas' private schedules, which are EASY then, hold for
    /// anybody.
    pub depth: Option<u32>,
    /// Share of its run for which a gang waits for fewer domains, from its first possible start.
    pub patience: Option<f64>,
    /// The longest it may be: estimates that are far too long would otherwise make gangs wait far too long.
    pub patience_cap: Span,
    /// Half-life of decayed use.
    pub half_life: Span,
    /// Runs over this many shuffled orders of leaves, of which means are taken; 0: the file's order, once.
    pub leaf_orders: u32,
    /// Where estimates come from.
    pub estimates: Estimates,
    /// Cut a run at its estimate.
    pub clip: bool,
    /// Arrivals come this many times faster.
    pub speedup: f64,
    /// Only jobs `first..first + count` of the log.
    pub slice: Option<(usize, usize)>,
    /// How nodes are chosen.
    pub placement: PlacementOption,
    /// How jobs are given to queues.
    pub queues: QueueRule,
    /// Whether a quota is at least its queue's largest job.
    pub quota_floor: bool,
    /// A stopped job keeps multiples of this much work; without it, nothing.
    pub checkpoint: Option<Span>,
    /// Each queue alone in its quota.
    pub partitioned: bool,
    /// Seed of shuffles and random placement.
    pub seed: u64,
}

impl ReplayOptions {
    /// Settings that differ from the command line's defaults in nothing but the log.
    #[must_use]
    pub fn of(trace: PathBuf, format: Format) -> Self {
        Self {
            trace,
            format,
            topology: None,
            subtree: None,
            capacity: None,
            gpus_per_node: 8,
            order: OrderRule::Fcfs,
            backfill: BackfillRule::Easy,
            depth: None,
            patience: None,
            patience_cap: Span::from_secs(30 * 60),
            half_life: Span::from_secs(24 * 3600),
            leaf_orders: 0,
            estimates: Estimates::Log,
            clip: false,
            speedup: 1.0,
            slice: None,
            placement: PlacementOption::Topology,
            queues: QueueRule::Single,
            quota_floor: false,
            checkpoint: None,
            partitioned: false,
            seed: 1,
        }
    }
}
