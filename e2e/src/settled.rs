//! Whether a real cluster has come to rest as the protocol promises: I1 to I4 on what stands, I6 on what is written. I5 is
//! judged on worlds with a virtual clock alone: here nobody sees every write.

use crate::harness::World;
use crate::story::{is_live, node_of};
use anyhow::{Result, bail, ensure};
use crds::v1alpha1::BerthState;
use crds::{Berth, TrainingJob, names::labels};
use k8s_openapi::api::core::v1::{Node, Pod, Service};
use kube::ResourceExt;
use kube::api::{Api, ListParams};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// What is looked at, all at about the same time.
struct Picture {
    jobs: Vec<TrainingJob>,
    berths: Vec<Berth>,
    pods: Vec<Pod>,
    services: Vec<Service>,
    nodes: Vec<Node>,
}

impl Picture {
    async fn take(world: &World, namespaces: &[&str]) -> Result<Self> {
        let client = &world.client;
        let here = |n: Option<String>| n.is_some_and(|n| namespaces.contains(&&*n));
        let all = ListParams::default();
        let jobs = Api::<TrainingJob>::all(client.clone()).list(&all).await?.items;
        let berths = Api::<Berth>::all(client.clone()).list(&all).await?.items;
        let ours = ListParams::default().labels(labels::JOB);
        let pods = Api::<Pod>::all(client.clone()).list(&ours).await?.items;
        let services = Api::<Service>::all(client.clone()).list(&all).await?.items;
        let nodes = Api::<Node>::all(client.clone()).list(&all).await?.items;
        Ok(Self {
            jobs: jobs.into_iter().filter(|o| here(o.namespace())).collect(),
            berths: berths.into_iter().filter(|o| here(o.namespace())).collect(),
            pods: pods.into_iter().filter(|o| here(o.namespace())).collect(),
            services: services.into_iter().filter(|o| here(o.namespace())).collect(),
            nodes,
        })
    }

    /// Everything that is wrong with it.
    fn faults(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        self.gangs(&mut wrong);
        self.room(&mut wrong);
        self.leaks(&mut wrong);
        wrong
    }

    /// I1, I4: a job's live pods are one whole incarnation, that of its one Berth in force, or none.
    fn gangs(&self, wrong: &mut Vec<String>) {
        for job in &self.jobs {
            let (name, uid) = (job.name_any(), job.uid().unwrap_or_default());
            let berths = self.berths.iter().filter(|b| b.spec.job_uid == uid);
            let held: Vec<&Berth> = berths.filter(|b| b.spec.state == BerthState::Committed).collect();
            if held.len() > 1 {
                wrong.push(format!("I4: {name} has {} Berths in force", held.len()));
            }
            let live: Vec<&Pod> = self
                .pods
                .iter()
                .filter(|p| {
                    is_live(p) && p.namespace() == job.namespace() && p.labels().get(labels::JOB) == Some(&name)
                })
                .collect();
            let floor: usize = job.spec.roles.iter().map(|r| usize::try_from(r.replicas).unwrap_or(0)).sum();
            if held.is_empty() && !live.is_empty() {
                wrong.push(format!("I1: {} pods of {name} without a Berth in force", live.len()));
            }
            if !held.is_empty() && live.len() != floor {
                wrong.push(format!("I1: {name} has {} of {floor} pods", live.len()));
            }
            let whose: BTreeSet<String> =
                live.iter().flat_map(|p| p.owner_references()).map(|o| o.uid.clone()).collect();
            if whose.len() > 1 {
                wrong.push(format!("I4: pods of {name} belong to {} Berths", whose.len()));
            }
            let ranks: BTreeSet<Option<&String>> = live.iter().map(|p| p.labels().get(labels::RANK)).collect();
            if ranks.len() != live.len() {
                wrong.push(format!("I4: {} pods of {name} bear {} ranks", live.len(), ranks.len()));
            }
        }
    }

