//! What makes a pod of a gang dearer than a bare one: the same thousand pods, with one more of its properties each time,
//! by a loop, while the controller is dead.

use crate::loops::{self, bare};
use crate::usage::{cpu, spent};
use crate::yard::{AT_ONCE, Yard, count_pods};
use anyhow::Result;
use berth_e2e::{Shape, World};
use crds::names::labels;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::json;
use std::sync::Arc;

/// Runs all variants and prints what each took.
pub(crate) async fn measure(world: &Arc<World>) -> Result<()> {
    let yard = Yard::open(world, "anatomy", Shape::new(5, 10, 20)).await?;
    let seen = count_pods(world, &yard.story.name, 1000).await?;
    yard.story.submit("{name: train, roles: [{replicas: 1000}]}").await?;
    seen.done().await?;
    yard.story.running("train", "1000/1000").await?;
    world.controller.lock().await.kill();
    let pods = yard.pods().list(&ListParams::default()).await?.items;
    let controller = controller_client(world).await?;
    let plain = renamed(&bare(&pods), "plain");
    let owned = owned(&pods, renamed(&bare(&pods), "owned"));
    let fenced = labelled(&pods, owned.clone());
    for round in 0..2 {
        run(&yard, &format!("bare, {round}"), &world.client, &plain).await?;
        run(&yard, &format!("with owner, {round}"), &world.client, &owned).await?;
        run(&yard, &format!("with owner, by the controller's account, {round}"), &controller, &owned).await?;
        run(&yard, &format!("with owner and label, by the controller's account, {round}"), &controller, &fenced)
            .await?;
    }
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "copies", "namespace": yard.story.name},
        "spec": {"clusterIP": "None", "publishNotReadyAddresses": true, "selector": {labels::JOB: "owned"}, "ports": [{"port": 29500}]},
    });
    world.create(&service).await?;
    for round in 0..2 {
        run(&yard, &format!("… and a Service over them, {round}"), &controller, &fenced).await?;
    }
    world.controller.lock().await.start()?;
    Ok(())
}

async fn run(yard: &Yard, what: &str, client: &Client, pods: &[Pod]) -> Result<()> {
    let world = &yard.world;
    let before = cpu(world).await?;
    let took = loops::create(client, &yard.story.name, pods).await?;
    let after = cpu(world).await?;
    eprintln!("  {what}: {:.2} s at {AT_ONCE} at once; processor: {}", took.as_secs_f64(), spent(&before, &after));
    // Only the copies go.
    let api: Api<Pod> = yard.pods();
    let job = pods[0].metadata.labels.as_ref().and_then(|l| l.get(labels::JOB)).cloned().unwrap_or_default();
    let mine = ListParams::default().labels(&format!("{}={job}", labels::JOB));
    api.delete_collection(&kube::api::DeleteParams::default().grace_period(0), &mine).await?;
    crate::yard::until_count(&api, 1000).await
}

fn renamed(pods: &[Pod], job: &str) -> Vec<Pod> {
    let mut pods = pods.to_vec();
    for pod in &mut pods {
        let name = pod.metadata.name.take().unwrap_or_default();
        pod.metadata.name = Some(format!("{job}-{name}"));
        pod.metadata.labels.get_or_insert_default().insert(labels::JOB.to_owned(), job.to_owned());
    }
    pods
}

fn owned(models: &[Pod], mut pods: Vec<Pod>) -> Vec<Pod> {
    for (pod, model) in pods.iter_mut().zip(models) {
        pod.metadata.owner_references.clone_from(&model.metadata.owner_references);
    }
    pods
}

fn labelled(models: &[Pod], mut pods: Vec<Pod>) -> Vec<Pod> {
    for (pod, model) in pods.iter_mut().zip(models) {
        let berth = model.metadata.labels.as_ref().and_then(|l| l.get(labels::BERTH)).cloned();
        pod.metadata.labels.get_or_insert_default().insert(labels::BERTH.to_owned(), berth.unwrap_or_default());
    }
    pods
}

async fn controller_client(world: &World) -> Result<Client> {
    let kubeconfig = Kubeconfig::read_from(world.plane.token(crds::names::CONTROLLER_ACCOUNT)?)?;
    Ok(Client::try_from(Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?)?)
}
