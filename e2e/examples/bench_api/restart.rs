//! A controller that starts on a large cluster: how long until it decides, and how much memory it takes.

use crate::figure::Figures;
use crate::usage::rss_mib;
use crate::yard::{AT_ONCE, Yard, namespace, until_count};
use anyhow::{Context, Result};
use berth_e2e::wait;
use berth_e2e::{Shape, World};
use crds::Berth;
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{Api, ListParams, PostParams};
use kube::runtime::watcher;
use serde_json::json;
use std::sync::Arc;
use std::time::{Duration, Instant};

const NODES: usize = 5000;
const ROUNDS: usize = 3;

/// From the start of the process to the first Berth it writes.
pub(crate) async fn measure(world: &Arc<World>, figures: &mut Figures) -> Result<()> {
    let pods: usize = std::env::var("BERTH_BENCH_PODS").ok().and_then(|n| n.parse().ok()).unwrap_or(150_000);
    stop(world).await?;
    let yard = Yard::open(world, "restart", Shape::new(10, 25, 20)).await?;
    // Nobody plays their kubelets: 150,000 statuses are not what is measured.
    world.plane.run("kill", &["kwok"])?;
    fill(&yard, pods).await?;
    let (mut times, mut memory) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        yard.story
            .submit(&format!(
                "{{name: first-{round}, topology: {{required: rack}}, roles: [{{replicas: 4, gpus: 1}}]}}"
            ))
            .await?;
        let began = Instant::now();
        world.controller.lock().await.start()?;
        let name = format!("first-{round}-1");
        let there = move |all: &wait::Objects<Berth>| all.contains_key(&name);
        wait::until(yard.story.api::<Berth>(), watcher::Config::default(), "a Berth", there).await?;
        times.push(began.elapsed().as_secs_f64());
        let pid = world.controller.lock().await.pid().context("it runs")?;
        memory.push(rss_mib(pid)?);
        stop(world).await?;
    }
    let peer = format!(
        "{NODES} nodes, {pods} pods of others, from the start of the process; Volcano 497 s at 140,000 pods (its issue 5819)"
    );
    figures.lower("restart_to_first_decision_s", &times, "s", Some(10.0), &peer);
    figures.lower(
        "rss_large_mib",
        &memory,
        "MiB",
        Some(1024.0),
        &format!("of the controller there, {NODES} nodes and {pods} pods"),
    );
    Ok(())
}

/// Ends the controller as a rolling update does: it gives its Lease back.
async fn stop(world: &World) -> Result<()> {
    let mut controller = world.controller.lock().await;
    controller.signal("TERM")?;
    tokio::time::timeout(Duration::from_secs(60), controller.ended()).await.context("it does not end")?;
    controller.kill();
    Ok(())
}

/// Bound pods of somebody else, evenly over the nodes; no kubelet plays them.
async fn fill(yard: &Yard, count: usize) -> Result<()> {
    let (world, space) = (&yard.world, "others");
    namespace(world, space).await?;
    let nodes: Vec<String> =
        world.nodes().list_metadata(&ListParams::default()).await?.items.iter().map(ResourceExt::name_any).collect();
    let api: Api<Pod> = Api::namespaced(world.client.clone(), space);
    let began = Instant::now();
    let all = stream::iter(0..count).map(|i| {
        let (api, node) = (api.clone(), &nodes[i % nodes.len()]);
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": format!("other-{i}"), "labels": {"app": "other"}},
            "spec": {"nodeName": node, "automountServiceAccountToken": false, "containers": [
                {"name": "main", "image": "registry.example.com/team/service:v1", "resources": {"requests": {"cpu": "100m", "memory": "256Mi"}}},
            ]},
        });
        async move {
            let pod: Pod = serde_json::from_value(pod)?;
            api.create(&PostParams::default(), &pod).await?;
            anyhow::Ok(())
        }
    });
    all.buffer_unordered(AT_ONCE).try_collect::<()>().await?;
    until_count(&api, count).await?;
    eprintln!("    {count} pods of others made in {:.0} s", began.elapsed().as_secs_f64());
    Ok(())
}
