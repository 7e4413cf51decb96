//! What the API server would add to a pod's spec where no dry run could be asked: RuntimeClasses and LimitRanges.

use k8s_openapi::api::core::v1::{Container, LimitRange, PodSpec};
use k8s_openapi::api::node::v1::RuntimeClass;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use std::collections::BTreeMap;

/// A spec with the overhead, selector and tolerations of its RuntimeClass.
#[must_use]
pub fn with_runtime_class(mut spec: PodSpec, class: &RuntimeClass) -> PodSpec {
    if let Some(overhead) = class.overhead.as_ref().and_then(|o| o.pod_fixed.clone()) {
        spec.overhead = Some(overhead);
    }
    if let Some(scheduling) = &class.scheduling {
        spec.node_selector.get_or_insert_default().extend(scheduling.node_selector.clone().unwrap_or_default());
        spec.tolerations.get_or_insert_default().extend(scheduling.tolerations.clone().unwrap_or_default());
    }
    spec
}

/// A spec with the default requests and limits of its namespace's LimitRanges for containers that name none.
#[must_use]
pub fn with_limit_ranges<'a>(mut spec: PodSpec, ranges: impl IntoIterator<Item = &'a LimitRange>) -> PodSpec {
    let items = ranges.into_iter().filter_map(|r| r.spec.as_ref()).flat_map(|s| &s.limits);
    for item in items.filter(|i| i.type_ == "Container") {
        for container in spec.containers.iter_mut().chain(spec.init_containers.iter_mut().flatten()) {
            fill(container, item.default.as_ref(), item.default_request.as_ref());
        }
    }
    spec
}

type Amounts = BTreeMap<String, Quantity>;

fn fill(container: &mut Container, limits: Option<&Amounts>, requests: Option<&Amounts>) {
    let resources = container.resources.get_or_insert_default();
    let own_limits = resources.limits.clone().unwrap_or_default();
    if let Some(defaults) = requests {
        let own = resources.requests.get_or_insert_default();
        for (name, amount) in defaults {
            // A limit of its own is the request of a container that names none, before the range's default.
            if !own.contains_key(name) && !own_limits.contains_key(name) {
                own.insert(name.clone(), amount.clone());
            }
        }
    }
    if let Some(defaults) = limits {
        let own = resources.limits.get_or_insert_default();
        for (name, amount) in defaults {
            own.entry(name.clone()).or_insert_with(|| amount.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PodAsk;
    use serde_json::json;

    fn mk_spec(container: serde_json::Value) -> PodSpec {
        serde_json::from_value(json!({"containers": [container]})).expect("a spec")
    }

    #[test]
    fn a_runtime_class_adds_overhead_and_narrows_the_nodes() {
        let class: RuntimeClass = serde_json::from_value(json!({
            "handler": "kata", "overhead": {"podFixed": {"cpu": "250m"}}, "scheduling": {"nodeSelector": {"kata": "yes"}},
        }))
        .expect("a class");
        let spec = with_runtime_class(mk_spec(json!({"name": "a", "resources": {"requests": {"cpu": "1"}}})), &class);
        assert_eq!(PodAsk::of_ours(&spec).expect("readable").requests["cpu"], 1250);
        assert_eq!(spec.node_selector.expect("narrowed")["kata"], "yes");
    }

    #[test]
    fn limit_ranges_fill_what_containers_leave_out() {
        let range: LimitRange = serde_json::from_value(json!({"spec": {"limits": [
            {"type": "Container", "default": {"cpu": "4", "memory": "1Gi"}, "defaultRequest": {"cpu": "2"}}]}}))
        .expect("a range");
        let asked = |container| {
            let spec = with_limit_ranges(mk_spec(container), [&range]);
            PodAsk::of_ours(&spec).expect("readable").requests
        };
        assert_eq!((asked(json!({"name": "a"}))["cpu"], asked(json!({"name": "a"}))["memory"]), (2000, 1 << 30));
        assert_eq!(asked(json!({"name": "a", "resources": {"limits": {"cpu": "3"}}}))["cpu"], 3000);
    }
}
