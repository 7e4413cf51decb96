//! Philly (Microsoft, ATC'19): `timestamp,duration,num_gpus,gpu_time,cluster`, unsorted; the cluster is the tenant.
//! Ties go by file row: a tie must not look at run times.

use super::{Source, Table, TraceError, TraceJob};
use crate::number;
use planner::{Span, Time};

/// Reads the jobs that ran on GPUs, in file order.
///
/// # Errors
/// If a column is missing or a value is unusable.
pub fn read(source: &Source) -> Result<Vec<TraceJob>, TraceError> {
    let table = Table::read(source, None)?;
    let mut jobs = Vec::new();
    for (row, line) in table.rows().enumerate() {
        let (run, units) = (line.micros("duration")?, line.count("num_gpus")?);
        if run <= 0 || units == 0 {
            continue;
        }
        let stamp = line.text("timestamp")?;
        let submit = number::date_seconds(stamp)
            .ok_or_else(|| line.error("timestamp", format!("{stamp:?} is no date; write 2017-10-09 07:01:55")))?;
        jobs.push(TraceJob {
            id: format!("row{}", row + 1).into(),
            submit: Time::from_secs(submit),
            tie: row as u64,
            run: Span(run),
            estimate: None,
            units,
            user: "".into(),
            queue: line.text("cluster")?.into(),
        });
    }
    Ok(jobs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cluster_is_the_queue_and_dates_are_seconds() {
        let text = "timestamp,duration,num_gpus,gpu_time,cluster\n2017-10-09 07:01:55,66.0,1,66.0,11cb48\n\n";
        let jobs = read(&Source::of("p.csv", text)).unwrap();
        assert_eq!(jobs.len(), 1);
        assert_eq!((jobs[0].submit, &*jobs[0].queue), (Time::from_secs(1_507_532_515), "11cb48"));
    }

    #[test]
    fn a_wrong_date_is_named() {
        let text = "timestamp,duration,num_gpus,gpu_time,cluster\nmonday,66.0,1,66.0,11cb48\n";
        let error = read(&Source::of("p.csv", text)).unwrap_err();
        assert_eq!(error.to_string(), "p.csv:2: field timestamp: \"monday\" is no date; write 2017-10-09 07:01:55");
    }
}
