//! The life of a job: how it ends, fails, restarts, pauses and goes.

use anyhow::{Context, Result, ensure};
use berth_e2e::runner::Told;
use berth_e2e::story::{is_live, phase_of, refused};
use berth_e2e::{Shape, Story, World};
use crds::names::conditions::FINISHED;
use crds::v1alpha1::{BerthState, Phase};
use k8s_openapi::api::core::v1::{Pod, Service};
use kube::ResourceExt;
use kube::api::DeleteParams;
use serde_json::json;
use std::sync::Arc;

pub(crate) fn all() -> Vec<Told> {
    berth_e2e::stories![
        a_job_whose_pods_end_well_succeeds_and_gives_its_room_back,
        success_may_depend_on_one_role,
        a_failure_restarts_the_gang_until_the_limit,
        an_exit_code_may_end_the_job_at_once,
        a_failed_pod_may_be_replaced_alone,
        the_policy_fail_ends_at_the_first_failure,
        a_job_over_its_max_runtime_is_stopped,
        a_deleted_pod_is_not_the_users_failure,
        suspending_gives_the_berth_back_and_resuming_starts_again,
        a_job_deleted_while_it_is_made_leaves_nothing,
        a_job_deleted_and_made_again_is_a_new_job,
        a_finished_job_goes_after_its_time_to_live,
        only_some_fields_change_while_a_job_holds_nodes,
        berths_and_their_pods_are_the_controllers,
        users_read_the_story_in_events,
    ]
}

/// Why a job is finished.
fn finished(job: &crds::TrainingJob) -> Option<String> {
    let conditions = &job.status.as_ref()?.conditions;
    let done = conditions.iter().find(|c| c.type_ == FINISHED && c.status == "True")?;
    Some(done.reason.clone())
}

async fn a_job_whose_pods_end_well_succeeds_and_gives_its_room_back(world: Arc<World>) -> Result<()> {
    let story = Story::begin(&world, "a_job_whose_pods_end_well", Shape::new(1, 1, 1)).await?;
    story.submit("{name: train, roles: [{replicas: 1, runtime: 4s}]}").await?;
    story.pods_until("train", "its pod", |pods| !pods.is_empty()).await?;
    story.submit("{name: next, roles: [{replicas: 1}]}").await?;
    let job = story.phase("train", Phase::Succeeded).await?;
    let status = job.status.context("a status")?;
    ensure!(status.started_at.is_some() && status.finished_at > status.started_at, "{status:?}");
    story.running("next", "1/1").await?;
    ensure!(story.berths("train", BerthState::Committed).await?.is_empty());
    Ok(())
}

async fn success_may_depend_on_one_role(world: Arc<World>) -> Result<()> {
    let story = Story::begin(&world, "success_may_depend_on_one_role", Shape::new(1, 1, 3)).await?;
    let roles = "[{name: chief, replicas: 1, runtime: 3s}, {replicas: 2}]";
    story.submit(&format!("{{name: train, successPolicy: {{roles: [chief]}}, roles: {roles}}}")).await?;
    story.phase("train", Phase::Succeeded).await?;
    story.pods_until("train", "the workers stopped", |pods| pods.values().all(|p| !is_live(p))).await?;
    Ok(())
}

async fn a_failure_restarts_the_gang_until_the_limit(world: Arc<World>) -> Result<()> {
    let story = Story::begin(&world, "a_failure_restarts_the_gang", Shape::new(1, 1, 2)).await?;
    let roles = "[{replicas: 1}, {name: odd, replicas: 1, runtime: 1s, exit: '7'}]";
    story.submit(&format!("{{name: train, failurePolicy: {{maxRestarts: 1}}, roles: {roles}}}")).await?;
    let job = story.phase("train", Phase::Failed).await?;
    let status = job.status.clone().context("a status")?;
    // Restarts are counted: the failure that ended the job restarted nothing.
    ensure!(status.restarts == Some(1), "restarts: {:?}", status.restarts);
    let last = status.last_failure.context("who failed")?;
    ensure!(last.exit_code == Some(7) && last.pod.starts_with("train-odd-0"), "{last:?}");
    ensure!(finished(&job).as_deref() == Some("Failed"), "{:?}", finished(&job));
    // The healthy worker was stopped and made again with its gang.
    let workers = story.ever("train").into_iter().filter(|n| n.contains("worker")).count();
    ensure!(workers == 2, "{workers} workers in two incarnations");
    Ok(())
}

async fn an_exit_code_may_end_the_job_at_once(world: Arc<World>) -> Result<()> {
    let story = Story::begin(&world, "an_exit_code_may_end_the_job", Shape::new(1, 1, 1)).await?;
    let policy = "failurePolicy: {maxRestarts: 5, rules: [{exitCodes: [42], action: Fail}]}";
    story.submit(&format!("{{name: train, {policy}, roles: [{{replicas: 1, runtime: 1s, exit: '42'}}]}}")).await?;
    let job = story.phase("train", Phase::Failed).await?;
    ensure!(job.status.and_then(|s| s.incarnation) == Some(1), "it must not restart");
    ensure!(story.ever("train").len() == 1, "{:?}", story.ever("train"));
    Ok(())
}

