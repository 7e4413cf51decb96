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

/// Who is over its time is assumed to end one cycle later, and when that is over, after twice as long again and again.
pub(super) fn assumed(end: Time, now: Time, cycle: Span) -> Time {
    let waits = std::iter::successors(Some(cycle.0.max(1)), |wait| wait.checked_mul(2));
    waits.map(|wait| Time(end.0.saturating_add(wait))).find(|at| *at > now).unwrap_or(Time::NEVER)
}

/// All holdings: those that count in quotas, in row order of the jobs, and behind those that only take room on nodes.
pub(super) struct Holdings<'a> {
    all: Vec<Holding<'a>>,
    counted: usize,
}

impl<'a> Holdings<'a> {
    /// What nodes have room for.
    pub(super) fn on_nodes(&self) -> &[Holding<'a>] {
        &self.all
    }

    /// What quotas count: not what a gang leaves behind where it replaced a lost member.
    pub(super) fn in_quotas(&self) -> &[Holding<'a>] {
        &self.all[..self.counted]
    }
}

/// All holdings.
pub(super) fn all<'a>(snapshot: &Snapshot<'a>, cycle: Span, fates: &Fates<'a>) -> Holdings<'a> {
    let (mut holdings, mut behind) = (Vec::new(), Vec::new());
    let mut fates = fates.iter().peekable();
    for (row, job) in snapshot.state.jobs() {
        while fates.next_if(|(at, _)| **at < row).is_some() {}
        let fate = fates.next_if(|(at, _)| **at == row).map(|(_, fate)| fate);
        of_job((snapshot.now, cycle), row, job, fate, &mut holdings);
        behind.extend(left_behind(snapshot, row, job, fate));
    }
    let counted = holdings.len();
    holdings.append(&mut behind);
    Holdings { all: holdings, counted }
}

/// Members that are lost for a gang that goes on without them hold their room until they are gone, at the earliest after
/// the grace; those on lost nodes block nothing.
fn left_behind<'a>(snapshot: &Snapshot<'a>, row: JobIdx, job: &'a Job, fate: Option<&Fate<'a>>) -> Option<Holding<'a>> {
    let (running, fate) = (job.running()?, fate?);
    let after = fate.begin.map(|b| b.placement).or(fate.reshaped.filter(|_| fate.halt.is_none()))?;
    let rank = |s: &Seat| job.spec.first_rank(usize::from(s.role)) + s.index;
    let mut seats = beyond(&running.placement, after);
    seats.retain(|s| running.lost.contains(&rank(s)) && !snapshot.state.node(s.node).lost);
    let window = Window { from: Moment::found(snapshot.now), until: Moment::at(snapshot.now + job.spec.grace) };
    (!seats.is_empty()).then_some(Holding {
        job: row,
        spec: &job.spec,
        seats: Cow::Owned(seats),
        window,
        kind: Kind::Old,
        counts: false,
    })
}

fn of_job<'a>(
    (now, cycle): (Time, Span),
    row: JobIdx,
    job: &'a Job,
    fate: Option<&Fate<'a>>,
    into: &mut Vec<Holding<'a>>,
) {
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
                // Its victims may take a cycle longer than their time to be gone (decision 1): it waits for them.
                let clearing = waiting.reservation.as_ref().is_some_and(|r| r.clearing);
                let waits = clearing && kind == Kind::Standing && start < now && now < start + cycle;
                let from = if waits { start + cycle } else { start.max(now) };
                push(Cow::Borrowed(&placement.seats), Moment::at(from), end, kind, true);
            }
        }
        Phase::Leaving(leaving) => {
            let until = if leaving.gone_by < now { assumed(leaving.gone_by, now, cycle) } else { leaving.gone_by };
            push(Cow::Borrowed(&leaving.placement.seats), found, until, Kind::Old, true);
        }
        Phase::Running(running) => {
            let until = if running.ends <= now { assumed(running.ends, now, cycle) } else { running.ends };
            let before = &running.placement;
            match fate.map(|f| (f.halt, f.reshaped)) {
                Some((Some(_), _)) => {
                    push(Cow::Borrowed(&before.seats), found, now + job.spec.grace, Kind::Old, true);
                }
                Some((None, Some(after))) => {
                    push(Cow::Owned(common(before, after)), found, until, Kind::Old, true);
                    push(Cow::Owned(beyond(after, before)), found, until, Kind::Fresh, false);
                    // The lost are told of on their own.
                    let rank = |s: &Seat| job.spec.first_rank(usize::from(s.role)) + s.index;
                    let mut gone = beyond(before, after);
                    gone.retain(|s| !running.lost.contains(&rank(s)));
                    push(Cow::Owned(gone), found, now + job.spec.grace, Kind::Old, false);
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
