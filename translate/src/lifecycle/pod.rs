//! The pod of one seat, complete and bound to its node.

use super::environment::{self, HOSTS_DIR, Member};
use super::naming;
use crate::error::{Fault, TranslateError};
use crds::names::{SCHEDULER_NAME, annotations, labels, taints};
use crds::v1alpha1::{Berth, RendezvousKind, Role, TrainingJob};
use k8s_openapi::api::core::v1::{
    ConfigMapVolumeSource, Container, Pod, PodSpec, SecretVolumeSource, Toleration, Volume, VolumeMount,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fmt::Write;

/// Where the keys of an Mpi job are mounted, as other operators do.
const SSH_DIR: &str = "/root/.ssh";
/// ssh refuses keys that others may read.
const SSH_MODE: i32 = 0o600;
const HOSTS_VOLUME: &str = "berth-hosts";
const SSH_VOLUME: &str = "berth-ssh";

/// What decides over one pod beside its job and Berth.
#[derive(Clone, Copy, Debug)]
pub struct PodArgs<'a> {
    /// The job.
    pub job: &'a TrainingJob,
    /// The Berth in force, as stored (it has a uid).
    pub berth: &'a Berth,
    /// The seat: one of [`environment::members`].
    pub member: &'a Member<'a>,
    /// 1 for the first pod ever made for this seat; one more than the last one that still exists.
    pub attempt: u32,
    /// Priority class of the job, if any applies.
    pub priority_class: Option<&'a str>,
    /// Term of the leader that makes it.
    pub leader_epoch: i64,
}

/// The pod of a seat.
///
/// # Errors
/// If the Berth was never stored.
pub fn pod_of(args: &PodArgs<'_>) -> Result<Pod, TranslateError> {
    let (job, berth) = (args.job, args.berth);
    let member = args.member;
    let role = &job.spec.roles[member.role];
    let owner = berth
        .controller_owner_ref(&())
        .ok_or_else(|| Fault::Missing.at(format!("Berth {}", crate::key_of(berth)), "metadata.uid"))?;
    let name = job.metadata.name.as_deref().unwrap_or_default();
    let template_meta = role.template.metadata.clone().unwrap_or_default();
    let metadata = ObjectMeta {
        name: Some(naming::pod_name(name, member.role_name, member.index, args.attempt)),
        namespace: job.metadata.namespace.clone(),
        labels: Some(pod_labels(template_meta.labels.unwrap_or_default(), args, member)),
        annotations: Some(pod_annotations(template_meta.annotations.unwrap_or_default(), args, member, role)),
        owner_references: Some(vec![owner]),
        ..ObjectMeta::default()
    };
    Ok(Pod { metadata, spec: Some(pod_spec(args, member, role, name)), status: None })
}

fn pod_labels(mut all: BTreeMap<String, String>, args: &PodArgs<'_>, member: &Member<'_>) -> BTreeMap<String, String> {
    let berth = args.berth.metadata.name.clone().unwrap_or_default();
    all.extend([
        (labels::JOB.to_owned(), args.job.metadata.name.clone().unwrap_or_default()),
        (labels::ROLE.to_owned(), member.role_name.to_owned()),
        (labels::INDEX.to_owned(), member.index.to_string()),
        (labels::RANK.to_owned(), member.rank.to_string()),
        (labels::BERTH.to_owned(), berth),
        (labels::INCARNATION.to_owned(), args.berth.spec.incarnation.to_string()),
    ]);
    all
}

fn pod_annotations(
    mut all: BTreeMap<String, String>,
    args: &PodArgs<'_>,
    member: &Member<'_>,
    role: &Role,
) -> BTreeMap<String, String> {
    // Moving one pod of a gang stops all of them: autoscalers must leave it where it is, unless the user says otherwise.
    all.entry(annotations::NOT_SAFE_TO_EVICT.to_owned()).or_insert_with(|| "false".to_owned());
    all.entry(annotations::DO_NOT_DISRUPT.to_owned()).or_insert_with(|| "true".to_owned());
    all.extend([
        (annotations::DOMAIN_PATH.to_owned(), member.domain.to_owned()),
        (annotations::TOPOLOGY_EPOCH.to_owned(), args.berth.spec.epoch.to_string()),
        (annotations::LEADER_EPOCH.to_owned(), args.leader_epoch.to_string()),
        (annotations::TEMPLATE_HASH.to_owned(), template_hash(role)),
    ]);
    all
}

