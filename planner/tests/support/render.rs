//! A plan in names instead of rows, so that plans of differently told worlds can be compared.

use berth_planner::ids::JobIdx;
use berth_planner::job::Placement;
use berth_planner::plan::{Action, Plan};
use berth_planner::state::ClusterState;

fn key(state: &ClusterState, job: JobIdx) -> String {
    state.job(job).map_or_else(|| format!("row {}", job.0), |j| j.spec.key.to_string())
}

fn seats(state: &ClusterState, placement: &Placement) -> String {
    let seat = |s: &berth_planner::job::Seat| format!("{}.{}@{}", s.role, s.index, state.topology().node_name(s.node));
    placement.seats.iter().map(seat).collect::<Vec<_>>().join(" ")
}

pub fn action(state: &ClusterState, action: &Action) -> String {
    let job = key(state, action.job());
    match action {
        Action::Start { placement, ends, guaranteed, quality, .. } => {
            format!("start {job} until {} guaranteed {guaranteed} {quality:?}: {}", ends.0, seats(state, placement))
        }
        Action::Reserve { start, end, placement, clears, .. } => {
            let clears: Vec<String> = clears.iter().map(|c| key(state, *c)).collect();
            format!("reserve {job} {}..{} clears {clears:?}: {}", start.0, end.0, seats(state, placement))
        }
        Action::Move { from, to, cause, .. } => {
            let to = to.as_ref().map(|(start, end, p)| format!("{}..{} {}", start.0, end.0, seats(state, p)));
            format!("move {job} from {} to {to:?} for {cause:?}", from.0)
        }
        Action::Stop { cause, by, .. } => format!("stop {job} {cause:?} by {:?}", by.map(|b| key(state, b))),
        Action::Resize { placement, by, .. } => {
            format!("resize {job} by {:?}: {}", by.map(|b| key(state, b)), seats(state, placement))
        }
        Action::Replace { swaps, placement, .. } => {
            format!("replace {job} {} swaps: {}", swaps.len(), seats(state, placement))
        }
        Action::Guarantee { .. } => format!("guarantee {job}"),
    }
}

pub fn plan(state: &ClusterState, plan: &Plan) -> Vec<String> {
    let mut lines: Vec<String> = plan.actions.iter().map(|a| action(state, a)).collect();
    for p in &plan.pending {
        lines.push(format!("pending {} at {} since {:?}, {:?}", key(state, p.job), p.position, p.start, p.reason));
    }
    for c in &plan.claims {
        let queue = &state.queue(c.queue).name;
        let domain = &state.topology().domain(c.domain);
        lines.push(format!("claim {} of {queue} on {}:{}", key(state, c.job), domain.pool.0, domain.path));
    }
    lines.push(format!("wake {:?}", plan.wake));
    lines
}
