//! The truth about a job that no scheduler knows: how long it really runs, when its code fails, what work it keeps.

use super::shorthand::{FailLine, Submission};
use planner::{Span, Time};
use std::collections::{BTreeMap, VecDeque};

/// One job's run, over all its incarnations.
#[derive(Clone, Debug)]
pub struct Life {
    total: Option<Span>,
    done: Span,
    fails: VecDeque<FailLine>,
    started: Option<Time>,
    last: Span,
    in_place: BTreeMap<u32, i32>,
    /// Raised by every start and stop: what was foreseen before is void.
    pub stamp: u64,
    /// When it was submitted.
    pub submitted: Time,
    /// Its first start.
    pub first_start: Option<Time>,
    /// Its end.
    pub finished: Option<Time>,
    /// Number of starts.
    pub incarnations: i64,
    /// Counted failures of its own code.
    pub restarts: i32,
}

/// What comes next in an incarnation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Its code fails in the pod of this rank, with this exit code.
    Fails(u32, i32),
    /// It has done its work.
    Succeeds,
    /// Its limit is reached.
    Exceeds,
}

/// How long a job runs where nothing says.
const AN_HOUR: Span = Span::from_secs(3600);

impl Life {
    /// Of a submission.
    #[must_use]
    pub fn of(submission: &Submission) -> Self {
        Self {
            total: submission.runtime,
            done: Span::ZERO,
            fails: submission.fails.iter().copied().collect(),
            started: None,
            last: Span::ZERO,
            in_place: BTreeMap::new(),
            stamp: 0,
            submitted: submission.at,
            first_start: None,
            finished: None,
            incarnations: 0,
            restarts: 0,
        }
    }

    /// An incarnation starts. A job that does not say how long it runs takes its limit, else an hour.
    pub fn start(&mut self, now: Time, limit: Span) {
        self.total.get_or_insert(if limit.is_forever() { AN_HOUR } else { limit });
        self.first_start.get_or_insert(now);
        self.started = Some(now);
        self.incarnations += 1;
        self.stamp += 1;
    }

    /// Whether it runs.
    #[must_use]
    pub fn runs(&self) -> bool {
        self.started.is_some()
    }

    /// When the present incarnation started.
    #[must_use]
    pub fn started(&self) -> Option<Time> {
        self.started
    }

    /// What comes next and when, under a limit. At one instant a failure comes first and success before the limit.
    #[must_use]
    pub fn next(&self, limit: Span) -> Option<(Time, Next)> {
        let started = self.started?;
        let left = Span(self.total.unwrap_or(AN_HOUR).0 - self.done.0);
        let fails = self.fails.front().map(|f| (started + f.after.0, 0, Next::Fails(f.pod, f.exit_code)));
        let succeeds = Some((started + left, 1, Next::Succeeds));
        let exceeds = (!limit.is_forever()).then(|| (started + limit, 2, Next::Exceeds));
        let all = [fails, succeeds, exceeds].into_iter().flatten();
        all.min_by_key(|(at, rank, _)| (*at, *rank)).map(|(at, _, next)| (at, next))
    }

    /// A failure has happened: it is used up.
    pub fn use_failure(&mut self) {
        self.fails.pop_front();
        self.stamp += 1;
    }

    /// A kubelet restarts the container of a rank at its place, if it may once more.
    pub fn restart_in_place(&mut self, rank: u32, most: i32) -> bool {
        let times = self.in_place.entry(rank).or_insert(0);
        *times += 1;
        *times <= most
    }

    /// The incarnation ends before its work is done: what its last checkpoint holds is kept. Answers with the work lost.
    pub fn stop(&mut self, now: Time, checkpoint: Option<Span>) -> Span {
        let Some(started) = self.started.take() else { return Span::ZERO };
        self.stamp += 1;
        let ran = now.since(started);
        let kept = checkpoint.map_or(0, |every| ran.0 / every.0.max(1) * every.0);
        self.done = self.done + Span(kept);
        self.last = Span(ran.0 - kept);
        Span(ran.0 - kept)
    }

    /// How long it really ran, work undone by stops not counted.
    #[must_use]
    pub fn length(&self) -> Span {
        self.done + self.last
    }

    /// The job has ended.
    pub fn finish(&mut self, now: Time) {
        if let Some(started) = self.started.take() {
            self.last = now.since(started);
        }
        self.stamp += 1;
        self.finished = Some(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::length::Length;

    fn mk_life(runtime: i64, fails: &[(i64, i32)]) -> Life {
        let fails = fails.iter().map(|(after, code)| FailLine {
            after: Length(Span::from_secs(*after)),
            pod: 0,
            exit_code: *code,
        });
        Life::of(&Submission {
            at: Time::ZERO,
            manifest: serde_json::Value::Null,
            runtime: Some(Span::from_secs(runtime)),
            fails: fails.collect(),
        })
    }

    #[test]
    fn success_comes_before_the_limit_and_failure_before_both() {
        let mut life = mk_life(100, &[(100, 3)]);
        life.start(Time::ZERO, Span::FOREVER);
        assert_eq!(life.next(Span::from_secs(100)), Some((Time::from_secs(100), Next::Fails(0, 3))));
        life.use_failure();
        assert_eq!(life.next(Span::from_secs(100)), Some((Time::from_secs(100), Next::Succeeds)));
        assert_eq!(life.next(Span::from_secs(99)), Some((Time::from_secs(99), Next::Exceeds)));
    }

    #[test]
    fn work_since_the_last_checkpoint_is_lost() {
        let mut life = mk_life(100, &[]);
        life.start(Time::ZERO, Span::FOREVER);
        assert_eq!(life.stop(Time::from_secs(50), Some(Span::from_secs(20))), Span::from_secs(10));
        life.start(Time::from_secs(60), Span::FOREVER);
        assert_eq!(life.next(Span::FOREVER), Some((Time::from_secs(120), Next::Succeeds)));
        assert_eq!(life.stop(Time::from_secs(70), None), Span::from_secs(10));
    }
}
