//! Every rule by one manifest that breaks it, and the message its user reads.
//!
//! The first document of a file is the request: the second, of the same kind and name, is the object as it is; others
//! are in the cluster already, which is otherwise that of world.yaml. Files whose name begins with `delete-` ask for a
//! deletion, those with `ok-` must be accepted, all others refused.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)] // the lints are for code outside tests

use admission::{
    JobChange, Verdict, World, validate_queue, validate_queue_delete, validate_topology, validate_topology_delete,
    validate_training_job,
};
use anyhow::{Context, Result, bail};
use crds::{Queue, Topology, TrainingJob};
use k8s_openapi::api::core::v1::{Namespace, Node};
use k8s_openapi::api::scheduling::v1::PriorityClass;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

fn documents(text: &str) -> Result<Vec<Value>> {
    Ok(serde_saphyr::from_multiple(text)?)
}

fn read<K: DeserializeOwned>(value: &Value) -> Result<K> {
    serde_json::from_value(value.clone()).with_context(|| format!("in {value}"))
}

fn add(world: &mut World, value: &Value) -> Result<()> {
    match value["kind"].as_str().unwrap_or_default() {
        "Queue" => world.set_queue(read::<Queue>(value)?),
        "Topology" => world.set_topology(read::<Topology>(value)?),
        "Node" => world.set_node(read::<Node>(value)?),
        "PriorityClass" => world.set_priority_class(read::<PriorityClass>(value)?),
        "Namespace" => world.set_namespace(&read::<Namespace>(value)?),
        "TrainingJob" => world.set_job(&read::<TrainingJob>(value)?),
        other => bail!("kind {other}"),
    }
    Ok(())
}

fn mk_world() -> Result<World> {
    let mut world = World::new("berth-system");
    for document in documents(include_str!("world.yaml"))? {
        add(&mut world, &document)?;
    }
    for (block, rack, node) in (0..16).map(|n| (n / 8, n / 4 % 2, n % 4)) {
        let name = format!("b{block}r{rack}n{node}");
        let allocatable = json!({"cpu": "96", "memory": "1Ti", "nvidia.com/gpu": "8", "pods": "110"});
        add(
            &mut world,
            &json!({"apiVersion": "v1", "kind": "Node",
                "metadata": {"name": name, "labels": {"block": format!("b{block}"), "rack": format!("r{rack}")}},
                "spec": {"unschedulable": name == "b1r1n3"},
                "status": {"allocatable": allocatable, "conditions": [{"type": "Ready", "status": "True"}]}}),
        )?;
    }
    Ok(world)
}

/// What admission says to the first document of a file.
fn judge(name: &str, documents: &[Value]) -> Result<Verdict> {
    let mut world = mk_world()?;
    let request = documents.first().context("a request")?;
    let same =
        |other: &&Value| other["kind"] == request["kind"] && other["metadata"]["name"] == request["metadata"]["name"];
    let old = documents.get(1).filter(same);
    for document in &documents[1..] {
        add(&mut world, document)?;
    }
    let delete = name.trim_start_matches("ok-").starts_with("delete-");
    Ok(match (request["kind"].as_str().unwrap_or_default(), delete) {
        ("TrainingJob", false) => {
            let (new, old): (TrainingJob, Option<TrainingJob>) = (read(request)?, old.map(read).transpose()?);
            validate_training_job(JobChange { new: &new, old: old.as_ref(), raw: Some(request) }, &world)
        }
        ("Queue", false) => validate_queue(&read(request)?, old.map(read).transpose()?.as_ref(), &world),
        ("Topology", false) => validate_topology(&read(request)?, old.map(read).transpose()?.as_ref(), &world),
        ("Queue", true) => validate_queue_delete(request["metadata"]["name"].as_str().unwrap_or_default(), &world),
        ("Topology", true) => validate_topology_delete(&read(request)?, &world),
        (kind, _) => bail!("no requests about {kind}"),
    })
}

fn manifests() -> Result<BTreeMap<String, String>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/manifests");
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_stem().and_then(|n| n.to_str()).context("a name")?.to_owned();
        found.insert(name, std::fs::read_to_string(&path)?);
    }
    Ok(found)
}

fn story(text: &str, verdict: &Verdict) -> String {
    let title = text.lines().next().unwrap_or_default().trim_start_matches("# ");
    let refused = verdict.rejections.iter().map(|r| format!("refused {r}\n  field {}, value {:?}\n", r.field, r.value));
    let warned = verdict.warnings.iter().map(|w| format!("warning {w}\n"));
    let lines: String = refused.chain(warned).collect();
    format!("{title}\n\n{}", if lines.is_empty() { "accepted\n".to_owned() } else { lines })
}

#[test]
fn every_bad_manifest_is_refused_with_a_message_that_helps() -> Result<()> {
    let mut codes = BTreeSet::new();
    for (name, text) in manifests()? {
        let verdict = judge(&name, &documents(&text)?).with_context(|| name.clone())?;
        assert_eq!(verdict.accepted(), name.starts_with("ok-"), "{name}: {}", verdict.message());
        for rejection in &verdict.rejections {
            codes.insert(rejection.code);
            assert!(rejection.message.len() > 40, "{name}: {rejection}");
        }
        insta::assert_snapshot!(name.clone(), story(&text, &verdict));
    }
    let unseen: Vec<&str> = crds::Code::ALL
        .iter()
        .filter(|c| c.met().contains(&crds::codes::Met::Rejected) && !codes.contains(c))
        .map(|c| c.as_str())
        .collect();
    // Those left are refused by others: the commit, the API server's policy, the webhook's server; and by what stands in
    // a job's namespace, which has its own tests.
    let elsewhere =
        ["BerthTooLarge", "NotReady", "NotTheController", "ServiceNameTaken", "StaleLeader", "VolumeUnsupported"];
    let mut unseen = unseen;
    unseen.sort_unstable();
    assert_eq!(unseen, elsewhere);
    Ok(())
}

#[test]
fn what_was_looked_for_in_vain_is_said_so_that_it_can_be_read_live() -> Result<()> {
    let missing = |name: &str| -> Result<Vec<admission::Missing>> {
        let text = manifests()?.remove(name).context("is there")?;
        Ok(judge(name, &documents(&text)?)?.missing)
    };
    assert_eq!(missing("job-unknown-queue")?, [admission::Missing::Queue("team-z".into())]);
    assert_eq!(missing("job-unknown-class")?, [admission::Missing::PriorityClass("vip".into())]);
    assert_eq!(missing("job-unknown-level")?, [admission::Missing::Level("row".into())]);
    assert_eq!(missing("queue-parent-missing")?, [admission::Missing::Queue("nobody".into())]);
    Ok(())
}

#[test]
fn without_nodes_nothing_is_called_impossible() -> Result<()> {
    let mut world = World::new("berth-system");
    for document in documents(include_str!("world.yaml"))?.iter().filter(|d| d["kind"] != "Node") {
        add(&mut world, document)?;
    }
    let text = manifests()?.remove("job-floor-exceeds-every-rack").context("is there")?;
    let job: TrainingJob = read(&documents(&text)?[0])?;
    let verdict = validate_training_job(JobChange { new: &job, old: None, raw: None }, &world);
    assert!(verdict.accepted(), "{}", verdict.message());
    assert!(verdict.warnings[0].ends_with("accepted, since no node is registered yet"), "{:?}", verdict.warnings);
    Ok(())
}
