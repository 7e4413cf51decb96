//! Every rule of every CRD, once passing and once failing, with the message a user reads.
//!
//! With `BERTH_KUBECTL` set to a kubectl command line that may write (`kubectl --kubeconfig F`), every case is also
//! judged by that API server, which must have the CRDs; `hack/check-crds-on-server` does both.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)]
// the lints are for code outside tests

// A case that cannot be judged must stop the test; clippy sees tests only in functions marked so.

mod server;

use std::collections::BTreeSet;

use crds::{Berth, Queue, Topology, TrainingJob, cel::Rules};
use kube::CustomResourceExt;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

const JOB: &str = r#"
apiVersion: berth.dev/v1alpha1
kind: TrainingJob
metadata: {name: llama, namespace: team-a}
spec:
  queue: team-a
  priorityClassName: high
  maxRuntime: 8h
  expectedRuntime: 6h
  topology: {required: block, preferred: rack, patience: 10m}
  roles:
  - {name: launcher, replicas: 1, template: &t {spec: {containers: [{name: main, image: train}]}}}
  - {name: worker, replicas: 16, minReplicas: 12, slice: {size: 4, within: nvlink}, dependsOn: [launcher], template: *t}
  checkpoint: {every: 30m, gracePeriod: 60s}
  failurePolicy: {maxRestarts: 3, rules: [{exitCodes: [42], action: Fail}]}
  successPolicy: {roles: [launcher]}
"#;

const QUEUE: &str = r#"
apiVersion: berth.dev/v1alpha1
kind: Queue
metadata: {name: team-a}
spec:
  parent: research
  guarantee: {nvidia.com/gpu: "64", cpu: 1500m}
  limit: {nvidia.com/gpu: 128, cpu: "2"}
  maxRunningJobs: 50
  maxPendingJobs: 1000
  defaults: {maxRuntime: 24h, priorityClassName: normal}
  maxRuntimeLimit: 72h
  allowedPriorityClasses: [normal, high]
"#;

const TOPOLOGY: &str = r#"
apiVersion: berth.dev/v1alpha1
kind: Topology
metadata: {name: default}
spec:
  levels:
  - {name: block, labels: [fabric.topograph.run/tier-1, network.topology.nvidia.com/spine], gigabytesPerSecond: 25}
  - {name: rack, labels: [fabric.topograph.run/tier-0], gigabytesPerSecond: 50.5, maxNodes: 18}
"#;

const BERTH: &str = r#"
apiVersion: berth.dev/v1alpha1
kind: Berth
metadata: {name: llama-1, namespace: team-a}
spec: {job: llama, jobUid: u-1, incarnation: 1, queue: team-a, state: Committed, start: "2026-01-01T00:00:00Z", end: "2026-01-01T01:00:00Z"}
"#;

/// Set the value at `pointer`; null removes it.
fn set(object: &mut Value, pointer: &str, value: Value) {
    let (parent, key) = pointer.rsplit_once('/').expect("a pointer below the root");
    let key = &*key.replace("~1", "/");
    match object.pointer_mut(parent).unwrap_or_else(|| panic!("{parent} is in the manifest")) {
        Value::Object(fields) if value.is_null() => drop(fields.remove(key)),
        Value::Object(fields) => drop(fields.insert(key.to_owned(), value)),
        Value::Array(items) if key == "-" => items.push(value),
        Value::Array(items) => items[key.parse::<usize>().expect("an index")] = value,
        other => panic!("{pointer}: cannot set a field of {other}"),
    }
}

fn with(manifest: &str, changes: &[(&str, Value)]) -> Value {
    let mut object: Value = serde_saphyr::from_str(manifest).expect("a manifest");
    changes.iter().for_each(|(pointer, value)| set(&mut object, pointer, value.clone()));
    object
}

/// A kind under test, and which of its rules have been seen to fail.
struct Kind<K> {
    rules: Rules,
    manifest: &'static str,
    failed: BTreeSet<String>,
    kind: std::marker::PhantomData<K>,
}

