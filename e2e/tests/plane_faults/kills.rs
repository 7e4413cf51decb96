//! SIGKILL of the controller, again and again, while gangs begin and end.

use crate::at_rest;
use anyhow::{Result, ensure};
use berth_e2e::runner::Told;
use berth_e2e::wait::{self, Objects};
use berth_e2e::{Shape, Story, World};
use crds::{Berth, names::labels};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{ListParams, PartialObjectMeta};
use kube::runtime::watcher;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// Gangs that live at the same time: a kill hits each at a point of its own.
const GANGS: usize = 5;
const PODS: usize = 24;
/// Points that must be hit, unless said otherwise.
const POINTS: usize = 20;

pub(crate) fn all() -> Vec<Told> {
    berth_e2e::stories![@alone a_controller_killed_at_many_points_of_a_gangs_life_leaves_whole_gangs_or_none]
}

async fn a_controller_killed_at_many_points_of_a_gangs_life_leaves_whole_gangs_or_none(
    world: Arc<World>,
) -> Result<()> {
    let wanted = std::env::var("BERTH_KILLS").ok().and_then(|n| n.parse().ok()).unwrap_or(POINTS);
    let story = Story::begin(&world, "killed_at_many_points", Shape::new(1, 2, 10)).await?;
    let (mut points, mut kinds, mut kills) = (0, BTreeSet::new(), 0);
    for round in 0.. {
        let names: Vec<String> = (0..GANGS).map(|i| format!("g{round}-{i}")).collect();
        // 1. Killed while they begin.
        for name in &names {
            story.submit(&format!("{{name: {name}, roles: [{{replicas: {PODS}, gpus: 1}}]}}")).await?;
        }
        begun(&story, round).await?;
        kills += 1;
        points += crash(&story, &names, "begins", &mut kinds).await?;
        for name in &names {
            story.running(name, &format!("{PODS}/{PODS}")).await?;
            let ever = story.ever(name).len();
            ensure!(ever == PODS, "{name} ever had {ever} pods");
        }
        at_rest(&world, &[&story.name]).await?;
        // 2. Killed while they end.
        for name in &names {
            story.delete(name).await?;
        }
        ended(&story, round).await?;
        kills += 1;
        points += crash(&story, &names, "ends", &mut kinds).await?;
        for name in &names {
            story.gone(name).await?;
            ensure!(story.ever(name).len() == PODS, "{name} got new pods while it ended");
        }
        if points >= wanted {
            break;
        }
    }
    at_rest(&world, &[&story.name]).await?;
    eprintln!("        {kills} kills hit gangs at {points} points: {kinds:?}");
    ensure!(kinds.len() >= 4, "the kills came too much alike: {kinds:?}");
    Ok(())
}

/// Waits for this round's moment while gangs begin: from the submission to the last pods.
async fn begun(story: &Story, round: usize) -> Result<()> {
    let moments = [1, 60, 0, 25, 100, 115];
    match moments[round % moments.len()] {
        0 => {
            let some = |all: &Objects<Berth>| all.len() >= GANGS / 2;
            wait::until(story.api::<Berth>(), watcher::Config::default(), "some Berths", some).await.map(drop)
        }
        pods => {
            let some = move |all: &Objects<Pod>| all.len() >= pods;
            wait::until(story.api::<Pod>(), watcher::Config::default(), "some pods", some).await.map(drop)
        }
    }
}

/// The same while they end: from the request to the last pods.
async fn ended(story: &Story, round: usize) -> Result<()> {
    let moments = [GANGS * PODS - 1, 50, GANGS * PODS, 10, 90];
    let left = moments[round % moments.len()];
    let few =
        move |all: &Objects<Pod>| all.values().filter(|p| p.metadata.deletion_timestamp.is_none()).count() <= left;
    wait::until(story.api::<Pod>(), watcher::Config::default(), "fewer pods", few).await.map(drop)
}

/// Ends the controller, looks how far each gang was, and starts it again; so many points were hit.
async fn crash(story: &Story, names: &[String], what: &str, kinds: &mut BTreeSet<String>) -> Result<usize> {
    let mut controller = story.world.controller.lock().await;
    controller.kill();
    let pods = story.api::<Pod>().list_metadata(&ListParams::default()).await?.items;
    controller.start()?;
    controller.ready(Duration::from_secs(120)).await?;
    for name in names {
        let of = |p: &PartialObjectMeta<Pod>| p.labels().get(labels::JOB) == Some(name);
        let (going, live): (Vec<_>, Vec<_>) =
            pods.iter().filter(|p| of(p)).partition(|p| p.metadata.deletion_timestamp.is_some());
        let stage = match (live.len(), going.len()) {
            (0, 0) => "without pods",
            (PODS, 0) => "with all pods",
            (0, _) => "with all pods leaving",
            (_, 0) => "with some pods",
            _ => "with some pods leaving",
        };
        kinds.insert(format!("{what} {stage}"));
    }
    Ok(names.len())
}
