//! Queues: limits, guarantees, priorities, states; and time: reservations and what is started around them.

use anyhow::{Context, Result, ensure};
use berth_e2e::runner::Told;
use berth_e2e::story::{phase_of, racks};
use berth_e2e::{Shape, Story, World};
use crds::v1alpha1::{BerthState, Phase};
use serde_json::json;
use std::sync::Arc;

pub(crate) fn all() -> Vec<Told> {
    berth_e2e::stories![
        a_job_over_its_queues_limit_waits_and_holds_nothing,
        the_limit_of_a_queue_above_counts_too,
        a_held_queue_starts_nothing_until_it_is_open,
        no_more_jobs_run_than_the_queue_allows,
        a_guarantee_is_taken_back_from_a_borrower,
        higher_priority_takes_the_room_of_lower,
        a_preemption_clears_exactly_one_rack,
        a_job_that_may_not_be_preempted_needs_guarantee,
        a_namespace_quota_is_seen_before_anything_starts,
        a_reservation_holds_and_short_jobs_fill_the_gap,
    ]
}

fn gpus(count: u32) -> serde_json::Value {
    json!({"nvidia.com/gpu": count.to_string()})
}

async fn a_job_over_its_queues_limit_waits_and_holds_nothing(world: Arc<World>) -> Result<()> {
    let name = "a_job_over_its_queues_limit_waits";
    let story = Story::begin_with(&world, name, Shape::new(1, 1, 4), json!({"limit": gpus(16)})).await?;
    story.submit("{name: first, roles: [{replicas: 1}]}").await?;
    story.running("first", "1/1").await?;
    story.submit("{name: second, roles: [{replicas: 2}]}").await?;
    let waits = story.pending("second", "QueueLimit").await?;
    let message = waits.status.and_then(|s| s.pending).context("it waits")?.message;
    ensure!(message.contains(&story.name), "the message names the queue: {message}");
    // A smaller one passes it, within the limit: the waiting one holds no room it may not use.
    story
        .queue_until(&story.name, "use and waiting jobs counted", |q| {
            q.status.as_ref().is_some_and(|s| s.pending_jobs == 1 && s.running_jobs == 1)
        })
        .await?;
    story.never_had_pods("second")?;
    story.delete("first").await?;
    story.running("second", "2/2").await?;
    Ok(())
}

async fn the_limit_of_a_queue_above_counts_too(world: Arc<World>) -> Result<()> {
    let story = Story::begin(&world, "the_limit_of_a_queue_above", Shape::new(1, 1, 4)).await?;
    let name = |role: &str| format!("{}-{role}", story.name);
    story.queue(&name("above"), json!({"limit": gpus(16)})).await?;
    for leaf in ["left", "right"] {
        story.queue(&name(leaf), json!({"parent": name("above")})).await?;
    }
    story.submit(&format!("{{name: first, queue: {}, roles: [{{replicas: 1}}]}}", name("left"))).await?;
    story.running("first", "1/1").await?;
    story.submit(&format!("{{name: second, queue: {}, roles: [{{replicas: 2}}]}}", name("right"))).await?;
    let waits = story.pending("second", "QueueLimit").await?;
    let message = waits.status.and_then(|s| s.pending).context("it waits")?.message;
    ensure!(message.contains(&name("above")), "the message names the queue that limits: {message}");
    story.never_had_pods("second")
}

async fn a_held_queue_starts_nothing_until_it_is_open(world: Arc<World>) -> Result<()> {
    let story =
        Story::begin_with(&world, "a_held_queue_starts_nothing", Shape::new(1, 1, 1), json!({"state": "Held"})).await?;
    story.submit("{name: train, roles: [{replicas: 1}]}").await?;
    story.pending("train", "QueueHeld").await?;
    story.never_had_pods("train")?;
    set_queue(&story, json!({"spec": {"state": "Open"}})).await?;
    story.running("train", "1/1").await?;
    Ok(())
}

async fn set_queue(story: &Story, change: serde_json::Value) -> Result<()> {
    let queues: kube::Api<crds::Queue> = kube::Api::all(story.world.client.clone());
    queues.patch(&story.name, &kube::api::PatchParams::default(), &kube::api::Patch::Merge(change)).await?;
    Ok(())
}

