//! Statuses of queues and topologies, and of objects that cannot be read.

use super::Engine;
use crate::commit::writes::{Kind, StatusWrite, Target};
use crate::status::stamp;
use crds::names::conditions;
use crds::v1alpha1::{LevelStatus, NODE_LEVEL, QueueStatus, TopologyStatus, UserUse};
use crds::{Code, Queue, ResourceList, Topology};
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time as MetaTime};
use kube::Resource;
use planner::share::{QueueReport, queue_reports};
use planner::state::Tally;
use planner::topology::Depth;
use planner::{PoolIdx, QueueIdx, Span, Time};
use std::sync::Arc;
use translate::queue::{decayed_usage, key_text};

/// Between two writes of one object's figures.
const PAUSE: Span = Span::from_secs(2);

impl Engine {
    pub(super) fn flush_queues(&mut self, now: Time) {
        if self.queues_flushed.is_some_and(|at| now.since(at) < PAUSE) {
            self.cluster_due(now);
            return;
        }
        self.queues_flushed = Some(now);
        let reports = queue_reports(self.world.state.at(now), &self.policy);
        let queues: Vec<Arc<Queue>> = self.world.index.queues.values().cloned().collect();
        for queue in queues {
            let name = queue.metadata.name.clone().unwrap_or_default();
            let Some(row) = self.world.state.find_queue(&name) else { continue };
            let next = self.queue_status(&queue, row, &reports[row.row()], now);
            if queue.status.as_ref() != Some(&next) {
                let value = |s: &QueueStatus| serde_json::to_value(s).unwrap_or_default();
                let old = queue.status.as_ref().map_or_else(|| serde_json::json!({}), value);
                self.write_cluster(Kind::Queue, &name, queue.meta().uid.as_deref(), old, value(&next));
            }
        }
    }

    /// Looks again when the pause is over.
    fn cluster_due(&mut self, now: Time) {
        let at = now + PAUSE;
        if self.timers.range(..=at).next().is_none() {
            self.call_at(at, "");
        }
    }

    fn write_cluster(
        &mut self,
        kind: Kind,
        name: &str,
        uid: Option<&str>,
        old: serde_json::Value,
        new: serde_json::Value,
    ) {
        let Some(uid) = uid.map(str::to_owned) else { return };
        if !self.in_writing.insert(uid.clone()) {
            return;
        }
        let target = Target { kind, namespace: String::new(), name: name.to_owned(), uid: uid.clone() };
        self.launch_status(name, &uid, StatusWrite { target, old, new });
    }

    fn queue_status(&self, queue: &Queue, row: QueueIdx, report: &QueueReport, now: Time) -> QueueStatus {
        let state = &self.world.state;
        let known = queue.status.clone().unwrap_or_default();
        let below: Vec<QueueIdx> = (0..state.queues().len())
            .map(QueueIdx::of)
            .filter(|q| state.lineage(*q).any(|above| above == row))
            .collect();
        let pending = below.iter().map(|q| state.waiting(*q).len()).sum::<usize>();
        let reserved =
            state.reserved().iter().filter(|j| state.job(**j).is_some_and(|j| below.contains(&j.spec.queue)));
        let number = |n: usize| i32::try_from(n).unwrap_or(i32::MAX);
        let mut conditions = known.conditions.clone();
        let fault =
            self.world.queue_faults.get(&format!("Queue {}", queue.metadata.name.as_deref().unwrap_or_default()));
        let (ready, code, message) = match fault {
            Some(fault) => (false, fault.fault.code(), fault.to_string()),
            None => (true, Code::Ready, "the queue is in force".to_owned()),
        };
        set(&mut conditions, conditions::READY, ready, code, &message, queue.metadata.generation, now);
        QueueStatus {
            observed_generation: queue.metadata.generation,
            conditions,
            used: self.list(&report.used),
            guaranteed: self.list(&within(&report.used, &report.guaranteed)),
            borrowed: self.list(&report.borrowed),
            lent: self.list(&report.lent),
            gpus: Some(self.gpus(queue, report)),
            fair_share: Some((report.share * 1000.0).round() / 1000.0),
            decayed_usage: decayed_usage(&state.queue(row).decayed, &state.resources),
            users: self.users(row),
            pending_jobs: number(pending),
            running_jobs: number(usize::try_from(state.queue_running(row)).unwrap_or(0)),
            reserved_jobs: number(reserved.count()),
            ..known
        }
    }

