//! Helios (SenseTime, SC'21): `job_id,arrival_s,service_sec,gpu_count`. No estimates, users or queues; ties by row.

use super::{Source, Table, TraceError, TraceJob};
use planner::{Span, Time};

/// Reads the jobs that ran on GPUs, in file order.
///
/// # Errors
/// If a column is missing or a value is no number.
pub fn read(source: &Source) -> Result<Vec<TraceJob>, TraceError> {
    let table = Table::read(source, None)?;
    let mut jobs = Vec::new();
    for (row, line) in table.rows().enumerate() {
        let (run, units) = (line.micros("service_sec")?, line.count("gpu_count")?);
        if run <= 0 || units == 0 {
            continue;
        }
        jobs.push(TraceJob {
            id: line.text("job_id")?.into(),
            submit: Time(line.micros("arrival_s")?),
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
    fn rows_become_jobs_in_file_order() {
        let text = "job_id,arrival_s,service_sec,gpu_count\n363167#0,0.0,172800.0,32\n394948#2,651507.0,0.5,8\n";
        let jobs = read(&Source::of("h.csv", text)).unwrap();
        assert_eq!(jobs.len(), 2);
        assert_eq!((&*jobs[0].id, jobs[0].units, jobs[0].run), ("363167#0", 32, Span::from_secs(172_800)));
        assert_eq!((jobs[1].submit, jobs[1].run, jobs[1].tie), (Time::from_secs(651_507), Span(500_000), 1));
    }

    #[test]
    fn a_wrong_number_is_named_with_its_line() {
        let text = "job_id,arrival_s,service_sec,gpu_count\na,0.0,1.0,8\nb,later,1.0,8\n";
        let error = read(&Source::of("h.csv", text)).unwrap_err();
        let want = "h.csv:3: field arrival_s: \"later\" is no number of seconds; write 162 or 162.5";
        assert_eq!(error.to_string(), want);
    }
}