async fn a_failed_pod_may_be_replaced_alone(world: Arc<World>) -> Result<()> {
    let story = Story::begin(&world, "a_failed_pod_may_be_replaced", Shape::new(1, 1, 2)).await?;
    let policy = "failurePolicy: {maxRestarts: 1, onPodFailure: ReplacePod}";
    let roles = "[{replicas: 1}, {name: odd, replicas: 1, runtime: 1s, exit: '1'}]";
    story.submit(&format!("{{name: train, {policy}, roles: {roles}}}")).await?;
    story.phase("train", Phase::Failed).await?;
    let ever = story.ever("train");
    let workers = ever.iter().filter(|n| n.contains("worker")).count();
    ensure!(workers == 1, "the healthy one stays: {ever:?}");
    let odd: Vec<_> = ever.iter().filter(|n| n.contains("odd")).collect();
    ensure!(odd.len() == 2 && odd.iter().any(|n| n.ends_with("-r2")), "{odd:?}");
    Ok(())
}

async fn the_policy_fail_ends_at_the_first_failure(world: Arc<World>) -> Result<()> {
    let story = Story::begin(&world, "the_policy_fail_ends", Shape::new(1, 1, 1)).await?;
    let roles = "[{replicas: 1, runtime: 1s, exit: '1', reason: OOMKilled}]";
    story.submit(&format!("{{name: train, failurePolicy: {{onPodFailure: Fail}}, roles: {roles}}}")).await?;
    let job = story.phase("train", Phase::Failed).await?;
    let last = job.status.and_then(|s| s.last_failure).context("who failed")?;
    ensure!(last.reason == "OOMKilled", "{last:?}");
    Ok(())
}

async fn a_job_over_its_max_runtime_is_stopped(world: Arc<World>) -> Result<()> {
    let story = Story::begin(&world, "a_job_over_its_max_runtime", Shape::new(1, 1, 1)).await?;
    story.submit("{name: train, maxRuntime: 3s, roles: [{replicas: 1}]}").await?;
    let job = story.phase("train", Phase::Failed).await?;
    ensure!(finished(&job).as_deref() == Some("RuntimeExceeded"), "{:?}", finished(&job));
    story.pods_until("train", "its pods stopped", |pods| pods.values().all(|p| !is_live(p))).await?;
    Ok(())
}

async fn a_deleted_pod_is_not_the_users_failure(world: Arc<World>) -> Result<()> {
    let story = Story::begin(&world, "a_deleted_pod_is_no_failure", Shape::new(1, 1, 2)).await?;
    story.submit("{name: train, failurePolicy: {maxRestarts: 0}, roles: [{replicas: 2}]}").await?;
    story.running("train", "2/2").await?;
    story.api::<Pod>().delete("train-worker-0", &DeleteParams::default()).await?;
    let whole = |j: &crds::TrainingJob| {
        j.status.as_ref().is_some_and(|s| {
            s.phase == Some(Phase::Running) && s.ready.as_deref() == Some("2/2") && s.disruptions.unwrap_or(0) >= 1
        })
    };
    let job = story.job_until("train", "whole again", whole).await?;
    ensure!(job.status.and_then(|s| s.restarts).unwrap_or(0) == 0, "maxRestarts: 0 was kept");
    Ok(())
}

async fn suspending_gives_the_berth_back_and_resuming_starts_again(world: Arc<World>) -> Result<()> {
    let story = Story::begin(&world, "suspending_gives_the_berth_back", Shape::new(1, 1, 1)).await?;
    story.submit("{name: train, roles: [{replicas: 1}]}").await?;
    story.running("train", "1/1").await?;
    story.change("train", json!({"spec": {"suspend": true}})).await?;
    story.phase("train", Phase::Suspended).await?;
    story.pods_until("train", "no live pod", |pods| pods.values().all(|p| !is_live(p))).await?;
    story.submit("{name: other, roles: [{replicas: 1}]}").await?;
    story.running("other", "1/1").await?;
    story.delete("other").await?;
    story.change("train", json!({"spec": {"suspend": false}})).await?;
    let job = story.running("train", "1/1").await?;
    ensure!(job.status.and_then(|s| s.incarnation) == Some(2), "a second start is incarnation 2");
    Ok(())
}

async fn a_job_deleted_while_it_is_made_leaves_nothing(world: Arc<World>) -> Result<()> {
    let story = Story::begin(&world, "a_job_deleted_while_it_is_made", Shape::new(1, 1, 8)).await?;
    story.submit("{name: train, roles: [{replicas: 64, gpus: 1}]}").await?;
    story.pods_until("train", "the first pods", |pods| !pods.is_empty()).await?;
    story.delete("train").await?;
    story.gone("train").await?;
    let services = story.api::<Service>();
    berth_e2e::wait::until(services, kube::runtime::watcher::Config::default(), "its Service gone", |all| {
        !all.contains_key("train")
    })
    .await?;
    story.submit("{name: next, roles: [{replicas: 64, gpus: 1}]}").await?;
    story.running("next", "64/64").await?;
    Ok(())
}

