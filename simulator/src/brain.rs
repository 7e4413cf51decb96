//! The planner under test and its judge, as functions, so that tests can put a broken planner in.

use planner::check::{Violation, check, check_thoroughly};
use planner::plan::{Action, Plan};
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

/// A plan's actions in a line, for reports of what is wrong with it.
#[must_use]
pub fn summary(snapshot: &Snapshot<'_>, plan: &Plan) -> String {
    let key = |job: planner::JobIdx| snapshot.state.job(job).map_or_else(|| "?".into(), |j| j.spec.key.to_string());
    let at = |time: planner::Time| if time.is_never() { "never".into() } else { format!("{} s", time.as_secs_f64()) };
    let one = |action: &Action| match action {
        Action::Start { job, .. } => format!("start {}", key(*job)),
        Action::Reserve { job, start, clears, .. } => {
            let clears: Vec<String> = clears.iter().map(|c| key(*c)).collect();
            format!("promise {} {} clearing [{}]", key(*job), at(*start), clears.join(" "))
        }
        Action::Move { job, to, .. } => {
            format!("move {} to {}", key(*job), to.as_ref().map_or("nothing".into(), |t| at(t.0)))
        }
        Action::Stop { job, cause, by } => {
            format!("stop {} ({cause:?}, for {})", key(*job), by.map_or("-".into(), key))
        }
        Action::Resize { job, placement, .. } => format!("resize {} to {}", key(*job), placement.len()),
        Action::Replace { job, swaps, .. } => format!("replace {} of {}", swaps.len(), key(*job)),
        Action::Guarantee { job } => format!("guarantee {}", key(*job)),
    };
    plan.actions.iter().map(one).collect::<Vec<_>>().join(", ")
}

fn texts(judged: Result<(), Vec<Violation>>) -> Vec<String> {
    judged.err().into_iter().flatten().map(|violation| violation.to_string()).collect()
}
