//! Operations leave here as tasks of their own and come back as landings: one at a time for each job.

use super::Engine;
use crate::commit::request::{Fault, Refusal};
use crate::commit::writes::{Kind, StatusWrite, Target, Written};
use crate::commit::{Executor, Journal, Operation, Outcome, Report, Stage, Undo};
use crate::state::record::Held;
use crate::state::{Flight, FlightKind};
use crate::watch::{Change, Delta};
use crds::names::finalizers;
use crds::v1alpha1::TrainingJobStatus;
use crds::{Berth, Code, TrainingJob};
use k8s_openapi::api::core::v1::Pod;
use kube::core::DeserializeGuard;
use planner::job::{Leaving, Phase};
use planner::{Span, Time};
use std::sync::Arc;
use std::time::SystemTime;
use tokio::time::Instant;
use translate::lifecycle::backoff::doubling;

/// What comes back.
pub(super) enum Landing {
    /// An operation of a job.
    Operation {
        key: String,
        uid: String,
        kind: FlightKind,
        began: SystemTime,
        report: Report,
        job: Option<Arc<TrainingJob>>,
    },
    /// A status write.
    Status { key: String, uid: String, result: Result<Written, Fault> },
    /// A write that decides nothing (a finalizer, a deletion).
    Plain { key: String, uid: String, result: Result<Option<Arc<TrainingJob>>, Fault> },
    /// A dry run: what it depends on, and its answer.
    Probe { probe: String, answer: Box<Result<Pod, Fault>> },
    /// An operation for a job that is gone.
    Orphan { key: String, report: Report },
    /// Answers to what users may want to know; none when the round failed.
    Answers(Option<super::what_if::Answers>),
}

/// Waits after the first refusal, at most.
const REFUSED_FIRST: Span = Span::from_secs(2);
const REFUSED_MAX: Span = Span::from_secs(60);
/// Before a gang that goes on without what was refused asks again.
const KEPT_PAUSE: Span = Span::from_secs(10);
/// Waits after trouble that should pass.
const STALLED_FIRST: Span = Span::from_secs(1);
const STALLED_MAX: Span = Span::from_secs(30);
/// A node that refused a pod is avoided, at first.
const AVOIDED_FIRST: Span = Span::from_secs(300);
const AVOIDED_MAX: Span = Span::from_secs(3600);
/// Tries of a status that must be written before its operation.
const STATUS_TRIES: u32 = 5;
/// Before a status is written again that could not be.
const STATUS_PAUSE: Span = Span::from_secs(3);
/// Tries of a finalizer on a job that others write too.
const FINALIZER_TRIES: u32 = 4;

impl Engine {
    /// Begins an operation of a job that has none under way.
    pub(super) fn launch(
        &mut self,
        key: &str,
        kind: FlightKind,
        operation: Operation,
        before: Option<TrainingJobStatus>,
        now: Time,
    ) {
        let Some(job) = self.world.index.jobs.get(key).cloned() else { return };
        let Some(record) = self.world.records.get_mut(key) else { return };
        record.flight = Some(Flight { kind, since: Instant::now(), began: now });
        self.flying += 1;
        tracing::debug!(job = key, operation = kind.name(), "launched");
        let (executor, landing, runway) = (self.executor.clone(), self.landing.clone(), self.runway.clone());
        let (key, uid) = (key.to_owned(), record.uid.clone());
        tokio::spawn(async move {
            // Permits are handed out in the order they are asked for: first decided, first begun.
            let _permit = runway.acquire().await;
            let began = SystemTime::now();
            let (report, job) = fly(&executor, &job, operation, before).await;
            let _ = landing.send(Landing::Operation { key, uid, kind, began, report, job }).await;
        });
    }

