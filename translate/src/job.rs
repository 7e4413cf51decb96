//! A `TrainingJob` as the planner reads it, with what it inherits from its namespace, its queue and its class.

use crate::constraints::Constraints;
use crate::error::{Fault, TranslateError};
use crate::lifecycle::naming;
use crate::pod::PodAsk;
use crate::time;
use crds::Duration;
use crds::names::{DEFAULT_QUEUE, annotations};
use crds::v1alpha1::{self, FailureAction, Queue, RendezvousKind, Role as SpecRole, TrainingJob};
use k8s_openapi::api::core::v1::PodSpec;
use k8s_openapi::api::scheduling::v1::PriorityClass;
use planner::job::{Communication, JobSpec, Locality, Role, Slice};
use planner::state::ClusterState;
use planner::{ShapeIdx, Span};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Seconds between the stop signal and the kill where nobody says: what Kubernetes gives a pod.
pub const DEFAULT_GRACE_SECS: i64 = 30;

/// Values of the priority classes, and the one that is the global default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PriorityClasses {
    values: BTreeMap<String, i32>,
    default: Option<String>,
}

impl PriorityClasses {
    /// The classes of a cluster. Of several global defaults the smallest counts, as in the API server.
    pub fn of<'a>(classes: impl IntoIterator<Item = &'a PriorityClass>) -> Self {
        let mut all = Self::default();
        let mut defaults = Vec::new();
        for class in classes {
            let name = crate::key_of(class);
            if class.global_default.unwrap_or(false) {
                defaults.push((class.value, name.clone()));
            }
            all.values.insert(name, class.value);
        }
        all.default = defaults.into_iter().min().map(|(_, name)| name);
        all
    }

    /// The value of a class.
    #[must_use]
    pub fn value(&self, name: &str) -> Option<i32> {
        self.values.get(name).copied()
    }

    /// The class of those that name none.
    #[must_use]
    pub fn global_default(&self) -> Option<&str> {
        self.default.as_deref()
    }

    /// Names of all classes.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.values.keys().map(String::as_str)
    }
}

/// The queue a job goes to: its own word, else its namespace's annotation, else `default`.
#[must_use]
pub fn queue_name<'a>(job: &'a TrainingJob, namespace: Option<&'a BTreeMap<String, String>>) -> &'a str {
    let noted = || namespace.and_then(|a| a.get(annotations::QUEUE)).map(String::as_str).filter(|q| !q.is_empty());
    job.spec.queue.as_deref().or_else(noted).unwrap_or(DEFAULT_QUEUE)
}

/// The priority class a job's pods carry: its own word, else its queue's default, else the global default.
#[must_use]
pub fn priority_class<'a>(
    job: &'a TrainingJob,
    queue: Option<&'a Queue>,
    classes: &'a PriorityClasses,
) -> Option<&'a str> {
    let of_queue = || queue.and_then(|q| q.spec.defaults.priority_class_name.as_deref());
    job.spec.priority_class_name.as_deref().or_else(of_queue).or(classes.global_default())
}

/// The limit of a job: its own word, else its queue's default.
#[must_use]
pub fn max_runtime(job: &TrainingJob, queue: Option<&Queue>) -> Option<Duration> {
    job.spec.max_runtime.or_else(|| queue.and_then(|q| q.spec.defaults.max_runtime))
}

/// Time between the stop signal and the kill: the job's, else the longest of its templates', else 30 s.
#[must_use]
pub fn grace(job: &TrainingJob) -> Span {
    if let Some(grace) = job.spec.checkpoint.and_then(|c| c.grace_period) {
        return time::span(grace);
    }
    let of_template = |role: &SpecRole| role.template.spec.as_ref()?.termination_grace_period_seconds;
    let longest = job.spec.roles.iter().filter_map(of_template).max();
    Span::from_secs(longest.unwrap_or(DEFAULT_GRACE_SECS).clamp(0, i64::from(i32::MAX)))
}

/// Who submitted a job; empty if nobody noted it.
#[must_use]
pub fn user(job: &TrainingJob) -> &str {
    job.metadata.annotations.as_ref().and_then(|a| a.get(annotations::USER)).map_or("", String::as_str)
}

