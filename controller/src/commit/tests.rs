//! The protocol under a fault at every call: I1 (whole or gone), I3 (no leak), I4 (one incarnation), I6 (it comes to rest).

use super::converge::{Sight, converge, empty, release, stop};
use super::model::{Crash, TROUBLES, Trouble, World};
use super::operation::{Journal, OnRefusal, Operation, Outcome, Undo};
use super::request::{Call, Companion};
use super::{Machine, is_terminal, owner_uid};
use crds::v1alpha1::{Assignment, BerthSpec, BerthState};
use crds::{Berth, Timestamp};
use k8s_openapi::api::core::v1::{Pod, Service};
use serde_json::json;
use std::sync::Arc;

const GANG: [&str; 3] = ["j-launcher-0", "j-worker-0", "j-worker-1"];

fn now() -> Timestamp {
    Timestamp::from_micros(1_000_000).expect("a moment")
}

fn mk_berth() -> Berth {
    let assignment = Assignment {
        domain: "r1".into(),
        role: "worker".into(),
        first_index: 0,
        per_node: 1,
        nodes: vec!["n1".into()],
    };
    let spec = json!({"job": "j", "jobUid": "job-uid", "incarnation": 1, "queue": "q", "state": "Committed",
        "assignments": [assignment]});
    let spec: BerthSpec = serde_json::from_value(spec).expect("a spec");
    let mut berth = Berth::new("j-1", spec);
    berth.metadata.namespace = Some("ns".into());
    berth.metadata.finalizers = Some(vec!["berth.dev/berth".into()]);
    berth
}

fn mk_pod(name: &str) -> Arc<Pod> {
    let pod = json!({"metadata": {"name": name, "namespace": "ns", "labels": {"berth.dev/berth": "j-1"}}});
    Arc::new(serde_json::from_value(pod).expect("a pod"))
}

fn mk_service() -> Companion {
    let owner = json!([{"apiVersion": "v", "kind": "TrainingJob", "name": "j", "uid": "job-uid", "controller": true}]);
    let service = json!({"metadata": {"name": "j", "namespace": "ns", "ownerReferences": owner}});
    Companion::Service(Arc::new(serde_json::from_value::<Service>(service).expect("a service")))
}

fn mk_selection() -> super::Selection {
    let [namespace, name, uid, node] = ["ns", "data", "claim-uid", "n1"].map(str::to_owned);
    super::Selection { namespace, name, uid, node }
}

fn start() -> Operation {
    let berth = mk_berth();
    Operation {
        probes: vec![mk_pod(GANG[0])],
        companions: vec![mk_service()],
        create: GANG.map(mk_pod).to_vec(),
        on_refusal: OnRefusal::RollBack { grace_seconds: 30 },
        ..empty(&berth, Journal::Create(Arc::new(berth.clone())), now())
    }
}

