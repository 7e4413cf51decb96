//! The smallest stories of a plan: start, wait with a date, pass without delaying, and nothing more to do.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)] // the lints are for code outside tests

#[path = "support/whole_nodes.rs"]
mod whole_nodes;

use berth_planner::job::Phase;
use berth_planner::plan::Action;
use berth_planner::policy::Policy;
use berth_planner::queue::Queue;
use berth_planner::state::{ClusterState, NodeState};
use berth_planner::topology::{NodePath, PoolSpec};
use berth_planner::{JobIdx, QueueIdx, Span, Time, plan};

fn cluster(nodes: usize) -> ClusterState {
    let mut state = ClusterState::new();
    let allocatable = whole_nodes::node(&mut state);
    let list = (0..nodes)
        .map(|n| {
            let path = NodePath { pool: 0, path: vec![], name: format!("n{n}").into() };
            (path, NodeState { allocatable: allocatable.clone(), ..NodeState::default() })
        })
        .collect();
    state.set_nodes(&[PoolSpec { name: "".into(), levels: vec![], growable: false }], list);
    state.set_queue(Queue::open("default", QueueIdx::ROOT));
    state
}

fn submit(state: &mut ClusterState, name: &str, pods: u32, limit_s: i64, at: Time) -> JobIdx {
    let spec = whole_nodes::gang(state, "default", name, pods, Span::from_secs(limit_s));
    state.add_job(spec, at, 0, Phase::Waiting(Box::default()))
}

fn step(state: &mut ClusterState, now: Time) -> Vec<Action> {
    let plan = plan(&state.at(now), &Policy::standard());
    for action in &plan.actions {
        state.apply(action, now);
    }
    state.planned();
    state.audit().expect("tables agree");
    plan.actions
}

#[test]
fn a_gang_starts_a_large_one_gets_a_date_and_a_short_one_passes_it() {
    let mut state = cluster(4);
    let now = Time::ZERO;
    submit(&mut state, "first", 3, 3600, now);
    let large = submit(&mut state, "large", 4, 3600, now);
    let long = submit(&mut state, "long", 1, 7200, now);
    let short = submit(&mut state, "short", 1, 600, now);
    let actions = step(&mut state, now);
    assert!(matches!(&actions[0], Action::Start { placement, .. } if placement.len() == 3));
    assert!(
        matches!(&actions[1], Action::Reserve { job, start, .. } if *job == large && *start == Time::from_secs(3600))
    );
    assert!(
        matches!(&actions[2], Action::Reserve { job, start, .. } if *job == long && *start == Time::from_secs(7200))
    );
    assert!(matches!(&actions[3], Action::Start { job, .. } if *job == short));
    assert_eq!(actions.len(), 4);
    assert!(step(&mut state, now).is_empty(), "planning again changes nothing");
}

#[test]
fn a_job_s_own_promise_is_not_told_as_room_held_by_others() {
    let mut state = cluster(4);
    submit(&mut state, "first", 3, 3600, Time::ZERO);
    let large = submit(&mut state, "large", 4, 7200, Time::ZERO);
    step(&mut state, Time::ZERO);
    let table = |state: &ClusterState, job: JobIdx| {
        let plan = plan(&state.at(Time::from_secs(1)), &Policy::standard());
        let told = plan.pending.iter().find(|p| p.job == job).expect("it waits").reason.domains[0].clone();
        (told.free, told.held_by_plan, told.short)
    };
    assert_eq!(table(&state, large), (1, 0, 3), "the fourth node is its own from the start of its promise on");
    let other = submit(&mut state, "other", 2, 7200, Time::ZERO);
    step(&mut state, Time::from_secs(1));
    assert_eq!(table(&state, other).1, 1, "to another job the same node is held");
}