impl<K: CustomResourceExt + Serialize + DeserializeOwned> Kind<K> {
    fn new(manifest: &'static str) -> Self {
        let kind = Self { rules: Rules::of::<K>(), manifest, failed: BTreeSet::new(), kind: std::marker::PhantomData };
        kind.accepts(&[]);
        kind
    }

    fn typed(object: Value) -> K {
        serde_json::from_value(object).expect("the types read it")
    }

    fn accepts(&self, changes: &[(&str, Value)]) {
        let object = with(self.manifest, changes);
        let broken = self.rules.broken_values(&object, None);
        assert!(broken.is_empty(), "{changes:?} is refused: {broken:#?}");
        // The types must not lose what the rules look at.
        let broken = self.rules.broken(&Self::typed(object), None);
        assert!(broken.is_empty(), "{changes:?}, through the types, is refused: {broken:#?}");
        server::accepts(&with(self.manifest, changes));
    }

    /// Exactly one rule fails, and says `message`.
    fn refuses(&mut self, changes: &[(&str, Value)], message: &str) {
        self.judge(changes, None, message);
    }

    fn judge(&mut self, changes: &[(&str, Value)], old: Option<&Value>, message: &str) {
        let object = with(self.manifest, changes);
        let broken = self.rules.broken_values(&object, old);
        let [one] = broken.as_slice() else { panic!("{changes:?} breaks {} rules: {broken:#?}", broken.len()) };
        assert_eq!(one.message, message);
        server::refuses(&object, old, message);
        self.failed.insert(one.rule.clone());
    }

    /// Every rule of the CRD was seen to fail.
    fn finish(self) {
        let unseen: Vec<_> = self.rules.expressions().difference(&self.failed).collect();
        assert!(unseen.is_empty(), "no case breaks {unseen:#?}");
    }
}

const WORKER: &str = "/spec/roles/1";

fn worker(field: &str) -> String {
    format!("{WORKER}/{field}")
}

#[test]
fn every_rule_of_a_training_job() {
    let mut jobs = Kind::<TrainingJob>::new(JOB);
    job_names(&mut jobs);
    job_roles(&mut jobs);
    job_policies(&mut jobs);
    job_templates(&mut jobs);
    job_changes(&mut jobs);
    jobs.finish();
}

fn job_names(jobs: &mut Kind<TrainingJob>) {
    jobs.refuses(
        &[("/metadata/name", json!("7b"))],
        r#"metadata.name is "7b": it also names a Service, so it must be at most 63 lower-case letters, digits and dashes, begin with a letter and not end with a dash"#,
    );
    let name = "a".repeat(52);
    jobs.accepts(&[("/metadata/name", json!("a".repeat(51))), (&worker("replicas"), json!(1200))]);
    jobs.refuses(
        &[("/metadata/name", json!(name)), (&worker("replicas"), json!(1200))],
        &format!(
            r#"metadata.name is "{name}": the host name of the last pod of role "worker" (job-role-index) would be over 63 characters: shorten the name of the job or of the role"#
        ),
    );
}

fn job_roles(jobs: &mut Kind<TrainingJob>) {
    jobs.refuses(
        &[(&worker("name"), json!("launcher")), (&worker("dependsOn"), json!(null))],
        r#"spec.roles: the name "launcher" is used twice: give each role its own"#,
    );
    jobs.accepts(&[(&worker("replicas"), json!(19_996))]);
    jobs.refuses(
        &[(&worker("replicas"), json!(20_000))],
        "spec.roles: replicas are together 20001: one job may have at most 20000 pods; use fewer",
    );
    jobs.refuses(
        &[(&worker("dependsOn"), json!(["lancher"]))],
        r#"spec.roles: dependsOn of role "worker" names a role that does not exist: name one of the job's roles"#,
    );
    jobs.refuses(
        &[("/spec/roles/0/dependsOn", json!(["worker"]))],
        "spec.roles: dependsOn goes in a circle among the roles [\"launcher\", \"worker\"]: remove one of the dependencies",
    );
    jobs.refuses(
        &[("/spec/roles/0/replicas", json!(0))],
        r#"replicas of role "launcher" is 0: it must be at least 1; remove the role if it has no pods"#,
    );
    jobs.refuses(
        &[(&worker("minReplicas"), json!(0))],
        r#"minReplicas of role "worker" is 0: it must be at least 1 and at most replicas, which is 16"#,
    );
    jobs.refuses(
        &[(&worker("minReplicas"), json!(20))],
        r#"minReplicas of role "worker" is 20: it must be at most replicas, which is 16"#,
    );
    jobs.refuses(
        &[(&worker("replicas"), json!(18))],
        r#"slice.size of role "worker" is 4: it must be at least 1 and divide replicas, which is 18"#,
    );
    jobs.refuses(
        &[(&worker("minReplicas"), json!(10))],
        r#"slice.size of role "worker" is 4: it must be at least 1 and divide minReplicas, which is 10"#,
    );
}

