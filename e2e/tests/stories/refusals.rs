//! What can never run is refused at once, with a message that names the field, its value and what would be accepted.
//! Every case is asked as a dry run, so nothing has to be cleaned up, and none may ever leave a pod.

use anyhow::{Context, Result, ensure};
use berth_e2e::runner::Told;
use berth_e2e::story::refused;
use berth_e2e::{Shape, Story, World};
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::core::v1::Secret;
use kube::runtime::watcher;
use serde_json::{Value, json};
use std::sync::Arc;

pub(crate) fn all() -> Vec<Told> {
    berth_e2e::stories![
        sizes_that_make_no_sense_are_refused,
        levels_that_do_not_exist_or_nest_are_refused,
        queues_that_do_not_take_the_job_are_refused,
        classes_that_do_not_exist_or_are_the_systems_are_refused,
        runtimes_over_their_limits_are_refused,
        a_gang_that_could_never_fit_is_refused,
        templates_that_starting_bound_would_break_are_refused,
        names_and_namespaces_that_cannot_work_are_refused,
        queues_that_contradict_each_other_are_refused,
        topologies_that_contradict_each_other_are_refused,
        what_only_has_to_wait_is_accepted_with_a_warning,
        certificates_are_rotated_while_reviews_go_on,
    ]
}

