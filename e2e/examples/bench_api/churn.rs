//! Gangs that come and go at 5,000 nodes: how many pods a second pass through, at how many calls each, and what the
//! controller's memory does over it.

use crate::figure::Figures;
use crate::usage::{Calls, between, calls, cpu, of_berth, rss_mib, spent};
use crate::yard::Yard;
use anyhow::{Context, Result};
use berth_e2e::{Shape, World};
use crds::TrainingJob;
use crds::v1alpha1::Phase;
use futures::TryStreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::runtime::{WatchStreamExt, watcher};
use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::Arc;
use std::time::Instant;

/// Gangs in all, and how many of them are there at once.
const GANGS: usize = 1000;
const AT_ONCE: usize = 250;
const SIZE: usize = 4;

/// Rate and calls of the churn.
pub(crate) async fn measure(world: &Arc<World>, figures: &mut Figures) -> Result<()> {
    let yard = Yard::open(world, "churn", Shape::new(10, 25, 20)).await?;
    let text = |i| {
        format!(
            "{{name: g{i:04}, topology: {{required: rack}}, ttlAfterFinished: 0s, roles: [{{replicas: {SIZE}, runtime: 2s}}]}}"
        )
    };
    let (before, spent_before) = (calls(world).await?, cpu(world).await?);
    let began = Instant::now();
    // Each that is gone makes room for the next.
    let mut events = pin!(watcher(yard.story.jobs(), watcher::Config::default()).default_backoff());
    let (mut next, mut gone, mut failed) = (0, 0, BTreeSet::new());
    while gone < GANGS {
        while next < GANGS && next - gone < AT_ONCE {
            yard.story.submit(&text(next)).await?;
            next += 1;
        }
        match events.try_next().await?.context("the watch ended")? {
            watcher::Event::Delete(_) => gone += 1,
            watcher::Event::Apply(job) if job.status.as_ref().and_then(|s| s.phase) == Some(Phase::Failed) => {
                failed.insert(job.name_any());
            }
            _ => {}
        }
    }
    let took = began.elapsed();
    anyhow::ensure!(failed.is_empty(), "failed: {failed:?}");
    yard.until_count::<Pod>(0).await?;
    yard.until_count::<TrainingJob>(0).await?;
    let all = between(&before, &calls(world).await?);
    #[allow(clippy::cast_precision_loss)] // thousands
    let pods = (GANGS * SIZE) as f64;
    eprintln!("    {:.1} s; {}", took.as_secs_f64(), spent(&spent_before, &cpu(world).await?));
    let peer = "1,000 gangs of 4 at 5,000 nodes, 250 at once, 2 s each, from the first submission to the last one gone";
    figures.higher("churn_pods_per_s", &[pods / took.as_secs_f64()], "pods/s", None, peer);
    let mut writes = of_berth(&all);
    writes.remove("POST trainingjobs");
    let by_verb =
        writes.iter().map(|(verb, n)| format!("{verb} {:.2}", ratio(*n, pods))).collect::<Vec<_>>().join(", ");
    figures.lower(
        "churn_writes_per_pod",
        &[ratio(writes.values().sum(), pods)],
        "writes",
        None,
        &format!("over the whole life: {by_verb}"),
    );
    figures.lower(
        "churn_reads_per_pod",
        &[ratio(reads(&all), pods)],
        "reads",
        None,
        "gets and lists of everybody: kubelets and controllers too",
    );
    Ok(())
}

#[allow(clippy::cast_precision_loss)] // counts
fn ratio(count: u64, of: f64) -> f64 {
    count as f64 / of
}

fn reads(all: &Calls) -> u64 {
    all.iter().filter(|(key, _)| key.starts_with("GET ") || key.starts_with("LIST ")).map(|(_, n)| n).sum()
}

/// Resident memory of the controller after each of some cycles of a gang of 1,000 that is made and deleted.
pub(crate) async fn memory(world: &Arc<World>, figures: &mut Figures) -> Result<()> {
    let cycles = std::env::var("BERTH_BENCH_CYCLES").ok().and_then(|n| n.parse().ok()).unwrap_or(20);
    let yard = Yard::open(world, "memory", Shape::new(5, 10, 20)).await?;
    let mut runs = Vec::new();
    for _ in 0..cycles {
        yard.story.submit("{name: train, roles: [{replicas: 1000}]}").await?;
        yard.until_running(1).await?;
        yard.clear().await?;
        let pid = world.controller.lock().await.pid().context("it runs")?;
        runs.push(rss_mib(pid)?);
    }
    let peer = format!("of the controller after each of {cycles} gangs of 1,000, made and deleted, at 1,000 nodes");
    figures.lower("rss_mib", &runs, "MiB", Some(1024.0), &peer);
    let half = runs.len() / 2;
    let mean = |part: &[f64]| part.iter().sum::<f64>() / ratio_len(part);
    let growth = (mean(&runs[half..]) / mean(&runs[..half]) - 1.0) * 100.0;
    figures.lower("rss_growth", &[growth], "%", Some(10.0), "mean of the second half of the cycles over the first");
    Ok(())
}

#[allow(clippy::cast_precision_loss)] // a few
fn ratio_len(part: &[f64]) -> f64 {
    part.len() as f64
}
