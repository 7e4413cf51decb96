//! A story's own part of the cluster: namespace, queue, pool of nodes and topology, all named after it, so that stories
//! run side by side without seeing each other.

use crate::harness::World;
use crate::job;
use crate::wait::{self, Objects};
use anyhow::{Context, Result, bail, ensure};
use crds::v1alpha1::{BerthState, Phase, Topology};
use crds::{Berth, Queue, TrainingJob, names::labels};
use futures::future::try_join_all;
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use kube::runtime::{WatchStreamExt, watcher};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

/// Nodes of a story: blocks of racks of nodes of GPUs.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Blocks.
    pub blocks: usize,
    /// Racks in each block.
    pub racks: usize,
    /// Nodes in each rack.
    pub nodes: usize,
    /// GPUs in each node.
    pub gpus: usize,
}

impl Shape {
    /// `blocks` × `racks` × `nodes`, of 8 GPUs each.
    #[must_use]
    pub fn new(blocks: usize, racks: usize, nodes: usize) -> Self {
        Self { blocks, racks, nodes, gpus: 8 }
    }
}

/// Pods ever seen, by uid: name and job.
type Ledger = Arc<Mutex<BTreeMap<String, Pod>>>;

/// One story.
pub struct Story {
    /// What it shares with others.
    pub world: Arc<World>,
    /// Name of its namespace, queue, pool and topology.
    pub name: String,
    ledger: Ledger,
    watch: tokio::task::JoinHandle<()>,
}

impl Drop for Story {
    fn drop(&mut self) {
        self.watch.abort();
    }
}

impl Story {
    /// Makes its part of the cluster, with a queue that limits nothing.
    ///
    /// # Errors
    /// If the server refuses any of it.
    pub async fn begin(world: &Arc<World>, name: &str, shape: Shape) -> Result<Self> {
        Self::begin_with(world, name, shape, json!({})).await
    }