/// `TrainingJob namespace/name`, as errors name it.
#[must_use]
pub fn object(job: &TrainingJob) -> String {
    format!("TrainingJob {}", crate::key_of(job))
}

/// What the pods of each role ask for, by their templates alone. Where a dry run answered with a pod, use
/// [`PodAsk::of_ours`] of that instead.
///
/// # Errors
/// The first field of a template that cannot be read.
pub fn asks(job: &TrainingJob) -> Result<Vec<PodAsk>, TranslateError> {
    let none = PodSpec::default();
    let roles = job.spec.roles.iter().enumerate();
    roles
        .map(|(row, role)| {
            let spec = role.template.spec.as_ref().unwrap_or(&none);
            PodAsk::of_ours(spec).map_err(|f| f.under(&format!("spec.roles[{row}].template.spec.")).of(object(job)))
        })
        .collect()
}

/// Narrows what the pods of one role ask for by what the cluster adds: volumes and nodes to avoid.
#[must_use]
pub fn narrowed(ask: PodAsk, by: impl FnOnce(Constraints) -> Constraints) -> PodAsk {
    PodAsk { constraints: by(ask.constraints), ..ask }
}

/// What a job inherits.
#[derive(Clone, Copy, Debug)]
pub struct Inherited<'a> {
    /// Annotations of its namespace.
    pub namespace: Option<&'a BTreeMap<String, String>>,
    /// The Queue it goes to, if that exists.
    pub queue: Option<&'a Queue>,
    /// The cluster's priority classes.
    pub classes: &'a PriorityClasses,
}

/// The job as the planner reads it; `shapes` are those of its roles, in order.
///
/// # Errors
/// If its queue or its class does not exist, or a number of it is out of range.
pub fn spec(
    job: &TrainingJob,
    inherited: Inherited<'_>,
    shapes: &[ShapeIdx],
    state: &ClusterState,
) -> Result<JobSpec, TranslateError> {
    let queue = queue_name(job, inherited.namespace);
    let queue =
        state.find_queue(queue).ok_or_else(|| Fault::UnknownQueue(queue.to_owned()).at(object(job), "spec.queue"))?;
    let spec = &job.spec;
    let roles = spec.roles.iter().zip(shapes).enumerate();
    Ok(JobSpec {
        key: crate::key_of(job).into(),
        uid: job.metadata.uid.as_deref().unwrap_or_default().into(),
        user: user(job).into(),
        queue,
        priority: priority(job, inherited)?.into(),
        preemptible: spec.preemptible,
        max_runtime: time::limit(max_runtime(job, inherited.queue)),
        grace: grace(job),
        expected_runtime: spec.expected_runtime.map(time::span),
        checkpoint_every: spec.checkpoint.and_then(|c| c.every).map(time::span),
        locality: Locality {
            required: spec.topology.required.as_deref().map(Into::into),
            preferred: spec.topology.preferred.as_deref().map(Into::into),
            patience: time::span(spec.topology.patience),
        },
        communication: communication(spec.communication),
        resizable: !matches!(spec.rendezvous.kind, RendezvousKind::Jax | RendezvousKind::Mpi),
        replaces_members: spec.failure_policy.on_pod_failure == FailureAction::ReplacePod,
        roles: roles.map(|(row, (role, shape))| one_role(job, row, role, *shape)).collect::<Result<_, _>>()?,
    })
}

/// The value of a job's class; 0 without any.
///
/// # Errors
/// If it names one that does not exist.
pub fn priority(job: &TrainingJob, inherited: Inherited<'_>) -> Result<i32, TranslateError> {
    let Some(class) = priority_class(job, inherited.queue, inherited.classes) else { return Ok(0) };
    let unknown = || Fault::UnknownPriorityClass(class.to_owned()).at(object(job), "spec.priorityClassName");
    inherited.classes.value(class).ok_or_else(unknown)
}

