//! Gangs whose pods need volumes, on a virtual clock.

use super::clock::run;
use berth_e2e::fake_api::{Fault, Faults, Key, Store};
use berth_e2e::world::World;
use berth_e2e::world::objects::{TEAM, job, job_key, live_pods, phase, ready};
use serde_json::{Value, json};

fn world() -> World {
    let world = World::new(7);
    world.furnish(4);
    world
}

fn class(name: &str, mode: &str, provisioner: &str) -> Value {
    json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name},
        "provisioner": provisioner, "volumeBindingMode": mode, "parameters": {"reach": "rack"},
    })
}

fn claim(name: &str, class: &str, mode: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name, "namespace": TEAM},
        "spec": {"storageClassName": class, "accessModes": [mode]},
    })
}

fn gang(name: &str, replicas: u32, claim: &str) -> Value {
    let volume = format!("{{name: data, persistentVolumeClaim: {{claimName: {claim}}}}}");
    job(&format!("{{name: {name}, roles: [{{replicas: {replicas}, template: {{spec: {{volumes: [{volume}]}}}}}}]}}"))
}

fn code<'a>(store: &'a Store, name: &str) -> &'a str {
    store.get(&job_key(name)).and_then(|j| j["status"]["pending"]["code"].as_str()).unwrap_or_default()
}

fn racks(store: &Store) -> Vec<String> {
    let nodes = store.list("Pod", TEAM).filter_map(|(_, p)| p["spec"]["nodeName"].as_str());
    let rack = |node: &str| {
        let key = Key { kind: "Node", namespace: String::new(), name: node.to_owned() };
        store.get(&key).and_then(|n| n["metadata"]["labels"]["net/rack"].as_str()).unwrap_or_default().to_owned()
    };
    let mut all: Vec<String> = nodes.map(rack).collect();
    all.sort();
    all.dedup();
    all
}

fn is_fine(world: &World) {
    let ledger = world.ledger();
    assert!(ledger.violations().is_empty(), "{}\n{:#?}", ledger.story(), ledger.violations());
}

#[test]
fn a_missing_claim_is_waited_for_with_its_code_and_disturbs_nobody() {
    run(async {
        let world = world();
        world.replicas.start("r0");
        world.create(&class("now", "Immediate", "csi.test"));
        world.create(&gang("j", 2, "data"));
        assert!(world.until(60, |s| code(s, "j") == "VolumeMissing").await, "{}", world.ledger().story());
        world.create(&job("{name: k, roles: [{replicas: 4}]}"));
        assert!(world.until(60, |s| ready(s, "k") == "4/4").await, "{}", world.ledger().story());
        assert_eq!(world.see(|s| live_pods(s, "j")), 0);
        world.delete(&job_key("k"));
        world.create(&claim("data", "now", "ReadWriteMany"));
        assert!(world.until(120, |s| ready(s, "j") == "2/2").await, "{}", world.ledger().story());
        world.settle(10).await;
        is_fine(&world);
    });
}

#[test]
fn a_claim_for_its_first_pod_gets_a_node_then_a_volume_then_the_gang_whatever_call_fails() {
    // Without trouble first; then trouble at each call of the start.
    for fault in [None, Some(Fault::CrashBefore), Some(Fault::CrashAfter), Some(Fault::Lost), Some(Fault::Conflict)] {
        for at in 0..fault.map_or(1, |_| 14) {
            run(async {
                let world = world();
                world.replicas.start("r0");
                world.create(&class("late", "WaitForFirstConsumer", "csi.test"));
                world.create(&claim("data", "late", "ReadWriteMany"));
                world.pass(5).await;
                if let Some(fault) = fault {
                    world.arm(Faults::at([(at, fault)]));
                }
                world.create(&gang("j", 2, "data"));
                let story = || format!("{fault:?} at {at}: {}", world.ledger().story());
                assert!(world.until(300, |s| ready(s, "j") == "2/2").await, "{}", story());
                world.disarm();
                world.see(|store| {
                    let claim = store.list("PersistentVolumeClaim", TEAM).next().map(|(_, c)| c.clone());
                    let node =
                        claim.as_ref().map(|c| &c["metadata"]["annotations"]["volume.kubernetes.io/selected-node"]);
                    assert!(node.is_some_and(Value::is_string), "{claim:?}");
                    assert_eq!(racks(store).len(), 1, "the volume is of one rack");
                });
                world.settle(10).await;
                is_fine(&world);
            });
        }
    }
}

