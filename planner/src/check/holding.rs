//! Who holds which seats when, after the plan: recounted from the jobs' phases and the plan's actions alone.

use super::fate::{Fate, Fates, Promise};
use super::moment::{Moment, Window};
use crate::ids::JobIdx;
use crate::job::{Job, JobSpec, Phase, Placement, Seat};
use crate::state::Snapshot;
use crate::time::{Span, Time};
use std::borrow::Cow;

/// What a holding is to the plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// There before.
    Old,
    /// A promise that the plan leaves as it is.
    Standing,
    /// Given by the plan.
    Fresh,
}

/// Seats of one job during one window.
#[derive(Clone, Debug)]
pub(super) struct Holding<'a> {
    pub(super) job: JobIdx,
    pub(super) spec: &'a JobSpec,
    pub(super) seats: Cow<'a, [Seat]>,
    pub(super) window: Window,
    pub(super) kind: Kind,
    /// Counts as a running job of its queue (only one holding of a job does).
    pub(super) counts: bool,
}

/// A job that is over its time, or told to go and not gone, is there at least an instant longer.
const INSTANT: Span = Span(1);

/// All holdings, in row order of the jobs.
pub(super) fn all<'a>(snapshot: &Snapshot<'a>, fates: &Fates<'a>) -> Vec<Holding<'a>> {
    let mut holdings = Vec::new();
    let mut fates = fates.iter().peekable();
    for (row, job) in snapshot.state.jobs() {
        while fates.next_if(|(at, _)| **at < row).is_some() {}
        let fate = fates.next_if(|(at, _)| **at == row).map(|(_, fate)| fate);
        of_job(snapshot.now, row, job, fate, &mut holdings);
    }
    holdings
}

fn of_job<'a>(now: Time, row: JobIdx, job: &'a Job, fate: Option<&Fate<'a>>, into: &mut Vec<Holding<'a>>) {
    let mut push = |seats: Cow<'a, [Seat]>, from, until, kind, counts| {
        let window = Window { from, until: Moment::at(until) };
        into.push(Holding { job: row, spec: &job.spec, seats, window, kind, counts });
    };
    let found = Moment::found(now);
    for (placement, until) in &job.shedding {
        push(Cow::Borrowed(&placement.seats), found, (*until).max(now), Kind::Old, false);
    }
    if let Some(begin) = fate.and_then(|f| f.begin) {
        return push(Cow::Borrowed(&begin.placement.seats), found, begin.ends, Kind::Fresh, true);
    }
    match &job.phase {
        Phase::Waiting(waiting) => {
            let standing = || waiting.reservation.as_ref().map(|r| (r.start, r.end, &r.placement, Kind::Standing));
            let after =
                |p: Promise<'a>| (p.start, p.end, p.placement, if p.fresh { Kind::Fresh } else { Kind::Standing });
            let promise = fate.map_or_else(standing, |f| f.promise.map(after));
            if let Some((start, end, placement, kind)) = promise {
                push(Cow::Borrowed(&placement.seats), Moment::at(start.max(now)), end, kind, true);
            }
        }
        Phase::Leaving(leaving) => {
            let until = if leaving.gone_by < now { now + INSTANT } else { leaving.gone_by };
            push(Cow::Borrowed(&leaving.placement.seats), found, until, Kind::Old, true);
        }
        Phase::Running(running) => {
            let until = if running.ends <= now { now + INSTANT } else { running.ends };
            let before = &running.placement;
            match fate.map(|f| (f.halt, f.reshaped)) {
                Some((Some(_), _)) => {
                    push(Cow::Borrowed(&before.seats), found, now + job.spec.grace, Kind::Old, true);
                }
                Some((None, Some(after))) => {
                    push(Cow::Owned(common(before, after)), found, until, Kind::Old, true);
                    push(Cow::Owned(beyond(after, before)), found, until, Kind::Fresh, false);
                    push(Cow::Owned(beyond(before, after)), found, now + job.spec.grace, Kind::Old, false);
                }
                _ => push(Cow::Borrowed(&before.seats), found, until, Kind::Old, true),
            }
        }
    }
}

/// The seats of `one` that are not in `other`, in order.
pub(super) fn beyond(one: &Placement, other: &Placement) -> Vec<Seat> {
    let mut there = other.seats.clone();
    there.sort_unstable();
    one.seats.iter().filter(|s| there.binary_search(s).is_err()).copied().collect()
}

/// The seats of `one` that are also in `other`, in order.
pub(super) fn common(one: &Placement, other: &Placement) -> Vec<Seat> {
    let mut there = other.seats.clone();
    there.sort_unstable();
    one.seats.iter().filter(|s| there.binary_search(s).is_ok()).copied().collect()
}
