//! A gang of 1,000, and 250 gangs of 4 in one rack each, beside loops that make the same pods, at 1,000 nodes.

use crate::figure::Figures;
use crate::loops::{self, bare};
use crate::usage::{between, calls, calm, cpu, of_berth, spent};
use crate::yard::{Yard, count_pods, namespace, remove_namespace};
use anyhow::Result;
use berth_e2e::{Shape, World};
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use serde_json::Value;
use std::sync::Arc;
use std::time::{Duration, Instant};

const PODS: usize = 1000;
/// Runs of everything, taken in turn: what a busy moment costs, it costs all.
const ROUNDS: usize = 3;

/// Times of one thing measured beside the loops.
#[derive(Default)]
struct Rounds {
    berth: Vec<f64>,
    bare: Vec<f64>,
    bound: Vec<f64>,
    writes: Vec<f64>,
}

/// The gang of 1,000.
pub(crate) async fn thousand(world: &Arc<World>, figures: &mut Figures) -> Result<()> {
    let yard = Yard::open(world, "thousand", Shape::new(5, 10, 20)).await?;
    let job = yard.story.manifest(&format!("{{name: train, roles: [{{replicas: {PODS}}}]}}"))?;
    let rounds = measure(&yard, &[job]).await?;
    let peer = "seconds from submission to the last pod ÷ seconds of the bare loop of 96 at once";
    figures.lower("gang_1000_over_loop", &ratios(&rounds.berth, &rounds.bare), "×", Some(1.25), peer);
    figures.lower(
        "gang_1000_over_bind_loop",
        &ratios(&rounds.berth, &rounds.bound),
        "×",
        None,
        "÷ the create-then-bind loop",
    );
    figures.lower("gang_1000_s", &rounds.berth, "s", None, "from submission to the last pod");
    figures.lower("bare_1000_s", &rounds.bare, "s", None, "the bare loop");
    figures.lower("bind_1000_s", &rounds.bound, "s", None, "the create-then-bind loop");
    let peer = "all writes from submission to Running, user's own and events aside";
    figures.lower("gang_1000_writes_per_pod", &rounds.writes, "writes", Some(1.05), peer);
    Ok(())
}

/// The gangs of 4.
pub(crate) async fn fours(world: &Arc<World>, figures: &mut Figures) -> Result<()> {
    let yard = Yard::open(world, "fours", Shape::new(5, 10, 20)).await?;
    let text = |i| format!("{{name: g{i:03}, topology: {{required: rack}}, roles: [{{replicas: 4}}]}}");
    let jobs: Vec<Value> = (0..PODS / 4).map(|i| yard.story.manifest(&text(i))).collect::<Result<_>>()?;
    let rounds = measure(&yard, &jobs).await?;
    let rate = |times: &[f64]| -> Vec<f64> { times.iter().map(|t| 1000.0 / t).collect() };
    let share: Vec<f64> = ratios(&rounds.bare, &rounds.berth).iter().map(|r| r * 100.0).collect();
    let peer = "of the bare loop's pods a second; the loop makes pods alone, Berth each gang's journal, Service and status too";
    figures.higher("gangs_of_4_over_loop", &share, "%", Some(40.0), peer);
    let peer = "kube-scheduler 1.37's gangs 52, Kueue 0.17 44, Volcano 1.15 27 on such a machine";
    figures.higher("gangs_of_4_pods_per_s", &rate(&rounds.berth), "pods/s", Some(312.0), peer);
    figures.higher(
        "gangs_of_4_bare_pods_per_s",
        &rate(&rounds.bare),
        "pods/s",
        None,
        "the bare loop; 836 where marks were made",
    );
    figures.higher("gangs_of_4_bind_pods_per_s", &rate(&rounds.bound), "pods/s", None, "create-then-bind; 518 there");
    let peer = "all writes from submission to Running, user's own and events aside";
    figures.lower("gangs_of_4_writes_per_pod", &rounds.writes, "writes", Some(2.0), peer);
    Ok(())
}

fn ratios(above: &[f64], below: &[f64]) -> Vec<f64> {
    above.iter().zip(below).map(|(a, b)| a / b).collect()
}

async fn measure(yard: &Yard, jobs: &[Value]) -> Result<Rounds> {
    let mut rounds = Rounds::default();
    let (world, client) = (&yard.world, &yard.world.client);
    for round in 0..ROUNDS {
        let (took, writes, pods) = by_berth(yard, jobs, &format!("Berth, {round}")).await?;
        rounds.berth.push(took.as_secs_f64());
        rounds.writes.push(writes);
        yard.clear().await?;
        let (pods, name) = (bare(&pods), format!("{}-loop-{round}", yard.story.name));
        namespace(world, &name).await?;
        calm(world).await?;
        let before = cpu(world).await?;
        let seen = count_pods(world, &name, PODS).await?;
        let took = loops::create(client, &name, &pods).await?;
        seen.done().await?;
        eprintln!("    bare loop, {round}: {:.2} s; {}", took.as_secs_f64(), spent(&before, &cpu(world).await?));
        rounds.bare.push(took.as_secs_f64());
        loops::remove_all(world, &name).await?;
        calm(world).await?;
        let before = cpu(world).await?;
        let took = loops::create_and_bind(client, &name, &pods).await?;
        eprintln!(
            "    create, then bind, {round}: {:.2} s; {}",
            took.as_secs_f64(),
            spent(&before, &cpu(world).await?)
        );
        rounds.bound.push(took.as_secs_f64());
        loops::remove_all(world, &name).await?;
        remove_namespace(world, &name).await?;
    }
    Ok(rounds)
}

/// From the first submission to the last pod, writes a pod until all run, and the pods.
async fn by_berth(yard: &Yard, jobs: &[Value], what: &str) -> Result<(Duration, f64, Vec<Pod>)> {
    let world = &yard.world;
    calm(world).await?;
    let (before, spent_before) = (calls(world).await?, cpu(world).await?);
    let seen = count_pods(world, &yard.story.name, PODS).await?;
    let began = Instant::now();
    yard.submit_all(jobs).await?;
    let submitted = began.elapsed();
    let took = seen.done().await?.duration_since(began);
    let cost = spent(&spent_before, &cpu(world).await?);
    yard.until_running(jobs.len()).await?;
    let running = began.elapsed();
    let all = between(&before, &calls(world).await?);
    let mut made = of_berth(&all);
    made.remove("POST trainingjobs");
    let writes: u64 = made.values().sum();
    #[allow(clippy::cast_precision_loss)] // thousands
    let writes = writes as f64 / PODS as f64;
    let seconds = Duration::as_secs_f64;
    eprintln!(
        "    {what}: submitted {:.2} s, pods {:.2} s, running {:.2} s; {cost}\n      writes {writes:.3} a pod: {made:?}",
        seconds(&submitted),
        seconds(&took),
        seconds(&running)
    );
    let rest: Vec<String> = all
        .iter()
        .filter(|(key, n)| **n >= 20 && !made.contains_key(*key))
        .map(|(key, n)| format!("{key} {n}"))
        .collect();
    eprintln!("      others' calls and reads: {}", rest.join(", "));
    let pods = yard.pods().list(&ListParams::default()).await?.items;
    Ok((took, writes, pods))
}
