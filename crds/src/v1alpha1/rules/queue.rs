//! Rules of one `Queue`.

use kube::core::Rule;

use super::rule;

pub(crate) fn parent_is_another() -> Rule {
    rule(
        "!has(self.spec.parent) || self.spec.parent != self.metadata.name",
        "spec.parent is \"%s\", the queue itself: name another queue, or leave it out for a child of the root",
        &["self.spec.parent"],
        ".spec.parent",
    )
}

pub(crate) fn weight_is_positive() -> Rule {
    rule(
        "self.weight >= 1 && self.weight <= 1000000",
        "spec.weight is %d: it must be from 1 to 1000000",
        &["self.weight"],
        ".weight",
    )
}

/// The amount of resource `k`, which may be a number. Going through `string` would cost twice as much, and leave room for
/// seven resources only.
fn amount(map: &str) -> String {
    format!("(type(self.{map}[k]) == int ? quantity('0').add(int(self.{map}[k])) : quantity(self.{map}[k]))")
}

/// The same for an engine that has no `type` and no limit of cost: what to replace, and by what.
#[cfg(feature = "cel")]
pub(crate) fn amounts_without_type() -> [(String, String); 2] {
    ["guarantee", "limit"].map(|map| (amount(map), format!("quantity(string(self.{map}[k]))")))
}

pub(crate) fn guarantee_within_limit() -> Rule {
    let over = format!("k in self.limit && {}.isGreaterThan({})", amount("guarantee"), amount("limit"));
    rule(
        format!("!has(self.guarantee) || !has(self.limit) || self.guarantee.all(k, !({over}))"),
        "spec.guarantee of %s is above spec.limit: lower the guarantee, or raise the limit",
        &[&format!("self.guarantee.filter(k, {over})[0]")],
        ".guarantee",
    )
}

fn not_negative(field: &str) -> Rule {
    rule(
        format!("!has(self.{field}) || self.{field} >= 0"),
        &format!("spec.{field} is %d: it must be 0 or more; leave it out for no limit"),
        &[&format!("self.{field}")],
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
        "spec.maxRuntimeLimit is %s: it must be longer than 0s; leave it out for no limit",
        &["self.maxRuntimeLimit"],
        ".maxRuntimeLimit",
    )
}

pub(crate) fn default_runtime_within_limit() -> Rule {
    rule(
        "!has(self.defaults) || !has(self.defaults.maxRuntime) || !has(self.maxRuntimeLimit) || duration(self.defaults.maxRuntime) <= duration(self.maxRuntimeLimit)",
        "spec.defaults.maxRuntime is %s: it must be at most spec.maxRuntimeLimit, which is %s",
        &["self.defaults.maxRuntime", "self.maxRuntimeLimit"],
        ".defaults",
    )
}

pub(crate) fn default_class_is_allowed() -> Rule {
    rule(
        "!has(self.defaults) || !has(self.defaults.priorityClassName) || !has(self.allowedPriorityClasses) || size(self.allowedPriorityClasses) == 0 || self.defaults.priorityClassName in self.allowedPriorityClasses",
        "spec.defaults.priorityClassName is \"%s\": it must be one of spec.allowedPriorityClasses, which are %s",
        &["self.defaults.priorityClassName", "self.allowedPriorityClasses.join(', ')"],
        ".defaults",
    )
}

pub(crate) fn depth_is_positive() -> Rule {
    rule(
        "self.depth >= 1 && self.depth <= 1000",
        "backfill.depth is %d: it must be from 1 to 1000; use mode: None for no reservations",
        &["self.depth"],
        ".depth",
    )
}
