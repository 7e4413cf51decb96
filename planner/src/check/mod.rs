//! The independent checker: judges a plan before anybody acts on it.
//!
//! Written without the planner's helpers: it knows the boundary types only, recounts from the jobs' phases and the
//! nodes' own states, and trusts no table that [`crate::state::ClusterState`] derives. A mistake in the planner's
//! bookkeeping therefore shows here instead of repeating itself.
//!
//! Cost: one pass over the jobs and their seats, then work in proportion to what is held on the nodes and in the
//! queues that the plan touches.

mod capacity;
mod fate;
mod gang;
mod holding;
mod lending;
mod moment;
mod places;
mod promises;
mod quota;
mod report;
mod victims;
mod violation;

pub use violation::{Name, Protection, Violation};

use crate::ids::{JobIdx, NodeIdx};
use crate::job::Placement;
use crate::plan::Plan;
use crate::policy::Policy;
use crate::state::Snapshot;
use fate::Fates;

/// How much of what the plan leaves alone is judged too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scope {
    /// Only what the plan touches.
    Touched,
    /// Every promise that stands after the plan.
    Everything,
}

/// What all parts of the check read.
struct Case<'a> {
    snapshot: Snapshot<'a>,
    policy: &'a Policy,
    plan: &'a Plan,
    fates: Fates<'a>,
    scope: Scope,
}

/// Judges a plan by laws 1 to 6, as far as its own actions go. Cheap enough for every cycle of production.
///
/// # Errors
/// Everything that is wrong with it.
pub fn check(snapshot: &Snapshot<'_>, policy: &Policy, plan: &Plan) -> Result<(), Vec<Violation>> {
    judge(snapshot, policy, plan, Scope::Touched)
}

/// As [`check`], and every promise that the plan leaves standing must be keepable too: on usable nodes with room, within
/// every limit. For tests and simulations.
///
/// # Errors
/// Everything that is wrong with it.
pub fn check_thoroughly(snapshot: &Snapshot<'_>, policy: &Policy, plan: &Plan) -> Result<(), Vec<Violation>> {
    judge(snapshot, policy, plan, Scope::Everything)
}

fn judge(snapshot: &Snapshot<'_>, policy: &Policy, plan: &Plan, scope: Scope) -> Result<(), Vec<Violation>> {
    let mut found = Vec::new();
    let fates = fate::read(snapshot, plan, &mut found);
    let case = Case { snapshot: *snapshot, policy, plan, fates, scope };
    report::check(&case, &mut found);
    gang::check(&case, &mut found);
    // Rows that do not exist would only confuse the rest.
    if found.iter().any(|v| matches!(v, Violation::NoSuchJob { .. } | Violation::BadSeat { .. })) {
        return Err(found);
    }
    places::check(&case, &mut found);
    promises::check(&case, &mut found);
    if scope == Scope::Everything || !case.fates.is_empty() {
        let holdings = holding::all(snapshot, policy.cycle, &case.fates);
        let nodes = capacity::Nodes::of(&case, holdings.on_nodes());
        nodes.check(&case, &mut found);
        let queues = quota::Queues::of(&case, holdings.in_quotas());
        queues.check(&case, &mut found);
        lending::check(&case, &mut found);
        victims::check(&case, &nodes, &queues, &mut found);
    }
    if found.is_empty() { Ok(()) } else { Err(found) }
}

impl Case<'_> {
    fn key(&self, job: JobIdx) -> Name {
        self.snapshot.state.job(job).map_or_else(|| format!("row {}", job.0).into(), |j| j.spec.key.clone())
    }

    fn node_name(&self, node: NodeIdx) -> Name {
        self.snapshot.state.topology().node_name(node).clone()
    }
}

/// Distinct nodes of a placement, in row order.
fn nodes_of(placement: &Placement) -> Vec<NodeIdx> {
    let mut nodes: Vec<NodeIdx> = placement.seats.iter().map(|s| s.node).collect();
    nodes.sort_unstable();
    nodes.dedup();
    nodes
}