async fn no_more_jobs_run_than_the_queue_allows(world: Arc<World>) -> Result<()> {
    let story =
        Story::begin_with(&world, "no_more_jobs_run_than_allowed", Shape::new(1, 1, 3), json!({"maxRunningJobs": 1}))
            .await?;
    story.submit("{name: first, roles: [{replicas: 1}]}").await?;
    story.running("first", "1/1").await?;
    story.submit("{name: second, roles: [{replicas: 1}]}").await?;
    story.pending("second", "MaxRunningJobs").await?;
    story.never_had_pods("second")?;
    story.delete("first").await?;
    story.running("second", "1/1").await?;
    Ok(())
}

async fn a_guarantee_is_taken_back_from_a_borrower(world: Arc<World>) -> Result<()> {
    let story =
        Story::begin_with(&world, "a_guarantee_is_taken_back", Shape::new(1, 1, 2), json!({"guarantee": gpus(8)}))
            .await?;
    let other = format!("{}-other", story.name);
    story.queue(&other, json!({})).await?;
    story.submit(&format!("{{name: borrower, queue: {other}, roles: [{{replicas: 2}}]}}")).await?;
    story.running("borrower", "2/2").await?;
    story.submit("{name: owner, roles: [{replicas: 1}]}").await?;
    story.running("owner", "1/1").await?;
    story.event("borrower", "Reclaimed").await?;
    let borrower = story.job_until("borrower", "waiting again", |j| phase_of(j) != Some(Phase::Running)).await?;
    let status = borrower.status.context("a status")?;
    ensure!(status.restarts.unwrap_or(0) == 0, "nobody's code failed");
    Ok(())
}

