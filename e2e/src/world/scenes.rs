//! The stages of a gang's life. Each furnishes a world, brings it to where the stage begins, does what begins it, and
//! knows what must come of it in the end, whatever goes wrong on the way.

use super::World;
use super::objects::{job, job_key, live_pods, node_key, phase, ready};
use crate::fake_api::{Faults, Store};
use serde_json::json;

/// A stage of a gang's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// A promise is made while others run, and kept.
    Reserve,
    /// A gang of several roles starts, one after the other.
    Start,
    /// A running gang gets more members.
    Grow,
    /// A running gang gives members up for others.
    Shrink,
    /// A node is lost and the gang starts anew.
    Repair,
    /// A node is lost and its member is replaced.
    Replace,
    /// The user's code fails and the gang restarts.
    Restart,
    /// A gang goes for one of higher priority.
    Preempt,
    /// A gang ends well and is forgotten after its time.
    Finish,
    /// A job is deleted while it runs, and made again under the same name.
    Delete,
}

/// All of them.
pub const STAGES: [Stage; 10] = [
    Stage::Reserve,
    Stage::Start,
    Stage::Grow,
    Stage::Shrink,
    Stage::Repair,
    Stage::Replace,
    Stage::Restart,
    Stage::Preempt,
    Stage::Finish,
    Stage::Delete,
];

const GANG: &str =
    "roles: [{name: launcher, replicas: 1, gpus: 4}, {name: worker, replicas: 2, gpus: 8, dependsOn: [launcher]}]";

