//! The planner under test and its judge, as functions, so that tests can put a broken planner in.

use planner::check::{Violation, check, check_thoroughly};
use planner::plan::Plan;
use planner::policy::Policy;
use planner::state::Snapshot;

/// A planner and its judge.
#[derive(Clone, Copy)]
pub struct Brain {
    /// Makes a plan.
    pub plan: fn(&Snapshot<'_>, &Policy) -> Plan,
    /// Says what is wrong with it.
    pub faults: fn(&Snapshot<'_>, &Policy, &Plan) -> Vec<String>,
}

impl Brain {
    /// The production planner, judged as in production.
    #[must_use]
    pub fn production() -> Self {
        Self { plan: planner::plan, faults: |snapshot, policy, plan| texts(check(snapshot, policy, plan)) }
    }

    /// The production planner; every promise that a plan leaves standing is judged again too.
    #[must_use]
    pub fn judged_thoroughly() -> Self {
        Self { plan: planner::plan, faults: |snapshot, policy, plan| texts(check_thoroughly(snapshot, policy, plan)) }
    }
}

fn texts(judged: Result<(), Vec<Violation>>) -> Vec<String> {
    judged.err().into_iter().flatten().map(|violation| violation.to_string()).collect()
}
