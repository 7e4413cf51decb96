//! What dry runs said of the pods of waiting jobs: the pod as admission makes it, or why it refuses it, before anything is
//! planned. One answer serves all jobs of a namespace with the same template, until a LimitRange or RuntimeClass changes.

use super::record::Held;
use super::world::World;
use crate::commit::request::{Fault, Refusal};
use crate::watch::asking;
use crds::v1alpha1::TrainingJob;
use crds::{Berth, Code};
use k8s_openapi::api::core::v1::{Pod, PodSpec};
use planner::{Span, Time};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::sync::Arc;
use translate::lifecycle::backoff::doubling;
use translate::lifecycle::pod::template_hash;

/// Answers that are kept before those that nobody needs go.
const KEPT: usize = 4096;
/// A refusal is asked for again after this, doubling.
const AGAIN_FIRST: Span = Span::from_secs(5);
const AGAIN_MAX: Span = Span::from_secs(300);

/// All answers, by what they depend on.
#[derive(Debug, Default)]
pub struct ProbeBook {
    answers: BTreeMap<String, Verdict>,
}

/// One answer.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// What the pod asks for as admission makes it.
    Admitted(Arc<PodSpec>),
    /// A definite no.
    Refused {
        /// As users see it.
        held: Held,
        /// Times in a row.
        times: u32,
    },
    /// No answer, or none that says anything: the template itself counts.
    Unknown,
}

/// A dry run to be made.
#[derive(Clone, Debug)]
pub struct Question {
    /// What its answer depends on.
    pub key: String,
    /// The pod, bound nowhere.
    pub pod: Pod,
}

impl ProbeBook {
    /// Refusals of a namespace by its quotas are asked for again.
    pub fn forget_quota_refusals(&mut self, namespace: &str) {
        self.forget(namespace, |held| held.code == Code::NamespaceQuota);
    }

    /// All refusals of a namespace are asked for again.
    pub fn forget_refusals(&mut self, namespace: &str) {
        self.forget(namespace, |_| true);
    }

    fn forget(&mut self, namespace: &str, which: impl Fn(&Held) -> bool) {
        let prefix = format!("{namespace}/");
        self.answers.retain(|key, verdict| {
            let refused = matches!(verdict, Verdict::Refused { held, .. } if which(held));
            !(refused && key.starts_with(&prefix))
        });
    }

    fn note(&mut self, key: &str, answer: Result<Pod, Fault>, now: Time) {
        let verdict = match answer {
            Ok(pod) => pod.spec.map_or(Verdict::Unknown, |spec| Verdict::Admitted(Arc::new(asking(&spec)))),
            Err(Fault::Refused(refusal)) => self.refused(key, &refusal, now),
            Err(Fault::Fenced) => return,
            Err(_) => Verdict::Unknown,
        };
        self.answers.insert(key.to_owned(), verdict);
    }

    fn refused(&self, key: &str, refusal: &Refusal, now: Time) -> Verdict {
        let times = match self.answers.get(key) {
            Some(Verdict::Refused { times, .. }) => times + 1,
            _ => 1,
        };
        let code = if refusal.is_quota() { Code::NamespaceQuota } else { Code::PodRefused };
        let until = Some(now + doubling(AGAIN_FIRST, AGAIN_MAX, times));
        Verdict::Refused { held: Held { code, message: refusal.message.clone(), until }, times }
    }
}

impl World {
    /// Looks up what is known of a waiting job's pods; what keeps it from being planned, if anything does.
    pub(super) fn look_up_probes(&mut self, key: &str, job: &TrainingJob, now: Time) -> Option<Held> {
        let keys = self.probe_keys(key, job);
        let mut hold = None;
        let (mut asks, mut open) = (Vec::with_capacity(keys.len()), BTreeSet::new());
        for probe in &keys {
            let verdict = self.probes.answers.get(probe);
            asks.push(match verdict {
                Some(Verdict::Admitted(spec)) => Some(spec.clone()),
                _ => None,
            });
            match verdict {
                None => _ = open.insert(probe.clone()),
                Some(Verdict::Refused { held, .. }) => {
                    if held.until.is_none_or(|until| until <= now) {
                        open.insert(probe.clone());
                    }
                    hold.get_or_insert_with(|| held.clone());
                }
                Some(_) => {}
            }
        }
        // A job that was seen before was tried out before: a new controller does not hold it up, or drop its promise. What
        // it starts with is compared once more.
        let is_new = job.status.as_ref().is_none_or(|s| s.submitted_at.is_none());
        if hold.is_none() && is_new && !open.is_empty() {
            let message = "its pods are being tried out".to_owned();
            hold = Some(Held { code: Code::Waiting, message, until: None });
        }
        if let Some(record) = self.records.get_mut(key) {
            (record.asks, record.probe_keys, record.unasked) = (asks, keys, open);
        }
        hold
    }