async fn higher_priority_takes_the_room_of_lower(world: Arc<World>) -> Result<()> {
    let story = Story::begin(&world, "higher_priority_takes_the_room", Shape::new(1, 1, 3)).await?;
    let class = format!("{}-high", story.name);
    world
        .create(&json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": class}, "value": 1000}))
        .await?;
    story.submit("{name: small, roles: [{replicas: 1}]}").await?;
    story.running("small", "1/1").await?;
    story.submit("{name: large, roles: [{replicas: 2}]}").await?;
    story.running("large", "2/2").await?;
    story.submit(&format!("{{name: urgent, priorityClassName: {class}, roles: [{{replicas: 1}}]}}")).await?;
    story.running("urgent", "1/1").await?;
    // The youngest or the smallest may go, but never both: one node was wanted.
    let (small, large) = (story.job("small").await?, story.job("large").await?);
    let still: Vec<_> = [&small, &large].into_iter().filter(|j| phase_of(j) == Some(Phase::Running)).collect();
    ensure!(still.len() == 1, "small is {:?}, large is {:?}", phase_of(&small), phase_of(&large));
    let victim = if phase_of(&small) == Some(Phase::Running) { "large" } else { "small" };
    story.event(victim, "Preempted").await?;
    Ok(())
}

async fn a_preemption_clears_exactly_one_rack(world: Arc<World>) -> Result<()> {
    let story = Story::begin(&world, "a_preemption_clears_one_rack", Shape::new(1, 3, 2)).await?;
    let class = format!("{}-high", story.name);
    world
        .create(&json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": class}, "value": 1000}))
        .await?;
    // Every node is taken by a job of its own, so that any two nodes could be cleared, of one rack or of two.
    let jobs: Vec<String> = (0..6).map(|i| format!("low-{i}")).collect();
    for job in &jobs {
        story.submit(&format!("{{name: {job}, roles: [{{replicas: 1, stop-delay: 3s}}]}}")).await?;
    }
    let mut homes = std::collections::BTreeMap::new();
    for job in &jobs {
        story.running(job, "1/1").await?;
        homes.insert(job.clone(), racks(&story.pods(job).await?));
    }
    let urgent =
        format!("{{name: urgent, priorityClassName: {class}, topology: {{required: rack}}, roles: [{{replicas: 2}}]}}");
    story.submit(&urgent).await?;
    // The room is written down as its own before anybody is told to go.
    let clears = |b: &crds::Berth| b.spec.state == BerthState::Reserved && b.spec.clears.len() == 2;
    story.berth_until("urgent", "its Berth names whom it clears", clears).await?;
    story.running("urgent", "2/2").await?;
    let cleared = racks(&story.pods("urgent").await?);
    ensure!(cleared.len() == 1, "it is in {cleared:?}");
    for (job, home) in &homes {
        let runs = phase_of(&story.job(job).await?) == Some(Phase::Running);
        ensure!(runs != (*home == cleared), "{job} of {home:?} runs: {runs}; cleared was {cleared:?}");
    }
    Ok(())
}

async fn a_job_that_may_not_be_preempted_needs_guarantee(world: Arc<World>) -> Result<()> {
    let story = Story::begin_with(
        &world,
        "not_preemptible_needs_guarantee",
        Shape::new(1, 1, 2),
        json!({"guarantee": gpus(8)}),
    )
    .await?;
    story.submit("{name: within, preemptible: false, roles: [{replicas: 1}]}").await?;
    story.running("within", "1/1").await?;
    story.submit("{name: beyond, preemptible: false, roles: [{replicas: 1}]}").await?;
    story.pending("beyond", "NonPreemptibleNeedsGuarantee").await?;
    story.never_had_pods("beyond")
}

async fn a_namespace_quota_is_seen_before_anything_starts(world: Arc<World>) -> Result<()> {
    let story = Story::begin(&world, "a_namespace_quota_is_seen", Shape::new(1, 1, 3)).await?;
    world
        .create(&json!({
            "apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "pods", "namespace": story.name},
            "spec": {"hard": {"count/pods": "2"}},
        }))
        .await?;
    berth_e2e::wait::until(
        story.api::<k8s_openapi::api::core::v1::ResourceQuota>(),
        kube::runtime::watcher::Config::default(),
        "the quota counted",
        |all| all.values().any(|q| q.status.as_ref().is_some_and(|s| s.used.is_some())),
    )
    .await?;
    story.submit("{name: train, roles: [{replicas: 3}]}").await?;
    story.pending("train", "NamespaceQuota").await?;
    story.never_had_pods("train")?;
    let quotas = story.api::<k8s_openapi::api::core::v1::ResourceQuota>();
    let more = kube::api::Patch::Merge(json!({"spec": {"hard": {"count/pods": "3"}}}));
    quotas.patch("pods", &kube::api::PatchParams::default(), &more).await?;
    story.running("train", "3/3").await?;
    Ok(())
}

async fn a_reservation_holds_and_short_jobs_fill_the_gap(world: Arc<World>) -> Result<()> {
    let story = Story::begin(&world, "a_reservation_holds", Shape::new(1, 1, 3)).await?;
    story.submit("{name: first, maxRuntime: 30m, roles: [{replicas: 2}]}").await?;
    story.running("first", "2/2").await?;
    story.submit("{name: big, maxRuntime: 1h, roles: [{replicas: 3}]}").await?;
    story.phase("big", Phase::Reserved).await?;
    let promised = story.berths("big", BerthState::Reserved).await?;
    let start = promised.first().and_then(|b| b.spec.start).context("a start is promised")?;
    // One node is free until then. What would outlast it waits; what ends before, runs.
    story.submit("{name: long, maxRuntime: 8h, roles: [{replicas: 1}]}").await?;
    story
        .job_until("long", "waiting", |j| {
            j.status.as_ref().is_some_and(|s| s.pending.is_some() || s.phase == Some(Phase::Reserved))
        })
        .await?;
    story.submit("{name: short, maxRuntime: 5m, roles: [{replicas: 1}]}").await?;
    story.running("short", "1/1").await?;
    story.never_had_pods("long")?;
    story.never_had_pods("big")?;
    let kept = story.berths("big", BerthState::Reserved).await?;
    let still = kept.first().and_then(|b| b.spec.start).context("it is still promised")?;
    ensure!(still <= start, "promised for {start}, now {still}: the short job delayed it");
    story.delete("first").await?;
    story.delete("short").await?;
    story.running("big", "3/3").await?;
    Ok(())
}
