//! Statuses: computed anew for what changed, written only when they differ, and not more often than people read.

use super::Engine;
use super::launch::status_write;
use crate::commit::writes::{Kind, StatusWrite, Target};
use crate::lifecycle::{has_started, look};
use crate::state::FlightKind;
use crate::status;
use crds::names::finalizers;
use crds::v1alpha1::{BerthState, BerthStatus, Phase, TrainingJob, TrainingJobStatus};
use crds::{Berth, Code};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta};
use planner::{Span, Time};
use std::sync::Arc;
use std::time::Duration;

/// Between two writes of a running job's small changes (ready pods).
const SMALL_RUNNING: Span = Span::from_secs(1);
/// Between two writes of a starting job's small changes.
const SMALL_STARTING: Span = Span::from_secs(30);
/// Between two writes of a waiting job's small changes (position, estimate, figures).
const SMALL_WAITING: Span = Span::from_secs(15);
/// A start that takes longer is shown as Starting; a faster one is written once, as Started.
const PATIENCE: Duration = Duration::from_secs(3);
/// A new job's first status waits so long for what a dry run says of its pods.
const FIRST_LOOK: Span = Span::from_secs(3);
/// Between two writes of a Berth's status.
const BERTHS: Span = Span::from_secs(2);
/// `moved` keeps so many.
const MOVED_MAX: usize = 20;

impl Engine {
    /// Writes what changed for users.
    pub(super) fn flush(&mut self, now: Time) {
        if crate::sabotage::is(crate::sabotage::Sabotage::StatusEveryTurn) {
            self.stale.extend(self.world.index.jobs.keys().cloned());
        }
        for key in std::mem::take(&mut self.stale) {
            let Some(job) = self.world.index.jobs.get(&key).cloned() else { continue };
            self.flush_job(&key, &job, now);
            self.flush_berth(&key, &job, now);
        }
        self.flush_queues(now);
        self.flush_topologies(now);
        self.flush_unreadable(now);
    }

    fn flush_job(&mut self, key: &str, job: &Arc<TrainingJob>, now: Time) {
        let Some(record) = self.world.records.get(key) else { return };
        let uid = record.uid.clone();
        if self.in_writing.contains(&uid) {
            return; // It is stale again when the write lands.
        }
        if is_let_go(&job.metadata, finalizers::JOB) {
            return;
        }
        if let Some(flight) = &record.flight {
            let making = matches!(flight.kind, FlightKind::Start | FlightKind::Complete);
            let waited = flight.since.elapsed();
            if !making || waited < PATIENCE {
                // A status written before an operation must not be overtaken by one computed in between.
                if making {
                    self.call_status_at(now + Span::from_secs(3), key);
                }
                return;
            }
        }
        // What a job waits for is known when its pods have been tried out: a moment, most often.
        if !record.unasked.is_empty() && now.since(record.first_seen) < FIRST_LOOK && record.status_written.is_none() {
            self.call_status_at(now + FIRST_LOOK, key);
            return;
        }
        let next = status::compute(&self.world, key, job, now);
        let old = job.status.clone().unwrap_or_default();
        if next == old && !crate::sabotage::is(crate::sabotage::Sabotage::StatusEveryTurn) {
            return;
        }
        let pause = if next.phase.is_some_and(waits) { SMALL_WAITING } else { SMALL_RUNNING };
        // Up to Started every write counts.
        let pause = if next.phase == Some(Phase::Starting) { SMALL_STARTING } else { pause };
        let due = record.status_written.map_or(now, |at| at + pause);
        if is_small(&old, &next) && due > now && !crate::sabotage::is(crate::sabotage::Sabotage::StatusEveryTurn) {
            self.call_status_at(due, key);
            return;
        }
        self.tell(key, job, &old, &next);
        if let Some(record) = self.world.records.get_mut(key) {
            record.status_written = Some(now);
        }
        self.in_writing.insert(uid.clone());
        self.launch_status(key, &uid, status_write(job, &next));
    }

    fn call_status_at(&mut self, at: Time, key: &str) {
        // A timer touches the job, and a touched job is stale.
        self.call_at(at, key);
    }

    /// Events for what a status says anew; the trace ends with Started.
    fn tell(&mut self, key: &str, job: &TrainingJob, old: &TrainingJobStatus, next: &TrainingJobStatus) {
        let reason_of = |s: &TrainingJobStatus, kind: &str| {
            s.conditions.iter().find(|c| c.type_ == kind && c.status == "True").map(|c| c.reason.clone())
        };
        use crds::names::conditions as kinds;
        for kind in [kinds::QUEUED, kinds::RESERVED, kinds::STARTED, kinds::DEGRADED, kinds::TOPOLOGY_VIOLATED] {
            let (before, after) = (reason_of(old, kind), reason_of(next, kind));
            let Some(reason) = after.filter(|a| before.as_ref() != Some(a)) else { continue };
            let Ok(code) = reason.parse::<Code>() else { continue };
            let message = next.conditions.iter().find(|c| c.type_ == kind).map_or("", |c| c.message.as_str());
            let warning = kind == kinds::DEGRADED || kind == kinds::TOPOLOGY_VIOLATED;
            // A gang that was ready when it was first seen has started all the same.
            if code == Code::Running && kind == kinds::STARTED && before.is_none() {
                let pods = look(&self.world, key, job, self.clock.now()).map_or(0, |seen| seen.seats.len());
                self.note_job(key, false, Code::Started, &status::taken_text(pods));
            }
            self.note_job(key, warning, code, message);
            if kind == kinds::STARTED
                && before.is_none()
                && let Some(record) = self.world.records.get_mut(key)
                && let Some(trace) = record.trace.take()
            {
                trace.end();
                record.refusals = 0;
                let delay = self.clock.now().since(record.first_seen).as_secs_f64();
                self.metrics.started(Duration::from_secs_f64(delay));
            }
        }
        if next.phase.is_some_and(Phase::is_finished) && !old.phase.is_some_and(Phase::is_finished) {
            tracing::info!(job = key, phase = ?next.phase, generation = job.metadata.generation, "finished");
        }
    }

