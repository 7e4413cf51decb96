//! Carries the requests of the protocol out against the API server: bounded concurrency, a time limit and a fence check
//! before each write, and one reading of every answer. It decides nothing.

use super::machine::Machine;
use super::operation::{Operation, Outcome};
use super::request::{Answer, Call, Companion, Fault, Member, PodCall, Refusal, Request, Selection};
use crate::metrics::Metrics;
use crds::{Berth, names::FIELD_MANAGER, names::annotations, names::labels};
use futures::{StreamExt, stream};
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Pod, Secret, Service};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions};
use kube::{Client, Resource};
use serde::de::DeserializeOwned;
use std::fmt::Debug;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::Semaphore;

/// Whether we may write.
pub trait Fence: Send + Sync {
    /// The leader epoch that our writes carry.
    fn epoch(&self) -> i64;
    /// Whether leadership is ours for at least this long from now.
    fn is_current_for(&self, span: Duration) -> bool;
}

/// The only holder of write verbs for pods, Berths and what goes with them.
#[derive(Clone)]
pub struct Executor {
    client: Client,
    fence: Arc<dyn Fence>,
    permits: Arc<Semaphore>,
    concurrency: usize,
    write_limit: Duration,
    metrics: Arc<Metrics>,
}

/// What an operation came to.
#[derive(Debug)]
pub struct Report {
    /// How it ended.
    pub outcome: Outcome,
    /// The Berth as last seen.
    pub berth: Option<Arc<Berth>>,
    /// Pods seen to exist.
    pub made: Vec<Arc<Pod>>,
    /// Requests made, for tests and traces.
    pub requests: u32,
}

impl Executor {
    /// An executor. The client must not retry by itself: the protocol knows better when to.
    #[must_use]
    pub fn new(
        client: Client,
        fence: Arc<dyn Fence>,
        concurrency: usize,
        write_limit: Duration,
        metrics: Arc<Metrics>,
    ) -> Self {
        Self { client, fence, permits: Arc::new(Semaphore::new(concurrency)), concurrency, write_limit, metrics }
    }

    /// Carries an operation out to its end.
    pub async fn run(&self, operation: Operation) -> Report {
        let (mut machine, mut call) = Machine::begin(operation);
        let mut requests = 0;
        while let Some(Call { after, request }) = call {
            if !after.is_zero() {
                tokio::time::sleep(after).await;
            }
            requests += 1;
            let answer = self.ask(request).await;
            (machine, call) = machine.step(answer);
        }
        let outcome = machine.outcome().cloned().unwrap_or(Outcome::Fenced);
        Report { outcome, berth: machine.berth().cloned(), made: machine.made().to_vec(), requests }
    }

    async fn ask(&self, request: Request) -> Answer {
        match request {
            Request::CreateBerth(berth) => Answer::Berth(self.create_berth(&berth).await),
            Request::UpdateBerth(berth) => Answer::Berth(self.update_berth(&berth).await),
            Request::ReadBerth { namespace, name } => {
                Answer::Berth(self.read(self.api::<Berth>(&namespace).get(&name)).await.map(Arc::new))
            }
            Request::DeleteBerth { namespace, name, uid, resource_version } => {
                let preconditions = Preconditions { uid: Some(uid), resource_version: Some(resource_version) };
                let params = DeleteParams::background().preconditions(preconditions);
                let api = self.api::<Berth>(&namespace);
                Answer::Done(self.write("delete", "Berth", api.delete(&name, &params)).await.map(|_| ()))
            }
            Request::CreateCompanion(companion) => Answer::Done(self.create_companion(&companion).await),
            Request::ReadCompanion(companion) => Answer::Companion(self.read_companion(&companion).await),
            Request::Probe(pod) => Answer::Probed(self.probe(&pod).await.map(Arc::new)),
            Request::RefreshCompanion(companion) => Answer::Done(self.refresh_companion(&companion).await),
            Request::SelectNode(selection) => Answer::Done(self.select_node(&selection).await),
            Request::ListPods { namespace, berth } => Answer::Listed(self.list_pods(&namespace, &berth).await),
            Request::Pods(calls) => Answer::Pods(self.pods(calls).await),
        }
    }

    async fn create_berth(&self, berth: &Berth) -> Result<Arc<Berth>, Fault> {
        let berth = self.stamped_berth(berth);
        let api = self.api::<Berth>(namespace_of(&berth.metadata));
        self.write("create", "Berth", api.create(&post(), &berth)).await.map(Arc::new)
    }

    async fn update_berth(&self, berth: &Berth) -> Result<Arc<Berth>, Fault> {
        let berth = self.stamped_berth(berth);
        let name = berth.metadata.name.clone().unwrap_or_default();
        let api = self.api::<Berth>(namespace_of(&berth.metadata));
        self.write("update", "Berth", api.replace(&name, &post(), &berth)).await.map(Arc::new)
    }