impl Stage {
    /// Name for tables.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Reserve => "reserve",
            Self::Start => "start",
            Self::Grow => "grow",
            Self::Shrink => "shrink",
            Self::Repair => "repair",
            Self::Replace => "replace",
            Self::Restart => "restart",
            Self::Preempt => "preempt",
            Self::Finish => "finish",
            Self::Delete => "delete",
        }
    }

    /// What runs before the stage begins, and how it looks when it does.
    async fn prepare(self, world: &World) -> bool {
        let submit = |text: &str| world.create(&job(text));
        match self {
            Self::Start => world.pass(2).await,
            Self::Reserve => {
                submit("{name: old, maxRuntime: 2m, roles: [{replicas: 4, runtime: 60s}]}");
                return world.until(120, |s| phase(s, "old") == "Running").await;
            }
            Self::Grow => {
                submit("{name: old, maxRuntime: 2m, roles: [{replicas: 2, runtime: 90s}]}");
                submit("{name: e, maxRuntime: 2h, roles: [{replicas: 3, minReplicas: 1}]}");
                return world.until(120, |s| phase(s, "old") == "Running" && ready(s, "e") == "2/3").await;
            }
            Self::Shrink => {
                submit("{name: e, priorityClassName: low, roles: [{replicas: 4, minReplicas: 1}]}");
                return world.until(120, |s| ready(s, "e") == "4/4").await;
            }
            Self::Repair => {
                submit(&format!("{{name: j, {GANG}}}"));
                return world.until(120, |s| phase(s, "j") == "Running" && ready(s, "j") == "3/3").await;
            }
            Self::Replace => {
                submit(
                    "{name: j, failurePolicy: {onPodFailure: ReplacePod}, roles: [{name: launcher, replicas: 1, gpus: 4}, {name: worker, replicas: 2}]}",
                );
                return world.until(120, |s| phase(s, "j") == "Running" && ready(s, "j") == "3/3").await;
            }
            Self::Restart => {
                submit(
                    "{name: j, roles: [{name: launcher, replicas: 1, gpus: 4}, {name: worker, replicas: 1, runtime: 25s, exit: \"1\"}], failurePolicy: {maxRestarts: 1}}",
                );
                return world.until(120, |s| phase(s, "j") == "Running").await;
            }
            Self::Preempt => {
                submit("{name: lo, priorityClassName: low, roles: [{replicas: 4}]}");
                return world.until(120, |s| ready(s, "lo") == "4/4").await;
            }
            Self::Finish => {
                submit(
                    "{name: j, ttlAfterFinished: 30s, successPolicy: {roles: [worker]}, roles: [{name: launcher, replicas: 1, gpus: 4}, {name: worker, replicas: 2, runtime: 30s}]}",
                );
                return world.until(120, |s| phase(s, "j") == "Running").await;
            }
            Self::Delete => {
                submit(&format!("{{name: j, {GANG}}}"));
                return world.until(120, |s| phase(s, "j") == "Running").await;
            }
        }
        true
    }

    /// What begins it.
    async fn begin(self, world: &World) {
        let submit = |text: &str| world.create(&job(text));
        match self {
            Self::Reserve => submit(&format!("{{name: new, maxRuntime: 10m, {GANG}}}")),
            Self::Start => submit(&format!("{{name: new, {GANG}}}")),
            Self::Shrink => submit(
                "{name: hi, priorityClassName: high, roles: [{name: a, replicas: 1, gpus: 4}, {name: b, replicas: 1}]}",
            ),
            Self::Preempt => submit(&format!("{{name: hi, priorityClassName: high, {GANG}}}")),
            Self::Repair | Self::Replace => {
                let node = world.see(node_of_worker);
                world.delete(&node_key(&node));
            }
            Self::Delete => {
                world.delete(&job_key("j"));
                world.pass(1).await;
                // The name is taken until the old one has left.
                let gone = |s: &Store| s.get(&job_key("j")).is_none();
                if !world.until(900, gone).await {
                    return;
                }
                submit(&format!("{{name: j, {GANG}}}"));
            }
            Self::Grow | Self::Restart | Self::Finish => {}
        }
    }

    /// What must come in the end.
    fn is_reached(self, store: &Store) -> bool {
        let runs = |name: &str, all: &str| phase(store, name) == "Running" && ready(store, name) == all;
        match self {
            Self::Reserve => runs("new", "3/3") && live_pods(store, "old") == 0,
            Self::Start => runs("new", "3/3"),
            Self::Grow => ready(store, "e") == "3/3",
            Self::Shrink => runs("hi", "2/2") && live_pods(store, "e") == 2,
            Self::Repair | Self::Replace => runs("j", "3/3") && live_pods(store, "j") == 3 && on_live_nodes(store),
            Self::Restart => phase(store, "j") == "Failed" && live_pods(store, "j") == 0,
            Self::Preempt => runs("hi", "3/3") && live_pods(store, "lo") == 0,
            Self::Finish => store.get(&job_key("j")).is_none() && live_pods(store, "j") == 0,
            Self::Delete => runs("j", "3/3"),
        }
    }

    /// Plays the stage in an empty world with faults, to its end and to rest.
    pub async fn play(self, world: &World, faults: Faults) -> (u64, u64) {
        world.furnish(4);
        world.replicas.start("r0");
        let prepared = self.prepare(world).await;
        world.pass(3).await;
        if !prepared {
            let now = world.api.shared().now();
            world.ledger().violate(now, "stage", &format!("{} does not come to its beginning", self.name()));
            return (0, 0);
        }
        world.arm(faults);
        self.begin(world).await;
        if !world.until(1200, |s| self.is_reached(s)).await {
            let now = world.api.shared().now();
            world.ledger().violate(now, "goal", &format!("{} does not come to its goal in 20 minutes", self.name()));
        }
        world.pass(5).await;
        let counted = world.disarm();
        world.settle(20).await;
        counted
    }
}

fn node_of_worker(store: &Store) -> String {
    let worker = store.list("Pod", super::objects::TEAM).find(|(key, _)| key.name.contains("worker"));
    worker.and_then(|(_, p)| p["spec"]["nodeName"].as_str()).unwrap_or("n0").to_owned()
}

fn on_live_nodes(store: &Store) -> bool {
    let mut pods = store.list("Pod", super::objects::TEAM);
    pods.all(|(_, p)| {
        let over = matches!(p["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
        over || store.get(&node_key(p["spec"]["nodeName"].as_str().unwrap_or_default())).is_some()
    })
}

/// A patch that suspends or resumes a job.
#[must_use]
pub fn suspend(yes: bool) -> serde_json::Value {
    json!({"spec": {"suspend": yes}})
}
