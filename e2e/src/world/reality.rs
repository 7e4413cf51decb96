//! What a cluster does by itself: kubelets take, run, end and stop pods; volumes are made for claims; the garbage collector removes what lost its
//! owner; the namespace controller empties namespaces; pods of deleted nodes are removed. Everything a little late, by
//! the seed.

use super::audit::Ledger;
use super::claims;
use super::objects::node_key;
use crate::fake_api::verbs::{seconds, text};
use crate::fake_api::{Change, FakeApi, Key, Kind, Rng, Verb, What};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::Instant;

/// Between two looks of the auditor when nothing happens.
const TICK: Duration = Duration::from_secs(1);
/// A deleted node's pods are removed after this.
const POD_GC: Duration = Duration::from_secs(15);

/// A thing to do.
#[derive(Clone, Debug)]
enum Deed {
    Start(Key, String),
    Finish(Key, String),
    Remove(Key, String),
    Collect(Key),
    Purge(String),
    Forget(Key, String),
    Claim(Key, String),
    Provision(Key, String),
}

#[derive(Clone, Debug)]
enum Order {
    Silence(String),
    Heal(String),
}

/// For those who disturb it.
pub struct Handle {
    orders: mpsc::UnboundedSender<Order>,
}

impl Handle {
    /// A node's kubelet says and does nothing any more.
    pub fn silence(&self, node: &str) {
        let _ = self.orders.send(Order::Silence(node.to_owned()));
    }

    /// It is back.
    pub fn heal(&self, node: &str) {
        let _ = self.orders.send(Order::Heal(node.to_owned()));
    }
}

struct Reality {
    api: FakeApi,
    ledger: Arc<Mutex<Ledger>>,
    rng: Rng,
    due: BTreeMap<(Instant, u64), Deed>,
    serial: u64,
    silent: BTreeSet<String>,
}

/// Begins.
pub(super) fn begin(
    api: FakeApi,
    ledger: Arc<Mutex<Ledger>>,
    mut changes: mpsc::UnboundedReceiver<Change>,
    seed: u64,
) -> Handle {
    let (sender, mut orders) = mpsc::unbounded_channel();
    let mut reality = Reality {
        api,
        ledger,
        rng: Rng::new(seed ^ 0x7265_616c),
        due: BTreeMap::new(),
        serial: 0,
        silent: BTreeSet::new(),
    };
    tokio::spawn(async move {
        let mut tick = Instant::now() + TICK;
        loop {
            let next = reality.due.keys().next().map_or(tick, |(at, _)| (*at).min(tick));
            tokio::select! {
                biased;
                Some(order) = orders.recv() => reality.obey(&order),
                Some(change) = changes.recv() => reality.react(&change),
                () = tokio::time::sleep_until(next) => {
                    let now = Instant::now();
                    reality.fire(now);
                    if now >= tick {
                        tick = now + TICK;
                        reality.look();
                    }
                }
            }
        }
    });
    Handle { orders: sender }
}

impl Reality {
    fn plan(&mut self, after: Duration, deed: Deed) {
        self.serial += 1;
        self.due.insert((Instant::now() + after, self.serial), deed);
    }

    fn soon(&mut self, low_ms: u64, high_ms: u64, deed: Deed) {
        let after = Duration::from_millis(self.rng.between(low_ms, high_ms));
        self.plan(after, deed);
    }

    fn fire(&mut self, now: Instant) {
        while let Some(first) = self.due.first_entry() {
            if first.key().0 > now {
                break;
            }
            let deed = first.remove();
            self.carry_out(deed);
        }
    }

