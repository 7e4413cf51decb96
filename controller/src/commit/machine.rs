//! The protocol as a step machine without I/O, clock or randomness. A crash between any two requests is an index.

use super::create::{self, Round, Slot};
use super::operation::{Journal, OnRefusal, Operation, Outcome, POD_CHANGED, Stage, Undo};
use super::request::{Answer, Call, Companion, Fault, Member, PodCall, Refusal, Request};
use super::undo::{self, Undoing};
use super::{is_terminal, owner_uid};
use crds::{Berth, v1alpha1::BerthSpec};
use k8s_openapi::api::core::v1::Pod;
use std::sync::Arc;
use std::time::Duration;

/// Tries of one request without any progress before the operation gives up and is begun anew later (about 4 s).
const TRIES: u32 = 6;

/// One operation on its way.
#[derive(Clone, Debug)]
pub struct Machine {
    pub(super) operation: Operation,
    pub(super) state: State,
    /// The Berth as last seen.
    pub(super) berth: Option<Arc<Berth>>,
    /// Pods as last seen: made, adopted, or on their way out.
    pub(super) made: Vec<Arc<Pod>>,
    pub(super) tries: u32,
    /// The Berth was written by this very operation, so nobody can have made pods of it before.
    own_journal: bool,
}

/// The request that is out.
#[derive(Clone, Debug)]
pub(super) enum State {
    Verify,
    Journal,
    JournalRead,
    Probe(usize),
    Prepare(usize),
    PrepareRead(usize),
    Refresh(usize),
    Select(usize),
    Delete(Vec<Member>),
    Create(Vec<Slot>),
    Undo(Box<Undoing>),
    Ended(Box<Outcome>),
}

pub(super) type Next = (Machine, Option<Call>);

impl Machine {
    /// Begins an operation: the machine and its first request.
    #[must_use]
    pub fn begin(operation: Operation) -> Next {
        let berth = match &operation.journal {
            Journal::Create(_) => None,
            Journal::Update { berth, .. } | Journal::Standing(berth) | Journal::Delete(berth) => Some(berth.clone()),
        };
        let state = if operation.verify_gone { State::Verify } else { State::Journal };
        let machine = Self { operation, state, berth, made: Vec::new(), tries: 0, own_journal: false };
        if let Journal::Create(berth) = &machine.operation.journal
            && !machine.operation.create.is_empty()
            && crate::sabotage::is(crate::sabotage::Sabotage::SkipJournal)
        {
            let mut made = (**berth).clone();
            made.metadata.uid = Some("never-written".to_owned());
            return Self { berth: Some(Arc::new(made)), ..machine }.after_journal();
        }
        if !machine.operation.verify_gone && matches!(machine.operation.journal, Journal::Standing(_)) {
            return machine.after_journal();
        }
        machine.ask()
    }

    /// What the machine does with an answer.
    #[must_use]
    pub fn step(self, answer: Answer) -> Next {
        if is_fenced(&answer) {
            return self.end(Outcome::Fenced);
        }
        match (self.state.clone(), answer) {
            (State::Verify, Answer::Listed(pods)) => self.verified(pods),
            (State::Journal, Answer::Berth(written)) => self.journaled(written),
            (State::Journal, Answer::Done(deleted)) => self.deleted_berth(deleted),
            (State::JournalRead, Answer::Berth(read)) => self.journal_read(read),
            (State::Probe(at), Answer::Probed(verdict)) => self.probed(at, verdict),
            (State::Prepare(at), Answer::Done(made)) => self.prepared(at, made),
            (State::PrepareRead(at), Answer::Companion(owner)) => self.prepare_read(at, owner),
            (State::Refresh(at), Answer::Done(made)) => self.refreshed(at, made),
            (State::Select(at), Answer::Done(chosen)) => self.selected(at, chosen),
            (State::Delete(asked), Answer::Pods(answers)) => self.deleted(asked, &answers),
            (State::Create(slots), Answer::Pods(answers)) => self.created(slots, answers),
            (State::Undo(undoing), answer) => undo::step(self, *undoing, answer),
            (State::Ended(_), _) => (self, None),
            (state, answer) => {
                // The executor answers in the request's own variant; anything else is a fault of ours, not the server's.
                let stage = state.stage();
                let message = format!("the answer {answer:?} does not belong to the request");
                self.end(Outcome::Stalled { stage, message })
            }
        }
    }

