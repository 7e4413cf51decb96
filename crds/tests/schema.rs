//! The CRDs that are checked in are the ones the types make, small enough for a client-side `kubectl apply`, structural,
//! and read as users expect.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)] // the lints are for code outside tests

use std::{fs, path::PathBuf};

use crds::{Queue, Topology, TrainingJob, generated};
use serde_json::{Value, json};

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..")
}

#[test]
fn generated_files_are_current() {
    for (path, text) in generated::files() {
        let found = fs::read_to_string(root().join(&path)).unwrap_or_default();
        assert!(found == text, "{path} is not what the types make: run `make crds`");
    }
}

/// `kubectl apply` keeps the whole object in an annotation, and annotations end at 256 KiB.
#[test]
fn every_crd_fits_the_annotation_of_a_client_side_apply() {
    for crd in generated::crds() {
        let bytes = serde_json::to_string(&crd).expect("JSON").len();
        assert!(bytes < 256 * 1024, "{} has {bytes} bytes", crd.spec.names.kind);
    }
}

#[test]
fn names_columns_and_short_names_are_those_users_know() {
    let columns = |i: usize| {
        let crd = &generated::crds()[i];
        let names = &crd.spec.names;
        let columns: Vec<_> =
            crd.spec.versions[0].additional_printer_columns.iter().flatten().map(|c| c.name.to_uppercase()).collect();
        format!(
            "{} {} {:?} {}",
            names.plural,
            names.short_names.iter().flatten().next().expect("one"),
            names.categories,
            columns.join(" ")
        )
    };
    let berth = r#"Some(["berth-all"])"#;
    assert_eq!(columns(0), format!("trainingjobs tj {berth} PHASE READY QUEUE PRIORITY LEVEL DOMAIN ETA AGE"));
    assert_eq!(columns(1), format!("queues bq {berth} PARENT STATE WEIGHT GPUS PENDING RUNNING SHARE AGE"));
    assert_eq!(columns(2), format!("topologies btopo {berth} LEVELS NODES UNKNOWN SUSPECT READY EPOCH AGE"));
    assert_eq!(columns(3), format!("berths berth {berth} JOB STATE START END NODES DOMAIN AGE"));
}

/// Nothing is nullable below the status, so that an explicit null means "absent" for defaults and rules alike.
#[test]
fn no_field_is_nullable() {
    fn nullable(value: &Value, path: &str, found: &mut Vec<String>) {
        match value {
            Value::Object(fields) => {
                if fields.get("nullable") == Some(&json!(true)) {
                    found.push(path.to_owned());
                }
                fields.iter().for_each(|(name, field)| nullable(field, &format!("{path}/{name}"), found));
            }
            Value::Array(items) => items.iter().for_each(|item| nullable(item, path, found)),
            _ => {}
        }
    }
    for crd in generated::crds() {
        let mut found = Vec::new();
        nullable(&serde_json::to_value(&crd.spec.versions[0].schema).expect("JSON"), "", &mut found);
        // The derive makes the status itself an Option; nobody writes null there.
        assert_eq!(found, ["/openAPIV3Schema/properties/status"], "{}", crd.spec.names.kind);
    }
}

/// What the schema defaults, the types default too: an object that never met a server reads the same.
#[test]
fn the_types_have_the_defaults_of_the_schema() {
    let spec = |i: usize| {
        let schema =
            generated::crds().swap_remove(i).spec.versions.swap_remove(0).schema.and_then(|s| s.open_api_v3_schema);
        serde_json::to_value(schema).expect("JSON")["properties"]["spec"].clone()
    };
    let defaults = |schema: &Value| -> Value {
        let fields = schema["properties"].as_object().expect("fields");
        fields
            .iter()
            .filter_map(|(name, f)| Some((name.clone(), f.get("default")?.clone())))
            .collect::<serde_json::Map<_, _>>()
            .into()
    };
    let job: TrainingJob = serde_json::from_value(json!({"metadata": {}, "spec": {"roles": []}})).expect("a job");
    let mut job = serde_json::to_value(job.spec).expect("JSON");
    job.as_object_mut().expect("fields").remove("roles");
    assert_eq!(job, defaults(&spec(0)));
    let queue: Queue = serde_json::from_value(json!({"metadata": {}, "spec": {}})).expect("a queue");
    assert_eq!(serde_json::to_value(queue.spec).expect("JSON"), defaults(&spec(1)));
    let topology: Topology = serde_json::from_value(json!({"metadata": {}, "spec": {}})).expect("a topology");
    assert_eq!(serde_json::to_value(topology.spec).expect("JSON"), defaults(&spec(2)));
}

#[test]
fn the_manifest_of_the_reference_survives_the_types() {
    let text = r#"
apiVersion: berth.dev/v1alpha1
kind: TrainingJob
metadata: {name: llama-70b, namespace: team-a}
spec:
  queue: team-a
  priorityClassName: high
  preemptible: true
  suspend: false
  maxRuntime: 8h
  expectedRuntime: 6h
  topology: {required: block, preferred: rack, patience: 10m}
  communication: AllReduce
  rendezvous: {kind: Torch, port: 29500}
  roles:
  - name: worker
    replicas: 16
    minReplicas: 12
    slice: {size: 4, within: nvlink}
    dependsOn: [launcher]
    template: {spec: {restartPolicy: Never, containers: [{name: main, image: train, resources: {limits: {nvidia.com/gpu: "8"}}}]}}
  checkpoint: {every: 30m, gracePeriod: 1m}
  failurePolicy: {maxRestarts: 3, onPodFailure: RestartGang, rules: [{exitCodes: [42], action: Fail}], readyWithin: 30m}
  successPolicy: {roles: [launcher]}
  ttlAfterFinished: 24h
"#;
    let raw: Value = serde_saphyr::from_str(text).expect("YAML");
    let job: TrainingJob = serde_json::from_value(raw.clone()).expect("a job");
    assert_eq!(serde_json::to_value(&job).expect("JSON"), raw);
    assert_eq!((job.spec.roles[0].floor(), job.spec.roles[0].slice_size(), job.spec.floor_pods()), (12, 4, 12));
    assert!(job.spec.roles[0].is_elastic());
}
