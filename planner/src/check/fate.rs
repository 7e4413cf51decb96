//! What a plan does to each job it touches, read off its actions in order, and whether each action fits where the job
//! then stands.

use super::violation::Violation;
use crate::ids::{JobIdx, NodeIdx};
use crate::job::{Job, Phase, Placement, Reservation};
use crate::plan::{Action, Cause, Plan, StopCause};
use crate::state::Snapshot;
use crate::time::Time;
use std::collections::BTreeMap;

/// A promise as it stands after some action.
#[derive(Clone, Copy, Debug)]
pub(super) struct Promise<'a> {
    pub(super) start: Time,
    pub(super) end: Time,
    pub(super) placement: &'a Placement,
    /// Made or changed by this plan.
    pub(super) fresh: bool,
}

impl<'a> Promise<'a> {
    fn standing(reservation: &'a Reservation) -> Self {
        let Reservation { start, end, placement, .. } = reservation;
        Self { start: *start, end: *end, placement, fresh: false }
    }
}

/// A start.
#[derive(Clone, Copy, Debug)]
pub(super) struct Begin<'a> {
    pub(super) placement: &'a Placement,
    pub(super) ends: Time,
    /// The promise it had just before.
    pub(super) promise: Option<Promise<'a>>,
}

/// A changed promise.
#[derive(Clone, Copy, Debug)]
pub(super) struct Change<'a> {
    pub(super) before: Promise<'a>,
    pub(super) after: Option<Promise<'a>>,
    pub(super) cause: Option<&'a Cause>,
}

/// A stop.
#[derive(Clone, Copy, Debug)]
pub(super) struct Halt {
    pub(super) cause: StopCause,
    pub(super) by: Option<JobIdx>,
}

/// What happens to one job.
#[derive(Clone, Debug)]
pub(super) struct Fate<'a> {
    pub(super) job: &'a Job,
    pub(super) begin: Option<Begin<'a>>,
    pub(super) halt: Option<Halt>,
    /// Seats after all changes in place.
    pub(super) reshaped: Option<&'a Placement>,
    /// For whom it is made smaller.
    pub(super) shrunk_for: Option<JobIdx>,
    pub(super) swaps: Vec<(u32, NodeIdx, NodeIdx)>,
    pub(super) promise: Option<Promise<'a>>,
    /// Its promise is the first one it gets in this plan, without one before.
    pub(super) reserved: bool,
    pub(super) clears: &'a [JobIdx],
    pub(super) changes: Vec<Change<'a>>,
}

impl<'a> Fate<'a> {
    fn of(job: &'a Job) -> Self {
        let promise = job.waiting().and_then(|w| w.reservation.as_ref()).map(Promise::standing);
        Self {
            job,
            begin: None,
            halt: None,
            reshaped: None,
            shrunk_for: None,
            swaps: Vec::new(),
            promise,
            reserved: false,
            clears: &[],
            changes: Vec::new(),
        }
    }

    /// Where the job stands after the actions read so far.
    fn phase(&self) -> &'static str {
        match (&self.job.phase, &self.begin, &self.halt) {
            (_, Some(_), _) => "starts in this plan",
            (_, None, Some(halt)) if halt.cause == StopCause::NodeLost => "is stopped for its lost nodes",
            (_, None, Some(_)) => "is stopped by this plan",
            (Phase::Waiting(_), ..) => "waits",
            (Phase::Running(_), ..) => "runs",
            (Phase::Leaving(_), ..) => "is leaving",
        }
    }
}

/// The fates of all jobs a plan touches, by row.
pub(super) type Fates<'a> = BTreeMap<JobIdx, Fate<'a>>;

/// Reads the actions in order.
pub(super) fn read<'a>(snapshot: &Snapshot<'a>, plan: &'a Plan, found: &mut Vec<Violation>) -> Fates<'a> {
    let mut fates = Fates::new();
    for action in &plan.actions {
        let row = action.job();
        let Some(job) = snapshot.state.job(row) else {
            found.push(Violation::NoSuchJob { row: row.0 });
            continue;
        };
        let fate = fates.entry(row).or_insert_with(|| Fate::of(job));
        let phase = fate.phase();
        if let Err(action) = follow(fate, action, phase, found) {
            found.push(Violation::WrongPhase { job: job.spec.key.clone(), action, phase });
        }
    }
    fates
}

/// Carries one action out on a fate; the error is its name where it does not fit.
fn follow<'a>(
    fate: &mut Fate<'a>,
    action: &'a Action,
    phase: &'static str,
    found: &mut Vec<Violation>,
) -> Result<(), &'static str> {
    let (waits, runs) = (phase == "waits", phase == "runs");
    match action {
        Action::Start { placement, ends, .. } => {
            let restarts = phase == "is stopped for its lost nodes";
            (waits || restarts).then_some(()).ok_or("start")?;
            fate.begin = Some(Begin { placement, ends: *ends, promise: fate.promise.take() });
        }
        Action::Reserve { start, end, placement, clears, .. } => {
            (waits && fate.promise.is_none()).then_some(()).ok_or("reservation")?;
            fate.reserved = fate.changes.is_empty();
            fate.promise = Some(Promise { start: *start, end: *end, placement, fresh: true });
            fate.clears = clears;
            // Dropped and made anew in one plan is a move.
            if let Some(last) = fate.changes.last_mut() {
                last.after = fate.promise;
            }
        }
        Action::Move { from, to, cause, clears, .. } => {
            waits.then_some(()).ok_or("move of a reservation")?;
            let Some(before) = fate.promise.filter(|p| p.start == *from) else {
                found.push(Violation::NoSuchReservation { job: fate.job.spec.key.clone(), from: *from });
                return Ok(());
            };
            let after =
                to.as_ref().map(|(start, end, placement)| Promise { start: *start, end: *end, placement, fresh: true });
            fate.changes.push(Change { before, after, cause: cause.as_ref() });
            fate.promise = after;
            if !clears.is_empty() {
                fate.clears = clears;
            }
        }
        Action::Stop { cause, by, .. } => {
            runs.then_some(()).ok_or("stop")?;
            fate.halt = Some(Halt { cause: *cause, by: *by });
        }
        Action::Resize { placement, by, .. } => {
            runs.then_some(()).ok_or("resize")?;
            fate.reshaped = Some(placement);
            fate.shrunk_for = *by;
        }
        Action::Replace { swaps, placement, .. } => {
            runs.then_some(()).ok_or("replacement")?;
            fate.reshaped = Some(placement);
            fate.swaps.extend(swaps);
        }
        Action::Guarantee { .. } => {
            runs.then_some(()).ok_or("guarantee")?;
        }
    }
    Ok(())
}
