//! Alibaba Lingjun 2023: its job list. Column names differ between its releases, so several are accepted.

use super::{Source, Table, TraceError, TraceJob};
use crate::number;
use planner::{Span, Time};

const ID: [&str; 3] = ["job_name", "job_id", "name"];
const SUBMIT: [&str; 4] = ["gmt_job_submitted", "gmt_created", "submit_time", "start_time"];
const END: [&str; 4] = ["gmt_job_finished", "gmt_finished", "finish_time", "end_time"];
const START: [&str; 4] = ["gmt_job_running", "gmt_started", "start_time", "gmt_created"];
const GPUS: [&str; 4] = ["gpu_num", "num_gpus", "gpus", "gpu"];

/// Reads the jobs that ran on GPUs, in file order; ties by row.
///
/// # Errors
/// If a column is missing or a value is unusable.
pub fn read_jobs(source: &Source) -> Result<Vec<TraceJob>, TraceError> {
    let table = Table::read(source, None)?;
    let id = table.column(&ID)?;
    let (submit, start, end) = (table.column(&SUBMIT)?, table.column(&START)?, table.column(&END)?);
    let gpus = table.column(&GPUS)?;
    let mut jobs = Vec::new();
    for (row, line) in table.rows().enumerate() {
        if line.text(end)?.is_empty() || line.text(gpus)?.is_empty() {
            continue;
        }
        let moment = |column: &str| {
            let text = line.text(column)?;
            number::micros(text)
                .or_else(|| number::date_seconds(text).map(|s| s * 1_000_000))
                .ok_or_else(|| line.error(column, format!("{text:?} is neither seconds nor a date")))
        };
        let (run, units) = (moment(end)? - moment(start)?, line.count(gpus)?);
        if run <= 0 || units == 0 {
            continue;
        }
        jobs.push(TraceJob {
            id: line.text(id)?.into(),
            submit: Time(moment(submit)?),
            tie: row as u64,
            run: Span(run),
            estimate: None,
            units,
            user: "".into(),
            queue: "".into(),
        });
    }
    Ok(jobs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_and_dates_are_both_read() {
        let text =
            "job_name,gmt_created,gmt_finished,gpu_num\na,2023-08-01 00:00:00,2023-08-01 00:10:00,16\nb,5,65,8\n";
        let jobs = read_jobs(&Source::of("job.csv", text)).unwrap();
        assert_eq!(jobs.len(), 2);
        assert_eq!((jobs[0].run, jobs[0].units), (Span::from_secs(600), 16));
        assert_eq!((jobs[1].submit, jobs[1].run), (Time::from_secs(5), Span::from_secs(60)));
    }

    #[test]
    fn a_missing_column_lists_what_is_accepted() {
        let error = read_jobs(&Source::of("job.csv", "job_name,gmt_created,gmt_finished\n")).unwrap_err();
        assert!(error.to_string().contains("accepted: gpu_num, num_gpus, gpus, gpu"), "{error}");
    }
}
