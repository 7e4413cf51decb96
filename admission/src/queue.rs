//! Rules of a `Queue` against the tree it belongs to.

use crate::rules;
use crate::verdict::{Missing, Verdict, listed, quoted};
use crate::world::World;
use crds::v1alpha1::Queue;
use crds::{Code, ResourceList};
use kube::core::Selector;
use planner::resources::Rounding;
use std::collections::BTreeMap;
use translate::amounts;

/// Judges a queue that is made or changed.
pub fn validate(new: &Queue, old: Option<&Queue>, world: &World) -> Verdict {
    let mut verdict = Verdict::default();
    if new.metadata.deletion_timestamp.is_some() {
        return verdict;
    }
    let name = translate::key_of(new);
    rules::queue(new, old, &mut verdict);
    amounts_are_readable(new, &mut verdict);
    selector_is_readable(new, &mut verdict);
    if old.is_none_or(|old| old.spec.parent != new.spec.parent) {
        parent(&name, new, world, &mut verdict);
    }
    if verdict.accepted() && old.is_none_or(|old| gives_more(new, old)) {
        guarantees(&name, new, world, &mut verdict);
    }
    names_exist(new, world, &mut verdict);
    verdict
}

/// Judges a queue that is to go.
pub fn validate_delete(name: &str, world: &World) -> Verdict {
    let mut verdict = Verdict::default();
    let children: Vec<&str> = world.children(name).map(|(child, _)| child).collect();
    if !children.is_empty() {
        let fault = format!("it has children ({}), so it cannot go; remove them first", children.join(", "));
        verdict.refuse(Code::QueueHasChildren, "metadata.name", quoted(name), &fault);
    }
    let jobs = jobs_of(name, world);
    if !jobs.is_empty() {
        let fault = format!("it has jobs ({}), so it cannot go; move or finish them first", some(&jobs));
        verdict.refuse(Code::QueueHasJobs, "metadata.name", quoted(name), &fault);
    }
    verdict
}

fn jobs_of<'a>(queue: &str, world: &'a World) -> Vec<&'a str> {
    world.jobs().filter(|(_, job)| job.living && job.queue == queue).map(|(key, _)| key).collect()
}

/// The first few, and how many more.
fn some(names: &[&str]) -> String {
    let first = names.iter().take(3).copied().collect::<Vec<_>>().join(", ");
    if names.len() > 3 { format!("{first} and {} more", names.len() - 3) } else { first }
}

fn lists(queue: &Queue) -> [(&'static str, &ResourceList); 3] {
    let spec = &queue.spec;
    [("guarantee", &spec.guarantee), ("limit", &spec.limit), ("lendingLimit", &spec.lending_limit)]
}

/// The resource of a quota key, which may name a pool first.
fn resource_of(key: &str) -> &str {
    match key.split_once('/') {
        Some((first, rest)) if rest.contains('/') || !first.contains('.') => rest,
        _ => key,
    }
}

fn amounts_are_readable(queue: &Queue, verdict: &mut Verdict) {
    for (field, list) in lists(queue) {
        for (key, quantity) in list {
            if let Err(fault) = amounts::parse(resource_of(key), quantity, Rounding::Capacity) {
                verdict.refuse(Code::InvalidSpec, format!("spec.{field}[{key}]"), "", &fault.to_string());
            }
        }
    }
}

fn selector_is_readable(queue: &Queue, verdict: &mut Verdict) {
    let Some(selector) = &queue.spec.namespaces else { return };
    if let Err(error) = Selector::try_from(selector.clone()) {
        let fault = format!("{error}; use matchLabels, or matchExpressions with In, NotIn, Exists, DoesNotExist");
        verdict.refuse(Code::InvalidSpec, "spec.namespaces", "", &fault);
    }
}

fn parent(name: &str, new: &Queue, world: &World, verdict: &mut Verdict) {
    // A parent that is the queue itself is refused by its own rules.
    let Some(parent) = new.spec.parent.as_deref().filter(|p| *p != name) else { return };
    let Some(above) = world.queue(parent) else {
        let others = world.queues().map(|(n, _)| n).filter(|n| *n != name);
        let fault = format!("no such Queue exists; name one of {}, or make it first", listed(others));
        verdict.refuse(Code::QueueParentMissing, "spec.parent", quoted(parent), &fault);
        return verdict.miss(Missing::Queue(parent.to_owned()));
    };
    let mut path = vec![parent];
    path.extend(world.ancestors(above).iter().map(|(n, _)| *n).take_while(|n| *n != parent));
    if let Some(end) = path.iter().position(|n| *n == name) {
        let fault = format!(
            "the queue would be its own ancestor ({name} below {}); choose another parent",
            path[..=end].join(" below ")
        );
        verdict.refuse(Code::QueueCycle, "spec.parent", quoted(parent), &fault);
    }
    let jobs = jobs_of(parent, world);
    if !jobs.is_empty() {
        let fault = format!(
            "it has jobs of its own ({}), so it cannot become a parent; move or finish them first",
            some(&jobs)
        );
        verdict.refuse(Code::QueueHasJobs, "spec.parent", quoted(parent), &fault);
    }
}

/// Whether a change promises more, or moves what is promised: lowering always passes. Lowering a parent's guarantee
/// takes from its children, so that is looked at too.
fn gives_more(new: &Queue, old: &Queue) -> bool {
    new.spec.parent != old.spec.parent || new.spec.guarantee != old.spec.guarantee
}

fn read(list: &ResourceList, key: &str) -> Option<i64> {
    amounts::parse(resource_of(key), list.get(key)?, Rounding::Capacity).ok()
}

fn sum<'a>(queues: impl Iterator<Item = &'a Queue>) -> BTreeMap<String, i64> {
    let mut sum = BTreeMap::new();
    for queue in queues {
        for key in queue.spec.guarantee.keys() {
            let amount = read(&queue.spec.guarantee, key).unwrap_or(0);
            let all: &mut i64 = sum.entry(key.clone()).or_default();
            *all = all.saturating_add(amount);
        }
    }
    sum
}