fn run(world: &mut World, operation: Operation) -> Result<Outcome, Crash> {
    let (mut machine, mut call) = Machine::begin(operation);
    let mut steps = 0;
    while let Some(Call { request, .. }) = call {
        steps += 1;
        assert!(steps < 100, "an operation comes to its end");
        let answer = world.answer(request)?;
        (machine, call) = machine.step(answer);
    }
    Ok(machine.outcome().expect("ended").clone())
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Goal {
    Run,
    Gone,
}

/// The owner's next operation, from nothing but what is stored.
fn next_operation(world: &World, goal: Goal) -> Option<Operation> {
    let Some(berth) = world.berths.get("j-1") else {
        return (goal == Goal::Run).then(|| Operation { claims: vec![mk_selection()], ..start() });
    };
    let berth = Arc::new(berth.clone());
    let uid = berth.metadata.uid.as_deref();
    let pods: Vec<Arc<Pod>> =
        world.pods.values().filter(|p| owner_uid(&p.metadata) == uid).cloned().map(Arc::new).collect();
    let missing = GANG.iter().filter(|n| !world.pods.contains_key(**n)).map(|n| mk_pod(n)).collect();
    let sight = Sight {
        berth: &berth,
        pods,
        missing,
        companions: vec![mk_service()],
        all_or_nothing: true,
        grace_seconds: 30,
        unattended: std::collections::BTreeSet::new(),
        now: now(),
    };
    let stands = berth.spec.state == BerthState::Committed && berth.spec.stopping.is_none();
    if goal == Goal::Gone && stands { Some(stop(&berth, "Deleted(j)", &sight)) } else { converge(sight) }
}

/// Lives a whole life: start, then, if it came up, stop; with crashes answered by a new process that knows only what is
/// stored. Returns the world at rest after each half.
fn live(faults: Vec<(usize, Trouble)>) -> World {
    let mut world = World { faults, ..World::default() };
    settle(&mut world, Goal::Run);
    check_rest(&world, Goal::Run);
    if world.berths["j-1"].spec.state == BerthState::Committed {
        settle(&mut world, Goal::Gone);
        check_rest(&world, Goal::Gone);
        assert!(world.pods.is_empty(), "nothing is left after a stop: {:?}", world.faults);
    }
    world
}

fn settle(world: &mut World, goal: Goal) {
    for _ in 0..40 {
        world.land_late();
        let Some(operation) = next_operation(world, goal) else { return };
        let _ = run(world, operation);
    }
    panic!("does not come to rest: {:?}", world.faults);
}

fn check_rest(world: &World, goal: Goal) {
    let live: Vec<&Pod> = world.pods.values().filter(|p| !is_terminal(p)).collect();
    let berth = &world.berths["j-1"];
    for pod in &live {
        assert_eq!(owner_uid(&pod.metadata), berth.metadata.uid.as_deref(), "I3: every pod has a living owner");
    }
    match berth.spec.state {
        BerthState::Committed => assert_eq!(live.len(), GANG.len(), "I1: whole; faults {:?}", world.faults),
        _ => {
            assert!(live.is_empty(), "I1: gone; faults {:?}", world.faults);
            assert!(
                world.refused || goal == Goal::Gone,
                "a start is given up only after a definite refusal; faults {:?}",
                world.faults
            );
            assert_eq!(berth.metadata.finalizers, Some(vec![]), "nothing holds a released Berth back");
        }
    }
}

#[test]
fn an_undisturbed_start_makes_one_write_a_pod() {
    let mut world = World::default();
    assert_eq!(run(&mut world, start()).expect("no crash"), Outcome::Done);
    assert_eq!(world.calls, 3 + GANG.len(), "Berth, probe, Service, and one for each pod");
}

#[test]
fn one_fault_at_any_call_leaves_a_gang_whole_or_gone() {
    for at in 0..25 {
        for trouble in TROUBLES {
            live(vec![(at, trouble)]);
        }
    }
}

#[test]
fn two_faults_at_any_two_calls_leave_a_gang_whole_or_gone() {
    let mut lives = 0;
    for first in 0..14 {
        for second in first + 1..20 {
            for one in TROUBLES {
                for two in TROUBLES {
                    live(vec![(first, one), (second, two)]);
                    lives += 1;
                }
            }
        }
    }
    assert!(lives > 10_000, "{lives}");
}

#[test]
fn a_refused_pod_takes_the_whole_gang_back() {
    let mut world = World { faults: vec![(5, Trouble::Refused)], ..World::default() };
    let outcome = run(&mut world, start()).expect("no crash");
    let Outcome::Refused { undo, refusal, .. } = outcome else { panic!("{outcome:?}") };
    assert_eq!(undo, Undo::Leaving);
    assert!(refusal.is_quota());
    assert!(world.pods.is_empty());
    let stopping = world.berths["j-1"].spec.stopping.clone().expect("marked");
    assert_eq!(stopping.cause, "NamespaceQuota(exceeded quota: q)");
}

#[test]
fn a_refused_probe_gives_the_berth_back_in_one_write() {
    let mut world = World { faults: vec![(1, Trouble::Refused)], ..World::default() };
    let outcome = run(&mut world, start()).expect("no crash");
    assert!(matches!(outcome, Outcome::Refused { undo: Undo::Released, .. }), "{outcome:?}");
    assert_eq!(world.calls, 3, "Berth, probe, Berth");
    assert_eq!(world.berths["j-1"].spec.state, BerthState::Released);
}

#[test]
fn somebody_elses_decision_is_adopted_and_never_doubled() {
    let mut world = World::default();
    let mut other = mk_berth();
    other.spec.assignments[0].nodes = vec!["n2".into()];
    run(&mut world, empty(&other, Journal::Create(Arc::new(other.clone())), now())).expect("no crash");
    let outcome = run(&mut world, start()).expect("no crash");
    assert!(
        matches!(&outcome, Outcome::Lost(found) if found.spec.assignments == other.spec.assignments),
        "{outcome:?}"
    );
    assert!(world.pods.is_empty());
}

#[test]
fn a_namesakes_berth_is_waited_for() {
    let mut world = World::default();
    let mut other = mk_berth();
    other.spec.job_uid = "an earlier job".into();
    run(&mut world, empty(&other, Journal::Create(Arc::new(other.clone())), now())).expect("no crash");
    assert_eq!(run(&mut world, start()).expect("no crash"), Outcome::NamesakeLeaving);
}

#[test]
fn a_service_of_somebody_else_refuses_the_start() {
    let mut world = World::default();
    world.services.insert("j".into(), None);
    let outcome = run(&mut world, start()).expect("no crash");
    assert!(
        matches!(&outcome, Outcome::Refused { refusal, .. } if refusal.reason == "ServiceNameTaken"),
        "{outcome:?}"
    );
}

#[test]
fn a_pod_of_somebody_else_refuses_the_start() {
    let mut world = World::default();
    let mut stranger = (*mk_pod(GANG[1])).clone();
    stranger.metadata.uid = Some("stranger".into());
    world.pods.insert(GANG[1].into(), stranger);
    let outcome = run(&mut world, start()).expect("no crash");
    assert!(matches!(&outcome, Outcome::Refused { refusal, .. } if refusal.reason == "PodNameTaken"), "{outcome:?}");
    let left: Vec<&String> = world.pods.keys().collect();
    assert_eq!(left, [GANG[1]], "the stranger's pod is not touched, ours are gone");
}

#[test]
fn room_is_not_given_back_while_a_pod_is_left() {
    let mut world = World::default();
    run(&mut world, start()).expect("no crash");
    let berth = Arc::new(world.berths["j-1"].clone());
    assert_eq!(run(&mut world, release(&berth, now())).expect("no crash"), Outcome::PodsRemain(3));
    assert_eq!(world.berths["j-1"].spec.state, BerthState::Committed);
}

#[test]
fn a_dropped_reservation_is_deleted_only_as_it_was_seen() {
    let mut world = World::default();
    let mut berth = mk_berth();
    berth.spec.state = BerthState::Reserved;
    run(&mut world, empty(&berth, Journal::Create(Arc::new(berth.clone())), now())).expect("no crash");
    let seen = Arc::new(world.berths["j-1"].clone());
    world.berths.get_mut("j-1").expect("there").spec.state = BerthState::Committed;
    world.berths.get_mut("j-1").expect("there").metadata.resource_version = Some("later".into());
    let outcome = run(&mut world, empty(&seen, Journal::Delete(seen.clone()), now())).expect("no crash");
    assert!(matches!(outcome, Outcome::Lost(_)), "{outcome:?}");
    assert!(world.berths.contains_key("j-1"));
}

#[test]
fn a_leader_that_lost_its_lease_writes_nothing_more() {
    for at in 0..6 {
        let mut world = World { faults: vec![(at, Trouble::Fenced)], ..World::default() };
        assert_eq!(run(&mut world, start()).expect("no crash"), Outcome::Fenced);
        assert!(world.calls <= 6, "pod calls of the same batch may be under way, nothing after them");
    }
}

#[test]
fn a_host_file_that_stands_is_made_to_say_who_is_there_now() {
    let owner = json!([{"apiVersion": "v", "kind": "TrainingJob", "name": "j", "uid": "job-uid", "controller": true}]);
    let hosts =
        json!({"metadata": {"name": "j-hosts", "namespace": "ns", "ownerReferences": owner}, "data": {"hostfile": ""}});
    let hosts = Companion::ConfigMap(Arc::new(serde_json::from_value(hosts).expect("a host file")));
    let start = || Operation { companions: vec![mk_service(), hosts.clone()], ..start() };
    let mut world = World::default();
    assert_eq!(run(&mut world, start()).expect("no crash"), Outcome::Done);
    assert_eq!(world.refreshed, 0, "what is new says it already");
    let mut world = World::default();
    world.services.insert("j-hosts".into(), Some("job-uid".into()));
    assert_eq!(run(&mut world, start()).expect("no crash"), Outcome::Done);
    assert_eq!(world.refreshed, 1);
    let mut world = World::default();
    world.services.insert("j-hosts".into(), Some("somebody".into()));
    assert!(matches!(run(&mut world, start()).expect("no crash"), Outcome::Refused { .. }));
    assert_eq!(world.refreshed, 0, "a stranger's is not touched");
}
