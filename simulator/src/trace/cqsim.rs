//! CQSim job results (`.rst`): `id;procs;procs;requested time;run time;wait;submit;start;end`, sorted by end.
//!
//! Wait, start and end are that simulator's own and not read. Ties go by job number, not by file order.

use super::{Source, TraceError, TraceJob};
use crate::number;
use planner::{Span, Time};

const FIELDS: [&str; 9] = ["id", "procs", "procs", "requested time", "run time", "wait", "submit", "start", "end"];

/// Reads the jobs, in file order.
///
/// # Errors
/// If a line lacks fields or one that is used is no number.
pub fn read(source: &Source) -> Result<Vec<TraceJob>, TraceError> {
    let mut jobs = Vec::new();
    for (line, text) in source.lines() {
        let fields: Vec<&str> = text.trim().split(';').collect();
        if fields.len() < FIELDS.len() {
            let problem = format!("{} fields where a .rst line has 9, separated by ;", fields.len());
            return Err(source.error(line, "", problem));
        }
        let number = |field: usize| {
            number::micros(fields[field]).filter(|m| *m >= 0).ok_or_else(|| {
                source.error(line, FIELDS[field], format!("{:?} is no number of 0 or more", fields[field]))
            })
        };
        let whole = |field: usize| number(field).map(|m| u64::try_from(m / 1_000_000).unwrap_or(0));
        if number(4)? == 0 || whole(1)? == 0 {
            continue;
        }
        jobs.push(TraceJob {
            id: fields[0].into(),
            submit: Time(number(6)?),
            tie: whole(0)?,
            run: Span(number(4)?),
            estimate: Some(Span(number(3)?)),
            units: whole(1)?,
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
    fn columns_are_read_by_place() {
        let jobs = read(&Source::of("a.rst", "9;63;63;43200.0;11872.0;0.0;123114.0;123114.0;134986.0\n")).unwrap();
        assert_eq!((jobs[0].units, jobs[0].tie), (63, 9));
        assert_eq!((jobs[0].run, jobs[0].estimate), (Span::from_secs(11_872), Some(Span::from_secs(43_200))));
        assert_eq!(jobs[0].submit, Time::from_secs(123_114));
    }

    #[test]
    fn a_short_line_is_named() {
        let error = read(&Source::of("a.rst", "9;63;63\n")).unwrap_err();
        assert_eq!(error.to_string(), "a.rst:1: 3 fields where a .rst line has 9, separated by ;");
    }
}
