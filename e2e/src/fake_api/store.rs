//! Objects by key, one version for the whole store, and the log of changes that watches read. It knows nothing of what
//! objects mean.

use super::kinds::Kind;
use serde_json::{Value, json};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use tokio::sync::Notify;

/// Where an object is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// Kind.
    pub kind: &'static str,
    /// Namespace; empty for objects of the cluster.
    pub namespace: String,
    /// Name.
    pub name: String,
}

impl Key {
    /// The key of an object.
    #[must_use]
    pub fn new(kind: &'static Kind, namespace: &str, name: &str) -> Self {
        let namespace = if kind.namespaced { namespace } else { "" };
        Self { kind: kind.kind, namespace: namespace.to_owned(), name: name.to_owned() }
    }
}

impl std::fmt::Display for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.namespace.is_empty() {
            write!(f, "{} {}", self.kind, self.name)
        } else {
            write!(f, "{} {}/{}", self.kind, self.namespace, self.name)
        }
    }
}

/// What happened to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// It is new.
    Added,
    /// It is another now.
    Modified,
    /// It is gone.
    Deleted,
}

/// One change of the store.
#[derive(Clone, Debug)]
pub struct Change {
    /// The version it made.
    pub version: u64,
    /// Where.
    pub key: Key,
    /// What.
    pub what: What,
    /// The object as it is, or as it last was.
    pub object: Arc<Value>,
    /// As it was before.
    pub before: Option<Arc<Value>>,
}

/// The store.
#[derive(Debug)]
pub struct Store {
    version: u64,
    uids: u64,
    objects: BTreeMap<Key, Arc<Value>>,
    log: VecDeque<Change>,
    compacted: u64,
    news: Arc<Notify>,
    fresh: Vec<Change>,
}

/// An etcd revision is never small.
const FIRST: u64 = 1000;

impl Default for Store {
    fn default() -> Self {
        Self {
            version: FIRST,
            uids: 0,
            objects: BTreeMap::new(),
            log: VecDeque::new(),
            compacted: FIRST,
            news: Arc::new(Notify::new()),
            fresh: Vec::new(),
        }
    }
}

impl Store {
    /// The present version.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Told at every change. (Not a watch channel: that one wakes its readers in an order of its own luck.)
    #[must_use]
    pub fn news(&self) -> Arc<Notify> {
        self.news.clone()
    }

    /// Wakes whoever waits for news without any.
    pub fn stir(&self) {
        self.news.notify_waiters();
    }

    /// A uid that was never given before.
    pub fn uid(&mut self) -> String {
        self.uids += 1;
        format!("00000000-0000-4000-8000-{:012x}", self.uids)
    }

    /// One object.
    #[must_use]
    pub fn get(&self, key: &Key) -> Option<&Arc<Value>> {
        self.objects.get(key)
    }

    /// All objects of a kind, by key; of one namespace if it is not empty.
    pub fn list<'a>(
        &'a self,
        kind: &'static str,
        namespace: &'a str,
    ) -> impl Iterator<Item = (&'a Key, &'a Arc<Value>)> {
        let from = Key { kind, namespace: namespace.to_owned(), name: String::new() };
        let all = self.objects.range(from..);
        all.take_while(move |(key, _)| key.kind == kind && (namespace.is_empty() || key.namespace == namespace))
    }

    /// Everything.
    pub fn all(&self) -> impl Iterator<Item = (&Key, &Arc<Value>)> {
        self.objects.iter()
    }

    /// Stores an object under a new version.
    pub fn put(&mut self, key: Key, mut object: Value) -> Arc<Value> {
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        let object = Arc::new(object);
        let before = self.objects.insert(key.clone(), object.clone());
        let what = if before.is_some() { What::Modified } else { What::Added };
        self.note(Change { version: self.version, key, what, object: object.clone(), before });
        object
    }

    /// Removes an object; the last sight of it bears the version of its end.
    pub fn remove(&mut self, key: &Key) -> Option<Arc<Value>> {
        let before = self.objects.remove(key)?;
        self.version += 1;
        let mut last = (*before).clone();
        last["metadata"]["resourceVersion"] = json!(self.version.to_string());
        let last = Arc::new(last);
        self.note(Change {
            version: self.version,
            key: key.clone(),
            what: What::Deleted,
            object: last.clone(),
            before: Some(before),
        });
        Some(last)
    }

    fn note(&mut self, change: Change) {
        self.fresh.push(change.clone());
        self.log.push_back(change);
        self.news.notify_waiters();
    }

    /// Changes after a version, or none if it is forgotten.
    #[must_use]
    pub fn after(&self, version: u64) -> Option<impl Iterator<Item = &Change>> {
        if version < self.compacted {
            return None;
        }
        let from = self.log.partition_point(|c| c.version <= version);
        Some(self.log.range(from..))
    }

    /// Changes since this was last asked.
    pub fn take_fresh(&mut self) -> Vec<Change> {
        std::mem::take(&mut self.fresh)
    }

    /// Forgets all changes so far.
    pub fn compact(&mut self) {
        self.compacted = self.version;
        self.log.clear();
        self.stir();
    }
}
