//! Alibaba PAI 2020: the task table (`pai_task_table`, with or without its header) or the job list of its simulator
//! (`job_id,num_gpu,submit_time,num_inst,duration,user`). GPUs may be shared: units are whole GPUs, rounded up.

use super::table::Row;
use super::{Source, Table, TraceError, TraceJob};
use planner::{Span, Time};

/// Columns of the task table, which is published without a header.
const TASK_COLUMNS: [&str; 10] = [
    "job_name",
    "task_name",
    "inst_num",
    "status",
    "start_time",
    "end_time",
    "plan_cpu",
    "plan_mem",
    "plan_gpu",
    "gpu_type",
];

/// Reads the GPU jobs that ran, in file order; ties by row.
///
/// # Errors
/// If a column is missing or a value is unusable.
pub fn read(source: &Source) -> Result<Vec<TraceJob>, TraceError> {
    let first = source.lines().next().map_or("", |(_, text)| text);
    let bare = first.split(',').count() == TASK_COLUMNS.len() && !first.contains("plan_gpu");
    let table = Table::read(source, bare.then_some(&TASK_COLUMNS[..]))?;
    let tasks = table.has("plan_gpu");
    let mut jobs = Vec::new();
    for (row, line) in table.rows().enumerate() {
        jobs.extend(if tasks { task(&line, row)? } else { listed(&line, row)? });
    }
    Ok(jobs)
}

/// A task ran if it terminated with both times; `plan_gpu` is per cent of one GPU for each instance.
fn task(line: &Row<'_>, row: usize) -> Result<Option<TraceJob>, TraceError> {
    let complete = ["start_time", "end_time", "plan_gpu", "inst_num"];
    for column in complete {
        if line.text(column)?.is_empty() {
            return Ok(None);
        }
    }
    let (start, end) = (line.micros("start_time")?, line.micros("end_time")?);
    let percent = line.micros("plan_gpu")? / 1_000_000;
    let units = (percent * line.micros("inst_num")? / 1_000_000 + 99) / 100;
    if line.text("status")? != "Terminated" || end <= start || units <= 0 {
        return Ok(None);
    }
    let id = format!("{}/{}", line.text("job_name")?, line.text("task_name")?);
    Ok(Some(recorded(id, start, end - start, units, "", row)))
}

fn listed(line: &Row<'_>, row: usize) -> Result<Option<TraceJob>, TraceError> {
    let run = line.micros("duration")?;
    let instances = if line.text("num_inst").unwrap_or("").is_empty() { 1_000_000 } else { line.micros("num_inst")? };
    let units = (i128::from(line.micros("num_gpu")?) * i128::from(instances) + 999_999_999_999) / 1_000_000_000_000;
    if run <= 0 || units <= 0 {
        return Ok(None);
    }
    let user = line.text("user").unwrap_or("");
    let units = i64::try_from(units).map_err(|_| line.error("num_gpu", "more GPUs than can be counted"))?;
    Ok(Some(recorded(line.text("job_id")?.to_owned(), line.micros("submit_time")?, run, units, user, row)))
}

fn recorded(id: String, submit: i64, run: i64, units: i64, user: &str, row: usize) -> TraceJob {
    TraceJob {
        id: id.into(),
        submit: Time(submit),
        tie: row as u64,
        run: Span(run),
        estimate: None,
        units: u64::try_from(units).unwrap_or(0),
        user: user.into(),
        queue: "".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_gpus_round_up_over_all_instances() {
        let text = "j1,worker,3,Terminated,100.0,160.0,600,29,50,T4\nj2,worker,1,Failed,100.0,160.0,600,29,50,T4\n\
                    j3,worker,1,Terminated,100.0,,600,29,50,T4\n";
        let jobs = read(&Source::of("t.csv", text)).unwrap();
        assert_eq!(jobs.len(), 1);
        assert_eq!((&*jobs[0].id, jobs[0].units, jobs[0].run), ("j1/worker", 2, Span::from_secs(60)));
    }

    #[test]
    fn the_simulators_job_list_is_read_by_header() {
        let text = "job_id,num_gpu,submit_time,num_inst,duration,user\n7,0.25,12,5,40,alice\n";
        let jobs = read(&Source::of("l.csv", text)).unwrap();
        assert_eq!((jobs[0].units, &*jobs[0].user, jobs[0].submit), (2, "alice", Time::from_secs(12)));
    }
}