#[test]
fn a_volume_that_is_never_made_takes_the_start_back() {
    run(async {
        let world = world();
        world.replicas.start("r0");
        world.create(&class("late", "WaitForFirstConsumer", "csi.test"));
        world.create(&claim("data", "late", "ReadWriteMany"));
        world.create(&gang("j", 2, "data"));
        // Whoever makes volumes is away: its class is gone as soon as the node is chosen.
        let chosen = |s: &Store| {
            s.list("PersistentVolumeClaim", TEAM)
                .any(|(_, c)| c["metadata"]["annotations"]["volume.kubernetes.io/selected-node"].is_string())
        };
        assert!(world.until(60, chosen).await, "{}", world.ledger().story());
        world.delete(&Key { kind: "StorageClass", namespace: String::new(), name: "late".to_owned() });
        world.pass(30).await;
        assert_eq!(world.see(|s| live_pods(s, "j")), 0, "no pod before its volume");
        assert_eq!(world.see(|s| phase(s, "j").to_owned()), "Starting");
        assert!(world.until(400, |s| code(s, "j") == "VolumeNotBound").await, "{}", world.ledger().story());
        let released = |s: &Store| s.list("Berth", TEAM).all(|(_, b)| b["spec"]["state"] == "Released");
        assert!(world.until(60, released).await, "{}", world.ledger().story());
        world.settle(10).await;
        is_fine(&world);
    });
}

#[test]
fn volumes_of_single_pods_are_made_for_the_nodes_where_these_sit() {
    run(async {
        let world = world();
        world.replicas.start("r0");
        world.create(&class("late", "WaitForFirstConsumer", "csi.test"));
        let volume = "{name: scratch, ephemeral: {volumeClaimTemplate: {spec: {storageClassName: late, accessModes: [ReadWriteOnce]}}}}";
        world.create(&job(&format!(
            "{{name: j, roles: [{{replicas: 3, template: {{spec: {{volumes: [{volume}]}}}}}}]}}"
        )));
        assert!(world.until(120, |s| ready(s, "j") == "3/3").await, "{}", world.ledger().story());
        world.settle(10).await;
        is_fine(&world);
    });
}

#[test]
fn a_claim_for_one_pod_alone_serves_one_job_after_the_other() {
    run(async {
        let world = world();
        world.replicas.start("r0");
        world.create(&class("now", "Immediate", "csi.test"));
        world.create(&claim("data", "now", "ReadWriteOncePod"));
        world.pass(10).await;
        world.create(&gang("a", 1, "data"));
        world.create(&gang("b", 1, "data"));
        assert!(world.until(120, |s| ready(s, "a") == "1/1" || ready(s, "b") == "1/1").await);
        assert!(
            world.until(60, |s| code(s, "a") == "VolumeInUse" || code(s, "b") == "VolumeInUse").await,
            "{}",
            world.ledger().story()
        );
        let (first, second) = world.see(|s| if ready(s, "a") == "1/1" { ("a", "b") } else { ("b", "a") });
        world.settle(5).await;
        assert_eq!(world.see(|s| live_pods(s, second)), 0);
        world.delete(&job_key(first));
        assert!(world.until(120, |s| ready(s, second) == "1/1").await, "{}", world.ledger().story());
        world.settle(5).await;
        is_fine(&world);
    });
}

#[test]
fn no_node_gets_more_volumes_than_it_can_attach() {
    run(async {
        let world = world();
        for node in ["n0", "n1", "n2"] {
            world.create(&json!({
                "apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": {"name": node},
                "spec": {"drivers": [{"name": "csi.test", "nodeID": node, "allocatable": {"count": 1}}]},
            }));
        }
        // The fourth node names no limit: it is kept out by a cordon.
        let n3 = Key { kind: "Node", namespace: String::new(), name: "n3".to_owned() };
        world.patch(&n3, &json!({"spec": {"unschedulable": true}}));
        world.replicas.start("r0");
        world.create(&class("late", "WaitForFirstConsumer", "csi.test"));
        let volume = "{name: scratch, ephemeral: {volumeClaimTemplate: {spec: {storageClassName: late, accessModes: [ReadWriteOnce]}}}}";
        world.create(&job(&format!(
            "{{name: j, roles: [{{replicas: 3, gpus: 1, template: {{spec: {{volumes: [{volume}]}}}}}}]}}"
        )));
        assert!(world.until(120, |s| ready(s, "j") == "3/3").await, "{}", world.ledger().story());
        let nodes = world.see(|s| {
            let all = s.list("Pod", TEAM).filter_map(|(_, p)| p["spec"]["nodeName"].as_str().map(str::to_owned));
            all.collect::<std::collections::BTreeSet<_>>()
        });
        assert_eq!(nodes.len(), 3, "one volume a node: {nodes:?}");
        world.create(&job(&format!(
            "{{name: k, roles: [{{replicas: 1, gpus: 1, template: {{spec: {{volumes: [{volume}]}}}}}}]}}"
        )));
        assert!(world.until(60, |s| code(s, "k") == "NoCapacity").await, "{}", world.ledger().story());
        world.settle(5).await;
        is_fine(&world);
    });
}
