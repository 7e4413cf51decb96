//! Objects as last seen, with the indexes that the rest asks by. It knows nothing of planning.

use super::assumed::{Tombstones, is_older};
use crate::commit::owner_uid;
use crate::watch::Change;
use crds::names::labels;
use crds::{Berth, Queue, Topology, TrainingJob};
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{
    LimitRange, Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod, ResourceQuota,
};
use k8s_openapi::api::node::v1::RuntimeClass;
use k8s_openapi::api::scheduling::v1::PriorityClass;
use k8s_openapi::api::storage::v1::{CSINode, StorageClass};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use kube::core::DeserializeGuard;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use translate::volumes;

/// Objects by `namespace/name`.
pub type Table<K> = BTreeMap<String, Arc<K>>;

/// A stored object that cannot be read.
#[derive(Clone, Debug)]
pub struct Unreadable {
    /// Its metadata.
    pub metadata: ObjectMeta,
    /// What is wrong.
    pub error: String,
}

/// Everything seen.
#[derive(Debug, Default)]
pub struct Index {
    /// Nodes by name.
    pub nodes: BTreeMap<String, Arc<Node>>,
    /// Bound pods.
    pub pods: Table<Pod>,
    /// Jobs that can be read.
    pub jobs: Table<TrainingJob>,
    /// Jobs that cannot.
    pub unreadable_jobs: BTreeMap<String, Unreadable>,
    /// Queues by name.
    pub queues: Table<Queue>,
    /// Queues that cannot be read.
    pub unreadable_queues: BTreeMap<String, Unreadable>,
    /// Topologies by name.
    pub topologies: Table<Topology>,
    /// Berths.
    pub berths: Table<Berth>,
    /// Priority classes by name.
    pub classes: Table<PriorityClass>,
    /// Namespaces by name.
    pub namespaces: Table<Namespace>,
    /// Limit ranges.
    pub limit_ranges: Table<LimitRange>,
    /// Quotas of namespaces.
    pub quotas: Table<ResourceQuota>,
    /// Runtime classes by name.
    pub runtime_classes: Table<RuntimeClass>,
    /// Claims.
    pub claims: Table<PersistentVolumeClaim>,
    /// Volumes by name.
    pub volumes: Table<PersistentVolume>,
    /// Classes of volumes by name.
    pub storage_classes: Table<StorageClass>,
    /// What nodes can attach, by their name.
    pub csi_nodes: Table<CSINode>,
    /// Sets of pods, one for each node.
    pub daemon_sets: Table<DaemonSet>,
    /// Pods that were promised a node by other schedulers.
    pub nominated: Table<Pod>,
    /// Drivers whose volumes some node limits.
    pub limited_drivers: BTreeSet<String>,
    pods_of_claim: BTreeMap<String, BTreeSet<String>>,
    jobs_of_claim: BTreeMap<String, BTreeSet<String>>,
    pods_of_node: BTreeMap<String, BTreeSet<String>>,
    pods_of_job: BTreeMap<String, BTreeSet<String>>,
    berths_of_job: BTreeMap<String, BTreeSet<String>>,
    tombstones: Tombstones,
}

/// What a change of a table came to: keys whose object is new, changed or gone, with the object before and after.
pub type Changed<K> = Vec<(String, Option<Arc<K>>, Option<Arc<K>>)>;

impl Index {
    /// Takes a change of pods in.
    pub fn change_pods(&mut self, change: Change<Pod>) -> Changed<Pod> {
        let changed = apply(&mut self.pods, change, &mut self.tombstones);
        for (key, before, after) in &changed {
            if let Some(pod) = before {
                unlink(&mut self.pods_of_node, node_of(pod), key);
                unlink(&mut self.pods_of_job, job_of_pod(pod).as_deref(), key);
                for claim in claims_of_pod(pod) {
                    unlink(&mut self.pods_of_claim, Some(&claim), key);
                }
            }
            if let Some(pod) = after {
                link(&mut self.pods_of_node, node_of(pod), key);
                link(&mut self.pods_of_job, job_of_pod(pod).as_deref(), key);
                for claim in claims_of_pod(pod) {
                    link(&mut self.pods_of_claim, Some(&claim), key);
                }
            }
        }
        changed
    }

    /// Takes a change of Berths in.
    pub fn change_berths(&mut self, change: Change<Berth>) -> Changed<Berth> {
        let changed = apply(&mut self.berths, change, &mut self.tombstones);
        for (key, before, after) in &changed {
            if let Some(berth) = before {
                unlink(&mut self.berths_of_job, Some(&job_of_berth(berth)), key);
            }
            if let Some(berth) = after {
                link(&mut self.berths_of_job, Some(&job_of_berth(berth)), key);
            }
        }
        changed
    }

    /// Takes a change of nodes in.
    pub fn change_nodes(&mut self, change: Change<Node>) -> Changed<Node> {
        apply(&mut self.nodes, change, &mut self.tombstones)
    }