    /// Begins an operation for a Berth whose job is gone.
    pub(super) fn launch_orphan(&mut self, key: &str, kind: FlightKind, operation: Operation) {
        if !self.orphans.insert(key.to_owned()) {
            return;
        }
        self.flying += 1;
        tracing::debug!(job = key, operation = kind.name(), "launched for a Berth without a job");
        let (executor, landing, key) = (self.executor.clone(), self.landing.clone(), key.to_owned());
        tokio::spawn(async move {
            let report = executor.run(operation).await;
            let _ = landing.send(Landing::Orphan { key, report }).await;
        });
    }

    /// Asks the server how it would make the pods of a job that waits, before anything is planned with them.
    pub(super) fn try_out(&mut self, key: &str) {
        for question in self.world.questions(key) {
            if !self.probing.insert(question.key.clone()) {
                continue;
            }
            self.flying += 1;
            let (executor, landing) = (self.executor.clone(), self.landing.clone());
            tokio::spawn(async move {
                let answer = Box::new(executor.probe(&question.pod).await);
                let _ = landing.send(Landing::Probe { probe: question.key, answer }).await;
            });
        }
    }

    pub(super) fn launch_finalizers(&mut self, key: &str, all: Vec<String>) {
        self.launch_plain(
            key,
            move |executor, job| async move { executor.set_job_finalizers(&job, &all).await.map(Some) },
        );
    }

    pub(super) fn launch_delete_job(&mut self, key: &str) {
        self.launch_plain(key, |executor, job| async move {
            let (namespace, name, uid) = identity(&job);
            executor.delete::<TrainingJob>("TrainingJob", &namespace, &name, &uid).await.map(|()| None)
        });
    }

    pub(super) fn launch_prune(&mut self, key: &str, berth: &Berth) {
        let metadata = berth.metadata.clone();
        self.launch_plain(key, move |executor, _| async move {
            let of = |text: &Option<String>| text.clone().unwrap_or_default();
            let (namespace, name, uid) = (of(&metadata.namespace), of(&metadata.name), of(&metadata.uid));
            executor.delete::<Berth>("Berth", &namespace, &name, &uid).await.map(|()| None)
        });
    }

    fn launch_plain<F>(&mut self, key: &str, write: impl FnOnce(Executor, Arc<TrainingJob>) -> F)
    where
        F: Future<Output = Result<Option<Arc<TrainingJob>>, Fault>> + Send + 'static,
    {
        let Some(job) = self.world.index.jobs.get(key).cloned() else { return };
        let now = self.clock.now();
        let Some(record) = self.world.records.get_mut(key) else { return };
        record.flight = Some(Flight { kind: FlightKind::Sweep, since: Instant::now(), began: now });
        self.flying += 1;
        let landing = self.landing.clone();
        let (key, uid) = (key.to_owned(), record.uid.clone());
        let write = write(self.executor.clone(), job);
        tokio::spawn(async move {
            let result = write.await;
            let _ = landing.send(Landing::Plain { key, uid, result }).await;
        });
    }

    /// Begins a status write.
    pub(super) fn launch_status(&mut self, key: &str, uid: &str, write: StatusWrite) {
        self.flying += 1;
        let (executor, landing) = (self.executor.clone(), self.landing.clone());
        let (key, uid) = (key.to_owned(), uid.to_owned());
        tokio::spawn(async move {
            let result = executor.write_status(&write).await;
            let _ = landing.send(Landing::Status { key, uid, result }).await;
        });
    }

    /// From the moment a stop is launched the planner counts on it.
    pub(super) fn assume_stopping(&mut self, key: &str, kind: FlightKind, now: Time) {
        if kind != FlightKind::Stop {
            return;
        }
        let Some(row) = self.world.state.find_job(key) else { return };
        self.settle_use(row, now);
        self.world.state.update_job(row, now, |job| {
            if let Phase::Running(running) = &mut job.phase {
                let placement = std::mem::take(&mut running.placement);
                let gone_by = now + job.spec.grace;
                job.phase = Phase::Leaving(Box::new(Leaving { placement, gone_by, taker: None }));
            }
        });
        self.world.note_changed();
    }

