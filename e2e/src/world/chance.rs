//! Whole lives by a seed: users, nodes, other schedulers and the controller's own processes do what they like, calls go
//! wrong, and in the end everything must come to rest in good order.

use super::World;
use super::objects::{TEAM, foreign_pod, job, job_key, node_key};
use super::reality::{gpus_of_node, gpus_of_pod};
use super::sweep::Life;
use crate::fake_api::faults::FAULTS;
use crate::fake_api::verbs::text;
use crate::fake_api::{Faults, Key, Rng, Store};
use serde_json::{Value, json};

/// Names of jobs: few, so that namesakes follow each other.
const JOBS: [&str; 5] = ["a", "b", "c", "d", "e"];

/// Lives a life.
pub async fn live(seed: u64, keep: bool) -> Life {
    let world = World::new(seed);
    let mut fate = Fate { rng: Rng::new(seed ^ 0x6661_7465), nodes: 0, strangers: 0 };
    fate.begin(&world).await;
    let deeds = fate.rng.between(8, 24);
    for _ in 0..deeds {
        let pause = fate.rng.between(0, 25);
        world.pass(pause).await;
        fate.one(&world).await;
    }
    let pause = fate.rng.between(0, 60);
    world.pass(pause).await;
    let (calls, hits) = world.disarm();
    fate.make_peace(&world);
    // A watch that died unseen is noticed by its silence.
    world.pass(250).await;
    world.settle(45).await;
    judge_phases(&world);
    let ledger = world.ledger();
    let violations = ledger.violations().to_vec();
    let story = if keep || !violations.is_empty() { ledger.story() } else { String::new() };
    Life { calls, hits, violations, hash: ledger.hash(), story }
}

/// At rest nothing is on its way.
fn judge_phases(world: &World) {
    let on_the_way: Vec<String> = world.see(|s| {
        let all = s.list("TrainingJob", TEAM);
        let moving = all.filter(|(_, j)| matches!(text(j, "/status/phase"), "Starting" | ""));
        moving.map(|(key, j)| format!("{key} rests in phase {}", j["status"]["phase"])).collect()
    });
    let now = world.api.shared().now();
    for line in on_the_way {
        world.ledger().violate(now, "rest", &line);
    }
}

struct Fate {
    rng: Rng,
    nodes: usize,
    strangers: u64,
}

impl Fate {
    async fn begin(&mut self, world: &World) {
        self.nodes = if self.rng.chance(500) { 4 } else { 6 };
        world.furnish(self.nodes);
        world.replicas.start("r0");
        if self.rng.chance(600) {
            world.pass(1).await;
            world.replicas.start("r1");
        }
        for _ in 0..self.rng.between(1, 3) {
            self.submit(world);
        }
        let per_mille = [0, 20, 60, 150][usize::try_from(self.rng.below(4)).unwrap_or(0)];
        world.arm(Faults::by_chance(per_mille, FAULTS.to_vec()));
    }

    async fn one(&mut self, world: &World) {
        match self.rng.below(24) {
            0..=5 => self.submit(world),
            6 | 7 => self.edit(world),
            8 => world.delete(&job_key(self.job_name())),
            9 | 10 => self.node(world),
            11 => self.take(world),
            12 => self.give(world),
            13 | 14 => self.delete_one(world, "Pod"),
            15 => self.delete_one(world, "Berth"),
            16 | 17 => self.process(world).await,
            18 => self.watches(world),
            19 => self.quota(world),
            20 => self.limit(world),
            21 => self.silence(world),
            22 => self.clock(world),
            _ => {
                let lease =
                    Key { kind: "Lease", namespace: crds::names::NAMESPACE.into(), name: crds::names::LEASE.into() };
                if self.rng.chance(300) {
                    world.delete(&lease);
                }
            }
        }
    }