    /// How it ended, once it has.
    #[must_use]
    pub fn outcome(&self) -> Option<&Outcome> {
        match &self.state {
            State::Ended(outcome) => Some(outcome),
            _ => None,
        }
    }

    /// The Berth as last seen.
    #[must_use]
    pub fn berth(&self) -> Option<&Arc<Berth>> {
        self.berth.as_ref()
    }

    /// The pods seen to exist.
    #[must_use]
    pub fn made(&self) -> &[Arc<Pod>] {
        &self.made
    }

    /// The request of the present state.
    pub(super) fn ask(self) -> Next {
        let namespace = self.operation.namespace.clone();
        let request = match &self.state {
            State::Verify => Request::ListPods { namespace, berth: self.berth_name() },
            State::Journal => self.journal_request(),
            State::JournalRead => Request::ReadBerth { namespace, name: self.berth_name() },
            State::Probe(at) => Request::Probe(self.owned(&self.operation.probes[*at])),
            State::Prepare(at) => Request::CreateCompanion(self.operation.companions[*at].clone()),
            State::PrepareRead(at) => Request::ReadCompanion(self.operation.companions[*at].clone()),
            State::Refresh(at) => Request::RefreshCompanion(self.operation.companions[*at].clone()),
            State::Select(at) => Request::SelectNode(self.operation.claims[*at].clone()),
            State::Delete(members) => Request::Pods(members.iter().cloned().map(PodCall::Delete).collect()),
            State::Create(slots) => Request::Pods(create::calls(slots)),
            State::Undo(undoing) => undo::request(&self, undoing),
            State::Ended(_) => return (self, None),
        };
        let call = Call { after: pause(self.tries), request };
        (self, Some(call))
    }

    /// Goes on to a state and asks its request for the first time.
    pub(super) fn go(mut self, state: State) -> Next {
        self.state = state;
        self.tries = 0;
        self.ask()
    }

    /// Stays or goes to a state after trouble; gives up after too many tries.
    pub(super) fn retry(mut self, state: State, trouble: &str) -> Next {
        self.tries += 1;
        if self.tries >= TRIES {
            let stage = state.stage();
            return match state {
                State::Undo(undoing) => {
                    let Undoing { stage, refusal, .. } = *undoing;
                    self.end(Outcome::Refused { stage, refusal, undo: Undo::Failed })
                }
                _ => self.end(Outcome::Stalled { stage, message: trouble.to_owned() }),
            };
        }
        self.state = state;
        self.ask()
    }

    pub(super) fn end(mut self, outcome: Outcome) -> Next {
        self.state = State::Ended(Box::new(outcome));
        (self, None)
    }

    fn berth_name(&self) -> String {
        let berth = match &self.operation.journal {
            Journal::Create(berth) => berth,
            Journal::Update { berth, .. } | Journal::Standing(berth) | Journal::Delete(berth) => berth,
        };
        berth.metadata.name.clone().unwrap_or_default()
    }

    // --- verify ---

    fn verified(self, pods: Result<Vec<Arc<Pod>>, Fault>) -> Next {
        match pods {
            Ok(pods) => {
                let uid = self.berth.as_ref().and_then(|b| b.metadata.uid.clone());
                let left = pods.iter().filter(|p| owner_uid(&p.metadata) == uid.as_deref() && !is_terminal(p)).count();
                if left > 0 {
                    return self.end(Outcome::PodsRemain(left));
                }
                if matches!(self.operation.journal, Journal::Standing(_)) {
                    self.after_journal()
                } else {
                    self.go(State::Journal)
                }
            }
            Err(fault) => self.retry(State::Verify, &fault.to_string()),
        }
    }

