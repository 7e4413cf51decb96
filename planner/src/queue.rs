//! What a queue is to the planner: its place in the tree, its entitlements, and its rules.

use crate::ids::{PoolIdx, QueueIdx, ResourceIdx};
use crate::time::{Span, Time};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A resource that a quota counts: everywhere, or in one pool only (`<topology>/<resource>`, decision 15).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QuotaKey {
    /// Counted only in this pool; everywhere if none.
    pub pool: Option<PoolIdx>,
    /// The resource.
    pub resource: ResourceIdx,
}

/// Amounts by quota key; a key that is not listed is not restricted.
pub type Quota = BTreeMap<QuotaKey, i64>;

/// Order of jobs inside a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// Priority, then submission.
    #[default]
    Priority,
    /// Users by decayed use, then as Priority.
    Fair,
}

/// How waiting jobs may be overtaken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backfill {
    /// Nobody passes the blocked head.
    None,
    /// The first `depth` waiting jobs hold a reservation each; others may pass if they delay none. Easy is depth 1.
    Depth(u32),
}

/// Whether room may be taken back from a queue's jobs by other queues.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReclaimFrom {
    /// By any entitled job.
    #[default]
    Any,
    /// Only by a job of higher priority.
    LowerPriority,
    /// Never.
    Never,
}

/// Whether a queue starts jobs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QueueState {
    /// Starts jobs.
    #[default]
    Open,
    /// Starts nothing.
    Held,
    /// Starts nothing; running jobs stop at their next checkpoint.
    Draining,
}

/// Use that decays: `value` as of `at`, see decision 13.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Decayed {
    /// Resource units (milli-units for CPU), decayed.
    pub value: f64,
    /// When it was written; use has been constant since.
    pub at: Time,
}

/// A queue of the tree.
#[derive(Clone, Debug, PartialEq)]
pub struct Queue {
    /// Name; empty for the implicit root.
    pub name: Arc<str>,
    /// Parent; the root's is itself.
    pub parent: QueueIdx,
    /// Share among siblings of what is beyond guarantees; > 0.
    pub weight: f64,
    /// Entitlement.
    pub guarantee: Quota,
    /// Never more than this.
    pub limit: Quota,
    /// Most of the guarantee that may be lent while idle.
    pub lending_limit: Quota,
    /// Most jobs running at once.
    pub max_running_jobs: Option<u32>,
    /// Order inside.
    pub order: Order,
    /// Backfill.
    pub backfill: Backfill,
    /// As victim: its younger jobs are protected.
    pub reclaim_min_runtime: Span,
    /// As victim: by whom.
    pub reclaim_from: ReclaimFrom,
    /// Whether it starts jobs.
    pub state: QueueState,
    /// Decayed use per resource row, as last written to the object.
    pub decayed: BTreeMap<ResourceIdx, Decayed>,
    /// Decayed use per user and resource row (for [`Order::Fair`]).
    pub users: BTreeMap<Arc<str>, BTreeMap<ResourceIdx, Decayed>>,
}

impl Queue {
    /// A queue without any restriction.
    #[must_use]
    pub fn open(name: &str, parent: QueueIdx) -> Self {
        Self {
            name: name.into(),
            parent,
            weight: 1.0,
            guarantee: Quota::new(),
            limit: Quota::new(),
            lending_limit: Quota::new(),
            max_running_jobs: None,
            order: Order::Priority,
            backfill: Backfill::Depth(100),
            reclaim_min_runtime: Span::ZERO,
            reclaim_from: ReclaimFrom::Any,
            state: QueueState::Open,
            decayed: BTreeMap::new(),
            users: BTreeMap::new(),
        }
    }
}