    /// Takes a change of jobs in.
    pub fn change_jobs(&mut self, change: Change<DeserializeGuard<TrainingJob>>) -> Changed<TrainingJob> {
        let change = readable(change, &mut self.unreadable_jobs, &self.jobs);
        let changed = change.map(|c| apply(&mut self.jobs, c, &mut self.tombstones)).unwrap_or_default();
        for (key, before, after) in &changed {
            for claim in before.iter().flat_map(|job| claims_of_job(job)) {
                unlink(&mut self.jobs_of_claim, Some(&claim), key);
            }
            for claim in after.iter().flat_map(|job| claims_of_job(job)) {
                link(&mut self.jobs_of_claim, Some(&claim), key);
            }
        }
        changed
    }

    /// Takes a change of queues in.
    pub fn change_queues(&mut self, change: Change<DeserializeGuard<Queue>>) -> Changed<Queue> {
        let change = readable(change, &mut self.unreadable_queues, &self.queues);
        change.map(|c| apply(&mut self.queues, c, &mut self.tombstones)).unwrap_or_default()
    }

    /// Takes a change of topologies in.
    pub fn change_topologies(&mut self, change: Change<DeserializeGuard<Topology>>) -> Changed<Topology> {
        let change = readable(change, &mut BTreeMap::new(), &self.topologies);
        change.map(|c| apply(&mut self.topologies, c, &mut self.tombstones)).unwrap_or_default()
    }

    /// Takes a change of Berths in that may not be readable.
    pub fn change_guarded_berths(&mut self, change: Change<DeserializeGuard<Berth>>) -> Changed<Berth> {
        let change = readable(change, &mut BTreeMap::new(), &self.berths);
        change.map(|c| self.change_berths(c)).unwrap_or_default()
    }

    /// Takes a change of any table without indexes of its own in.
    pub fn change_table<K: Resource>(
        &mut self,
        table: impl Fn(&mut Self) -> &mut Table<K>,
        change: Change<K>,
    ) -> Changed<K> {
        let mut stones = std::mem::take(&mut self.tombstones);
        let changed = apply(table(self), change, &mut stones);
        self.tombstones = stones;
        changed
    }

    /// Takes a change of promised pods in. One that leaves this table is most often bound: it is not gone for good.
    pub fn change_nominated(&mut self, change: Change<Pod>) -> Changed<Pod> {
        apply(&mut self.nominated, change, &mut Tombstones::default())
    }

    /// Pods bound to a node.
    pub fn pods_of_node(&self, node: &str) -> impl Iterator<Item = (&String, &Arc<Pod>)> {
        let keys = self.pods_of_node.get(node);
        keys.into_iter().flatten().filter_map(|key| self.pods.get_key_value(key))
    }

    /// Pods that bear a job's label in its namespace, whoever owns them.
    pub fn pods_of_job(&self, job: &str) -> impl Iterator<Item = (&String, &Arc<Pod>)> {
        let keys = self.pods_of_job.get(job);
        keys.into_iter().flatten().filter_map(|key| self.pods.get_key_value(key))
    }

    /// Pods that use a claim.
    pub fn pods_of_claim(&self, claim: &str) -> impl Iterator<Item = (&String, &Arc<Pod>)> {
        let keys = self.pods_of_claim.get(claim);
        keys.into_iter().flatten().filter_map(|key| self.pods.get_key_value(key))
    }

    /// Every claim that some pod uses.
    pub fn claims_in_use(&self) -> impl Iterator<Item = &String> {
        self.pods_of_claim.keys()
    }

    /// Jobs whose templates name a claim.
    pub fn jobs_of_claim(&self, claim: &str) -> impl Iterator<Item = &String> {
        self.jobs_of_claim.get(claim).into_iter().flatten()
    }

    /// Berths that name a job.
    pub fn berths_of_job(&self, job: &str) -> impl Iterator<Item = &Arc<Berth>> {
        let keys = self.berths_of_job.get(job);
        keys.into_iter().flatten().filter_map(|key| self.berths.get(key))
    }
}

/// `namespace/name` of the job that a pod says it belongs to.
#[must_use]
pub fn job_of_pod(pod: &Pod) -> Option<String> {
    let job = pod.metadata.labels.as_ref()?.get(labels::JOB)?;
    owner_uid(&pod.metadata)?;
    Some(format!("{}/{job}", pod.metadata.namespace.as_deref().unwrap_or_default()))
}

/// `namespace/name` of the job that a Berth is for.
#[must_use]
pub fn job_of_berth(berth: &Berth) -> String {
    format!("{}/{}", berth.metadata.namespace.as_deref().unwrap_or_default(), berth.spec.job)
}

/// `namespace/name` of the claims that a pod uses.
#[must_use]
pub fn claims_of_pod(pod: &Pod) -> Vec<String> {
    let Some(spec) = &pod.spec else { return Vec::new() };
    let (namespace, name) = (pod.metadata.namespace.as_deref(), pod.metadata.name.as_deref());
    let named = volumes::claims_of(spec).map(str::to_owned);
    let own = volumes::ephemeral_claims(name.unwrap_or_default(), spec);
    named.chain(own).map(|claim| format!("{}/{claim}", namespace.unwrap_or_default())).collect()
}

