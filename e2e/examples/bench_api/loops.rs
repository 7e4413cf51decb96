//! What Berth is compared with: loops that create given pods as fast as they can, plan nothing and ask nobody.

use crate::yard::{AT_ONCE, until_count};
use anyhow::{Context, Result};
use berth_e2e::World;
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::{Binding, ObjectReference, Pod};
use kube::Client;
use kube::api::{Api, DeleteParams, ListParams, ObjectMeta, PostParams};
use std::time::{Duration, Instant};

/// The same pods as they are before anybody made them. Only the controller may use its label, so it goes.
pub(crate) fn bare(pods: &[Pod]) -> Vec<Pod> {
    let fresh = |pod: &Pod| {
        let labels = pod.metadata.labels.clone().map(|mut all| {
            all.remove(crds::names::labels::BERTH);
            all
        });
        let metadata = ObjectMeta {
            name: pod.metadata.name.clone(),
            labels,
            annotations: pod.metadata.annotations.clone(),
            ..ObjectMeta::default()
        };
        Pod { metadata, spec: pod.spec.clone(), status: None }
    };
    pods.iter().map(fresh).collect()
}

/// Creates pods; the time until the last answer.
pub(crate) async fn create(client: &Client, namespace: &str, pods: &[Pod]) -> Result<Duration> {
    let api: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let began = Instant::now();
    let all = stream::iter(pods).map(|pod| {
        let api = api.clone();
        async move { api.create(&PostParams::default(), pod).await.map(drop) }
    });
    all.buffer_unordered(AT_ONCE).try_collect::<()>().await?;
    Ok(began.elapsed())
}

/// Creates pods without a node, then binds each: what a scheduler does; the time until the last answer.
pub(crate) async fn create_and_bind(client: &Client, namespace: &str, pods: &[Pod]) -> Result<Duration> {
    let api: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let unbound: Vec<(Pod, String)> = pods
        .iter()
        .map(|pod| {
            let mut pod = pod.clone();
            let node = pod.spec.as_mut().and_then(|s| s.node_name.take()).unwrap_or_default();
            (pod, node)
        })
        .collect();
    let began = Instant::now();
    let all = stream::iter(&unbound).map(|(pod, node)| {
        let api = api.clone();
        async move {
            let made = api.create(&PostParams::default(), pod).await?;
            let name = made.metadata.name.unwrap_or_default();
            let binding = Binding {
                metadata: ObjectMeta { name: Some(name.clone()), ..ObjectMeta::default() },
                target: ObjectReference {
                    kind: Some("Node".to_owned()),
                    name: Some(node.clone()),
                    ..ObjectReference::default()
                },
            };
            api.create_subresource::<_, k8s_openapi::apimachinery::pkg::apis::meta::v1::Status>(
                "binding",
                &name,
                &PostParams::default(),
                &binding,
            )
            .await
            .map(drop)
        }
    });
    all.buffer_unordered(AT_ONCE).try_collect::<()>().await?;
    Ok(began.elapsed())
}

/// Removes all pods of a namespace at once.
pub(crate) async fn remove_all(world: &World, name: &str) -> Result<()> {
    let api: Api<Pod> = Api::namespaced(world.client.clone(), name);
    api.delete_collection(&DeleteParams::default().grace_period(0), &ListParams::default())
        .await
        .context("the bare pods go")?;
    until_count(&api, 0).await
}