/// Sixteen roles, each waiting for the one before: the longest chain there can be is no cycle, and closing it is one.
#[test]
fn a_chain_of_sixteen_roles_is_no_cycle_until_it_is_closed() {
    let rules = Rules::of::<TrainingJob>();
    let template = json!({"spec": {"containers": [{"name": "main", "image": "train"}]}});
    // Listed from the last to the first, so that nothing but the dependencies gives the order.
    let mut roles: Vec<_> = (1..16)
        .rev()
        .map(|i| json!({"name": format!("r{i}"), "replicas": 1, "dependsOn": [format!("r{}", i - 1)], "template": template}))
        .collect();
    roles.push(json!({"name": "r0", "replicas": 1, "template": template}));
    let job = |roles: &Vec<Value>| with(JOB, &[("/spec/roles", json!(roles)), ("/spec/successPolicy", json!(null))]);
    assert_eq!(rules.broken_values(&job(&roles), None), []);
    roles[15]["dependsOn"] = json!(["r15"]);
    let broken = rules.broken_values(&job(&roles), None);
    assert_eq!(broken.len(), 1, "{broken:#?}");
    assert!(broken[0].message.starts_with("spec.roles: dependsOn goes in a circle"), "{broken:#?}");
}

fn job_policies(jobs: &mut Kind<TrainingJob>) {
    jobs.refuses(
        &[("/spec/successPolicy/roles", json!(["chief"]))],
        r#"spec.successPolicy.roles: "chief" is no role of the job: name one of ["launcher", "worker"]"#,
    );
    jobs.accepts(&[("/spec/failurePolicy/rules/-", json!({"roles": ["worker"], "action": "Ignore"}))]);
    jobs.refuses(
        &[("/spec/failurePolicy/rules/0/roles", json!(["chief"]))],
        "spec.failurePolicy.rules: a rule names a role the job does not have: name one of [\"launcher\", \"worker\"]",
    );
    jobs.refuses(
        &[("/spec/failurePolicy/rules/0/exitCodes", json!([]))],
        "failurePolicy.rules: a rule names neither exitCodes nor roles: name at least one, or use onPodFailure for all failures",
    );
    jobs.refuses(
        &[("/spec/failurePolicy/rules/0/exitCodes", json!([1, 0]))],
        "failurePolicy.rules: exit code 0 is no failure: exit codes are from 1 to 255",
    );
    jobs.refuses(
        &[("/spec/failurePolicy/maxRestarts", json!(-1))],
        "failurePolicy.maxRestarts is -1: it must be 0 or more",
    );
    jobs.refuses(
        &[("/spec/maxRuntime", json!("0s")), ("/spec/expectedRuntime", json!(null))],
        "spec.maxRuntime is 0s: it must be longer than 0s; leave it out for no limit",
    );
    jobs.refuses(
        &[("/spec/expectedRuntime", json!("0s"))],
        "spec.expectedRuntime is 0s: it must be longer than 0s; leave it out for no limit",
    );
    jobs.accepts(&[("/spec/expectedRuntime", json!("8h"))]);
    jobs.refuses(
        &[("/spec/expectedRuntime", json!("8h1s"))],
        "spec.expectedRuntime is 8h1s: it must be at most spec.maxRuntime, which is 8h",
    );
    jobs.refuses(
        &[("/spec/topology/preferred", json!("block"))],
        r#"topology.preferred is "block", the same as topology.required: name a narrower level, or leave it out"#,
    );
    jobs.refuses(
        &[("/spec/rendezvous", json!({"port": 70_000}))],
        "rendezvous.port is 70000: it must be from 1 to 65535",
    );
    jobs.refuses(
        &[("/spec/checkpoint/every", json!("0s"))],
        "checkpoint.every is 0s: it must be longer than 0s; leave it out if work is not saved",
    );
}

