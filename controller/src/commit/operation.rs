//! What the owner of the state asks of the commit protocol: one journal entry and what follows from it.

use super::request::{Companion, Member, Refusal, Selection};
use crds::{Berth, Timestamp, v1alpha1::BerthSpec};
use k8s_openapi::api::core::v1::Pod;
use std::sync::Arc;
use translate::amounts::Named;

/// Reason of a refusal by ourselves: admission makes larger pods than were planned.
pub const POD_CHANGED: &str = "PodChanged";

/// One decision to carry out. Every operation has the same order: verify, journal, probe, prepare, delete, create.
#[derive(Clone, Debug)]
pub struct Operation {
    /// Namespace of job, Berth and pods.
    pub namespace: String,
    /// When it was decided: no clock is read on the way.
    pub decided_at: Timestamp,
    /// First, make sure that no pod of this Berth exists any more (before its room is given back).
    pub verify_gone: bool,
    /// The commit point.
    pub journal: Journal,
    /// One pod of each distinct template, to be probed by a dry run.
    pub probes: Vec<Arc<Pod>>,
    /// What each of these was planned to take; empty: nothing is compared.
    pub planned: Vec<Named>,
    /// What the pods need beside them.
    pub companions: Vec<Companion>,
    /// Claims whose volumes are made for chosen nodes.
    pub claims: Vec<Selection>,
    /// Pods that go.
    pub delete: Vec<Member>,
    /// Pods that come, complete but for the owner reference to their Berth.
    pub create: Vec<Arc<Pod>>,
    /// What a definite refusal leads to.
    pub on_refusal: OnRefusal,
}

/// How the decision is made durable.
#[derive(Clone, Debug)]
pub enum Journal {
    /// A new Berth.
    Create(Arc<Berth>),
    /// A change of a Berth that was seen with `base` as its spec; the Berth carries its resourceVersion and uid.
    Update {
        /// The whole object to be.
        berth: Arc<Berth>,
        /// What it must still be.
        base: Box<BerthSpec>,
    },
    /// Nothing new: converge to what stands already.
    Standing(Arc<Berth>),
    /// Remove a Berth that never held anything.
    Delete(Arc<Berth>),
}

/// What a definite refusal leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnRefusal {
    /// Mark the Berth, delete every pod made, by uid: a gang never stays below its floor.
    RollBack {
        /// Grace of the pods that go.
        grace_seconds: u32,
    },
    /// Keep what there is (growth and replacement of a gang that runs).
    Keep,
}

/// How an operation ended.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// All was done; the Berth as last written (none if it was deleted).
    Done,
    /// Somebody else decided meanwhile: that Berth stands, adopt it.
    Lost(Arc<Berth>),
    /// The Berth is gone.
    BerthGone,
    /// A Berth of that name belongs to an earlier job of the same name.
    NamesakeLeaving,
    /// Definitely refused.
    Refused {
        /// At which request.
        stage: Stage,
        /// In the server's words.
        refusal: Refusal,
        /// How far the undo came.
        undo: Undo,
    },
    /// The room cannot be given back yet: so many pods are still there.
    PodsRemain(usize),
    /// Leadership ended.
    Fenced,
    /// Trouble went on for longer than one operation may last; to be tried again later.
    Stalled {
        /// At which request.
        stage: Stage,
        /// The last trouble.
        message: String,
    },
}

/// The steps of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// Making sure that no pods are left.
    Verify,
    /// Writing the Berth.
    Journal,
    /// Dry runs.
    Probe,
    /// Service and the like.
    Prepare,
    /// Deleting pods.
    Delete,
    /// Creating pods.
    Create,
    /// Taking back a start.
    Undo,
}

impl Stage {
    /// Name for messages and metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Verify => "verify",
            Self::Journal => "journal",
            Self::Probe => "probe",
            Self::Prepare => "prepare",
            Self::Delete => "delete",
            Self::Create => "create",
            Self::Undo => "undo",
        }
    }
}

/// How far an undo came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Undo {
    /// There was nothing to undo.
    Nothing,
    /// The Berth is released: no pod of it was ever made.
    Released,
    /// The Berth is marked and its pods were told to go.
    Leaving,
    /// It did not succeed and must be tried again.
    Failed,
}
