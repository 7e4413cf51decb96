//! The clock of a scenario: at each instant ends, then the timeline, then submissions in file order, then passes of the
//! planner until nothing changes.

mod act;
mod berths;
mod edits;
mod ends;
mod happen;
mod outcome;
mod passes;
mod submissions;

use super::event::{Event, What};
use super::input::Scenario;
use super::life::Life;
use super::operator::Operator;
use super::report::{Checks, RunReport};
use super::shorthand::Submission;
use super::store::Store;
use super::submit::Gate;
use crate::brain::Brain;
use planner::Time;
use planner::job::Placement;
use planner::policy::Policy;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use thiserror::Error;
use translate::TranslateError;

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
