//! Reads what a cache may not have seen yet, before anybody is refused for its absence.

use crate::cache::{Cache, Known};
use admission::Missing;
use crds::v1alpha1::{Queue, Topology};
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::scheduling::v1::PriorityClass;
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