    fn users(&self, row: QueueIdx) -> Vec<UserUse> {
        let table = &self.world.state.resources;
        let named = self.world.state.queue(row).users.iter().filter(|(name, _)| &***name != planner::share::POOLED);
        named.map(|(name, rows)| UserUse { name: name.to_string(), usage: decayed_usage(rows, table) }).collect()
    }

    fn list(&self, tally: &Tally) -> ResourceList {
        let (topology, table) = (self.world.state.topology(), &self.world.state.resources);
        let shown = tally.iter().filter(|(key, amount)| {
            let name = table.name(key.resource);
            let hidden = name.starts_with(translate::ports::PREFIX) || name.starts_with(translate::volumes::PREFIX);
            **amount != 0 && !hidden
        });
        let text = |resource, amount| translate::amounts::quantity(table.name(resource), amount);
        shown.take(16).map(|(key, amount)| (key_text(*key, topology, table), text(key.resource, *amount))).collect()
    }

    /// "used/guaranteed/limit" of all kinds of GPU; a dash where there is none.
    fn gpus(&self, queue: &Queue, report: &QueueReport) -> String {
        let table = &self.world.state.resources;
        let is_gpu = |resource| translate::lifecycle::objects::is_gpu(table.name(resource));
        let used: i64 =
            report.used.iter().filter(|(k, _)| k.pool.is_none() && is_gpu(k.resource)).map(|(_, a)| *a).sum();
        let listed = |list: &ResourceList| {
            let gpus = list.iter().filter(|(key, _)| translate::lifecycle::objects::is_gpu(key));
            let amounts: Vec<i64> = gpus.filter_map(|(_, q)| q.0.parse().ok()).collect();
            if amounts.is_empty() { "-".to_owned() } else { amounts.iter().sum::<i64>().to_string() }
        };
        format!("{used}/{}/{}", listed(&queue.spec.guarantee), listed(&queue.spec.limit))
    }

    pub(super) fn flush_topologies(&mut self, now: Time) {
        if self.topologies_flushed.is_some_and(|at| now.since(at) < PAUSE) {
            return;
        }
        self.topologies_flushed = Some(now);
        let topologies: Vec<Arc<Topology>> = self.world.index.topologies.values().cloned().collect();
        for topology in topologies {
            let name = topology.metadata.name.clone().unwrap_or_default();
            let tree = self.world.state.topology();
            let Some(row) = tree.pools().iter().position(|p| *p.name == *name) else { continue };
            let next = self.topology_status(&topology, PoolIdx::of(row), now);
            if topology.status.as_ref() != Some(&next) {
                let value = |s: &TopologyStatus| serde_json::to_value(s).unwrap_or_default();
                let old = topology.status.as_ref().map_or_else(|| serde_json::json!({}), value);
                self.write_cluster(Kind::Topology, &name, topology.meta().uid.as_deref(), old, value(&next));
            }
        }
    }

