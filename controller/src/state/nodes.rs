//! Nodes in the planner's state: where each stands in the network, what room it has, and what of it is taken by pods that
//! are no seat of a job of ours.

use super::drift;
use super::index::job_of_pod;
use super::record::Held;
use super::world::World;
use crate::commit::owner_uid;
use crds::v1alpha1::{BerthState, NODE_LEVEL, TrainingJob};
use crds::{Code, Topology};
use k8s_openapi::api::core::v1::{Node, Pod};
use planner::Time;
use planner::job::Phase;
use planner::resources::Amounts;
use planner::state::NodeState;
use planner::topology::NodePath;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use translate::PoolMap;
use translate::pools::Place;

impl World {
    pub(super) fn rebuild_nodes(&mut self, now: Time) {
        let topologies: Vec<&Topology> = self.index.topologies.values().map(AsRef::as_ref).collect();
        match PoolMap::of(&topologies) {
            Ok(pools) => self.pools = pools,
            Err(error) => tracing::error!(%error, "a Topology cannot be read; the last readable ones stay in force"),
        }
        let mut places: BTreeMap<String, Place> =
            self.index.nodes.iter().map(|(name, node)| (name.clone(), self.pools.place(node))).collect();
        self.judge_labels(&mut places, now);
        self.raise_epochs(&places);
        self.places = places;
        let nodes: Vec<Arc<Node>> = self.index.nodes.values().cloned().collect();
        let mut listed: Vec<(NodePath, NodeState)> = Vec::with_capacity(nodes.len());
        for node in nodes {
            let path = self.places[node.metadata.name.as_deref().unwrap_or_default()].path.clone();
            let state = self.node_state(&node, now);
            listed.push((path, state));
        }
        listed.extend(self.vanished_nodes());
        self.state.set_nodes(self.pools.pools(), listed);
        self.book.nodes_replaced(&mut self.state, &self.index.nodes);
        self.changed = true;
    }

    /// Makes of places by labels the places that count.
    fn judge_labels(&mut self, places: &mut BTreeMap<String, Place>, now: Time) {
        let held = |world: &Self| -> Vec<bool> {
            world.index.topologies.keys().map(|name| world.drift.is_doubted(name)).collect()
        };
        let before = held(self);
        self.drift.keep(|name| self.index.topologies.contains_key(name));
        for (row, pool) in self.pools.pools().iter().enumerate() {
            let Some(topology) = self.index.topologies.get(&*pool.name) else { continue };
            let of_pool = places.iter().filter(|(_, p)| p.path.pool == row && p.contested.is_empty());
            let mut labels: BTreeMap<String, drift::Path> =
                of_pool.map(|(name, p)| (name.clone(), p.path.path.clone())).collect();
            let generation = topology.metadata.generation;
            self.drift.judge(&pool.name, generation, &topology.spec.drift, &mut labels, now);
            for (name, path) in labels {
                let Some(place) = places.get_mut(&name).filter(|p| p.path.path != path) else { continue };
                place.missing = pool.levels.get(path.len()).map(|level| level.name.to_string());
                place.path.path = path;
            }
        }
        if held(self) != before {
            self.all_jobs_dirty();
        }
    }

    /// Why a job that needs a level waits: in every pool that has the level and nodes for it, labels are doubted.
    #[must_use]
    pub fn level_doubted(&self, key: &str, job: &TrainingJob) -> Option<Held> {
        if !self.pools.pools().iter().any(|p| self.drift.is_doubted(&p.name)) {
            return None;
        }
        let slices = job.spec.roles.iter().filter_map(|r| r.slice.as_ref()).map(|s| s.within.as_str());
        let mut levels = job.spec.topology.required.as_deref().into_iter().chain(slices);
        let level = levels.find(|level| *level != NODE_LEVEL)?;
        let allowed = translate::PodAsk::of_ours(&self.effective_pod(key, job, 0)).ok()?.constraints;
        let has_nodes = |row: usize| {
            let of_pool = self.places.iter().filter(|(_, p)| p.path.pool == row);
            of_pool.filter_map(|(name, _)| self.index.nodes.get(name)).any(|node| allowed.allows(node))
        };
        let pools = self.pools.pools().iter().enumerate();
        let has = |(row, p): &(usize, &planner::topology::PoolSpec)| {
            p.levels.iter().any(|l| &*l.name == level) && has_nodes(*row)
        };
        let mut pools = pools.filter(has).map(|(_, pool)| pool).peekable();
        let first = pools.peek()?.name.clone();
        pools.all(|p| self.drift.is_doubted(&p.name)).then(|| {
            let message = format!(
                "the labels of many nodes of Topology {first} changed at once and are doubted; what needs level {level} waits"
            );
            Held { code: Code::TopologyHeld, message, until: None }
        })
    }

