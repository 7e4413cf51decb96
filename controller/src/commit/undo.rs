//! Taking a start back: mark the Berth, list its pods from the server itself, delete each by uid. Never forgotten: what
//! does not succeed here ends as [`Undo::Failed`] and is begun anew by the owner.

use super::machine::{Machine, Next, State, still_there};
use super::operation::{OnRefusal, Outcome, Stage, Undo};
use super::request::{Answer, Fault, Member, PodCall, Refusal, Request};
use super::{is_terminal, member, owner_uid};
use crds::v1alpha1::{BerthState, Stopping};
use crds::{Berth, Code, names::finalizers};
use k8s_openapi::api::core::v1::Pod;
use std::sync::Arc;

/// A start that is being taken back.
#[derive(Clone, Debug)]
pub(super) struct Undoing {
    pub(super) stage: Stage,
    pub(super) refusal: Refusal,
    /// No pod of it was ever asked for.
    untouched: bool,
    at: At,
}

#[derive(Clone, Debug)]
enum At {
    Mark,
    Reread,
    List,
    Delete(Vec<Member>),
}

impl Undoing {
    pub(super) fn begin(stage: Stage, refusal: Refusal, untouched: bool) -> Self {
        Self { stage, refusal, untouched, at: At::Mark }
    }

    fn at(self, at: At) -> State {
        State::Undo(Box::new(Self { at, ..self }))
    }

    fn end(self, machine: Machine, undo: Undo) -> Next {
        machine.end(Outcome::Refused { stage: self.stage, refusal: self.refusal, undo })
    }
}

pub(super) fn request(machine: &Machine, undoing: &Undoing) -> Request {
    let namespace = machine.operation.namespace.clone();
    let name = machine.berth.as_ref().and_then(|b| b.metadata.name.clone()).unwrap_or_default();
    match &undoing.at {
        At::Mark => Request::UpdateBerth(Arc::new(marked(machine, undoing))),
        At::Reread => Request::ReadBerth { namespace, name },
        At::List => Request::ListPods { namespace, berth: name },
        At::Delete(members) => Request::Pods(members.iter().cloned().map(PodCall::Delete).collect()),
    }
}

pub(super) fn step(mut machine: Machine, undoing: Undoing, answer: Answer) -> Next {
    match (undoing.at.clone(), answer) {
        (At::Mark, Answer::Berth(written)) => mark_answered(machine, undoing, written),
        (At::Reread, Answer::Berth(read)) => reread(machine, undoing, read),
        (At::List, Answer::Listed(pods)) => listed(machine, undoing, pods),
        (At::Delete(asked), Answer::Pods(answers)) => {
            machine.note_leaving(&answers);
            let (left, trouble) = still_there(asked, &answers);
            if left.is_empty() {
                undoing.end(machine, Undo::Leaving)
            } else {
                machine.retry(undoing.at(At::Delete(left)), &trouble)
            }
        }
        (_, _) => undoing.end(machine, Undo::Failed),
    }
}

fn mark_answered(mut machine: Machine, undoing: Undoing, written: Result<Arc<Berth>, Fault>) -> Next {
    match written {
        Ok(berth) => {
            let released = berth.spec.state == BerthState::Released;
            machine.berth = Some(berth);
            if released { undoing.end(machine, Undo::Released) } else { machine.go(undoing.at(At::List)) }
        }
        // Somebody removed the Berth: its pods have lost their owner and go all the same.
        Err(Fault::NotFound) => machine.go(undoing.at(At::List)),
        Err(Fault::Refused(_)) => undoing.end(machine, Undo::Failed),
        Err(fault @ (Fault::Busy(_) | Fault::NotSent)) => machine.retry(undoing.at(At::Mark), &fault.to_string()),
        Err(fault) => machine.retry(undoing.at(At::Reread), &fault.to_string()),
    }
}

fn reread(mut machine: Machine, undoing: Undoing, read: Result<Arc<Berth>, Fault>) -> Next {
    match read {
        Ok(found) => {
            let ours = machine.berth.as_ref().is_some_and(|b| b.metadata.uid == found.metadata.uid);
            if !ours {
                return machine.go(undoing.at(At::List));
            }
            let released = found.spec.state == BerthState::Released;
            let stopping = found.spec.stopping.is_some();
            machine.berth = Some(found);
            if released && undoing.untouched {
                undoing.end(machine, Undo::Released)
            } else if released || stopping {
                machine.go(undoing.at(At::List))
            } else {
                machine.retry(undoing.at(At::Mark), "the Berth changed meanwhile")
            }
        }
        Err(Fault::NotFound) => machine.go(undoing.at(At::List)),
        Err(fault) => machine.retry(undoing.at(At::Reread), &fault.to_string()),
    }
}

fn listed(machine: Machine, undoing: Undoing, pods: Result<Vec<Arc<Pod>>, Fault>) -> Next {
    match pods {
        Ok(pods) => {
            let uid = machine.berth.as_ref().and_then(|b| b.metadata.uid.clone());
            let grace = grace(&machine);
            let members: Vec<Member> = pods
                .iter()
                .filter(|p| owner_uid(&p.metadata) == uid.as_deref() && !is_terminal(p))
                .map(|p| member(p, Some(grace)))
                .collect();
            if members.is_empty() {
                undoing.end(machine, Undo::Leaving)
            } else {
                machine.go(undoing.at(At::Delete(members)))
            }
        }
        Err(fault) => machine.retry(undoing.at(At::List), &fault.to_string()),
    }
}

fn grace(machine: &Machine) -> u32 {
    match machine.operation.on_refusal {
        OnRefusal::RollBack { grace_seconds, .. } => grace_seconds,
        OnRefusal::Keep => 0,
    }
}

/// The Berth as it is marked: on its way out, or given back at once where nothing was made.
fn marked(machine: &Machine, undoing: &Undoing) -> Berth {
    let berth = machine.berth.as_ref().expect("only what was journaled is taken back");
    let mut next = (**berth).clone();
    next.spec.stopping = Some(Stopping {
        cause: cause(&undoing.refusal),
        at: machine.operation.decided_at,
        grace_period_seconds: Some(i64::from(grace(machine))),
    });
    if undoing.untouched {
        next.spec.state = BerthState::Released;
        if let Some(all) = next.metadata.finalizers.as_mut() {
            all.retain(|f| f != finalizers::BERTH);
        }
    }
    next
}

/// `Code(the server's words)`, short enough to read in a column.
pub(super) fn cause(refusal: &Refusal) -> String {
    let code = if refusal.is_quota() { Code::NamespaceQuota } else { Code::PodRefused };
    let mut message = refusal.message.clone();
    if let Some((at, _)) = message.char_indices().nth(200) {
        message.truncate(at);
        message.push('…');
    }
    format!("{code}({message})")
}
