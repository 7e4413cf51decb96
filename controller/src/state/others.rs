//! What others will take on nodes although no bound pod says so yet: pods of DaemonSets still to come, and pods that other
//! schedulers were promised room for.

use super::index::Index;
use super::world::World;
use crate::commit::{is_terminal, owner_uid};
use crate::watch::Change;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Node, Pod};
use planner::job::Phase;
use planner::resources::Amounts;
use std::collections::BTreeMap;
use std::sync::Arc;
use translate::Constraints;
use translate::PodAsk;

/// The pods of one set.
#[derive(Clone, Debug)]
pub(super) struct Daemon {
    uid: String,
    constraints: Constraints,
    takes: Amounts,
}

/// A promised pod.
#[derive(Clone, Debug)]
pub(super) struct Promised {
    priority: i64,
    takes: Amounts,
}

/// What is still to come, by set and by node.
#[derive(Debug, Default)]
pub(super) struct Others {
    daemons: Vec<Daemon>,
    promised: BTreeMap<String, Vec<Promised>>,
    /// Promises below this are nobody's obstacle: no job of ours that waits has a lower priority.
    least: Option<i64>,
}

impl World {
    pub(super) fn daemons_changed(&mut self, change: Change<DaemonSet>) {
        let changed = self.index.change_table(|i| &mut i.daemon_sets, change);
        let spec = |set: &DaemonSet| set.spec.clone().map(|s| s.template);
        let differs = |before: &Option<Arc<DaemonSet>>, after: &Option<Arc<DaemonSet>>| match (before, after) {
            (Some(before), Some(after)) => spec(before) != spec(after),
            _ => true,
        };
        if !changed.iter().any(|(_, before, after)| differs(before, after)) {
            return;
        }
        let known = self.state.resources.len();
        let mut daemons = Vec::new();
        for set in self.index.daemon_sets.values() {
            let Some(template) = set.spec.as_ref().and_then(|s| s.template.spec.as_ref()) else { continue };
            // Berth's own nodes take them only if they say so: nothing is tolerated for them.
            let (Ok(constraints), Ok(ask)) = (Constraints::of(template), PodAsk::of_ours(template)) else { continue };
            let takes = translate::amounts::rows(&ask.requests, &mut self.state.resources);
            daemons.push(Daemon { uid: set.metadata.uid.clone().unwrap_or_default(), constraints, takes });
        }
        self.others.daemons = daemons;
        self.resources_grew(known);
        self.dirty_nodes.extend(self.index.nodes.keys().cloned());
    }

    pub(super) fn nominated_changed(&mut self, change: Change<Pod>) {
        if self.index.change_nominated(change).is_empty() {
            return;
        }
        let known = self.state.resources.len();
        let mut promised: BTreeMap<String, Vec<Promised>> = BTreeMap::new();
        for pod in self.index.nominated.values().filter(|p| !is_terminal(p)) {
            let Some(node) = pod.status.as_ref().and_then(|s| s.nominated_node_name.clone()) else { continue };
            let taken = translate::pod::taken(pod).unwrap_or_default();
            let takes = translate::amounts::rows(&taken, &mut self.state.resources);
            let priority = pod.spec.as_ref().and_then(|s| s.priority).unwrap_or(0).into();
            promised.entry(node).or_default().push(Promised { priority, takes });
        }
        self.resources_grew(known);
        self.dirty_nodes.extend(self.others.promised.keys().chain(promised.keys()).cloned());
        self.others.promised = promised;
    }

    /// Which promises count depends on who waits. To be called when jobs are in step.
    pub(super) fn weigh_promises(&mut self) {
        if self.others.promised.is_empty() {
            return;
        }
        let waiting = self.state.jobs().filter(|(_, j)| matches!(j.phase, Phase::Waiting(_)));
        let least = waiting.map(|(_, j)| j.spec.priority).min();
        if least != self.others.least {
            self.others.least = least;
            self.dirty_nodes.extend(self.others.promised.keys().cloned());
        }
    }

    /// What is still to come on a node.
    pub(super) fn to_come(&self, node: &Node) -> Amounts {
        let mut sum = Amounts::default();
        let name = node.metadata.name.as_deref().unwrap_or_default();
        let promised = self.others.promised.get(name).into_iter().flatten();
        for pod in promised.filter(|p| self.others.least.is_none_or(|least| p.priority >= least)) {
            sum.add(&pod.takes, 1);
        }
        for daemon in &self.others.daemons {
            if daemon.constraints.allows(node) && !has_pod_of(&self.index, name, &daemon.uid) {
                sum.add(&daemon.takes, 1);
            }
        }
        sum
    }
}

fn has_pod_of(index: &Index, node: &str, uid: &str) -> bool {
    index.pods_of_node(node).any(|(_, p)| !is_terminal(p) && owner_uid(&p.metadata) == Some(uid))
}
