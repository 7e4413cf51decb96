//! The story of a world line by line, its hash, and the invariants I1 to I6 judged at every step. It knows the objects
//! and nothing of the controller.
//!
//! - I1: no gang below its floor for long: complete or gone.
//! - I2: no node oversubscribed by our pods, and none decided upon while a foreign pod visibly held it; no room given
//!   back while a pod is left on it.
//! - I3: no pod, Service or Berth without a live owner.
//! - I4: exactly one incarnation of a job, by one leader; a namesake is never touched.
//! - I5: a promise moves later only with a recorded cause.
//! - I6: the state comes to rest and stays: a quiet minute without a write.

use super::objects::node_key;
use super::reality::{gpus_of_node, gpus_of_pod};
use crate::fake_api::http::Audit as Auditor;
use crate::fake_api::verbs::text;
use crate::fake_api::{Call, Change, Fault, Key, Kind, Server, Store, What};
use k8s_openapi::jiff::Timestamp;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::sync::{Arc, Mutex, PoisonError};

/// A gang that is neither complete nor gone, a leak, an unexplained move may last this long after the last trouble:
/// longer than a lost node, an unaccepted pod, a late stage and the back-offs after them.
const PATIENCE: i64 = 300;
/// A watch is late by less than this when nothing troubles it.
const LAG: i64 = 5;

/// What is known of a Berth over time.
#[derive(Clone, Debug, Default)]
struct Track {
    /// When its spec was last decided.
    decided: i64,
    /// Since when it is on its way out.
    leaving: Option<i64>,
    /// Since when its gang is below its floor.
    below: Option<i64>,
    start: Option<Timestamp>,
    /// Moves to a later start that its status does not explain yet, and since when.
    unexplained: Vec<(Timestamp, Timestamp, i64)>,
}

/// The story, and what is wrong with it.
pub struct Ledger {
    origin: Timestamp,
    lines: Vec<String>,
    hash: u64,
    writes: u64,
    violations: Vec<String>,
    trouble: i64,
    late: BTreeSet<String>,
    berths: BTreeMap<String, Track>,
    leaks: BTreeMap<String, i64>,
    fenced: u64,
    verbs: BTreeMap<(String, &'static str), u64>,
    /// As the server counts them.
    misled: u64,
}

impl Ledger {
    pub(super) fn new(origin: Timestamp) -> Self {
        Self {
            origin,
            lines: Vec::new(),
            hash: 0xcbf2_9ce4_8422_2325,
            writes: 0,
            violations: Vec::new(),
            trouble: i64::MIN / 2,
            late: BTreeSet::new(),
            berths: BTreeMap::new(),
            leaks: BTreeMap::new(),
            fenced: 0,
            verbs: BTreeMap::new(),
            misled: 0,
        }
    }

    /// Writes of the controller so far, its Lease aside.
    #[must_use]
    pub fn writes(&self) -> u64 {
        self.writes
    }

    /// What is wrong, in order.
    #[must_use]
    pub fn violations(&self) -> &[String] {
        &self.violations
    }

    /// A number that differs when the story does.
    #[must_use]
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// The story as text.
    #[must_use]
    pub fn story(&self) -> String {
        self.lines.join("\n")
    }

    /// Calls of the controller by verb and kind.
    #[must_use]
    pub fn verbs(&self) -> &BTreeMap<(String, &'static str), u64> {
        &self.verbs
    }

    /// Calls refused by the fencing policy.
    #[must_use]
    pub fn fenced(&self) -> u64 {
        self.fenced
    }

    fn second(&self, now: Timestamp) -> i64 {
        now.as_second() - self.origin.as_second()
    }

