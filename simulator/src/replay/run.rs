//! One replay from files to figures.

use super::cluster;
use super::engine::{Engine, Moment, Outcomes};
use super::options::{QueueRule, ReplayOptions};
use super::report::ReplayReport;
use super::workload::{self, Workload};
use crate::brain::Brain;
use crate::topology::{self, ClusterMap};
use crate::trace::{self, TraceError};
use planner::ResourceIdx;
use planner::state::ClusterState;
use thiserror::Error;

/// Why a replay cannot be made.
#[derive(Debug, Error)]
pub enum ReplayError {
    /// A file is unusable.
    #[error(transparent)]
    File(#[from] TraceError),
    /// Neither a capacity nor a cluster file.
    #[error("no cluster: give --capacity N (interchangeable units) or --topology FILE")]
    NoCluster,
    /// The subtree is not in the file.
    #[error("--subtree {0}: the topology file has no domain of that name")]
    NoSubtree(String),
    /// Jobs that can never run.
    #[error("job {key} wants {units} units and the cluster has {capacity}: give more, or a --slice without it")]
    TooLarge {
        /// Its key (row in the replay).
        key: String,
        /// What it wants.
        units: u64,
        /// What there is.
        capacity: u64,
    },
    /// A slice beyond the log's end.
    #[error("--slice leaves no job: the log has {0}")]
    EmptySlice(usize),
}

/// A replay's result.
#[derive(Debug)]
pub struct Replayed {
    /// Its figures.
    pub report: ReplayReport,
    /// Use and queue over time.
    pub moments: Vec<Moment>,
    /// Units of the cluster.
    pub capacity: u64,
    /// The first violations in words.
    pub faults: Vec<String>,
}

/// Replays a log and measures it. `progress` hears (jobs done, jobs in all).
///
/// # Errors
/// If a file is unusable or the settings contradict each other or the log.
pub fn replay(
    options: &ReplayOptions,
    brain: Brain,
    progress: &mut dyn FnMut(usize, usize),
) -> Result<Replayed, ReplayError> {
    let map = options.topology.as_ref().map(|_| read_map(options)).transpose()?;
    let capacity = capacity(options, map.as_ref())?;
    let log = trace::read(&options.trace, options.format)?;
    let read = log.len();
    let load = workload::build(log, options, capacity);
    if load.jobs.is_empty() {
        return Err(ReplayError::EmptySlice(read));
    }
    if let Some(job) = load.jobs.iter().find(|j| j.units > capacity) {
        return Err(ReplayError::TooLarge { key: job.key.to_string(), units: job.units, capacity });
    }
    let compare = options.queues != QueueRule::Single && !options.partitioned && map.is_none();
    let orders = options.leaf_orders.max(1);
    let parts = usize::from(compare || options.partitioned) + usize::from(!options.partitioned) * orders as usize;
    let all = load.jobs.len() * parts;
    let mut before = 0;
    // A queue alone is EASY at least, also where the shared cluster lends its room without promises.
    let for_one = ReplayOptions { depth: options.depth.map(|depth| depth.max(1)), ..options.clone() };
    let mut step = |load: &Workload, state: ClusterState, unit: ResourceIdx, alone: bool| {
        let options = if alone { &for_one } else { options };
        let outcomes = Engine::new(load, options, brain, state, unit).run(&mut |done| progress(before + done, all));
        before += load.jobs.len();
        outcomes
    };
    if options.partitioned {
        let alone = private(&load, &mut |load, state, unit| step(load, state, unit, true));
        let joined = join(&load, alone);
        let report = ReplayReport::of(&load, &joined, capacity);
        return Ok(Replayed { report, moments: joined.moments, capacity, faults: joined.faults });
    }
    let mut reports = Vec::new();
    let (mut moments, mut faults) = (Vec::new(), Vec::new());
    for order in 0..orders {
        let mut state = ClusterState::new();
        let shuffle =
            (options.leaf_orders > 0).then(|| options.seed.wrapping_mul(1_000_003).wrapping_add(u64::from(order)));
        let unit = match &map {
            Some(map) => cluster::mapped(&mut state, map, options, shuffle),
            None => cluster::pool(&mut state, capacity),
        };
        let outcomes = step(&load, state, unit, false);
        let mut report = ReplayReport::of(&load, &outcomes, capacity);
        if compare {
            let alone = private(&load, &mut |load, state, unit| step(load, state, unit, true));
            report.compare_private(&load, &outcomes, &alone);
        }
        reports.push(report);
        moments = outcomes.moments;
        faults.extend(outcomes.faults);
    }
    let report = ReplayReport::mean_of(&reports).ok_or(ReplayError::EmptySlice(read))?;
    Ok(Replayed { report, moments, capacity, faults })
}

fn read_map(options: &ReplayOptions) -> Result<ClusterMap, ReplayError> {
    let Some(path) = &options.topology else { return Err(ReplayError::NoCluster) };
    let map = topology::read(path)?;
    match &options.subtree {
        Some(domain) => map.subtree(domain).ok_or_else(|| ReplayError::NoSubtree(domain.clone())),
        None => Ok(map),
    }
}

fn capacity(options: &ReplayOptions, map: Option<&ClusterMap>) -> Result<u64, ReplayError> {
    match map {
        Some(map) => Ok(map.nodes.iter().map(|n| n.gpus.unwrap_or(options.gpus_per_node)).sum()),
        None => options.capacity.filter(|c| *c > 0).ok_or(ReplayError::NoCluster),
    }
}

/// Every queue alone in its quota, in queue order.
fn private(load: &Workload, step: &mut dyn FnMut(&Workload, ClusterState, ResourceIdx) -> Outcomes) -> Vec<Outcomes> {
    (0..load.queues.len())
        .map(|queue| {
            let mut state = ClusterState::new();
            let unit = cluster::pool(&mut state, load.queues[queue].quota.unwrap_or(0));
            step(&load.only(queue), state, unit)
        })
        .collect()
}

/// One result of the whole workload from those of its queues.
fn join(load: &Workload, parts: Vec<Outcomes>) -> Outcomes {
    let mut joined = Outcomes {
        jobs: Vec::with_capacity(load.jobs.len()),
        moments: Vec::new(),
        cycles: 0,
        violations: 0,
        faults: Vec::new(),
        plan_nanos: Vec::new(),
        peak_queue: 0,
    };
    let mut rest: Vec<_> = Vec::new();
    for part in parts {
        joined.cycles += part.cycles;
        joined.violations += part.violations;
        joined.faults.extend(part.faults);
        joined.plan_nanos.extend(part.plan_nanos);
        joined.peak_queue = joined.peak_queue.max(part.peak_queue);
        rest.push(part.jobs.into_iter());
    }
    joined.jobs = load.jobs.iter().map(|j| rest[j.queue].next().unwrap_or_default()).collect();
    joined
}