    async fn create_companion(&self, companion: &Companion) -> Result<(), Fault> {
        let namespace = namespace_of(companion.metadata());
        match companion {
            Companion::Service(object) => self
                .write("create", "Service", self.api::<Service>(namespace).create(&post(), object))
                .await
                .map(|_| ()),
            Companion::ConfigMap(object) => self
                .write("create", "ConfigMap", self.api::<ConfigMap>(namespace).create(&post(), object))
                .await
                .map(|_| ()),
            Companion::Secret(object) => {
                self.write("create", "Secret", self.api::<Secret>(namespace).create(&post(), object)).await.map(|_| ())
            }
        }
    }

    /// Only host files change: their lines are replaced, whatever they were.
    async fn refresh_companion(&self, companion: &Companion) -> Result<(), Fault> {
        let Companion::ConfigMap(object) = companion else { return Ok(()) };
        let metadata = &object.metadata;
        let body = serde_json::json!({"metadata": {"labels": metadata.labels}, "data": object.data});
        let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        let api = self.api::<ConfigMap>(namespace_of(metadata));
        let (name, patch) = (metadata.name.clone().unwrap_or_default(), Patch::Merge(body));
        self.write("patch", "ConfigMap", api.patch(&name, &params, &patch)).await.map(|_| ())
    }

    async fn read_companion(&self, companion: &Companion) -> Result<Option<String>, Fault> {
        let (namespace, name) =
            (namespace_of(companion.metadata()), companion.metadata().name.clone().unwrap_or_default());
        let metadata = match companion {
            Companion::Service(_) => self.read(self.api::<Service>(namespace).get(&name)).await?.metadata,
            Companion::ConfigMap(_) => self.read(self.api::<ConfigMap>(namespace).get(&name)).await?.metadata,
            Companion::Secret(_) => self.read(self.api::<Secret>(namespace).get(&name)).await?.metadata,
        };
        Ok(super::owner_uid(&metadata).map(str::to_owned))
    }

    /// What a scheduler would write when it has chosen the first pod's node.
    async fn select_node(&self, selection: &Selection) -> Result<(), Fault> {
        let body = serde_json::json!({"metadata": {
            "uid": selection.uid, "annotations": {annotations::SELECTED_NODE: selection.node},
        }});
        let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        let api = self.api::<PersistentVolumeClaim>(&selection.namespace);
        let patch = Patch::Merge(body);
        self.write("patch", "PersistentVolumeClaim", api.patch(&selection.name, &params, &patch)).await.map(|_| ())
    }

    /// Asks the server whether it would take this pod; answers with the pod as it would be.
    ///
    /// # Errors
    /// As every request.
    pub async fn probe(&self, pod: &Pod) -> Result<Pod, Fault> {
        let pod = self.stamped_pod(pod);
        let api = self.api::<Pod>(namespace_of(&pod.metadata));
        let params = PostParams { dry_run: true, ..post() };
        match self.write("dry-run", "Pod", api.create(&params, &pod)).await {
            // Some webhook cannot be asked without effects: that says nothing of the pod.
            Err(Fault::Refused(no)) if no.message.contains("does not support dry run") => {
                Err(Fault::Unknown(no.message))
            }
            answer => answer,
        }
    }

    async fn list_pods(&self, namespace: &str, berth: &str) -> Result<Vec<Arc<Pod>>, Fault> {
        // No resourceVersion: the list is read with quorum.
        let params = ListParams::default().labels(&format!("{}={berth}", labels::BERTH));
        let list = self.read(self.api::<Pod>(namespace).list(&params)).await?;
        Ok(list.items.into_iter().map(Arc::new).collect())
    }

    async fn pods(&self, calls: Vec<PodCall>) -> Vec<Result<Option<Arc<Pod>>, Fault>> {
        let refused = AtomicBool::new(false);
        let refused = &refused;
        let one = |(row, call): (usize, PodCall)| async move {
            // After a definite refusal the gang is lost anyway: do not make pods that only have to go again.
            if refused.load(Ordering::Relaxed) && matches!(call, PodCall::Create(_)) {
                return (row, Err(Fault::NotSent));
            }
            let answer = self.pod(call).await;
            if matches!(answer, Err(Fault::Refused(_))) {
                refused.store(true, Ordering::Relaxed);
            }
            (row, answer)
        };
        // As they come: a slow answer must not hold back the calls behind it. Then in the order of the calls again.
        let mut answers: Vec<_> =
            stream::iter(calls.into_iter().enumerate()).map(one).buffer_unordered(self.concurrency).collect().await;
        answers.sort_by_key(|(row, _)| *row);
        answers.into_iter().map(|(_, answer)| answer).collect()
    }

    async fn pod(&self, call: PodCall) -> Result<Option<Arc<Pod>>, Fault> {
        match call {
            PodCall::Create(pod) => {
                let pod = self.stamped_pod(&pod);
                let api = self.api::<Pod>(namespace_of(&pod.metadata));
                self.write("create", "Pod", api.create(&post(), &pod)).await.map(|p| Some(Arc::new(p)))
            }
            PodCall::Read { namespace, name } => {
                self.read(self.api::<Pod>(&namespace).get(&name)).await.map(|p| Some(Arc::new(p)))
            }
            PodCall::Delete(member) => self.delete_pod(&member).await,
        }
    }