    /// Adds a line.
    pub fn tell(&mut self, now: Timestamp, line: &str) {
        let ms = now.as_millisecond() - self.origin.as_millisecond();
        let line = format!("{:>5}.{:03}  {line}", ms / 1000, ms % 1000);
        for byte in line.bytes().chain([b'\n']) {
            self.hash = (self.hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        self.lines.push(line);
    }

    /// Something outside the calls troubles the world: what takes time may begin anew.
    pub fn disturbed(&mut self, now: Timestamp) {
        self.trouble = self.second(now);
    }

    /// Notes a violation.
    pub fn violate(&mut self, now: Timestamp, law: &str, what: &str) {
        let line = format!("VIOLATION {law}: {what}");
        if !self.violations.iter().any(|v| v.ends_with(&line)) {
            self.tell(now, &line);
            let at = self.lines.last().cloned().unwrap_or(line);
            self.violations.push(at);
        }
    }

    // --- at every change ---

    fn change(&mut self, change: &Change, store: &Store, now: Timestamp) {
        if let Some(line) = summary(change) {
            self.tell(now, &line);
        }
        self.fence(change, store, now);
        match (change.key.kind, change.what) {
            ("Berth", What::Deleted) => {
                self.berths.remove(text(&change.object, "/metadata/uid"));
            }
            ("Berth", _) => self.berth(change, store, now),
            ("Pod", What::Added) if Server::is_our_pod(&change.object) => self.pod_made(change, store, now),
            _ => {}
        }
    }

    /// What a leader decides counts only while it leads.
    fn fence(&mut self, change: &Change, store: &Store, now: Timestamp) {
        let decided = match (change.key.kind, change.what) {
            ("Pod", What::Added) => Server::is_our_pod(&change.object),
            ("Berth", What::Added | What::Modified) => {
                change.before.as_ref().is_none_or(|b| b["spec"] != change.object["spec"])
            }
            _ => false,
        };
        let lease = Key { kind: "Lease", namespace: crds::names::NAMESPACE.into(), name: crds::names::LEASE.into() };
        let epoch = store.get(&lease).and_then(|l| l["spec"]["leaseTransitions"].as_i64());
        let written = text(&change.object, "/metadata/annotations/berth.dev~1leader-epoch").parse::<i64>().ok();
        if decided && epoch.is_some() && written != epoch {
            let text = format!("{} is written in term {written:?}, but {epoch:?} leads", change.key);
            self.violate(now, "I4", &text);
        }
    }

    fn berth(&mut self, change: &Change, store: &Store, now: Timestamp) {
        let (at, uid) = (self.second(now), text(&change.object, "/metadata/uid").to_owned());
        let spec = &change.object["spec"];
        let before = change.before.as_ref().map(|b| &b["spec"]);
        let start = text(&change.object, "/spec/start").parse::<Timestamp>().ok();
        let track = self.berths.entry(uid.clone()).or_default();
        if before.is_none_or(|b| b["assignments"] != spec["assignments"] || b["state"] != spec["state"]) {
            track.decided = at;
        }
        if stands(&change.object) {
            track.leaving = None;
        } else {
            track.leaving.get_or_insert(at);
        }
        if text(&change.object, "/spec/state") == "Reserved" {
            if let (Some(from), Some(to)) = (track.start, start)
                && to > from
            {
                track.unexplained.push((from, to, at));
            }
            track.start = start;
        }
        let moved = change.object["status"]["moved"].as_array().cloned().unwrap_or_default();
        let explains = |to: Timestamp| {
            moved.iter().any(|m| {
                text(m, "/to").parse::<Timestamp>().is_ok_and(|t| t >= to)
                    && !text(m, "/cause").starts_with("PulledForward")
            })
        };
        track.unexplained.retain(|(_, to, _)| !explains(*to));
        let was = before.map_or("", |b| b["state"].as_str().unwrap_or_default());
        if text(&change.object, "/spec/state") == "Released" && was == "Committed" {
            let left = owned_live(store, &uid).filter(|p| !self.late.contains(text(p, "/metadata/uid"))).count();
            if left > 0 {
                self.violate(now, "I2", &format!("{} is given back while {left} of its pods are left", change.key));
            }
        }
    }

    fn pod_made(&mut self, change: &Change, store: &Store, now: Timestamp) {
        let (pod, at) = (&change.object, self.second(now));
        let owner = owner_uid(pod);
        let berth = store.list("Berth", &change.key.namespace).find(|(_, b)| text(b, "/metadata/uid") == owner);
        let in_force = berth.is_some_and(|(_, b)| stands(b));
        if !in_force {
            // A call that was late on its way lands after the decision was taken back: it must go again.
            if at - self.trouble > PATIENCE {
                self.violate(now, "I3", &format!("{} is made, but no Berth in force asks for it", change.key));
            }
            self.late.insert(text(pod, "/metadata/uid").to_owned());
            return;
        }
        self.one_incarnation(change, store, now);
        let decided = self.berths.get(owner).map_or(at, |t| t.decided);
        self.node_holds(text(pod, "/spec/nodeName"), decided, store, now);
    }

    fn one_incarnation(&mut self, change: &Change, store: &Store, now: Timestamp) {
        let job = text(&change.object, "/metadata/labels/berth.dev~1job");
        let others: BTreeSet<&str> = store
            .list("Pod", &change.key.namespace)
            .filter(|(_, p)| Server::is_our_pod(p) && text(p, "/metadata/labels/berth.dev~1job") == job && !is_over(p))
            .filter(|(_, p)| !self.late.contains(text(p, "/metadata/uid")))
            .map(|(_, p)| owner_uid(p))
            .collect();
        if others.len() > 1 {
            let text = format!("pods of {} incarnations of job {job} live at once, with {}", others.len(), change.key);
            self.violate(now, "I4", &text);
        }
    }

    fn node_holds(&mut self, node: &str, decided: i64, store: &Store, now: Timestamp) {
        let Some(there) = store.get(&node_key(node)) else { return };
        let most = gpus_of_node(there);
        let (mut ours, mut foreign) = (0, 0);
        for (_, pod) in store.list("Pod", "").filter(|(_, p)| text(p, "/spec/nodeName") == node && !is_over(p)) {
            if Server::is_our_pod(pod) {
                if !self.late.contains(text(pod, "/metadata/uid")) {
                    ours += gpus_of_pod(pod);
                }
                continue;
            }
            let made = text(pod, "/metadata/creationTimestamp").parse::<Timestamp>().map_or(0, |t| self.second(t));
            if made + LAG < decided && self.trouble < made {
                foreign += gpus_of_pod(pod);
            }
        }
        if ours > most {
            self.violate(now, "I2", &format!("our pods take {ours} of {most} GPUs of {node}"));
        } else if ours + foreign > most {
            let text = format!("{node} was chosen although others held {foreign} of {most} GPUs: ours take {ours}");
            self.violate(now, "I2", &text);
        }
    }

    // --- as time passes ---

    /// Judges what may last a while, but not for long.
    pub(super) fn tick(&mut self, store: &Store, now: Timestamp) {
        let at = self.second(now);
        let mut found = Vec::new();
        for (key, berth) in store.list("Berth", "") {
            let uid = text(berth, "/metadata/uid");
            let below = stands(berth) && living(store, uid) < floor(store, berth).unwrap_or(0);
            let trouble = self.trouble;
            let Some(track) = self.berths.get_mut(uid) else { continue };
            track.below = below.then(|| track.below.unwrap_or(at));
            let over = |since: Option<i64>| since.is_some_and(|s| at - s.max(trouble) > PATIENCE);
            if over(track.below) {
                found.push(("I1", format!("the gang of {key} is below its floor for {PATIENCE} s")));
            }
            if over(track.leaving) && owned_live(store, uid).next().is_some() {
                found.push(("I1", format!("{key} was given up {PATIENCE} s ago and pods of it are left")));
            }
            for (from, to, since) in &track.unexplained {
                if over(Some(*since)) {
                    found.push(("I5", format!("{key} moved from {from} to {to} without a cause")));
                }
            }
        }
        for leak in leaks(store) {
            let since = *self.leaks.entry(leak.clone()).or_insert(at);
            if at - since.max(self.trouble) > PATIENCE {
                found.push(("I3", leak));
            }
        }
        let now_leaking: BTreeSet<String> = leaks(store).into_iter().collect();
        self.leaks.retain(|leak, _| now_leaking.contains(leak));
        for (law, what) in found {
            self.violate(now, law, &what);
        }
    }

    /// Judges a world at rest: nothing may be half any more.
    pub(super) fn judge_rest(&mut self, store: &Store, now: Timestamp) {
        let mut found: Vec<(&str, String)> = leaks(store).into_iter().map(|l| ("I3", l)).collect();
        for (key, berth) in store.list("Berth", "") {
            let uid = text(berth, "/metadata/uid");
            let live = owned_live(store, uid).count();
            match text(berth, "/spec/state") {
                "Committed" if stands(berth) => {
                    let (there, wanted) = (living(store, uid), seats(berth));
                    if there < floor(store, berth).unwrap_or(wanted) || there > wanted {
                        found.push(("I1", format!("{key} rests with {there} of {wanted} pods")));
                    }
                }
                "Committed" => found.push(("I1", format!("{key} rests on its way out, with {live} pods"))),
                _ if live > 0 => found.push(("I3", format!("{key} holds nothing, but {live} pods of it live"))),
                _ => {}
            }
        }
        for (key, job) in store.list("TrainingJob", "") {
            if !text(job, "/metadata/deletionTimestamp").is_empty() {
                found.push(("I3", format!("{key} is deleted and rests")));
            }
        }
        let moved: Vec<String> =
            self.berths.values().flat_map(|t| &t.unexplained).map(|(a, b, _)| format!("{a} to {b}")).collect();
        found.extend(moved.into_iter().map(|m| ("I5", format!("a promise moved from {m} without a cause"))));
        for (law, what) in found {
            self.violate(now, law, &what);
        }
    }
}

/// Things without a live owner, in words.
fn leaks(store: &Store) -> Vec<String> {
    let mut found = Vec::new();
    let lives = |kind: &str, namespace: &str, uid: &str| {
        Kind::named(kind).is_some_and(|k| store.list(k.kind, namespace).any(|(_, o)| text(o, "/metadata/uid") == uid))
    };
    for kind in ["Pod", "Service", "ConfigMap", "Secret", "Berth"] {
        for (key, object) in store.list(kind, "") {
            let owners = object["metadata"]["ownerReferences"].as_array().cloned().unwrap_or_default();
            let orphan =
                !owners.is_empty() && !owners.iter().any(|o| lives(text(o, "/kind"), &key.namespace, text(o, "/uid")));
            if orphan {
                found.push(format!("{key} has no live owner"));
            }
        }
    }
    for (key, berth) in store.list("Berth", "") {
        let job = store.get(&Key {
            kind: "TrainingJob",
            namespace: key.namespace.clone(),
            name: text(berth, "/spec/job").into(),
        });
        let finished = |j: &Value| matches!(text(j, "/status/phase"), "Succeeded" | "Failed");
        let unwanted = job.is_none_or(|j| {
            finished(j) || j["spec"]["suspend"] == true || text(j, "/metadata/uid") != text(berth, "/spec/jobUid")
        });
        if unwanted && text(berth, "/spec/state") != "Released" {
            found.push(format!("{key} holds room or a promise for a job that wants none"));
        }
    }
    found
}

/// Whether a Berth is in force and not on its way out.
fn stands(berth: &Value) -> bool {
    text(berth, "/spec/state") == "Committed"
        && berth["spec"]["stopping"].is_null()
        && text(berth, "/metadata/deletionTimestamp").is_empty()
}

fn is_over(pod: &Value) -> bool {
    matches!(text(pod, "/status/phase"), "Succeeded" | "Failed")
}

fn owner_uid(pod: &Value) -> &str {
    text(pod, "/metadata/ownerReferences/0/uid")
}

fn owned_live<'a>(store: &'a Store, uid: &'a str) -> impl Iterator<Item = &'a Arc<Value>> {
    store.list("Pod", "").map(|(_, pod)| pod).filter(move |pod| owner_uid(pod) == uid && !is_over(pod))
}

/// Members that run, or ended well.
fn living(store: &Store, uid: &str) -> usize {
    let fine = |p: &Value| {
        text(p, "/status/phase") == "Succeeded" || !is_over(p) && text(p, "/metadata/deletionTimestamp").is_empty()
    };
    store.list("Pod", "").filter(|(_, p)| owner_uid(p) == uid && fine(p)).count()
}

/// Pods that a Berth asks for.
fn seats(berth: &Value) -> usize {
    let all = berth["spec"]["assignments"].as_array();
    let pods = |a: &Value| {
        let per_node = a["perNode"].as_u64().and_then(|n| usize::try_from(n).ok()).unwrap_or(1);
        a["nodes"].as_array().map_or(0, Vec::len) * per_node
    };
    all.into_iter().flatten().map(pods).sum()
}

/// The least pods that a Berth's job may run with.
fn floor(store: &Store, berth: &Value) -> Option<usize> {
    let namespace = text(berth, "/metadata/namespace").to_owned();
    let job = store.get(&Key { kind: "TrainingJob", namespace, name: text(berth, "/spec/job").into() })?;
    let roles = job["spec"]["roles"].as_array()?;
    let least = |r: &Value| r["minReplicas"].as_u64().or_else(|| r["replicas"].as_u64()).unwrap_or(1);
    usize::try_from(roles.iter().map(least).sum::<u64>()).ok()
}

/// A change in a line, if it says anything to a reader.
fn summary(change: &Change) -> Option<String> {
    let (object, key) = (&change.object, &change.key);
    let before = change.before.as_ref();
    let differs = |at: &str| before.is_none_or(|b| b.pointer(at) != object.pointer(at));
    match (key.kind, change.what) {
        ("Pod" | "Berth" | "TrainingJob" | "Node" | "Service", What::Deleted) => Some(format!("    {key} is gone")),
        ("Pod", What::Added) => Some(format!("    {key} on {}", text(object, "/spec/nodeName"))),
        ("Pod", _) => {
            let mut line = format!("    {key}");
            if differs("/status/phase") {
                let _ = write!(line, " {}", text(object, "/status/phase"));
            }
            if differs("/metadata/deletionTimestamp") {
                line += " is told to go";
            }
            (line.len() > key.to_string().len() + 4).then_some(line)
        }
        ("Berth", _) if differs("/spec") => {
            let cause = text(object, "/spec/stopping/cause");
            let nodes: Vec<String> = object["spec"]["assignments"]
                .as_array()
                .into_iter()
                .flatten()
                .map(|a| format!("{}: {}", text(a, "/role"), a["nodes"]))
                .collect();
            let start = text(object, "/spec/start");
            Some(format!("    {key} {} {start} {cause} {}", text(object, "/spec/state"), nodes.join(" ")))
        }
        ("TrainingJob", _) if differs("/status/phase") || differs("/status/ready") => {
            let (phase, ready) = (text(object, "/status/phase"), text(object, "/status/ready"));
            Some(format!("    {key} {phase} {ready} {}", text(object, "/status/pending/code")))
        }
        _ => None,
    }
}

/// Lets a ledger watch over a server.
pub(super) struct Audit(Arc<Mutex<Ledger>>);

impl Audit {
    pub(super) fn new(ledger: Arc<Mutex<Ledger>>) -> Self {
        Self(ledger)
    }
}

impl Auditor for Audit {
    fn changed(&mut self, change: &Change, server: &Server, now: Timestamp) {
        let mut ledger = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if std::mem::replace(&mut ledger.misled, server.misled) < server.misled {
            let (kind, name) = (change.key.kind, &change.key.name);
            ledger.violate(now, "I4", &format!("{kind} {name} was told the status of an earlier one of its name"));
        }
        ledger.change(change, &server.store, now);
    }

    fn called(&mut self, line: &str, call: &Call, fault: Option<Fault>, code: u16, now: Timestamp) {
        if call.kind.kind == "Lease" {
            return;
        }
        let mut ledger = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // The recorder names events by the machine's clock: told by what they say.
        let subject = match call.kind.kind {
            "Event" => format!("Event {} of {}", text(&call.body, "/reason"), text(&call.body, "/regarding/name")),
            _ => call.subject(),
        };
        let fault_name = fault.map(|f| format!("  *** {}", f.name())).unwrap_or_default();
        let said = match call.sub.as_deref() {
            Some("status") => format!("  {}", call.body["status"].to_string().chars().take(400).collect::<String>()),
            _ => String::new(),
        };
        let dry = if call.is_dry() { " (dry run)" } else { "" };
        ledger.tell(now, &format!("{line}: {} {subject}{dry} -> {code}{fault_name}{said}", call.verb.name()));
        ledger.writes += u64::from(call.is_ours() && call.verb.writes());
        if call.is_ours() && call.verb == crate::fake_api::Verb::Delete && call.body["preconditions"]["uid"].is_null() {
            ledger.violate(now, "I4", &format!("{subject} is deleted by name alone: a namesake could be hit"));
        }
        *ledger.verbs.entry((format!("{}{dry}", call.verb.name()), call.kind.kind)).or_insert(0) += 1;
        if fault.is_some() {
            ledger.trouble = ledger.second(now);
        }
    }
}
