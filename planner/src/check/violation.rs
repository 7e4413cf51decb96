//! What can be wrong with a plan: one variant a law's clause, with the names a reader needs. The text is made here.

use crate::time::Time;
use std::sync::Arc;
use thiserror::Error;

/// Name of a job, node, queue, level or resource.
pub type Name = Arc<str>;

/// One broken clause of a law. Names, not rows, so that it can be read long after the snapshot is gone.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum Violation {
    // --- the plan as a document ---
    /// An action or a report names a row without a job.
    #[error("the plan names job row {row}, which does not exist")]
    NoSuchJob {
        /// The row.
        row: u32,
    },
    /// An action does not fit where the job stands (after the actions before it).
    #[error("{action} of {job}, which {phase}")]
    WrongPhase {
        /// The job.
        job: Name,
        /// The action.
        action: &'static str,
        /// Where it stands.
        phase: &'static str,
    },
    /// A job that waits after the plan has no reason.
    #[error("{job} waits and the plan does not say why")]
    Unexplained {
        /// The job.
        job: Name,
    },
    /// A reason is given twice, or for a job that does not wait.
    #[error("{job} has a reason to wait too many")]
    OddReason {
        /// The job.
        job: Name,
    },
    /// A claim by a job that does not wait in that queue, or a second one of a queue.
    #[error("claim of {job} for queue {queue} is not that queue's to make")]
    OddClaim {
        /// The job.
        job: Name,
        /// The queue.
        queue: Name,
    },
    /// A window does not have the length of limit and grace.
    #[error("the window of {job} ends at {is:?} instead of {should:?}")]
    WrongEnd {
        /// The job.
        job: Name,
        /// As planned.
        is: Time,
        /// Start, limit and grace.
        should: Time,
    },
    // --- law 1: all or nothing ---
    /// A seat of no role, beyond the role's replicas, or on no node.
    #[error("{job} has a seat that cannot be: role {role}, index {index}")]
    BadSeat {
        /// The job.
        job: Name,
        /// Row of the role.
        role: u8,
        /// Index in the role.
        index: u32,
    },
    /// Seats are not in rank order, or one rank sits twice.
    #[error("{job}: role {role}, index {index} is out of rank order or sits twice")]
    SeatTwice {
        /// The job.
        job: Name,
        /// Row of the role.
        role: u8,
        /// Index in the role.
        index: u32,
    },
    /// Fewer pods than the floor.
    #[error("{job} would get {seats} pods of role {role}; its floor is {floor}")]
    BelowFloor {
        /// The job.
        job: Name,
        /// The role.
        role: Name,
        /// Its floor.
        floor: u32,
        /// Pods given.
        seats: u32,
    },
    /// Part of a slice.
    #[error("{job} would get part of slice {slice} of role {role}")]
    BrokenSlice {
        /// The job.
        job: Name,
        /// The role.
        role: Name,
        /// Number of the slice.
        slice: u32,
    },
    /// A start leaves a gap between the ranks of a role.
    #[error("{job} would start without index {index} of role {role}")]
    RankGap {
        /// The job.
        job: Name,
        /// The role.
        role: Name,
        /// The first missing index.
        index: u32,
    },
    // --- law 2: capacity ---
    /// Something new on a node that takes no pods.
    #[error("{job} would use {node}, which is closed or lost")]
    UnusableNode {
        /// The job.
        job: Name,
        /// The node.
        node: Name,
    },
    /// Something new in an announced maintenance window.
    #[error("{job} would be on {node} in its maintenance window from {from:?} to {until:?}")]
    InMaintenance {
        /// The job.
        job: Name,
        /// The node.
        node: Name,
        /// Start of the maintenance.
        from: Time,
        /// End of the maintenance.
        until: Time,
    },
    /// More than the node holds.
    #[error("{node} would hold {need} {resource} of {have} at {at:?}, with {job}")]
    OverCapacity {
        /// The node.
        node: Name,
        /// The resource.
        resource: Name,
        /// When.
        at: Time,
        /// Wanted in all.
        need: i64,
        /// What it has for our pods.
        have: i64,
        /// One of those that are new or promised there.
        job: Name,
    },
    // --- law 3: topology ---
    /// A node that the pod's constraints exclude.
    #[error("{node} does not allow pods of {job}")]
    NotEligible {
        /// The job.
        job: Name,
        /// The node.
        node: Name,
    },
    /// More than one pool.
    #[error("{job} would span pools")]
    SpansPools {
        /// The job.
        job: Name,
    },
    /// More than one domain of the required level, or nodes whose domain is unknown.
    #[error("{job} would not be in one known {level}")]
    SpansDomains {
        /// The job.
        job: Name,
        /// The level.
        level: Name,
    },
    /// A slice over more than one domain of its level, or over unknown ones.
    #[error("{job}: slice {slice} of role {role} would not be in one known {level}")]
    SliceSplit {
        /// The job.
        job: Name,
        /// The role.
        role: Name,
        /// Number of the slice.
        slice: u32,
        /// The level.
        level: Name,
    },
    /// Growth or a replacement outside the domain in use.
    #[error("{job} would leave the {level} it runs in for {node}")]
    OutsideDomainInUse {
        /// The job.
        job: Name,
        /// The level, `cluster` for the pool.
        level: Name,
        /// The node.
        node: Name,
    },
    /// A rank that keeps running changes its node.
    #[error("{job}: rank {rank} would change its node while it runs")]
    RankMoved {
        /// The job.
        job: Name,
        /// The rank.
        rank: u32,
    },
    /// A resize or replacement that the job or the policy does not allow.
    #[error("{job} may not be changed in place: {why}")]
    ChangeForbidden {
        /// The job.
        job: Name,
        /// Why.
        why: &'static str,
    },
    // --- law 4: reservations ---
    /// A move names another start than the standing one.
    #[error("{job} has no reservation at {from:?} to move")]
    NoSuchReservation {
        /// The job.
        job: Name,
        /// Start named by the plan.
        from: Time,
    },
    /// A promise not later than now although nobody has to go first.
    #[error("{job} would be promised {start:?}, which is not later than now")]
    PromiseNotLater {
        /// The job.
        job: Name,
        /// The start.
        start: Time,
    },
    /// Later or dropped without a cause.
    #[error("the promise of {job} at {from:?} would move to {to:?} without a cause")]
    MovedWithoutCause {
        /// The job.
        job: Name,
        /// Start so far.
        from: Time,
        /// New start; none when dropped.
        to: Option<Time>,
    },
    /// Into another domain without a cause.
    #[error("{job} would lose the {level} it was promised without a cause")]
    DomainLost {
        /// The job.
        job: Name,
        /// The level, `cluster` for the pool.
        level: Name,
    },
    /// The cause names no object that could be it.
    #[error("the promise of {job} would move for {cause}, which is not so")]
    FalseCause {
        /// The job.
        job: Name,
        /// The cause as written.
        cause: String,
    },
    /// Postponed by higher priority beyond the policy's maximum.
    #[error("the promise of {job} is firm and would be postponed again")]
    PostponedTooFar {
        /// The job.
        job: Name,
    },
    /// Due and neither started nor moved.
    #[error("{job} was promised {start:?} and the plan passes over it")]
    PromiseIgnored {
        /// The job.
        job: Name,
        /// The start.
        start: Time,
    },
    /// Left standing on a node that cannot keep it.
    #[error("the promise of {job} stands on {node}, which cannot keep it")]
    PromiseOnUnusableNode {
        /// The job.
        job: Name,
        /// The node.
        node: Name,
    },
    /// More promises than the policy allows.
    #[error("{count} reservations; the policy allows {most}")]
    TooManyReservations {
        /// Reservations after the plan.
        count: u32,
        /// The policy's number.
        most: u32,
    },
    // --- law 5: quota ---
    /// A start or promise in a queue that starts nothing, or of a job held from outside.
    #[error("{job} would start or be promised although {by} holds it")]
    Held {
        /// The job.
        job: Name,
        /// The queue or detail that holds it.
        by: Name,
    },
    /// Over a limit.
    #[error("queue {queue} would hold {need} {key} at {at:?}; its limit is {limit} (with {job})")]
    OverLimit {
        /// The queue.
        queue: Name,
        /// Resource, with its pool if the limit is for one.
        key: Name,
        /// When.
        at: Time,
        /// Held.
        need: i64,
        /// Allowed.
        limit: i64,
        /// One of those that are new or promised then.
        job: Name,
    },
    /// Over maxRunningJobs.
    #[error("queue {queue} would run {count} jobs at {at:?}; maxRunningJobs is {most} (with {job})")]
    TooManyRunning {
        /// The queue.
        queue: Name,
        /// When.
        at: Time,
        /// Jobs.
        count: i64,
        /// Allowed.
        most: u32,
        /// One of those that are new or promised then.
        job: Name,
    },
    /// More is lent than may be.
    #[error("with {job}, {key} that the guarantees under {queue} keep back would be lent: {need} of {have}")]
    OverLent {
        /// The borrower.
        job: Name,
        /// The parent queue; empty for the root.
        queue: Name,
        /// Resource, with its pool if the guarantee is for one.
        key: Name,
        /// In use and kept back.
        need: i64,
        /// What there is.
        have: i64,
    },
    /// A job that is not preemptible on borrowed room.
    #[error("{job} is not preemptible and queue {queue} would go beyond its guarantee")]
    NonPreemptibleBorrows {
        /// The job.
        job: Name,
        /// The queue.
        queue: Name,
    },
    // --- law 6: victims ---
    /// A stop of a job that is not to be stopped for others now.
    #[error("{victim} may not be stopped or shrunk for {taker}: {why}")]
    Protected {
        /// The victim.
        victim: Name,
        /// The taker.
        taker: Name,
        /// What protects it.
        why: Protection,
    },
    /// The taker neither starts nor is promised the room.
    #[error("{victim} would make way for {taker}, which gets nothing by it")]
    TakerGetsNothing {
        /// The victim.
        victim: Name,
        /// The taker.
        taker: Name,
    },
    /// A reservation counts on somebody who is not told to go.
    #[error("{taker} counts on {victim}, which is not told to make way for it")]
    NotCleared {
        /// The taker.
        taker: Name,
        /// The supposed victim.
        victim: Name,
    },
    /// Sparing it would leave the taker where it is.
    #[error("{victim} would make way for {taker}, which does not need it")]
    NotNeeded {
        /// The victim.
        victim: Name,
        /// The taker.
        taker: Name,
    },
    /// New victims while the first are leaving.
    #[error("{taker} would get a second round of victims while the first is leaving")]
    SecondRound {
        /// The taker.
        taker: Name,
    },
    /// A stop for a reason that is not so.
    #[error("{job} would be stopped as {cause}, which is not so")]
    FalseStop {
        /// The job.
        job: Name,
        /// The cause.
        cause: &'static str,
    },
}