fn job_templates(jobs: &mut Kind<TrainingJob>) {
    let pod = |field: &str| worker(&format!("template/spec/{field}"));
    jobs.refuses(&[(&pod("containers"), json!([]))], "template.spec.containers is empty: name at least one container");
    jobs.accepts(&[(&pod("restartPolicy"), json!("OnFailure"))]);
    jobs.refuses(
        &[(&pod("restartPolicy"), json!("Always"))],
        "template.spec.restartPolicy is Always: it must be Never or OnFailure, for a job ends",
    );
    jobs.refuses(
        &[(&pod("nodeName"), json!("n1"))],
        r#"template.spec.nodeName is "n1": Berth chooses the nodes; remove it, and use nodeSelector or affinity.nodeAffinity to restrict the choice"#,
    );
    jobs.accepts(&[(&pod("schedulerName"), json!("berth"))]);
    jobs.refuses(
        &[(&pod("schedulerName"), json!("volcano"))],
        r#"template.spec.schedulerName is "volcano": pods of a TrainingJob are created bound to the nodes Berth chose; remove it"#,
    );
    jobs.refuses(
        &[(&pod("schedulingGates"), json!([{"name": "g"}]))],
        "template.spec.schedulingGates is set: a pod that is created bound cannot be gated; remove it, and use suspend: true to hold the job",
    );
    jobs.refuses(
        &[(&pod("resourceClaims"), json!([{"name": "c"}]))],
        "template.spec.resourceClaims is set: claims of dynamic resources are not part of v1alpha1; remove it, and ask for devices in resources.limits",
    );
    jobs.refuses(
        &[(&pod("topologySpreadConstraints"), json!([{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}]))],
        "template.spec.topologySpreadConstraints is set: nobody looks at it when a pod is created bound; remove it, and use topology.required, topology.preferred or a slice",
    );
    jobs.accepts(&[(&pod("affinity"), json!({"nodeAffinity": {}}))]);
    jobs.refuses(
        &[(&pod("affinity"), json!({"podAffinity": {}}))],
        "template.spec.affinity.podAffinity is set: nobody looks at it when a pod is created bound; remove it, and use topology.required or a slice to keep pods together",
    );
    jobs.refuses(
        &[(&pod("affinity"), json!({"podAntiAffinity": {}}))],
        "template.spec.affinity.podAntiAffinity is set: nobody looks at it when a pod is created bound; remove it, and request whole nodes to keep pods apart",
    );
    jobs.refuses(
        &[(&pod("subdomain"), json!("x"))],
        "template.spec.hostname or subdomain is set: every pod gets job-role-index and the job's Service; remove both",
    );
    jobs.refuses(
        &[(&pod("priority"), json!(7))],
        "template.spec.priority is 7: pods have the job's priority; remove it, and set spec.priorityClassName of the job",
    );
    jobs.accepts(&[(&pod("priorityClassName"), json!("high"))]);
    jobs.refuses(
        &[(&pod("priorityClassName"), json!("low"))],
        r#"spec.roles: template.spec.priorityClassName of role "worker" differs from spec.priorityClassName: pods have the job's priority; remove it from the template"#,
    );
    jobs.accepts(&[(&pod("terminationGracePeriodSeconds"), json!(60))]);
    jobs.refuses(
        &[(&pod("terminationGracePeriodSeconds"), json!(30))],
        r#"spec.checkpoint.gracePeriod is 60s, but terminationGracePeriodSeconds in the template of role "worker" differs: set only one of the two"#,
    );
    jobs.accepts(&[(&worker("template/metadata"), json!({"labels": {"team": "a"}, "annotations": {"a.b/c": "d"}}))]);
    jobs.refuses(
        &[(&worker("template/metadata"), json!({"labels": {"berth.dev/rank": "0"}}))],
        r#"template.metadata.labels has "berth.dev/rank": berth.dev/ is set by Berth alone; remove it"#,
    );
    jobs.refuses(
        &[(&worker("template/metadata"), json!({"annotations": {"berth.dev/leader-epoch": "9"}}))],
        r#"template.metadata.annotations has "berth.dev/leader-epoch": berth.dev/ is set by Berth alone; remove it"#,
    );
}