/// Asks for each job in vain; the message must contain every word.
async fn none_of(story: &Story, cases: &[(&str, &[&str])]) -> Result<()> {
    let mut wrong = Vec::new();
    for (job, words) in cases {
        let answer = story.world.would_create(&story.manifest(job)?).await;
        if let Err(error) = refused(answer, words) {
            wrong.push(format!("{job}\n    {error:#}"));
        }
    }
    ensure!(wrong.is_empty(), "{} of {} are answered wrongly:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
    let pods = story.api::<k8s_openapi::api::core::v1::Pod>().list(&kube::api::ListParams::default()).await?;
    ensure!(pods.items.is_empty(), "a refused job has pods");
    Ok(())
}

async fn sizes_that_make_no_sense_are_refused(world: Arc<World>) -> Result<()> {
    let story = Story::begin(&world, "sizes_that_make_no_sense", Shape::new(1, 1, 2)).await?;
    let roles = |roles: &str| format!("{{name: x, roles: [{roles}]}}");
    let (above, zero) = (roles("{replicas: 2, minReplicas: 3}"), roles("{replicas: 2, minReplicas: 0}"));
    let replicas = roles("{replicas: 5, minReplicas: 2, slice: {size: 2, within: rack}}");
    let floor = roles("{replicas: 4, minReplicas: 3, slice: {size: 2, within: rack}}");
    let twice = roles("{replicas: 1}, {replicas: 1}");
    let circle = roles("{name: a, replicas: 1, dependsOn: [b]}, {name: b, replicas: 1, dependsOn: [a]}");
    let nobody = roles("{name: a, replicas: 1, dependsOn: [b]}");
    let many = roles("{replicas: 20001}");
    let empty = roles("");
    let success = "{name: x, successPolicy: {roles: [b]}, roles: [{name: a, replicas: 1}]}";
    none_of(
        &story,
        &[
            (&above, &["minReplicas", "3", "2"]),
            (&zero, &["minReplicas", "0", "1"]),
            (&replicas, &["slice", "2", "replicas", "5"]),
            (&floor, &["slice", "2", "minReplicas", "3"]),
            (&twice, &["worker", "twice"]),
            (&circle, &["dependsOn", "circle"]),
            (&nobody, &["dependsOn", "b"]),
            (&many, &["20001", "20000"]),
            (&empty, &["spec.roles"]),
            (success, &["successPolicy", "b"]),
        ],
    )
    .await
}

async fn levels_that_do_not_exist_or_nest_are_refused(world: Arc<World>) -> Result<()> {
    let story = Story::begin(&world, "levels_that_do_not_exist", Shape::new(1, 1, 2)).await?;
    none_of(
        &story,
        &[
            (
                "{name: x, topology: {required: row}, roles: [{replicas: 1}]}",
                &["UnknownLevel", "spec.topology.required", "\"row\"", "rack"],
            ),
            (
                "{name: x, topology: {preferred: row}, roles: [{replicas: 1}]}",
                &["UnknownLevel", "spec.topology.preferred", "\"row\""],
            ),
            (
                "{name: x, topology: {required: rack, preferred: block}, roles: [{replicas: 1}]}",
                &["spec.topology.preferred", "block", "rack"],
            ),
            (
                "{name: x, topology: {required: rack, preferred: rack}, roles: [{replicas: 1}]}",
                &["spec.topology.preferred", "rack"],
            ),
            (
                "{name: x, roles: [{replicas: 2, slice: {size: 2, within: row}}]}",
                &["UnknownLevel", "slice.within", "\"row\""],
            ),
            (
                "{name: x, topology: {required: rack}, roles: [{replicas: 2, slice: {size: 2, within: block}}]}",
                &["SliceWiderThanRequired", "slice.within", "block", "rack"],
            ),
        ],
    )
    .await
}

async fn queues_that_do_not_take_the_job_are_refused(world: Arc<World>) -> Result<()> {
    let story = Story::begin(&world, "queues_that_do_not_take", Shape::new(1, 1, 2)).await?;
    let queue = |role: &str| format!("{}-{role}", story.name);
    story.queue(&queue("parent"), json!({})).await?;
    story.queue(&queue("leaf"), json!({"parent": queue("parent")})).await?;
    story.queue(&queue("closed"), json!({"state": "Draining"})).await?;
    story.queue(&queue("others"), json!({"namespaces": {"matchLabels": {"team": "others"}}})).await?;
    story.queue(&queue("full"), json!({"maxPendingJobs": 0})).await?;
    let job = |queue: &str| format!("{{name: x, queue: {queue}, roles: [{{replicas: 1}}]}}");
    let (parent, closed, others, full) =
        (job(&queue("parent")), job(&queue("closed")), job(&queue("others")), job(&queue("full")));
    let leaf = queue("leaf");
    none_of(
        &story,
        &[
            (&job("nobody"), &["UnknownQueue", "spec.queue", "\"nobody\""]),
            (&parent, &["QueueNotLeaf", "spec.queue", "leaves only", &leaf]),
            (&closed, &["QueueClosed", "spec.queue", "Draining"]),
            (&others, &["NamespaceNotAllowed", "spec.queue", "team"]),
            (&full, &["TooManyPending", "spec.queue"]),
        ],
    )
    .await
}

async fn classes_that_do_not_exist_or_are_the_systems_are_refused(world: Arc<World>) -> Result<()> {
    let queue = json!({"allowedPriorityClasses": ["classes-low"]});
    for (name, value) in [("classes-low", 1), ("classes-high", 2)] {
        world
            .create(&json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": value}))
            .await?;
    }
    let story = Story::begin_with(&world, "classes_that_do_not_exist", Shape::new(1, 1, 2), queue).await?;
    none_of(
        &story,
        &[
            ("{name: x, priorityClassName: nobody, roles: [{replicas: 1}]}", &["UnknownPriorityClass", "spec.priorityClassName", "\"nobody\""]),
            ("{name: x, priorityClassName: system-node-critical, roles: [{replicas: 1}]}", &["PriorityClassNotAllowed", "spec.priorityClassName", "system-node-critical"]),
            ("{name: x, priorityClassName: classes-high, roles: [{replicas: 1}]}", &["PriorityClassNotAllowed", "spec.priorityClassName", "classes-low"]),
            ("{name: x, priorityClassName: classes-low, roles: [{replicas: 1, template: {spec: {priorityClassName: classes-high}}}]}", &["template", "priorityClassName"]),
        ],
    )
    .await
}

async fn runtimes_over_their_limits_are_refused(world: Arc<World>) -> Result<()> {
    let queue = json!({"maxRuntimeLimit": "2h", "maxGracePeriod": "5m"});
    let story = Story::begin_with(&world, "runtimes_over_their_limits", Shape::new(1, 1, 2), queue).await?;
    none_of(
        &story,
        &[
            ("{name: x, maxRuntime: 3h, roles: [{replicas: 1}]}", &["RuntimeTooLong", "spec.maxRuntime", "3h", "2h"]),
            ("{name: x, roles: [{replicas: 1}]}", &["RuntimeTooLong", "spec.maxRuntime", "2h"]),
            (
                "{name: x, maxRuntime: 1h, expectedRuntime: 90m, roles: [{replicas: 1}]}",
                &["spec.expectedRuntime", "1h"],
            ),
            (
                "{name: x, maxRuntime: 1h, checkpoint: {gracePeriod: 10m}, roles: [{replicas: 1}]}",
                &["GracePeriodTooLong", "gracePeriod", "10m", "5m"],
            ),
        ],
    )
    .await
}

async fn a_gang_that_could_never_fit_is_refused(world: Arc<World>) -> Result<()> {
    let queue = json!({"limit": {"nvidia.com/gpu": "56"}});
    let story = Story::begin_with(&world, "a_gang_that_could_never_fit", Shape::new(2, 2, 2), queue).await?;
    none_of(
        &story,
        &[
            (
                "{name: x, topology: {required: rack}, roles: [{replicas: 3}]}",
                &["FloorExceedsEveryDomain", "spec.topology.required", "rack", "floor of 3 pods"],
            ),
            (
                "{name: x, topology: {required: block}, roles: [{replicas: 8, minReplicas: 5}]}",
                &["FloorExceedsEveryDomain", "block", "floor of 5 pods"],
            ),
            ("{name: x, roles: [{replicas: 8}]}", &["FloorExceedsQueueLimit", "56"]),
            ("{name: x, roles: [{replicas: 1, gpus: 9}]}", &["PodFitsNoNode", "spec.roles[0].template"]),
            (
                "{name: x, roles: [{replicas: 1, template: {spec: {nodeSelector: {color: blue}}}}]}",
                &["PodFitsNoNode", "spec.roles[0].template"],
            ),
        ],
    )
    .await
}

async fn templates_that_starting_bound_would_break_are_refused(world: Arc<World>) -> Result<()> {
    let story = Story::begin(&world, "templates_that_would_break", Shape::new(1, 1, 2)).await?;
    let job = |spec: &str| format!("{{name: x, roles: [{{replicas: 1, template: {{spec: {{{spec}}}}}}}]}}");
    let cases: [(String, &[&str]); 9] = [
        (job("schedulerName: other"), &["schedulerName", "other"]),
        (job("nodeName: n1"), &["nodeName"]),
        (job("schedulingGates: [{name: gate}]"), &["schedulingGates"]),
        (job("resourceClaims: [{name: c, resourceClaimName: c}]"), &["resourceClaims"]),
        (
            job("topologySpreadConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: DoNotSchedule}]"),
            &["topologySpreadConstraints", "topology"],
        ),
        (
            job("affinity: {podAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: zone}]}}"),
            &["podAffinity", "topology"],
        ),
        (
            job("affinity: {podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: zone}]}}"),
            &["podAntiAffinity"],
        ),
        (job("restartPolicy: Always"), &["restartPolicy", "Always", "Never"]),
        (job("restartPolcy: Never"), &["UnknownField", "restartPolcy"]),
    ];
    let cases: Vec<(&str, &[&str])> = cases.iter().map(|(job, words)| (job.as_str(), *words)).collect();
    none_of(&story, &cases).await?;
    let ours = "{name: x, roles: [{replicas: 1, template: {metadata: {labels: {berth.dev/rank: '1'}}}}]}";
    none_of(&story, &[(ours, &["berth.dev/"])]).await
}

async fn names_and_namespaces_that_cannot_work_are_refused(world: Arc<World>) -> Result<()> {
    let story = Story::begin(&world, "names_that_cannot_work", Shape::new(1, 1, 1)).await?;
    let long = format!("{{name: {}, roles: [{{replicas: 1}}]}}", "x".repeat(60));
    none_of(
        &story,
        &[("{name: 1st, roles: [{replicas: 1}]}", &["metadata.name", "1st"]), (&long, &["metadata.name", "63"])],
    )
    .await?;
    for namespace in ["kube-system", "berth-system"] {
        let mut job = story.manifest("{name: x, roles: [{replicas: 1}]}")?;
        job["metadata"]["namespace"] = json!(namespace);
        refused(world.would_create(&job).await, &["NamespaceNotAllowed", namespace])?;
    }
    Ok(())
}

fn queue(name: &str, spec: Value) -> Value {
    let mut queue = json!({"apiVersion": "berth.dev/v1alpha1", "kind": "Queue", "metadata": {"name": name}});
    queue["spec"] = spec;
    queue
}

async fn queues_that_contradict_each_other_are_refused(world: Arc<World>) -> Result<()> {
    let story = Story::begin(&world, "queues_that_contradict", Shape::new(1, 1, 1)).await?;
    let name = |role: &str| format!("{}-{role}", story.name);
    story.queue(&name("up"), json!({"guarantee": {"nvidia.com/gpu": "8"}})).await?;
    story.queue(&name("down"), json!({"parent": name("up"), "guarantee": {"nvidia.com/gpu": "6"}})).await?;
    let new = |spec: Value| queue(&name("new"), spec);
    let asks = |spec: Value| {
        let (world, manifest) = (world.clone(), new(spec));
        async move { world.would_create(&manifest).await }
    };
    refused(asks(json!({"parent": "nobody"})).await, &["QueueParentMissing", "spec.parent", "\"nobody\""])?;
    refused(asks(json!({"weight": 0})).await, &["spec.weight", "0"])?;
    let over = json!({"guarantee": {"nvidia.com/gpu": "9"}, "limit": {"nvidia.com/gpu": "8"}});
    refused(asks(over).await, &["spec.guarantee", "nvidia.com/gpu", "spec.limit"])?;
    let more = json!({"parent": name("up"), "guarantee": {"nvidia.com/gpu": "3"}});
    refused(asks(more).await, &["GuaranteesOverParent", "spec.guarantee[nvidia.com/gpu]"])?;
    // A circle, a parent with jobs, and what may not go.
    let queues: kube::Api<crds::Queue> = kube::Api::all(world.client.clone());
    let circle = kube::api::Patch::Merge(json!({"spec": {"parent": name("down")}}));
    let params = kube::api::PatchParams::default();
    refused(queues.patch(&name("up"), &params, &circle).await.map_err(Into::into), &["QueueCycle", "spec.parent"])?;
    story.submit("{name: train, suspend: true, roles: [{replicas: 1}]}").await?;
    story.phase("train", crds::v1alpha1::Phase::Suspended).await?;
    refused(asks(json!({"parent": story.name})).await, &["QueueHasJobs", "spec.parent", "train"])?;
    let gone = kube::api::DeleteParams::default();
    refused(queues.delete(&name("up"), &gone).await.map_err(Into::into), &["QueueHasChildren", &name("down")])?;
    refused(queues.delete(&story.name, &gone).await.map_err(Into::into), &["QueueHasJobs", "train"])?;
    queues.delete(&name("down"), &gone).await.context("an idle leaf may go")?;
    Ok(())
}

async fn topologies_that_contradict_each_other_are_refused(world: Arc<World>) -> Result<()> {
    let story = Story::begin(&world, "topologies_that_contradict", Shape::new(1, 1, 1)).await?;
    let topology = |selector: Value, levels: Value| {
        json!({
            "apiVersion": "berth.dev/v1alpha1", "kind": "Topology", "metadata": {"name": "another"},
            "spec": {"nodes": {"matchLabels": selector}, "levels": levels},
        })
    };
    let level = |name: &str, label: &str| json!({"name": name, "labels": [label]});
    let free = json!({"pool": "nobody"});
    for (selector, levels, words) in [
        (free.clone(), json!([]), ["spec.levels", "at least one level"]),
        (free.clone(), json!([level("a", "x"), level("a", "y")]), ["spec.levels", "twice"]),
        (free.clone(), json!([level("a", "x"), level("b", "x")]), ["spec.levels", "twice"]),
        (free.clone(), json!([level("node", "x")]), ["spec.levels", "reserved"]),
        (json!({"pool": story.name}), json!([level("a", "x")]), ["TopologyOverlap", "spec.nodes"]),
        (json!({"type": "kwok"}), json!([level("a", "x")]), ["TopologyOverlap", "spec.nodes"]),
    ] {
        refused(world.would_create(&topology(selector, levels)).await, &words)?;
    }
    // A level that a job names may not go; renamed, it would be gone from the only Topology that has it.
    let levels = json!([level("hall", "fabric.topograph.run/tier-1"), level("rack", "fabric.topograph.run/tier-0")]);
    let topologies: kube::Api<crds::Topology> = kube::Api::all(world.client.clone());
    let params = kube::api::PatchParams::default();
    topologies.patch(&story.name, &params, &kube::api::Patch::Merge(json!({"spec": {"levels": levels}}))).await?;
    story.submit("{name: train, topology: {required: hall}, roles: [{replicas: 1}]}").await?;
    story.running("train", "1/1").await?;
    let without = json!({"spec": {"levels": [level("rack", "fabric.topograph.run/tier-0")]}});
    let answer = topologies.patch(&story.name, &params, &kube::api::Patch::Merge(without)).await;
    refused(answer.map_err(Into::into), &["LevelInUse", "hall", "train"])
}

async fn what_only_has_to_wait_is_accepted_with_a_warning(world: Arc<World>) -> Result<()> {
    let story = Story::begin(&world, "what_only_has_to_wait", Shape::new(1, 1, 2)).await?;
    for node in ["b0-r0-n0", "b0-r0-n1"] {
        story.patch_node(node, json!({"spec": {"unschedulable": true}})).await?;
    }
    // Both nodes are cordoned, so nothing starts; registered nodes count, so nothing is refused.
    story.submit("{name: train, topology: {required: rack}, roles: [{replicas: 2}]}").await?;
    story.job_until("train", "waiting", |j| j.status.as_ref().is_some_and(|s| s.pending.is_some())).await?;
    story.never_had_pods("train")
}

/// How many CAs the API server is told to trust, and whether this one is among them.
fn trusted(configuration: &ValidatingWebhookConfiguration, ca: &str) -> (usize, bool) {
    let ours = configuration.webhooks.iter().flatten().find(|w| w.name == "validate.berth.dev");
    let bundle = ours.and_then(|w| w.client_config.ca_bundle.clone()).map(|b| b.0).unwrap_or_default();
    let bundle = String::from_utf8_lossy(&bundle).into_owned();
    (bundle.matches("BEGIN CERTIFICATE").count(), !ca.is_empty() && bundle.contains(ca))
}

async fn certificates_are_rotated_while_reviews_go_on(world: Arc<World>) -> Result<()> {
    let story = Story::begin(&world, "certificates_are_rotated", Shape::new(1, 1, 1)).await?;
    let secrets: kube::Api<Secret> = kube::Api::namespaced(world.client.clone(), crds::names::NAMESPACE);
    let configurations: kube::Api<ValidatingWebhookConfiguration> = kube::Api::all(world.client.clone());
    let text = |secret: &Secret, key: &str| {
        let data = secret.data.as_ref().and_then(|d| d.get(key)).map(|b| b.0.clone()).unwrap_or_default();
        String::from_utf8_lossy(&data).into_owned()
    };
    let name = crds::names::WEBHOOK_SECRET;
    let first = text(&secrets.get(name).await?, "ca.crt");
    let now = k8s_openapi::jiff::Timestamp::now();
    let hours = |n| k8s_openapi::jiff::SignedDuration::from_hours(n);
    let soon = now.checked_add(hours(24 * 30))?.to_string();
    let long_ago = now.checked_sub(hours(2))?.to_string();
    // The Secret is made older than it is. Each step: what it says, and what must be trusted after.
    let steps = [
        ("ca.ends", &soon, "a successor is trusted beside the old CA", 2),
        ("other-ca.since", &long_ago, "the successor signs, the old CA is trusted still", 2),
        ("other-ca.since", &long_ago, "the old CA is trusted no more", 1),
    ];
    for (row, (key, value, what, count)) in steps.into_iter().enumerate() {
        let older = kube::api::Patch::Merge(json!({"stringData": {key: value}}));
        secrets.patch(name, &kube::api::PatchParams::default(), &older).await?;
        let only = watcher::Config::default().fields(&format!("metadata.name={name}"));
        let there = |all: &berth_e2e::wait::Objects<Secret>| {
            let Some(secret) = all.get(name) else { return false };
            let has = |key: &str| secret.data.as_ref().is_some_and(|d| d.contains_key(key));
            match row {
                0 => text(secret, "other-ca.successor") == "true",
                1 => text(secret, "other-ca.successor") == "false" && text(secret, "ca.crt") != first,
                _ => !has("other-ca.crt"),
            }
        };
        let secret = berth_e2e::wait::until(secrets.clone(), only, what, there).await?;
        let signer = text(secret.get(name).context("the Secret")?, "ca.crt");
        let only = watcher::Config::default().fields(&format!("metadata.name={}", crds::names::WEBHOOK_CONFIGURATION));
        let told = |all: &berth_e2e::wait::Objects<ValidatingWebhookConfiguration>| {
            all.values().any(|c| trusted(c, signer.trim()) == (count, true))
        };
        berth_e2e::wait::until(configurations.clone(), only, what, told).await?;
        // At every step the server reaches the webhook, and the webhook judges.
        for _ in 0..5 {
            story.refused("{name: x, queue: nobody, roles: [{replicas: 1}]}", &["UnknownQueue"]).await.context(what)?;
        }
    }
    Ok(())
}