/// What protects a victim.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq, PartialOrd, Ord)]
pub enum Protection {
    /// The policy does not preempt.
    #[error("the policy stops nobody for others")]
    Policy,
    /// `preemptible: false`.
    #[error("it is not preemptible")]
    NotPreemptible,
    /// Its start is not finished.
    #[error("its start is not finished")]
    Settling,
    /// Younger than its queue's `reclaim.minRuntime`.
    #[error("it is younger than its queue's reclaim.minRuntime")]
    MinRuntime,
    /// In the same queue: not of lower priority.
    #[error("the taker's priority is not higher")]
    Priority,
    /// Started on a promise that was firm.
    #[error("it started on a promise that was firm")]
    Firm,
    /// Guaranteed, not lent.
    #[error("it runs on guaranteed room")]
    Guaranteed,
    /// Its queue's `reclaim.from`.
    #[error("its queue's reclaim.from does not allow it")]
    ReclaimFrom,
    /// Its queue is not above its guarantee.
    #[error("its queue is within its guarantee")]
    QueueWithinGuarantee,
    /// The taker is not entitled to it.
    #[error("the taker is neither within its guarantee nor below the victim's share")]
    NotEntitled,
}

impl Violation {
    /// The law it breaks; 0 for the plan as a document.
    #[must_use]
    pub fn law(&self) -> u8 {
        match self {
            Self::NoSuchJob { .. }
            | Self::WrongPhase { .. }
            | Self::Unexplained { .. }
            | Self::OddReason { .. }
            | Self::OddClaim { .. }
            | Self::WrongEnd { .. } => 0,
            Self::BadSeat { .. }
            | Self::SeatTwice { .. }
            | Self::BelowFloor { .. }
            | Self::BrokenSlice { .. }
            | Self::RankGap { .. } => 1,
            Self::UnusableNode { .. } | Self::InMaintenance { .. } | Self::OverCapacity { .. } => 2,
            Self::NotEligible { .. }
            | Self::SpansPools { .. }
            | Self::SpansDomains { .. }
            | Self::SliceSplit { .. }
            | Self::OutsideDomainInUse { .. }
            | Self::RankMoved { .. }
            | Self::ChangeForbidden { .. } => 3,
            Self::NoSuchReservation { .. }
            | Self::PromiseNotLater { .. }
            | Self::MovedWithoutCause { .. }
            | Self::DomainLost { .. }
            | Self::FalseCause { .. }
            | Self::PostponedTooFar { .. }
            | Self::PromiseIgnored { .. }
            | Self::PromiseOnUnusableNode { .. }
            | Self::TooManyReservations { .. } => 4,
            Self::Held { .. }
            | Self::OverLimit { .. }
            | Self::TooManyRunning { .. }
            | Self::OverLent { .. }
            | Self::NonPreemptibleBorrows { .. } => 5,
            Self::Protected { .. }
            | Self::TakerGetsNothing { .. }
            | Self::NotCleared { .. }
            | Self::NotNeeded { .. }
            | Self::SecondRound { .. }
            | Self::FalseStop { .. } => 6,
        }
    }

    /// Its name, for metrics labels and tests.
    #[must_use]
    pub fn kind(&self) -> String {
        let text = format!("{self:?}");
        text.split([' ', '{']).next().unwrap_or_default().to_owned()
    }
}