    /// The same with a queue of this spec.
    ///
    /// # Errors
    /// If the server refuses any of it.
    pub async fn begin_with(world: &Arc<World>, name: &str, shape: Shape, queue: Value) -> Result<Self> {
        let name = name.replace('_', "-").chars().take(40).collect::<String>().trim_matches('-').to_owned();
        world.create(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})).await?;
        let (ledger, watch) = keep_ledger(Api::namespaced(world.client.clone(), &name));
        let story = Self { world: world.clone(), name, ledger, watch };
        // Nodes first: a Topology without nodes is one whose nodes may still come, and refuses nothing.
        let nodes = (0..shape.blocks * shape.racks * shape.nodes).map(|i| story.node_manifest(shape, i));
        try_join_all(nodes.map(|node| async move { world.create(&node).await })).await?;
        story.topology().await?;
        story.queue(&story.name, queue).await?;
        if shape.blocks * shape.racks * shape.nodes > 0 {
            story.topology_is_ready().await?;
        }
        Ok(story)
    }

    /// Stops remembering pods: a measurement must not pay for it.
    pub fn end_ledger(&self) {
        self.watch.abort();
    }

    /// Levels `block` and `rack` over the story's pool.
    async fn topology(&self) -> Result<()> {
        let spec = json!({
            "nodes": {"matchLabels": {"pool": self.name}},
            "levels": [
                {"name": "block", "labels": ["fabric.topograph.run/tier-1"], "gigabytesPerSecond": 25},
                {"name": "rack", "labels": ["fabric.topograph.run/tier-0"], "gigabytesPerSecond": 50},
            ],
        });
        let topology = json!({"apiVersion": "berth.dev/v1alpha1", "kind": "Topology", "metadata": {"name": self.name}, "spec": spec});
        self.world.create(&topology).await.map(drop)
    }

    /// Until the controller has seen the story's nodes: before, they may still come, and nothing is called impossible.
    async fn topology_is_ready(&self) -> Result<()> {
        let ready = |topology: &Topology| {
            let conditions = topology.status.iter().flat_map(|s| &s.conditions);
            conditions.into_iter().any(|c| c.type_ == "Ready" && c.status == "True")
        };
        let only = watcher::Config::default().fields(&format!("metadata.name={}", self.name));
        let all: Api<Topology> = Api::all(self.world.client.clone());
        wait::until(all, only, "its Topology Ready", |all| all.values().any(&ready)).await.map(drop)
    }

    /// Makes a queue.
    ///
    /// # Errors
    /// If the server refuses it.
    pub async fn queue(&self, name: &str, spec: Value) -> Result<()> {
        let mut queue = json!({"apiVersion": "berth.dev/v1alpha1", "kind": "Queue", "metadata": {"name": name}});
        queue["spec"] = spec;
        self.world.create(&queue).await.map(drop)
    }

    /// The `i`-th node of a shape, `<story>-b0-r1-n2`, as its kubelet would have registered it.
    fn node_manifest(&self, shape: Shape, i: usize) -> Value {
        let rack = i / shape.nodes;
        let (b, r, n) = (rack / shape.racks, rack % shape.racks, i % shape.nodes);
        self.node(&format!("b{b}-r{r}-n{n}"), Some((&format!("b{b}"), &format!("r{r}"))), shape.gpus)
    }

    /// A node of the story's pool, with or without its place in the network.
    #[must_use]
    pub fn node(&self, suffix: &str, place: Option<(&str, &str)>, gpus: usize) -> Value {
        let name = self.node_name(suffix);
        let mut labels =
            json!({"pool": self.name, "kwok.x-k8s.io/node": "fake", "type": "kwok", "kubernetes.io/hostname": name});
        if let Some((block, rack)) = place {
            labels["fabric.topograph.run/tier-1"] = json!(block);
            labels["fabric.topograph.run/tier-0"] = json!(rack);
        }
        let room = json!({"cpu": "96", "memory": "1Ti", "pods": "110", "nvidia.com/gpu": gpus.to_string()});
        json!({
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels},
            "status": {"capacity": room, "allocatable": room, "conditions": [{"type": "Ready", "status": "True"}]},
        })
    }

    /// The whole name of a node.
    #[must_use]
    pub fn node_name(&self, suffix: &str) -> String {
        format!("{}-{suffix}", self.name)
    }

    /// Merges a change into a node.
    ///
    /// # Errors
    /// If the server refuses it.
    pub async fn patch_node(&self, suffix: &str, change: Value) -> Result<()> {
        let patch = Patch::Merge(change);
        self.world.nodes().patch(&self.node_name(suffix), &PatchParams::default(), &patch).await?;
        Ok(())
    }

    /// The manifest of a job; see [`job`].
    ///
    /// # Errors
    /// If it is no YAML.
    pub fn manifest(&self, text: &str) -> Result<Value> {
        job::manifest(text, &self.name, &self.name, &self.name)
    }

    /// Submits a job.
    ///
    /// # Errors
    /// If it is refused.
    pub async fn submit(&self, text: &str) -> Result<()> {
        self.world.create(&self.manifest(text)?).await.map(drop)
    }

    /// Submits a job that must be refused with a message that contains every one of `words`.
    ///
    /// # Errors
    /// If it is accepted, or the message lacks a word.
    pub async fn refused(&self, text: &str, words: &[&str]) -> Result<()> {
        refused(self.world.create(&self.manifest(text)?).await, words)
    }

    /// Merges a change into a job.
    ///
    /// # Errors
    /// The server's refusal.
    pub async fn change(&self, job: &str, change: Value) -> Result<()> {
        self.jobs().patch(job, &PatchParams::default(), &Patch::Merge(change)).await?;
        Ok(())
    }

    /// Deletes a job without waiting.
    ///
    /// # Errors
    /// If there is none.
    pub async fn delete(&self, job: &str) -> Result<()> {
        self.jobs().delete(job, &DeleteParams::default()).await?;
        Ok(())
    }

    /// Jobs of the story.
    #[must_use]
    pub fn jobs(&self) -> Api<TrainingJob> {
        self.api()
    }

    /// Any namespaced kind, in the story's namespace.
    #[must_use]
    pub fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>,
    {
        Api::namespaced(self.world.client.clone(), &self.name)
    }

    /// A job as it is.
    ///
    /// # Errors
    /// If there is none.
    pub async fn job(&self, name: &str) -> Result<TrainingJob> {
        Ok(self.jobs().get(name).await?)
    }

    /// Waits until a job satisfies `done`.
    ///
    /// # Errors
    /// If it does not in time; the message tells its status and the events of the story.
    pub async fn job_until(&self, name: &str, what: &str, done: impl Fn(&TrainingJob) -> bool) -> Result<TrainingJob> {
        let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
        let told = format!("{name}: {what}");
        let found = wait::until(self.jobs(), config, &told, |all| all.get(name).is_some_and(&done)).await;
        match found {
            Ok(mut all) => all.remove(name).context("it was there"),
            Err(error) => bail!("{error:#}\n{}", self.told().await),
        }
    }

    /// Waits until a job is in a phase.
    ///
    /// # Errors
    /// As [`Story::job_until`].
    pub async fn phase(&self, name: &str, phase: Phase) -> Result<TrainingJob> {
        self.job_until(name, &format!("phase {phase:?}"), |job| phase_of(job) == Some(phase)).await
    }

    /// Waits until a job runs with this many pods ready.
    ///
    /// # Errors
    /// As [`Story::job_until`].
    pub async fn running(&self, name: &str, ready: &str) -> Result<TrainingJob> {
        let runs = |job: &TrainingJob| {
            phase_of(job) == Some(Phase::Running) && job.status.as_ref().and_then(|s| s.ready.as_deref()) == Some(ready)
        };
        self.job_until(name, &format!("Running, {ready} ready"), runs).await
    }

    /// Waits until a pod of a job runs, without reading jobs: some of them may be unreadable.
    ///
    /// # Errors
    /// If none does in time.
    pub async fn running_raw(&self, job: &str) -> Result<()> {
        let runs = |p: &Pod| p.status.as_ref().and_then(|s| s.phase.as_deref()) == Some("Running");
        self.pods_until(job, "a running pod", |pods| pods.values().any(runs)).await.map(drop)
    }

    /// Deletes a job without reading what is answered.
    ///
    /// # Errors
    /// If there is none.
    pub async fn delete_raw(&self, job: &str) -> Result<()> {
        let kind = kube::core::ApiResource::erase::<TrainingJob>(&());
        let jobs: Api<kube::api::DynamicObject> = Api::namespaced_with(self.world.client.clone(), &self.name, &kind);
        jobs.delete(job, &DeleteParams::default()).await?;
        Ok(())
    }

    /// Waits until a job waits for this reason.
    ///
    /// # Errors
    /// As [`Story::job_until`].
    pub async fn pending(&self, name: &str, code: &str) -> Result<TrainingJob> {
        self.job_until(name, &format!("waiting with {code}"), |job| pending_code(job) == Some(code)).await
    }

    /// Waits until the job, its Berths, its pods and its Service are gone.
    ///
    /// # Errors
    /// If anything is left in time.
    pub async fn gone(&self, name: &str) -> Result<()> {
        let only = watcher::Config::default().fields(&format!("metadata.name={name}"));
        wait::until(self.jobs(), only, &format!("{name} gone"), Objects::is_empty).await?;
        let mine = || watcher::Config::default().labels(&format!("{}={name}", labels::JOB));
        wait::until(self.api::<Pod>(), mine(), "its pods gone", Objects::is_empty).await?;
        let none = |all: &Objects<Berth>| all.values().all(|b| b.spec.job != name);
        wait::until(self.api::<Berth>(), watcher::Config::default(), "its Berths gone", none).await?;
        Ok(())
    }

    /// Live pods of a job (not being deleted, not ended), by name.
    ///
    /// # Errors
    /// If the server does not answer.
    pub async fn pods(&self, job: &str) -> Result<Objects<Pod>> {
        let mine = ListParams::default().labels(&format!("{}={job}", labels::JOB));
        let all = self.api::<Pod>().list(&mine).await?;
        Ok(all.into_iter().filter(is_live).map(|p| (p.name_any(), p)).collect())
    }

    /// Waits until all pods of a job, dead ones too, satisfy `done`.
    ///
    /// # Errors
    /// If they do not in time.
    pub async fn pods_until(
        &self,
        job: &str,
        what: &str,
        done: impl FnMut(&Objects<Pod>) -> bool,
    ) -> Result<Objects<Pod>> {
        let mine = watcher::Config::default().labels(&format!("{}={job}", labels::JOB));
        let found = wait::until(self.api::<Pod>(), mine, &format!("{job}: {what}"), done).await;
        match found {
            Ok(pods) => Ok(pods),
            Err(error) => bail!("{error:#}\n{}", self.told().await),
        }
    }

    /// Berths of a job in a state, by incarnation.
    ///
    /// # Errors
    /// If the server does not answer.
    pub async fn berths(&self, job: &str, state: BerthState) -> Result<Vec<Berth>> {
        let all = self.api::<Berth>().list(&ListParams::default()).await?;
        let mut mine: Vec<Berth> = all.into_iter().filter(|b| b.spec.job == job && b.spec.state == state).collect();
        mine.sort_by_key(|b| b.spec.incarnation);
        Ok(mine)
    }

    /// Waits until a Berth of a job satisfies `done`.
    ///
    /// # Errors
    /// If none does in time.
    pub async fn berth_until(&self, job: &str, what: &str, done: impl Fn(&Berth) -> bool) -> Result<Berth> {
        let is = |b: &Berth| b.spec.job == job && done(b);
        let told = format!("{job}: {what}");
        let all = wait::until(self.api(), watcher::Config::default(), &told, |all| all.values().any(is)).await?;
        all.into_values().find(is).context("it was there")
    }

    /// Waits until the story's queue satisfies `done`.
    ///
    /// # Errors
    /// If it does not in time.
    pub async fn queue_until(&self, name: &str, what: &str, done: impl Fn(&Queue) -> bool) -> Result<Queue> {
        let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
        let api: Api<Queue> = Api::all(self.world.client.clone());
        let mut all = wait::until(api, config, what, |all| all.get(name).is_some_and(&done)).await?;
        all.remove(name).context("it was there")
    }

    /// Names of all pods of a job that ever existed.
    #[must_use]
    pub fn ever(&self, job: &str) -> Vec<String> {
        let ledger = self.ledger.lock().unwrap_or_else(PoisonError::into_inner);
        ledger
            .values()
            .filter(|p| p.labels().get(labels::JOB).is_some_and(|j| j == job))
            .map(ResourceExt::name_any)
            .collect()
    }

    /// No pod of this job ever existed.
    ///
    /// # Errors
    /// If one did.
    pub fn never_had_pods(&self, job: &str) -> Result<()> {
        let ever = self.ever(job);
        ensure!(ever.is_empty(), "pods of {job} existed: {ever:?}");
        Ok(())
    }

    /// What users were told in events, in order.
    pub async fn told(&self) -> String {
        let events = self.api::<Event>().list(&ListParams::default()).await.map(|l| l.items).unwrap_or_default();
        let line = |e: &Event| {
            let (kind, name) = (e.involved_object.kind.as_deref(), e.involved_object.name.as_deref());
            format!(
                "  event {}/{} {}: {}",
                kind.unwrap_or_default(),
                name.unwrap_or_default(),
                e.reason.as_deref().unwrap_or_default(),
                e.message.as_deref().unwrap_or_default()
            )
        };
        events.iter().map(line).collect::<Vec<_>>().join("\n")
    }

    /// Waits until the user was told of this about an object.
    ///
    /// # Errors
    /// If he was not in time.
    pub async fn event(&self, object: &str, reason: &str) -> Result<Event> {
        let is = |e: &Event| e.involved_object.name.as_deref() == Some(object) && e.reason.as_deref() == Some(reason);
        let what = format!("event {reason} about {object}");
        let all = wait::until(self.api(), watcher::Config::default(), &what, |all| all.values().any(is)).await?;
        all.into_values().find(is).context("it was there")
    }
}