    /// Nodes that refused pods are avoided for a while.
    pub(super) fn avoid(&mut self, key: &str, nodes: &[String], now: Time) {
        let Some(record) = self.world.records.get_mut(key).filter(|_| !nodes.is_empty()) else { return };
        record.refusals += 1;
        for node in nodes {
            let times = record.avoided.get(node).map_or(0, |(_, times)| *times) + 1;
            let until = now + doubling(AVOIDED_FIRST, AVOIDED_MAX, times);
            record.avoided.insert(node.clone(), (until, times));
        }
        // Three refusals in a row are no accident of one node.
        if record.refusals >= 3 {
            let until = now + doubling(REFUSED_FIRST, REFUSED_MAX, record.refusals - 2);
            let message = format!("starts were refused {} times, last by {}", record.refusals, nodes.join(", "));
            record.backoff = Some(Held { code: Code::StartRefused, message, until: Some(until) });
            self.call_at(until, key);
        }
    }

    /// Takes what came back in.
    pub(super) fn land(&mut self, landing: Landing) {
        let now = self.clock.now();
        self.flying = self.flying.saturating_sub(1);
        match landing {
            Landing::Operation { key, uid, kind, began, report, job } => {
                self.assume_job(job);
                self.landed(&key, &uid, kind, began, report);
            }
            Landing::Status { key, uid, result } => self.status_landed(&key, &uid, result),
            Landing::Plain { key, uid, result } => {
                let failed = result.as_ref().err().filter(|f| !is_gone(f)).map(ToString::to_string);
                self.assume_job(result.ok().flatten());
                if let Some(record) = self.world.records.get_mut(&key).filter(|r| r.uid == uid) {
                    record.flight = None;
                    // The watch shows the rest; until then nothing is asked twice.
                    record.retry_at = Some(now + Span::from_secs(if failed.is_some() { 2 } else { 1 }));
                }
                self.world.touch_job(&key);
            }
            Landing::Answers(answers) => self.answered(answers),
            Landing::Probe { probe, answer } => {
                self.probing.remove(&probe);
                let fenced = matches!(*answer, Err(Fault::Fenced));
                for (job, again) in self.world.probed(&probe, *answer, now) {
                    let again = again.or_else(|| fenced.then(|| now + STALLED_FIRST));
                    if let Some(again) = again {
                        self.call_at(again, &job);
                    }
                }
            }
            Landing::Orphan { key, report } => {
                self.orphans.remove(&key);
                if let Some(berth) = report.berth {
                    self.world.assume_berth(berth);
                }
                if report.outcome == Outcome::Done {
                    self.world.touch_job(&key);
                } else {
                    self.call_at(now + STALLED_FIRST, &key);
                }
            }
        }
    }

    fn assume_job(&mut self, job: Option<Arc<TrainingJob>>) {
        if let Some(job) = job {
            let guard = DeserializeGuard(Ok(Arc::unwrap_or_clone(job)));
            self.world.apply(Delta::Job(Change::Set(Arc::new(guard))));
        }
    }

    fn status_landed(&mut self, key: &str, uid: &str, result: Result<Written, Fault>) {
        let failed = result.as_ref().err().filter(|f| !is_gone(f)).map(ToString::to_string);
        match result {
            Ok(Written::Job(job)) => self.assume_job(Some(job)),
            Ok(Written::Berth(berth)) => self.world.assume_berth(berth),
            _ => {}
        }
        self.in_writing.remove(uid);
        match failed {
            // A failed write is tried again in its time, not at once: the server has trouble enough.
            Some(error) => {
                tracing::warn!(object = key, error, "a status could not be written and is tried again");
                self.call_at(self.clock.now() + STATUS_PAUSE, key);
            }
            None => {
                self.stale.insert(key.to_owned());
                let going = self.world.index.jobs.get(key).is_some_and(|j| j.metadata.deletion_timestamp.is_some());
                if going {
                    self.world.touch_job(key);
                }
            }
        }
    }

