//! Reads what a cache may not have seen yet, before anybody is refused for its absence.

use crate::cache::{Cache, Known};
use admission::Missing;
use admission::surroundings::{ClaimFacts, Surroundings, claims_of};
use crds::v1alpha1::{Queue, Topology, TrainingJob};
use k8s_openapi::api::core::v1::{Namespace, PersistentVolumeClaim, Service};
use k8s_openapi::api::scheduling::v1::PriorityClass;
use k8s_openapi::api::storage::v1::StorageClass;
use kube::api::{Api, ListParams};
use kube::{Client, Resource};
use std::fmt::Debug;
use std::time::Duration;

/// Longer than a healthy API server takes, and well below its patience with us.
const READ_LIMIT: Duration = Duration::from_secs(2);

/// Reads what is missing into the cache. True if something was found.
///
/// # Errors
/// If the API server does not answer in time: then nobody knows whether the object exists.
pub async fn look(client: &Client, cache: &Cache, missing: &[Missing]) -> kube::Result<bool> {
    let mut found = false;
    for each in missing {
        let read = async {
            match each {
                Missing::Queue(name) => get::<Queue>(client, cache, name).await,
                Missing::PriorityClass(name) => get::<PriorityClass>(client, cache, name).await,
                Missing::Namespace(name) => get::<Namespace>(client, cache, name).await,
                Missing::Level(level) => topologies(client, cache, level).await,
            }
        };
        found |= tokio::time::timeout(READ_LIMIT, read).await.map_err(|_| late())??;
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
    let access_modes = spec.and_then(|s| s.access_modes.clone()).unwrap_or_default();
    Ok(ClaimFacts { access_modes, bound, provisioner })
}
