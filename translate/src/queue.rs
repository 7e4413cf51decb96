//! Queues as the planner reads them, parents first; one that cannot be placed in the tree is held, never lost.

use crate::amounts;
use crate::error::{Fault, TranslateError};
use crate::time;
use crds::Queue;
use crds::ResourceList;
use crds::v1alpha1::{BackfillMode, DecayedUse, QueueOrder, QueueState as State, ReclaimFrom as From, UserUse};
use planner::queue::{Backfill, Decayed, Order, Queue as PlannerQueue, QueueState, Quota, QuotaKey, ReclaimFrom};
use planner::resources::{ResourceTable, Rounding, unit_scale};
use planner::state::ClusterState;
use planner::topology::Topology;
use planner::{PoolIdx, QueueIdx, ResourceIdx};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Name under which the use of users beyond the named ones is kept.
pub const OTHER_USERS: &str = "";

/// Brings the planner's queues to these: parents first; queues that are gone, have no parent or are their own ancestor
/// are held under the root, so that what runs in them goes on and nothing starts. Answers with what is wrong.
pub fn sync(state: &mut ClusterState, queues: &[&Queue]) -> Vec<TranslateError> {
    let tree = Tree::of(queues);
    let mut faults = Vec::new();
    for name in &tree.order {
        let object = tree.by_name[name];
        let topology = state.topology().clone();
        let parent = object.spec.parent.as_deref().filter(|_| !tree.broken.contains_key(name));
        let parent = parent.and_then(|p| state.find_queue(p)).unwrap_or(QueueIdx::ROOT);
        let (mut queue, mut wrong) = translate(object, parent, &topology, &mut state.resources);
        if let Some(fault) = tree.broken.get(name) {
            queue.state = QueueState::Held;
            wrong.push(fault.clone().at(format!("Queue {name}"), "spec.parent"));
        }
        faults.append(&mut wrong);
        set(state, queue);
    }
    hold_vanished(state, &tree);
    faults
}

/// Replaces a queue only if it differs: replacing one wakes the planner.
fn set(state: &mut ClusterState, queue: PlannerQueue) {
    let same = state.find_queue(&queue.name).is_some_and(|row| *state.queue(row) == queue);
    if !same {
        state.set_queue(queue);
    }
}

fn hold_vanished(state: &mut ClusterState, tree: &Tree<'_>) {
    let gone: Vec<PlannerQueue> =
        state.queues().iter().filter(|q| !q.name.is_empty() && !tree.by_name.contains_key(&*q.name)).cloned().collect();
    for old in gone {
        set(state, PlannerQueue { state: QueueState::Held, ..PlannerQueue::open(&old.name, old.parent) });
    }
}

/// The queues by name, in an order with parents first, and those whose place in the tree is wrong.
struct Tree<'a> {
    by_name: BTreeMap<String, &'a Queue>,
    order: Vec<String>,
    broken: BTreeMap<String, Fault>,
}

