//! The live cluster as the rules see it: one watcher task per kind, each with its own back-off, into one [`World`].

use admission::World;
use crds::v1alpha1::{Queue, Topology, TrainingJob};
use futures::TryStreamExt;
use k8s_openapi::api::core::v1::{Namespace, Node};
use k8s_openapi::api::scheduling::v1::PriorityClass;
use kube::core::DeserializeGuard;
use kube::runtime::watcher::{Config, Event};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use std::collections::BTreeSet;
use std::fmt::Debug;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use tokio::task::JoinSet;

/// Shorter than the idle cuts of common load balancers (240 s).
const WATCH_SECONDS: u32 = 200;
/// The kinds that must have been listed once before a review can be answered.
const KINDS: [&str; 6] = ["Namespace", "Node", "PriorityClass", "Queue", "Topology", "TrainingJob"];

/// The cluster as it was seen last, shared by all tasks.
#[derive(Clone, Debug)]
pub struct Cache {
    world: Arc<RwLock<World>>,
    listed: Arc<RwLock<BTreeSet<&'static str>>>,
    /// Held while everything that makes room is read: refusals in a flood must not become lists in a flood.
    pub(crate) reading_room: Arc<tokio::sync::Mutex<()>>,
}

impl Cache {
    /// An empty cache.
    #[must_use]
    pub fn new(own_namespace: &str) -> Self {
        Self {
            world: Arc::new(RwLock::new(World::new(own_namespace))),
            listed: Arc::default(),
            reading_room: Arc::default(),
        }
    }

    /// The world, to look at. Never held over an await.
    pub fn read(&self) -> RwLockReadGuard<'_, World> {
        // A rule that panicked only read; what it read is still good.
        self.world.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// The world, to change.
    pub fn write(&self) -> RwLockWriteGuard<'_, World> {
        self.world.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// A picture of its own, for one answer: what is read into it neither races with the watches nor outlives it.
    #[must_use]
    pub fn copy(&self) -> Self {
        Self { world: Arc::new(RwLock::new(self.read().clone())), ..self.clone() }
    }

    /// Kinds that have not been listed yet.
    #[must_use]
    pub fn missing(&self) -> Vec<&'static str> {
        let listed = self.listed.read().unwrap_or_else(PoisonError::into_inner);
        KINDS.into_iter().filter(|kind| !listed.contains(kind)).collect()
    }

    /// Notes that a kind was listed.
    pub fn note_listed(&self, kind: &'static str) {
        if self.listed.write().unwrap_or_else(PoisonError::into_inner).insert(kind) {
            tracing::info!(kind, "listed");
        }
    }

    /// Starts all watchers; they run until the set is dropped.
    #[must_use]
    pub fn watch(&self, client: &Client) -> JoinSet<()> {
        let mut tasks = JoinSet::new();
        tasks.spawn(run::<Namespace>(self.clone(), client.clone()));
        tasks.spawn(run::<Node>(self.clone(), client.clone()));
        tasks.spawn(run::<PriorityClass>(self.clone(), client.clone()));
        tasks.spawn(run::<Queue>(self.clone(), client.clone()));
        tasks.spawn(run::<Topology>(self.clone(), client.clone()));
        tasks.spawn(run::<TrainingJob>(self.clone(), client.clone()));
        tasks
    }
}

/// A kind that the world knows.
pub trait Known: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static {
    /// Its name among [`KINDS`].
    const KIND: &'static str;
    /// Drops what no rule reads.
    fn prune(&mut self) {}
    /// Adds or replaces it.
    fn set(self, world: &mut World);
    /// Removes it.
    fn remove(world: &mut World, key: &str);
}

macro_rules! known {
    ($kind:ident, |$world:ident, $object:ident| $set:expr, $remove:ident $(, prune: |$pruned:ident| $prune:expr)?) => {
        impl Known for $kind {
            const KIND: &'static str = stringify!($kind);
            $(fn prune(&mut self) { let $pruned = self; $prune; })?
            fn set(self, $world: &mut World) { let $object = self; $set; }
            fn remove(world: &mut World, key: &str) { world.$remove(key); }
        }
    };
}

known!(Namespace, |world, object| world.set_namespace(&object), remove_namespace);
known!(Node, |world, object| world.set_node(object), remove_node, prune: |node| {
    // Images are most of a node's bytes, and annotations decide nothing here.
    node.metadata.annotations = None;
    if let Some(status) = &mut node.status { status.images = None; }
});
known!(PriorityClass, |world, object| world.set_priority_class(object), remove_priority_class);
known!(Queue, |world, object| world.set_queue(object), remove_queue);
known!(Topology, |world, object| world.set_topology(object), remove_topology);
known!(TrainingJob, |world, object| world.set_job(&object), remove_job);

fn key_of<K: Resource>(object: &K) -> String {
    let name = object.name_any();
    object.namespace().map_or_else(|| name.clone(), |namespace| format!("{namespace}/{name}"))
}

/// Watches one kind for ever. An object that cannot be read is left out and named; the others must not suffer for it.
async fn run<K: Known>(cache: Cache, client: Client) {
    let api: Api<DeserializeGuard<K>> = Api::all(client);
    let stream = watcher(api, Config::default().timeout(WATCH_SECONDS)).default_backoff();
    let mut stream = std::pin::pin!(stream);
    let (mut seen, mut known) = (BTreeSet::new(), BTreeSet::new());
    loop {
        let event = match stream.try_next().await {
            Ok(Some(event)) => event,
            Ok(None) => return,
            Err(error) => {
                tracing::warn!(
                    kind = K::KIND,
                    error = &error as &dyn std::error::Error,
                    "watch failed; it begins anew"
                );
                continue;
            }
        };
        match event {
            Event::Init => seen.clear(),
            Event::InitApply(object) => {
                seen.insert(key_of(&object));
                apply(&cache, object, &mut known);
            }
            Event::InitDone => {
                for gone in known.difference(&seen) {
                    K::remove(&mut cache.write(), gone);
                }
                known.clone_from(&seen);
                cache.note_listed(K::KIND);
            }
            Event::Apply(object) => apply(&cache, object, &mut known),
            Event::Delete(object) => {
                let key = key_of(&object);
                K::remove(&mut cache.write(), &key);
                known.remove(&key);
            }
        }
    }
}

/// Without what no rule reads.
pub fn pruned<K: Known>(mut object: K) -> K {
    object.managed_fields_mut().clear();
    object.prune();
    object
}

fn apply<K: Known>(cache: &Cache, object: DeserializeGuard<K>, known: &mut BTreeSet<String>) {
    let key = key_of(&object);
    match object.0 {
        Ok(object) => {
            pruned(object).set(&mut cache.write());
            known.insert(key);
        }
        Err(error) => {
            tracing::warn!(kind = K::KIND, key, %error, "an object cannot be read and is left out");
            K::remove(&mut cache.write(), &key);
        }
    }
}
