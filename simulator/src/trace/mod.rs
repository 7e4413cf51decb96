//! Recorded workloads: one reader a format, all giving the same rows; errors name file, line, field and remedy.

pub mod cqsim;
pub mod helios;
pub mod lingjun;
pub mod openb;
pub mod pai;
pub mod philly;
mod source;
pub mod swf;
mod table;

pub use source::{Source, TraceError};
pub use table::Table;

use planner::{Span, Time};
use std::path::Path;
use std::sync::Arc;

/// One recorded job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceJob {
    /// Name in the log, unique in it or not.
    pub id: Arc<str>,
    /// When it was submitted, on the log's own clock.
    pub submit: Time,
    /// Breaks ties of equal submission: the job number or the file row, as the log's reference digits need.
    pub tie: u64,
    /// How long it ran.
    pub run: Span,
    /// What the user asked for as run time; absent in logs without estimates.
    pub estimate: Option<Span>,
    /// Units (processors or GPUs).
    pub units: u64,
    /// Who submitted it; empty if the log does not say.
    pub user: Arc<str>,
    /// Its queue (virtual cluster, group); empty if the log does not say.
    pub queue: Arc<str>,
}

/// The formats that `replay --format` knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Standard Workload Format of the Parallel Workloads Archive, gzipped or not.
    Swf,
    /// `job_id,arrival_s,service_sec,gpu_count`.
    Helios,
    /// `timestamp,duration,num_gpus,gpu_time,cluster`.
    Philly,
    /// Alibaba PAI 2020: the task table or the simulator's job list.
    Pai,
    /// CQSim job results, `;` between columns.
    Cqsim,
    /// Alibaba Lingjun 2023 job list.
    LingjunJobs,
    /// Alibaba openb 2023 pod list.
    Openb,
}

/// Reads a whole log, in submission order (ties as the format's reference needs).
///
/// # Errors
/// If the file cannot be read or a line is unusable; the error names file, line and field.
pub fn read(path: &Path, format: Format) -> Result<Vec<TraceJob>, TraceError> {
    let source = Source::open(path)?;
    let mut jobs = match format {
        Format::Swf => swf::read(&source)?,
        Format::Helios => helios::read(&source)?,
        Format::Philly => philly::read(&source)?,
        Format::Pai => pai::read(&source)?,
        Format::Cqsim => cqsim::read(&source)?,
        Format::LingjunJobs => lingjun::read_jobs(&source)?,
        Format::Openb => openb::read_pods(&source)?,
    };
    if jobs.is_empty() {
        return Err(source.error(1, "", "holds no job that ran; is this the right --format?"));
    }
    jobs.sort_by_key(|j| (j.submit, j.tie));
    Ok(jobs)
}