/// A watch that remembers every pod of the namespace.
fn keep_ledger(pods: Api<Pod>) -> (Ledger, tokio::task::JoinHandle<()>) {
    let ledger = Ledger::default();
    let mine = ledger.clone();
    let watch = tokio::spawn(async move {
        let mut seen = watcher(pods, watcher::Config::default()).default_backoff().touched_objects().boxed();
        loop {
            match seen.try_next().await {
                Ok(Some(pod)) => {
                    let mut ledger = mine.lock().unwrap_or_else(PoisonError::into_inner);
                    ledger.insert(pod.uid().unwrap_or_default(), pod);
                }
                Ok(None) => return,
                Err(_) => {}
            }
        }
    });
    (ledger, watch)
}

/// A result that must be a refusal by the server whose message contains every one of `words`.
///
/// # Errors
/// If it is none, or a word is missing.
pub fn refused<T>(result: Result<T>, words: &[&str]) -> Result<()> {
    let Err(error) = result else { bail!("it was accepted; expected a refusal with {words:?}") };
    let said = match error.downcast_ref::<kube::Error>() {
        Some(kube::Error::Api(status)) => status.message.clone(),
        _ => bail!("no refusal of the server: {error:#}"),
    };
    let missing: Vec<&&str> = words.iter().filter(|word| !said.contains(**word)).collect();
    ensure!(missing.is_empty(), "the message lacks {missing:?}: {said}");
    Ok(())
}