fn job_changes(jobs: &mut Kind<TrainingJob>) {
    let old = |phase: &str| with(JOB, &[("/status", json!({"phase": phase}))]);
    let held = "while the job holds nodes: set suspend: true first, or submit a new job";
    for (field, value) in [
        ("queue", json!("team-b")),
        ("preemptible", json!(false)),
        ("topology/required", json!("zone")),
        ("topology/preferred", json!(null)),
        ("communication", json!("Pipeline")),
        ("rendezvous", json!({"kind": "None"})),
        ("checkpoint", json!({"every": "1h"})),
        ("successPolicy", json!(null)),
    ] {
        let pointer = format!("/spec/{field}");
        let field = field.replace('/', ".");
        jobs.judge(&[(&pointer, value.clone())], Some(&old("Running")), &format!("spec.{field} cannot change {held}"));
        let waiting = jobs.rules.broken_values(&with(JOB, &[(&pointer, value)]), Some(&old("Pending")));
        assert_eq!(waiting, [], "a waiting job may change spec.{field}");
    }
    let roles = format!("spec.roles: only replicas and minReplicas may change {held}");
    jobs.judge(&[(&worker("slice/size"), json!(2))], Some(&old("Starting")), &roles);
    jobs.judge(&[(&worker("dependsOn"), json!(null))], Some(&old("Running")), &roles);
    let free = [
        (&*worker("replicas"), json!(20)),
        (&*worker("minReplicas"), json!(8)),
        ("/spec/maxRuntime", json!("9h")),
        ("/spec/expectedRuntime", json!("1h")),
        ("/spec/suspend", json!(true)),
        ("/spec/priorityClassName", json!("low")),
        ("/spec/topology/patience", json!("0s")),
        ("/spec/ttlAfterFinished", json!("1h")),
        ("/spec/failurePolicy", json!({"onPodFailure": "Fail"})),
    ];
    assert_eq!(jobs.rules.broken_values(&with(JOB, &free), Some(&old("Running"))), []);
}

#[test]
fn every_rule_of_a_queue() {
    let mut queues = Kind::<Queue>::new(QUEUE);
    queues.refuses(
        &[("/spec/parent", json!("team-a"))],
        r#"spec.parent is "team-a", the queue itself: name another queue, or leave it out for a child of the root"#,
    );
    queues.refuses(&[("/spec/weight", json!(0))], "spec.weight is 0: it must be from 1 to 1000000");
    for (guarantee, limit) in [(json!("129"), json!(128)), (json!(129), json!("128")), (json!("1k"), json!("999"))] {
        queues.refuses(
            &[("/spec/guarantee/nvidia.com~1gpu", guarantee), ("/spec/limit/nvidia.com~1gpu", limit)],
            "spec.guarantee of nvidia.com/gpu is above spec.limit: lower the guarantee, or raise the limit",
        );
    }
    queues.refuses(
        &[("/spec/maxRunningJobs", json!(-1))],
        "spec.maxRunningJobs is -1: it must be 0 or more; leave it out for no limit",
    );
    queues.refuses(
        &[("/spec/maxPendingJobs", json!(-1))],
        "spec.maxPendingJobs is -1: it must be 0 or more; leave it out for no limit",
    );
    queues.refuses(
        &[("/spec/maxRuntimeLimit", json!("0s")), ("/spec/defaults/maxRuntime", json!(null))],
        "spec.maxRuntimeLimit is 0s: it must be longer than 0s; leave it out for no limit",
    );
    queues.refuses(
        &[("/spec/defaults/maxRuntime", json!("73h"))],
        "spec.defaults.maxRuntime is 73h: it must be at most spec.maxRuntimeLimit, which is 72h",
    );
    queues.refuses(
        &[("/spec/defaults/priorityClassName", json!("urgent"))],
        r#"spec.defaults.priorityClassName is "urgent": it must be one of spec.allowedPriorityClasses, which are normal, high"#,
    );
    queues.refuses(
        &[("/spec/backfill", json!({"depth": 0}))],
        "backfill.depth is 0: it must be from 1 to 1000; use mode: None for no reservations",
    );
    queues.finish();
}