    // --- journal ---

    fn journal_request(&self) -> Request {
        match &self.operation.journal {
            Journal::Create(berth) => Request::CreateBerth(berth.clone()),
            Journal::Update { berth, .. } => Request::UpdateBerth(berth.clone()),
            Journal::Standing(berth) | Journal::Delete(berth) => Request::DeleteBerth {
                namespace: self.operation.namespace.clone(),
                name: self.berth_name(),
                uid: berth.metadata.uid.clone().unwrap_or_default(),
                resource_version: berth.metadata.resource_version.clone().unwrap_or_default(),
            },
        }
    }

    fn journaled(mut self, written: Result<Arc<Berth>, Fault>) -> Next {
        match written {
            Ok(berth) => {
                self.berth = Some(berth);
                self.own_journal = matches!(self.operation.journal, Journal::Create(_));
                self.after_journal()
            }
            Err(Fault::NotFound) if matches!(self.operation.journal, Journal::Update { .. }) => {
                self.end(Outcome::BerthGone)
            }
            Err(Fault::NotFound) => {
                let refusal =
                    Refusal { status: 404, reason: "NotFound".into(), message: "the namespace is gone".into() };
                self.end(Outcome::Refused { stage: Stage::Journal, refusal, undo: Undo::Nothing })
            }
            Err(Fault::Refused(refusal)) => {
                self.end(Outcome::Refused { stage: Stage::Journal, refusal, undo: Undo::Nothing })
            }
            Err(fault @ (Fault::Busy(_) | Fault::NotSent)) => self.retry(State::Journal, &fault.to_string()),
            // Whoever wrote it, what stands now decides.
            Err(fault) => self.retry(State::JournalRead, &fault.to_string()),
        }
    }

    fn journal_read(mut self, read: Result<Arc<Berth>, Fault>) -> Next {
        let found = match read {
            Ok(found) => found,
            Err(Fault::NotFound) => {
                return match &self.operation.journal {
                    Journal::Create(_) => self.retry(State::Journal, "the Berth was not made"),
                    Journal::Delete(_) => {
                        self.berth = None;
                        self.end(Outcome::Done)
                    }
                    _ => self.end(Outcome::BerthGone),
                };
            }
            Err(fault) => return self.retry(State::JournalRead, &fault.to_string()),
        };
        let going = found.metadata.deletion_timestamp.is_some() && !self.operation.create.is_empty();
        match self.operation.journal.clone() {
            Journal::Create(wanted) if found.spec.job_uid != wanted.spec.job_uid => self.end(Outcome::NamesakeLeaving),
            Journal::Create(wanted) if same_decision(&found.spec, &wanted.spec) && !going => self.adopt(found),
            Journal::Create(_) | Journal::Standing(_) => self.lose(found),
            Journal::Update { berth, base } => {
                if found.metadata.uid != berth.metadata.uid || going {
                    self.lose(found)
                } else if same_decision(&found.spec, &berth.spec)
                    && found.metadata.finalizers == berth.metadata.finalizers
                {
                    self.adopt(found)
                } else if same_decision(&found.spec, &base) {
                    // Only status or metadata moved on: the decision we started from still stands.
                    let berth = Arc::new(on_top_of(&found, &berth));
                    self.operation.journal = Journal::Update { berth, base };
                    self.retry(State::Journal, "the Berth changed meanwhile")
                } else {
                    self.lose(found)
                }
            }
            Journal::Delete(berth) if found.metadata.uid != berth.metadata.uid => {
                self.berth = None;
                self.end(Outcome::Done)
            }
            Journal::Delete(berth) if same_decision(&found.spec, &berth.spec) => {
                self.operation.journal = Journal::Delete(found);
                self.retry(State::Journal, "the Berth changed meanwhile")
            }
            Journal::Delete(_) => self.lose(found),
        }
    }

    fn adopt(mut self, found: Arc<Berth>) -> Next {
        self.berth = Some(found);
        self.after_journal()
    }

