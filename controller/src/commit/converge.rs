//! What a Berth still needs, seen from any point after any crash: the operation that brings the world closer to what is
//! journaled, or none. The same answer whoever asks and however often.

use super::operation::{Journal, OnRefusal, Operation};
use super::request::{Companion, Member};
use super::{is_terminal, member};
use crds::names::finalizers;
use crds::v1alpha1::{BerthState, Stopping};
use crds::{Berth, Code, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use std::collections::BTreeSet;
use std::sync::Arc;

/// A Berth with all that exists of it.
#[derive(Debug)]
pub struct Sight<'a> {
    /// The Berth.
    pub berth: &'a Arc<Berth>,
    /// The pods it owns.
    pub pods: Vec<Arc<Pod>>,
    /// Pods that its assignments ask for and that were never made (or were lost), due now.
    pub missing: Vec<Arc<Pod>>,
    /// What those need beside them.
    pub companions: Vec<Companion>,
    /// Whether a definite refusal of a missing pod takes the whole gang back.
    pub all_or_nothing: bool,
    /// Seconds between the stop signal and the kill.
    pub grace_seconds: u32,
    /// Uids of pods whose node is lost: nobody is there to stop them, so they are removed by force.
    pub unattended: BTreeSet<String>,
    /// Now.
    pub now: Timestamp,
}

/// The next operation for a Berth.
#[must_use]
pub fn converge(sight: Sight<'_>) -> Option<Operation> {
    let berth = sight.berth;
    let spec = &berth.spec;
    let going = berth.metadata.deletion_timestamp.is_some();
    match spec.state {
        BerthState::Released => released(&sight),
        BerthState::Reserved if going => Some(release(berth, sight.now)),
        BerthState::Reserved => None,
        BerthState::Committed if spec.stopping.is_some() => leave(&sight),
        BerthState::Committed if going => Some(stop(berth, &format!("{}({})", Code::Deleted, spec.job), &sight)),
        BerthState::Committed => complete(sight),
    }
}

/// Marks a Berth and tells its pods to go.
#[must_use]
pub fn stop(berth: &Arc<Berth>, cause: &str, sight: &Sight<'_>) -> Operation {
    let mut next = (**berth).clone();
    next.spec.stopping = Some(Stopping {
        cause: cause.to_owned(),
        at: sight.now,
        grace_period_seconds: Some(i64::from(sight.grace_seconds)),
    });
    let journal = Journal::Update { berth: Arc::new(next), base: Box::new(berth.spec.clone()) };
    Operation { delete: staying(sight), ..empty(berth, journal, sight.now) }
}

/// Gives a Berth back: only when the server itself says that no pod of it is left.
#[must_use]
pub fn release(berth: &Arc<Berth>, now: Timestamp) -> Operation {
    let mut next = (**berth).clone();
    next.spec.state = BerthState::Released;
    if let Some(all) = next.metadata.finalizers.as_mut() {
        all.retain(|f| f != finalizers::BERTH);
    }
    let journal = Journal::Update { berth: Arc::new(next), base: Box::new(berth.spec.clone()) };
    let verify_gone = !crate::sabotage::is(crate::sabotage::Sabotage::ReleaseEarly);
    Operation { verify_gone, ..empty(berth, journal, now) }
}

/// An operation that does nothing but journal.
#[must_use]
pub fn empty(berth: &Berth, journal: Journal, now: Timestamp) -> Operation {
    Operation {
        namespace: berth.metadata.namespace.clone().unwrap_or_default(),
        decided_at: now,
        verify_gone: false,
        journal,
        probes: Vec::new(),
        planned: Vec::new(),
        companions: Vec::new(),
        claims: Vec::new(),
        delete: Vec::new(),
        create: Vec::new(),
        on_refusal: OnRefusal::Keep,
    }
}

/// A released Berth has no finalizer and no pods: late ones go.
fn released(sight: &Sight<'_>) -> Option<Operation> {
    let berth = sight.berth;
    let delete = staying(sight);
    if !delete.is_empty() {
        return Some(Operation { delete, ..empty(berth, Journal::Standing(berth.clone()), sight.now) });
    }
    let held = berth.metadata.finalizers.iter().flatten().any(|f| f == finalizers::BERTH);
    (held && !sight.pods.iter().any(|p| !is_terminal(p))).then(|| release(berth, sight.now))
}

/// A Berth on its way out: pods that do not know it yet are told; when none is left it is given back.
fn leave(sight: &Sight<'_>) -> Option<Operation> {
    let delete = staying(sight);
    if !delete.is_empty() {
        return Some(Operation { delete, ..empty(sight.berth, Journal::Standing(sight.berth.clone()), sight.now) });
    }
    let gone = sight.pods.iter().all(|p| is_terminal(p));
    let early = crate::sabotage::is(crate::sabotage::Sabotage::ReleaseEarly);
    (gone || early).then(|| release(sight.berth, sight.now))
}

/// A Berth that stands: what is missing is made.
fn complete(sight: Sight<'_>) -> Option<Operation> {
    if sight.missing.is_empty() {
        return None;
    }
    let on_refusal =
        if sight.all_or_nothing { OnRefusal::RollBack { grace_seconds: sight.grace_seconds } } else { OnRefusal::Keep };
    Some(Operation {
        companions: sight.companions,
        create: sight.missing,
        on_refusal,
        ..empty(sight.berth, Journal::Standing(sight.berth.clone()), sight.now)
    })
}

/// Pods that run and were not told to go; and those that nobody is there to stop, whatever they were told.
fn staying(sight: &Sight<'_>) -> Vec<Member> {
    let unattended = |p: &Pod| p.metadata.uid.as_ref().is_some_and(|uid| sight.unattended.contains(uid));
    let spared = usize::from(crate::sabotage::is(crate::sabotage::Sabotage::StopHalf));
    sight
        .pods
        .iter()
        .skip(spared)
        .filter(|p| !is_terminal(p) && (p.metadata.deletion_timestamp.is_none() || unattended(p)))
        .map(|p| member(p, Some(if unattended(p) { 0 } else { sight.grace_seconds })))
        .collect()
}
