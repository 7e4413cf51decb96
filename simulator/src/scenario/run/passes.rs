//! Passes of the planner at one instant until nothing changes; each plan is judged.

use super::{MOST_PASSES, RunError, Runner, Tick};
use crate::brain::summary;
use crate::scenario::event::What;
use planner::plan::Plan;
use translate::time;

impl Runner<'_> {
    pub(super) fn plan_until_settled(&mut self) -> Result<(), RunError> {
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

    pub(super) fn plan(&mut self) -> Plan {
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
    pub(super) fn pass_private_time(&mut self) {
        for (key, at) in self.operator.advance_private(self.now) {
            if let Some(status) = self.store.status(&key) {
                status.private_start = time::timestamp(at);
            }
        }
        if let Some(next) = self.operator.next_private().filter(|at| *at > self.now) {
            self.foresee(next, Tick::Wake);
        }
    }

    pub(super) fn tell_reasons(&mut self, plan: &Plan) {
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
    pub(super) fn settle_use(&mut self, key: &str) {
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
}
