//! Questions outside the cycle: what would start a waiting job, and when jobs beyond the backfill depth may start.
#![allow(clippy::unwrap_used, clippy::panic)] // the lints are for code outside tests

#[path = "support/whole_nodes.rs"]
mod whole_nodes;

use berth_planner::counterfactual::{Change, Effect};
use berth_planner::job::{JobSpec, Phase};
use berth_planner::policy::Policy;
use berth_planner::queue::{Backfill, Queue, QuotaKey};
use berth_planner::shape::{NodeSet, Shape};
use berth_planner::state::{ClusterState, NodeState};
use berth_planner::topology::{Level, NodePath, PoolSpec};
use berth_planner::{JobIdx, QueueIdx, Span, Time, counterfactuals, forecast, plan};

const HOUR: i64 = 3600;
/// When the running jobs of these stories start.
const START: Time = Time::ZERO;
/// When the questions are asked: nobody is stopped at the instant of his start.
const NOW: Time = Time::from_secs(1);

/// Two blocks of two racks of four nodes of eight GPUs, and queues `a` and `b`.
fn cluster() -> ClusterState {
    let mut state = ClusterState::new();
    let allocatable = whole_nodes::node(&mut state);
    let node = |n: usize| {
        let path = vec![format!("b{}", n / 8).into(), format!("r{}", n / 4).into()];
        let path = NodePath { pool: 0, path, name: format!("n{n:02}").into() };
        (path, NodeState { allocatable: allocatable.clone(), ..NodeState::default() })
    };
    let levels = vec![level("block"), level("rack")];
    state.set_nodes(&[PoolSpec { name: "".into(), levels, growable: false }], (0..16).map(node).collect());
    state.set_queue(Queue::open("a", QueueIdx::ROOT));
    state.set_queue(Queue::open("b", QueueIdx::ROOT));
    state
}

/// A job of queue `a` of `pods` whole nodes with a limit in hours.
fn ask(state: &mut ClusterState, name: &str, pods: u32, hours: i64) -> JobSpec {
    whole_nodes::gang(state, "a", name, pods, Span::from_secs(hours * HOUR))
}

fn submit(state: &mut ClusterState, spec: JobSpec) -> JobIdx {
    let sequence = state.jobs().count() as u64;
    state.add_job(spec, Time::ZERO, sequence, Phase::Waiting(Box::default()))
}

fn step(state: &mut ClusterState, now: Time) {
    let plan = plan(&state.at(now), &Policy::standard());
    for action in &plan.actions {
        state.apply(action, now);
    }
    state.planned();
    state.audit().expect("tables agree");
}

/// "change -> effect" of every counterfactual; the cluster that was asked is as it was.
fn unblock(state: &ClusterState, job: JobIdx) -> Vec<String> {
    let mut paper = state.clone();
    let found = counterfactuals(&mut paper, NOW, &Policy::standard(), job);
    paper.audit().expect("tables agree");
    paper.planned();
    assert_eq!(plan(&paper.at(NOW), &Policy::standard()), plan(&state.at(NOW), &Policy::standard()));
    let time = |t: Time| format!("{:.0} h", t.as_secs_f64() / 3600.0);
    found.iter().map(|c| format!("{} -> {}", c.change, c.effect.text(time))).collect()
}

/// One node of every rack is taken for eight hours.
fn one_node_of_every_rack(state: &mut ClusterState) {
    for rack in 0..4 {
        let mut spec = ask(state, &format!("small-{rack}"), 1, 8);
        let only = format!("n{:02}", rack * 4);
        let shape = state.shapes.get(spec.roles[0].shape).clone();
        let node = state.find_node(&only).unwrap();
        let eligible = NodeSet::of(state.nodes().len(), |n| n == node);
        spec.roles[0].shape = state.shapes.intern(Shape { filter: only.into(), eligible, ..shape });
        submit(state, spec);
    }
    step(state, START);
}

#[test]
fn a_rack_job_is_told_that_a_block_would_do_and_how_many_workers_fit_a_rack() {
    let mut state = cluster();
    one_node_of_every_rack(&mut state);
    let mut spec = ask(&mut state, "rack-job", 4, 1);
    spec.locality.required = Some("rack".into());
    let job = submit(&mut state, spec);
    step(&mut state, START);
    let told = unblock(&state, job);
    assert_eq!(
        told,
        ["topology.required: block -> starts now in b0", "minReplicas of role worker: 3 -> starts now in b0/r0"]
    );
}

#[test]
fn a_job_that_would_run_into_a_reservation_is_told_the_limit_that_would_not() {
    let mut state = cluster();
    let running = ask(&mut state, "running", 10, 3);
    submit(&mut state, running);
    let whole = ask(&mut state, "whole", 16, 1);
    submit(&mut state, whole);
    let long = ask(&mut state, "long", 2, 5);
    let job = submit(&mut state, long);
    step(&mut state, START);
    assert_eq!(unblock(&state, job), ["maxRuntime: 2h -> starts now in b1/r2"]);
}

