//! The API server dies in the middle of a gang; the store forgets its history under the watches.

use crate::at_rest;
use anyhow::{Context, Result, ensure};
use berth_e2e::runner::Told;
use berth_e2e::{Shape, Story, World, process};
use std::collections::BTreeSet;
use std::sync::Arc;

pub(crate) fn all() -> Vec<Told> {
    berth_e2e::stories![
        @alone an_api_server_killed_in_the_middle_of_a_gang_loses_and_doubles_no_pod,
        @alone a_compacted_store_makes_every_watch_begin_anew,
    ]
}

async fn an_api_server_killed_in_the_middle_of_a_gang_loses_and_doubles_no_pod(world: Arc<World>) -> Result<()> {
    let story = Story::begin(&world, "an_api_server_killed", Shape::new(1, 1, 25)).await?;
    story.submit("{name: train, roles: [{replicas: 200, gpus: 1}]}").await?;
    story.pods_until("train", "the first pods", |pods| !pods.is_empty()).await?;
    run(&world, "restart-apiserver").await?;
    let at = story.pods("train").await?.len();
    story.running("train", "200/200").await?;
    at_rest(&world, &[&story.name]).await?;
    let names: BTreeSet<String> = story.ever("train").into_iter().collect();
    ensure!(names.len() == 200, "{} names of pods", names.len());
    eprintln!("        it was back at {at} of 200 pods");
    story.delete("train").await?;
    story.gone("train").await
}

async fn a_compacted_store_makes_every_watch_begin_anew(world: Arc<World>) -> Result<()> {
    let story = Story::begin(&world, "a_compacted_store", Shape::new(1, 1, 4)).await?;
    story.submit("{name: before, roles: [{replicas: 2}]}").await?;
    story.running("before", "2/2").await?;
    let begun = restarts(&world).await?;
    // The versions that the watches know are gone for good: the restarted server answers them 410.
    run(&world, "compact-etcd").await?;
    run(&world, "restart-apiserver").await?;
    story.submit("{name: after, roles: [{replicas: 2}]}").await?;
    story.running("after", "2/2").await?;
    let now = restarts(&world).await?;
    ensure!(now > begun, "no watch began anew: {begun} before, {now} after");
    ensure!(story.ever("before").len() == 2, "the running job was disturbed");
    at_rest(&world, &[&story.name]).await
}

/// Watches that the controller has begun anew so far; a controller that was itself begun anew has none before.
async fn restarts(world: &World) -> Result<u64> {
    let text = process::get(world.metrics, "/metrics").await?;
    let counts = text.lines().filter(|l| l.starts_with("berth_watch_restarts")).filter_map(|l| l.rsplit(' ').next());
    Ok(counts.filter_map(|n| n.parse::<u64>().ok()).sum())
}

/// A verb of the control plane, off this thread.
async fn run(world: &World, verb: &'static str) -> Result<()> {
    let plane = world.plane.clone();
    tokio::task::spawn_blocking(move || plane.run(verb, &[])).await?.context(verb).map(drop)
}
