//! Every scenario file holds: its own expectations, no violation of the planner's laws, the same run twice.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)] // the lints are for code outside tests

mod judge;

use std::path::PathBuf;

/// The files, in order.
fn files() -> Vec<PathBuf> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("scenarios");
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder)
        .expect("the folder of scenarios")
        .map(|entry| entry.expect("a readable entry").path())
        .collect();
    files.retain(|f| f.extension().is_some_and(|e| e == "yaml"));
    files.sort();
    files
}

#[test]
fn every_scenario_holds() {
    let files = files();
    assert!(files.len() > 50, "only {} scenarios found", files.len());
    let mut wrong = Vec::new();
    for file in &files {
        let name = file.file_name().unwrap().to_string_lossy().into_owned();
        wrong.extend(judge::judge_file(file).into_iter().map(|w| format!("{name}: {w}")));
    }
    assert!(wrong.is_empty(), "{} of {} scenarios:\n{}", wrong.len(), files.len(), wrong.join("\n"));
}

const HOLDS: &str = "kind: Scenario\nmetadata: {name: s}\nspec:\n  nodes:\n  - {names: n0, allocatable: {cpu: 4}}\n  \
                     jobs:\n  - {name: j, pods: 1, each: {cpu: 1}, maxRuntime: 1h}\n---\nkind: Expect\nassert:\n";

#[test]
fn the_judge_can_say_no() {
    let wrong = |assertion: &str| !judge::judge("s.yaml", &format!("{HOLDS}- {assertion}\n")).unwrap().is_empty();
    for holds in
        ["started: {job: j, between: [0, 1]}", "finished: {job: j, between: [3600, 3600]}", "victims_total: {equal: 0}"]
    {
        assert!(!wrong(holds), "{holds}");
    }
    for fails in [
        "started: {job: j, between: [1, 2]}",
        "never_started: {job: j}",
        "rejected: {job: j}",
        "finished: {job: j, result: Failed}",
        "pending_at_end: {job: j}",
        "running_at: {t: 60, jobs: {j: 2}}",
        "nodes_within: {job: j, nodes: [n1]}",
        "stopped: {job: j}",
        "reserved: {job: j}",
        "event_count: {event: Started, equal: 2}",
        "any_of: [{never_started: {job: j}}, {rejected: {job: j}}]",
        "weather: {sun: true}",
    ] {
        assert!(wrong(fails), "{fails}");
    }
}
