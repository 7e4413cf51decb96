//! What a plan says: actions in the order to carry them out, and a reason for every job that only waits.

use crate::ids::{DomainIdx, JobIdx, NodeIdx, QueueIdx};
use crate::job::Placement;
use crate::reason::Pending;
use crate::time::Time;
use std::sync::Arc;

/// Why a promise moved later or was dropped (decision 3, closed list), each naming an object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// A node of it is gone.
    NodeLost(Arc<str>),
    /// A node of it was cordoned or lost room.
    NodeUnusable(Arc<str>),
    /// Labels moved a node of it out of its domain.
    TopologyChanged(Arc<str>),
    /// Somebody else's pod took room on a node of it.
    ForeignPod(Arc<str>),
    /// A running job outlives its planning runtime.
    Overrun(Arc<str>),
    /// The queue (or an ancestor) was edited.
    QueueEdited(Arc<str>),
    /// The job itself was edited, suspended or deleted.
    JobEdited(Arc<str>),
    /// A job of the same queue with higher priority was submitted.
    HigherPriority(Arc<str>),
    /// A job of another queue within its guarantee.
    Entitled(Arc<str>),
    /// A running job's lost members.
    Repair(Arc<str>),
    /// Its start was refused by the API server or a kubelet.
    StartRefused(Arc<str>),
    /// The admin announced a window for a node.
    Maintenance(Arc<str>),
}

impl std::fmt::Display for Cause {
    /// `Code(object)`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (code, object) = match self {
            Self::NodeLost(o) => ("NodeLost", o),
            Self::NodeUnusable(o) => ("NodeUnusable", o),
            Self::TopologyChanged(o) => ("TopologyChanged", o),
            Self::ForeignPod(o) => ("ForeignPod", o),
            Self::Overrun(o) => ("Overrun", o),
            Self::QueueEdited(o) => ("QueueEdited", o),
            Self::JobEdited(o) => ("JobEdited", o),
            Self::HigherPriority(o) => ("HigherPriority", o),
            Self::Entitled(o) => ("Entitled", o),
            Self::Repair(o) => ("Repair", o),
            Self::StartRefused(o) => ("StartRefused", o),
            Self::Maintenance(o) => ("Maintenance", o),
        };
        write!(f, "{code}({object})")
    }
}

/// Why a running job is stopped by a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StopCause {
    /// By priority, in the same queue.
    Preempted,
    /// Across queues, or for its own queue's private start.
    Reclaimed,
    /// It lost nodes and must restart as a whole.
    NodeLost,
    /// Its queue is draining and a checkpoint was just due.
    Drained,
}

/// How good a placement is, as shown in the job's status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quality {
    /// Name of the narrowest level that holds the gang in one domain (`node`, a level, or `cluster`).
    pub level: Arc<str>,
    /// Path of that domain (a node's name for `node`).
    pub domain: Arc<str>,
    /// Domains in use of the wanted level.
    pub domains: u32,
    /// Fewest domains of that level that the job could have on the empty cluster.
    pub domains_at_best: u32,
    /// Edges between consecutive ranks that leave the narrowest level.
    pub cross_edges: u32,
}

/// One decision. Room given by an earlier action is gone for later ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Start a waiting job now. `ends` is when its room is promised to others.
    Start {
        /// The job.
        job: JobIdx,
        /// Its seats.
        placement: Placement,
        /// Start + limit + grace; [`Time::NEVER`] without a limit.
        ends: Time,
        /// Whether it runs on guaranteed or lent room.
        guaranteed: bool,
        /// How good the placement is.
        quality: Quality,
    },
    /// Promise a start to a waiting job that had no reservation.
    Reserve {
        /// The job.
        job: JobIdx,
        /// When.
        start: Time,
        /// Start + limit + grace.
        end: Time,
        /// Its seats.
        placement: Placement,
        /// The victims that make room for it (each has its own Stop or Resize in the same plan).
        clears: Vec<JobIdx>,
    },
    /// Change a standing reservation: pulled forward or to other nodes without a cause, later only with one, dropped
    /// when `to` is none.
    Move {
        /// The job.
        job: JobIdx,
        /// Start so far.
        from: Time,
        /// New start, window end and seats.
        to: Option<(Time, Time, Placement)>,
        /// Why, if it is later, dropped, or in another domain.
        cause: Option<Cause>,
        /// Victims that make room for it where it is now (each has its own Stop or Resize in the same plan).
        clears: Vec<JobIdx>,
    },
    /// Tell a running job to go (with its grace).
    Stop {
        /// The job.
        job: JobIdx,
        /// Why.
        cause: StopCause,
        /// For whom.
        by: Option<JobIdx>,
    },
    /// Change a running job's size: `placement` is the whole new set of seats.
    Resize {
        /// The job.
        job: JobIdx,
        /// All seats afterwards.
        placement: Placement,
        /// For whom it shrinks, if it does.
        by: Option<JobIdx>,
    },
    /// Replace lost members of a running gang in the same incarnation.
    Replace {
        /// The job.
        job: JobIdx,
        /// (rank, lost node, new node).
        swaps: Vec<(u32, NodeIdx, NodeIdx)>,
        /// All seats afterwards.
        placement: Placement,
    },
    /// From now on a running job counts as guaranteed (its private start came).
    Guarantee {
        /// The job.
        job: JobIdx,
    },
}

impl Action {
    /// The job it is about.
    #[must_use]
    pub fn job(&self) -> JobIdx {
        match self {
            Self::Start { job, .. }
            | Self::Reserve { job, .. }
            | Self::Move { job, .. }
            | Self::Stop { job, .. }
            | Self::Resize { job, .. }
            | Self::Replace { job, .. }
            | Self::Guarantee { job } => *job,
        }
    }
}

/// A queue's claim without a date (decision 5): room freed in `domain` goes to no lower-ranked job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The leaf queue.
    pub queue: QueueIdx,
    /// The blocked job.
    pub job: JobIdx,
    /// The domain it waits for.
    pub domain: DomainIdx,
}

/// The outcome of one cycle.
#[derive(Clone, Debug, Default, PartialEq)]
#[must_use]
pub struct Plan {
    /// Decisions, in order.
    pub actions: Vec<Action>,
    /// For every waiting job that does not start: why not, in global order (rows of jobs, not of queues).
    pub pending: Vec<Pending>,
    /// Claims without a date.
    pub claims: Vec<Claim>,
    /// When planning again could change something although nothing happened: patience or back-off ends, a reservation
    /// starts, a protected job comes of age. [`None`]: only events matter.
    pub wake: Option<Time>,
}
