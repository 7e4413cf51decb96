//! ResourceQuotas seen before anything starts: a gang that a quota would refuse half-way is not begun (decision 29).
//! Scoped quotas are left to the API server: only it knows which pods they count.

use k8s_openapi::api::core::v1::{Pod, ResourceQuota};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use planner::resources::{PODS, Rounding};
use std::collections::BTreeMap;
use std::sync::Arc;
use translate::amounts::{self, Named};

/// The first quota that leaves no room for all of these pods, in words; none if every quota does.
#[must_use]
pub fn exceeded<'a>(quotas: impl IntoIterator<Item = &'a ResourceQuota>, pods: &[Arc<Pod>]) -> Option<String> {
    let mut wanted: Option<BTreeMap<String, i64>> = None;
    for quota in quotas {
        let Some(spec) = quota.spec.as_ref().filter(|s| s.scopes.is_none() && s.scope_selector.is_none()) else {
            continue;
        };
        let used = quota.status.as_ref().and_then(|s| s.used.as_ref());
        for (key, hard) in spec.hard.iter().flatten() {
            let sums = wanted.get_or_insert_with(|| sums(pods));
            let Some(&more) = sums.get(normal(key)).filter(|more| **more > 0) else { continue };
            let resource = resource_of(key);
            let read = |q: &Quantity| amounts::parse(resource, q, Rounding::Capacity).ok();
            let (Some(most), held) = (read(hard), used.and_then(|u| u.get(key)).and_then(read).unwrap_or(0)) else {
                continue;
            };
            if held.saturating_add(more) > most {
                let text = |amount| amounts::quantity(resource, amount).0;
                let name = quota.metadata.name.as_deref().unwrap_or_default();
                let left = text((most - held).max(0));
                return Some(format!(
                    "ResourceQuota {name}: {} of {key} wanted, {left} left of {}",
                    text(more),
                    text(most)
                ));
            }
        }
    }
    None
}

/// One spelling for each key: `cpu` is `requests.cpu`, `pods` is `count/pods`.
fn normal(key: &str) -> &str {
    match key {
        "cpu" => "requests.cpu",
        "memory" => "requests.memory",
        "pods" => "count/pods",
        other => other,
    }
}

/// The resource whose unit a key counts in.
fn resource_of(key: &str) -> &str {
    normal(key).strip_prefix("requests.").or_else(|| normal(key).strip_prefix("limits.")).unwrap_or(PODS)
}

/// What all pods together take, by key.
fn sums(pods: &[Arc<Pod>]) -> BTreeMap<String, i64> {
    let mut sums = BTreeMap::new();
    for pod in pods {
        let taken = translate::pod::taken(pod).unwrap_or_default();
        for (resource, amount) in taken.iter().filter(|(name, _)| *name != PODS) {
            *sums.entry(format!("requests.{resource}")).or_insert(0) += amount;
        }
        for (resource, amount) in limits(pod) {
            *sums.entry(format!("limits.{resource}")).or_insert(0) += amount;
        }
        *sums.entry("count/pods".to_owned()).or_insert(0) += 1;
    }
    sums
}

fn limits(pod: &Pod) -> Named {
    let mut sum = Named::new();
    let containers = pod.spec.iter().flat_map(|s| &s.containers);
    for list in containers.filter_map(|c| c.resources.as_ref()?.limits.as_ref()) {
        amounts::add(&mut sum, &amounts::named(list, Rounding::Request).unwrap_or_default());
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[allow(clippy::needless_pass_by_value)] // literals are written in place
    fn mk_quota(hard: serde_json::Value, used: serde_json::Value) -> ResourceQuota {
        let quota = json!({"metadata": {"name": "q"}, "spec": {"hard": hard}, "status": {"used": used}});
        serde_json::from_value(quota).expect("a quota")
    }

    fn mk_gang(pods: usize) -> Vec<Arc<Pod>> {
        let resources = json!({"requests": {"cpu": "500m", "nvidia.com/gpu": "8"}, "limits": {"nvidia.com/gpu": "8"}});
        let pod = json!({"spec": {"containers": [{"name": "c", "resources": resources}]}});
        let pod: Arc<k8s_openapi::api::core::v1::Pod> = Arc::new(serde_json::from_value(pod).expect("a pod"));
        vec![pod; pods]
    }

    #[test]
    fn the_whole_gang_is_counted_before_anything_starts() {
        let quota = mk_quota(json!({"pods": "4"}), json!({"pods": "2"}));
        assert_eq!(exceeded([&quota], &mk_gang(2)), None);
        let message = exceeded([&quota], &mk_gang(3)).expect("one too many");
        assert_eq!(message, "ResourceQuota q: 3 of pods wanted, 2 left of 4");
    }

    #[test]
    fn requests_and_limits_count_in_their_own_units() {
        let cpu = mk_quota(json!({"requests.cpu": "1"}), json!({}));
        assert_eq!(exceeded([&cpu], &mk_gang(2)), None);
        assert!(exceeded([&cpu], &mk_gang(3)).expect("too much").contains("1500m of requests.cpu wanted"));
        let gpus = mk_quota(json!({"requests.nvidia.com/gpu": "16"}), json!({"requests.nvidia.com/gpu": "8"}));
        assert!(exceeded([&gpus], &mk_gang(2)).is_some());
    }

    #[test]
    fn scoped_quotas_are_left_to_the_server() {
        let mut quota = mk_quota(json!({"pods": "1"}), json!({}));
        quota.spec.as_mut().expect("has one").scopes = Some(vec!["BestEffort".into()]);
        assert_eq!(exceeded([&quota], &mk_gang(3)), None);
    }
}