fn one_role(job: &TrainingJob, row: usize, role: &SpecRole, shape: ShapeIdx) -> Result<Role, TranslateError> {
    let count = |number: i32, field: &str| {
        u32::try_from(number).ok().filter(|n| *n > 0).ok_or_else(|| {
            let fault = Fault::Range { value: number.to_string(), accepted: "write a number of at least 1" };
            fault.at(object(job), format!("spec.roles[{row}].{field}"))
        })
    };
    let slice = match &role.slice {
        Some(slice) => Some(Slice { size: count(slice.size, "slice.size")?, within: slice.within.as_str().into() }),
        None => None,
    };
    let replicas = count(role.replicas, "replicas")?;
    let floor = count(role.floor(), "minReplicas")?.min(replicas);
    Ok(Role { name: Arc::from(role.name.as_str()), shape, replicas, floor, slice })
}

fn communication(pattern: v1alpha1::Communication) -> Communication {
    match pattern {
        v1alpha1::Communication::AllReduce => Communication::AllReduce,
        v1alpha1::Communication::AllToAll => Communication::AllToAll,
        v1alpha1::Communication::Pipeline => Communication::Pipeline,
        v1alpha1::Communication::ParameterServer => Communication::ParameterServer,
        v1alpha1::Communication::Independent => Communication::Independent,
    }
}

/// Rank of the first pod of a role: the replicas of the roles before it.
#[must_use]
pub fn first_rank(job: &TrainingJob, role: usize) -> i64 {
    job.spec.roles.iter().take(role).map(|r| i64::from(r.replicas)).sum()
}

/// Role and index of a rank, if the job has it.
#[must_use]
pub fn seat_of_rank(job: &TrainingJob, rank: i64) -> Option<(usize, i32)> {
    let mut left = rank;
    for (row, role) in job.spec.roles.iter().enumerate() {
        if (0..i64::from(role.replicas)).contains(&left) {
            return Some((row, i32::try_from(left).ok()?));
        }
        left -= i64::from(role.replicas);
    }
    None
}