/// `namespace/name` of the claims that a job's templates name.
#[must_use]
pub fn claims_of_job(job: &TrainingJob) -> BTreeSet<String> {
    let namespace = job.metadata.namespace.as_deref().unwrap_or_default();
    let specs = job.spec.roles.iter().filter_map(|r| r.template.spec.as_ref());
    specs.flat_map(volumes::claims_of).map(|claim| format!("{namespace}/{claim}")).collect()
}

fn node_of(pod: &Pod) -> Option<&str> {
    translate::pod::node_of(pod)
}

fn link(map: &mut BTreeMap<String, BTreeSet<String>>, at: Option<&str>, key: &str) {
    if let Some(at) = at {
        map.entry(at.to_owned()).or_default().insert(key.to_owned());
    }
}

fn unlink(map: &mut BTreeMap<String, BTreeSet<String>>, at: Option<&str>, key: &str) {
    let Some(at) = at else { return };
    if let Some(keys) = map.get_mut(at) {
        keys.remove(key);
        if keys.is_empty() {
            map.remove(at);
        }
    }
}

/// The readable part of a change; the rest is kept by key with what is wrong. What was readable before stays as it was:
/// an edit that nobody can read must not stop what runs.
fn readable<K: Resource>(
    change: Change<DeserializeGuard<K>>,
    bad: &mut BTreeMap<String, Unreadable>,
    known: &Table<K>,
) -> Option<Change<K>> {
    match change {
        Change::Reset(all) => {
            bad.clear();
            let good = all.into_iter().filter_map(|guard| match sort_out(guard, bad) {
                Ok(good) => Some(good),
                Err(key) => known.get(&key).cloned(),
            });
            Some(Change::Reset(good.collect()))
        }
        Change::Set(guard) => sort_out(guard, bad).ok().map(Change::Set),
        Change::Gone(guard) => match sort_out(guard, bad) {
            Ok(good) => {
                bad.remove(&key_of(good.meta()));
                Some(Change::Gone(good))
            }
            Err(key) => {
                bad.remove(&key);
                known.get(&key).cloned().map(Change::Gone)
            }
        },
    }
}

/// The object, or the key under which it is noted as unreadable.
fn sort_out<K: Resource>(
    guard: Arc<DeserializeGuard<K>>,
    bad: &mut BTreeMap<String, Unreadable>,
) -> Result<Arc<K>, String> {
    let key = key_of(guard.meta());
    match Arc::try_unwrap(guard) {
        Ok(DeserializeGuard(Ok(object))) => {
            bad.remove(&key);
            Ok(Arc::new(object))
        }
        Ok(DeserializeGuard(Err(invalid))) => {
            tracing::warn!(object = key, error = invalid.error, "a stored object cannot be read");
            bad.insert(key.clone(), Unreadable { metadata: invalid.metadata, error: invalid.error });
            Err(key)
        }
        Err(_) => Err(key),
    }
}

/// `namespace/name`, or the name alone for objects of the cluster.
#[must_use]
pub fn key_of(metadata: &ObjectMeta) -> String {
    let name = metadata.name.as_deref().unwrap_or_default();
    match metadata.namespace.as_deref() {
        Some(namespace) => format!("{namespace}/{name}"),
        None => name.to_owned(),
    }
}

/// Takes a change into a table; older sights and late answers about objects that are gone change nothing.
fn apply<K: Resource>(table: &mut Table<K>, change: Change<K>, stones: &mut Tombstones) -> Changed<K> {
    let mut changed = Vec::new();
    match change {
        Change::Set(object) => set(table, object, stones, &mut changed),
        Change::Gone(object) => {
            let key = key_of(object.meta());
            if let Some(uid) = &object.meta().uid {
                stones.bury(uid);
            }
            if table.get(&key).is_some_and(|known| known.meta().uid == object.meta().uid) {
                changed.push((key.clone(), table.remove(&key), None));
            }
        }
        Change::Reset(all) => {
            let listed: BTreeSet<String> = all.iter().map(|object| key_of(object.meta())).collect();
            let gone: Vec<String> = table.keys().filter(|key| !listed.contains(*key)).cloned().collect();
            for key in gone {
                changed.push((key.clone(), table.remove(&key), None));
            }
            for object in all {
                set(table, object, stones, &mut changed);
            }
        }
    }
    changed
}

fn set<K: Resource>(table: &mut Table<K>, object: Arc<K>, stones: &Tombstones, changed: &mut Changed<K>) {
    let key = key_of(object.meta());
    if object.meta().uid.as_deref().is_some_and(|uid| stones.holds(uid)) {
        return;
    }
    let known = table.get(&key);
    let same = |known: &Arc<K>| {
        known.meta().uid == object.meta().uid && known.meta().resource_version == object.meta().resource_version
    };
    if known.is_some_and(|k| is_older(object.meta(), k.meta()) || same(k)) {
        return;
    }
    let before = table.insert(key.clone(), object.clone());
    changed.push((key, before, Some(object)));
}