    /// Deletes exactly this pod; answers with the pod as it is on its way out, if it does not go at once.
    ///
    /// # Errors
    /// As every request; [`Fault::NotFound`] and [`Fault::Conflict`] mean that it is gone already.
    pub async fn delete_pod(&self, member: &Member) -> Result<Option<Arc<Pod>>, Fault> {
        let params = DeleteParams {
            grace_period_seconds: member.grace_seconds,
            preconditions: (!crate::sabotage::is(crate::sabotage::Sabotage::NoUid))
                .then(|| Preconditions { uid: Some(member.uid.clone()), resource_version: None }),
            ..DeleteParams::background()
        };
        let api = self.api::<Pod>(&member.namespace);
        let answer = self.write("delete", "Pod", api.delete(&member.name, &params)).await?;
        Ok(answer.left().map(Arc::new))
    }

    pub(super) fn api<K>(&self, namespace: &str) -> Api<K>
    where
        K: Resource<Scope = kube::core::NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        Api::namespaced(self.client.clone(), namespace)
    }

    pub(super) fn client(&self) -> Client {
        self.client.clone()
    }

    /// A write: with a permit, within the limit, and only while leadership is sure to last as long.
    pub(super) async fn write<T>(
        &self,
        verb: &'static str,
        kind: &'static str,
        request: impl Future<Output = kube::Result<T>>,
    ) -> Result<T, Fault> {
        let Ok(_permit) = self.permits.acquire().await else { return Err(Fault::Fenced) };
        if !self.fence.is_current_for(self.write_limit) {
            return Err(Fault::Fenced);
        }
        let answer = self.timed(request).await;
        self.metrics.write(verb, kind, answer.as_ref().err().map_or("ok", Fault::label));
        answer
    }

    pub(super) async fn read<T: DeserializeOwned + Clone + Debug>(
        &self,
        request: impl Future<Output = kube::Result<T>>,
    ) -> Result<T, Fault> {
        let Ok(_permit) = self.permits.acquire().await else { return Err(Fault::Fenced) };
        self.timed(request).await
    }

    async fn timed<T>(&self, request: impl Future<Output = kube::Result<T>>) -> Result<T, Fault> {
        match tokio::time::timeout(self.write_limit, request).await {
            Ok(Ok(done)) => Ok(done),
            Ok(Err(error)) => Err(fault(error)),
            Err(_) => Err(Fault::Unknown(format!("no answer within {:?}", self.write_limit))),
        }
    }

    fn stamped_berth(&self, berth: &Berth) -> Berth {
        let mut berth = berth.clone();
        berth.spec.leader_epoch = self.fence.epoch();
        self.stamp(&mut berth.metadata);
        berth
    }

    fn stamped_pod(&self, pod: &Pod) -> Pod {
        let mut pod = pod.clone();
        self.stamp(&mut pod.metadata);
        pod
    }

    fn stamp(&self, metadata: &mut ObjectMeta) {
        let all = metadata.annotations.get_or_insert_default();
        all.insert(annotations::LEADER_EPOCH.to_owned(), self.fence.epoch().to_string());
    }
}

fn namespace_of(metadata: &ObjectMeta) -> &str {
    metadata.namespace.as_deref().unwrap_or_default()
}

fn post() -> PostParams {
    PostParams { dry_run: false, field_manager: Some(FIELD_MANAGER.to_owned()) }
}

/// The one reading of an error: what do we know now about what was asked?
pub(super) fn fault(error: kube::Error) -> Fault {
    let status = match error {
        kube::Error::Api(status) => status,
        other => return Fault::Unknown(other.to_string()),
    };
    match status.code {
        404 => Fault::NotFound,
        409 if status.is_already_exists() => Fault::Exists,
        409 => Fault::Conflict,
        // An expired token or a full queue: nothing was done, and it may pass.
        401 | 429 => {
            let seconds = status.details.as_ref().map_or(0, |d| d.retry_after_seconds);
            Fault::Busy(Duration::from_secs(u64::from(seconds)))
        }
        400..=499 => Fault::Refused(Refusal {
            status: status.code,
            reason: status.reason.clone(),
            message: status.message.clone(),
        }),
        _ => Fault::Unknown(format!("{} {}", status.code, status.message)),
    }
}

impl Fault {
    /// Name for metrics.
    #[must_use]
    pub fn label(&self) -> &'static str {
        match self {
            Self::NotFound => "not_found",
            Self::Exists => "exists",
            Self::Conflict => "conflict",
            Self::Refused(_) => "refused",
            Self::Busy(_) => "busy",
            Self::Unknown(_) => "unknown",
            Self::Fenced => "fenced",
            Self::NotSent => "not_sent",
        }
    }
}