fn pod_spec(args: &PodArgs<'_>, member: &Member<'_>, role: &Role, job: &str) -> PodSpec {
    let kind = args.job.spec.rendezvous.kind;
    let mut spec = role.template.spec.clone().unwrap_or_default();
    spec.node_name = Some(member.node.to_owned());
    spec.scheduler_name = Some(SCHEDULER_NAME.to_owned());
    spec.restart_policy = Some(spec.restart_policy.unwrap_or_else(|| "Never".to_owned()));
    spec.hostname = Some(naming::host_name(job, member.role_name, member.index));
    spec.subdomain = (kind != RendezvousKind::None).then(|| job.to_owned());
    spec.termination_grace_period_seconds = Some(grace_seconds(args.job));
    if spec.priority_class_name.is_none() {
        spec.priority_class_name = args.priority_class.map(str::to_owned);
    }
    spec.tolerations.get_or_insert_default().push(Toleration {
        key: Some(taints::DEDICATED.to_owned()),
        operator: Some("Exists".to_owned()),
        ..Toleration::default()
    });
    if kind == RendezvousKind::Mpi {
        mount_mpi(&mut spec, job);
    }
    let variables = environment::variables(args.job, args.berth, member);
    for container in containers(&mut spec) {
        environment::set(container, &variables);
    }
    spec
}

fn containers(spec: &mut PodSpec) -> impl Iterator<Item = &mut Container> {
    spec.containers.iter_mut().chain(spec.init_containers.iter_mut().flatten())
}

/// Whole seconds of grace, rounded up: never less than asked for.
fn grace_seconds(job: &TrainingJob) -> i64 {
    let micros = crate::job::grace(job).0;
    micros / 1_000_000 + i64::from(micros % 1_000_000 > 0)
}

fn mount_mpi(spec: &mut PodSpec, job: &str) {
    let hosts = ConfigMapVolumeSource { name: naming::hosts_name(job), ..ConfigMapVolumeSource::default() };
    let keys = SecretVolumeSource {
        secret_name: Some(naming::ssh_name(job)),
        default_mode: Some(SSH_MODE),
        ..SecretVolumeSource::default()
    };
    spec.volumes.get_or_insert_default().extend([
        Volume { name: HOSTS_VOLUME.to_owned(), config_map: Some(hosts), ..Volume::default() },
        Volume { name: SSH_VOLUME.to_owned(), secret: Some(keys), ..Volume::default() },
    ]);
    for container in containers(spec) {
        let mounts = container.volume_mounts.get_or_insert_default();
        for (name, path) in [(HOSTS_VOLUME, HOSTS_DIR), (SSH_VOLUME, SSH_DIR)] {
            if !mounts.iter().any(|m| m.mount_path == path) {
                mounts.push(VolumeMount {
                    name: name.to_owned(),
                    mount_path: path.to_owned(),
                    ..VolumeMount::default()
                });
            }
        }
    }
}

