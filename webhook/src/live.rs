//! Reads what a cache may not have seen yet, before anybody is refused for its absence.

use crate::cache::{Cache, Known};
use admission::Missing;
use admission::surroundings::{ClaimFacts, Surroundings, claims_of, classes_of};
use crds::v1alpha1::{Queue, Topology, TrainingJob};
use k8s_openapi::api::core::v1::{Namespace, Node, PersistentVolume, PersistentVolumeClaim, Service};
use k8s_openapi::api::scheduling::v1::PriorityClass;
use k8s_openapi::api::storage::v1::StorageClass;
use kube::api::{Api, ListParams};
use kube::core::DeserializeGuard;
use kube::{Client, Resource};
use std::collections::BTreeSet;
use std::fmt::Debug;
use std::time::Duration;
use translate::volumes;

/// Longer than a healthy API server takes, and well below its patience with us.
const READ_LIMIT: Duration = Duration::from_secs(2);
/// The same for every node of a large cluster.
const NODES_LIMIT: Duration = Duration::from_secs(4);

/// Reads what is missing into the cache of one answer. True if something was found.
///
/// # Errors
/// If the API server does not answer in time: then nobody knows whether the object exists.
pub async fn look(client: &Client, cache: &Cache, missing: &[Missing]) -> kube::Result<bool> {
    let mut found = false;
    // Two refusals for want of room are one question.
    let missing: BTreeSet<&Missing> = missing.iter().collect();
    for each in missing {
        let limit = if *each == Missing::Room { NODES_LIMIT } else { READ_LIMIT };
        let read = async {
            match each {
                Missing::Queue(name) => get::<Queue>(client, cache, name).await,
                Missing::PriorityClass(name) => get::<PriorityClass>(client, cache, name).await,
                Missing::Namespace(name) => get::<Namespace>(client, cache, name).await,
                Missing::Level(level) => topologies(client, cache, level).await,
                Missing::Room => room(client, cache).await,
            }
        };
        found |= tokio::time::timeout(limit, read).await.map_err(|_| late())??;
    }
    Ok(found)
}

fn late() -> kube::Error {
    kube::Error::Service("the API server did not answer in time".into())
}

async fn get<K>(client: &Client, cache: &Cache, name: &str) -> kube::Result<bool>
where
    K: Known + Resource<Scope = k8s_openapi::ClusterResourceScope> + Debug,
{
    let found = Api::<K>::all(client.clone()).get_opt(name).await?;
    let exists = found.is_some();
    if let Some(object) = found {
        object.set(&mut cache.write());
    }
    Ok(exists)
}

async fn topologies(client: &Client, cache: &Cache, level: &str) -> kube::Result<bool> {
    let all = Api::<Topology>::all(client.clone()).list(&ListParams::default()).await?;
    let found = all.items.iter().any(|t| t.spec.effective_levels().iter().any(|l| l.name == level));
    for topology in all.items {
        topology.set(&mut cache.write());
    }
    Ok(found)
}

/// Everything that makes room. A watch may be behind by many nodes right after they came: on a busy API server, or when
/// a cluster is built and used in one go.
async fn room(client: &Client, cache: &Cache) -> kube::Result<bool> {
    let _turn = cache.reading_room.lock().await;
    let nodes = readable::<Node>(client).await?;
    let topologies = readable::<Topology>(client).await?;
    cache.write().replace_capacity(nodes, topologies);
    Ok(true)
}

/// All objects of a kind that can be read, pruned as a watch would.
async fn readable<K: Known>(client: &Client) -> kube::Result<Vec<K>> {
    let all = Api::<DeserializeGuard<K>>::all(client.clone()).list(&ListParams::default()).await?;
    let each = all.items.into_iter().filter_map(|object| object.0.ok());
    Ok(each.map(crate::cache::pruned).collect())
}

/// What stands under the names that a new job uses. Nothing, if the API server does not answer in time: the controller
/// meets it again, and nobody is refused for what nobody saw.
pub async fn surroundings(client: &Client, job: &TrainingJob) -> Surroundings {
    let found = tokio::time::timeout(READ_LIMIT, read_surroundings(client, job)).await;
    match found {
        Ok(Ok(found)) => found,
        Ok(Err(error)) => {
            tracing::warn!(%error, "what a job names in its namespace could not be read");
            Surroundings::default()
        }
        Err(_) => Surroundings::default(),
    }
}

async fn read_surroundings(client: &Client, job: &TrainingJob) -> kube::Result<Surroundings> {
    let namespace = job.metadata.namespace.as_deref().unwrap_or_default();
    let name = job.metadata.name.as_deref().unwrap_or_default();
    let mut found = Surroundings::default();
    // A job that is named by the server when it is stored has no name to look for yet.
    if !name.is_empty() {
        let service = Api::<Service>::namespaced(client.clone(), namespace).get_opt(name).await?;
        // One that an earlier job of this name left behind is on its way out.
        let owned = |s: &Service| s.metadata.owner_references.iter().flatten().any(|o| o.kind == "TrainingJob");
        found.service_taken = service.is_some_and(|s| !owned(&s));
    }
    let claims = Api::<PersistentVolumeClaim>::namespaced(client.clone(), namespace);
    for claim in claims_of(job) {
        let facts = match claims.get_opt(claim).await? {
            None => None,
            Some(object) => Some(facts_of(client, &object).await?),
        };
        found.claims.insert(claim.to_owned(), facts);
    }
    for class in classes_of(job) {
        let provisioner = Api::<StorageClass>::all(client.clone()).get_opt(class).await?.map(|c| c.provisioner);
        if provisioner.as_deref() == Some(volumes::BY_HAND) {
            found.by_hand.insert(class.to_owned());
        }
    }
    Ok(found)
}

async fn facts_of(client: &Client, claim: &PersistentVolumeClaim) -> kube::Result<ClaimFacts> {
    let spec = claim.spec.as_ref();
    let bound = claim.status.as_ref().and_then(|s| s.phase.as_deref()) == Some("Bound");
    let class = spec.and_then(|s| s.storage_class_name.as_deref()).filter(|c| !bound && !c.is_empty());
    let provisioner = match class {
        Some(class) => Api::<StorageClass>::all(client.clone()).get_opt(class).await?.map(|c| c.provisioner),
        None => None,
    };
    let volume = spec.and_then(|s| s.volume_name.as_deref()).filter(|_| bound && volumes::is_for_one_node(claim));
    let local = match volume {
        Some(volume) => {
            let found = Api::<PersistentVolume>::all(client.clone()).get_opt(volume).await?;
            found.is_some_and(|v| volumes::is_of_one_node(&v))
        }
        None => false,
    };
    Ok(ClaimFacts { access_modes: volumes::modes(claim).to_vec(), bound, local, provisioner })
}