    /// A job that has started is tried out by its start itself.
    pub(super) fn ask_no_more(&mut self, key: &str) -> Option<Held> {
        if let Some(record) = self.records.get_mut(key) {
            record.unasked.clear();
        }
        None
    }

    /// By role, what the answer to a dry run depends on.
    fn probe_keys(&mut self, key: &str, job: &TrainingJob) -> Vec<String> {
        let namespace = job.metadata.namespace.clone().unwrap_or_default();
        let generation = job.metadata.generation;
        let known = self.records.get(key).filter(|r| r.hashes.0 == generation && !r.hashes.1.is_empty());
        let hashes = known.map_or_else(|| job.spec.roles.iter().map(template_hash).collect(), |r| r.hashes.1.clone());
        let queue = translate::job::queue_name(job, self.annotations_of(job));
        let queue = self.index.queues.get(queue).map(AsRef::as_ref);
        let class = translate::job::priority_class(job, queue, &self.classes).unwrap_or_default().to_owned();
        let mut versions = String::new();
        let from = format!("{namespace}/");
        let ranges = self.index.limit_ranges.range(from.clone()..).take_while(|(key, _)| key.starts_with(&from));
        for (_, range) in ranges {
            let _ = write!(versions, "/{}", range.metadata.resource_version.as_deref().unwrap_or_default());
        }
        let of_role = |(role, hash): (&crds::v1alpha1::Role, &String)| {
            let class_name = role.template.spec.as_ref().and_then(|s| s.runtime_class_name.as_ref());
            let runtime = class_name.and_then(|name| self.index.runtime_classes.get(name));
            let runtime = runtime.and_then(|c| c.metadata.resource_version.as_deref()).unwrap_or_default();
            format!("{namespace}/{hash}/{class}{versions}/{runtime}")
        };
        let keys = job.spec.roles.iter().zip(&hashes).map(of_role).collect();
        if let Some(record) = self.records.get_mut(key) {
            record.hashes = (generation, hashes);
        }
        keys
    }

    /// The dry runs that a job waits for.
    #[must_use]
    pub fn questions(&self, key: &str) -> Vec<Question> {
        let Some(record) = self.records.get(key).filter(|r| !r.unasked.is_empty()) else { return Vec::new() };
        let Some(job) = self.index.jobs.get(key) else { return Vec::new() };
        let Some(berth) = stand_in(job) else { return Vec::new() };
        let next = crate::lifecycle::attempts(self, key, job);
        let made = crate::lifecycle::making(self, key, job, &berth, |m| Some(crate::lifecycle::attempt_for(&next, m)));
        let Ok(made) = made else { return Vec::new() };
        let asked = record.probe_keys.iter().zip(made.probes).filter(|(probe, _)| record.unasked.contains(*probe));
        let unbound = |pod: &Pod| {
            let mut pod = pod.clone();
            pod.metadata.owner_references = None;
            if let Some(spec) = &mut pod.spec {
                spec.node_name = None;
            }
            pod
        };
        let mut once = BTreeSet::new();
        let new = asked.filter(|(probe, _)| once.insert((*probe).clone()));
        new.map(|(probe, pod)| Question { key: probe.clone(), pod: unbound(&pod) }).collect()
    }

