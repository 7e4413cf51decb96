//! Submissions and edits as the API server judges them: schema, the CRD's own rules, then admission, by the webhook's own
//! code.

use super::store::Store;
use admission::{Defaults, JobChange, World, validate_training_job};
use crds::names::{NAMESPACE, annotations};
use crds::{Code, TrainingJob};
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::scheduling::v1::PriorityClass;
use serde_json::Value;

/// Why a submission or an edit was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// One of the closed table.
    pub code: String,
    /// In words.
    pub message: String,
}

/// The judge, with its picture of the cluster.
pub struct Gate {
    world: World,
}

impl Gate {
    /// A judge of the objects at time 0.
    pub fn of<'a>(store: &Store, classes: impl IntoIterator<Item = &'a PriorityClass>) -> Self {
        let mut world = World::new(NAMESPACE);
        for class in classes {
            world.set_priority_class(class.clone());
        }
        store.topologies.values().for_each(|t| world.set_topology(t.clone()));
        store.queues.values().for_each(|q| world.set_queue(q.clone()));
        store.nodes.values().for_each(|n| world.set_node(n.clone()));
        store.namespaces.values().for_each(|n| world.set_namespace(n));
        Self { world }
    }

    /// A node changed.
    pub fn see_node(&mut self, store: &Store, name: &str) {
        if let Some(node) = store.nodes.get(name) {
            self.world.set_node(node.clone());
        }
    }

    /// A queue changed.
    pub fn see_queue(&mut self, store: &Store, name: &str) {
        if let Some(queue) = store.queues.get(name) {
            self.world.set_queue(queue.clone());
        }
    }

    /// A job came, changed or went.
    pub fn see_job(&mut self, store: &Store, key: &str) {
        match store.jobs.get(key) {
            Some(job) => self.world.set_job(job),
            None => self.world.remove_job(key),
        }
    }

    /// Judges a manifest; `old` is the stored job it changes.
    ///
    /// # Errors
    /// If it is refused.
    pub fn judge(&mut self, manifest: &Value, old: Option<&TrainingJob>) -> Result<TrainingJob, Refusal> {
        let mut job: TrainingJob = serde_path_to_error::deserialize(manifest.clone())
            .map_err(|e| refusal(Code::InvalidSpec, format!("{}: {}", e.path(), e.inner())))?;
        self.know_namespace(&job);
        if old.is_none() {
            let user = job.metadata.annotations.as_ref().and_then(|a| a.get(annotations::USER)).cloned();
            Defaults::of(&job, &user.unwrap_or_default(), &self.world).apply(&mut job);
        }
        let verdict = validate_training_job(JobChange { new: &job, old, raw: Some(manifest) }, &self.world);
        match verdict.rejections.first() {
            Some(first) => Err(refusal(first.code, verdict.message())),
            None => Ok(job),
        }
    }

    /// A namespace that the file does not describe is a plain one.
    fn know_namespace(&mut self, job: &TrainingJob) {
        let name = job.metadata.namespace.clone().unwrap_or_else(|| "default".into());
        if self.world.namespace(&name).is_none() {
            let mut namespace = Namespace::default();
            namespace.metadata.name = Some(name);
            self.world.set_namespace(&namespace);
        }
    }
}

fn refusal(code: Code, message: String) -> Refusal {
    Refusal { code: code.as_str().to_owned(), message }
}
