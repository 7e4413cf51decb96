//! The timeline: what operators and users do to nodes and jobs, and a controller that loses its memory.

use super::{After, RunError, Runner, shown, stored, uid};
use crate::scenario::event::What;
use crate::scenario::life::Life;
use crate::scenario::operator::Operator;
use crate::scenario::timeline::Happening;
use crds::v1alpha1::Phase as JobPhase;
use planner::Time;
use planner::job::{Phase, Placement};
use std::collections::BTreeMap;
use translate::time;

/// Seats with the names of their nodes, and until when they hold room.
type NamedSeats = (Vec<(planner::job::Seat, String)>, Time);

impl Runner<'_> {
    pub(super) fn happenings(&mut self) -> Result<(), RunError> {
        let scenario = self.scenario;
        while let Some((at, happening)) = scenario.timeline.get(self.next_event)
            && *at <= self.now
        {
            self.next_event += 1;
            self.happen(happening)?;
        }
        Ok(())
    }

    pub(super) fn happen(&mut self, happening: &Happening) -> Result<(), RunError> {
        match happening {
            Happening::Cordon(node) => self.schedulable(node, false),
            Happening::Uncordon(node) => self.schedulable(node, true),
            Happening::NodeLost(node) => {
                self.store.lost.insert(node.clone());
                self.operator.node_changed(&self.store, node, self.now)?;
                for row in self.operator.holding() {
                    self.operator.note_lost(Some(row));
                }
                Ok(())
            }
            Happening::NodeBack(node) => {
                self.store.lost.remove(node);
                Ok(self.operator.node_changed(&self.store, node, self.now)?)
            }
            Happening::DeleteJob(job) => self.delete(&stored(job)),
            Happening::Suspend(job) => self.suspend(&stored(job)),
            Happening::Resume(job) => self.resume(&stored(job)),
            Happening::Label { node, set } => self.label(node, set),
            Happening::PatchJob(job, patch) => self.patch_job(&stored(job), patch),
            Happening::PatchQueue(queue, patch) => self.patch_queue(queue, patch),
            Happening::Restart => self.restart(),
        }
    }

    pub(super) fn schedulable(&mut self, node: &str, yes: bool) -> Result<(), RunError> {
        if let Some(object) = self.store.nodes.get_mut(node) {
            object.spec.get_or_insert_default().unschedulable = Some(!yes);
        }
        Ok(self.operator.node_changed(&self.store, node, self.now)?)
    }

    pub(super) fn label(&mut self, node: &str, set: &BTreeMap<String, Option<String>>) -> Result<(), RunError> {
        let Some(object) = self.store.nodes.get_mut(node) else { return Ok(()) };
        let labels = object.metadata.labels.get_or_insert_default();
        for (key, value) in set {
            match value {
                Some(value) => labels.insert(key.clone(), value.clone()),
                None => labels.remove(key),
            };
        }
        self.gate.see_node(&self.store, node);
        Ok(self.operator.place_nodes(&self.store, self.now)?)
    }

    /// A waiting job's promise goes with the edit.
    pub(super) fn drop_promise(&mut self, key: &str) {
        let Some(row) = self.operator.state.find_job(key) else { return };
        let reservation = self.operator.state.job(row).and_then(|j| j.waiting()).and_then(|w| w.reservation.as_ref());
        let Some(from) = reservation.map(|r| r.start) else { return };
        self.operator.state.update_job(row, self.now, |j| {
            if let Phase::Waiting(w) = &mut j.phase {
                w.reservation = None;
            }
        });
        self.store.release(key, "JobEdited");
        let cause = Some(format!("JobEdited({})", shown(key)));
        self.tell(key, What::ReservationMoved { from, to: None, cause });
    }

    pub(super) fn delete(&mut self, key: &str) -> Result<(), RunError> {
        if let Some((after, _)) = self.leaving.get_mut(key) {
            *after = After::Delete;
            return Ok(());
        }
        let runs = self.lives.get(key).is_some_and(Life::runs);
        if runs {
            let lost = self.stop_life(key);
            self.tell(key, What::Stopped { cause: "Deleted".into(), by: None, lost });
            return self.leave(key, After::Delete, "Deleted");
        }
        self.drop_promise(key);
        if let Some(row) = self.operator.state.find_job(key) {
            self.operator.state.remove_job(row, self.now);
        }
        self.forget(key);
        Ok(())
    }

    pub(super) fn suspend(&mut self, key: &str) -> Result<(), RunError> {
        let Some(job) = self.store.jobs.get_mut(key) else { return Ok(()) };
        if job.spec.suspend || job.status.as_ref().and_then(|s| s.phase).is_some_and(JobPhase::is_finished) {
            return Ok(());
        }
        job.spec.suspend = true;
        self.reasons.remove(key);
        self.operator.withdrawn(&uid(&self.store, key), self.now);
        if let Some((after, _)) = self.leaving.get_mut(key) {
            if matches!(after, After::Requeue { .. }) {
                *after = After::Suspend;
            }
            return Ok(());
        }
        if self.lives.get(key).is_some_and(Life::runs) {
            let lost = self.stop_life(key);
            self.tell(key, What::Stopped { cause: "Suspended".into(), by: None, lost });
            return self.leave(key, After::Suspend, "Suspended");
        }
        self.drop_promise(key);
        if let Some(row) = self.operator.state.find_job(key) {
            self.operator.state.remove_job(row, self.now);
        }
        self.store.set_phase(key, JobPhase::Suspended);
        Ok(())
    }

    pub(super) fn resume(&mut self, key: &str) -> Result<(), RunError> {
        let Some(job) = self.store.jobs.get_mut(key).filter(|j| j.spec.suspend) else { return Ok(()) };
        job.spec.suspend = false;
        let at = time::timestamp(self.now);
        if let Some(status) = self.store.status(key) {
            status.queued_at = at;
        }
        if let Some((after, _)) = self.leaving.get_mut(key) {
            *after = After::Requeue { requeued: false, last_placement: None };
            return Ok(());
        }
        self.store.set_phase(key, JobPhase::Pending);
        self.operator.add_job(&self.store, key, self.now, Phase::Waiting(Box::default()), self.now)?;
        Ok(())
    }

    /// All memory is lost; what is in the objects remains. Pods that are on their way out are objects too.
    pub(super) fn restart(&mut self) -> Result<(), RunError> {
        let shedding: Vec<(String, Vec<NamedSeats>)> = self
            .operator
            .state
            .jobs()
            .filter(|(_, j)| !j.shedding.is_empty())
            .map(|(_, j)| {
                let named = |p: &Placement| p.seats.iter().map(|s| (*s, self.operator.name(s.node))).collect();
                (j.spec.key.to_string(), j.shedding.iter().map(|(p, until)| (named(p), *until)).collect())
            })
            .collect();
        self.store.private_running = self.operator.private_running();
        self.operator = Operator::start(&self.store, self.now, self.policy.private_schedules)?;
        for (key, shed) in shedding {
            let Some(row) = self.operator.state.find_job(&key) else { continue };
            let placed: Vec<(Placement, Time)> = shed
                .into_iter()
                .map(|(seats, until)| {
                    let found = seats.into_iter().filter_map(|(seat, name)| {
                        Some(planner::job::Seat { node: self.operator.state.find_node(&name)?, ..seat })
                    });
                    (Placement { seats: found.collect() }, until)
                })
                .collect();
            self.operator.state.update_job(row, self.now, |j| j.shedding = placed);
        }
        self.note_cleared();
        Ok(())
    }
}
