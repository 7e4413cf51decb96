//! The reason tree: every "no" as data. The one place that makes text of it is [`std::fmt::Display`] of [`Reason`].

use crate::ids::JobIdx;
use crate::time::Time;
use std::fmt;
use std::sync::Arc;

/// Codes of pending jobs; names are API (conditions, events, metrics labels) and never renamed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Code {
    /// No domain of the required level has room for the floor now (but the cluster has).
    NoDomainFits,
    /// The cluster has no room for the floor now.
    NoCapacity,
    /// The queue's or an ancestor's limit is reached.
    QueueLimit,
    /// The queue's `maxRunningJobs` is reached.
    MaxRunningJobs,
    /// The preferred level may come free before patience ends.
    WaitingForPatience,
    /// Room is free but promised to others before the job would end.
    HeldByReservation,
    /// Blocked behind the head of its queue (no backfill).
    BehindHead,
    /// Victims are leaving.
    ClearingRoom,
    /// Only guaranteed room may be used by a job that is not preemptible.
    NonPreemptibleNeedsGuarantee,
    /// The queue is held or draining.
    QueueHeld,
    /// A ResourceQuota of the namespace is used up.
    NamespaceQuota,
    /// Nodes with room have unknown paths.
    TopologyUnknown,
    /// Starts were refused; backing off.
    StartRefused,
    /// Waits out its restart back-off.
    RestartBackoff,
    /// A claim or volume is missing.
    VolumeMissing,
    /// It can never run as things stand.
    CanNeverRun,
    /// The previous incarnation's pods are still leaving.
    PreviousIncarnationLeaving,
    /// Nodes that have room are unusable for it (taints, selectors, cordons).
    NoUsableNode,
    /// The packing search stopped at its limit without an answer.
    SearchLimit,
    /// Waits for a job that has no time limit; holds a claim on one domain.
    NoDate,
}

impl Code {
    /// The code as written in conditions.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::NoDomainFits => "NoDomainFits",
            Self::NoCapacity => "NoCapacity",
            Self::QueueLimit => "QueueLimit",
            Self::MaxRunningJobs => "MaxRunningJobs",
            Self::WaitingForPatience => "WaitingForPatience",
            Self::HeldByReservation => "HeldByReservation",
            Self::BehindHead => "BehindHead",
            Self::ClearingRoom => "ClearingRoom",
            Self::NonPreemptibleNeedsGuarantee => "NonPreemptibleNeedsGuarantee",
            Self::QueueHeld => "QueueHeld",
            Self::NamespaceQuota => "NamespaceQuota",
            Self::TopologyUnknown => "TopologyUnknown",
            Self::StartRefused => "StartRefused",
            Self::RestartBackoff => "RestartBackoff",
            Self::VolumeMissing => "VolumeMissing",
            Self::CanNeverRun => "CanNeverRun",
            Self::PreviousIncarnationLeaving => "PreviousIncarnationLeaving",
            Self::NoUsableNode => "NoUsableNode",
            Self::SearchLimit => "SearchLimit",
            Self::NoDate => "NoDate",
        }
    }
}

/// One row of the per-domain table: whole pods of the job's floor, not raw resources.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DomainReport {
    /// Path of the domain (`cluster` for a pool's root).
    pub domain: Arc<str>,
    /// Pods of the job that it has room for now.
    pub free: u32,
    /// Pods whose room is held by reservations of others before the job would end.
    pub held_by_plan: u32,
    /// Pods whose room is on nodes that are cordoned, lost or otherwise unusable now.
    pub degraded: u32,
    /// Pods missing to the floor.
    pub short: u32,
}

/// Nodes that were passed over, by cause.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeFilters {
    /// Excluded by selector, affinity, taint or volume.
    pub not_eligible: u32,
    /// Cordoned, not ready or lost.
    pub unusable: u32,
    /// Path unknown at the required level.
    pub unknown_path: u32,
    /// Too full.
    pub full: u32,
}

/// Why a job waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reason {
    /// The binding constraint.
    pub code: Code,
    /// The object that binds: a queue, a job, a node, a level; empty if none.
    pub object: Arc<str>,
    /// A resource, where one binds.
    pub resource: Arc<str>,
    /// Units wanted of that resource or pods wanted.
    pub wanted: i64,
    /// Units or pods that could be had now.
    pub available: i64,
    /// Until when the constraint holds, if known.
    pub until: Option<Time>,
    /// The best few domains.
    pub domains: Vec<DomainReport>,
    /// Nodes passed over.
    pub filters: NodeFilters,
}

impl Reason {
    /// A reason with a code and an object only.
    #[must_use]
    pub fn of(code: Code, object: impl Into<Arc<str>>) -> Self {
        Self {
            code,
            object: object.into(),
            resource: "".into(),
            wanted: 0,
            available: 0,
            until: None,
            domains: Vec::new(),
            filters: NodeFilters::default(),
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (wanted, available, object) = (self.wanted, self.available, &self.object);
        match self.code {
            Code::NoDomainFits => {
                write!(
                    f,
                    "no single {object} has room for the floor of {wanted} pods now; the best has room for {available}"
                )?;
            }
            Code::NoCapacity => {
                write!(f, "the floor of {wanted} pods does not fit now; there is room for {available}")?;
            }
            Code::QueueLimit => {
                write!(f, "queue {object} is at its limit of {}: {wanted} wanted, {available} left", self.resource)?;
            }
            Code::MaxRunningJobs => write!(f, "queue {object} already runs its maxRunningJobs of {available}")?,
            Code::WaitingForPatience => write!(f, "waits for one {object}, as topology.patience asks")?,
            Code::HeldByReservation => {
                write!(f, "the room that is free now is promised to {object} before this job would end")?;
            }
            Code::BehindHead => write!(f, "behind {object}, the head of its queue, which allows no backfill")?,
            Code::ClearingRoom => write!(f, "its room is being cleared of {object}")?,
            Code::NonPreemptibleNeedsGuarantee => write!(
                f,
                "preemptible: false needs guaranteed room and queue {object} has {available} of {wanted} {} left in its guarantee",
                self.resource
            )?,
            Code::QueueHeld => write!(f, "queue {object} is not open: nothing starts in it")?,
            Code::NamespaceQuota => write!(f, "ResourceQuota {object} is used up")?,
            Code::TopologyUnknown => write!(f, "nodes with room carry no label for level {object}")?,
            Code::StartRefused => write!(f, "the last starts were refused: {object}")?,
            Code::RestartBackoff => write!(f, "waits out its restart back-off")?,
            Code::VolumeMissing => write!(f, "volume {object} is missing")?,
            Code::CanNeverRun => write!(f, "can never run: {object}")?,
            Code::PreviousIncarnationLeaving => write!(f, "pods of its previous incarnation are still leaving")?,
            Code::NoUsableNode => write!(f, "no usable node allows its pods")?,
            Code::SearchLimit => write!(f, "the packing search stopped at its limit without an answer")?,
            Code::NoDate => write!(f, "waits for {object}, which has no time limit; holds a claim, not a date")?,
        }
        if let Some(until) = self.until {
            write!(f, " (until {:.0} s)", until.as_secs_f64())?;
        }
        Ok(())
    }
}

/// A waiting job in the report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pending {
    /// The job.
    pub job: JobIdx,
    /// Its place in its queue, from 1.
    pub position: u32,
    /// Why it waits.
    pub reason: Reason,
    /// When it is expected to start: firm if it has a reservation, else an estimate if one was made.
    pub start: Option<Time>,
}
