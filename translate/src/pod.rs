//! What a pod takes on a node, counted as kube-scheduler counts it, and how its templates ask for it.

use crate::amounts::{self, Named};
use crate::constraints::Constraints;
use crate::error::FieldFault;
use crate::ports::{self, is_sidecar};
use k8s_openapi::api::core::v1::{Container, ContainerStatus, Pod, PodSpec, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use planner::resources::{PODS, Rounding};
use std::collections::BTreeMap;

/// What one pod asks for: amounts with its slot and host ports, and which nodes it allows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodAsk {
    /// Amounts by name.
    pub requests: Named,
    /// Allowed nodes.
    pub constraints: Constraints,
}

impl PodAsk {
    /// What a pod of ours with this spec asks for; nodes dedicated to Berth are tolerated without being named.
    ///
    /// # Errors
    /// The first field that cannot be read, relative to the pod's spec.
    pub fn of_ours(spec: &PodSpec) -> Result<Self, FieldFault> {
        Ok(Self { requests: requests(spec, &[])?, constraints: Constraints::of(spec)?.tolerating_dedicated() })
    }
}

/// What a pod that exists takes on its node: at least what its kubelet granted last. Nothing once it has ended.
///
/// # Errors
/// The first amount that cannot be read.
pub fn taken(pod: &Pod) -> Result<Named, FieldFault> {
    let Some(spec) = &pod.spec else { return Ok(Named::new()) };
    if is_terminal(pod) {
        return Ok(Named::new());
    }
    let status = pod.status.as_ref();
    let statuses: Vec<&ContainerStatus> = status
        .into_iter()
        .flat_map(|s| s.container_statuses.iter().flatten().chain(s.init_container_statuses.iter().flatten()))
        .collect();
    requests(spec, &statuses)
}