impl<'a> Tree<'a> {
    fn of(queues: &[&'a Queue]) -> Self {
        let by_name: BTreeMap<String, &Queue> = queues.iter().map(|q| (crate::key_of(*q), *q)).collect();
        let mut tree = Self { by_name, order: Vec::new(), broken: BTreeMap::new() };
        let names: Vec<String> = tree.by_name.keys().cloned().collect();
        for name in &names {
            if let Some(fault) = tree.fault_of(name) {
                tree.broken.insert(name.clone(), fault);
            }
        }
        let mut depths: Vec<(usize, String)> = names.into_iter().map(|name| (tree.depth(&name), name)).collect();
        depths.sort();
        tree.order = depths.into_iter().map(|(_, name)| name).collect();
        tree
    }

    fn parent(&self, name: &str) -> Option<&str> {
        self.by_name.get(name)?.spec.parent.as_deref()
    }

    /// Only a queue's own link is judged: children of a broken one stay its children. In a circle every link is broken.
    fn fault_of(&self, name: &str) -> Option<Fault> {
        let parent = self.parent(name)?;
        if !self.by_name.contains_key(parent) {
            return Some(Fault::UnknownParent(parent.to_owned()));
        }
        let mut above = Some(parent);
        for _ in 0..self.by_name.len() {
            match above {
                Some(queue) if queue == name => return Some(Fault::QueueCycle(parent.to_owned())),
                Some(queue) => above = self.parent(queue),
                None => return None,
            }
        }
        None
    }

    fn depth(&self, name: &str) -> usize {
        let (mut depth, mut at) = (0, name);
        while let Some(parent) = self.parent(at).filter(|_| !self.broken.contains_key(at)) {
            depth += 1;
            at = parent;
        }
        depth
    }
}

/// One queue; what cannot be read is left out and named. Its state says nothing about its place in the tree.
pub fn translate(
    queue: &Queue,
    parent: QueueIdx,
    topology: &Topology,
    table: &mut ResourceTable,
) -> (PlannerQueue, Vec<TranslateError>) {
    let (name, spec) = (crate::key_of(queue), &queue.spec);
    let mut faults = Vec::new();
    let mut read = |list: &ResourceList, field: &str| {
        let (quota, wrong) = quota(list, topology, table);
        faults.extend(wrong.into_iter().map(|(key, f)| f.at(format!("Queue {name}"), format!("spec.{field}[{key}]"))));
        quota
    };
    let (guarantee, limit) = (read(&spec.guarantee, "guarantee"), read(&spec.limit, "limit"));
    let lending_limit = read(&spec.lending_limit, "lendingLimit");
    let status = queue.status.as_ref();
    #[allow(clippy::cast_precision_loss)]
    let weight = spec.weight.max(1) as f64;
    let translated = PlannerQueue {
        name: name.as_str().into(),
        parent,
        weight,
        guarantee,
        limit,
        lending_limit,
        max_running_jobs: spec.max_running_jobs.map(|n| u32::try_from(n).unwrap_or(0)),
        order: order(spec.order),
        backfill: backfill(spec.backfill),
        reclaim_min_runtime: time::span(spec.reclaim.min_runtime),
        reclaim_from: reclaim_from(spec.reclaim.from),
        state: queue_state(spec.state),
        decayed: status.map(|s| decayed(&s.decayed_usage, table)).unwrap_or_default(),
        users: status.map(|s| users(&s.users, &s.other_users, table)).unwrap_or_default(),
    };
    (translated, faults)
}

/// Amounts by quota key, and the entries that cannot be read.
pub fn quota(list: &ResourceList, topology: &Topology, table: &mut ResourceTable) -> (Quota, Vec<(String, Fault)>) {
    let (mut quota, mut faults) = (Quota::new(), Vec::new());
    for (text, quantity) in list {
        let read = split_key(text, topology)
            .and_then(|(pool, resource)| Ok((pool, resource, amounts::parse(resource, quantity, Rounding::Capacity)?)));
        match read {
            Ok((pool, resource, amount)) => {
                quota.insert(QuotaKey { pool, resource: table.intern(resource) }, amount);
            }
            Err(fault) => faults.push((text.clone(), fault)),
        }
    }
    (quota, faults)
}

/// Splits `<topology>/<resource>`. A name of a resource has at most one slash, behind its owner's domain, so two slashes
/// begin with a Topology, and so does one behind a word without a dot.
fn split_key<'a>(text: &'a str, topology: &Topology) -> Result<(Option<PoolIdx>, &'a str), Fault> {
    let Some((first, rest)) = text.split_once('/') else { return Ok((None, text)) };
    let pool = topology.pools().iter().position(|p| !p.name.is_empty() && &*p.name == first);
    match pool {
        Some(row) => Ok((Some(PoolIdx::of(row)), rest)),
        None if rest.contains('/') || !first.contains('.') => {
            Err(Fault::UnknownPool { key: text.to_owned(), pool: first.to_owned() })
        }
        None => Ok((None, text)),
    }
}

/// A quota key as text.
#[must_use]
pub fn key_text(key: QuotaKey, topology: &Topology, table: &ResourceTable) -> String {
    let resource = table.name(key.resource);
    key.pool.map_or_else(|| resource.to_owned(), |pool| format!("{}/{resource}", topology.pool(pool).name))
}