async fn a_job_deleted_and_made_again_is_a_new_job(world: Arc<World>) -> Result<()> {
    let story = Story::begin(&world, "a_job_deleted_and_made_again", Shape::new(1, 1, 1)).await?;
    let job = "{name: train, roles: [{replicas: 1, stop-delay: 2s}]}";
    story.submit(job).await?;
    story.running("train", "1/1").await?;
    let first = story.pods("train").await?.into_values().next().and_then(|p| p.uid()).context("a pod")?;
    story.delete("train").await?;
    berth_e2e::wait::until(
        story.jobs(),
        kube::runtime::watcher::Config::default(),
        "the job gone",
        berth_e2e::wait::Objects::is_empty,
    )
    .await?;
    story.submit(job).await?;
    let again = story.running("train", "1/1").await?;
    let second = story.pods("train").await?.into_values().next().and_then(|p| p.uid()).context("a pod")?;
    ensure!(first != second, "the old pod was taken for the new job's");
    ensure!(again.status.and_then(|s| s.incarnation) == Some(1), "its first incarnation");
    Ok(())
}

async fn a_finished_job_goes_after_its_time_to_live(world: Arc<World>) -> Result<()> {
    let story = Story::begin(&world, "a_finished_job_goes", Shape::new(1, 1, 1)).await?;
    story.submit("{name: train, ttlAfterFinished: 1s, roles: [{replicas: 1, runtime: 1s}]}").await?;
    story.pods_until("train", "it runs", |pods| !pods.is_empty()).await?;
    story.gone("train").await
}

async fn only_some_fields_change_while_a_job_holds_nodes(world: Arc<World>) -> Result<()> {
    let story = Story::begin(&world, "only_some_fields_change", Shape::new(1, 1, 2)).await?;
    story.submit("{name: train, maxRuntime: 2h, roles: [{replicas: 1}]}").await?;
    story.running("train", "1/1").await?;
    let held = ["cannot change", "while the job holds nodes", "suspend"];
    for change in [
        json!({"topology": {"required": "rack"}}),
        json!({"communication": "AllToAll"}),
        json!({"preemptible": false}),
        json!({"queue": "default"}),
    ] {
        let field = change.as_object().and_then(|o| o.keys().next().cloned()).context("a field")?;
        refused(story.change("train", json!({ "spec": change })).await, &[&field, held[0], held[1], held[2]])?;
    }
    let mut role = serde_json::to_value(story.job("train").await?)?["spec"]["roles"][0].clone();
    role["template"]["spec"]["containers"][0]["image"] = json!("another");
    refused(story.change("train", json!({"spec": {"roles": [role]}})).await, &["spec.roles[0].template"])?;
    for change in [
        json!({"maxRuntime": "1h"}),
        json!({"expectedRuntime": "30m"}),
        json!({"ttlAfterFinished": "1h"}),
        json!({"failurePolicy": {"maxRestarts": 9}}),
        json!({"topology": {"patience": "1m"}}),
    ] {
        story.change("train", json!({ "spec": change })).await.with_context(|| format!("{change}"))?;
    }
    ensure!(phase_of(&story.job("train").await?) == Some(Phase::Running));
    Ok(())
}

async fn berths_and_their_pods_are_the_controllers(world: Arc<World>) -> Result<()> {
    let story = Story::begin(&world, "berths_are_the_controllers", Shape::new(1, 1, 1)).await?;
    let berth = json!({
        "apiVersion": "berth.dev/v1alpha1", "kind": "Berth", "metadata": {"name": "mine-1", "namespace": story.name},
        "spec": {"job": "mine", "jobUid": "u", "incarnation": 1, "queue": story.name, "state": "Committed"},
    });
    refused(world.create(&berth).await, &["a Berth is made by the controller alone"])?;
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "mine", "namespace": story.name, "labels": {"berth.dev/berth": "mine-1"}},
        "spec": {"containers": [{"name": "main", "image": "other"}]},
    });
    refused(world.create(&pod).await, &["made by the controller alone"])
}

async fn users_read_the_story_in_events(world: Arc<World>) -> Result<()> {
    let story = Story::begin(&world, "users_read_the_story", Shape::new(1, 1, 1)).await?;
    story.submit("{name: train, roles: [{replicas: 1, runtime: 2s}]}").await?;
    story.phase("train", Phase::Succeeded).await?;
    for reason in ["Started", "Succeeded"] {
        let event = story.event("train", reason).await?;
        ensure!(!event.message.unwrap_or_default().is_empty(), "{reason} says nothing");
    }
    Ok(())
}
