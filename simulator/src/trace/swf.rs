//! Standard Workload Format: 18 fields a line, `;` starts a comment.
//!
//! Units are the requested processors (field 8), the used ones (field 5) where none were requested; the estimate is
//! field 9, the run where there is none; jobs that never ran are dropped; ties go by job number.

use super::{Source, TraceError, TraceJob};
use crate::number;
use planner::{Span, Time};

const FIELDS: [&str; 18] = [
    "1 job number",
    "2 submit time",
    "3 wait time",
    "4 run time",
    "5 used processors",
    "6 CPU time",
    "7 used memory",
    "8 requested processors",
    "9 requested time",
    "10 requested memory",
    "11 status",
    "12 user",
    "13 group",
    "14 executable",
    "15 queue",
    "16 partition",
    "17 preceding job",
    "18 think time",
];

/// Reads the jobs that ran, in file order.
///
/// # Errors
/// If a line lacks fields or one that is used is no number.
pub fn read(source: &Source) -> Result<Vec<TraceJob>, TraceError> {
    let mut jobs = Vec::new();
    for (line, text) in source.lines().filter(|(_, text)| !text.trim_start().starts_with(';')) {
        let fields: Vec<&str> = text.split_ascii_whitespace().collect();
        if fields.len() < FIELDS.len() {
            let problem = format!("{} fields where SWF has 18; is this the right --format?", fields.len());
            return Err(source.error(line, "", problem));
        }
        jobs.extend(job(&Line { source, line, fields: &fields })?);
    }
    Ok(jobs)
}

struct Line<'a> {
    source: &'a Source,
    line: usize,
    fields: &'a [&'a str],
}

impl Line<'_> {
    fn micros(&self, field: usize) -> Result<i64, TraceError> {
        let text = self.fields[field - 1];
        number::micros(text).ok_or_else(|| {
            self.source.error(self.line, FIELDS[field - 1], format!("{text:?} is no number; -1 means unknown"))
        })
    }

    fn count(&self, field: usize) -> Result<u64, TraceError> {
        Ok(u64::try_from(self.micros(field)? / 1_000_000).unwrap_or(0))
    }

    fn name(&self, field: usize, prefix: &str) -> String {
        let text = self.fields[field - 1];
        if text == "-1" { String::new() } else { format!("{prefix}{text}") }
    }
}

fn job(line: &Line<'_>) -> Result<Option<TraceJob>, TraceError> {
    let run = line.micros(4)?;
    let (used, requested) = (line.count(5)?, line.count(8)?);
    let units = if requested > 0 { requested } else { used };
    if run <= 0 || units == 0 {
        return Ok(None);
    }
    let estimate = line.micros(9)?;
    Ok(Some(TraceJob {
        id: line.fields[0].into(),
        submit: Time(line.micros(2)?),
        tie: line.count(1)?,
        run: Span(run),
        estimate: (estimate > 0).then_some(Span(estimate)),
        units,
        user: line.name(12, "u").into(),
        queue: line.name(13, "g").into(),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "; Version: 2\n\
        1    5094 -1   12072  16 -1 -1 -1 -1 -1 1 -1 -1 -1 0 -1 -1 -1\n\
        7  1920 80911  78391  128 -1 -1  256  86400 1200000  1   3   4  -1  1 -1 -1 -1\n\
        8  2000 0  0  8 -1 -1  8  60 1200000  1   3   3  -1  1 -1 -1 -1\n";

    #[test]
    fn requested_wins_over_used_and_jobs_that_never_ran_are_dropped() {
        let jobs = read(&Source::of("log.swf", LOG)).unwrap();
        assert_eq!(jobs.len(), 2);
        assert_eq!((jobs[0].units, jobs[0].estimate, &*jobs[0].user), (16, None, ""));
        assert_eq!((jobs[1].units, jobs[1].estimate), (256, Some(Span::from_secs(86_400))));
        assert_eq!((&*jobs[1].user, &*jobs[1].queue, jobs[1].tie), ("u3", "g4", 7));
        assert_eq!(jobs[1].submit, Time::from_secs(1920));
    }

    #[test]
    fn errors_name_file_line_and_field() {
        let text = LOG.replace("12072", "soon");
        let error = read(&Source::of("log.swf", &text)).unwrap_err();
        assert_eq!(error.to_string(), "log.swf:2: field 4 run time: \"soon\" is no number; -1 means unknown");
        let short = read(&Source::of("log.swf", "1 2 3\n")).unwrap_err();
        assert_eq!(short.to_string(), "log.swf:1: 3 fields where SWF has 18; is this the right --format?");
    }
}
