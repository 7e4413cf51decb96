//! A pool of fake nodes with its namespace, queue and topology, without a story's ledger: measuring must cost nothing.

use anyhow::{Result, ensure};
use berth_e2e::{Shape, Story, World};
use crds::TrainingJob;
use crds::v1alpha1::Phase;
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, ListParams, WatchEvent, WatchParams};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Requests of ours under way at once: three times as many as the controller's, so that a bare loop is no straw man.
pub(crate) const AT_ONCE: usize = 96;
/// Between two looks at what has no cheap watch.
const LOOK: Duration = Duration::from_millis(100);

/// The pool.
pub(crate) struct Yard {
    pub(crate) story: Story,
    pub(crate) world: Arc<World>,
}

impl Yard {
    pub(crate) async fn open(world: &Arc<World>, name: &str, shape: Shape) -> Result<Self> {
        let story = Story::begin(world, name, shape).await?;
        story.end_ledger();
        let yard = Self { story, world: world.clone() };
        // Whoever judges by the nodes has seen them all when a gang on every one of them is taken.
        let whole = yard.story.manifest(&format!(
            "{{name: whole, roles: [{{replicas: {}}}]}}",
            shape.blocks * shape.racks * shape.nodes
        ))?;
        let limit = Instant::now() + Duration::from_secs(60);
        while let Err(error) = world.would_create(&whole).await {
            ensure!(Instant::now() < limit, "{error:#}");
            tokio::time::sleep(LOOK).await;
        }
        Ok(yard)
    }

    pub(crate) fn pods(&self) -> Api<Pod> {
        self.story.api()
    }

    /// Submits jobs, so many at once.
    pub(crate) async fn submit_all(&self, jobs: &[Value]) -> Result<()> {
        let all = stream::iter(jobs).map(|job| async move { self.world.create(job).await.map(drop) });
        all.buffer_unordered(32).try_collect().await
    }

    /// Deletes every job and waits until the controller, the collector and the kubelets have cleared everything away.
    pub(crate) async fn clear(&self) -> Result<()> {
        let jobs = self.story.jobs();
        let names: Vec<String> = jobs
            .list_metadata(&ListParams::default())
            .await?
            .items
            .into_iter()
            .filter_map(|j| j.metadata.name)
            .collect();
        let gone = stream::iter(names).map(|name| {
            let jobs = jobs.clone();
            async move { jobs.delete(&name, &DeleteParams::default()).await.map(drop) }
        });
        gone.buffer_unordered(32).try_collect::<()>().await?;
        self.until_count::<TrainingJob>(0).await?;
        self.until_count::<Pod>(0).await
    }

    /// Waits until this many jobs run with every pod ready.
    pub(crate) async fn until_running(&self, wanted: usize) -> Result<()> {
        let limit = Instant::now() + Duration::from_secs(180);
        let runs = |job: &TrainingJob| {
            let status = job.status.as_ref();
            let ready = status.and_then(|s| s.ready.as_deref()).and_then(|r| r.split_once('/'));
            status.and_then(|s| s.phase) == Some(Phase::Running) && ready.is_some_and(|(now, all)| now == all)
        };
        loop {
            let jobs = self.story.jobs().list(&ListParams::default()).await?.items;
            let running = jobs.iter().filter(|job| runs(job)).count();
            if running == wanted {
                return Ok(());
            }
            ensure!(Instant::now() < limit, "{running} jobs run instead of {wanted}");
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Waits until there are this many objects of a kind in the namespace.
    pub(crate) async fn until_count<K>(&self, wanted: usize) -> Result<()>
    where
        K: kube::Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>
            + Clone
            + std::fmt::Debug
            + serde::de::DeserializeOwned,
    {
        let api: Api<K> = Api::namespaced(self.world.client.clone(), &self.story.name);
        until_count(&api, wanted).await
    }
}

/// Waits until there are this many objects.
pub(crate) async fn until_count<K>(api: &Api<K>, wanted: usize) -> Result<()>
where
    K: kube::Resource<DynamicType = ()> + Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    let limit = Instant::now() + Duration::from_secs(180);
    loop {
        let there = count(api).await?;
        if there == wanted {
            return Ok(());
        }
        ensure!(Instant::now() < limit, "{there} objects instead of {wanted}");
        tokio::time::sleep(LOOK).await;
    }
}

async fn count<K>(api: &Api<K>) -> Result<usize>
where
    K: kube::Resource<DynamicType = ()> + Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    let page = api.list_metadata(&ListParams::default().limit(1)).await?;
    let more = page.metadata.remaining_item_count.unwrap_or(0);
    Ok(page.items.len() + usize::try_from(more).unwrap_or(0))
}

/// A namespace of its own for a loop.
pub(crate) async fn namespace(world: &World, name: &str) -> Result<()> {
    world.create(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})).await.map(drop)
}

/// Removes a namespace.
pub(crate) async fn remove_namespace(world: &World, name: &str) -> Result<()> {
    Api::<Namespace>::all(world.client.clone()).delete(name, &DeleteParams::default()).await?;
    Ok(())
}

/// Watches a namespace's pods, their metadata alone, and says when so many had been added. Begins to watch before it
/// returns.
pub(crate) async fn count_pods(world: &World, namespace: &str, wanted: usize) -> Result<Counting> {
    let api: Api<Pod> = Api::namespaced(world.client.clone(), namespace);
    let mut version = "0".to_owned();
    let mut events = api.watch_metadata(&WatchParams::default(), &version).await?.boxed();
    Ok(Counting(tokio::spawn(async move {
        let mut added = 0;
        loop {
            while let Some(event) = events.try_next().await? {
                let (WatchEvent::Added(pod) | WatchEvent::Modified(pod)) = &event else { continue };
                version = pod.resource_version().unwrap_or(version);
                added += usize::from(matches!(event, WatchEvent::Added(_)));
                if added >= wanted {
                    return Ok(Instant::now());
                }
            }
            // The server ends the watches of whoever is slow for a moment: go on from there.
            events = api.watch_metadata(&WatchParams::default(), &version).await?.boxed();
        }
    })))
}

/// See [`count_pods`].
pub(crate) struct Counting(tokio::task::JoinHandle<Result<Instant>>);

impl Counting {
    /// When the last pod was seen.
    pub(crate) async fn done(self) -> Result<Instant> {
        tokio::time::timeout(Duration::from_secs(240), self.0).await??
    }
}