/// Whether a pod has ended and takes nothing any more.
#[must_use]
pub fn is_terminal(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|s| s.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

/// The larger of what containers and sidecars take together and what the largest init container takes beside the
/// sidecars started before it; pod-level amounts rule where given; overhead, slot and host ports come on top.
fn requests(spec: &PodSpec, statuses: &[&ContainerStatus]) -> Result<Named, FieldFault> {
    let mut running = Named::new();
    for (row, container) in spec.containers.iter().enumerate() {
        let one = of_container(container, statuses).map_err(|f| f.under(&format!("containers[{row}].")))?;
        amounts::add(&mut running, &one);
    }
    let (mut sidecars, mut starting) = (Named::new(), Named::new());
    for (row, container) in spec.init_containers.iter().flatten().enumerate() {
        let one = of_container(container, statuses).map_err(|f| f.under(&format!("initContainers[{row}].")))?;
        let mut beside = sidecars.clone();
        amounts::add(&mut beside, &one);
        if is_sidecar(container) {
            sidecars.clone_from(&beside);
        }
        amounts::raise(&mut starting, &beside);
    }
    amounts::add(&mut running, &sidecars);
    amounts::raise(&mut running, &starting);
    at_pod_level(spec, &mut running)?;
    if let Some(overhead) = &spec.overhead {
        let overhead = amounts::named(overhead, Rounding::Request).map_err(|f| f.under("overhead"))?;
        amounts::add(&mut running, &overhead);
    }
    running.extend(ports::of_pod(spec));
    running.insert(PODS.to_owned(), 1);
    running.retain(|_, amount| *amount > 0);
    Ok(running)
}

fn of_container(container: &Container, statuses: &[&ContainerStatus]) -> Result<Named, FieldFault> {
    let mut wanted = match &container.resources {
        Some(resources) => with_defaults(resources)?,
        None => Named::new(),
    };
    // A resize in place counts what is wanted and what is still held, whichever is more.
    for status in statuses.iter().filter(|s| s.name == container.name) {
        let actual = status.resources.as_ref().and_then(|r| r.requests.as_ref());
        for held in [status.allocated_resources.as_ref(), actual].into_iter().flatten() {
            amounts::raise(&mut wanted, &amounts::named(held, Rounding::Request).map_err(|f| f.under("status"))?);
        }
    }
    Ok(wanted)
}

/// Requests, and limits where no request is given, as the API server defaults them.
fn with_defaults(resources: &ResourceRequirements) -> Result<Named, FieldFault> {
    let read = |list: &Option<BTreeMap<String, Quantity>>, field: &str| match list {
        Some(list) => amounts::named(list, Rounding::Request).map_err(|f| f.under(field)),
        None => Ok(Named::new()),
    };
    let mut wanted = read(&resources.limits, "resources.limits")?;
    wanted.extend(read(&resources.requests, "resources.requests")?);
    Ok(wanted)
}

fn at_pod_level(spec: &PodSpec, sum: &mut Named) -> Result<(), FieldFault> {
    let Some(level) = &spec.resources else { return Ok(()) };
    let given = match &level.requests {
        Some(list) => amounts::named(list, Rounding::Request).map_err(|f| f.under("resources.requests"))?,
        None => Named::new(),
    };
    let limits = match &level.limits {
        Some(list) => amounts::named(list, Rounding::Request).map_err(|f| f.under("resources.limits"))?,
        None => Named::new(),
    };
    for (name, amount) in limits {
        // The API server defaults a request at pod level to the containers' sum, or to the limit where they ask for none.
        if counts_at_pod_level(&name) && !given.contains_key(&name) && !sum.contains_key(&name) {
            sum.insert(name, amount);
        }
    }
    sum.extend(given.into_iter().filter(|(name, _)| counts_at_pod_level(name)));
    Ok(())
}

fn counts_at_pod_level(resource: &str) -> bool {
    matches!(resource, "cpu" | "memory") || resource.starts_with("hugepages-")
}

/// The node a pod is bound to, if it is.
#[must_use]
pub fn node_of(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref().filter(|n| !n.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn asked(spec: serde_json::Value) -> Vec<(String, i64)> {
        let spec: PodSpec = serde_json::from_value(spec).expect("a pod's spec");
        PodAsk::of_ours(&spec).expect("readable").requests.into_iter().filter(|(n, _)| n != PODS).collect()
    }

    fn cpu(amount: &str) -> serde_json::Value {
        json!({"requests": {"cpu": amount}})
    }

    #[test]
    fn init_containers_count_where_they_are_larger_than_the_rest() {
        let mains = json!([{"name": "a", "resources": cpu("1")}, {"name": "b", "resources": cpu("1")}]);
        let with = |init: &str| json!({"containers": mains, "initContainers": [{"name": "i", "resources": cpu(init)}]});
        assert_eq!(asked(with("5")), [("cpu".to_owned(), 5000)]);
        assert_eq!(asked(with("1")), [("cpu".to_owned(), 2000)]);
    }

    #[test]
    fn sidecars_count_beside_containers_and_beside_later_init_containers() {
        let spec = json!({
            "containers": [{"name": "a", "resources": cpu("1")}],
            "initContainers": [
                {"name": "before", "resources": cpu("3")},
                {"name": "side", "restartPolicy": "Always", "resources": cpu("2")},
                {"name": "after", "resources": cpu("4")},
            ],
        });
        assert_eq!(asked(spec), [("cpu".to_owned(), 6000)]);
    }

    #[test]
    fn limits_stand_in_for_requests_and_overhead_comes_on_top() {
        let spec = json!({
            "containers": [{"name": "a", "resources": {"limits": {"nvidia.com/gpu": "8", "cpu": "4"}, "requests": {"cpu": "2"}}}],
            "overhead": {"cpu": "250m"},
        });
        assert_eq!(asked(spec), [("cpu".to_owned(), 2250), ("nvidia.com/gpu".to_owned(), 8)]);
    }

    #[test]
    fn amounts_of_the_whole_pod_rule_over_the_sum() {
        let spec = json!({
            "containers": [{"name": "a", "resources": {"requests": {"cpu": "1", "nvidia.com/gpu": "1"}}}],
            "resources": {"requests": {"cpu": "6"}, "limits": {"cpu": "8", "memory": "2Ki"}},
        });
        let want = [("cpu".to_owned(), 6000), ("memory".to_owned(), 2048), ("nvidia.com/gpu".to_owned(), 1)];
        assert_eq!(asked(spec), want);
    }

    #[test]
    fn a_pod_that_ended_takes_nothing_and_one_being_resized_takes_the_larger_amount() {
        let mut pod: Pod = serde_json::from_value(json!({
            "spec": {"containers": [{"name": "a", "resources": cpu("1")}]},
            "status": {"phase": "Running", "containerStatuses": [{
                "name": "a", "image": "", "imageID": "", "ready": true, "restartCount": 0, "allocatedResources": {"cpu": "3"},
            }]},
        }))
        .expect("a pod");
        assert_eq!(taken(&pod).expect("readable")["cpu"], 3000);
        pod.status.as_mut().expect("has one").phase = Some("Succeeded".into());
        assert!(taken(&pod).expect("readable").is_empty());
    }

    #[test]
    fn a_wrong_amount_is_named_by_container() {
        let spec: PodSpec =
            serde_json::from_value(json!({"containers": [{"name": "a", "resources": cpu("two")}]})).expect("a spec");
        let fault = PodAsk::of_ours(&spec).expect_err("no quantity");
        assert_eq!(fault.field, "containers[0].resources.requests[cpu]");
    }
}
