//! What one change would do for a waiting job: data and words. `cycle/counterfactual.rs` computes them by planning that
//! one job again with the change.

use crate::time::{Span, Time};
use std::fmt;
use std::sync::Arc;

/// One thing changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// `topology.patience` taken away.
    NoPatience,
    /// `topology.required` widened to this level, or dropped.
    Required(Option<Arc<str>>),
    /// `minReplicas` of a role lowered.
    Floor {
        /// The role.
        role: Arc<str>,
        /// Its new floor, in pods.
        pods: u32,
    },
    /// `maxRuntime` lowered.
    Limit(Span),
    /// A queue's `guarantee` raised.
    Guarantee {
        /// The queue.
        queue: Arc<str>,
        /// Resource (with its pool, if the quota names one) and by how much.
        more: Vec<(Arc<str>, i64)>,
    },
    /// A queue's `limit` raised.
    QueueLimit {
        /// The queue.
        queue: Arc<str>,
        /// Resource (with its pool, if the quota names one) and by how much.
        more: Vec<(Arc<str>, i64)>,
    },
}

/// What would follow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// It starts now, in this domain.
    Now {
        /// Path of the narrowest domain that holds it; `cluster` for a pool's root.
        domain: Arc<str>,
    },
    /// It may have these jobs make room, and starts then.
    Clears {
        /// Keys of the jobs that would be stopped or shrunk.
        victims: Vec<Arc<str>>,
        /// When they are gone.
        start: Time,
    },
    /// It starts earlier than it would as things stand.
    Earlier {
        /// The start.
        start: Time,
    },
}

impl Effect {
    /// When the job would start.
    #[must_use]
    pub fn start(&self, now: Time) -> Time {
        match self {
            Self::Now { .. } => now,
            Self::Clears { start, .. } | Self::Earlier { start } => *start,
        }
    }

    /// In words, with times written as the caller writes them.
    #[must_use]
    pub fn text(&self, time: impl Fn(Time) -> String) -> String {
        match self {
            Self::Now { domain } => format!("starts now in {domain}"),
            Self::Clears { victims, start } => {
                format!("starts at {} when {} has made room", time(*start), victims.join(", "))
            }
            Self::Earlier { start } => format!("starts at {}", time(*start)),
        }
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoPatience => write!(f, "topology.patience: 0s"),
            Self::Required(Some(level)) => write!(f, "topology.required: {level}"),
            Self::Required(None) => write!(f, "no topology.required"),
            Self::Floor { role, pods } => write!(f, "minReplicas of role {role}: {pods}"),
            Self::Limit(limit) => write!(f, "maxRuntime: {limit}"),
            Self::Guarantee { queue, more } => write!(f, "guarantee of queue {queue}: {}", amounts(more)),
            Self::QueueLimit { queue, more } => write!(f, "limit of queue {queue}: {}", amounts(more)),
        }
    }
}

fn amounts(more: &[(Arc<str>, i64)]) -> String {
    more.iter().map(|(resource, by)| format!("+{by} {resource}")).collect::<Vec<_>>().join(", ")
}

/// A change and what it would do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counterfactual {
    /// What is changed.
    pub change: Change,
    /// What follows.
    pub effect: Effect,
}