    fn lose(mut self, found: Arc<Berth>) -> Next {
        self.berth = Some(found.clone());
        self.end(Outcome::Lost(found))
    }

    fn deleted_berth(mut self, deleted: Result<(), Fault>) -> Next {
        match deleted {
            Ok(()) | Err(Fault::NotFound) => {
                self.berth = None;
                self.end(Outcome::Done)
            }
            Err(Fault::Refused(refusal)) => {
                self.end(Outcome::Refused { stage: Stage::Journal, refusal, undo: Undo::Nothing })
            }
            Err(fault @ (Fault::Busy(_) | Fault::NotSent)) => self.retry(State::Journal, &fault.to_string()),
            Err(fault) => self.retry(State::JournalRead, &fault.to_string()),
        }
    }

    fn after_journal(self) -> Next {
        if self.operation.probes.is_empty() { self.after_probes() } else { self.go(State::Probe(0)) }
    }

    // --- probe ---

    fn probed(self, at: usize, verdict: Result<Arc<Pod>, Fault>) -> Next {
        match verdict {
            Ok(pod) if self.outgrown(at, &pod).is_some() => {
                let message = self.outgrown(at, &pod).unwrap_or_default();
                let refusal = Refusal { status: 409, reason: POD_CHANGED.into(), message };
                self.refuse(Stage::Probe, refusal)
            }
            Err(Fault::Refused(refusal)) => self.refuse(Stage::Probe, refusal),
            Err(Fault::NotFound) => self.refuse(Stage::Probe, namespace_gone()),
            // Passed, or inconclusive (busy, slow, no dry run): the creation itself decides.
            _ if at + 1 < self.operation.probes.len() => self.go(State::Probe(at + 1)),
            _ => self.after_probes(),
        }
    }

    /// What a pod takes more than was planned, in words: it would not fit where it is to go.
    fn outgrown(&self, at: usize, pod: &Pod) -> Option<String> {
        let planned = self.operation.planned.get(at)?;
        let takes = translate::PodAsk::of_ours(pod.spec.as_ref()?).ok()?.requests;
        let (name, amount) =
            takes.into_iter().find(|(name, amount)| *amount > planned.get(name).copied().unwrap_or(0))?;
        let known = planned.get(&name).copied().unwrap_or(0);
        let text = |amount| translate::amounts::quantity(&name, amount).0;
        Some(format!("admission makes pods that take {} of {name}; {} were planned", text(amount), text(known)))
    }

    fn after_probes(self) -> Next {
        if self.operation.companions.is_empty() { self.after_prepare() } else { self.go(State::Prepare(0)) }
    }

    // --- prepare ---

    fn prepared(self, at: usize, made: Result<(), Fault>) -> Next {
        match made {
            Ok(()) => self.next_companion(at),
            Err(Fault::Refused(refusal)) => self.refuse(Stage::Prepare, refusal),
            Err(Fault::NotFound) => self.refuse(Stage::Prepare, namespace_gone()),
            Err(Fault::Exists | Fault::Conflict) => self.go(State::PrepareRead(at)),
            Err(fault) => self.retry(State::Prepare(at), &fault.to_string()),
        }
    }

    fn prepare_read(self, at: usize, owner: Result<Option<String>, Fault>) -> Next {
        let job_uid = self.berth.as_ref().map(|b| b.spec.job_uid.clone());
        match owner {
            // A host file lists the members of an incarnation; the others never change.
            Ok(owner) if owner == job_uid => match self.operation.companions[at] {
                Companion::ConfigMap(_) => self.go(State::Refresh(at)),
                _ => self.next_companion(at),
            },
            Ok(_) => {
                let companion = &self.operation.companions[at];
                let name = companion.metadata().name.clone().unwrap_or_default();
                let message = format!("{} {name} belongs to somebody else", companion.kind());
                self.refuse(Stage::Prepare, Refusal { status: 409, reason: "ServiceNameTaken".into(), message })
            }
            Err(Fault::NotFound) => self.retry(State::Prepare(at), "it vanished"),
            Err(fault) => self.retry(State::PrepareRead(at), &fault.to_string()),
        }
    }

