//! What ends at an instant: lives, limits, graces, foreign pods; and what follows when a stopped job's room is free.

use super::{After, RunError, Runner, Tick, uid};
use crate::scenario::event::What;
use crate::scenario::life::Next;
use crds::v1alpha1::{Phase as JobPhase, Stopping};
use planner::job::{Leaving, Phase, Placement, Waiting};
use planner::{JobIdx, Span, Time};
use translate::lifecycle::failure;
use translate::time;

impl Runner<'_> {
    pub(super) fn ends(&mut self) -> Result<(), RunError> {
        while let Some(entry) = self.ticks.first_entry().filter(|e| *e.key() <= self.now) {
            for tick in entry.remove() {
                match tick {
                    Tick::Room => self.room_came_free()?,
                    Tick::Life(key, stamp) => self.live_on(&key, stamp)?,
                    Tick::Gone(key) => self.gone(&key)?,
                    Tick::Wake => {}
                }
            }
        }
        Ok(())
    }

    pub(super) fn room_came_free(&mut self) -> Result<(), RunError> {
        self.operator.state.settle_shedding(self.now);
        for node in self.store.drop_occupants(self.now) {
            self.operator.node_changed(&self.store, &node, self.now)?;
        }
        Ok(())
    }

    pub(super) fn limit(&self, key: &str) -> Span {
        let row = self.operator.state.find_job(key);
        row.and_then(|r| self.operator.state.job(r)).map_or(Span::FOREVER, |j| j.spec.max_runtime)
    }

    pub(super) fn foresee_life(&mut self, key: &str) {
        let limit = self.limit(key);
        let Some(life) = self.lives.get(key) else { return };
        let stamp = life.stamp;
        if let Some((at, _)) = life.next(limit) {
            self.foresee(at, Tick::Life(key.to_owned(), stamp));
        }
    }

    pub(super) fn live_on(&mut self, key: &str, stamp: u64) -> Result<(), RunError> {
        let limit = self.limit(key);
        let Some(life) = self.lives.get_mut(key).filter(|l| l.stamp == stamp) else { return Ok(()) };
        match life.next(limit) {
            Some((at, Next::Succeeds)) if at <= self.now => self.finish(key, "Succeeded"),
            Some((at, Next::Exceeds)) if at <= self.now => {
                life.stop(self.now, None);
                self.leave(key, After::Finish("RuntimeExceeded"), "RuntimeExceeded")?;
            }
            Some((at, Next::Fails(rank, code))) if at <= self.now => {
                life.use_failure();
                self.fail(key, rank, code)?;
            }
            _ => self.foresee_life(key),
        }
        Ok(())
    }

    pub(super) fn fail(&mut self, key: &str, rank: u32, code: i32) -> Result<(), RunError> {
        let (Some(job), Some(life)) = (self.store.jobs.get(key), self.lives.get_mut(key)) else { return Ok(()) };
        let seat = translate::job::seat_of_rank(job, i64::from(rank));
        let role = seat.and_then(|(row, _)| job.spec.roles.get(row)).map_or("", |r| r.name.as_str());
        let role_spec = seat.and_then(|(row, _)| job.spec.roles.get(row));
        let in_place = role_spec.and_then(|r| r.template.spec.as_ref()?.restart_policy.as_deref()) == Some("OnFailure");
        if in_place && life.restart_in_place(rank, job.spec.failure_policy.max_restarts) {
            self.foresee_life(key);
            return Ok(());
        }
        let decision = failure::decide(&job.spec.failure_policy, role, Some(code), life.restarts);
        if decision.counted {
            life.restarts += 1;
        }
        match decision.action {
            failure::Action::Fail => {
                life.stop(self.now, None);
                self.leave(key, After::Finish("Failed"), "Failed")?;
            }
            failure::Action::RestartGang => {
                let placement = self.placement(key);
                let lost = self.stop_life(key);
                self.tell(key, What::Stopped { cause: "Failed".into(), by: None, lost });
                self.leave(key, After::Requeue { requeued: false, last_placement: placement }, "Failed")?;
            }
            // The pod comes back at its place; the gang's work goes on.
            failure::Action::ReplacePod | failure::Action::Ignore => self.foresee_life(key),
        }
        Ok(())
    }

    pub(super) fn placement(&self, key: &str) -> Option<Placement> {
        let row = self.operator.state.find_job(key)?;
        self.operator.state.job(row)?.running().map(|r| r.placement.clone())
    }

    pub(super) fn checkpoint(&self, key: &str) -> Option<Span> {
        self.store.jobs.get(key)?.spec.checkpoint?.every.map(time::span)
    }

    /// Stops a job's clock; the seconds of work that are lost.
    pub(super) fn stop_life(&mut self, key: &str) -> Time {
        let checkpoint = self.checkpoint(key);
        let lost = self.lives.get_mut(key).map_or(Span::ZERO, |life| life.stop(self.now, checkpoint));
        Time(lost.0)
    }

    pub(super) fn finish(&mut self, key: &str, result: &'static str) {
        self.settle_use(key);
        if let Some(row) = self.operator.state.find_job(key) {
            self.operator.state.remove_job(row, self.now);
        }
        self.store.release(key, result);
        self.note_cleared();
        self.store.set_phase(key, if result == "Succeeded" { JobPhase::Succeeded } else { JobPhase::Failed });
        if let Some(status) = self.store.status(key) {
            status.finished_at = time::timestamp(self.now);
        }
        if let Some(life) = self.lives.get_mut(key) {
            life.finish(self.now);
            let length = life.length();
            self.operator.ended(&uid(&self.store, key), length, self.now);
        }
        self.reasons.remove(key);
        self.gate.see_job(&self.store, key);
        self.tell(key, What::Finished { result: result.into() });
    }

    /// A running job is told to go; what follows when its room is free is remembered. For stops that no plan decided.
    pub(super) fn leave(&mut self, key: &str, after: After, cause: &str) -> Result<(), RunError> {
        let Some(row) = self.operator.state.find_job(key) else { return Ok(()) };
        self.operator.state.update_job(row, self.now, |j| {
            let gone_by = self.now + j.spec.grace;
            if let Phase::Running(running) = &mut j.phase {
                let placement = std::mem::take(&mut running.placement);
                j.phase = Phase::Leaving(Box::new(Leaving { placement, gone_by, taker: None }));
            }
        });
        self.stopping(key, after, cause)
    }

    /// The object says that a job is stopping; without grace it is gone at once.
    pub(super) fn stopping(&mut self, key: &str, after: After, cause: &str) -> Result<(), RunError> {
        let grace = self.operator.state.find_job(key).and_then(|r| self.operator.state.job(r)).map(|j| j.spec.grace);
        let grace = grace.unwrap_or(Span::ZERO);
        let at = time::timestamp(self.now);
        if let (Some(berth), Some(at)) = (self.store.current_berth(key), at) {
            let seconds = grace.0.div_euclid(1_000_000);
            berth.spec.stopping = Some(Stopping { cause: cause.into(), at, grace_period_seconds: Some(seconds) });
        }
        self.leaving.insert(key.to_owned(), (after, cause.to_owned()));
        if grace == Span::ZERO {
            return self.gone(key);
        }
        self.foresee(self.now + grace, Tick::Gone(key.to_owned()));
        Ok(())
    }

    /// A stopped job's room is free.
    pub(super) fn gone(&mut self, key: &str) -> Result<(), RunError> {
        let Some((after, cause)) = self.leaving.remove(key) else { return Ok(()) };
        if let After::Finish(result) = after {
            self.finish(key, result);
            return Ok(());
        }
        self.settle_use(key);
        self.store.release(key, &cause);
        self.note_cleared();
        let Some(row) = self.operator.state.find_job(key) else { return Ok(()) };
        match after {
            After::Requeue { requeued, last_placement } => {
                let private_start = self.store.jobs.get(key).and_then(|j| j.status.as_ref()?.private_start);
                let waiting = Waiting {
                    requeued,
                    last_placement,
                    private_start: private_start.map(time::time),
                    ..Waiting::default()
                };
                self.operator.state.requeue(row, self.now, waiting);
                self.store.set_phase(key, JobPhase::Pending);
                self.gate.see_job(&self.store, key);
            }
            After::Suspend => {
                self.operator.state.remove_job(row, self.now);
                self.store.set_phase(key, JobPhase::Suspended);
            }
            After::Delete => {
                self.operator.state.remove_job(row, self.now);
                self.forget(key);
            }
            After::Finish(_) => {}
        }
        Ok(())
    }

    pub(super) fn forget(&mut self, key: &str) {
        self.operator.withdrawn(&uid(&self.store, key), self.now);
        self.store.jobs.remove(key);
        self.store.sequence.remove(key);
        self.reasons.remove(key);
        self.gate.see_job(&self.store, key);
        self.deleted.insert(key.to_owned());
    }

    /// Where nobody is leaving any more for a promised job, its promise is no clearing one any more.
    pub(super) fn note_cleared(&mut self) {
        let reserved: Vec<JobIdx> = self.operator.state.reserved().iter().copied().collect();
        for row in reserved {
            let key = self.operator.key(row);
            let clearing = self.store.is_clearing(&key);
            let waits = self.operator.state.job(row).and_then(|j| j.waiting()).and_then(|w| w.reservation.as_ref());
            if waits.is_some_and(|r| r.clearing && !clearing) {
                self.operator.state.update_job(row, self.now, |j| {
                    if let Phase::Waiting(w) = &mut j.phase
                        && let Some(r) = &mut w.reservation
                    {
                        r.clearing = false;
                    }
                });
            }
        }
    }
}
