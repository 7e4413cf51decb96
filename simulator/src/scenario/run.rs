//! The clock of a scenario: at each instant ends, then the timeline, then submissions in file order, then passes of the
//! planner until nothing changes.

use super::event::{Event, Rank, What};
use super::input::Scenario;
use super::life::{Life, Next};
use super::operator::Operator;
use super::report::{Checks, JobReport, PendingReport, RunReport, digest};
use super::shorthand::Submission;
use super::store::Store;
use super::submit::Gate;
use super::timeline::Happening;
use crate::brain::{Brain, summary};
use crds::v1alpha1::{BerthState, Clears, Moved, Phase as JobPhase, Stopping};
use planner::job::{JobSpec, Leaving, Phase, Placement, Waiting};
use planner::plan::{Action, Plan, StopCause};
use planner::policy::Policy;
use planner::{JobIdx, Span, Time};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use thiserror::Error;
use translate::berth::Decision;
use translate::lifecycle::failure;
use translate::{TranslateError, time};

/// Most passes at one instant: planning again after carrying a plan out must soon change nothing.
const MOST_PASSES: u32 = 200;
/// Most instants in a row at which the clock only looks again and nothing comes of it.
const MOST_IDLE: u32 = 2000;

/// Why a run could not go on.
#[derive(Debug, Error)]
pub enum RunError {
    /// An object that admission let pass cannot be understood.
    #[error(transparent)]
    Object(#[from] TranslateError),
    /// Planning again always changed something.
    #[error(
        "at {0} s the planner never came to rest: planning again after {MOST_PASSES} passes still changed something"
    )]
    NeverSettles(f64),
}

/// Runs a scenario to its horizon, or until nothing is left to happen.
///
/// # Errors
/// If an object cannot be understood or the planner never comes to rest.
pub fn run(scenario: &Scenario, brain: Brain) -> Result<RunReport, RunError> {
    let mut runner = Runner::new(scenario, brain)?;
    runner.go()?;
    Ok(runner.report())
}

/// Something foreseen.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Tick {
    /// A foreign pod leaves, or a shed pod is gone.
    Room,
    /// The next thing in a job's life, unless its stamp is old.
    Life(String, u64),
    /// A stopping job's grace is over.
    Gone(String),
    /// Look again.
    Wake,
}

/// What follows when a stopped job's room is free.
#[derive(Clone, Debug, PartialEq)]
enum After {
    Requeue { requeued: bool, last_placement: Option<Placement> },
    Finish(&'static str),
    Suspend,
    Delete,
}

struct Runner<'a> {
    scenario: &'a Scenario,
    brain: Brain,
    policy: Policy,
    gate: Gate,
    store: Store,
    operator: Operator,
    lives: BTreeMap<String, Life>,
    leaving: BTreeMap<String, (After, String)>,
    reasons: BTreeMap<String, (planner::reason::Code, Arc<str>, String)>,
    rejected: BTreeMap<String, Time>,
    deleted: BTreeSet<String>,
    ticks: BTreeMap<Time, BTreeSet<Tick>>,
    next_event: usize,
    submissions: Vec<&'a Submission>,
    next_submission: usize,
    now: Time,
    events: Vec<Event>,
    checks: Checks,
    faults: Vec<String>,
}

/// Seats with the names of their nodes, and until when they hold room.
type NamedSeats = (Vec<(planner::job::Seat, String)>, Time);

impl<'a> Runner<'a> {
    fn new(scenario: &'a Scenario, brain: Brain) -> Result<Self, RunError> {
        let store = Store::of(scenario);
        let policy = scenario.knobs.policy();
        let operator = Operator::start(&store, Time::ZERO, policy.private_schedules)?;
        let mut submissions: Vec<&Submission> = scenario.submissions.iter().collect();
        submissions.sort_by_key(|s| s.at);
        let mut ticks: BTreeMap<Time, BTreeSet<Tick>> = BTreeMap::new();
        for occupant in scenario.occupants.iter().filter(|o| !o.until.is_never()) {
            ticks.entry(occupant.until).or_default().insert(Tick::Room);
        }
        Ok(Self {
            policy,
            scenario,
            brain,
            gate: Gate::of(&store, scenario.classes.values()),
            store,
            operator,
            lives: BTreeMap::new(),
            leaving: BTreeMap::new(),
            reasons: BTreeMap::new(),
            rejected: BTreeMap::new(),
            deleted: BTreeSet::new(),
            ticks,
            next_event: 0,
            submissions,
            next_submission: 0,
            now: Time::ZERO,
            events: Vec::new(),
            checks: Checks::default(),
            faults: Vec::new(),
        })
    }

