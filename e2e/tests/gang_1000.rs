//! One gang of 1,000 pods on 1,000 nodes, beside the same pods made by a bare concurrent loop that plans nothing, writes
//! nothing down and asks nobody.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)] // the lints are for code outside tests

use anyhow::{Context, Result, ensure};
use berth_e2e::runner::{self, Told};
use berth_e2e::wait;
use berth_e2e::{Shape, Story, World};
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use kube::runtime::watcher;
use serde_json::json;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

const PODS: usize = 1000;
/// Writes of the bare loop under way at once: three times as many as the controller's, so that the loop is no straw man.
const AT_ONCE: usize = 96;

fn main() -> ExitCode {
    runner::main("gang_1000", stories())
}

fn stories() -> Vec<Told> {
    berth_e2e::stories![@alone a_gang_of_1000_starts]
}

async fn a_gang_of_1000_starts(world: Arc<World>) -> Result<()> {
    let story = Story::begin(&world, "a_gang_of_1000_starts", Shape::new(5, 10, 20)).await?;
    // 1. The gang: from the user's submission to the last pod seen.
    let seen = tokio::spawn(counted(story.api::<Pod>()));
    let began = Instant::now();
    story.submit(&format!("{{name: train, roles: [{{replicas: {PODS}}}]}}")).await?;
    let gang = seen.await??.duration_since(began);
    story.running("train", &format!("{PODS}/{PODS}")).await?;
    let running = began.elapsed();
    let pods: Vec<Pod> = story.pods("train").await?.into_values().collect();
    ensure!(pods.len() == PODS && story.ever("train").len() == PODS, "{} pods", pods.len());
    // 2. Room again.
    story.delete("train").await?;
    story.gone("train").await?;
    // 3. The same pods by a loop.
    let bare = bare_loop(&world, pods).await?;
    eprintln!("\n  {PODS} pods, last one created after      seconds   pods/s");
    eprintln!("  gang by Berth, from its submission      {:7.2} {:8.0}", gang.as_secs_f64(), rate(gang));
    eprintln!("  the same pods by a bare loop            {:7.2} {:8.0}", bare.as_secs_f64(), rate(bare));
    eprintln!("  ratio                                   {:7.2}", gang.as_secs_f64() / bare.as_secs_f64());
    eprintln!("  gang Running with all pods ready after  {:7.2}\n", running.as_secs_f64());
    Ok(())
}

fn rate(span: Duration) -> f64 {
    1000.0 / span.as_secs_f64()
}

/// When the last of the pods was seen.
async fn counted(pods: Api<Pod>) -> Result<Instant> {
    wait::until(pods, watcher::Config::default(), "all pods", |all| all.len() >= PODS).await?;
    Ok(Instant::now())
}

async fn bare_loop(world: &World, pods: Vec<Pod>) -> Result<Duration> {
    world.create(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "bare"}})).await?;
    let api: Api<Pod> = Api::namespaced(world.client.clone(), "bare");
    let same = pods.into_iter().map(|pod| Pod {
        metadata: kube::api::ObjectMeta {
            name: pod.metadata.name,
            // Only the controller may use this label.
            labels: pod.metadata.labels.map(|mut l| {
                l.remove(crds::names::labels::BERTH);
                l
            }),
            annotations: pod.metadata.annotations,
            ..Default::default()
        },
        spec: pod.spec,
        status: None,
    });
    let same: Vec<Pod> = same.collect();
    let began = Instant::now();
    let created = stream::iter(same).map(|pod| {
        let api = api.clone();
        async move { api.create(&PostParams::default(), &pod).await }
    });
    created.buffer_unordered(AT_ONCE).try_for_each(|_| async { Ok(()) }).await?;
    let took = began.elapsed();
    let there = api.list_metadata(&ListParams::default()).await?.items.len();
    ensure!(there == PODS, "{there} pods");
    api.delete_collection(&DeleteParams::default().grace_period(0), &ListParams::default())
        .await
        .context("the bare pods go")?;
    Ok(took)
}