/// The phase of a job.
#[must_use]
pub fn phase_of(job: &TrainingJob) -> Option<Phase> {
    job.status.as_ref().and_then(|s| s.phase)
}

/// Why a job waits.
#[must_use]
pub fn pending_code(job: &TrainingJob) -> Option<&str> {
    job.status.as_ref().and_then(|s| s.pending.as_ref()).map(|p| p.code.as_str())
}

/// Whether a pod occupies its node.
#[must_use]
pub fn is_live(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|s| s.phase.as_deref());
    pod.metadata.deletion_timestamp.is_none() && !matches!(phase, Some("Succeeded" | "Failed"))
}

/// The node of a pod.
#[must_use]
pub fn node_of(pod: &Pod) -> String {
    pod.spec.as_ref().and_then(|s| s.node_name.clone()).unwrap_or_default()
}

/// The racks of pods, as `b0-r1`.
#[must_use]
pub fn racks(pods: &Objects<Pod>) -> BTreeSet<String> {
    let rack = |pod: &Pod| {
        let node = node_of(pod);
        let mut parts = node.rsplit('-').skip(1);
        let (r, b) = (parts.next().unwrap_or_default().to_owned(), parts.next().unwrap_or_default());
        format!("{b}-{r}")
    };
    pods.values().map(rack).collect()
}