#[test]
fn every_rule_of_a_topology() {
    let mut topologies = Kind::<Topology>::new(TOPOLOGY);
    topologies.accepts(&[("/spec/levels", json!(null)), ("/spec/preset", json!("Topograph"))]);
    topologies.refuses(&[("/spec/levels", json!([]))], "spec.levels is empty: name at least one level, or a preset");
    topologies.refuses(
        &[("/spec/preset", json!("Aws"))],
        "spec.preset is Aws and spec.levels is given too: keep one of the two",
    );
    topologies.refuses(
        &[("/spec/levels/1/name", json!("block"))],
        r#"spec.levels: the name "block" is used twice: give each level its own"#,
    );
    topologies.refuses(
        &[("/spec/levels/1/name", json!("node"))],
        r#"spec.levels: the name "node" is reserved for the implicit narrowest level: choose another"#,
    );
    topologies.refuses(
        &[("/spec/levels/1/labels/0", json!("fabric.topograph.run/tier-1"))],
        r#"spec.levels: a label of level "block" is used twice: a label can name one level only"#,
    );
    topologies.refuses(
        &[("/spec/levels/1/gigabytesPerSecond", json!(0.0))],
        r#"gigabytesPerSecond of level "rack" is 0: it must be above 0; leave it out if unknown"#,
    );
    topologies.refuses(
        &[("/spec/levels/1/maxNodes", json!(0))],
        r#"maxNodes of level "rack" is 0: it must be at least 1; leave it out if unknown"#,
    );
    topologies.refuses(
        &[("/spec/drift", json!({"holdAbovePercent": 101}))],
        "drift.holdAbovePercent is 101: it must be from 1 to 100",
    );
    topologies
        .refuses(&[("/spec/drift", json!({"flapsPerHour": -1}))], "drift.flapsPerHour is -1: it must be 0 or more");
    topologies.finish();
}

#[test]
fn every_rule_of_a_berth() {
    let mut berths = Kind::<Berth>::new(BERTH);
    let old = |state: &str| with(BERTH, &[("/spec/state", json!(state))]);
    for (field, value) in [("job", json!("other")), ("jobUid", json!("u-2")), ("incarnation", json!(2))] {
        berths.judge(
            &[(&format!("/spec/{field}"), value)],
            Some(&old("Committed")),
            &format!("spec.{field} cannot change: a Berth belongs to one incarnation of one job"),
        );
    }
    berths.judge(
        &[("/spec/state", json!("Committed"))],
        Some(&old("Released")),
        "spec.state is Committed, but the Berth was Released: make a new one",
    );
    berths.judge(
        &[("/spec/state", json!("Reserved"))],
        Some(&old("Committed")),
        "spec.state is Reserved, but the Berth was Committed: release it first",
    );
    berths.refuses(
        &[("/spec/end", json!("2025-01-01T00:00:00Z"))],
        "spec.end is before spec.start: a window ends after it begins",
    );
    assert_eq!(berths.rules.broken_values(&old("Committed"), Some(&old("Reserved"))), []);
    berths.finish();
}