/// Longest host name that the job's pods get; the API server takes 63 characters.
#[must_use]
pub fn longest_host_name(job: &TrainingJob) -> String {
    let name = job.metadata.name.as_deref().unwrap_or_default();
    let names = job.spec.roles.iter().map(|r| naming::host_name(name, &r.name, r.replicas.saturating_sub(1).max(0)));
    names.max_by_key(String::len).unwrap_or_default()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use serde_json::{Value, json};

    /// A job of two roles with what is given merged over it.
    pub(crate) fn mk_job(spec: Value) -> TrainingJob {
        let template = json!({"spec": {"containers": [{"name": "main", "image": "x", "resources": {"requests": {"nvidia.com/gpu": "8"}}}]}});
        let mut whole = json!({"queue": "a", "roles": [
            {"name": "launcher", "replicas": 1, "template": template},
            {"name": "worker", "replicas": 4, "minReplicas": 2, "template": template},
        ]});
        whole.as_object_mut().expect("an object").extend(spec.as_object().expect("an object").clone());
        serde_json::from_value(json!({
            "apiVersion": "berth.dev/v1alpha1", "kind": "TrainingJob",
            "metadata": {"name": "llama", "namespace": "team-a", "uid": "job-uid"}, "spec": whole,
        }))
        .expect("a TrainingJob")
    }

    fn mk_class(name: &str, value: i32, default: bool) -> PriorityClass {
        let meta = k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
            name: Some(name.into()),
            ..Default::default()
        };
        PriorityClass { metadata: meta, value, global_default: Some(default), ..PriorityClass::default() }
    }

    fn mk_state() -> ClusterState {
        let mut state = ClusterState::new();
        state.set_queue(planner::queue::Queue::open("a", planner::QueueIdx::ROOT));
        state
    }

    fn read(job: &TrainingJob, classes: &PriorityClasses) -> Result<JobSpec, TranslateError> {
        spec(job, Inherited { namespace: None, queue: None, classes }, &[ShapeIdx(0), ShapeIdx(0)], &mk_state())
    }

    #[test]
    fn a_job_is_read_whole() {
        let job = mk_job(json!({
            "maxRuntime": "2h", "expectedRuntime": "90m", "topology": {"required": "rack", "patience": "10m"},
            "rendezvous": {"kind": "Jax"}, "checkpoint": {"every": "30m", "gracePeriod": "60s"},
            "failurePolicy": {"onPodFailure": "ReplacePod"}, "communication": "Pipeline",
        }));
        let spec = read(&job, &PriorityClasses::default()).expect("readable");
        assert_eq!((&*spec.key, &*spec.uid, spec.priority), ("team-a/llama", "job-uid", 0));
        assert_eq!((spec.floor(), spec.replicas(), spec.first_rank(1)), (3, 5, 1));
        assert_eq!(spec.window(), Span::from_secs(7260));
        assert_eq!((spec.resizable, spec.replaces_members), (false, true));
        assert_eq!(spec.locality.required.as_deref(), Some("rack"));
        assert_eq!(spec.communication, Communication::Pipeline);
    }

    #[test]
    fn what_a_job_does_not_say_it_inherits() {
        let classes = PriorityClasses::of(&[mk_class("low", 10, true), mk_class("high", 100, false)]);
        let queue: Queue = serde_json::from_value(json!({
            "apiVersion": "berth.dev/v1alpha1", "kind": "Queue", "metadata": {"name": "a"},
            "spec": {"defaults": {"maxRuntime": "1h", "priorityClassName": "high"}},
        }))
        .expect("a Queue");
        let job = mk_job(json!({"queue": Value::Null}));
        let noted = BTreeMap::from([(annotations::QUEUE.to_owned(), "a".to_owned())]);
        assert_eq!((queue_name(&job, Some(&noted)), queue_name(&job, None)), ("a", "default"));
        let inherited = Inherited { namespace: Some(&noted), queue: Some(&queue), classes: &classes };
        let read = spec(&job, inherited, &[ShapeIdx(0); 2], &mk_state()).expect("readable");
        assert_eq!((read.priority, read.max_runtime), (100, Span::from_secs(3600)));
        assert_eq!(priority(&job, Inherited { queue: None, ..inherited }), Ok(10), "the global default is last");
        let own = mk_job(json!({"priorityClassName": "low", "maxRuntime": "5m"}));
        let read = spec(&own, inherited, &[ShapeIdx(0); 2], &mk_state()).expect("readable");
        assert_eq!((read.priority, read.max_runtime), (10, Span::from_secs(300)));
    }

    #[test]
    fn unknown_queues_and_classes_are_named() {
        let error = read(&mk_job(json!({"queue": "nobody"})), &PriorityClasses::default()).expect_err("no such queue");
        assert_eq!(error.fault.code(), crds::Code::UnknownQueue);
        assert!(error.to_string().starts_with("TrainingJob team-a/llama: spec.queue: queue \"nobody\""), "{error}");
        let error =
            read(&mk_job(json!({"priorityClassName": "vip"})), &PriorityClasses::default()).expect_err("no class");
        assert_eq!(error.fault.code(), crds::Code::UnknownPriorityClass);
    }

    #[test]
    fn grace_is_the_job_s_else_the_longest_template_s_else_half_a_minute() {
        assert_eq!(grace(&mk_job(json!({}))), Span::from_secs(30));
        let template = |secs: i64| json!({"spec": {"containers": [], "terminationGracePeriodSeconds": secs}});
        let roles = json!([{"name": "a", "replicas": 1, "template": template(5)}, {"name": "b", "replicas": 1, "template": template(90)}]);
        assert_eq!(grace(&mk_job(json!({"roles": roles}))), Span::from_secs(90));
        assert_eq!(grace(&mk_job(json!({"roles": roles, "checkpoint": {"gracePeriod": "0s"}}))), Span::ZERO);
    }

    #[test]
    fn ranks_run_through_the_roles_in_order() {
        let job = mk_job(json!({}));
        assert_eq!((first_rank(&job, 0), first_rank(&job, 1)), (0, 1));
        assert_eq!((seat_of_rank(&job, 0), seat_of_rank(&job, 4)), (Some((0, 0)), Some((1, 3))));
        assert_eq!((seat_of_rank(&job, 5), seat_of_rank(&job, -1)), (None, None));
    }

    #[test]
    fn a_template_that_cannot_be_read_is_named_by_role() {
        let template = json!({"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "two"}}}]}});
        let job = mk_job(json!({"roles": [{"name": "a", "replicas": 1, "template": template}]}));
        let error = asks(&job).expect_err("no quantity").to_string();
        let path = "spec.roles[0].template.spec.containers[0].resources.requests[cpu]";
        assert!(error.starts_with(&format!("TrainingJob team-a/llama: {path}: ")), "{error}");
    }
}
