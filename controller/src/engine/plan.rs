//! One planning cycle: snapshot, plan, check, hand over.

use super::Engine;
use crate::state::record::Waits;
use planner::plan::{Action, Plan};
use planner::reason::{self, Pending, Reason};
use planner::{Span, Time, check};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// A refused plan is judged again this many times, each time without what was refused.
const ROUNDS: usize = 8;

impl Engine {
    /// Plans the present moment and hands every decision over. Returns the time of the planner alone.
    #[tracing::instrument(name = "cycle", skip_all)]
    pub(super) fn plan(&mut self, now: Time) -> Duration {
        // 1. What shrinking gangs gave up is free by now.
        self.world.state.settle_shedding(now);
        // 2. Plan, on the state itself: nothing is copied.
        let begun = Instant::now();
        let plan = planner::plan(&self.world.state.at(now), &self.policy);
        let planning = begun.elapsed();
        // 3. Judge it by other means; what is refused is dropped, and only that.
        let whole = plan.actions.len();
        let Some(plan) = self.judged(plan, now) else {
            self.wake = Some(now + Span::from_secs(1));
            return planning;
        };
        // 4. Why the others wait.
        self.note_waiting(&plan);
        // 5. Hand over.
        let mut left_out = plan.actions.len() < whole;
        for action in &plan.actions {
            self.metrics.action(name(action));
            left_out |= !self.carry_out(action, now);
        }
        self.world.state.planned();
        self.questions.planned();
        // What could not be begun is decided anew soon.
        let again = left_out.then(|| now + Span::from_secs(1));
        self.wake = [plan.wake, again].into_iter().flatten().min();
        planning
    }

    /// The plan as far as its checker lets it pass. A fault of ours about one job must not stop all others: the actions of
    /// the jobs that violations name are dropped, and the rest is judged again.
    fn judged(&self, mut plan: Plan, now: Time) -> Option<Plan> {
        let mut dropped = BTreeSet::new();
        for _ in 0..ROUNDS {
            let Err(violations) = check::check(&self.world.state.at(now), &self.policy, &plan) else {
                return Some(plan);
            };
            // Why a job waits whose actions were dropped, nobody knows.
            let unexplained =
                |v: &check::Violation| matches!(v, check::Violation::Unexplained { job } if dropped.contains(&**job));
            let texts: Vec<String> = violations.iter().filter(|v| !unexplained(v)).map(ToString::to_string).collect();
            if texts.is_empty() {
                return Some(plan);
            }
            self.metrics.plan_rejected();
            tracing::error!(violations = ?&texts[..texts.len().min(8)], plan = ?plan.actions, "the checker refused a plan");
            let before = plan.actions.len();
            plan.actions.retain(|action| {
                let key = self.world.state.job(action.job()).map(|job| job.spec.key.to_string()).unwrap_or_default();
                let named = texts.iter().any(|text| text.contains(&key));
                if named {
                    dropped.insert(key);
                }
                !named
            });
            if plan.actions.len() == before {
                break;
            }
        }
        tracing::error!("nothing of the plan is left");
        None
    }

    fn note_waiting(&mut self, plan: &Plan) {
        let mut pending = BTreeSet::new();
        for waits in &plan.pending {
            let Some(job) = self.world.state.job(waits.job) else { continue };
            let key = job.spec.key.to_string();
            let next = self.waits(waits);
            if let Some(record) = self.world.records.get_mut(&key)
                && record.waiting.as_ref() != Some(&next)
            {
                if record.waiting.as_ref().is_none_or(|old| old.code != next.code) {
                    record.forget_answers();
                }
                record.waiting = Some(next);
                self.stale.insert(key.clone());
            }
            pending.insert(key);
        }
        for (key, record) in &mut self.world.records {
            if record.waiting.is_some() && !pending.contains(key) {
                record.waiting = None;
                record.forget_answers();
                self.stale.insert(key.clone());
            }
        }
    }

    fn waits(&self, pending: &Pending) -> Waits {
        let reason = &pending.reason;
        Waits {
            position: pending.position,
            code: code(reason.code),
            message: message(reason),
            domains: reason.domains.clone(),
            start: pending.start,
        }
    }
}

/// The reason in words, with its end as people write times.
fn message(reason: &Reason) -> String {
    let text = Reason { until: None, ..reason.clone() }.to_string();
    match reason.until.and_then(crate::status::seconds) {
        Some(until) => format!("{text} (until {})", until.whole_seconds()),
        None => text,
    }
}

/// The planner's code as the API's table has it.
fn code(code: reason::Code) -> &'static str {
    match code {
        reason::Code::BehindHead => crds::Code::WaitingForHead.as_str(),
        reason::Code::ClearingRoom => crds::Code::RoomBeingCleared.as_str(),
        reason::Code::NoDate => crds::Code::Waiting.as_str(),
        other => other.name(),
    }
}

fn name(action: &Action) -> &'static str {
    match action {
        Action::Start { .. } => "start",
        Action::Reserve { .. } => "reserve",
        Action::Move { .. } => "move",
        Action::Stop { .. } => "stop",
        Action::Resize { .. } => "resize",
        Action::Replace { .. } => "replace",
        Action::Guarantee { .. } => "guarantee",
    }
}
