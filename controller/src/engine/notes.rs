//! Events: what users read with `kubectl describe`. They wait in a bounded queue and are dropped, and counted, when it
//! is full; nothing depends on them.

use super::Engine;
use crate::commit::Executor;
use crate::commit::writes::Note;
use crate::metrics::Metrics;
use crds::{Code, TrainingJob};
use k8s_openapi::api::core::v1::ObjectReference;
use kube::Resource;
use std::sync::Arc;
use tokio::sync::mpsc;

/// Events that may wait.
const WAITING_MAX: usize = 2048;

/// Where events are left.
pub(super) struct Notebook {
    sender: mpsc::Sender<Note>,
    metrics: Arc<Metrics>,
}

impl Notebook {
    /// Begins the task that records events, one after the other.
    #[must_use]
    pub(super) fn open(executor: Executor, instance: &str, metrics: Arc<Metrics>) -> Self {
        let (sender, mut receiver) = mpsc::channel::<Note>(WAITING_MAX);
        // The API allows 128 characters here.
        let recorder = executor.recorder(&instance.chars().take(128).collect::<String>());
        tokio::spawn(async move {
            while let Some(note) = receiver.recv().await {
                executor.note(&recorder, &note).await;
            }
        });
        Self { sender, metrics }
    }

    fn write(&self, note: Note) {
        if self.sender.try_send(note).is_err() {
            self.metrics.event_dropped();
        }
    }
}

impl Engine {
    /// Tells the users of a job something.
    pub(super) fn note_job(&self, key: &str, warning: bool, code: Code, message: &str) {
        let Some(job) = self.world.index.jobs.get(key) else { return };
        self.note(reference(job), warning, code, message);
    }

    /// Tells the users of any object something.
    pub(super) fn note(&self, about: ObjectReference, warning: bool, code: Code, message: &str) {
        self.notebook.write(Note {
            about,
            warning,
            reason: code.as_str().to_owned(),
            message: message.to_owned(),
            action: "Reconcile",
        });
    }
}

fn reference(job: &TrainingJob) -> ObjectReference {
    let mut reference = job.object_ref(&());
    reference.resource_version = None;
    reference
}