/// A quota as the API writes it.
#[must_use]
pub fn resource_list(quota: &Quota, topology: &Topology, table: &ResourceTable) -> ResourceList {
    quota
        .iter()
        .map(|(key, amount)| (key_text(*key, topology, table), amounts::quantity(table.name(key.resource), *amount)))
        .collect()
}

fn order(order: QueueOrder) -> Order {
    match order {
        QueueOrder::Priority => Order::Priority,
        QueueOrder::Fair => Order::Fair,
    }
}

fn backfill(backfill: crds::v1alpha1::Backfill) -> Backfill {
    match backfill.mode {
        BackfillMode::None => Backfill::None,
        _ => Backfill::Depth(u32::try_from(backfill.reservations()).unwrap_or(0)),
    }
}

fn reclaim_from(from: From) -> ReclaimFrom {
    match from {
        From::Any => ReclaimFrom::Any,
        From::LowerPriority => ReclaimFrom::LowerPriority,
        From::Never => ReclaimFrom::Never,
    }
}

fn queue_state(state: State) -> QueueState {
    match state {
        State::Open => QueueState::Open,
        State::Held => QueueState::Held,
        State::Draining => QueueState::Draining,
    }
}

type DecayedRows = BTreeMap<ResourceIdx, Decayed>;

/// The API counts in units of the resource, the planner in thousandths of a CPU.
fn decayed(usage: &BTreeMap<String, DecayedUse>, table: &mut ResourceTable) -> DecayedRows {
    usage
        .iter()
        .map(|(name, used)| {
            let value = used.value * f64::from(unit_scale(name));
            (table.intern(name), Decayed { value, at: time::time(used.at) })
        })
        .collect()
}

fn users(
    named: &[UserUse],
    others: &BTreeMap<String, DecayedUse>,
    table: &mut ResourceTable,
) -> BTreeMap<Arc<str>, DecayedRows> {
    let mut users: BTreeMap<Arc<str>, DecayedRows> =
        named.iter().map(|user| (user.name.as_str().into(), decayed(&user.usage, table))).collect();
    if !others.is_empty() {
        users.insert(OTHER_USERS.into(), decayed(others, table));
    }
    users
}