    /// Takes an answer in; jobs that it is about are looked at again. The next time they have to be is returned for each.
    pub fn probed(&mut self, probe: &str, answer: Result<Pod, Fault>, now: Time) -> Vec<(String, Option<Time>)> {
        self.probes.note(probe, answer, now);
        let again = match self.probes.answers.get(probe) {
            Some(Verdict::Refused { held, .. }) => held.until,
            _ => None,
        };
        let about = self.records.iter().filter(|(_, r)| r.probe_keys.iter().any(|k| k == probe));
        let jobs: Vec<String> = about.map(|(key, _)| key.clone()).collect();
        self.dirty_jobs.extend(jobs.iter().cloned());
        if self.probes.answers.len() > KEPT {
            let used: BTreeSet<&String> = self.records.values().flat_map(|r| &r.probe_keys).collect();
            self.probes.answers.retain(|key, _| used.contains(key));
        }
        jobs.into_iter().map(|job| (job, again)).collect()
    }

    /// What admission said of a job's pods is no longer true: they are tried out anew.
    pub fn forget_probes(&mut self, key: &str) {
        let keys = self.records.get(key).map(|r| r.probe_keys.clone()).unwrap_or_default();
        for probe in keys {
            self.probes.answers.remove(&probe);
        }
    }
}

/// A Berth that gives one seat to each role, on a node that there is not: for pods that are never made.
fn stand_in(job: &TrainingJob) -> Option<Berth> {
    let seat = |role: &crds::v1alpha1::Role| json!({"domain": "", "role": role.name, "firstIndex": 0, "perNode": 1, "nodes": ["none"]});
    let spec = json!({
        "job": job.metadata.name, "jobUid": job.metadata.uid, "incarnation": 1, "queue": "", "state": "Committed",
        "assignments": job.spec.roles.iter().map(seat).collect::<Vec<_>>(),
    });
    let name = job.metadata.name.as_deref().unwrap_or_default();
    let mut berth = Berth::new(&format!("{name}-1"), serde_json::from_value(spec).ok()?);
    berth.metadata.namespace.clone_from(&job.metadata.namespace);
    berth.metadata.uid = Some("never-stored".to_owned());
    Some(berth)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(message: &str) -> Fault {
        Fault::Refused(Refusal { status: 403, reason: "Forbidden".into(), message: message.into() })
    }

    fn until(book: &ProbeBook, key: &str) -> Option<Time> {
        match &book.answers[key] {
            Verdict::Refused { held, .. } => held.until,
            _ => None,
        }
    }

    #[test]
    fn refusals_are_asked_for_again_ever_later_and_at_once_when_the_namespace_changes() {
        let mut book = ProbeBook::default();
        for (times, pause) in [5, 10, 20, 40, 80, 160, 300, 300].into_iter().enumerate() {
            book.note("ns/a", Err(refusal("violates PodSecurity")), Time::ZERO);
            assert_eq!(until(&book, "ns/a"), Some(Time::from_secs(pause)), "refusal {times}");
        }
        book.note("ns/q", Err(refusal("exceeded quota: q")), Time::ZERO);
        book.note("ns2/a", Err(refusal("violates PodSecurity")), Time::ZERO);
        book.forget_quota_refusals("ns");
        assert!(book.answers.contains_key("ns/a") && !book.answers.contains_key("ns/q"));
        book.forget_refusals("ns");
        assert!(!book.answers.contains_key("ns/a") && book.answers.contains_key("ns2/a"));
    }

    #[test]
    fn no_answer_is_no_refusal_and_an_answer_is_kept_without_what_nobody_reads() {
        let mut book = ProbeBook::default();
        book.note("ns/a", Err(Fault::Unknown("504".into())), Time::ZERO);
        assert_eq!(book.answers["ns/a"], Verdict::Unknown);
        book.note("ns/b", Err(Fault::Fenced), Time::ZERO);
        assert!(!book.answers.contains_key("ns/b"), "nothing was asked");
        let pod = json!({"spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}], "nodeSelector": {"a": "b"}}});
        book.note("ns/a", Ok(serde_json::from_value(pod).expect("a pod")), Time::ZERO);
        let Verdict::Admitted(spec) = &book.answers["ns/a"] else { panic!("admitted") };
        assert!(
            spec.node_selector.is_some()
                && spec.containers[0].image.is_none()
                && spec.containers[0].resources.is_some()
        );
    }
}