fn guarantees(name: &str, new: &Queue, world: &World, verdict: &mut Verdict) {
    let text = |key: &str, amount| amounts::quantity(resource_of(key), amount).0;
    if let Some((parent, above)) = new.spec.parent.as_deref().and_then(|p| Some((p, world.queue(p)?))) {
        let siblings = world.children(parent).filter(|(n, _)| *n != name).map(|(_, q)| q);
        for (key, all) in sum(siblings.chain([new])) {
            // A parent that lists nothing of a resource promises its children nothing it could break.
            let Some(of_parent) = read(&above.spec.guarantee, &key) else { continue };
            if all > of_parent && new.spec.guarantee.contains_key(&key) {
                let fault = format!(
                    "with its siblings that is {}, more than the guarantee of parent \"{parent}\", which is {}; lower one of them, or raise the parent's first",
                    text(&key, all),
                    text(&key, of_parent)
                );
                let value = read(&new.spec.guarantee, &key).unwrap_or(0);
                verdict.refuse(Code::GuaranteesOverParent, format!("spec.guarantee[{key}]"), text(&key, value), &fault);
            }
        }
    }
    for (key, all) in sum(world.children(name).map(|(_, q)| q)) {
        let Some(own) = read(&new.spec.guarantee, &key).filter(|own| all > *own) else { continue };
        let fault =
            format!("its children are guaranteed {} together; lower theirs first, or keep more", text(&key, all));
        verdict.refuse(Code::GuaranteesOverParent, format!("spec.guarantee[{key}]"), text(&key, own), &fault);
    }
    over_cluster(name, new, world, verdict);
}

/// More guaranteed than there is can be wished for, and kept only once nodes come.
fn over_cluster(name: &str, new: &Queue, world: &World, verdict: &mut Verdict) {
    let capacity = world.capacity();
    let total = capacity.total();
    let tops = world.queues().filter(|(n, q)| *n != name && q.spec.parent.is_none()).map(|(_, q)| q);
    for (key, all) in sum(tops.chain(new.spec.parent.is_none().then_some(new))) {
        let have = capacity.resources.find(&key).map_or(0, |r| total.get(r));
        if key == resource_of(&key) && all > have && new.spec.guarantee.contains_key(&key) {
            let text = |amount| amounts::quantity(&key, amount).0;
            verdict.warn(format!(
                "spec.guarantee[{key}]: all queues together are guaranteed {}, and the cluster has {}: not all guarantees can be kept until nodes are added or one is lowered",
                text(all),
                text(have)
            ));
        }
    }
}

/// What a queue names and nobody has yet may still come.
fn names_exist(queue: &Queue, world: &World, verdict: &mut Verdict) {
    for (field, list) in lists(queue) {
        for key in list.keys().filter(|key| resource_of(key) != key.as_str()) {
            let pool = key.split_once('/').map_or("", |(pool, _)| pool);
            if !world.topologies().any(|(name, _)| name == pool) {
                verdict.warn(format!("spec.{field}[{key}]: no Topology \"{pool}\" exists, so it counts nothing yet"));
            }
        }
    }
    let classes = world.classes();
    let named = queue.spec.allowed_priority_classes.iter().chain(&queue.spec.defaults.priority_class_name);
    for class in named.filter(|class| classes.value(class).is_none()) {
        verdict
            .warn(format!("PriorityClass \"{class}\" does not exist yet: jobs that use it are refused until it does"));
    }
}
