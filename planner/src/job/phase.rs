//! Where a job stands: it waits, holds its room, or was told to go.

use super::{JobSpec, Placement};
use crate::ids::JobIdx;
use crate::plan::Cause;
use crate::reason::Code;
use crate::time::{Span, Time};
use std::sync::Arc;

/// A promise kept as a `Reserved` Berth.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reservation {
    /// When it starts.
    pub start: Time,
    /// When its window ends; [`Time::NEVER`] without a limit.
    pub end: Time,
    /// Its nodes.
    pub placement: Placement,
    /// The earliest start the job was ever promised without a recorded cause since.
    pub promised: Time,
    /// Jobs that were told to make room for it and have not all gone yet: nobody else is chosen meanwhile.
    pub clearing: bool,
}

impl Reservation {
    /// When it counts: victims without grace are there until their owner says that they are gone, and what they and
    /// their taker hold counts once.
    pub(crate) fn counts_during(&self, now: Time, cycle: Span) -> (Time, Time) {
        let gone = if self.clearing { now + cycle } else { self.start };
        (self.start.max(gone.min(self.end)), self.end)
    }
}

/// Why a waiting job is not considered at all in this plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hold {
    /// The code shown to the user.
    pub code: Code,
    /// The object or detail that the message names.
    pub detail: Arc<str>,
    /// When it ends by itself, if it does.
    pub until: Option<Time>,
}

/// A job that waits for its room.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Waiting {
    /// Its standing reservation.
    pub reservation: Option<Reservation>,
    /// Held by something outside the planner (queue held, namespace quota, back-off, never fits): it holds nothing and
    /// blocks nobody.
    pub hold: Option<Hold>,
    /// It ran before and was stopped by us or lost nodes: it goes before waiting equals.
    pub requeued: bool,
    /// It lost nodes and its room is held while the repair has a date.
    pub repair: bool,
    /// After a failure of the user's code: the nodes to restart on if that delays nobody.
    pub last_placement: Option<Placement>,
    /// By how much higher-priority submissions have moved its promise so far.
    pub postponed: Span,
    /// When it would have started in its queue's private cluster, if that moment has come.
    pub private_start: Option<Time>,
}

/// A job that holds its room.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Running {
    /// Where.
    pub placement: Placement,
    /// Start of this incarnation.
    pub started: Time,
    /// When the room is promised to others: start + limit + grace; [`Time::NEVER`] without a limit.
    pub ends: Time,
    /// Ranks lost with their nodes and not yet replaced.
    pub lost: Vec<u32>,
    /// Guaranteed (from its private start on) or lent.
    pub guaranteed: bool,
    /// Last change of size, for [`crate::policy::Policy::resize_interval`].
    pub resized: Time,
    /// Started on a promise that had become firm: no victim of later submissions of higher priority.
    pub firm: bool,
    /// When it would have started in its queue's private cluster, if that moment has come.
    pub private_start: Option<Time>,
    /// Not all of its pods exist yet (commit still under way): it is not resized or chosen as victim.
    pub settling: bool,
}

/// A job told to stop whose pods are still there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leaving {
    /// What it still holds.
    pub placement: Placement,
    /// When it is gone at the latest.
    pub gone_by: Time,
    /// For whom it makes room, if for anybody.
    pub taker: Option<JobIdx>,
}

/// Where a job stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Waits for room.
    Waiting(Box<Waiting>),
    /// Holds its room.
    Running(Box<Running>),
    /// Was told to stop.
    Leaving(Box<Leaving>),
}

/// A living job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// What it asks for.
    pub spec: Arc<JobSpec>,
    /// First submission; kept over preemption and node loss.
    pub queued_at: Time,
    /// Breaks ties of `queued_at` before the key does (file order in the simulator, 0 on a cluster).
    pub sequence: u64,
    /// Where it stands.
    pub phase: Phase,
    /// Part of a running gang's surplus on its way out: seats that still hold room until a time.
    pub shedding: Vec<(Placement, Time)>,
    /// Why its last reservation was dropped or moved, for the report.
    pub last_cause: Option<Cause>,
    /// Number of its placement class: jobs of one class fit exactly the same places.
    pub class: u32,
}

impl Job {
    /// Every placement it mentions: held, reserved, remembered, being shed.
    pub(crate) fn placements(&self) -> Vec<&Placement> {
        let mut all: Vec<&Placement> = self.shedding.iter().map(|(p, _)| p).collect();
        match &self.phase {
            Phase::Waiting(w) => {
                all.extend(w.reservation.as_ref().map(|r| &r.placement));
                all.extend(w.last_placement.as_ref());
            }
            Phase::Running(r) => all.push(&r.placement),
            Phase::Leaving(l) => all.push(&l.placement),
        }
        all
    }

    pub(crate) fn placements_mut(&mut self) -> Vec<&mut Placement> {
        let mut all: Vec<&mut Placement> = self.shedding.iter_mut().map(|(p, _)| p).collect();
        match &mut self.phase {
            Phase::Waiting(w) => {
                all.extend(w.reservation.as_mut().map(|r| &mut r.placement));
                all.extend(w.last_placement.as_mut());
            }
            Phase::Running(r) => all.push(&mut r.placement),
            Phase::Leaving(l) => all.push(&mut l.placement),
        }
        all
    }

    /// The placements whose room it holds: running or leaving, and surplus being shed.
    #[must_use]
    pub fn held(&self) -> Vec<&Placement> {
        let mut held: Vec<&Placement> = self.shedding.iter().map(|(p, _)| p).collect();
        match &self.phase {
            Phase::Waiting(_) => {}
            Phase::Running(r) => held.push(&r.placement),
            Phase::Leaving(l) => held.push(&l.placement),
        }
        held
    }

    /// The phase of a job that only waits.
    #[must_use]
    pub fn waiting(&self) -> Option<&Waiting> {
        match &self.phase {
            Phase::Waiting(w) => Some(w),
            _ => None,
        }
    }

    /// The phase of a job that runs.
    #[must_use]
    pub fn running(&self) -> Option<&Running> {
        match &self.phase {
            Phase::Running(r) => Some(r),
            _ => None,
        }
    }
}