/// Decayed use as the API writes it.
#[must_use]
pub fn decayed_usage(rows: &DecayedRows, table: &ResourceTable) -> BTreeMap<String, DecayedUse> {
    rows.iter()
        .filter_map(|(row, used)| {
            let name = table.name(*row);
            let value = used.value / f64::from(unit_scale(name));
            Some((name.to_owned(), DecayedUse { value, at: time::timestamp(used.at)? }))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use planner::topology::PoolSpec;
    use serde_json::{Value, json};

    fn mk_queue(name: &str, spec: Value) -> Queue {
        let object =
            json!({"apiVersion": "berth.dev/v1alpha1", "kind": "Queue", "metadata": {"name": name}, "spec": spec});
        serde_json::from_value(object).expect("a Queue")
    }

    fn synced(queues: &[Queue]) -> (ClusterState, Vec<String>) {
        let mut state = ClusterState::new();
        let pool = |name: &str| PoolSpec { name: name.into(), levels: Vec::new(), growable: false };
        state.set_nodes(&[pool("h100"), pool("")], Vec::new());
        let faults = sync(&mut state, &queues.iter().collect::<Vec<_>>());
        (state, faults.iter().map(ToString::to_string).collect())
    }

    fn row(state: &ClusterState, name: &str) -> QueueIdx {
        state.find_queue(name).expect("is there")
    }

    #[test]
    fn children_listed_before_their_parents_find_them() {
        let queues =
            [mk_queue("a", json!({"parent": "z"})), mk_queue("z", json!({})), mk_queue("b", json!({"parent": "a"}))];
        let (state, faults) = synced(&queues);
        assert!(faults.is_empty(), "{faults:?}");
        let lineage: Vec<&str> = state.lineage(row(&state, "b")).map(|q| &*state.queue(q).name).collect();
        assert_eq!(lineage, ["b", "a", "z", ""]);
    }

    #[test]
    fn a_queue_without_its_parent_or_in_a_circle_is_held_and_named() {
        let queues = [
            mk_queue("orphan", json!({"parent": "nobody"})),
            mk_queue("x", json!({"parent": "y"})),
            mk_queue("y", json!({"parent": "x"})),
            mk_queue("fine", json!({})),
        ];
        let (state, faults) = synced(&queues);
        assert_eq!(faults.len(), 3);
        assert!(faults[0].contains("parent queue \"nobody\" does not exist"), "{faults:?}");
        for name in ["orphan", "x", "y"] {
            assert_eq!(state.queue(row(&state, name)).state, QueueState::Held, "{name}");
        }
        assert_eq!(state.queue(row(&state, "fine")).state, QueueState::Open);
    }

    #[test]
    fn a_queue_that_is_gone_is_held_and_asks_for_nothing() {
        let (mut state, _) = synced(&[mk_queue("a", json!({"guarantee": {"cpu": "4"}}))]);
        sync(&mut state, &[]);
        let gone = state.queue(row(&state, "a"));
        assert_eq!((gone.state, gone.guarantee.len()), (QueueState::Held, 0));
    }

    #[test]
    fn quota_keys_may_name_a_pool() {
        let spec =
            json!({"limit": {"nvidia.com/gpu": "8", "h100/nvidia.com/gpu": 4, "h100/cpu": "2500m", "memory": "1Gi"}});
        let (state, faults) = synced(&[mk_queue("a", spec)]);
        assert!(faults.is_empty(), "{faults:?}");
        let list = resource_list(&state.queue(row(&state, "a")).limit, state.topology(), &state.resources);
        let texts: Vec<(&str, &str)> = list.iter().map(|(k, v)| (k.as_str(), v.0.as_str())).collect();
        assert_eq!(
            texts,
            [("h100/cpu", "2500m"), ("h100/nvidia.com/gpu", "4"), ("memory", "1073741824"), ("nvidia.com/gpu", "8")]
        );
    }

    #[test]
    fn keys_of_unknown_pools_and_bad_amounts_are_named_and_the_rest_holds() {
        let spec = json!({"limit": {"b200/nvidia.com/gpu": "8", "b200/cpu": "1", "cpu": "many", "memory": "1"}});
        let (state, faults) = synced(&[mk_queue("a", spec)]);
        assert_eq!(faults.len(), 3);
        assert!(faults[1].starts_with("Queue a: spec.limit[b200/nvidia.com/gpu]: \"b200\""), "{faults:?}");
        assert_eq!(state.queue(row(&state, "a")).limit.len(), 1);
    }

    #[test]
    fn decayed_use_survives_the_object() {
        let at = "1970-01-01T00:00:10Z";
        let mut queue = mk_queue("a", json!({}));
        queue.status = serde_json::from_value(json!({
            "decayedUsage": {"cpu": {"value": 1.5, "at": at}, "nvidia.com/gpu": {"value": 3.0, "at": at}},
            "users": [{"name": "alice", "usage": {"cpu": {"value": 1.0, "at": at}}}],
            "otherUsers": {"cpu": {"value": 0.5, "at": at}},
        }))
        .expect("a status");
        let (state, _) = synced(std::slice::from_ref(&queue));
        let read = state.queue(row(&state, "a"));
        let cpu = state.resources.find("cpu").expect("known");
        assert!((read.decayed[&cpu].value - 1500.0).abs() < 1e-9);
        assert_eq!(read.users.keys().map(AsRef::as_ref).collect::<Vec<&str>>(), ["", "alice"]);
        let back = decayed_usage(&read.decayed, &state.resources);
        assert_eq!(back, queue.status.expect("set above").decayed_usage);
    }

    #[test]
    fn nothing_is_replaced_when_nothing_changed() {
        let queues = [mk_queue("a", json!({"guarantee": {"cpu": "4"}}))];
        let (mut state, _) = synced(&queues);
        state.planned();
        sync(&mut state, &[&queues[0]]);
        assert!(!state.freed(), "an unchanged queue frees no room");
    }
}
