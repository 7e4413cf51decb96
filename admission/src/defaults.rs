//! What a job gets when it is made and does not say: who made it, its queue, that queue's defaults, and the finalizer that
//! lets nothing of it be left behind. The controller sets it too where it is missing, which costs a write a job.

use crate::world::World;
use crds::Duration;
use crds::names::{annotations, finalizers};
use crds::v1alpha1::TrainingJob;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// What is filled in. Written into the object, so that everybody reads the same later.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Defaults {
    /// Who made it; replaces what the object claims.
    pub user: String,
    /// Its queue, where it names none.
    pub queue: Option<String>,
    /// Its limit, where it names none and its queue has a default.
    pub max_runtime: Option<Duration>,
    /// Its class, where it names none and its queue has a default.
    pub priority_class_name: Option<String>,
}

impl Defaults {
    /// What a job made by `user` gets.
    #[must_use]
    pub fn of(job: &TrainingJob, user: &str, world: &World) -> Self {
        let namespace = job.metadata.namespace.as_deref().and_then(|n| world.namespace(n));
        let name = translate::job::queue_name(job, namespace.map(|n| &n.annotations));
        let queue = world.queue(name);
        let defaults = queue.map(|q| &q.spec.defaults);
        Self {
            user: user.to_owned(),
            queue: job.spec.queue.is_none().then(|| name.to_owned()),
            max_runtime: defaults.and_then(|d| d.max_runtime).filter(|_| job.spec.max_runtime.is_none()),
            priority_class_name: defaults
                .and_then(|d| d.priority_class_name.clone())
                .filter(|_| job.spec.priority_class_name.is_none()),
        }
    }

    /// Fills a job in.
    pub fn apply(self, job: &mut TrainingJob) {
        job.metadata.annotations.get_or_insert_default().insert(annotations::USER.to_owned(), self.user);
        let spec = &mut job.spec;
        spec.queue = spec.queue.take().or(self.queue);
        spec.max_runtime = spec.max_runtime.or(self.max_runtime);
        spec.priority_class_name = spec.priority_class_name.take().or(self.priority_class_name);
        let all = job.metadata.finalizers.get_or_insert_default();
        if !all.iter().any(|f| f == finalizers::JOB) {
            all.push(finalizers::JOB.to_owned());
        }
    }

    /// The same as a JSON patch of the object as it was sent, which may hold fields that we do not know.
    #[must_use]
    pub fn patch(&self, raw: &Value) -> Vec<Value> {
        let mut operations = Vec::new();
        let mut add = |path: &str, value: Value| operations.push(json!({"op": "add", "path": path, "value": value}));
        if raw.pointer("/metadata/annotations").is_none_or(Value::is_null) {
            add("/metadata/annotations", json!(BTreeMap::from([(annotations::USER, &self.user)])));
        } else {
            add(&format!("/metadata/annotations/{}", annotations::USER.replace('/', "~1")), json!(self.user));
        }
        match raw.pointer("/metadata/finalizers").and_then(Value::as_array) {
            None => add("/metadata/finalizers", json!([finalizers::JOB])),
            Some(all) if all.iter().any(|f| f == finalizers::JOB) => {}
            Some(_) => add("/metadata/finalizers/-", json!(finalizers::JOB)),
        }
        if let Some(queue) = &self.queue {
            add("/spec/queue", json!(queue));
        }
        if let Some(limit) = self.max_runtime {
            add("/spec/maxRuntime", json!(limit));
        }
        if let Some(class) = &self.priority_class_name {
            add("/spec/priorityClassName", json!(class));
        }
        operations
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mk_world() -> World {
        let mut world = World::new("berth-system");
        world.set_queue(
            serde_json::from_value(json!({
                "apiVersion": "berth.dev/v1alpha1", "kind": "Queue", "metadata": {"name": "a"},
                "spec": {"defaults": {"maxRuntime": "24h", "priorityClassName": "normal"}},
            }))
            .expect("a Queue"),
        );
        let namespace = json!({"metadata": {"name": "team-a", "annotations": {"berth.dev/queue": "a"}}});
        world.set_namespace(&serde_json::from_value(namespace).expect("a Namespace"));
        world
    }

    fn mk_job(spec: &Value, notes: &Value) -> (TrainingJob, Value) {
        let mut whole =
            json!({"roles": [{"name": "w", "replicas": 1, "template": {"spec": {"containers": [{"name": "c"}]}}}]});
        whole.as_object_mut().expect("an object").extend(spec.as_object().expect("an object").clone());
        let raw = json!({"apiVersion": "berth.dev/v1alpha1", "kind": "TrainingJob",
            "metadata": {"name": "j", "namespace": "team-a", "annotations": notes}, "spec": whole});
        (serde_json::from_value(raw.clone()).expect("a TrainingJob"), raw)
    }

    #[test]
    fn a_job_that_says_nothing_gets_its_queue_s_defaults_and_its_maker() {
        let (mut job, raw) = mk_job(&json!({}), &Value::Null);
        let defaults = Defaults::of(&job, "alice", &mk_world());
        let paths: Vec<String> =
            defaults.patch(&raw).iter().map(|p| p["path"].as_str().expect("a path").to_owned()).collect();
        let wanted = [
            "/metadata/annotations",
            "/metadata/finalizers",
            "/spec/queue",
            "/spec/maxRuntime",
            "/spec/priorityClassName",
        ];
        assert_eq!(paths, wanted);
        defaults.apply(&mut job);
        assert_eq!(job.spec.queue.as_deref(), Some("a"));
        assert_eq!(job.spec.max_runtime, Some(Duration::from_hours(24)));
        assert_eq!(job.spec.priority_class_name.as_deref(), Some("normal"));
        assert_eq!(translate::job::user(&job), "alice");
    }

    #[test]
    fn a_finalizer_joins_those_that_are_there_and_only_once() {
        let (job, mut raw) = mk_job(&json!({}), &Value::Null);
        let on_finalizers = |raw: &Value| -> Vec<Value> {
            let all = Defaults::of(&job, "alice", &mk_world()).patch(raw);
            all.into_iter().filter(|p| p["path"].as_str().is_some_and(|p| p.contains("finalizers"))).collect()
        };
        raw["metadata"]["finalizers"] = json!(["example.com/other"]);
        assert_eq!(
            on_finalizers(&raw),
            [json!({"op": "add", "path": "/metadata/finalizers/-", "value": finalizers::JOB})]
        );
        raw["metadata"]["finalizers"] = json!([finalizers::JOB]);
        assert_eq!(on_finalizers(&raw), [json!(null); 0]);
    }

    #[test]
    fn nobody_submits_in_another_s_name_and_what_is_said_stays() {
        let spec = json!({"queue": "b", "maxRuntime": "1h", "priorityClassName": "low"});
        let (mut job, raw) = mk_job(&spec, &json!({"berth.dev/user": "bob"}));
        let defaults = Defaults::of(&job, "alice", &mk_world());
        let patch = defaults.patch(&raw);
        let user = json!({"op": "add", "path": "/metadata/annotations/berth.dev~1user", "value": "alice"});
        let held = json!({"op": "add", "path": "/metadata/finalizers", "value": [finalizers::JOB]});
        assert_eq!(patch, [user, held]);
        defaults.apply(&mut job);
        assert_eq!((translate::job::user(&job), job.spec.queue.as_deref()), ("alice", Some("b")));
    }
}
