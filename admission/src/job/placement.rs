//! Where a job may go: its namespace, its queue and its priority class.

use super::{JobChange, queue_of};
use crate::verdict::{Missing, Verdict, listed, quoted};
use crate::world::{NamespaceFacts, World};
use crds::Code;
use crds::v1alpha1::{Queue, QueueState, TrainingJob};
use kube::core::{Selector, SelectorExt};

/// Judges and answers with the queue, if there is one.
pub(super) fn judge<'a>(change: JobChange<'_>, world: &'a World, verdict: &mut Verdict) -> Option<&'a Queue> {
    let job = change.new;
    if change.old.is_none() {
        namespace(job, world, verdict);
    }
    let (name, queue) = queue_of(job, world);
    if change.changed(|job| queue_of(job, world).0) {
        match queue {
            None => unknown(&name, world, verdict),
            Some(queue) => takes(job, &name, queue, world, verdict),
        }
    }
    if change.changed(|job| job.spec.priority_class_name.clone()) || change.changed(|job| queue_of(job, world).0) {
        class(job, &name, queue, world, verdict);
    }
    queue
}

/// Nothing of Kubernetes' own, and nothing that could stop Berth itself.
fn namespace(job: &TrainingJob, world: &World, verdict: &mut Verdict) {
    let name = job.metadata.namespace.as_deref().unwrap_or_default();
    if name.starts_with("kube-") || name == world.own_namespace() {
        let fault = "no jobs run in namespaces of the system; use a namespace of your own";
        verdict.refuse(Code::NamespaceNotAllowed, "metadata.namespace", quoted(name), fault);
    }
}

fn unknown(name: &str, world: &World, verdict: &mut Verdict) {
    let leaves = world.queues().map(|(n, _)| n).filter(|n| world.children(n).next().is_none());
    let fault = format!("no such Queue exists; name one of {}, or have it made", listed(leaves));
    verdict.refuse(Code::UnknownQueue, "spec.queue", quoted(name), &fault);
    verdict.miss(Missing::Queue(name.to_owned()));
}

fn takes(job: &TrainingJob, name: &str, queue: &Queue, world: &World, verdict: &mut Verdict) {
    let mut children = world.children(name).map(|(child, _)| child).peekable();
    if children.peek().is_some() {
        let fault = format!("it has children, and jobs go to leaves only; name {}", listed(children));
        verdict.refuse(Code::QueueNotLeaf, "spec.queue", quoted(name), &fault);
    }
    match queue.spec.state {
        QueueState::Open => {}
        QueueState::Held => verdict.warn(format!("queue \"{name}\" is Held: nothing in it starts until it is Open")),
        QueueState::Draining => {
            let fault = "it is Draining and takes no jobs; use another queue, or wait until it is Open";
            verdict.refuse(Code::QueueClosed, "spec.queue", quoted(name), fault);
        }
    }
    allows(job, name, queue, world, verdict);
    has_room_to_wait(name, queue, world, verdict);
}

fn allows(job: &TrainingJob, name: &str, queue: &Queue, world: &World, verdict: &mut Verdict) {
    let Some(selector) = &queue.spec.namespaces else { return };
    let namespace = job.metadata.namespace.as_deref().unwrap_or_default();
    let none = NamespaceFacts::default();
    let facts = world.namespace(namespace).unwrap_or_else(|| {
        verdict.missing.push(Missing::Namespace(namespace.to_owned()));
        &none
    });
    let Ok(selector) = Selector::try_from(selector.clone()) else {
        verdict.warn(format!("queue \"{name}\": spec.namespaces cannot be read, so no namespace is allowed"));
        let fault = "its spec.namespaces cannot be read, so it takes no jobs; ask its owner to correct it";
        return verdict.refuse(Code::NamespaceNotAllowed, "spec.queue", quoted(name), fault);
    };
    if !selector.matches(&facts.labels) {
        let fault = format!(
            "it takes jobs of namespaces with {selector} only, and \"{namespace}\" is none; use another queue, or ask its owner"
        );
        verdict.refuse(Code::NamespaceNotAllowed, "spec.queue", quoted(name), &fault);
    }
}

fn has_room_to_wait(name: &str, queue: &Queue, world: &World, verdict: &mut Verdict) {
    let Some(most) = queue.spec.max_pending_jobs.and_then(|n| usize::try_from(n).ok()) else { return };
    let waiting = world.jobs().filter(|(_, job)| job.pending && job.queue == name).count();
    if waiting >= most {
        let fault = format!(
            "its maxPendingJobs of {most} are waiting already; submit again when some have started, or have the number raised"
        );
        verdict.refuse(Code::TooManyPending, "spec.queue", quoted(name), &fault);
    }
}

fn class(job: &TrainingJob, name: &str, queue: Option<&Queue>, world: &World, verdict: &mut Verdict) {
    let classes = world.classes();
    let Some(class) = translate::job::priority_class(job, queue, &classes) else { return };
    let field = "spec.priorityClassName";
    // The default class of the cluster may be anything; only what was named is judged by name.
    if class.starts_with("system-") {
        let fault = "classes of the system are for the cluster's own pods; use another";
        return verdict.refuse(Code::PriorityClassNotAllowed, field, quoted(class), fault);
    }
    if classes.value(class).is_none() {
        let known = listed(classes.names().filter(|n| !n.starts_with("system-")));
        let fault = format!("no such PriorityClass exists; name one of {known}, or leave it out");
        verdict.refuse(Code::UnknownPriorityClass, field, quoted(class), &fault);
        return verdict.miss(Missing::PriorityClass(class.to_owned()));
    }
    let allowed = queue.map(|q| q.spec.allowed_priority_classes.as_slice()).unwrap_or_default();
    if !allowed.is_empty() && !allowed.iter().any(|a| a == class) {
        let fault =
            format!("queue \"{name}\" allows {} only; use one of them", listed(allowed.iter().map(String::as_str)));
        verdict.refuse(Code::PriorityClassNotAllowed, field, quoted(class), &fault);
    }
}