    fn topology_status(&self, topology: &Topology, pool: PoolIdx, now: Time) -> TopologyStatus {
        let tree = self.world.state.topology();
        let known = topology.status.clone().unwrap_or_default();
        let here = tree.pool(pool);
        let number = |n: usize| i32::try_from(n).unwrap_or(i32::MAX);
        let levels = here.levels.iter().enumerate().map(|(row, level)| {
            let depth = Depth(u8::try_from(row + 1).unwrap_or(u8::MAX));
            let sizes: Vec<u32> = tree.domains_at(pool, depth).map(|d| tree.domain(d).node_count()).collect();
            let size = |n: Option<&u32>| n.map_or(0, |n| i32::try_from(*n).unwrap_or(i32::MAX));
            LevelStatus {
                name: level.name.to_string(),
                domains: number(sizes.len()),
                nodes_min: size(sizes.iter().min()),
                nodes_max: size(sizes.iter().max()),
            }
        });
        let levels: Vec<LevelStatus> = levels.collect();
        let of_pool = self.world.places.values().filter(|p| p.path.pool == pool.row());
        let unknown = of_pool.filter(|p| p.missing.is_some()).count();
        let contested = self.world.places.values().filter(|p| p.contested.contains(&here.name)).count();
        let standing = self.world.drift.standing(&here.name, now);
        let nodes = tree.domain(here.root).node_count();
        let mut path: Vec<&str> = here.levels.iter().map(|l| &*l.name).collect();
        path.push(NODE_LEVEL);
        let mut conditions = known.conditions.clone();
        let (ready, code, message) = if contested > 0 {
            (false, Code::TopologyOverlap, format!("{contested} nodes are selected by another Topology too"))
        } else if standing.doubted > 0 {
            (false, Code::TopologyHeld, format!("the labels of {} nodes are doubted", standing.doubted))
        } else if nodes == 0 {
            (false, Code::TopologyUnknown, "it describes no node".to_owned())
        } else {
            (
                true,
                Code::Ready,
                format!("{} of {nodes} nodes have a known place", usize::try_from(nodes).unwrap_or(0) - unknown),
            )
        };
        set(&mut conditions, conditions::READY, ready, code, &message, topology.metadata.generation, now);
        let moving = format!("{} nodes changed their labels lately", standing.moving);
        let doubted = format!(
            "the labels of {} nodes changed at once: the last trusted places count until the labels are back, stand still, or the Topology is edited",
            standing.doubted
        );
        for (kind, holds, code, message) in [
            (conditions::DRIFTING, standing.moving > 0, Code::Drifting, moving),
            (conditions::HELD, standing.doubted > 0, Code::TopologyHeld, doubted),
        ] {
            let (code, message) =
                if holds { (code, message) } else { (Code::Ready, "the labels stand still".to_owned()) };
            if holds || conditions.iter().any(|c| c.type_ == kind) {
                set(&mut conditions, kind, holds, code, &message, topology.metadata.generation, now);
            }
        }
        let epoch = self.world.epochs.get(&*here.name).copied();
        let last_change = if epoch == known.epoch { known.last_change } else { stamp(now) };
        TopologyStatus {
            observed_generation: topology.metadata.generation,
            conditions,
            epoch,
            path: Some(path.join("/")),
            levels,
            nodes: Some(i32::try_from(nodes).unwrap_or(i32::MAX)),
            unknown_nodes: Some(number(unknown + contested)),
            suspect_nodes: Some(number(standing.suspects)),
            last_change,
        }
    }

    /// Objects that cannot be read get an event that says what is wrong; once for each version.
    pub(super) fn flush_unreadable(&mut self, _now: Time) {
        let kinds =
            [("TrainingJob", &self.world.index.unreadable_jobs), ("Queue", &self.world.index.unreadable_queues)];
        let mut told = Vec::new();
        for (kind, bad) in kinds {
            for (key, object) in bad {
                let version = object.metadata.resource_version.clone().unwrap_or_default();
                if self.unreadable_told.get(key) == Some(&version) {
                    continue;
                }
                let about = ObjectReference {
                    api_version: Some(crds::v1alpha1::API_VERSION.to_owned()),
                    kind: Some(kind.to_owned()),
                    name: object.metadata.name.clone(),
                    namespace: object.metadata.namespace.clone(),
                    uid: object.metadata.uid.clone(),
                    ..ObjectReference::default()
                };
                told.push((key.clone(), version, about, object.error.clone()));
            }
        }
        for (key, version, about, error) in told {
            self.note(about, true, Code::InvalidObject, &error);
            self.unreadable_told.insert(key, version);
        }
    }
}

/// The part of what is used that a guarantee covers.
fn within(used: &Tally, guaranteed: &Tally) -> Tally {
    used.iter().map(|(key, amount)| (*key, (*amount).min(guaranteed.get(key).copied().unwrap_or(0)))).collect()
}

fn set(
    all: &mut Vec<Condition>,
    kind: &str,
    holds: bool,
    code: Code,
    message: &str,
    generation: Option<i64>,
    now: Time,
) {
    let status = if holds { "True" } else { "False" };
    let changed = all.iter().find(|c| c.type_ == kind).filter(|c| c.status == status);
    let now = stamp(Time(now.0 - now.0.rem_euclid(1_000_000))).map(MetaTime::from);
    let at = changed.map(|c| c.last_transition_time.clone()).or(now);
    let Some(last_transition_time) = at else { return };
    all.retain(|c| c.type_ != kind);
    all.push(Condition {
        type_: kind.to_owned(),
        status: status.to_owned(),
        reason: code.as_str().to_owned(),
        message: message.to_owned(),
        observed_generation: generation,
        last_transition_time,
    });
}