    fn look(&self) {
        let now = self.api.shared().now();
        let server = self.api.shared().lock();
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner).tick(&server.store, now);
    }

    // --- what changes lead to ---

    fn react(&mut self, change: &Change) {
        let (key, object) = (change.key.clone(), &change.object);
        let uid = text(object, "/metadata/uid").to_owned();
        let going = !text(object, "/metadata/deletionTimestamp").is_empty();
        let was_going = change.before.as_ref().is_some_and(|b| !text(b, "/metadata/deletionTimestamp").is_empty());
        match (key.kind, change.what) {
            (_, What::Deleted) => {
                for dependent in self.dependents(&uid) {
                    self.soon(200, 3000, Deed::Collect(dependent));
                }
                if key.kind == "Node" {
                    for (pod, uid) in self.pods_on(&key.name) {
                        self.plan(POD_GC, Deed::Forget(pod, uid));
                    }
                }
            }
            ("Pod", What::Added) => {
                let delay = fake(object, "start-delay");
                match delay {
                    Some(delay) => self.plan(delay, Deed::Start(key.clone(), uid)),
                    None => self.soon(100, 1500, Deed::Start(key.clone(), uid)),
                }
                if claims::templates(object).next().is_some() {
                    self.soon(200, 1500, Deed::Claim(key.clone(), text(object, "/metadata/uid").to_owned()));
                }
                self.soon(500, 4000, Deed::Collect(key));
            }
            ("Pod", What::Modified) if going && !was_going => self.leave(key, uid, object),
            ("PersistentVolumeClaim", What::Added | What::Modified) => {
                if text(object, "/spec/volumeName").is_empty() {
                    self.soon(500, 3000, Deed::Provision(key, uid));
                } else if object["metadata"]["ownerReferences"].is_array() {
                    self.soon(500, 4000, Deed::Collect(key));
                }
            }
            ("Node", What::Added) => {
                self.silent.remove(&key.name);
                self.take_up(&key.name);
            }
            ("Namespace", What::Modified) if going && !was_going => {
                self.soon(200, 1500, Deed::Purge(key.name));
            }
            (_, What::Added) if object["metadata"]["ownerReferences"].is_array() => {
                self.soon(500, 4000, Deed::Collect(key));
            }
            _ => {}
        }
    }

    fn leave(&mut self, key: Key, uid: String, pod: &Value) {
        let grace = Duration::from_secs(pod["metadata"]["deletionGracePeriodSeconds"].as_u64().unwrap_or(0));
        match fake(pod, "stop-delay") {
            Some(delay) => self.plan(delay.min(grace), Deed::Remove(key, uid)),
            None => self.soon(50, 700, Deed::Remove(key, uid)),
        }
    }

    fn obey(&mut self, order: &Order) {
        match order {
            Order::Silence(node) => {
                self.silent.insert(node.clone());
                self.report(node, "Unknown");
            }
            Order::Heal(node) => {
                self.silent.remove(node);
                self.report(node, "True");
                self.take_up(node);
            }
        }
    }

    /// A kubelet that is new, or back, looks at its pods.
    fn take_up(&mut self, node: &str) {
        for (pod, uid) in self.pods_on(node) {
            let Some(object) = self.pod(&pod, &uid) else { continue };
            if text(&object, "/metadata/deletionTimestamp").is_empty() {
                self.soon(100, 1500, Deed::Start(pod, uid));
            } else {
                self.soon(50, 700, Deed::Remove(pod, uid));
            }
        }
    }

    fn report(&self, node: &str, ready: &str) {
        self.tell(&format!("kubelet of {node}: Ready {ready}"));
        self.api.shared().with(|server, now| {
            let ready = json!([{"type": "Ready", "status": ready, "lastTransitionTime": seconds(now)}]);
            let body = json!({"status": {"conditions": ready}});
            let _ = server.by("kubelet", Verb::Patch, &node_key(node), Some("status"), body, now);
        });
    }

    // --- deeds ---

    fn carry_out(&mut self, deed: Deed) {
        match deed {
            Deed::Start(key, uid) => self.start(&key, &uid),
            Deed::Finish(key, uid) => self.finish(&key, &uid),
            Deed::Remove(key, uid) => self.remove(&key, &uid),
            Deed::Collect(key) => self.collect(&key),
            Deed::Purge(namespace) => self.purge(namespace),
            Deed::Forget(key, uid) => self.forget(&key, &uid),
            Deed::Claim(key, uid) => {
                if let Some(pod) = self.pod(&key, &uid) {
                    claims::make(&self.api, &key, &pod);
                }
            }
            Deed::Provision(key, uid) => {
                if let Some(line) = claims::provision(&self.api, &key, &uid) {
                    self.tell(&line);
                }
            }
        }
    }

    fn start(&mut self, key: &Key, uid: &str) {
        let Some(pod) = self.pod(key, uid) else { return };
        let node = text(&pod, "/spec/nodeName").to_owned();
        let gone = !self.has_node(&node);
        let going = !text(&pod, "/metadata/deletionTimestamp").is_empty();
        if gone || going || self.silent.contains(&node) || text(&pod, "/status/phase") != "Pending" {
            return;
        }
        // Volumes come first.
        if !claims::are_bound(&self.api, key, &pod) {
            self.soon(500, 1500, Deed::Start(key.clone(), uid.to_owned()));
            return;
        }
        let refusal = pod["metadata"]["annotations"]["kubelet.test/refuse"].as_str().map(str::to_owned);
        let refusal = refusal.or_else(|| self.has_no_room(&node, &pod).then(|| "OutOfnvidia.com/gpu".to_owned()));
        if let Some(reason) = refusal {
            self.tell(&format!("kubelet of {node} refuses {key}: {reason}"));
            let namespace = key.namespace.clone();
            self.write(key, |now| {
                json!({"phase": "Failed", "reason": reason, "message": format!("Pod was rejected: {reason}"), "startTime": seconds(now)})
            });
            self.api.shared().with(|server, _| server.count_pods(&namespace, -1));
            return;
        }
        self.write(key, |now| {
            let at = seconds(now);
            json!({
                "phase": "Running", "startTime": at,
                "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": at}],
                "containerStatuses": [{"name": "train", "image": "", "imageID": "", "ready": true, "started": true, "restartCount": 0,
                    "state": {"running": {"startedAt": at}}}],
            })
        });
        if let Some(runtime) = fake(&pod, "runtime") {
            self.plan(runtime, Deed::Finish(key.clone(), uid.to_owned()));
        }
    }

    fn has_no_room(&self, node: &str, pod: &Value) -> bool {
        let server = self.api.shared().lock();
        let Some(there) = server.store.get(&node_key(node)) else { return true };
        let most = gpus_of_node(there);
        let held: u64 = server
            .store
            .list("Pod", "")
            .filter(|(_, p)| text(p, "/spec/nodeName") == node && text(p, "/status/phase") == "Running")
            .map(|(_, p)| gpus_of_pod(p))
            .sum();
        held + gpus_of_pod(pod) > most
    }

    fn finish(&mut self, key: &Key, uid: &str) {
        let Some(pod) = self.pod(key, uid) else { return };
        let node = text(&pod, "/spec/nodeName");
        if self.silent.contains(node) || text(&pod, "/status/phase") != "Running" {
            return;
        }
        let exit = pod["metadata"]["annotations"]["kubelet.test/exit"].as_str().and_then(|e| e.parse::<i64>().ok());
        let exit = exit.unwrap_or(0);
        let (phase, reason) = if exit == 0 { ("Succeeded", "Completed") } else { ("Failed", "Error") };
        self.write(key, |now| {
            let at = seconds(now);
            json!({
                "phase": phase,
                "conditions": [{"type": "Ready", "status": "False", "lastTransitionTime": at}],
                "containerStatuses": [{"name": "train", "image": "", "imageID": "", "ready": false, "started": false, "restartCount": 0,
                    "state": {"terminated": {"exitCode": exit, "reason": reason, "startedAt": at, "finishedAt": at}}}],
            })
        });
        let namespace = key.namespace.clone();
        self.api.shared().with(|server, _| server.count_pods(&namespace, -1));
    }

    fn remove(&mut self, key: &Key, uid: &str) {
        let Some(pod) = self.pod(key, uid) else { return };
        if self.silent.contains(text(&pod, "/spec/nodeName")) {
            return;
        }
        self.delete_now(key, uid);
    }

    fn delete_now(&self, key: &Key, uid: &str) {
        let body = json!({"gracePeriodSeconds": 0, "preconditions": {"uid": uid}});
        self.api.shared().with(|server, now| {
            let _ = server.by("kubelet", Verb::Delete, key, None, body, now);
        });
    }

    /// The pod of a node that is gone.
    fn forget(&mut self, key: &Key, uid: &str) {
        let Some(pod) = self.pod(key, uid) else { return };
        if self.has_node(text(&pod, "/spec/nodeName")) {
            return;
        }
        let over = matches!(text(&pod, "/status/phase"), "Succeeded" | "Failed");
        if !over {
            self.write(key, |now| {
                json!({"phase": "Failed", "conditions": [
                    {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC", "lastTransitionTime": seconds(now)}]})
            });
            let namespace = key.namespace.clone();
            self.api.shared().with(|server, _| server.count_pods(&namespace, -1));
        }
        self.delete_now(key, uid);
    }

    /// Removes an object whose owners are all gone.
    fn collect(&mut self, key: &Key) {
        let orphan = {
            let server = self.api.shared().lock();
            let Some(object) = server.store.get(key) else { return };
            let owners = object["metadata"]["ownerReferences"].as_array().cloned().unwrap_or_default();
            let lives = |owner: &Value| {
                let Some(kind) = Kind::named(text(owner, "/kind")) else { return true };
                let at = Key::new(kind, &key.namespace, text(owner, "/name"));
                server.store.get(&at).is_some_and(|o| o["metadata"]["uid"] == owner["uid"])
            };
            let going = !text(object, "/metadata/deletionTimestamp").is_empty();
            !going && !owners.is_empty() && !owners.iter().any(lives)
        };
        if orphan {
            self.tell(&format!("garbage collector deletes {key}"));
            self.api.shared().with(|server, now| {
                let body = json!({"propagationPolicy": "Background"});
                let _ = server.by(
                    "system:serviceaccount:kube-system:generic-garbage-collector",
                    Verb::Delete,
                    key,
                    None,
                    body,
                    now,
                );
            });
        }
    }

    /// Empties a namespace on its way out, and removes it when it is empty.
    fn purge(&mut self, namespace: String) {
        let inside: Vec<Key> = {
            let server = self.api.shared().lock();
            server.store.all().filter(|(key, _)| key.namespace == namespace).map(|(key, _)| key.clone()).collect()
        };
        let key = Key { kind: "Namespace", namespace: String::new(), name: namespace.clone() };
        if inside.is_empty() {
            self.api.shared().with(|server, _| server.end(&key));
            return;
        }
        self.api.shared().with(|server, now| {
            for key in inside {
                let _ = server.by("namespace-controller", Verb::Delete, &key, None, json!({}), now);
            }
        });
        self.soon(1000, 3000, Deed::Purge(namespace));
    }

    // --- looking ---

    fn pod(&self, key: &Key, uid: &str) -> Option<Arc<Value>> {
        let server = self.api.shared().lock();
        server.store.get(key).filter(|p| text(p, "/metadata/uid") == uid).cloned()
    }

    fn has_node(&self, node: &str) -> bool {
        self.api.shared().lock().store.get(&node_key(node)).is_some()
    }

    fn pods_on(&self, node: &str) -> Vec<(Key, String)> {
        let server = self.api.shared().lock();
        let all = server.store.list("Pod", "").filter(|(_, p)| text(p, "/spec/nodeName") == node);
        all.map(|(key, p)| (key.clone(), text(p, "/metadata/uid").to_owned())).collect()
    }

    fn dependents(&self, uid: &str) -> Vec<Key> {
        let server = self.api.shared().lock();
        let owned = |object: &Value| {
            let owners = object["metadata"]["ownerReferences"].as_array();
            owners.into_iter().flatten().any(|o| text(o, "/uid") == uid)
        };
        server.store.all().filter(|(_, o)| owned(o)).map(|(key, _)| key.clone()).collect()
    }

    fn write(&self, key: &Key, status: impl FnOnce(k8s_openapi::jiff::Timestamp) -> Value) {
        self.api.shared().with(|server, now| {
            let body = json!({"status": status(now)});
            let _ = server.by("kubelet", Verb::Patch, key, Some("status"), body, now);
        });
    }

    fn tell(&self, line: &str) {
        let now = self.api.shared().now();
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner).tell(now, line);
    }
}

/// How a pod wants to be played.
fn fake(pod: &Value, what: &str) -> Option<Duration> {
    let text = pod["metadata"]["annotations"].get(format!("kubelet.test/{what}"))?.as_str()?;
    let seconds: f64 = text.strip_suffix('s')?.parse().ok()?;
    Some(Duration::from_secs_f64(seconds))
}

/// GPUs that a pod asks for.
#[must_use]
pub fn gpus_of_pod(pod: &Value) -> u64 {
    let containers = pod["spec"]["containers"].as_array();
    let gpus = |c: &Value| {
        let amount = &c["resources"]["limits"]["nvidia.com/gpu"];
        amount.as_u64().or_else(|| amount.as_str()?.parse().ok()).unwrap_or(0)
    };
    containers.into_iter().flatten().map(gpus).sum()
}

/// GPUs that a node offers.
#[must_use]
pub fn gpus_of_node(node: &Value) -> u64 {
    node["status"]["allocatable"]["nvidia.com/gpu"].as_str().and_then(|g| g.parse().ok()).unwrap_or(0)
}
