//! Creating pods round by round: a lost answer is read, a pod of ours is adopted, a stranger's name is a refusal.

use super::owner_uid;
use super::request::{Fault, PodCall, Refusal};
use k8s_openapi::api::core::v1::Pod;
use std::sync::Arc;

/// A pod that is wanted and not yet seen to exist.
#[derive(Clone, Debug)]
pub(super) struct Slot {
    pod: Arc<Pod>,
    /// Its creation was asked for and the answer is not known: read before asking again.
    unknown: bool,
}

impl Slot {
    pub(super) fn new(pod: Arc<Pod>) -> Self {
        Self { pod, unknown: false }
    }
}

/// What one round came to.
#[derive(Default)]
pub(super) struct Round {
    pub(super) made: Vec<Arc<Pod>>,
    pub(super) open: Vec<Slot>,
    pub(super) refusal: Option<Refusal>,
    pub(super) trouble: String,
}

/// The calls of the next round.
pub(super) fn calls(slots: &[Slot]) -> Vec<PodCall> {
    slots.iter().map(call).collect()
}

fn call(slot: &Slot) -> PodCall {
    if !slot.unknown {
        return PodCall::Create(slot.pod.clone());
    }
    let metadata = &slot.pod.metadata;
    PodCall::Read {
        namespace: metadata.namespace.clone().unwrap_or_default(),
        name: metadata.name.clone().unwrap_or_default(),
    }
}

/// Sorts the answers of a round.
pub(super) fn judge(slots: Vec<Slot>, answers: Vec<Result<Option<Arc<Pod>>, Fault>>, berth_uid: &str) -> Round {
    let mut round = Round::default();
    let mut answers = answers.into_iter();
    for slot in slots {
        let answer = answers.next().unwrap_or(Err(Fault::NotSent));
        round.judge_one(slot, answer, berth_uid);
    }
    round
}

impl Round {
    fn judge_one(&mut self, slot: Slot, answer: Result<Option<Arc<Pod>>, Fault>, berth_uid: &str) {
        match answer {
            Ok(Some(found)) if owner_uid(&found.metadata) == Some(berth_uid) => self.made.push(found),
            Ok(Some(_)) => self.refuse(name_taken(&slot.pod)),
            // A read that finds nothing: the creation was not done.
            Ok(None) => self.open.push(Slot { unknown: false, ..slot }),
            Err(Fault::NotFound) if slot.unknown => self.open.push(Slot { unknown: false, ..slot }),
            Err(Fault::NotFound) => {
                self.refuse(Refusal {
                    status: 404,
                    reason: "NotFound".into(),
                    message: "the namespace is gone".into(),
                });
            }
            Err(Fault::Refused(refusal)) => self.refuse(refusal),
            Err(fault @ (Fault::Busy(_) | Fault::NotSent)) => {
                self.trouble = fault.to_string();
                self.open.push(slot);
            }
            Err(fault) => {
                self.trouble = fault.to_string();
                self.open.push(Slot { unknown: true, ..slot });
            }
        }
    }

    fn refuse(&mut self, refusal: Refusal) {
        self.refusal.get_or_insert(refusal);
    }
}

fn name_taken(pod: &Pod) -> Refusal {
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    Refusal { status: 409, reason: "PodNameTaken".into(), message: format!("pod {name} belongs to somebody else") }
}