    /// Nodes that Berths in force still name although they are gone: lost, so that their Berths can be read.
    fn vanished_nodes(&self) -> Vec<(NodePath, NodeState)> {
        let in_force = self.index.berths.values().filter(|b| b.spec.state != BerthState::Released);
        let named: BTreeSet<&str> = in_force.flat_map(|b| translate::berth::nodes_named(b)).collect();
        let gone = named.into_iter().filter(|name| !self.index.nodes.contains_key(*name));
        gone.map(|name| {
            let path = NodePath { pool: self.pools.outside(), path: Vec::new(), name: name.into() };
            (path, NodeState { lost: true, closed: true, ..NodeState::default() })
        })
        .collect()
    }

    fn raise_epochs(&mut self, places: &BTreeMap<String, Place>) {
        for (row, pool) in self.pools.pools().iter().enumerate() {
            let of_pool = |all: &BTreeMap<String, Place>| -> Vec<NodePath> {
                all.values().filter(|p| p.path.pool == row).map(|p| p.path.clone()).collect()
            };
            let epoch = self.epochs.entry(pool.name.to_string()).or_insert_with(|| {
                let stored = self.index.topologies.get(&*pool.name);
                stored.and_then(|t| t.status.as_ref()?.epoch).unwrap_or(0)
            });
            if of_pool(places) != of_pool(&self.places) {
                *epoch += 1;
            }
        }
    }

    pub(super) fn sync_node(&mut self, name: &str, now: Time) {
        let Some(row) = self.state.find_node(name) else { return };
        let Some(node) = self.index.nodes.get(name).cloned() else { return };
        let next = self.node_state(&node, now);
        if next != *self.state.node(row) {
            self.state.set_node(row, next);
            self.changed = true;
        }
        self.changed |= self.book.node_changed(&mut self.state, row, &node);
    }

    fn node_state(&mut self, node: &Node, now: Time) -> NodeState {
        let name = node.metadata.name.as_deref().unwrap_or_default();
        let mut foreign = self.foreign(name);
        foreign.add(&self.to_come(node), 1);
        match translate::node::state(node, &foreign, &mut self.state.resources) {
            Ok(mut state) => {
                state.lost |= translate::node::facts(node).lost(now, self.settings.node_lost_after);
                let limits = self.index.csi_nodes.get(name).map(|n| translate::volumes::limits(n)).unwrap_or_default();
                translate::volumes::grant(&mut state.allocatable, &self.state.resources, &limits);
                state
            }
            Err(error) => {
                tracing::warn!(%error, "a node cannot be read and takes no pods");
                NodeState { closed: true, foreign, ..NodeState::default() }
            }
        }
    }

    /// What pods take on a node that are no seat of a job the planner has.
    fn foreign(&self, node: &str) -> Amounts {
        let mut sum = Amounts::default();
        for (key, pod) in self.index.pods_of_node(node) {
            if !self.is_seat(pod)
                && !crate::sabotage::is(crate::sabotage::Sabotage::BlindToOthers)
                && let Some(taken) = self.taken.get(key)
            {
                sum.add(taken, 1);
            }
        }
        sum
    }

    fn is_seat(&self, pod: &Pod) -> bool {
        let Some(job) = job_of_pod(pod) else { return false };
        let Some(row) = self.state.find_job(&job) else { return false };
        let owner = owner_uid(&pod.metadata);
        let berth = self.index.berths_of_job(&job).find(|b| b.metadata.uid.as_deref() == owner);
        // While a start is under way its pods may be seen before its Berth is.
        let starting = self.records.get(&job).is_some_and(|r| r.flight.is_some());
        if !berth.map_or(starting, |b| b.spec.state == BerthState::Committed) {
            return false;
        }
        let (Some(role), Some(index)) = seat_of(pod) else { return false };
        let held = match self.state.job(row).map(|j| &j.phase) {
            Some(Phase::Running(r)) => &r.placement,
            Some(Phase::Leaving(l)) => &l.placement,
            _ => return false,
        };
        let Some(job) = self.index.jobs.get(&job) else { return false };
        let Some(role) = job.spec.roles.iter().position(|r| r.name == role) else { return false };
        let node = translate::pod::node_of(pod).and_then(|n| self.state.find_node(n));
        let seat = held.seats.binary_search_by(|s| (usize::from(s.role), s.index).cmp(&(role, index)));
        seat.is_ok_and(|at| Some(held.seats[at].node) == node)
    }
}

/// Role and index that a pod's labels tell.
#[must_use]
pub fn seat_of(pod: &Pod) -> (Option<&str>, Option<u32>) {
    let labels = pod.metadata.labels.as_ref();
    let role = labels.and_then(|l| l.get(crds::names::labels::ROLE)).map(String::as_str);
    let index = labels.and_then(|l| l.get(crds::names::labels::INDEX)).and_then(|i| i.parse().ok());
    (role, index)
}