/// Hash of a role's template: pods made from another one are told apart, and a dry run is remembered by it.
#[must_use]
pub fn template_hash(role: &Role) -> String {
    let bytes = serde_json::to_vec(&role.template).unwrap_or_default();
    let mut text = String::with_capacity(16);
    for byte in Sha256::digest(&bytes).iter().take(8) {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::tests::mk_job;
    use serde_json::{Value, json};

    fn mk_berth() -> Berth {
        serde_json::from_value(json!({
            "apiVersion": "berth.dev/v1alpha1", "kind": "Berth",
            "metadata": {"name": "llama-3", "namespace": "team-a", "uid": "berth-uid"},
            "spec": {"job": "llama", "jobUid": "job-uid", "incarnation": 3, "queue": "a", "state": "Committed", "epoch": 42,
                "assignments": [
                    {"domain": "b0/r0", "role": "launcher", "firstIndex": 0, "perNode": 1, "nodes": ["n0"]},
                    {"domain": "b0/r1", "role": "worker", "firstIndex": 1, "perNode": 2, "nodes": ["n1"]}]},
        }))
        .expect("a Berth")
    }

    fn pod(job: &TrainingJob, role: &str, index: i32, attempt: u32) -> Pod {
        let berth = mk_berth();
        let member = &environment::member(job, &berth, role, index).expect("a seat");
        let args = PodArgs { job, berth: &berth, member, attempt, priority_class: Some("high"), leader_epoch: 7 };
        pod_of(&args).expect("stored")
    }

    fn variable<'a>(pod: &'a Pod, name: &str) -> Option<&'a str> {
        let container = &pod.spec.as_ref().expect("has one").containers[0];
        container.env.iter().flatten().find(|e| e.name == name)?.value.as_deref()
    }

    #[test]
    fn a_pod_is_complete_and_bound() {
        let job = mk_job(json!({"checkpoint": {"gracePeriod": "90s"}}));
        insta::assert_yaml_snapshot!(pod(&job, "worker", 2, 2));
    }

    #[test]
    fn what_the_user_set_himself_stays_and_may_refer_to_ours() {
        let container = json!({"name": "main", "env": [{"name": "MASTER_PORT", "value": "1"}, {"name": "ME", "value": "$(BERTH_RANK)"}]});
        let template = json!({"metadata": {"annotations": {"karpenter.sh/do-not-disrupt": "false"}},
            "spec": {"containers": [container], "restartPolicy": "OnFailure"}});
        let job = mk_job(json!({"roles": [{"name": "worker", "replicas": 4, "template": template}]}));
        let pod = pod(&job, "worker", 1, 1);
        assert_eq!((variable(&pod, "MASTER_PORT"), variable(&pod, "PET_MASTER_PORT")), (Some("1"), Some("29500")));
        let spec = pod.spec.as_ref().expect("has one");
        let names: Vec<&str> = spec.containers[0].env.iter().flatten().map(|e| e.name.as_str()).collect();
        assert!(names.iter().position(|n| *n == "BERTH_RANK") < names.iter().position(|n| *n == "ME"));
        assert_eq!(spec.restart_policy.as_deref(), Some("OnFailure"));
        assert_eq!(pod.metadata.annotations.as_ref().expect("has some")["karpenter.sh/do-not-disrupt"], "false");
    }

    #[test]
    fn elastic_torch_jobs_meet_by_rendezvous() {
        let pod = pod(&mk_job(json!({})), "worker", 1, 1);
        assert_eq!(variable(&pod, "PET_NNODES"), Some("3:5"));
        assert_eq!(variable(&pod, "PET_RDZV_ENDPOINT"), Some("llama-launcher-0.llama:29500"));
        assert_eq!(variable(&pod, "PET_RDZV_ID"), Some("job-uid-3"));
    }

    #[test]
    fn jax_ids_have_no_gaps_and_ranks_may() {
        let job = mk_job(json!({"rendezvous": {"kind": "Jax", "port": 1234}}));
        let pod = pod(&job, "worker", 2, 1);
        assert_eq!((variable(&pod, "BERTH_RANK"), variable(&pod, "JAX_PROCESS_ID")), (Some("3"), Some("2")));
        assert_eq!(variable(&pod, "JAX_NUM_PROCESSES"), Some("3"));
        assert_eq!(variable(&pod, "JAX_COORDINATOR_ADDRESS"), Some("llama-launcher-0.llama:1234"));
        assert_eq!(variable(&pod, "MASTER_ADDR"), None);
    }

    #[test]
    fn mpi_jobs_get_their_hosts_and_keys() {
        let pod = pod(&mk_job(json!({"rendezvous": {"kind": "Mpi"}})), "launcher", 0, 1);
        let spec = pod.spec.expect("has one");
        let volumes: Vec<&str> = spec.volumes.iter().flatten().map(|v| v.name.as_str()).collect();
        assert_eq!(volumes, ["berth-hosts", "berth-ssh"]);
        let mounts: Vec<&str> =
            spec.containers[0].volume_mounts.iter().flatten().map(|m| m.mount_path.as_str()).collect();
        assert_eq!(mounts, ["/etc/mpi", "/root/.ssh"]);
    }

    #[test]
    fn without_rendezvous_there_is_no_subdomain_and_no_framework() {
        let pod = pod(&mk_job(json!({"rendezvous": {"kind": "None"}})), "launcher", 0, 1);
        assert_eq!((variable(&pod, "MASTER_ADDR"), variable(&pod, "BERTH_WORLD_SIZE")), (None, Some("3")));
        assert_eq!(pod.spec.and_then(|s| s.subdomain), None);
    }

    #[test]
    fn members_are_those_of_the_berth_in_rank_order() {
        let (job, berth) = (mk_job(json!({})), mk_berth());
        let all = environment::members(&job, &berth);
        let short: Vec<(&str, i32, i64, i64, &str)> =
            all.iter().map(|m| (m.role_name, m.index, m.rank, m.position, m.node)).collect();
        assert_eq!(short, [("launcher", 0, 0, 0, "n0"), ("worker", 1, 2, 1, "n1"), ("worker", 2, 3, 2, "n1")]);
        assert_eq!(environment::member(&job, &berth, "worker", 0), None);
    }

    #[test]
    fn a_berth_that_was_never_stored_owns_nothing() {
        let (job, mut berth) = (mk_job(json!({})), mk_berth());
        berth.metadata.uid = None;
        let member = &environment::member(&job, &berth, "worker", 1).expect("a seat");
        let args = PodArgs { job: &job, berth: &berth, member, attempt: 1, priority_class: None, leader_epoch: 7 };
        let error = pod_of(&args).expect_err("no uid").to_string();
        assert_eq!(error, "Berth team-a/llama-3: metadata.uid: is missing; the API server sets it");
    }

    #[test]
    fn another_template_has_another_hash() {
        let job = mk_job(json!({}));
        let other: Value =
            json!({"name": "x", "replicas": 1, "template": {"spec": {"containers": [{"name": "other"}]}}});
        let other: Role = serde_json::from_value(other).expect("a role");
        assert_eq!(template_hash(&job.spec.roles[0]), template_hash(&job.spec.roles[1]));
        assert_ne!(template_hash(&job.spec.roles[0]), template_hash(&other));
    }
}