    fn landed(&mut self, key: &str, uid: &str, kind: FlightKind, began: SystemTime, report: Report) {
        let Report { outcome, berth, made, requests } = report;
        if let Some(berth) = berth {
            self.world.assume_berth(berth);
        }
        self.world.assume_pods(made);
        self.world.touch_job(key);
        self.world.note_changed();
        let at = self.clock.now();
        let Some(record) = self.world.records.get_mut(key).filter(|r| r.uid == uid) else { return };
        let took = record.flight.take().map(|f| f.since.elapsed()).unwrap_or_default();
        let label = label(&outcome);
        self.metrics.operation(kind.name(), label, took);
        if let Some(trace) = &record.trace {
            trace.step(kind.name(), began, label, outcome != Outcome::Done);
        }
        tracing::debug!(job = key, operation = kind.name(), result = label, requests, ms = took.as_millis(), "landed");
        match outcome {
            Outcome::Done => {
                record.stalls = 0;
                record.undo_trouble = None;
                record.retry_at = None;
                if matches!(kind, FlightKind::Start | FlightKind::Complete) {
                    record.companions_made = true;
                }
            }
            Outcome::Refused { stage, refusal, undo } if refusal.reason == crate::commit::operation::POD_CHANGED => {
                tracing::info!(job = key, stage = stage.name(), ?undo, message = refusal.message, "planned anew");
                record.retry_at = Some(at + STALLED_FIRST);
                self.world.forget_probes(key);
                self.call_at(at + STALLED_FIRST, key);
            }
            Outcome::Refused { stage, refusal, undo } => self.refused(key, kind, stage, &refusal, undo, at),
            Outcome::Lost(_) | Outcome::BerthGone | Outcome::NamesakeLeaving | Outcome::PodsRemain(_) => {
                record.retry_at = Some(at + STALLED_FIRST);
            }
            Outcome::Fenced => record.retry_at = Some(at + STALLED_FIRST),
            Outcome::Stalled { stage, message } => {
                record.stalls += 1;
                record.retry_at = Some(at + doubling(STALLED_FIRST, STALLED_MAX, record.stalls));
                tracing::warn!(
                    job = key,
                    operation = kind.name(),
                    stage = stage.name(),
                    message,
                    "stalled, tried again later"
                );
            }
        }
    }

    fn refused(&mut self, key: &str, kind: FlightKind, stage: Stage, refusal: &Refusal, undo: Undo, at: Time) {
        let Some(record) = self.world.records.get_mut(key) else { return };
        record.refusals += 1;
        record.companions_made = false;
        let code = match refusal.reason.as_str() {
            "ServiceNameTaken" => Code::ServiceNameTaken,
            _ if refusal.is_quota() => Code::NamespaceQuota,
            _ => Code::PodRefused,
        };
        let until = at + doubling(REFUSED_FIRST, REFUSED_MAX, record.refusals);
        record.backoff = Some(Held { code, message: refusal.message.clone(), until: Some(until) });
        if undo == Undo::Nothing {
            // What is kept as it is asks again in its time, not at once.
            record.retry_at = Some(until.min(at + KEPT_PAUSE));
        }
        if undo == Undo::Failed {
            record.undo_trouble = Some(refusal.message.clone());
            record.retry_at = Some(at + STALLED_FIRST);
            self.metrics.undo_failed();
        }
        tracing::warn!(
            job = key,
            operation = kind.name(),
            stage = stage.name(),
            ?undo,
            message = refusal.message,
            "refused"
        );
        self.call_at(until, key);
        self.note_job(key, true, code, &format!("{} refused: {}", kind.name(), refusal.message));
    }
}

