//! A small in-memory API server for the protocol's own tests: names, uids, resourceVersions, preconditions, and faults by
//! the index of the call. It asserts on every call what must never be asked.

use super::request::{Answer, Companion, Fault, PodCall, Refusal, Request, Selection};
use super::{is_terminal, owner_uid};
use crds::Berth;
use crds::v1alpha1::BerthState;
use k8s_openapi::api::core::v1::Pod;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What goes wrong with one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trouble {
    /// The process dies before the call is sent.
    CrashBefore,
    /// The process dies after the call was done.
    CrashAfter,
    /// Done, but the answer is lost.
    LostDone,
    /// Not done, and no answer.
    LostNotDone,
    /// No answer, and done only when everybody has given up waiting.
    LostLate,
    /// 422 and the like.
    Refused,
    /// 429.
    Busy,
    /// Somebody else's write came between.
    Conflict,
    /// Leadership ended.
    Fenced,
}

pub(super) const TROUBLES: [Trouble; 9] = [
    Trouble::CrashBefore,
    Trouble::CrashAfter,
    Trouble::LostDone,
    Trouble::LostNotDone,
    Trouble::LostLate,
    Trouble::Refused,
    Trouble::Busy,
    Trouble::Conflict,
    Trouble::Fenced,
];

#[derive(Clone, Debug, Default)]
pub(super) struct World {
    pub(super) berths: BTreeMap<String, Berth>,
    pub(super) pods: BTreeMap<String, Pod>,
    pub(super) services: BTreeMap<String, Option<String>>,
    pub(super) claims: BTreeMap<String, String>,
    pub(super) refreshed: usize,
    pub(super) calls: usize,
    pub(super) faults: Vec<(usize, Trouble)>,
    pub(super) refused: bool,
    pub(super) late: Vec<Arc<Pod>>,
    pub(super) serial: u64,
}

/// The process died.
#[derive(Debug)]
pub(super) struct Crash;

type PodAnswer = Result<Option<Arc<Pod>>, Fault>;

impl World {
    pub(super) fn answer(&mut self, request: Request) -> Result<Answer, Crash> {
        Ok(match request {
            Request::CreateBerth(berth) => Answer::Berth(self.one(true, |w| w.create_berth(&berth))?),
            Request::UpdateBerth(berth) => Answer::Berth(self.one(true, |w| w.update_berth(&berth))?),
            Request::ReadBerth { name, .. } => {
                Answer::Berth(self.one(false, |w| w.berths.get(&name).cloned().map(Arc::new).ok_or(Fault::NotFound))?)
            }
            Request::DeleteBerth { name, uid, resource_version, .. } => {
                Answer::Done(self.one(true, |w| w.delete_berth(&name, &uid, &resource_version))?)
            }
            Request::CreateCompanion(companion) => Answer::Done(self.one(true, |w| w.create_companion(&companion))?),
            Request::ReadCompanion(companion) => {
                let name = companion.metadata().name.clone().expect("named");
                Answer::Companion(self.one(false, |w| w.services.get(&name).cloned().ok_or(Fault::NotFound))?)
            }
            Request::Probe(pod) => Answer::Probed(self.one(true, |w| w.probe(&pod).map(|()| pod.clone()))?),
            Request::RefreshCompanion(companion) => Answer::Done(self.one(true, |w| w.refresh_companion(&companion))?),
            Request::SelectNode(selection) => Answer::Done(self.one(true, |w| w.select_node(&selection))?),
            Request::ListPods { berth, .. } => Answer::Listed(self.one(false, |w| {
                let label = |p: &Pod| p.metadata.labels.as_ref().and_then(|l| l.get("berth.dev/berth").cloned());
                Ok(w.pods.values().filter(|p| label(p).as_ref() == Some(&berth)).cloned().map(Arc::new).collect())
            })?),
            Request::Pods(calls) => {
                let mut answers = Vec::new();
                for call in calls {
                    answers.push(self.pod_call(&call)?);
                }
                Answer::Pods(answers)
            }
        })
    }

    /// One call with its fault, if it has one.
    fn one<T>(
        &mut self,
        is_write: bool,
        done: impl FnOnce(&mut Self) -> Result<T, Fault>,
    ) -> Result<Result<T, Fault>, Crash> {
        let fault = self.faults.iter().find(|(at, _)| *at == self.calls).map(|(_, t)| *t);
        self.calls += 1;
        let lost = || Err(Fault::Unknown("lost".into()));
        Ok(match fault {
            None => done(self),
            Some(Trouble::CrashBefore) => return Err(Crash),
            Some(Trouble::CrashAfter) => {
                let _ = done(self);
                return Err(Crash);
            }
            Some(Trouble::LostDone | Trouble::LostLate) => {
                let _ = done(self);
                lost()
            }
            Some(Trouble::LostNotDone) => lost(),
            Some(Trouble::Busy) => Err(Fault::Busy(std::time::Duration::ZERO)),
            Some(Trouble::Fenced) => Err(Fault::Fenced),
            Some(Trouble::Refused) if is_write => {
                self.refused = true;
                Err(Fault::Refused(Refusal {
                    status: 403,
                    reason: "Forbidden".into(),
                    message: "exceeded quota: q".into(),
                }))
            }
            Some(Trouble::Conflict) if is_write => {
                // Somebody touched the objects: their resourceVersions are new.
                let serial = self.next();
                for berth in self.berths.values_mut() {
                    berth.metadata.resource_version = Some(serial.clone());
                }
                done(self)
            }
            Some(Trouble::Refused | Trouble::Conflict) => done(self),
        })
    }

