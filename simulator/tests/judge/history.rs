//! A run's events as states over time, and the scenario's labels over time.

use berth_simulator::scenario::timeline::Happening;
use berth_simulator::scenario::{RunReport, Scenario};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Rank → (role, node).
pub(crate) type Ranks = BTreeMap<u64, (String, String)>;

/// What happened.
pub(crate) struct History {
    /// Events as JSON.
    pub(crate) events: Vec<Value>,
    /// Starts of each job: time and ranks.
    pub(crate) starts: BTreeMap<String, Vec<(f64, Ranks)>>,
    /// Stops of jobs that ran.
    pub(crate) stops: Vec<Value>,
    /// State after each moment.
    pub(crate) steps: Vec<(f64, BTreeMap<String, Ranks>)>,
    /// Phase of each job at the end.
    pub(crate) phases: BTreeMap<String, String>,
    labels: BTreeMap<String, BTreeMap<String, String>>,
    relabels: Vec<(f64, String, BTreeMap<String, Option<String>>)>,
}

impl History {
    pub(crate) fn of(scenario: &Scenario, report: &RunReport) -> Self {
        let events = report.events.iter().map(|e| serde_json::to_value(e).expect("events are JSON")).collect();
        let labels =
            scenario.nodes.iter().map(|(name, node)| (name.clone(), node.metadata.labels.clone().unwrap_or_default()));
        let relabels = scenario.timeline.iter().filter_map(|(at, h)| match h {
            Happening::Label { node, set } => Some((at.as_secs_f64(), node.clone(), set.clone())),
            _ => None,
        });
        let mut history = Self {
            events,
            starts: BTreeMap::new(),
            stops: Vec::new(),
            steps: Vec::new(),
            phases: report.jobs.iter().map(|(name, job)| (name.clone(), job.phase.clone())).collect(),
            labels: labels.collect(),
            relabels: relabels.collect(),
        };
        history.replay();
        history
    }

    fn replay(&mut self) {
        let mut state: BTreeMap<String, Ranks> = BTreeMap::new();
        for event in self.events.clone() {
            let (t, job) = (event["t"].as_f64().unwrap_or(0.0), text(&event["job"]));
            match event["event"].as_str().unwrap_or("") {
                "Started" => {
                    state.insert(job.clone(), ranks(&event));
                    self.starts.entry(job).or_default().push((t, ranks(&event)));
                }
                "Resized" => {
                    state.insert(job, ranks(&event));
                }
                "NodeReplaced" => {
                    let rank = event["rank"].as_u64().unwrap_or(0);
                    if let Some(place) = state.get_mut(&job).and_then(|r| r.get_mut(&rank)) {
                        place.1 = text(&event["to"]);
                    }
                }
                "Stopped" if state.remove(&job).is_some() => self.stops.push(event.clone()),
                "Finished" => {
                    state.remove(&job);
                }
                _ => continue,
            }
            match self.steps.last_mut() {
                Some(last) if last.0 == t => last.1 = state.clone(),
                _ => self.steps.push((t, state.clone())),
            }
        }
    }

    /// Who runs where at a moment.
    pub(crate) fn at(&self, t: f64) -> BTreeMap<String, Ranks> {
        self.steps.iter().rev().find(|(when, _)| *when <= t).map(|(_, s)| s.clone()).unwrap_or_default()
    }

    /// Events of a job of some kinds.
    pub(crate) fn of_job<'a>(&'a self, job: &'a str, kinds: &'a [&str]) -> impl Iterator<Item = &'a Value> {
        self.events.iter().filter(move |e| e["job"] == job && kinds.contains(&e["event"].as_str().unwrap_or("")))
    }

    /// A node's values of some labels at a moment; the node itself where one is missing.
    pub(crate) fn path(&self, node: &str, keys: &[String], t: f64) -> Vec<String> {
        let mut labels = self.labels.get(node).cloned().unwrap_or_default();
        for (_, _, set) in self.relabels.iter().filter(|(at, n, _)| *at <= t && n == node) {
            for (key, value) in set {
                match value {
                    Some(value) => labels.insert(key.clone(), value.clone()),
                    None => labels.remove(key),
                };
            }
        }
        let values: Option<Vec<String>> = keys.iter().map(|k| labels.get(k).cloned()).collect();
        values.unwrap_or_else(|| vec!["?".into(), node.to_owned()])
    }
}

fn ranks(event: &Value) -> Ranks {
    let list = event["ranks"].as_array().into_iter().flatten();
    list.map(|r| (r["rank"].as_u64().unwrap_or(0), (text(&r["role"]), text(&r["node"])))).collect()
}

/// A JSON string's text, empty for anything else.
pub(crate) fn text(value: &Value) -> String {
    value.as_str().unwrap_or("").to_owned()
}

/// The distinct nodes of some ranks.
pub(crate) fn nodes(ranks: &Ranks) -> BTreeSet<String> {
    ranks.values().map(|(_, node)| node.clone()).collect()
}