/// What must be there before an operation, then the operation.
async fn fly(
    executor: &Executor,
    job: &Arc<TrainingJob>,
    operation: Operation,
    before: Option<TrainingJobStatus>,
) -> (Report, Option<Arc<TrainingJob>>) {
    let mut seen = None;
    if let Some(status) = before {
        match first_the_status(executor, job, &status).await {
            Ok(written) => seen = Some(written),
            Err(fault) => return (not_begun(&fault), None),
        }
    }
    let makes = !operation.create.is_empty() || !operation.claims.is_empty();
    let takes_room = matches!(operation.journal, Journal::Create(_)) || makes;
    if takes_room {
        match with_finalizer(executor, seen.clone().unwrap_or_else(|| job.clone())).await {
            Ok(Some(job)) => seen = Some(job),
            Ok(None) => {}
            Err(fault) => return (not_begun(&fault), seen),
        }
    }
    (executor.run(operation).await, seen)
}

/// The job with our finalizer, if it had to be set: before anything of it exists.
async fn with_finalizer(executor: &Executor, mut job: Arc<TrainingJob>) -> Result<Option<Arc<TrainingJob>>, Fault> {
    for _ in 0..FINALIZER_TRIES {
        let has = job.metadata.finalizers.iter().flatten().any(|f| f == finalizers::JOB);
        if has || job.metadata.deletion_timestamp.is_some() {
            return Ok(None);
        }
        let mut all = job.metadata.finalizers.clone().unwrap_or_default();
        all.push(finalizers::JOB.to_owned());
        match executor.set_job_finalizers(&job, &all).await {
            // Somebody changed the job meanwhile: most often we, its status.
            Err(Fault::Conflict) => {
                let read = executor.read_job(&job).await?;
                if read.metadata.uid != job.metadata.uid {
                    return Err(Fault::Conflict);
                }
                job = read;
            }
            written => return written.map(Some),
        }
    }
    Err(Fault::Conflict)
}

async fn first_the_status(
    executor: &Executor,
    job: &TrainingJob,
    status: &TrainingJobStatus,
) -> Result<Arc<TrainingJob>, Fault> {
    let write = status_write(job, status);
    let mut tries = 0;
    loop {
        match executor.write_status(&write).await {
            Ok(Written::Job(job)) => return Ok(job),
            Ok(_) => return Ok(Arc::new(job.clone())),
            // A merge patch of values is the same however often it is made.
            Err(Fault::Unknown(_) | Fault::Busy(_)) if tries < STATUS_TRIES => {
                tries += 1;
                tokio::time::sleep(std::time::Duration::from_millis(100 << tries)).await;
            }
            Err(fault) => return Err(fault),
        }
    }
}

/// The write that makes a job's status this one.
pub(super) fn status_write(job: &TrainingJob, status: &TrainingJobStatus) -> StatusWrite {
    let (namespace, name, uid) = identity(job);
    let value = |s: &TrainingJobStatus| serde_json::to_value(s).unwrap_or_default();
    let old = job.status.as_ref().map_or_else(|| serde_json::json!({}), value);
    StatusWrite { target: Target { kind: Kind::Job, namespace, name, uid }, old, new: value(status) }
}

fn identity(job: &TrainingJob) -> (String, String, String) {
    let of = |text: &Option<String>| text.clone().unwrap_or_default();
    (of(&job.metadata.namespace), of(&job.metadata.name), of(&job.metadata.uid))
}

fn not_begun(fault: &Fault) -> Report {
    let outcome = match fault {
        Fault::Fenced => Outcome::Fenced,
        other => Outcome::Stalled { stage: Stage::Verify, message: other.to_string() },
    };
    Report { outcome, berth: None, made: Vec::new(), requests: 0 }
}

fn is_gone(fault: &Fault) -> bool {
    matches!(fault, Fault::NotFound | Fault::Conflict)
}

fn label(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Done => "done",
        Outcome::Lost(_) => "lost",
        Outcome::BerthGone => "berth_gone",
        Outcome::NamesakeLeaving => "namesake_leaving",
        Outcome::Refused { .. } => "refused",
        Outcome::PodsRemain(_) => "pods_remain",
        Outcome::Fenced => "fenced",
        Outcome::Stalled { .. } => "stalled",
    }
}
