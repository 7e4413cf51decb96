//! When, and with what? Estimates for jobs without a promise and single changes that would start a job, found beside the
//! cycle on a copy of its state, within a small share of one processor.

use super::Engine;
use super::launch::Landing;
use crate::status::seconds;
use crds::v1alpha1::Unblock;
use planner::policy::Policy;
use planner::state::ClusterState;
use planner::{JobIdx, Span, Time, counterfactuals, forecast};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Between two answers for one job, and between two forecasts.
const AGAIN: Span = Span::from_secs(30);
/// Between two rounds at least.
const PAUSE: Span = Span::from_secs(1);
/// Jobs of one round at most.
const ROUND: usize = 64;
/// Jobs that get an estimate, in global order.
const FORESEEN: u32 = 200;
/// Changes that are told of one job.
const CHANGES: usize = 4;

/// What is known of past rounds.
#[derive(Debug)]
pub(super) struct Questions {
    /// Milliseconds of each second that may be spent; none: nothing is asked.
    share: u64,
    /// A round is under way.
    asking: bool,
    /// The next round, not before.
    next: Time,
    /// The last forecast, and the plan it was made for.
    foreseen: Option<(Time, u64)>,
    /// Plans so far: while it stands still, answers stay true.
    plans: u64,
}

/// What a round found.
pub(super) struct Answers {
    plans: u64,
    estimates: Option<BTreeMap<String, Time>>,
    unblock: Vec<(String, Vec<Unblock>)>,
    took: Duration,
}

/// When a job was last answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Answered {
    at: Time,
    plans: u64,
}

impl Questions {
    pub(super) fn new(share: u64) -> Self {
        Self { share, asking: false, next: Time(i64::MIN), foreseen: None, plans: 0 }
    }

    /// A plan was made: old answers may no longer hold.
    pub(super) fn planned(&mut self) {
        self.plans += 1;
    }

    fn is_due(&self, answered: Option<Answered>) -> Option<Time> {
        match answered {
            None => Some(self.next),
            Some(last) => (last.plans < self.plans).then(|| self.next.max(last.at + AGAIN)),
        }
    }

    fn forecast_due(&self) -> Option<Time> {
        self.is_due(self.foreseen.map(|(at, plans)| Answered { at, plans }))
    }
}

impl Engine {
    /// When a round is due, if anybody waits for answers.
    pub(super) fn questions_due(&self) -> Option<Time> {
        if self.questions.share == 0 || self.questions.asking {
            return None;
        }
        let waiting = self.world.records.values().filter(|r| r.waiting.is_some());
        let answers = waiting.filter_map(|r| self.questions.is_due(r.answered));
        answers.min().map(|due| self.questions.forecast_due().map_or(due, |forecast| due.min(forecast)))
    }

    /// Begins a round if one is due: those longest without an answer first.
    pub(super) fn ask(&mut self, now: Time) {
        if self.questions_due().is_none_or(|due| due > now) {
            return;
        }
        let mut due: Vec<(Option<Answered>, &String)> = self
            .world
            .records
            .iter()
            .filter(|(_, r)| r.waiting.is_some() && self.questions.is_due(r.answered).is_some_and(|d| d <= now))
            .map(|(key, record)| (record.answered, key))
            .collect();
        due.sort();
        let rows = |(_, key): &(_, &String)| Some(((*key).clone(), self.world.state.find_job(key)?));
        let jobs: Vec<(String, JobIdx)> = due.iter().filter_map(rows).take(ROUND).collect();
        let foresee = self.questions.forecast_due().is_some_and(|d| d <= now);
        // The copy is part of the price.
        let begun = Instant::now();
        let paper = self.world.state.clone();
        let round = Round { begun, paper, policy: self.policy.clone(), now, jobs, foresee };
        self.questions.asking = true;
        self.flying += 1;
        let (landing, plans) = (self.landing.clone(), self.questions.plans);
        let budget = Duration::from_millis(self.questions.share);
        tokio::spawn(async move {
            let found = tokio::task::spawn_blocking(move || round.answer(plans, budget)).await;
            let _ = landing.send(Landing::Answers(found.ok())).await;
        });
    }

    /// Takes the answers of a round in. None: the round failed, and nothing is known.
    pub(super) fn answered(&mut self, answers: Option<Answers>) {
        let now = self.clock.now();
        self.questions.asking = false;
        let Some(Answers { plans, estimates, unblock, took }) = answers else {
            self.questions.next = now + AGAIN;
            return;
        };
        // Spending `took` now means resting until its share of the time has passed.
        let rest = took.as_micros() * 1000 / u128::from(self.questions.share.max(1));
        self.questions.next = now + PAUSE.max(Span(i64::try_from(rest).unwrap_or(i64::MAX)));
        for (key, unblock) in unblock {
            let Some(record) = self.world.records.get_mut(&key) else { continue };
            record.answered = Some(Answered { at: now, plans });
            if record.unblock != unblock {
                record.unblock = unblock;
                self.stale.insert(key);
            }
        }
        let Some(estimates) = estimates else { return };
        self.questions.foreseen = Some((now, plans));
        for (key, record) in self.world.records.iter_mut().filter(|(_, r)| r.waiting.is_some()) {
            let estimate = estimates.get(key).copied();
            if record.estimate != estimate {
                record.estimate = estimate;
                self.stale.insert(key.clone());
            }
        }
    }
}

/// The questions of one round, with all that is needed to answer them.
struct Round {
    begun: Instant,
    paper: ClusterState,
    policy: Policy,
    now: Time,
    jobs: Vec<(String, JobIdx)>,
    foresee: bool,
}

impl Round {
    fn answer(mut self, plans: u64, budget: Duration) -> Answers {
        let estimates = self.foresee.then(|| self.estimates());
        let mut unblock = Vec::new();
        for (key, job) in std::mem::take(&mut self.jobs) {
            unblock.push((key, self.changes(job)));
            if self.begun.elapsed() >= budget {
                break;
            }
        }
        Answers { plans, estimates, unblock, took: self.begun.elapsed() }
    }

    fn estimates(&self) -> BTreeMap<String, Time> {
        let found = forecast(&self.paper.at(self.now), &self.policy, FORESEEN);
        found.into_iter().filter_map(|(job, start)| Some((self.paper.job(job)?.spec.key.to_string(), start))).collect()
    }

    fn changes(&mut self, job: JobIdx) -> Vec<Unblock> {
        let time = |t: Time| seconds(t).map_or_else(|| "a time not known".to_owned(), |t| t.to_string());
        let found = counterfactuals(&mut self.paper, self.now, &self.policy, job);
        let told = found.iter().take(CHANGES);
        told.map(|c| Unblock { change: c.change.to_string(), effect: c.effect.text(time) }).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_is_asked_about_at_once_then_only_after_a_new_plan_and_a_pause() {
        let mut questions = Questions::new(50);
        assert!(questions.is_due(None).is_some_and(|due| due <= Time::ZERO));
        let answered = Some(Answered { at: Time::ZERO, plans: 0 });
        assert_eq!(questions.is_due(answered), None, "nothing was planned since");
        questions.planned();
        assert_eq!(questions.is_due(answered), Some(Time::ZERO + AGAIN));
        questions.next = Time::from_secs(100);
        assert_eq!(questions.is_due(answered), Some(Time::from_secs(100)), "the last round still rests");
    }
}