    fn flush_berth(&mut self, key: &str, job: &Arc<TrainingJob>, now: Time) {
        let Some(name) = self.world.berths(key, job).current.map(translate::key_of::<Berth>) else { return };
        let Some(berth) = self.world.index.berths.get(&name).cloned() else { return };
        let Some(uid) = berth.metadata.uid.clone() else { return };
        let Some(record) = self.world.records.get(key) else { return };
        if self.in_writing.contains(&uid) || record.flight.is_some() || is_let_go(&berth.metadata, finalizers::BERTH) {
            return;
        }
        // Until Started every write counts; a Berth's figures can wait. Why its promise moved cannot: it may never start.
        let tells_moves = !super::moves::untold(&berth).is_empty();
        if berth.spec.state == BerthState::Committed && !has_started(job, &berth) && !tells_moves {
            return;
        }
        let next = self.berth_status(key, job, &berth, now);
        let old = berth.status.clone().unwrap_or_default();
        if next == old {
            return;
        }
        let due = self.written.get(&uid).map_or(now, |at| *at + BERTHS);
        if due > now {
            self.call_status_at(due, key);
            return;
        }
        let target = Target {
            kind: Kind::Berth,
            namespace: berth.metadata.namespace.clone().unwrap_or_default(),
            name: berth.metadata.name.clone().unwrap_or_default(),
            uid: uid.clone(),
        };
        let value = |s: &BerthStatus| serde_json::to_value(s).unwrap_or_default();
        let old = berth.status.as_ref().map_or_else(|| serde_json::json!({}), value);
        self.written.insert(uid.clone(), now);
        self.in_writing.insert(uid.clone());
        self.launch_status(key, &uid, StatusWrite { target, old, new: value(&next) });
    }

    fn berth_status(&self, key: &str, job: &TrainingJob, berth: &Berth, now: Time) -> BerthStatus {
        let mut status = berth.status.clone().unwrap_or_default();
        let number = |n: usize| i32::try_from(n).unwrap_or(i32::MAX);
        status.nodes = Some(number(berth.spec.node_count()));
        let moves = super::moves::untold(berth);
        if berth.spec.state == BerthState::Reserved {
            // Without a cause a promise only ever comes earlier; with one, it is made anew.
            let excused = moves.iter().any(|m| !m.cause.starts_with(Code::PulledForward.as_str()));
            status.promised = if excused { berth.spec.start } else { earliest(status.promised, berth.spec.start) };
            status.cause = moves.last().map(|m| m.cause.clone()).or(status.cause);
        }
        status.moved.extend(moves);
        let surplus = status.moved.len().saturating_sub(MOVED_MAX);
        status.moved.drain(..surplus);
        if let Some(seen) = look(&self.world, key, job, now) {
            let phase = |wanted: &str| {
                seen.pods.iter().filter(|p| p.status.as_ref().and_then(|s| s.phase.as_deref()) == Some(wanted)).count()
            };
            let accepted = |p: &&Arc<_>| -> bool {
                let pod: &k8s_openapi::api::core::v1::Pod = p;
                pod.status.as_ref().is_some_and(|s| s.start_time.is_some())
            };
            status.created = number(seen.seats.iter().filter(|s| s.pod.is_some()).count());
            status.bound = number(seen.seats.iter().filter_map(|s| s.pod.as_ref()).filter(accepted).count());
            status.running = number(phase("Running"));
        }
        status
    }
}

/// Whether an object goes and nothing of ours holds it any more: another may stand under its name by now, and nothing is
/// told of it.
fn is_let_go(metadata: &ObjectMeta, finalizer: &str) -> bool {
    metadata.deletion_timestamp.is_some() && !metadata.finalizers.iter().flatten().any(|f| f == finalizer)
}

fn earliest(a: Option<crds::Timestamp>, b: Option<crds::Timestamp>) -> Option<crds::Timestamp> {
    [a, b].into_iter().flatten().min()
}

fn waits(phase: Phase) -> bool {
    matches!(phase, Phase::Pending | Phase::Reserved | Phase::Restarting | Phase::Suspended)
}

/// Whether only figures differ: nothing that a user waits for.
fn is_small(old: &TrainingJobStatus, next: &TrainingJobStatus) -> bool {
    let gist = |all: &[Condition]| -> Vec<(String, String, String)> {
        all.iter().map(|c| (c.type_.clone(), c.status.clone(), c.reason.clone())).collect()
    };
    old.phase == next.phase
        && gist(&old.conditions) == gist(&next.conditions)
        && old.berth == next.berth
        && old.restarts == next.restarts
        && old.observed_generation == next.observed_generation
}