    fn refreshed(self, at: usize, made: Result<(), Fault>) -> Next {
        match made {
            Ok(()) => self.next_companion(at),
            Err(Fault::Refused(refusal)) => self.refuse(Stage::Prepare, refusal),
            Err(Fault::NotFound) => self.retry(State::Prepare(at), "it vanished"),
            Err(fault) => self.retry(State::Refresh(at), &fault.to_string()),
        }
    }

    fn next_companion(self, at: usize) -> Next {
        if at + 1 < self.operation.companions.len() { self.go(State::Prepare(at + 1)) } else { self.after_prepare() }
    }

    fn after_prepare(self) -> Next {
        if self.operation.claims.is_empty() { self.after_claims() } else { self.go(State::Select(0)) }
    }

    /// A claim that changed hands, or is gone, fails the start; a choice made twice is the same choice.
    fn selected(self, at: usize, chosen: Result<(), Fault>) -> Next {
        match chosen {
            Ok(()) if at + 1 < self.operation.claims.len() => self.go(State::Select(at + 1)),
            Ok(()) => self.after_claims(),
            Err(Fault::Refused(refusal)) => self.refuse(Stage::Prepare, refusal),
            Err(Fault::NotFound | Fault::Conflict | Fault::Exists) => {
                let message = format!("claim {} is not there any more", self.operation.claims[at].name);
                self.refuse(Stage::Prepare, Refusal { status: 404, reason: "ClaimGone".into(), message })
            }
            Err(fault) => self.retry(State::Select(at), &fault.to_string()),
        }
    }

    fn after_claims(self) -> Next {
        let members = self.operation.delete.clone();
        if members.is_empty() { self.after_deletes() } else { self.go(State::Delete(members)) }
    }

    // --- delete ---

    fn deleted(mut self, asked: Vec<Member>, answers: &[Result<Option<Arc<Pod>>, Fault>]) -> Next {
        self.note_leaving(answers);
        if let Some(Fault::Refused(refusal)) = answers.iter().find_map(|a| a.as_ref().err().filter(|f| is_refusal(f))) {
            let message = refusal.message.clone();
            return self.end(Outcome::Stalled { stage: Stage::Delete, message });
        }
        let (left, trouble) = still_there(asked, answers);
        if left.is_empty() { self.after_deletes() } else { self.retry(State::Delete(left), &trouble) }
    }

    /// Pods on their way out are seen so before any watch shows it.
    pub(super) fn note_leaving(&mut self, answers: &[Result<Option<Arc<Pod>>, Fault>]) {
        let leaving = answers.iter().filter_map(|a| a.as_ref().ok()?.clone());
        self.made.extend(leaving.filter(|p| p.metadata.deletion_timestamp.is_some()));
    }

    fn after_deletes(self) -> Next {
        let slots: Vec<Slot> = self.operation.create.iter().map(|pod| Slot::new(self.owned(pod))).collect();
        if slots.is_empty() { self.end(Outcome::Done) } else { self.go(State::Create(slots)) }
    }

    // --- create ---

    fn created(mut self, slots: Vec<Slot>, answers: Vec<Result<Option<Arc<Pod>>, Fault>>) -> Next {
        let berth_uid = self.berth.as_ref().and_then(|b| b.metadata.uid.clone()).unwrap_or_default();
        let Round { made, open, refusal, trouble } = create::judge(slots, answers, &berth_uid);
        let progress = !made.is_empty();
        self.made.extend(made);
        if let Some(refusal) = refusal {
            return self.refuse(Stage::Create, refusal);
        }
        if open.is_empty() {
            return self.end(Outcome::Done);
        }
        if progress {
            self.tries = 0;
        }
        self.retry(State::Create(open), &trouble)
    }

    /// The pod with its owner: the Berth, by uid.
    fn owned(&self, pod: &Arc<Pod>) -> Arc<Pod> {
        let Some(berth) = &self.berth else { return pod.clone() };
        let mut pod = (**pod).clone();
        pod.metadata.owner_references = Some(vec![super::owner_reference(berth)]);
        Arc::new(pod)
    }