    fn job_name(&mut self) -> &'static str {
        self.rng.pick(&JOBS).copied().unwrap_or("a")
    }

    fn any_node(&mut self) -> String {
        format!("n{}", self.rng.below(self.nodes as u64))
    }

    fn submit(&mut self, world: &World) {
        let name = self.job_name();
        let mut text = format!("name: {name}, ");
        for (chance, field) in [
            (400, "priorityClassName: high, "),
            (500, "maxRuntime: 4m, "),
            (200, "ttlAfterFinished: 20s, "),
            (250, "failurePolicy: {onPodFailure: ReplacePod}, "),
            (250, "topology: {required: rack}, "),
            (150, "checkpoint: {every: 1m, gracePeriod: 10s}, "),
        ] {
            if self.rng.chance(chance) {
                text += field;
            }
        }
        let most = self.rng.between(1, 3);
        let least = self.rng.between(1, most);
        let gpus = [8, 8, 4, 2][usize::try_from(self.rng.below(4)).unwrap_or(0)];
        let runtime = self.rng.between(10, 150);
        let play = match self.rng.below(6) {
            0 => format!(", runtime: {runtime}s"),
            1 => format!(", runtime: {runtime}s, exit: \"1\""),
            2 => ", start-delay: 6s, stop-delay: 8s".to_owned(),
            _ => String::new(),
        };
        let launcher = if self.rng.chance(500) { "{name: launcher, replicas: 1, gpus: 4}, " } else { "" };
        let depends = if !launcher.is_empty() && self.rng.chance(500) { ", dependsOn: [launcher]" } else { "" };
        text += &format!(
            "roles: [{launcher}{{name: worker, replicas: {most}, minReplicas: {least}, gpus: {gpus}{play}{depends}}}]"
        );
        world.create(&job(&format!("{{{text}}}")));
    }

    fn edit(&mut self, world: &World) {
        let key = job_key(self.job_name());
        let patch = match self.rng.below(4) {
            0 => json!({"spec": {"suspend": true}}),
            1 => json!({"spec": {"suspend": false}}),
            2 => json!({"spec": {"priorityClassName": "high"}}),
            _ => json!({"spec": {"maxRuntime": "3m"}}),
        };
        world.patch(&key, &patch);
    }

    fn node(&mut self, world: &World) {
        let at = self.rng.below(self.nodes as u64);
        let key = node_key(&format!("n{at}"));
        let there = world.see(|s| s.get(&key).is_some());
        match self.rng.below(4) {
            _ if !there => world.add_node(usize::try_from(at).unwrap_or(0)),
            0 => world.delete(&key),
            1 => world.patch(&key, &json!({"spec": {"unschedulable": true}})),
            2 => world.patch(&key, &json!({"spec": {"unschedulable": null}})),
            _ => {
                let rack = format!("r{}", self.rng.below(3));
                world.patch(&key, &json!({"metadata": {"labels": {"net/rack": rack}}}));
            }
        }
    }

    /// Another scheduler takes room that it sees free.
    fn take(&mut self, world: &World) {
        let (node, gpus) = (self.any_node(), self.rng.between(1, 8));
        let free = world.see(|s| free_gpus(s, &node));
        if free >= gpus {
            self.strangers += 1;
            world.create_as("kube-scheduler", &foreign_pod(&format!("x{}", self.strangers), &node, gpus));
        }
    }

    fn give(&mut self, world: &World) {
        let all: Vec<Key> = world.see(|s| s.list("Pod", "others").map(|(key, _)| key.clone()).collect());
        if let Some(key) = self.rng.pick(&all) {
            world.delete(key);
        }
    }

    fn delete_one(&mut self, world: &World, kind: &'static str) {
        let all: Vec<Key> = world.see(|s| s.list(kind, TEAM).map(|(key, _)| key.clone()).collect());
        if let Some(key) = self.rng.pick(&all) {
            world.delete(key);
        }
    }

    async fn process(&mut self, world: &World) {
        let name = if self.rng.chance(500) { "r0" } else { "r1" };
        self.disturb(world);
        match self.rng.below(4) {
            0 => world.replicas.restart(name),
            1 => {
                world.replicas.pause(name);
                let pause = self.rng.between(3, 45);
                world.pass(pause).await;
                world.replicas.resume(name);
            }
            2 if world.replicas.ready(name).is_some() => {
                world.replicas.stop(name);
                world.pass(12).await;
                world.replicas.restart(name);
            }
            _ => world.pass(1).await,
        }
        self.disturb(world);
    }

    fn watches(&mut self, world: &World) {
        self.disturb(world);
        match self.rng.below(4) {
            0 => {
                world.tell("all watches are cut, and what they might go on from is forgotten");
                world.api.shared().with(|server, _| server.compact());
                world.api.cut_watches();
            }
            1 => {
                world.tell("all watches die without a sign");
                world.api.mute_watches();
            }
            2 => {
                world.tell("watches are late by up to 3 s");
                world.api.set_watch_lag(3000);
            }
            _ => world.api.cut_watches(),
        }
    }

    fn quota(&mut self, world: &World) {
        let key = Key { kind: "ResourceQuota", namespace: TEAM.into(), name: "compute".into() };
        if world.see(|s| s.get(&key).is_some()) {
            world.delete(&key);
            return;
        }
        let pods = self.rng.between(1, 6).to_string();
        world.create(&json!({
            "apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "compute", "namespace": TEAM},
            "spec": {"hard": {"pods": pods}},
        }));
        let live = world.see(|s| s.list("Pod", TEAM).filter(|(_, p)| !is_over(p)).count());
        let live = i64::try_from(live).unwrap_or(0);
        world.api.shared().with(|server, _| server.count_pods(TEAM, live));
    }

    fn limit(&mut self, world: &World) {
        let limit = if self.rng.chance(500) { json!({"nvidia.com/gpu": "16"}) } else { Value::Null };
        world.patch(
            &Key { kind: "Queue", namespace: String::new(), name: "main".into() },
            &json!({"spec": {"limit": limit}}),
        );
    }

    fn silence(&mut self, world: &World) {
        let node = self.any_node();
        self.disturb(world);
        if self.rng.chance(600) {
            world.reality().silence(&node);
        } else {
            world.reality().heal(&node);
        }
    }

    fn clock(&mut self, world: &World) {
        let seconds = i64::try_from(self.rng.below(24)).unwrap_or(0) - 12;
        self.disturb(world);
        world.replicas.skew(seconds);
    }

    fn disturb(&self, world: &World) {
        let now = world.api.shared().now();
        world.ledger().disturbed(now);
    }

    /// All that was broken is mended; what was asked for stays asked for.
    fn make_peace(&mut self, world: &World) {
        self.disturb(world);
        world.replicas.skew(0);
        world.api.set_watch_lag(20);
        for at in 0..self.nodes {
            let key = node_key(&format!("n{at}"));
            if world.see(|s| s.get(&key).is_some()) {
                world.patch(&key, &json!({"spec": {"unschedulable": null}}));
                world.reality().heal(&format!("n{at}"));
            } else {
                world.add_node(at);
            }
        }
        for name in ["r0", "r1"] {
            world.replicas.resume(name);
        }
    }
}

fn free_gpus(store: &Store, node: &str) -> u64 {
    let Some(there) = store.get(&node_key(node)) else { return 0 };
    let held: u64 = store
        .list("Pod", "")
        .filter(|(_, p)| text(p, "/spec/nodeName") == node && !is_over(p))
        .map(|(_, p)| gpus_of_pod(p))
        .sum();
    gpus_of_node(there).saturating_sub(held)
}

fn is_over(pod: &Value) -> bool {
    matches!(text(pod, "/status/phase"), "Succeeded" | "Failed")
}