    // --- the clock ---

    fn go(&mut self) -> Result<(), RunError> {
        let mut idle = 0;
        while let Some((at, only_looking)) = self.next_time() {
            if at > self.scenario.horizon {
                self.now = self.scenario.horizon;
                return Ok(());
            }
            self.now = at;
            let before = self.events.len();
            self.ends()?;
            self.happenings()?;
            self.submit_due()?;
            self.plan_until_settled()?;
            idle = if only_looking && self.events.len() == before { idle + 1 } else { 0 };
            if idle > MOST_IDLE {
                return Ok(());
            }
        }
        Ok(())
    }

    /// The next instant, and whether nothing but looking again is due then.
    fn next_time(&self) -> Option<(Time, bool)> {
        let tick = self.ticks.first_key_value();
        let event = self.scenario.timeline.get(self.next_event).map(|(at, _)| *at);
        let submission = self.submissions.get(self.next_submission).map(|s| s.at);
        let at = [tick.map(|(at, _)| *at), event, submission].into_iter().flatten().min()?;
        let only_looking = event != Some(at)
            && submission != Some(at)
            && tick.is_some_and(|(_, ticks)| ticks.iter().all(|t| *t == Tick::Wake));
        Some((at, only_looking))
    }

    fn foresee(&mut self, at: Time, tick: Tick) {
        if !at.is_never() {
            self.ticks.entry(at.max(self.now)).or_default().insert(tick);
        }
    }

    fn tell(&mut self, key: &str, what: What) {
        self.events.push(Event { t: self.now, job: shown(key).to_owned(), what });
    }

    // --- 1. ends ---

