//! What admission, daemons and other schedulers make of the room that a plan counts on, on a virtual clock.

use super::clock::run;
use berth_e2e::fake_api::{Key, Store, Verb};
use berth_e2e::world::World;
use berth_e2e::world::objects::{TEAM, job, job_key, live_pods, node_key, ready};
use serde_json::{Value, json};

fn world(nodes: usize) -> World {
    let world = World::new(7);
    world.furnish(nodes);
    world.replicas.start("r0");
    world
}

fn team() -> Key {
    Key { kind: "Namespace", namespace: String::new(), name: TEAM.to_owned() }
}

fn code<'a>(store: &'a Store, name: &str) -> &'a str {
    store.get(&job_key(name)).and_then(|j| j["status"]["pending"]["code"].as_str()).unwrap_or_default()
}

fn berths(store: &Store) -> usize {
    store.list("Berth", TEAM).count()
}

fn is_fine(world: &World) {
    let ledger = world.ledger();
    assert!(ledger.violations().is_empty(), "{}\n{:#?}", ledger.story(), ledger.violations());
}

#[test]
fn a_sidecar_that_admission_adds_is_planned_with() {
    run(async {
        let world = world(2);
        world.patch(&team(), &json!({"metadata": {"annotations": {"sidecar.test/gpus": "4"}}}));
        // Two pods of 4 GPUs would share a node; with their sidecars each fills one.
        world.create(&job("{name: j, roles: [{replicas: 2, gpus: 4}]}"));
        assert!(world.until(120, |s| ready(s, "j") == "2/2").await, "{}", world.ledger().story());
        world.create(&job("{name: k, roles: [{replicas: 1, gpus: 4}]}"));
        assert!(world.until(60, |s| code(s, "k") == "NoCapacity").await, "{}", world.ledger().story());
        world.settle(5).await;
        assert_eq!(world.see(|s| live_pods(s, "k")), 0);
        is_fine(&world);
    });
}

#[test]
fn a_sidecar_that_comes_between_the_dry_run_and_the_start_takes_nobodys_room() {
    run(async {
        let world = world(2);
        world.create(&job("{name: first, maxRuntime: 2m, roles: [{replicas: 2, runtime: 60s}]}"));
        assert!(world.until(60, |s| ready(s, "first") == "2/2").await);
        world.create(&job("{name: j, roles: [{replicas: 4, gpus: 4}]}"));
        world.pass(10).await;
        world.patch(&team(), &json!({"metadata": {"annotations": {"sidecar.test/gpus": "4"}}}));
        // Four pods of 8 GPUs no longer fit on two nodes: nothing of the gang is ever made.
        world.pass(180).await;
        assert_eq!(world.see(|s| live_pods(s, "j")), 0, "{}", world.ledger().story());
        world.patch(
            &job_key("j"),
            &json!({"spec": {"roles": job("{name: j, roles: [{replicas: 2, gpus: 4}]}")["spec"]["roles"]}}),
        );
        assert!(world.until(120, |s| ready(s, "j") == "2/2").await, "{}", world.ledger().story());
        world.settle(10).await;
        is_fine(&world);
    });
}

#[test]
fn pods_that_policy_refuses_hold_nothing_and_start_when_it_allows_them() {
    run(async {
        let world = world(2);
        world.patch(&team(), &json!({"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}));
        world.create(&job("{name: j, roles: [{replicas: 2}]}"));
        assert!(world.until(60, |s| code(s, "j") == "PodRefused").await, "{}", world.ledger().story());
        world.settle(30).await;
        assert_eq!(world.see(berths), 0, "nothing was planned: {}", world.ledger().story());
        world.patch(&team(), &json!({"metadata": {"labels": {"pod-security.kubernetes.io/enforce": null}}}));
        assert!(world.until(30, |s| ready(s, "j") == "2/2").await, "{}", world.ledger().story());
        world.settle(5).await;
        is_fine(&world);
    });
}

#[test]
fn a_daemon_that_is_still_to_come_has_its_place() {
    run(async {
        let world = world(2);
        let resources = json!({"requests": {"nvidia.com/gpu": "1"}, "limits": {"nvidia.com/gpu": "1"}});
        world.create(&json!({
            "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "agent", "namespace": "others"},
            "spec": {
                "selector": {"matchLabels": {"app": "agent"}},
                "template": {
                    "metadata": {"labels": {"app": "agent"}},
                    "spec": {"nodeSelector": {"kubernetes.io/hostname": "n0"}, "containers": [{"name": "c", "image": "i", "resources": resources}]},
                },
            },
        }));
        world.pass(3).await;
        world.create(&job("{name: j, roles: [{replicas: 2}]}"));
        assert!(world.until(60, |s| code(s, "j") == "NoCapacity").await, "{}", world.ledger().story());
        world.create(&job("{name: k, roles: [{replicas: 2, gpus: 7}]}"));
        assert!(world.until(60, |s| ready(s, "k") == "2/2").await, "{}", world.ledger().story());
        world.settle(5).await;
        is_fine(&world);
    });
}

fn nominated(name: &str, node: &str, priority: i64) -> (Key, Value, Value) {
    let resources = json!({"requests": {"nvidia.com/gpu": "8"}, "limits": {"nvidia.com/gpu": "8"}});
    let key = Key { kind: "Pod", namespace: "others".to_owned(), name: name.to_owned() };
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "others"},
        "spec": {"priority": priority, "containers": [{"name": "c", "image": "i", "resources": resources}]},
    });
    (key, pod, json!({"status": {"nominatedNodeName": node}}))
}

#[test]
fn a_node_that_another_scheduler_has_promised_is_left_to_whom_it_was_promised_if_he_goes_first() {
    run(async {
        let world = world(2);
        for (name, node, priority) in [("before", "n0", 500), ("behind", "n1", 5)] {
            let (key, pod, status) = nominated(name, node, priority);
            world.create(&pod);
            world
                .api
                .shared()
                .with(|server, now| server.by("scheduler", Verb::Patch, &key, Some("status"), status, now).map(drop))
                .ok();
        }
        world.pass(3).await;
        world.create(&job("{name: j, priorityClassName: low, roles: [{replicas: 2}]}"));
        assert!(world.until(60, |s| code(s, "j") == "NoCapacity").await, "{}", world.ledger().story());
        world.create(&job("{name: k, priorityClassName: low, roles: [{replicas: 1}]}"));
        assert!(world.until(60, |s| ready(s, "k") == "1/1").await, "{}", world.ledger().story());
        let node = world.see(|s| {
            let mut pods = s.list("Pod", TEAM).filter_map(|(_, p)| p["spec"]["nodeName"].as_str());
            pods.next().map(str::to_owned)
        });
        assert_eq!(node.as_deref(), Some("n1"), "priority 5 is below ours of 10, 500 is not");
        world.delete(&job_key("k"));
        let (key, ..) = nominated("before", "n0", 0);
        world.delete(&key);
        assert!(world.until(120, |s| ready(s, "j") == "2/2").await, "{}", world.ledger().story());
        assert!(world.see(|s| s.get(&node_key("n0")).is_some()));
        world.settle(5).await;
        is_fine(&world);
    });
}
