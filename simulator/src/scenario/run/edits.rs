//! Edits of jobs and queues in the timeline, as an API server and the webhook would take them.

use super::{RunError, Runner};
use crate::scenario::document::quantities_as_text;
use crate::scenario::event::What;
use planner::Time;
use planner::job::{JobSpec, Phase, Placement};
use std::sync::Arc;
use translate::time;

impl Runner<'_> {
    pub(super) fn patch_queue(
        &mut self,
        name: &str,
        patch: &serde_json::Map<String, serde_json::Value>,
    ) -> Result<(), RunError> {
        if let Some(queue) = self.store.queues.get_mut(name) {
            let mut spec = serde_json::to_value(&queue.spec).expect("an API object is JSON");
            let mut patch = serde_json::Value::Object(patch.clone());
            quantities_as_text(&mut patch);
            merge(&mut spec, &patch);
            if let Ok(spec) = serde_json::from_value(spec) {
                queue.spec = spec;
            }
        }
        self.gate.see_queue(&self.store, name);
        Ok(self.operator.queues_changed(&self.store, self.now)?)
    }

    pub(super) fn patch_job(
        &mut self,
        key: &str,
        patch: &serde_json::Map<String, serde_json::Value>,
    ) -> Result<(), RunError> {
        let Some(old) = self.store.jobs.get(key).cloned() else { return Ok(()) };
        let mut manifest = serde_json::to_value(&old).expect("an API object is JSON");
        let mut patch = patch.clone();
        let suspend = patch.remove("suspend").and_then(|v| v.as_bool());
        if let Some(roles) = patch.remove("roles") {
            merge_roles(&mut manifest["spec"]["roles"], &roles);
        }
        merge(&mut manifest["spec"], &serde_json::Value::Object(patch));
        match self.gate.judge(&manifest, Some(&old)) {
            Err(refusal) => {
                self.tell(key, What::EditRefused { code: refusal.code, message: refusal.message });
            }
            Ok(job) => {
                self.store.jobs.insert(key.to_owned(), job);
                self.gate.see_job(&self.store, key);
                self.respec(key, old)?;
            }
        }
        match suspend {
            Some(true) => self.suspend(key),
            Some(false) => self.resume(key),
            None => Ok(()),
        }
    }

    /// A job's spec changed: the planner's follows. A running job's longer limit waits for its next start where it
    /// would run into a promise.
    pub(super) fn respec(&mut self, key: &str, old: crds::TrainingJob) -> Result<(), RunError> {
        let Some(row) = self.operator.state.find_job(key) else { return Ok(()) };
        let job = self.store.jobs[key].clone();
        let spec = self.operator.spec(&self.store, &job)?;
        let there = self.operator.state.job(row).cloned();
        let Some(there) = there else { return Ok(()) };
        match &there.phase {
            Phase::Waiting(waiting) => {
                let shorter = asks_no_more(&there.spec, &spec);
                if waiting.reservation.is_some() && !shorter {
                    self.drop_promise(key);
                }
                self.operator.state.update_job(row, self.now, |j| {
                    j.spec = Arc::new(spec);
                    let window = j.spec.window();
                    if let Phase::Waiting(w) = &mut j.phase
                        && let Some(r) = &mut w.reservation
                    {
                        r.end = r.start + window;
                    }
                });
                self.operator.edited(row, self.now);
            }
            Phase::Running(running) => {
                let ends = running.started + spec.window();
                if ends > running.ends && self.runs_into_a_promise(&running.placement, running.ends, ends) {
                    self.store.jobs.insert(key.to_owned(), old);
                    let message = "a longer limit would move a promise; it can be raised when that has started".into();
                    self.tell(key, What::ChangeDeferred { message });
                    return Ok(());
                }
                self.operator.state.update_job(row, self.now, |j| {
                    j.spec = Arc::new(spec);
                    if let Phase::Running(r) = &mut j.phase {
                        r.ends = ends;
                    }
                });
                if let Some(berth) = self.store.current_berth(key) {
                    berth.spec.end = time::timestamp(ends);
                }
                if let Some(life) = self.lives.get_mut(key) {
                    life.stamp += 1;
                }
                self.foresee_life(key);
            }
            Phase::Leaving(_) => self.operator.state.update_job(row, self.now, |j| j.spec = Arc::new(spec)),
        }
        Ok(())
    }

    pub(super) fn runs_into_a_promise(&self, placement: &Placement, from: Time, to: Time) -> bool {
        let nodes = placement.nodes();
        self.operator.state.reserved().iter().any(|row| {
            let waiting = self.operator.state.job(*row).and_then(|j| j.waiting());
            waiting
                .and_then(|w| w.reservation.as_ref())
                .is_some_and(|r| r.start < to && r.end > from && r.placement.nodes().iter().any(|n| nodes.contains(n)))
        })
    }
}

/// Whether a waiting job's edit asks for no more than before, so that its promise can stand.
fn asks_no_more(old: &JobSpec, new: &JobSpec) -> bool {
    let mut as_before = new.clone();
    as_before.max_runtime = old.max_runtime;
    as_before.expected_runtime = old.expected_runtime;
    as_before.priority = old.priority;
    // A raised priority may pass promises that stood before its own: it is planned anew.
    as_before == *old && new.max_runtime <= old.max_runtime && new.priority <= old.priority
}

/// JSON merge patch.
fn merge(target: &mut serde_json::Value, patch: &serde_json::Value) {
    let serde_json::Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = serde_json::json!({});
    }
    let Some(map) = target.as_object_mut() else { return };
    for (key, value) in patch {
        if value.is_null() {
            map.remove(key);
        } else {
            merge(map.entry(key.clone()).or_insert(serde_json::Value::Null), value);
        }
    }
}

/// Roles are merged by name.
fn merge_roles(target: &mut serde_json::Value, patch: &serde_json::Value) {
    let (Some(target), Some(patch)) = (target.as_array_mut(), patch.as_array()) else { return };
    for role in patch {
        let name = role.get("name").cloned().unwrap_or_else(|| "worker".into());
        match target.iter_mut().find(|t| t.get("name") == Some(&name)) {
            Some(there) => merge(there, role),
            None => target.push(role.clone()),
        }
    }
}