    fn ends(&mut self) -> Result<(), RunError> {
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

    fn room_came_free(&mut self) -> Result<(), RunError> {
        self.operator.state.settle_shedding(self.now);
        for node in self.store.drop_occupants(self.now) {
            self.operator.node_changed(&self.store, &node, self.now)?;
        }
        Ok(())
    }

    fn limit(&self, key: &str) -> Span {
        let row = self.operator.state.find_job(key);
        row.and_then(|r| self.operator.state.job(r)).map_or(Span::FOREVER, |j| j.spec.max_runtime)
    }

    fn foresee_life(&mut self, key: &str) {
        let limit = self.limit(key);
        let Some(life) = self.lives.get(key) else { return };
        let stamp = life.stamp;
        if let Some((at, _)) = life.next(limit) {
            self.foresee(at, Tick::Life(key.to_owned(), stamp));
        }
    }

    fn live_on(&mut self, key: &str, stamp: u64) -> Result<(), RunError> {
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

    fn fail(&mut self, key: &str, rank: u32, code: i32) -> Result<(), RunError> {
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

    fn placement(&self, key: &str) -> Option<Placement> {
        let row = self.operator.state.find_job(key)?;
        self.operator.state.job(row)?.running().map(|r| r.placement.clone())
    }

    fn checkpoint(&self, key: &str) -> Option<Span> {
        self.store.jobs.get(key)?.spec.checkpoint?.every.map(time::span)
    }

    /// Stops a job's clock; the seconds of work that are lost.
    fn stop_life(&mut self, key: &str) -> Time {
        let checkpoint = self.checkpoint(key);
        let lost = self.lives.get_mut(key).map_or(Span::ZERO, |life| life.stop(self.now, checkpoint));
        Time(lost.0)
    }

    fn finish(&mut self, key: &str, result: &'static str) {
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
    fn leave(&mut self, key: &str, after: After, cause: &str) -> Result<(), RunError> {
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
    fn stopping(&mut self, key: &str, after: After, cause: &str) -> Result<(), RunError> {
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
    fn gone(&mut self, key: &str) -> Result<(), RunError> {
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

    fn forget(&mut self, key: &str) {
        self.operator.withdrawn(&uid(&self.store, key), self.now);
        self.store.jobs.remove(key);
        self.store.sequence.remove(key);
        self.reasons.remove(key);
        self.gate.see_job(&self.store, key);
        self.deleted.insert(key.to_owned());
    }

    /// Where nobody is leaving any more for a promised job, its promise is no clearing one any more.
    fn note_cleared(&mut self) {
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

    // --- 2. the timeline ---

    fn happenings(&mut self) -> Result<(), RunError> {
        let scenario = self.scenario;
        while let Some((at, happening)) = scenario.timeline.get(self.next_event)
            && *at <= self.now
        {
            self.next_event += 1;
            self.happen(happening)?;
        }
        Ok(())
    }

    fn happen(&mut self, happening: &Happening) -> Result<(), RunError> {
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

    fn schedulable(&mut self, node: &str, yes: bool) -> Result<(), RunError> {
        if let Some(object) = self.store.nodes.get_mut(node) {
            object.spec.get_or_insert_default().unschedulable = Some(!yes);
        }
        Ok(self.operator.node_changed(&self.store, node, self.now)?)
    }

    fn label(&mut self, node: &str, set: &BTreeMap<String, Option<String>>) -> Result<(), RunError> {
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
    fn drop_promise(&mut self, key: &str) {
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

    fn delete(&mut self, key: &str) -> Result<(), RunError> {
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

    fn suspend(&mut self, key: &str) -> Result<(), RunError> {
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

    fn resume(&mut self, key: &str) -> Result<(), RunError> {
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

    fn patch_queue(&mut self, name: &str, patch: &serde_json::Map<String, serde_json::Value>) -> Result<(), RunError> {
        if let Some(queue) = self.store.queues.get_mut(name) {
            let mut spec = serde_json::to_value(&queue.spec).expect("an API object is JSON");
            let mut patch = serde_json::Value::Object(patch.clone());
            super::document::quantities_as_text(&mut patch);
            merge(&mut spec, &patch);
            if let Ok(spec) = serde_json::from_value(spec) {
                queue.spec = spec;
            }
        }
        self.gate.see_queue(&self.store, name);
        Ok(self.operator.queues_changed(&self.store, self.now)?)
    }

    fn patch_job(&mut self, key: &str, patch: &serde_json::Map<String, serde_json::Value>) -> Result<(), RunError> {
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
    fn respec(&mut self, key: &str, old: crds::TrainingJob) -> Result<(), RunError> {
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

    fn runs_into_a_promise(&self, placement: &Placement, from: Time, to: Time) -> bool {
        let nodes = placement.nodes();
        self.operator.state.reserved().iter().any(|row| {
            let waiting = self.operator.state.job(*row).and_then(|j| j.waiting());
            waiting
                .and_then(|w| w.reservation.as_ref())
                .is_some_and(|r| r.start < to && r.end > from && r.placement.nodes().iter().any(|n| nodes.contains(n)))
        })
    }

    /// All memory is lost; what is in the objects remains. Pods that are on their way out are objects too.
    fn restart(&mut self) -> Result<(), RunError> {
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

    // --- 3. submissions ---

    fn submit_due(&mut self) -> Result<(), RunError> {
        while let Some(submission) = self.submissions.get(self.next_submission).copied().filter(|s| s.at <= self.now) {
            self.next_submission += 1;
            self.submit(submission)?;
        }
        Ok(())
    }

    fn submit(&mut self, submission: &Submission) -> Result<(), RunError> {
        let key = stored(&submission.name());
        match self.gate.judge(&submission.manifest, None) {
            Err(refusal) => {
                self.rejected.insert(key.clone(), self.now);
                self.tell(&key, What::Rejected { code: refusal.code, message: refusal.message });
                Ok(())
            }
            Ok(mut job) => {
                let number = self.store.sequence.len() as u64 + self.deleted.len() as u64;
                job.metadata.uid = Some(format!("{number:08}"));
                job.metadata.generation = Some(1);
                no_grace_unless_asked(&mut job);
                let suspended = job.spec.suspend;
                self.store.jobs.insert(key.clone(), job);
                self.store.sequence.insert(key.clone(), number);
                self.lives.insert(key.clone(), Life::of(submission));
                let at = time::timestamp(self.now);
                if let Some(status) = self.store.status(&key) {
                    status.submitted_at = at;
                    status.phase = Some(if suspended { JobPhase::Suspended } else { JobPhase::Pending });
                }
                self.gate.see_job(&self.store, &key);
                if !suspended {
                    self.operator.add_job(&self.store, &key, self.now, Phase::Waiting(Box::default()), self.now)?;
                }
                Ok(())
            }
        }
    }

    // --- 4. passes ---

    fn plan_until_settled(&mut self) -> Result<(), RunError> {
        for _ in 0..MOST_PASSES {
            let plan = self.plan();
            self.operator.state.planned();
            if let Some(wake) = plan.wake.filter(|w| *w > self.now) {
                self.foresee(wake, Tick::Wake);
            }
            if plan.actions.is_empty() {
                self.tell_reasons(&plan);
                return Ok(());
            }
            for action in &plan.actions {
                self.act(action)?;
            }
        }
        Err(RunError::NeverSettles(self.now.as_secs_f64()))
    }

    fn plan(&mut self) -> Plan {
        self.pass_private_time();
        let snapshot = self.operator.state.at(self.now);
        let plan = (self.brain.plan)(&snapshot, &self.policy);
        let faults = (self.brain.faults)(&snapshot, &self.policy, &plan);
        self.checks.cycles += 1;
        self.checks.plan_checks += 1;
        self.checks.violations += faults.len();
        if !faults.is_empty() {
            let (now, actions) = (self.now.as_secs_f64(), summary(&snapshot, &plan));
            self.faults.extend(faults.into_iter().map(|fault| format!("at {now} s: {fault}; the plan: {actions}")));
        }
        plan
    }

    /// Private starts that have come are written into the jobs' status: from then on they are guaranteed.
    fn pass_private_time(&mut self) {
        for (key, at) in self.operator.advance_private(self.now) {
            if let Some(status) = self.store.status(&key) {
                status.private_start = time::timestamp(at);
            }
        }
        if let Some(next) = self.operator.next_private().filter(|at| *at > self.now) {
            self.foresee(next, Tick::Wake);
        }
    }

    fn tell_reasons(&mut self, plan: &Plan) {
        for pending in &plan.pending {
            let key = self.operator.key(pending.job);
            let (code, object) = (pending.reason.code, pending.reason.object.clone());
            let message = pending.reason.to_string();
            let known = self.reasons.get(&*key).is_some_and(|(c, o, _)| *c == code && *o == object);
            self.reasons.insert(key.to_string(), (code, object, message.clone()));
            if !known {
                self.tell(&key, What::Pending { code: code.name().into(), message });
            }
        }
    }

    /// Use of a queue is about to change: what it was until now is written down.
    fn settle_use(&mut self, key: &str) {
        let Some(row) = self.operator.state.find_job(key) else { return };
        let Some(job) = self.operator.state.job(row) else { return };
        let (queue, user) = (job.spec.queue, job.spec.user.clone());
        let half_life = self.policy.share_half_life;
        planner::share::settle(&mut self.operator.state, queue, &user, self.now, half_life);
        let row = self.operator.state.queue(queue);
        let (usage, users) = (row.decayed.clone(), row.users.clone());
        let name = row.name.to_string();
        let table = &self.operator.state.resources;
        if let Some(object) = self.store.queues.get_mut(&name) {
            let status = object.status.get_or_insert_default();
            status.decayed_usage = translate::queue::decayed_usage(&usage, table);
            status.users = users
                .iter()
                .filter(|(name, _)| &***name != planner::share::POOLED)
                .map(|(name, usage)| crds::v1alpha1::UserUse {
                    name: name.to_string(),
                    usage: translate::queue::decayed_usage(usage, table),
                })
                .collect();
            let pooled = users.get(planner::share::POOLED);
            status.other_users = pooled.map(|u| translate::queue::decayed_usage(u, table)).unwrap_or_default();
        }
    }

    fn act(&mut self, action: &Action) -> Result<(), RunError> {
        let key = self.operator.key(action.job());
        if matches!(action, Action::Start { .. } | Action::Resize { .. } | Action::Replace { .. }) {
            self.settle_use(&key);
        }
        self.operator.state.apply(action, self.now);
        match action {
            Action::Start { placement, ends, quality, .. } => {
                self.started(&key, placement, *ends);
                let incarnation = self.lives.get(&*key).map_or(1, |l| l.incarnations);
                let ranks = self.ranks(&key, placement);
                self.tell(
                    &key,
                    What::Started {
                        incarnation,
                        ranks,
                        level: quality.level.to_string(),
                        domain: quality.domain.to_string(),
                        domains: quality.domains,
                    },
                );
            }
            Action::Reserve { start, end, placement, clears, .. } => {
                let clears: Vec<Clears> = clears.iter().filter_map(|victim| self.cleared(*victim)).collect();
                let domain = self.write_promise(&key, *start, *end, placement, Some(clears));
                self.tell(&key, What::Reserved { start: *start, nodes: self.operator.node_names(placement), domain });
                self.foresee(*start, Tick::Wake);
            }
            Action::Move { from, to, cause, .. } => self.moved(&key, *from, to.as_ref(), cause.as_ref()),
            Action::Stop { cause, by, .. } => self.stopped(&key, *cause, *by)?,
            Action::Resize { placement, by, .. } => {
                let by = by.map(|b| shown(&self.operator.key(b)).to_owned());
                let ranks = self.ranks(&key, placement);
                self.write_seats(&key, placement);
                self.tell(&key, What::Resized { ranks, by });
                let grace = self.operator.state.find_job(&key).and_then(|r| self.operator.state.job(r));
                let until = self.now + grace.map_or(Span::ZERO, |j| j.spec.grace);
                self.foresee(until, Tick::Room);
            }
            Action::Replace { swaps, placement, .. } => {
                self.write_seats(&key, placement);
                for (rank, from, to) in swaps {
                    let (from, to) = (self.operator.name(*from), self.operator.name(*to));
                    self.tell(&key, What::NodeReplaced { rank: *rank, from, to });
                }
            }
            Action::Guarantee { .. } => {
                let at = time::timestamp(self.now);
                if let Some(status) = self.store.status(&key) {
                    status.private_start = status.private_start.or(at);
                }
            }
        }
        Ok(())
    }

    fn ranks(&self, key: &str, placement: &Placement) -> Vec<Rank> {
        let Some(job) = self.operator.state.find_job(key).and_then(|r| self.operator.state.job(r)) else {
            return Vec::new();
        };
        let mut ranks: Vec<Rank> = placement
            .seats
            .iter()
            .map(|seat| Rank {
                rank: job.spec.first_rank(usize::from(seat.role)) + seat.index,
                role: job.spec.roles[usize::from(seat.role)].name.to_string(),
                index: seat.index,
                node: self.operator.name(seat.node),
            })
            .collect();
        ranks.sort_by_key(|r| r.rank);
        ranks
    }

    fn started(&mut self, key: &str, placement: &Placement, ends: Time) {
        let limit = self.limit(key);
        if let Some(life) = self.lives.get_mut(key) {
            life.start(self.now, limit);
        }
        self.write_berth(key, BerthState::Committed, self.now, ends, placement, Vec::new());
        let pods = i32::try_from(placement.len()).unwrap_or(i32::MAX);
        if let Some(berth) = self.store.current_berth(key) {
            let status = berth.status.get_or_insert_default();
            (status.created, status.bound, status.running) = (pods, pods, pods);
        }
        let (at, incarnation) = (time::timestamp(self.now), self.lives.get(key).map(|l| l.incarnations));
        if let Some(status) = self.store.status(key) {
            status.phase = Some(JobPhase::Running);
            status.started_at = at;
            status.incarnation = incarnation;
        }
        self.gate.see_job(&self.store, key);
        self.reasons.remove(key);
        self.foresee_life(key);
    }

    /// Writes a job's Berth, the one in force or a new one; the narrowest domain that holds it.
    fn write_berth(
        &mut self,
        key: &str,
        state: BerthState,
        start: Time,
        end: Time,
        placement: &Placement,
        clears: Vec<Clears>,
    ) -> String {
        let Some(job) = self.store.jobs.get(key) else { return String::new() };
        let incarnation = self.lives.get(key).map_or(1, |l| l.incarnations + i64::from(state == BerthState::Reserved));
        let queue = self.operator.state.find_job(key).and_then(|r| self.operator.state.job(r));
        let queue = queue.map_or("", |j| &*self.operator.state.queue(j.spec.queue).name).to_owned();
        let decision = Decision { state, start, end, placement, clears, epoch: 1, leader_epoch: 1 };
        let spec = translate::berth::spec(job, &queue, incarnation, &decision, self.operator.state.topology());
        let domain = spec.domain.clone().unwrap_or_default();
        if let Ok(berth) = translate::berth::object(job, spec) {
            let name = translate::key_of(&berth);
            match self.store.berths.get_mut(&name) {
                Some(old) => old.spec = berth.spec,
                None => {
                    self.store.berths.insert(name, berth);
                }
            }
        }
        domain
    }

    fn write_promise(
        &mut self,
        key: &str,
        start: Time,
        end: Time,
        placement: &Placement,
        clears: Option<Vec<Clears>>,
    ) -> String {
        let kept =
            || self.store.jobs.get(key).and_then(|j| self.store.berths_of(j).current).map(|b| b.spec.clears.clone());
        let clears = clears.or_else(kept).unwrap_or_default();
        self.store.set_phase(key, JobPhase::Reserved);
        let domain = self.write_berth(key, BerthState::Reserved, start, end, placement, clears);
        let promised = self.operator.state.find_job(key).and_then(|r| self.operator.state.job(r)?.waiting());
        let promised = promised.and_then(|w| w.reservation.as_ref()).map(|r| r.promised);
        if let Some(berth) = self.store.current_berth(key) {
            berth.status.get_or_insert_default().promised = promised.and_then(time::timestamp);
        }
        domain
    }

    fn write_seats(&mut self, key: &str, placement: &Placement) {
        let Some(job) = self.store.jobs.get(key) else { return };
        let roles = translate::berth::role_names(job);
        let assignments = translate::berth::assignments(&roles, placement, self.operator.state.topology());
        if let Some(berth) = self.store.current_berth(key) {
            berth.spec.assignments = assignments;
            berth.status.get_or_insert_default().created = i32::try_from(placement.len()).unwrap_or(i32::MAX);
        }
    }

    fn cleared(&mut self, victim: JobIdx) -> Option<Clears> {
        let key = self.operator.key(victim);
        let berth = self.store.current_berth(&key)?;
        let name = berth.metadata.name.clone().unwrap_or_default();
        Some(Clears { berth: name, uid: berth.metadata.uid.clone().unwrap_or_default(), ranks: Vec::new() })
    }

    fn moved(
        &mut self,
        key: &str,
        from: Time,
        to: Option<&(Time, Time, Placement)>,
        cause: Option<&planner::plan::Cause>,
    ) {
        let text = cause.map(shown_cause);
        match to {
            None => {
                self.store.release(key, text.as_deref().unwrap_or_default());
                self.store.set_phase(key, JobPhase::Pending);
            }
            Some((start, end, placement)) => {
                self.write_promise(key, *start, *end, placement, None);
                let note = Moved {
                    from: time::timestamp(from).map(|t| t.to_string()).unwrap_or_default(),
                    to: time::timestamp(*start).map(|t| t.to_string()),
                    cause: text.clone().unwrap_or_default(),
                };
                if let Some(berth) = self.store.current_berth(key).filter(|_| *start != from) {
                    let moved = &mut berth.status.get_or_insert_default().moved;
                    moved.push(note);
                    let over = moved.len().saturating_sub(20);
                    moved.drain(..over);
                }
                self.foresee(*start, Tick::Wake);
            }
        }
        let to = to.map(|(start, ..)| *start);
        if to != Some(from) || text.is_some() {
            self.tell(key, What::ReservationMoved { from, to, cause: text });
        }
    }

    fn stopped(&mut self, key: &str, cause: StopCause, by: Option<JobIdx>) -> Result<(), RunError> {
        let cause = match cause {
            StopCause::Preempted => "Preempted",
            StopCause::Reclaimed => "Reclaimed",
            StopCause::NodeLost => "NodeLost",
            StopCause::Drained => "Drained",
        };
        let by = by.map(|b| shown(&self.operator.key(b)).to_owned());
        let lost = self.stop_life(key);
        if let Some(status) = self.store.status(key) {
            *status.disruptions.get_or_insert(0) += 1;
        }
        self.tell(key, What::Stopped { cause: cause.into(), by, lost });
        self.stopping(key, After::Requeue { requeued: true, last_placement: None }, cause)
    }

    // --- the result ---

    fn report(self) -> RunReport {
        let mut jobs = BTreeMap::new();
        for (key, at) in &self.rejected {
            let report = JobReport {
                submitted: Some(*at),
                started: None,
                finished: None,
                wait: None,
                incarnations: 0,
                phase: "Rejected".into(),
                pending: None,
            };
            jobs.insert(shown(key).to_owned(), report);
        }
        for (key, life) in &self.lives {
            jobs.insert(shown(key).to_owned(), self.job_report(key, life));
        }
        for submission in &self.submissions[self.next_submission..] {
            let report = JobReport {
                submitted: None,
                started: None,
                finished: None,
                wait: None,
                incarnations: 0,
                phase: "NotSubmitted".into(),
                pending: None,
            };
            jobs.entry(submission.name()).or_insert(report);
        }
        let tree = self.operator.state.topology();
        let nodes = (0..tree.node_count()).map(|row| tree.node_name(planner::NodeIdx::of(row)).to_string()).collect();
        RunReport {
            scenario: self.scenario.name.clone(),
            digest: digest(&self.events),
            jobs,
            checks: self.checks,
            faults: self.faults,
            nodes,
            ended: self.now,
            events: self.events,
        }
    }

    fn job_report(&self, key: &str, life: &Life) -> JobReport {
        let phase = self.store.jobs.get(key).and_then(|j| j.status.as_ref()?.phase);
        let waits = matches!(phase, Some(JobPhase::Pending | JobPhase::Reserved));
        let pending = self.reasons.get(key).filter(|_| waits);
        JobReport {
            submitted: Some(life.submitted),
            started: life.first_start,
            finished: life.finished,
            wait: life.first_start.map(|start| Time(start.since(life.submitted).0)),
            incarnations: life.incarnations,
            phase: phase.map_or_else(|| "Deleted".into(), |p| format!("{p:?}")),
            pending: pending
                .map(|(code, _, message)| PendingReport { code: code.name().into(), message: message.clone() }),
        }
    }
}

/// A grace of 0 s is the simulator's default, where a cluster's is 30 s.
fn no_grace_unless_asked(job: &mut crds::TrainingJob) {
    let of_template =
        |r: &crds::v1alpha1::Role| r.template.spec.as_ref().and_then(|s| s.termination_grace_period_seconds);
    let asked = job.spec.checkpoint.is_some_and(|c| c.grace_period.is_some())
        || job.spec.roles.iter().any(|r| of_template(r).is_some());
    if !asked {
        job.spec.checkpoint.get_or_insert_default().grace_period = Some(crds::Duration::ZERO);
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

/// The uid of a stored job.
fn uid(store: &Store, key: &str) -> String {
    store.jobs.get(key).and_then(|j| j.metadata.uid.clone()).unwrap_or_default()
}

/// `name` for jobs of namespace `default`.
fn shown(key: &str) -> &str {
    key.strip_prefix("default/").unwrap_or(key)
}

/// A cause with its object as events show it.
fn shown_cause(cause: &planner::plan::Cause) -> String {
    cause.to_string().replace("(default/", "(")
}

/// The stored key of a job as files name it.
fn stored(name: &str) -> String {
    if name.contains('/') { name.to_owned() } else { format!("default/{name}") }
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