    fn pod_call(&mut self, call: &PodCall) -> Result<PodAnswer, Crash> {
        let is_late = self.faults.contains(&(self.calls, Trouble::LostLate));
        match call {
            PodCall::Create(pod) if is_late => {
                self.calls += 1;
                self.late.push(pod.clone());
                Ok(Err(Fault::Unknown("lost".into())))
            }
            PodCall::Create(pod) => self.one(true, |w| w.create_pod(pod)),
            PodCall::Read { name, .. } => {
                self.one(false, |w| w.pods.get(name).cloned().map(|p| Some(Arc::new(p))).ok_or(Fault::NotFound))
            }
            PodCall::Delete(member) => self.one(true, |w| w.delete_pod(&member.name, &member.uid)),
        }
    }

    fn next(&mut self) -> String {
        self.serial += 1;
        self.serial.to_string()
    }

    fn create_berth(&mut self, berth: &Berth) -> Result<Arc<Berth>, Fault> {
        let name = berth.metadata.name.clone().expect("named");
        if self.berths.contains_key(&name) {
            return Err(Fault::Exists);
        }
        let mut berth = berth.clone();
        berth.metadata.uid = Some(format!("uid-{}", self.next()));
        berth.metadata.resource_version = Some(self.next());
        self.berths.insert(name, berth.clone());
        Ok(Arc::new(berth))
    }

    fn update_berth(&mut self, berth: &Berth) -> Result<Arc<Berth>, Fault> {
        let name = berth.metadata.name.clone().expect("named");
        let Some(there) = self.berths.get(&name) else { return Err(Fault::NotFound) };
        if there.metadata.uid != berth.metadata.uid
            || there.metadata.resource_version != berth.metadata.resource_version
        {
            return Err(Fault::Conflict);
        }
        assert_ne!(there.spec.state, BerthState::Released, "a released Berth is not written again: {berth:?}");
        if berth.spec.state == BerthState::Released {
            let uid = there.metadata.uid.clone();
            let left =
                self.pods.values().filter(|p| owner_uid(&p.metadata) == uid.as_deref() && !is_terminal(p)).count();
            assert_eq!(left, 0, "room is given back only when the pods are gone");
        }
        let mut berth = berth.clone();
        berth.metadata.resource_version = Some(self.next());
        self.berths.insert(name, berth.clone());
        Ok(Arc::new(berth))
    }

    fn delete_berth(&mut self, name: &str, uid: &str, resource_version: &str) -> Result<(), Fault> {
        let Some(there) = self.berths.get(name) else { return Err(Fault::NotFound) };
        if there.metadata.uid.as_deref() != Some(uid)
            || there.metadata.resource_version.as_deref() != Some(resource_version)
        {
            return Err(Fault::Conflict);
        }
        self.berths.remove(name);
        Ok(())
    }

    fn create_companion(&mut self, companion: &Companion) -> Result<(), Fault> {
        let name = companion.metadata().name.clone().expect("named");
        if self.services.contains_key(&name) {
            return Err(Fault::Exists);
        }
        self.services.insert(name, companion.owner_uid().map(str::to_owned));
        Ok(())
    }

    fn refresh_companion(&mut self, companion: &Companion) -> Result<(), Fault> {
        let name = companion.metadata().name.clone().expect("named");
        assert_eq!(
            self.services.get(&name),
            Some(&companion.owner_uid().map(str::to_owned)),
            "only what is ours is written"
        );
        self.refreshed += 1;
        Ok(())
    }

    fn select_node(&mut self, selection: &Selection) -> Result<(), Fault> {
        assert!(self.pods.is_empty(), "a claim's node is chosen before any pod is made");
        self.claims.insert(selection.name.clone(), selection.node.clone());
        Ok(())
    }

    fn probe(&self, pod: &Pod) -> Result<(), Fault> {
        if self.pods.contains_key(pod.metadata.name.as_deref().expect("named")) { Err(Fault::Exists) } else { Ok(()) }
    }

    fn create_pod(&mut self, pod: &Pod) -> PodAnswer {
        let name = pod.metadata.name.clone().expect("named");
        let owner = owner_uid(&pod.metadata).expect("every pod of ours is owned").to_owned();
        let berth = self.berths.values().find(|b| b.metadata.uid.as_deref() == Some(&owner));
        let berth = berth.expect("a pod is made only after its Berth was journaled");
        assert_eq!(berth.spec.state, BerthState::Committed, "a pod is made only under a committed Berth");
        assert!(berth.spec.stopping.is_none(), "no pod is made under a Berth on its way out");
        if self.pods.contains_key(&name) {
            return Err(Fault::Exists);
        }
        Ok(Some(Arc::new(self.store_pod(pod))))
    }

    fn store_pod(&mut self, pod: &Pod) -> Pod {
        let mut pod = pod.clone();
        pod.metadata.uid = Some(format!("pod-{}", self.next()));
        self.pods.insert(pod.metadata.name.clone().expect("named"), pod.clone());
        pod
    }

    fn delete_pod(&mut self, name: &str, uid: &str) -> PodAnswer {
        let Some(pod) = self.pods.get(name) else { return Err(Fault::NotFound) };
        if pod.metadata.uid.as_deref() != Some(uid) {
            return Err(Fault::Conflict);
        }
        let owner = owner_uid(&pod.metadata).expect("owned").to_owned();
        if let Some(berth) = self.berths.values().find(|b| b.metadata.uid.as_deref() == Some(&owner)) {
            assert!(berth.spec.stopping.is_some(), "no pod is deleted unless its Berth was marked first");
        }
        self.pods.remove(name);
        Ok(None)
    }

    /// What came too late for everybody lands now.
    pub(super) fn land_late(&mut self) {
        for pod in std::mem::take(&mut self.late) {
            if !self.pods.contains_key(pod.metadata.name.as_deref().expect("named")) {
                self.store_pod(&pod);
            }
        }
    }
}
