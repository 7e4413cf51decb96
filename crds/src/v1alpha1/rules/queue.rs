//! Rules of one `Queue`.

use kube::core::Rule;

use super::rule;

pub(crate) fn parent_is_another() -> Rule {
    rule(
        "!has(self.spec.parent) || self.spec.parent != self.metadata.name",
        "'spec.parent is \"' + self.spec.parent + '\", the queue itself: name another queue, or leave it out for a child of the root'",
        ".spec.parent",
    )
}

pub(crate) fn weight_is_positive() -> Rule {
    rule(
        "self.weight >= 1 && self.weight <= 1000000",
        "'spec.weight is ' + string(self.weight) + ': it must be from 1 to 1000000'",
        ".weight",
    )
}

pub(crate) fn guarantee_within_limit() -> Rule {
    let over = "k in self.limit && quantity(string(self.guarantee[k])).isGreaterThan(quantity(string(self.limit[k])))";
    rule(
        format!("!has(self.guarantee) || !has(self.limit) || self.guarantee.all(k, !({over}))"),
        format!(
            "'spec.guarantee of ' + self.guarantee.filter(k, {over})[0] + ' is above spec.limit: lower the guarantee, or raise the limit'"
        ),
        ".guarantee",
    )
}

fn not_negative(field: &str) -> Rule {
    rule(
        format!("!has(self.{field}) || self.{field} >= 0"),
        format!("'spec.{field} is ' + string(self.{field}) + ': it must be 0 or more; leave it out for no limit'"),
        &format!(".{field}"),
    )
}

pub(crate) fn running_jobs_not_negative() -> Rule {
    not_negative("maxRunningJobs")
}

pub(crate) fn pending_jobs_not_negative() -> Rule {
    not_negative("maxPendingJobs")
}

pub(crate) fn runtime_limit_is_positive() -> Rule {
    rule(
        "!has(self.maxRuntimeLimit) || duration(self.maxRuntimeLimit) > duration('0s')",
        "'spec.maxRuntimeLimit is ' + self.maxRuntimeLimit + ': it must be longer than 0s; leave it out for no limit'",
        ".maxRuntimeLimit",
    )
}

pub(crate) fn default_runtime_within_limit() -> Rule {
    rule(
        "!has(self.defaults) || !has(self.defaults.maxRuntime) || !has(self.maxRuntimeLimit) || duration(self.defaults.maxRuntime) <= duration(self.maxRuntimeLimit)",
        "'spec.defaults.maxRuntime is ' + self.defaults.maxRuntime + ': it must be at most spec.maxRuntimeLimit, which is ' + self.maxRuntimeLimit",
        ".defaults",
    )
}

pub(crate) fn default_class_is_allowed() -> Rule {
    rule(
        "!has(self.defaults) || !has(self.defaults.priorityClassName) || !has(self.allowedPriorityClasses) || size(self.allowedPriorityClasses) == 0 || self.defaults.priorityClassName in self.allowedPriorityClasses",
        "'spec.defaults.priorityClassName is \"' + self.defaults.priorityClassName + '\": it must be one of spec.allowedPriorityClasses, which are ' + self.allowedPriorityClasses.join(', ')",
        ".defaults",
    )
}

pub(crate) fn depth_is_positive() -> Rule {
    rule(
        "self.depth >= 1 && self.depth <= 1000",
        "'backfill.depth is ' + string(self.depth) + ': it must be from 1 to 1000; use mode: None for no reservations'",
        ".depth",
    )
}
