//! What random lives found, each as short as it can be told.

use super::clock::run;
use berth_e2e::fake_api::{Fault, Faults, Key};
use berth_e2e::world::World;
use berth_e2e::world::objects::{TEAM, job, live_pods, phase, ready};
use serde_json::{Value, json};

/// A furnished world with a controller and a gang of three that runs.
async fn with_a_gang(more: &str) -> World {
    let world = World::new(7);
    world.furnish(4);
    world.replicas.start("r0");
    world.create(&job(&format!("{{name: j, {more} roles: [{{replicas: 3}}]}}")));
    assert!(world.until(60, |s| ready(s, "j") == "3/3").await, "{}", world.ledger().story());
    world
}

fn quota(pods: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "compute", "namespace": TEAM},
        "spec": {"hard": {"pods": pods}},
    })
}

fn is_fine(world: &World) {
    let ledger = world.ledger();
    assert!(ledger.violations().is_empty(), "{}\n{:#?}", ledger.story(), ledger.violations());
}

#[test]
fn a_list_or_watch_that_is_never_answered_blinds_nobody_for_ever() {
    for call in 0..24 {
        run(async {
            let world = World::new(1);
            world.furnish(4);
            world.arm(Faults::at([(call, Fault::Lost)]));
            world.replicas.start("r0");
            world.pass(1).await;
            world.create(&job("{name: j, roles: [{replicas: 2}]}"));
            assert!(world.until(180, |s| phase(s, "j") == "Running").await, "call {call}: {}", world.ledger().story());
        });
    }
}

#[test]
fn watches_that_die_without_a_sign_are_begun_anew() {
    run(async {
        let world = with_a_gang("").await;
        world.api.mute_watches();
        world.create(&job("{name: k, roles: [{replicas: 1}]}"));
        assert!(world.until(240, |s| phase(s, "k") == "Running").await, "{}", world.ledger().story());
    });
}

#[test]
fn a_job_over_its_namespaces_quota_disturbs_nobody_and_starts_when_the_quota_allows() {
    run(async {
        let world = World::new(7);
        world.furnish(4);
        world.create(&quota("2"));
        world.replicas.start("r0");
        world.create(&job("{name: low, priorityClassName: low, roles: [{replicas: 2}]}"));
        assert!(world.until(60, |s| ready(s, "low") == "2/2").await);
        world.create(&job("{name: hi, priorityClassName: high, roles: [{replicas: 4}]}"));
        world.settle(10).await;
        assert_eq!(world.see(|s| live_pods(s, "low")), 2, "nobody goes for a job that cannot start");
        assert_eq!(
            world.see(|s| s
                .get(&Key { kind: "TrainingJob", namespace: TEAM.into(), name: "hi".into() })
                .map(|j| j["status"]["pending"]["code"].clone())),
            Some(json!("NamespaceQuota"))
        );
        let key = Key { kind: "ResourceQuota", namespace: TEAM.into(), name: "compute".into() };
        world.patch(&key, &json!({"spec": {"hard": {"pods": "10"}}, "status": {}}));
        assert!(world.until(120, |s| ready(s, "hi") == "4/4").await, "{}", world.ledger().story());
        world.settle(10).await;
        is_fine(&world);
    });
}

/// One member's pod is deleted; nobody may take its place.
async fn a_member_is_lost_and_the_gang_goes(world: &World) {
    world.pass(2).await;
    let pod = world.see(|s| s.list("Pod", TEAM).next().map(|(key, _)| key.clone())).expect("a pod");
    world.delete(&pod);
    world.settle(10).await;
    assert_eq!(world.see(|s| live_pods(s, "j")), 0, "{}", world.ledger().story());
    is_fine(world);
}

#[test]
fn a_gang_whose_replacement_is_refused_is_gone_and_nobody_tries_without_end() {
    run(async {
        let world = with_a_gang("failurePolicy: {onPodFailure: ReplacePod},").await;
        world.create(&quota("2"));
        world.api.shared().with(|server, _| server.count_pods(TEAM, 3));
        a_member_is_lost_and_the_gang_goes(&world).await;
    });
}

#[test]
fn a_gang_that_may_not_be_repaired_is_gone() {
    run(async {
        let world = with_a_gang("").await;
        let queue = Key { kind: "Queue", namespace: String::new(), name: "main".into() };
        world.patch(&queue, &json!({"spec": {"limit": {"nvidia.com/gpu": "8"}}}));
        a_member_is_lost_and_the_gang_goes(&world).await;
    });
}

#[test]
fn a_status_on_its_way_never_reaches_a_job_made_anew_under_the_name() {
    for (call, lives_s) in (0..24).flat_map(|call| [1, 3, 10].map(|s| (call, s))) {
        run(async {
            let world = World::new(7);
            world.furnish(4);
            world.replicas.start("r0");
            world.pass(3).await;
            world.arm(Faults::at([(call, Fault::Late)]));
            world.create(&job("{name: j, roles: [{replicas: 3}]}"));
            world.pass(lives_s).await;
            let key = Key { kind: "TrainingJob", namespace: TEAM.into(), name: "j".into() };
            world.delete(&key);
            assert!(world.until(300, |s| s.get(&key).is_none()).await, "call {call}: {}", world.ledger().story());
            world.create(&job("{name: j, roles: [{replicas: 3}]}"));
            assert!(world.until(300, |s| ready(s, "j") == "3/3").await, "call {call}: {}", world.ledger().story());
            is_fine(&world);
        });
    }
}

#[test]
fn a_namespace_that_is_deleted_while_a_gang_starts_ends_empty() {
    for after_ms in (0..140).step_by(20) {
        run(async {
            let world = World::new(7);
            world.furnish(4);
            world.replicas.start("r0");
            world.pass(2).await;
            world.create(&job("{name: j, roles: [{replicas: 3}]}"));
            tokio::time::sleep(std::time::Duration::from_millis(after_ms)).await;
            world.delete(&Key { kind: "Namespace", namespace: String::new(), name: TEAM.into() });
            let empty = world.until(120, |s| !s.all().any(|(key, _)| key.namespace == TEAM)).await;
            assert!(empty, "{after_ms}: {}", world.ledger().story());
        });
    }
}
