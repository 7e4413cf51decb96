//! Jobs in the planner's state: what is stored of each, refined by what only the living controller knows.

use super::record::{Held, Record};
use super::world::World;
use crds::{Code, TrainingJob};
use k8s_openapi::api::core::v1::{Pod, PodSpec, ResourceQuota};
use planner::job::{Hold, Phase, Waiting};
use planner::reason;
use planner::{JobIdx, ShapeIdx, Time};
use std::collections::BTreeMap;
use std::sync::Arc;
use translate::adopt::{Adopted, Berths, Standing, adopt};
use translate::job::Inherited;
use translate::{PodAsk, TranslateError};

impl World {
    /// The Berths of a job, told apart.
    #[must_use]
    pub fn berths<'a>(&'a self, key: &str, job: &TrainingJob) -> Berths<'a> {
        let mut berths = Berths::of(job, self.index.berths_of_job(key).map(AsRef::as_ref));
        if crate::sabotage::is(crate::sabotage::Sabotage::NoAdoption) {
            berths.released.extend(berths.current.take());
        }
        berths
    }

    pub(super) fn sync_job(&mut self, key: &str, now: Time) {
        let Some(job) = self.index.jobs.get(key).cloned() else {
            self.forget_job(key, now);
            return;
        };
        let uid = job.metadata.uid.clone().unwrap_or_default();
        if self.records.get(key).is_some_and(|r| r.uid != uid) {
            self.forget_job(key, now);
        }
        let queue = translate::job::queue_name(&job, self.annotations_of(&job)).to_owned();
        let record = self.records.entry(key.to_owned()).or_insert_with(|| {
            let mut record = Record::new(&uid, now);
            if job.status.as_ref().is_none_or(|s| s.started_at.is_none() && s.finished_at.is_none()) {
                record.trace = Some(crate::traces::StartTrace::begin(key, &uid, &queue));
            }
            record
        });
        if record.flight.is_some() {
            return;
        }
        let standing = {
            let berths = self.berths(key, &job);
            adopt(&job, &berths, |name| self.state.find_node(name)).map(|s| (s, !berths.foreign.is_empty()))
        };
        let fault = match standing {
            Ok((Standing::Living(adopted), namesake)) => self.set_job(key, &job, *adopted, namesake, now),
            Ok(_) => {
                self.remove_from_plan(key, now);
                Ok(())
            }
            Err(error) => Err(error),
        };
        let fault = fault.err().map(|error| {
            self.remove_from_plan(key, now);
            Held { code: error.fault.code(), message: error.to_string(), until: None }
        });
        if let Some(record) = self.records.get_mut(key) {
            record.fault = fault;
        }
    }

    fn set_job(
        &mut self,
        key: &str,
        job: &TrainingJob,
        adopted: Adopted,
        namesake: bool,
        now: Time,
    ) -> Result<(), TranslateError> {
        if job.metadata.deletion_timestamp.is_some() && matches!(adopted.phase, Phase::Waiting(_)) {
            self.remove_from_plan(key, now);
            return Ok(());
        }
        let waits = matches!(adopted.phase, Phase::Waiting(_));
        let tried = if waits { self.look_up_probes(key, job, now) } else { self.ask_no_more(key) };
        let promised = matches!(&adopted.phase, Phase::Waiting(w) if w.reservation.is_some());
        let shapes = self.shapes(key, job, now)?;
        let queue = translate::job::queue_name(job, self.annotations_of(job)).to_owned();
        let spec = {
            let inherited = Inherited {
                namespace: self.annotations_of(job),
                queue: self.index.queues.get(&queue).map(AsRef::as_ref),
                classes: &self.classes,
            };
            translate::job::spec(job, inherited, &shapes, &self.state)?
        };
        if matches!(adopted.phase, Phase::Waiting(_)) {
            self.hold_by_quota(key, job);
            self.block(key, job, tried, promised);
        }
        let phase = self.refined(key, job, adopted.phase, namesake, now);
        let record = &self.records[key];
        let queued_at = adopted.queued_at.unwrap_or(record.first_seen);
        match self.state.find_job(key) {
            Some(row) => {
                let same = self
                    .state
                    .job(row)
                    .is_some_and(|j| *j.spec == spec && j.phase == phase && j.queued_at == queued_at);
                if !same {
                    self.state.update_job(row, now, |j| {
                        j.spec = Arc::new(spec);
                        j.phase = phase;
                        j.queued_at = queued_at;
                    });
                    self.changed = true;
                    self.nodes_of_job_dirty(row);
                }
            }
            None => {
                let row = self.state.add_job(spec, queued_at, 0, phase);
                self.changed = true;
                self.nodes_of_job_dirty(row);
            }
        }
        Ok(())
    }

    /// The adopted phase with what only the living controller knows: members lost, holds, takers.
    fn refined(&self, key: &str, job: &TrainingJob, phase: Phase, namesake: bool, now: Time) -> Phase {
        let known = self.state.find_job(key).and_then(|row| self.state.job(row)).map(|j| &j.phase);
        match phase {
            Phase::Running(mut running) => {
                let look = crate::lifecycle::look(self, key, job, now);
                running.lost = look.as_ref().map(crate::lifecycle::Look::lost_ranks).unwrap_or_default();
                running.settling = look.as_ref().is_none_or(|l| !l.is_complete());
                if let Some(Phase::Running(before)) = known {
                    running.guaranteed |= before.guaranteed;
                    running.resized = running.resized.max(before.resized);
                    running.private_start = running.private_start.or(before.private_start);
                    if before.settling && !running.settling && before.started < running.started {
                        running.started = before.started;
                    }
                }
                Phase::Running(running)
            }
            Phase::Leaving(mut leaving) => {
                if let Some(Phase::Leaving(before)) = known {
                    leaving.taker = before.taker;
                }
                Phase::Leaving(leaving)
            }
            Phase::Waiting(mut waiting) => {
                self.refine_waiting(key, job, &mut waiting, namesake, now);
                if let Some(Phase::Waiting(before)) = known {
                    waiting.private_start = waiting.private_start.or(before.private_start);
                }
                Phase::Waiting(waiting)
            }
        }
    }

    fn refine_waiting(&self, key: &str, job: &TrainingJob, waiting: &mut Waiting, namesake: bool, now: Time) {
        let record = self.records.get(key);
        let blocked = record.and_then(|r| r.blocked.clone());
        let backoff = record.and_then(|r| r.backoff.clone()).filter(|b| b.until.is_none_or(|until| until > now));
        let restart = crate::lifecycle::restart_backoff(job).filter(|until| *until > now);
        let hold = |code, detail: &str, until| Some(Hold { code, detail: detail.into(), until });
        waiting.hold = if namesake {
            hold(reason::Code::PreviousIncarnationLeaving, key, None)
        } else if let Some(blocked) = blocked {
            let code = match blocked.code {
                Code::NamespaceQuota => reason::Code::NamespaceQuota,
                Code::TopologyHeld => reason::Code::TopologyUnknown,
                Code::VolumeMissing | Code::VolumeNotBound | Code::VolumeInUse | Code::VolumeUnsupported => {
                    reason::Code::VolumeMissing
                }
                _ => reason::Code::StartRefused,
            };
            hold(code, &blocked.message, None)
        } else if let Some(backoff) = backoff {
            let code = match backoff.code {
                Code::NamespaceQuota => reason::Code::NamespaceQuota,
                _ => reason::Code::StartRefused,
            };
            hold(code, &backoff.message, backoff.until)
        } else if let Some(until) = restart {
            hold(reason::Code::RestartBackoff, key, Some(until))
        } else {
            None
        };
        if let Some((placement, repair)) = self.last_placement(key, job) {
            waiting.last_placement = Some(placement);
            waiting.repair = repair;
        }
    }

    /// A job whose floor its namespace's quota does not allow is not planned at all: it takes nobody's room, promises
    /// nothing, and is looked at again when the quota moves.
    fn hold_by_quota(&mut self, key: &str, job: &TrainingJob) {
        let message = self.over_quota(key, job);
        let Some(record) = self.records.get_mut(key) else { return };
        let by_quota = |held: &Held| held.code == Code::NamespaceQuota && held.until.is_none();
        match message {
            Some(message) => record.backoff = Some(Held { code: Code::NamespaceQuota, message, until: None }),
            None if record.backoff.as_ref().is_some_and(by_quota) => record.backoff = None,
            None => {}
        }
    }

    /// A job whose volumes are not there yet, or whose pods are not yet tried out or refused, is not planned either: nothing
    /// is promised that could not be kept.
    fn block(&mut self, key: &str, job: &TrainingJob, tried: Option<Held>, promised: bool) {
        let trouble = self.volume_trouble(key, job);
        // A promise stands through doubts; its start waits.
        let doubted = if promised { None } else { self.level_doubted(key, job) };
        if let Some(record) = self.records.get_mut(key) {
            record.blocked =
                trouble.map(|t| Held { code: t.code, message: t.message, until: None }).or(tried).or(doubted);
        }
    }

    fn over_quota(&self, key: &str, job: &TrainingJob) -> Option<String> {
        let of_job = |q: &&Arc<ResourceQuota>| q.metadata.namespace == job.metadata.namespace;
        let quotas: Vec<_> = self.index.quotas.values().filter(of_job).map(AsRef::as_ref).collect();
        if quotas.is_empty() {
            return None;
        }
        let mut gang = Vec::new();
        for (row, role) in job.spec.roles.iter().enumerate() {
            let pod = Arc::new(Pod { spec: Some(self.effective_pod(key, job, row)), ..Pod::default() });
            gang.extend((0..role.floor()).map(|_| pod.clone()));
        }
        crate::quota::exceeded(quotas, &gang)
    }

    /// Where the last incarnation ran, if it ended by its own failure (or lost a node): it may start there again.
    fn last_placement(&self, key: &str, job: &TrainingJob) -> Option<(planner::job::Placement, bool)> {
        let berths = self.berths(key, job);
        let last = berths.released.last().filter(|_| berths.current.is_none())?;
        let cause = last.spec.stopping.as_ref()?.cause.split('(').next()?.to_owned();
        if cause != Code::Failed.as_str() {
            return None;
        }
        let roles = translate::berth::role_names(job);
        let placement = translate::berth::placement(last, &roles, |name| self.state.find_node(name)).ok()?;
        let fits = job.spec.roles.iter().enumerate().all(|(row, role)| {
            let count = placement.count(row);
            i64::from(count) >= i64::from(role.floor()) && i64::from(count) <= i64::from(role.replicas)
        });
        fits.then_some((placement, false))
    }

    fn nodes_of_job_dirty(&mut self, row: JobIdx) {
        let nodes = match self.state.job(row).map(|j| &j.phase) {
            Some(Phase::Running(r)) => r.placement.nodes(),
            Some(Phase::Leaving(l)) => l.placement.nodes(),
            _ => Vec::new(),
        };
        for node in nodes {
            self.dirty_nodes.insert(self.state.topology().node_name(node).to_string());
        }
    }

    fn shapes(&mut self, key: &str, job: &TrainingJob, now: Time) -> Result<Vec<ShapeIdx>, TranslateError> {
        let mut shapes = Vec::with_capacity(job.spec.roles.len());
        let avoided: Vec<String> = self.records.get(key).map_or_else(Vec::new, |r| {
            r.avoided.iter().filter(|(_, (until, _))| *until > now).map(|(node, _)| node.clone()).collect()
        });
        for row in 0..job.spec.roles.len() {
            let spec = self.effective_pod(key, job, row);
            let ask = PodAsk::of_ours(&spec)
                .map_err(|f| f.under(&format!("spec.roles[{row}].template.spec.")).of(translate::job::object(job)))?;
            let ask = translate::job::narrowed(ask, |c| c.avoiding(avoided.iter().cloned()));
            let ask = self.with_volumes(key, job, row, &spec, ask);
            let known = self.state.resources.len();
            shapes.push(self.book.shape(&mut self.state, &ask, &self.index.nodes));
            self.resources_grew(known);
        }
        Ok(shapes)
    }

    /// The pod of a role as the API server would make it: by a dry run where one was answered, else by what its
    /// RuntimeClass and LimitRanges say.
    pub(crate) fn effective_pod(&self, key: &str, job: &TrainingJob, role: usize) -> PodSpec {
        if let Some(probed) = self.records.get(key).and_then(|r| r.asks.get(role)?.clone()) {
            return (*probed).clone();
        }
        let mut spec = job.spec.roles[role].template.spec.clone().unwrap_or_default();
        if let Some(class) = spec.runtime_class_name.as_ref().and_then(|name| self.index.runtime_classes.get(name)) {
            spec = translate::defaults::with_runtime_class(spec, class);
        }
        let namespace = job.metadata.namespace.as_deref().unwrap_or_default();
        let ranges = self.index.limit_ranges.values().filter(|r| r.metadata.namespace.as_deref() == Some(namespace));
        translate::defaults::with_limit_ranges(spec, ranges.map(AsRef::as_ref))
    }

    /// Annotations of a job's namespace.
    #[must_use]
    pub fn annotations_of(&self, job: &TrainingJob) -> Option<&BTreeMap<String, String>> {
        let namespace = self.index.namespaces.get(job.metadata.namespace.as_deref()?)?;
        namespace.metadata.annotations.as_ref()
    }

    fn remove_from_plan(&mut self, key: &str, now: Time) {
        if let Some(row) = self.state.find_job(key) {
            self.nodes_of_job_dirty(row);
            self.state.remove_job(row, now);
            self.changed = true;
        }
    }

    fn forget_job(&mut self, key: &str, now: Time) {
        // What an unreadable job holds stays counted as its pods: they are foreign to the planner now.
        self.remove_from_plan(key, now);
        self.records.remove(key);
    }
}
