//! Writes that decide nothing: statuses, finalizers, events, and the end of finished jobs. Each is made only when it
//! changes something.

use super::executor::Executor;
use super::request::Fault;
use crds::{Berth, Queue, Topology, TrainingJob, names::FIELD_MANAGER};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::api::{Api, DeleteParams, Patch, PatchParams, Preconditions};
use kube::{Resource, ResourceExt};
use kube_runtime::events::{Event, EventType, Recorder, Reporter};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Map, Value, json};
use std::fmt::Debug;
use std::sync::Arc;

/// A status to be written: only what differs is sent.
#[derive(Clone, Debug, PartialEq)]
pub struct StatusWrite {
    /// Whose.
    pub target: Target,
    /// What it was when last seen.
    pub old: Value,
    /// What it is to be.
    pub new: Value,
}

/// What a status write came to: the object as it is now, to be taken in before the watch shows it.
#[derive(Clone, Debug)]
pub enum Written {
    /// There was nothing to write, or nobody needs the answer.
    Nothing,
    /// A job.
    Job(Arc<TrainingJob>),
    /// A Berth.
    Berth(Arc<Berth>),
}

/// The object a write is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Target {
    /// Kind.
    pub kind: Kind,
    /// Namespace; empty for cluster-wide kinds.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Uid. Servers look at it only for built-in kinds: the owner must not let go of an object that it still writes to.
    pub uid: String,
}

/// Kinds with a status of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// `TrainingJob`.
    Job,
    /// `Berth`.
    Berth,
    /// `Queue`.
    Queue,
    /// `Topology`.
    Topology,
}

/// An event to be recorded.
#[derive(Clone, Debug, PartialEq)]
pub struct Note {
    /// What it is about.
    pub about: ObjectReference,
    /// Whether it is trouble.
    pub warning: bool,
    /// One of the closed table of codes.
    pub reason: String,
    /// The same in words.
    pub message: String,
    /// What we did about it.
    pub action: &'static str,
}

impl Executor {
    /// Writes a status, if it differs.
    ///
    /// # Errors
    /// As every request; [`Fault::NotFound`] and [`Fault::Conflict`]: the object is gone.
    pub async fn write_status(&self, write: &StatusWrite) -> Result<Written, Fault> {
        let unchanged = crate::sabotage::is(crate::sabotage::Sabotage::StatusEveryTurn).then(|| json!({}));
        let Some(difference) = merge_difference(&write.old, &write.new).or(unchanged) else {
            return Ok(Written::Nothing);
        };
        let body = json!({"metadata": {"uid": write.target.uid}, "status": difference});
        let Target { kind, namespace, name, .. } = &write.target;
        match kind {
            Kind::Job => self.patch_status("TrainingJob", &self.api(namespace), name, &body).await.map(Written::Job),
            Kind::Berth => self.patch_status("Berth", &self.api(namespace), name, &body).await.map(Written::Berth),
            Kind::Queue => {
                let api: Api<Queue> = Api::all(self.client());
                self.patch_status("Queue", &api, name, &body).await.map(|_| Written::Nothing)
            }
            Kind::Topology => {
                let api: Api<Topology> = Api::all(self.client());
                self.patch_status("Topology", &api, name, &body).await.map(|_| Written::Nothing)
            }
        }
    }

    async fn patch_status<K: Clone + Debug + DeserializeOwned>(
        &self,
        kind: &'static str,
        api: &Api<K>,
        name: &str,
        body: &Value,
    ) -> Result<Arc<K>, Fault> {
        let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        let patch = Patch::Merge(body);
        self.write("status", kind, api.patch_status(name, &params, &patch)).await.map(Arc::new)
    }

    /// Sets the finalizers of a job, as seen at a resourceVersion.
    ///
    /// # Errors
    /// As every request.
    pub async fn set_job_finalizers(
        &self,
        job: &TrainingJob,
        finalizers: &[String],
    ) -> Result<Arc<TrainingJob>, Fault> {
        let body = json!({"metadata": {
            "uid": job.metadata.uid, "resourceVersion": job.metadata.resource_version, "finalizers": finalizers,
        }});
        let api: Api<TrainingJob> = self.api(job.metadata.namespace.as_deref().unwrap_or_default());
        let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        let request = async { api.patch(&job.name_any(), &params, &Patch::Merge(body)).await };
        self.write("patch", "TrainingJob", request).await.map(Arc::new)
    }

    /// Reads a job from the server itself.
    ///
    /// # Errors
    /// As every request.
    pub async fn read_job(&self, job: &TrainingJob) -> Result<Arc<TrainingJob>, Fault> {
        let api: Api<TrainingJob> = self.api(job.metadata.namespace.as_deref().unwrap_or_default());
        self.read(async { api.get(&job.name_any()).await }).await.map(Arc::new)
    }

    /// Deletes exactly this object (a finished job whose time is over, an old Berth).
    ///
    /// # Errors
    /// As every request; [`Fault::NotFound`] and [`Fault::Conflict`]: it is gone already.
    pub async fn delete<K>(&self, kind: &'static str, namespace: &str, name: &str, uid: &str) -> Result<(), Fault>
    where
        K: Resource<Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned + Serialize,
        K::DynamicType: Default,
    {
        let preconditions = Preconditions { uid: Some(uid.to_owned()), resource_version: None };
        let params = DeleteParams::background().preconditions(preconditions);
        let api: Api<K> = self.api(namespace);
        self.write("delete", kind, api.delete(name, &params)).await.map(|_| ())
    }

    /// Records an event; what goes wrong with one is only counted.
    pub async fn note(&self, recorder: &Recorder, note: &Note) {
        let event = Event {
            type_: if note.warning { EventType::Warning } else { EventType::Normal },
            reason: note.reason.clone(),
            // The API allows 1 KiB.
            note: Some(note.message.chars().take(1000).collect()),
            action: note.action.to_owned(),
            secondary: None,
        };
        let _ = self.write("create", "Event", recorder.publish(&event, &note.about)).await;
    }

    /// The recorder of our events.
    #[must_use]
    pub fn recorder(&self, instance: &str) -> Recorder {
        let reporter = Reporter { controller: "berth-controller".to_owned(), instance: Some(instance.to_owned()) };
        Recorder::new(self.client(), reporter)
    }
}

/// The JSON merge patch that makes `new` of `old`; none if they are equal.
#[must_use]
pub fn merge_difference(old: &Value, new: &Value) -> Option<Value> {
    let (Value::Object(old), Value::Object(new)) = (old, new) else {
        return (old != new).then(|| new.clone());
    };
    let mut difference = Map::new();
    for (key, value) in new {
        match old.get(key) {
            None => {
                difference.insert(key.clone(), value.clone());
            }
            Some(before) => {
                if let Some(change) = merge_difference(before, value) {
                    difference.insert(key.clone(), change);
                }
            }
        }
    }
    for key in old.keys().filter(|k| !new.contains_key(*k)) {
        difference.insert(key.clone(), Value::Null);
    }
    (!difference.is_empty()).then_some(Value::Object(difference))
}
