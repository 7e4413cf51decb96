//! What is remembered of a job beside its objects. Nothing here matters for correctness: a restarted controller begins
//! with fresh records and comes to the same decisions from the objects alone.

use crate::engine::what_if::Answered;
use crds::Code;
use crds::v1alpha1::Unblock;
use k8s_openapi::api::core::v1::PodSpec;
use planner::Time;
use planner::plan::Quality;
use planner::reason::DomainReport;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tokio::time::Instant;

/// A job's memory.
#[derive(Debug)]
pub struct Record {
    /// Uid of the job: a namesake begins anew.
    pub uid: String,
    /// First sight.
    pub first_seen: Time,
    /// The operation under way, if any; there is never more than one.
    pub flight: Option<Flight>,
    /// What keeps the job from being planned at all.
    pub fault: Option<Held>,
    /// What has to come from outside before it can be planned.
    pub blocked: Option<Held>,
    /// Waits this long after refusals.
    pub backoff: Option<Held>,
    /// Starts refused in a row.
    pub refusals: u32,
    /// Trouble in a row of operations that should just work.
    pub stalls: u32,
    /// Nodes that refused its pods lately, until when, and how often.
    pub avoided: BTreeMap<String, (Time, u32)>,
    /// Since when members are lost that nobody has replaced.
    pub lost_since: Option<Time>,
    /// When members were last replaced, and how often without a pause since.
    pub replaced: Option<(Time, u32)>,
    /// Why it waits, as the last plan said.
    pub waiting: Option<Waits>,
    /// Single changes that would start it.
    pub unblock: Vec<Unblock>,
    /// When it may start, without a promise.
    pub estimate: Option<Time>,
    /// When these two were last asked for.
    pub answered: Option<Answered>,
    /// How good its placement is, as the plan that started it said.
    pub quality: Option<Quality>,
    /// Its Service and the like were seen.
    pub companions_made: bool,
    /// An undo has not succeeded yet: the last trouble.
    pub undo_trouble: Option<String>,
    /// Nothing is asked of it before, after trouble.
    pub retry_at: Option<Time>,
    /// When its status was last written.
    pub status_written: Option<Time>,
    /// The trace of its start.
    pub trace: Option<crate::traces::StartTrace>,
    /// Pods of its roles as dry runs answered them.
    pub asks: Vec<Option<Arc<PodSpec>>>,
    /// What these depend on, by role.
    pub probe_keys: Vec<String>,
    /// Those of them that are still to be asked for.
    pub unasked: BTreeSet<String>,
    /// Hashes of the roles' templates, and the generation they are of.
    pub hashes: (Option<i64>, Vec<String>),
}

impl Record {
    /// A fresh memory.
    #[must_use]
    pub fn new(uid: &str, now: Time) -> Self {
        Self {
            uid: uid.to_owned(),
            first_seen: now,
            flight: None,
            fault: None,
            blocked: None,
            backoff: None,
            refusals: 0,
            stalls: 0,
            avoided: BTreeMap::new(),
            lost_since: None,
            replaced: None,
            waiting: None,
            unblock: Vec::new(),
            estimate: None,
            answered: None,
            quality: None,
            companions_made: false,
            undo_trouble: None,
            retry_at: None,
            status_written: None,
            trace: None,
            asks: Vec::new(),
            probe_keys: Vec::new(),
            unasked: BTreeSet::new(),
            hashes: (None, Vec::new()),
        }
    }

    /// What was true of another wait is not told of this one.
    pub fn forget_answers(&mut self) {
        (self.unblock, self.estimate, self.answered) = (Vec::new(), None, None);
    }
}

/// Something that holds a job back, as its user sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// The code.
    pub code: Code,
    /// In words.
    pub message: String,
    /// Until when, if it ends by itself.
    pub until: Option<Time>,
}

/// What a plan said of a waiting job.
#[derive(Clone, Debug, PartialEq)]
pub struct Waits {
    /// Place in its queue, from 1.
    pub position: u32,
    /// The code.
    pub code: &'static str,
    /// In words.
    pub message: String,
    /// The best few domains.
    pub domains: Vec<DomainReport>,
    /// When it is expected to start.
    pub start: Option<Time>,
}

/// An operation under way.
#[derive(Clone, Debug)]
pub struct Flight {
    /// Its kind.
    pub kind: FlightKind,
    /// When it began.
    pub since: Instant,
    /// The same on the cluster's clock.
    pub began: Time,
}

/// Kinds of operations, as metrics and logs name them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FlightKind {
    /// Starts a gang.
    Start,
    /// Makes pods that are missing.
    Complete,
    /// Chooses nodes for claims whose volumes are made there.
    Claims,
    /// Marks a Berth and tells its pods to go.
    Stop,
    /// Gives a Berth back.
    Release,
    /// Promises a start.
    Reserve,
    /// Moves a promise.
    Move,
    /// Drops a promise.
    Drop,
    /// Changes a gang's size.
    Resize,
    /// Replaces members.
    Replace,
    /// Removes pods that belong nowhere.
    Sweep,
}

impl FlightKind {
    /// Name for metrics and logs.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Complete => "complete",
            Self::Claims => "claims",
            Self::Stop => "stop",
            Self::Release => "release",
            Self::Reserve => "reserve",
            Self::Move => "move",
            Self::Drop => "drop",
            Self::Resize => "resize",
            Self::Replace => "replace",
            Self::Sweep => "sweep",
        }
    }
}