    // --- refusal ---

    /// Takes back what was done, or keeps it, as the operation says.
    fn refuse(self, stage: Stage, refusal: Refusal) -> Next {
        match self.operation.on_refusal {
            OnRefusal::Keep => self.end(Outcome::Refused { stage, refusal, undo: Undo::Nothing }),
            OnRefusal::RollBack { .. } => {
                // A Berth of our own making whose pods were never asked for can be given back in one write.
                let untouched = self.own_journal && stage < Stage::Create;
                let undoing = Undoing::begin(stage, refusal, untouched);
                self.go(State::Undo(Box::new(undoing)))
            }
        }
    }
}

impl State {
    fn stage(&self) -> Stage {
        match self {
            Self::Verify => Stage::Verify,
            Self::Journal | Self::JournalRead | Self::Ended(_) => Stage::Journal,
            Self::Probe(_) => Stage::Probe,
            Self::Prepare(_) | Self::PrepareRead(_) | Self::Refresh(_) | Self::Select(_) => Stage::Prepare,
            Self::Delete(_) => Stage::Delete,
            Self::Create(_) => Stage::Create,
            Self::Undo(_) => Stage::Undo,
        }
    }
}

/// Members whose deletion has to be asked for again, with the last trouble.
pub(super) fn still_there(asked: Vec<Member>, answers: &[Result<Option<Arc<Pod>>, Fault>]) -> (Vec<Member>, String) {
    let mut trouble = String::new();
    let mut left = Vec::new();
    for (at, member) in asked.into_iter().enumerate() {
        match answers.get(at) {
            // A uid that differs means that ours is gone.
            Some(Ok(_) | Err(Fault::NotFound | Fault::Conflict)) => {}
            Some(Err(fault)) => {
                trouble = fault.to_string();
                left.push(member);
            }
            None => left.push(member),
        }
    }
    (left, trouble)
}

/// Equal but for the term of the leader that wrote it.
pub(super) fn same_decision(a: &BerthSpec, b: &BerthSpec) -> bool {
    let mut a = a.clone();
    a.leader_epoch = b.leader_epoch;
    a == *b
}

/// `wanted`, written over the newer version `found` of the same object.
pub(super) fn on_top_of(found: &Berth, wanted: &Berth) -> Berth {
    let mut next = wanted.clone();
    next.metadata.resource_version.clone_from(&found.metadata.resource_version);
    next
}

fn namespace_gone() -> Refusal {
    Refusal { status: 404, reason: "NotFound".into(), message: "the namespace is gone".into() }
}

fn is_refusal(fault: &Fault) -> bool {
    matches!(fault, Fault::Refused(_))
}

fn is_fenced(answer: &Answer) -> bool {
    let fault = match answer {
        Answer::Berth(r) => r.as_ref().err(),
        Answer::Done(r) => r.as_ref().err(),
        Answer::Probed(r) => r.as_ref().err(),
        Answer::Companion(r) => r.as_ref().err(),
        Answer::Listed(r) => r.as_ref().err(),
        Answer::Pods(all) => all.iter().find_map(|r| r.as_ref().err().filter(|f| **f == Fault::Fenced)),
    };
    fault == Some(&Fault::Fenced)
}

/// 50 ms doubling to 2 s.
fn pause(tries: u32) -> Duration {
    if tries == 0 { Duration::ZERO } else { Duration::from_millis((25u64 << tries.min(7)).min(2000)) }
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NotFound => f.write_str("not found"),
            Self::Exists => f.write_str("it exists already"),
            Self::Conflict => f.write_str("it changed meanwhile"),
            Self::Refused(refusal) => f.write_str(&refusal.message),
            Self::Busy(_) => f.write_str("the API server is busy"),
            Self::Unknown(what) => write!(f, "no answer: {what}"),
            Self::Fenced => f.write_str("no longer the leader"),
            Self::NotSent => f.write_str("not sent"),
        }
    }
}