    /// I2: no node is asked for more GPUs than it has.
    fn room(&self, wrong: &mut Vec<String>) {
        let mut asked: BTreeMap<String, i64> = BTreeMap::new();
        for pod in self.pods.iter().filter(|p| is_live(p)) {
            *asked.entry(node_of(pod)).or_default() += pod_gpus(pod);
        }
        for node in &self.nodes {
            let has = node.status.as_ref().and_then(|s| s.allocatable.as_ref()).and_then(|a| a.get("nvidia.com/gpu"));
            let has: i64 = has.and_then(|q| q.0.parse().ok()).unwrap_or(0);
            let used = asked.get(&node.name_any()).copied().unwrap_or(0);
            if used > has {
                wrong.push(format!("I2: {} holds {used} of {has} GPUs", node.name_any()));
            }
        }
    }

    /// I3: every pod has its Berth, every Berth and Service its job.
    fn leaks(&self, wrong: &mut Vec<String>) {
        let berths: BTreeSet<String> = self.berths.iter().filter_map(ResourceExt::uid).collect();
        let jobs: BTreeSet<String> = self.jobs.iter().filter_map(ResourceExt::uid).collect();
        for pod in &self.pods {
            if !pod.owner_references().iter().any(|o| berths.contains(&o.uid)) {
                wrong.push(format!("I3: pod {} has no Berth", pod.name_any()));
            }
        }
        for berth in self.berths.iter().filter(|b| !jobs.contains(&b.spec.job_uid)) {
            wrong.push(format!("I3: Berth {} has no job", berth.name_any()));
        }
        for service in &self.services {
            let owners = service.owner_references();
            if owners.iter().any(|o| o.kind == "TrainingJob") && !owners.iter().any(|o| jobs.contains(&o.uid)) {
                wrong.push(format!("I3: Service {} has no job", service.name_any()));
            }
        }
    }

    /// Pods on their way, or not yet ready: the picture still moves.
    fn moving(&self) -> usize {
        self.pods.iter().filter(|p| p.metadata.deletion_timestamp.is_some()).count()
    }
}

fn pod_gpus(pod: &Pod) -> i64 {
    let containers = pod.spec.iter().flat_map(|s| s.containers.iter());
    let limits = containers.filter_map(|c| c.resources.as_ref()?.limits.as_ref()?.get("nvidia.com/gpu"));
    limits.filter_map(|q| q.0.parse::<i64>().ok()).sum()
}

/// Waits until the invariants hold in these namespaces and nothing is on its way, then sees that they go on holding, and
/// that nothing of Berth is written, for `quiet`.
///
/// # Errors
/// If they do not hold within `limit`, or something moves afterwards; with what is wrong.
pub async fn settled(world: &World, namespaces: &[&str], limit: Duration, quiet: Duration) -> Result<()> {
    let began = Instant::now();
    loop {
        let picture = Picture::take(world, namespaces).await?;
        let wrong = picture.faults();
        if wrong.is_empty() && picture.moving() == 0 {
            break;
        }
        if began.elapsed() > limit {
            bail!("not settled after {limit:?}, {} pods on their way:\n  {}", picture.moving(), wrong.join("\n  "));
        }
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
    let versions = |picture: &Picture| -> BTreeMap<String, Option<String>> {
        let jobs = picture.jobs.iter().map(|o| (format!("job {}", o.name_any()), o.resource_version()));
        let berths = picture.berths.iter().map(|o| (format!("Berth {}", o.name_any()), o.resource_version()));
        let pods = picture.pods.iter().map(|o| (format!("pod {}", o.name_any()), o.resource_version()));
        jobs.chain(berths).chain(pods).collect()
    };
    // Statuses are told at their own pace: rest is when nothing was written for as long as asked.
    loop {
        let before = versions(&Picture::take(world, namespaces).await?);
        tokio::time::sleep(quiet).await;
        let picture = Picture::take(world, namespaces).await?;
        let wrong = picture.faults();
        ensure!(wrong.is_empty(), "it held, and holds no more:\n  {}", wrong.join("\n  "));
        let after = versions(&picture);
        if before == after {
            return Ok(());
        }
        let moved: Vec<&String> = after.iter().filter(|(k, v)| before.get(*k) != Some(v)).map(|(k, _)| k).collect();
        ensure!(began.elapsed() < limit + quiet, "I6: it does not come to rest: {moved:?}");
    }
}