#[test]
fn a_queue_at_its_limit_is_told_how_much_more_it_needs() {
    let mut state = cluster();
    let gpu = QuotaKey { pool: None, resource: state.resources.intern("nvidia.com/gpu") };
    let mut queue = Queue::open("a", QueueIdx::ROOT);
    queue.limit.insert(gpu, 32);
    state.set_queue(queue);
    let running = ask(&mut state, "running", 3, 3);
    submit(&mut state, running);
    let next = ask(&mut state, "next", 4, 3);
    let job = submit(&mut state, next);
    step(&mut state, START);
    let told = unblock(&state, job);
    assert!(told.contains(&"limit of queue a: +24 nvidia.com/gpu -> starts now in b0/r1".to_owned()), "{told:?}");
    assert!(told.contains(&"minReplicas of role worker: 1 -> starts now in n03".to_owned()), "{told:?}");
}

#[test]
fn a_borrower_in_a_full_cluster_is_told_the_guarantee_that_would_make_room() {
    let mut state = cluster();
    // Beyond b's guarantee less is left than the job asks for: no fair share lets it take more.
    let gpu = QuotaKey { pool: None, resource: state.resources.intern("nvidia.com/gpu") };
    let mut queue = Queue::open("b", QueueIdx::ROOT);
    queue.guarantee.insert(gpu, 120);
    state.set_queue(queue);
    let mut others = ask(&mut state, "others", 16, 30);
    others.queue = state.find_queue("b").unwrap();
    submit(&mut state, others);
    step(&mut state, START);
    let mine = ask(&mut state, "mine", 2, 3);
    let job = submit(&mut state, mine);
    step(&mut state, START);
    let told = unblock(&state, job);
    let guarantee = told.iter().find(|t| t.starts_with("guarantee of queue a: +16 nvidia.com/gpu"));
    assert!(guarantee.is_some_and(|t| t.contains("when others has made room")), "{told:?}");
}

#[test]
fn a_patient_job_is_told_that_patience_is_what_it_waits_for() {
    let mut state = cluster();
    one_node_of_every_rack(&mut state);
    let mut spec = ask(&mut state, "patient", 4, 1);
    spec.locality.preferred = Some("rack".into());
    spec.locality.patience = Span::from_secs(10 * HOUR);
    let job = submit(&mut state, spec);
    step(&mut state, START);
    let mut paper = state.clone();
    let found = counterfactuals(&mut paper, NOW, &Policy::standard(), job);
    assert_eq!(found[0].change, Change::NoPatience);
    assert!(matches!(&found[0].effect, Effect::Now { domain } if domain.starts_with('b')), "{found:?}");
}

#[test]
fn a_job_held_from_outside_is_told_nothing() {
    let mut state = cluster();
    let spec = ask(&mut state, "held", 2, 1);
    let job = submit(&mut state, spec);
    let hold = berth_planner::job::Hold {
        code: berth_planner::reason::Code::NamespaceQuota,
        detail: "team/pods".into(),
        until: None,
    };
    state.set_hold(job, Some(hold));
    step(&mut state, START);
    assert_eq!(unblock(&state, job), Vec::<String>::new());
}

#[test]
fn jobs_beyond_the_depth_get_an_estimate_behind_those_before_them_and_no_promise() {
    let mut state = cluster();
    let mut queue = Queue::open("a", QueueIdx::ROOT);
    queue.backfill = Backfill::Depth(1);
    state.set_queue(queue);
    let jobs: Vec<JobIdx> = (0..4)
        .map(|n| {
            let spec = ask(&mut state, &format!("j{n}"), 16, 1);
            submit(&mut state, spec)
        })
        .collect();
    step(&mut state, START);
    let estimates = forecast(&state.at(Time::ZERO), &Policy::standard(), 100);
    let hours = |n: i64| Time::from_secs(n * HOUR);
    assert_eq!(estimates.into_iter().collect::<Vec<_>>(), [(jobs[2], hours(2)), (jobs[3], hours(3))]);
    assert_eq!(state.reserved().len(), 1);
}

#[test]
fn a_forecast_stops_at_the_number_of_jobs_it_was_given() {
    let mut state = cluster();
    let mut queue = Queue::open("a", QueueIdx::ROOT);
    queue.backfill = Backfill::Depth(1);
    state.set_queue(queue);
    for n in 0..6 {
        let spec = ask(&mut state, &format!("j{n}"), 16, 1);
        submit(&mut state, spec);
    }
    step(&mut state, START);
    assert_eq!(forecast(&state.at(Time::ZERO), &Policy::standard(), 2).len(), 2);
}

#[test]
fn a_queue_without_backfill_is_estimated_in_strict_order() {
    let mut state = cluster();
    let mut queue = Queue::open("a", QueueIdx::ROOT);
    queue.backfill = Backfill::None;
    state.set_queue(queue);
    let jobs: Vec<JobIdx> = [(10, 2), (16, 1), (2, 1)]
        .into_iter()
        .enumerate()
        .map(|(n, (pods, hours))| {
            let spec = ask(&mut state, &format!("j{n}"), pods, hours);
            submit(&mut state, spec)
        })
        .collect();
    step(&mut state, START);
    let estimates = forecast(&state.at(Time::ZERO), &Policy::standard(), 100);
    assert!(estimates[&jobs[2]] >= estimates[&jobs[1]], "{estimates:?}");
    assert_eq!(estimates[&jobs[1]], Time::from_secs(2 * HOUR));
}

fn level(name: &str) -> Level {
    Level { name: name.into(), gigabytes_per_second: 0.0 }
}
