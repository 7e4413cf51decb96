//! What a job owns beside its pods: the headless Service by which they find each other, and the host file of Mpi jobs.

use super::environment::HOST_FILE;
use super::naming;
use crate::amounts;
use crate::berth::owner_of;
use crate::error::TranslateError;
use crds::names::{MPI_LAUNCHER, labels};
use crds::v1alpha1::{Berth, RendezvousKind, Role, TrainingJob};
use k8s_openapi::api::core::v1::{ConfigMap, Service, ServicePort, ServiceSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use planner::resources::Rounding;
use std::collections::BTreeMap;
use std::fmt::Write;

/// Labels of everything of a job.
#[must_use]
pub fn job_labels(job: &TrainingJob) -> BTreeMap<String, String> {
    BTreeMap::from([(labels::JOB.to_owned(), job.metadata.name.clone().unwrap_or_default())])
}

/// Metadata of an object that a job owns.
///
/// # Errors
/// If the job was never stored.
pub fn owned(job: &TrainingJob, name: String) -> Result<ObjectMeta, TranslateError> {
    Ok(ObjectMeta {
        name: Some(name),
        namespace: job.metadata.namespace.clone(),
        labels: Some(job_labels(job)),
        owner_references: Some(vec![owner_of(job)?]),
        ..ObjectMeta::default()
    })
}

/// The headless Service of a job; none where its pods need none. Pods are found before they are ready, since they get
/// ready by finding each other.
///
/// # Errors
/// If the job was never stored.
pub fn service(job: &TrainingJob) -> Result<Option<Service>, TranslateError> {
    if job.spec.rendezvous.kind == RendezvousKind::None {
        return Ok(None);
    }
    let port = job.spec.rendezvous.port;
    let spec = ServiceSpec {
        cluster_ip: Some("None".to_owned()),
        publish_not_ready_addresses: Some(true),
        selector: Some(job_labels(job)),
        ports: Some(vec![ServicePort {
            name: Some("rendezvous".to_owned()),
            port,
            target_port: Some(IntOrString::Int(port)),
            ..ServicePort::default()
        }]),
        ..ServiceSpec::default()
    };
    let metadata = owned(job, job.metadata.name.clone().unwrap_or_default())?;
    Ok(Some(Service { metadata, spec: Some(spec), status: None }))
}

/// Whether a Service of the job's name is the job's own.
#[must_use]
pub fn is_own_service(job: &TrainingJob, service: &Service) -> bool {
    let uid = job.metadata.uid.as_deref();
    service.metadata.owner_references.iter().flatten().any(|o| Some(o.uid.as_str()) == uid)
}

/// The host file of an Mpi job's incarnation: one line a pod of every role but `launcher`, in rank order.
///
/// # Errors
/// If the job was never stored.
pub fn hosts(job: &TrainingJob, berth: &Berth) -> Result<Option<ConfigMap>, TranslateError> {
    if job.spec.rendezvous.kind != RendezvousKind::Mpi {
        return Ok(None);
    }
    let name = job.metadata.name.as_deref().unwrap_or_default();
    let mut text = String::new();
    for role in job.spec.roles.iter().filter(|r| r.name != MPI_LAUNCHER) {
        let mut indexes: Vec<i32> = berth
            .spec
            .assignments
            .iter()
            .filter(|a| a.role == role.name)
            .flat_map(|a| a.indexes().map(|(index, _)| index).collect::<Vec<_>>())
            .collect();
        indexes.sort_unstable();
        for index in indexes {
            let _ = writeln!(text, "{} slots={}", naming::address(name, &role.name, index), slots(role));
        }
    }
    let mut metadata = owned(job, naming::hosts_name(name))?;
    metadata.labels.get_or_insert_default().insert(labels::INCARNATION.to_owned(), berth.spec.incarnation.to_string());
    let data = BTreeMap::from([(HOST_FILE.to_owned(), text)]);
    Ok(Some(ConfigMap { metadata, data: Some(data), ..ConfigMap::default() }))
}

/// Processes of one pod: one a GPU, at least one.
fn slots(role: &Role) -> i64 {
    let containers = role.template.spec.iter().flat_map(|s| &s.containers);
    let gpus: i64 = containers
        .filter_map(|c| c.resources.as_ref())
        .flat_map(|r| r.limits.iter().chain(r.requests.iter().filter(|_| r.limits.is_none())))
        .flatten()
        .filter(|(name, _)| is_gpu(name))
        .filter_map(|(name, quantity)| amounts::parse(name, quantity, Rounding::Request).ok())
        .sum();
    gpus.max(1)
}

/// Whether a resource is a GPU of any vendor: `nvidia.com/gpu`, `amd.com/gpu`.
#[must_use]
pub fn is_gpu(resource: &str) -> bool {
    resource.ends_with("/gpu")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::tests::mk_job;
    use serde_json::json;

    #[test]
    fn the_service_is_headless_and_finds_pods_before_they_are_ready() {
        let job = mk_job(json!({}));
        let service = service(&job).expect("stored").expect("has one");
        assert!(is_own_service(&job, &service));
        let spec = service.spec.expect("has one");
        assert_eq!((spec.cluster_ip.as_deref(), spec.publish_not_ready_addresses), (Some("None"), Some(true)));
        assert_eq!(spec.selector.expect("selects")["berth.dev/job"], "llama");
        assert_eq!(super::service(&mk_job(json!({"rendezvous": {"kind": "None"}}))), Ok(None));
        assert!(!is_own_service(&job, &Service::default()));
    }

    #[test]
    fn the_host_file_names_every_pod_but_the_launcher() {
        let berth: Berth = serde_json::from_value(json!({
            "apiVersion": "berth.dev/v1alpha1", "kind": "Berth", "metadata": {"name": "llama-1"},
            "spec": {"job": "llama", "jobUid": "job-uid", "incarnation": 1, "queue": "a", "state": "Committed", "assignments": [
                {"role": "launcher", "firstIndex": 0, "perNode": 1, "nodes": ["n0"]},
                {"role": "worker", "firstIndex": 2, "perNode": 1, "nodes": ["n2"]},
                {"role": "worker", "firstIndex": 0, "perNode": 2, "nodes": ["n1"]}]},
        }))
        .expect("a Berth");
        let job = mk_job(json!({"rendezvous": {"kind": "Mpi"}}));
        let hosts = hosts(&job, &berth).expect("stored").expect("has one");
        let text = &hosts.data.expect("has one")[HOST_FILE];
        assert_eq!(text, "llama-worker-0.llama slots=8\nllama-worker-1.llama slots=8\nllama-worker-2.llama slots=8\n");
    }
}
