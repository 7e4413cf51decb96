//! What a private schedule knows of a job: counts and times, never nodes.

use crate::ids::QueueIdx;
use crate::state::Tally;
use crate::time::{Span, Time};
use std::sync::Arc;

/// A job as its queue's private cluster sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrivateJob {
    /// Unique id of the object: a private run outlives the job, and keys are used again.
    pub id: Arc<str>,
    /// `namespace/name`.
    pub key: Arc<str>,
    /// Who submitted it, for queues with `order: Fair`.
    pub user: Arc<str>,
    /// Higher goes first.
    pub priority: i64,
    /// First submission.
    pub queued_at: Time,
    /// Breaks ties of `queued_at` before the key does.
    pub sequence: u64,
    /// What its floor counts for in quotas.
    pub demand: Tally,
    /// How long it holds its room at most: limit and grace; [`Span::FOREVER`] without a limit.
    pub limit: Span,
}

/// A private start whose moment has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrivateStart {
    /// The queue.
    pub queue: QueueIdx,
    /// The job's id.
    pub id: Arc<str>,
    /// The job's key.
    pub key: Arc<str>,
    /// When it would have started alone; not later than the moment advanced to.
    pub at: Time,
}

/// One row of `Queue.status.privateRunning[]`: what living jobs alone would not bring back after a restart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrivateEntry {
    /// The job.
    pub job: PrivateJob,
    /// When it started privately; none: it is over but its private run is still to come.
    pub start: Option<Time>,
    /// How long it really ran, if that is known.
    pub length: Option<Span>,
}

/// Place in a private queue: turn (of users, else 0), priority, submission, sequence, key, id.
pub(crate) type Rank = (u64, i64, Time, u64, Arc<str>, Arc<str>);

impl PrivateJob {
    pub(crate) fn rank(&self, turn: u64) -> Rank {
        (turn, -self.priority, self.queued_at, self.sequence, self.key.clone(), self.id.clone())
    }
}
