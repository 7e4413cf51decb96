//! What the commit protocol asks of the API server, and what it may hear back. Data only.

use crds::Berth;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret, Service};
use std::sync::Arc;
use std::time::Duration;

/// One request of the protocol. A batch of pod calls is one request; its calls are made concurrently.
#[derive(Clone, Debug, PartialEq)]
pub enum Request {
    /// Create the journal entry.
    CreateBerth(Arc<Berth>),
    /// Replace the journal entry; its resourceVersion and uid are preconditions.
    UpdateBerth(Arc<Berth>),
    /// Read the journal entry from the server itself.
    ReadBerth {
        /// Namespace.
        namespace: String,
        /// Name.
        name: String,
    },
    /// Delete a journal entry that never held anything (a dropped reservation).
    DeleteBerth {
        /// Namespace.
        namespace: String,
        /// Name.
        name: String,
        /// Never a namesake.
        uid: String,
        /// Never after a change that we have not seen.
        resource_version: String,
    },
    /// Create what the pods need beside them.
    CreateCompanion(Companion),
    /// Read it from the server itself.
    ReadCompanion(Companion),
    /// Make a companion of ours that stands already say what it is to say now.
    RefreshCompanion(Companion),
    /// Choose the node that a claim's volume is made for.
    SelectNode(Selection),
    /// Ask the server whether it would take this pod, without making it.
    Probe(Arc<Pod>),
    /// List the pods of a Berth by its label, from the server itself.
    ListPods {
        /// Namespace.
        namespace: String,
        /// Name of the Berth.
        berth: String,
    },
    /// Pod calls, made concurrently; answered in the same order.
    Pods(Vec<PodCall>),
}

/// One call about one pod.
#[derive(Clone, Debug, PartialEq)]
pub enum PodCall {
    /// Create it, already bound.
    Create(Arc<Pod>),
    /// Read it after a create whose outcome is unknown.
    Read {
        /// Namespace.
        namespace: String,
        /// Name.
        name: String,
    },
    /// Delete exactly this one.
    Delete(Member),
}

/// A pod that exists.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Member {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Uid: a namesake is never touched.
    pub uid: String,
    /// Seconds between the stop signal and the kill; none: the pod's own.
    pub grace_seconds: Option<u32>,
}

/// A claim whose volume is to be made where its first pod runs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Selection {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Uid: a namesake is never touched.
    pub uid: String,
    /// The node.
    pub node: String,
}

/// An object the pods need beside them; it belongs to the job.
#[derive(Clone, Debug, PartialEq)]
pub enum Companion {
    /// The headless Service that names the pods.
    Service(Arc<Service>),
    /// Mpi host file.
    ConfigMap(Arc<ConfigMap>),
    /// Mpi keys.
    Secret(Arc<Secret>),
}

impl Companion {
    /// Its metadata.
    #[must_use]
    pub fn metadata(&self) -> &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
        match self {
            Self::Service(object) => &object.metadata,
            Self::ConfigMap(object) => &object.metadata,
            Self::Secret(object) => &object.metadata,
        }
    }

    /// Kind, for messages.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Service(_) => "Service",
            Self::ConfigMap(_) => "ConfigMap",
            Self::Secret(_) => "Secret",
        }
    }

    /// Uid of the controlling owner.
    #[must_use]
    pub fn owner_uid(&self) -> Option<&str> {
        super::owner_uid(self.metadata())
    }
}

/// A request, to be made after a pause.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// Wait this long first: back-off after trouble.
    pub after: Duration,
    /// The request.
    pub request: Request,
}

impl Call {
    /// A call without a pause.
    #[must_use]
    pub fn now(request: Request) -> Self {
        Self { after: Duration::ZERO, request }
    }
}

/// What came of a request. The variant matches the request's.
#[derive(Clone, Debug)]
pub enum Answer {
    /// To any request about a Berth but a delete.
    Berth(Result<Arc<Berth>, Fault>),
    /// To a probe: the pod as it would be.
    Probed(Result<Arc<Pod>, Fault>),
    /// To a delete, the creation of a companion, or the choice of a node.
    Done(Result<(), Fault>),
    /// To a read of a companion: the uid of its controlling owner.
    Companion(Result<Option<String>, Fault>),
    /// To a list of pods.
    Listed(Result<Vec<Arc<Pod>>, Fault>),
    /// To pod calls, one for each, in order. A delete that went through answers with no pod.
    Pods(Vec<Result<Option<Arc<Pod>>, Fault>>),
}

/// Why a request did not simply succeed.
#[derive(Clone, Debug, PartialEq)]
pub enum Fault {
    /// 404.
    NotFound,
    /// 409 AlreadyExists.
    Exists,
    /// 409 Conflict: resourceVersion or uid differ.
    Conflict,
    /// The server definitely refused; nothing was changed.
    Refused(Refusal),
    /// The server is busy and nothing was changed (429): again after this pause.
    Busy(Duration),
    /// It may or may not have been done: timeout, 5xx, connection lost.
    Unknown(String),
    /// We are no longer the leader for long enough: nothing was sent.
    Fenced,
    /// Not sent, because an earlier call of the batch was refused.
    NotSent,
}

/// A definite no, in the server's words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// HTTP status.
    pub status: u16,
    /// Kubernetes' reason.
    pub reason: String,
    /// The server's message.
    pub message: String,
}

impl Refusal {
    /// Whether a ResourceQuota refused.
    #[must_use]
    pub fn is_quota(&self) -> bool {
        self.status == 403 && self.message.contains("exceeded quota")
    }
}
