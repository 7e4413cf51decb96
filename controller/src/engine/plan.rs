//! One planning cycle: snapshot, plan, check, hand over.

use super::Engine;
use crate::state::record::Waits;
use planner::plan::{Action, Plan};
use planner::reason::{self, Pending, Reason};
use planner::{Span, Time, check};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

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
        // 3. Judge it by other means.
        if let Err(violations) = check::check(&self.world.state.at(now), &self.policy, &plan) {
            self.metrics.plan_rejected();
            let texts: Vec<String> = violations.iter().take(8).map(ToString::to_string).collect();
            tracing::error!(violations = ?texts, plan = ?plan.actions, "the plan was refused by its checker and dropped");
            self.wake = Some(now + Span::from_secs(1));
            return planning;
        }
        // 4. Why the others wait.
        self.note_waiting(&plan);
        // 5. Hand over.
        let mut left_out = false;
        for action in &plan.actions {
            self.metrics.action(name(action));
            left_out |= !self.carry_out(action, now);
        }
        self.world.state.planned();
        // What could not be begun is decided anew soon.
        let again = left_out.then(|| now + Span::from_secs(1));
        self.wake = [plan.wake, again].into_iter().flatten().min();
        planning
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
                record.waiting = Some(next);
                self.stale.insert(key.clone());
            }
            pending.insert(key);
        }
        for (key, record) in &mut self.world.records {
            if record.waiting.is_some() && !pending.contains(key) {
                record.waiting = None;
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
