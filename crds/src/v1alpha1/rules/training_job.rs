//! Rules of one `TrainingJob`.

use kube::core::Rule;

use super::rule;
use crate::v1alpha1::MAX_PODS;

/// A change is judged by the old phase: while the job holds nodes, what its pods are made from stays.
const HELD: &str =
    "has(oldSelf.status) && has(oldSelf.status.phase) && oldSelf.status.phase in ['Starting', 'Running']";
const HELD_REMEDY: &str = "while the job holds nodes: set suspend: true first, or submit a new job";

// The object itself.

pub(crate) fn name_is_a_service_name() -> Rule {
    rule(
        "size(self.metadata.name) <= 63 && self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",
        "metadata.name is \"%s\": it also names a Service, so it must be at most 63 lower-case letters, digits and dashes, begin with a letter and not end with a dash",
        &["self.metadata.name"],
        "",
    )
}

pub(crate) fn host_names_fit() -> Rule {
    let fits = "size(self.metadata.name) + size(r.name) + size(string(r.replicas - 1)) + 2 <= 63";
    rule(
        format!("self.spec.roles.all(r, {fits})"),
        "metadata.name is \"%s\": the host name of the last pod of role \"%s\" (job-role-index) would be over 63 characters: shorten the name of the job or of the role",
        &["self.metadata.name", &format!("self.spec.roles.filter(r, !({fits}))[0].name")],
        "",
    )
}

/// `path` below spec, both present or both absent, and equal.
fn stays(path: &str) -> Rule {
    rule(
        format!("!({HELD}) || self.spec.{path} == oldSelf.spec.{path}"),
        &format!("spec.{path} cannot change {HELD_REMEDY}"),
        &[],
        &format!(".spec.{path}"),
    )
}

fn optional_stays(path: &str) -> Rule {
    let same = format!(
        "has(self.spec.{path}) == has(oldSelf.spec.{path}) && (!has(self.spec.{path}) || self.spec.{path} == oldSelf.spec.{path})"
    );
    rule(
        format!("!({HELD}) || ({same})"),
        &format!("spec.{path} cannot change {HELD_REMEDY}"),
        &[],
        &format!(".spec.{path}"),
    )
}

pub(crate) fn queue_stays_while_held() -> Rule {
    optional_stays("queue")
}

pub(crate) fn preemptible_stays_while_held() -> Rule {
    stays("preemptible")
}

pub(crate) fn required_stays_while_held() -> Rule {
    optional_stays("topology.required")
}

pub(crate) fn preferred_stays_while_held() -> Rule {
    optional_stays("topology.preferred")
}

pub(crate) fn communication_stays_while_held() -> Rule {
    stays("communication")
}

pub(crate) fn rendezvous_stays_while_held() -> Rule {
    stays("rendezvous")
}

pub(crate) fn checkpoint_stays_while_held() -> Rule {
    optional_stays("checkpoint")
}

pub(crate) fn success_policy_stays_while_held() -> Rule {
    optional_stays("successPolicy")
}

/// Templates are compared by the webhook: the schema keeps their unknown fields, which CEL cannot see.
pub(crate) fn roles_stay_while_held() -> Rule {
    let same = "o.name == r.name && has(o.slice) == has(r.slice) && (!has(o.slice) || o.slice == r.slice) \
                && has(o.dependsOn) == has(r.dependsOn) && (!has(o.dependsOn) || o.dependsOn == r.dependsOn)";
    rule(
        format!(
            "!({HELD}) || (size(self.spec.roles) == size(oldSelf.spec.roles) && self.spec.roles.all(r, oldSelf.spec.roles.exists(o, {same})))"
        ),
        &format!("spec.roles: only replicas and minReplicas may change {HELD_REMEDY}"),
        &[],
        ".spec.roles",
    )
}

// The spec.

pub(crate) fn role_names_are_unique() -> Rule {
    let single = "self.roles.exists_one(o, o.name == r.name)";
    rule(
        format!("self.roles.all(r, {single})"),
        "spec.roles: the name \"%s\" is used twice: give each role its own",
        &[&format!("self.roles.filter(r, !{single})[0].name")],
        ".roles",
    )
}

pub(crate) fn pods_within_limit() -> Rule {
    rule(
        format!("self.roles.map(r, r.replicas).sum() <= {MAX_PODS}"),
        &format!("spec.roles: replicas are together %d: one job may have at most {MAX_PODS} pods; use fewer"),
        &["self.roles.map(r, r.replicas).sum()"],
        ".roles",
    )
}

const DEPENDENCIES_EXIST: &str =
    "self.roles.all(r, !has(r.dependsOn) || r.dependsOn.all(d, self.roles.exists(o, o.name == d)))";

pub(crate) fn dependencies_exist() -> Rule {
    rule(
        DEPENDENCIES_EXIST,
        "spec.roles: dependsOn of role \"%s\" names a role that does not exist: name one of the job's roles",
        &["self.roles.filter(r, has(r.dependsOn) && !r.dependsOn.all(d, self.roles.exists(o, o.name == d)))[0].name"],
        ".roles",
    )
}

/// CEL has no recursion: start from nobody and let, sixteen times, all those follow whose dependencies are there
/// already; whoever is missing after as many rounds as there may be roles waits for himself.
pub(crate) fn dependencies_have_no_cycle() -> Rule {
    let round = ".map(done, self.roles.filter(r, !has(r.dependsOn) || r.dependsOn.all(d, d in done)).map(r, r.name))";
    rule(
        format!("!{DEPENDENCIES_EXIST} || [['']]{}.all(done, size(done) == size(self.roles))", round.repeat(16)),
        "spec.roles: dependsOn goes in a circle among the roles %s: remove one of the dependencies",
        &["self.roles.filter(r, has(r.dependsOn)).map(r, r.name)"],
        ".roles",
    )
}

pub(crate) fn success_roles_exist() -> Rule {
    let known = "self.roles.exists(r, r.name == n)";
    rule(
        format!("!has(self.successPolicy) || self.successPolicy.roles.all(n, {known})"),
        "spec.successPolicy.roles: \"%s\" is no role of the job: name one of %s",
        &[&format!("self.successPolicy.roles.filter(n, !{known})[0]"), "self.roles.map(r, r.name)"],
        ".successPolicy",
    )
}

pub(crate) fn failure_rule_roles_exist() -> Rule {
    let known = "self.roles.exists(r, r.name == n)";
    rule(
        format!(
            "!has(self.failurePolicy.rules) || self.failurePolicy.rules.all(f, !has(f.roles) || f.roles.all(n, {known}))"
        ),
        "spec.failurePolicy.rules: a rule names a role the job does not have: name one of %s",
        &["self.roles.map(r, r.name)"],
        ".failurePolicy",
    )
}

fn positive(field: &str) -> Rule {
    rule(
        format!("!has(self.{field}) || duration(self.{field}) > duration('0s')"),
        &format!("spec.{field} is %s: it must be longer than 0s; leave it out for no limit"),
        &[&format!("self.{field}")],
        &format!(".{field}"),
    )
}

pub(crate) fn max_runtime_is_positive() -> Rule {
    positive("maxRuntime")
}

pub(crate) fn expected_runtime_is_positive() -> Rule {
    positive("expectedRuntime")
}

pub(crate) fn expected_within_max_runtime() -> Rule {
    rule(
        "!has(self.expectedRuntime) || !has(self.maxRuntime) || duration(self.expectedRuntime) <= duration(self.maxRuntime)",
        "spec.expectedRuntime is %s: it must be at most spec.maxRuntime, which is %s",
        &["self.expectedRuntime", "self.maxRuntime"],
        ".expectedRuntime",
    )
}

pub(crate) fn template_priority_is_the_jobs() -> Rule {
    let same = "!has(r.template.spec.priorityClassName) || (has(self.priorityClassName) && r.template.spec.priorityClassName == self.priorityClassName)";
    rule(
        format!("self.roles.all(r, {same})"),
        "spec.roles: template.spec.priorityClassName of role \"%s\" differs from spec.priorityClassName: pods have the job's priority; remove it from the template",
        &[&format!("self.roles.filter(r, !({same}))[0].name")],
        ".roles",
    )
}

pub(crate) fn template_grace_is_the_jobs() -> Rule {
    let same = "!has(r.template.spec.terminationGracePeriodSeconds) || r.template.spec.terminationGracePeriodSeconds == duration(self.checkpoint.gracePeriod).getSeconds()";
    rule(
        format!("!has(self.checkpoint) || !has(self.checkpoint.gracePeriod) || self.roles.all(r, {same})"),
        "spec.checkpoint.gracePeriod is %s, but terminationGracePeriodSeconds in the template of role \"%s\" differs: set only one of the two",
        &["self.checkpoint.gracePeriod", &format!("self.roles.filter(r, !({same}))[0].name")],
        ".checkpoint",
    )
}

// Its parts.

pub(crate) fn preferred_differs_from_required() -> Rule {
    rule(
        "!has(self.required) || !has(self.preferred) || self.required != self.preferred",
        "topology.preferred is \"%s\", the same as topology.required: name a narrower level, or leave it out",
        &["self.preferred"],
        ".preferred",
    )
}

pub(crate) fn port_is_valid() -> Rule {
    rule(
        "self.port >= 1 && self.port <= 65535",
        "rendezvous.port is %d: it must be from 1 to 65535",
        &["self.port"],
        ".port",
    )
}

pub(crate) fn checkpoint_interval_is_positive() -> Rule {
    rule(
        "!has(self.every) || duration(self.every) > duration('0s')",
        "checkpoint.every is %s: it must be longer than 0s; leave it out if work is not saved",
        &["self.every"],
        ".every",
    )
}

pub(crate) fn restarts_are_not_negative() -> Rule {
    rule(
        "self.maxRestarts >= 0",
        "failurePolicy.maxRestarts is %d: it must be 0 or more",
        &["self.maxRestarts"],
        ".maxRestarts",
    )
}

pub(crate) fn rule_matches_something() -> Rule {
    rule(
        "has(self.exitCodes) && size(self.exitCodes) > 0 || has(self.roles) && size(self.roles) > 0",
        "failurePolicy.rules: a rule names neither exitCodes nor roles: name at least one, or use onPodFailure for all failures",
        &[],
        "",
    )
}

pub(crate) fn exit_codes_are_failures() -> Rule {
    let failure = "c >= 1 && c <= 255";
    rule(
        format!("!has(self.exitCodes) || self.exitCodes.all(c, {failure})"),
        "failurePolicy.rules: exit code %d is no failure: exit codes are from 1 to 255",
        &[&format!("self.exitCodes.filter(c, !({failure}))[0]")],
        ".exitCodes",
    )
}

// A role.

pub(crate) fn role_runs_a_pod() -> Rule {
    rule(
        "self.replicas >= 1",
        "replicas of role \"%s\" is %d: it must be at least 1; remove the role if it has no pods",
        &["self.name", "self.replicas"],
        ".replicas",
    )
}

pub(crate) fn floor_is_a_pod() -> Rule {
    rule(
        "!has(self.minReplicas) || self.minReplicas >= 1",
        "minReplicas of role \"%s\" is %d: it must be at least 1 and at most replicas, which is %d",
        &["self.name", "self.minReplicas", "self.replicas"],
        ".minReplicas",
    )
}

pub(crate) fn floor_within_replicas() -> Rule {
    rule(
        "!has(self.minReplicas) || self.minReplicas <= self.replicas",
        "minReplicas of role \"%s\" is %d: it must be at most replicas, which is %d",
        &["self.name", "self.minReplicas", "self.replicas"],
        ".minReplicas",
    )
}

fn slice_divides(field: &str) -> Rule {
    rule(
        format!(
            "!has(self.slice) || !has(self.{field}) || (self.slice.size >= 1 && self.{field} % self.slice.size == 0)"
        ),
        &format!("slice.size of role \"%s\" is %d: it must be at least 1 and divide {field}, which is %d"),
        &["self.name", "self.slice.size", &format!("self.{field}")],
        ".slice",
    )
}

pub(crate) fn slice_divides_replicas() -> Rule {
    slice_divides("replicas")
}

pub(crate) fn slice_divides_floor() -> Rule {
    slice_divides("minReplicas")
}

// Its template.

pub(crate) fn template_has_containers() -> Rule {
    rule(
        "has(self.spec) && has(self.spec.containers) && size(self.spec.containers) > 0",
        "template.spec.containers is empty: name at least one container",
        &[],
        "",
    )
}

pub(crate) fn template_restarts_by_itself_only_on_failure() -> Rule {
    rule(
        "!has(self.spec.restartPolicy) || self.spec.restartPolicy in ['Never', 'OnFailure']",
        "template.spec.restartPolicy is %s: it must be Never or OnFailure, for a job ends",
        &["self.spec.restartPolicy"],
        ".spec.restartPolicy",
    )
}

pub(crate) fn template_names_no_node() -> Rule {
    rule(
        "!has(self.spec.nodeName)",
        "template.spec.nodeName is \"%s\": Berth chooses the nodes; remove it, and use nodeSelector or affinity.nodeAffinity to restrict the choice",
        &["self.spec.nodeName"],
        ".spec.nodeName",
    )
}

pub(crate) fn template_names_no_other_scheduler() -> Rule {
    rule(
        "!has(self.spec.schedulerName) || self.spec.schedulerName == 'berth'",
        "template.spec.schedulerName is \"%s\": pods of a TrainingJob are created bound to the nodes Berth chose; remove it",
        &["self.spec.schedulerName"],
        ".spec.schedulerName",
    )
}

/// A list or object that must be absent or say nothing, and what to do instead.
fn without(path: &str, instead: &str) -> Rule {
    rule(
        format!("!has(self.spec.{path}) || size(self.spec.{path}) == 0"),
        &format!("template.spec.{path} is set: {instead}"),
        &[],
        &format!(".spec.{path}"),
    )
}

pub(crate) fn template_has_no_gates() -> Rule {
    without(
        "schedulingGates",
        "a pod that is created bound cannot be gated; remove it, and use suspend: true to hold the job",
    )
}

pub(crate) fn template_has_no_claims() -> Rule {
    without(
        "resourceClaims",
        "claims of dynamic resources are not part of v1alpha1; remove it, and ask for devices in resources.limits",
    )
}

pub(crate) fn template_has_no_spread() -> Rule {
    without(
        "topologySpreadConstraints",
        "nobody looks at it when a pod is created bound; remove it, and use topology.required, topology.preferred or a slice",
    )
}

fn without_affinity(kind: &str, instead: &str) -> Rule {
    rule(
        format!("!has(self.spec.affinity) || !has(self.spec.affinity.{kind})"),
        &format!(
            "template.spec.affinity.{kind} is set: nobody looks at it when a pod is created bound; remove it, and {instead}"
        ),
        &[],
        &format!(".spec.affinity.{kind}"),
    )
}

pub(crate) fn template_has_no_pod_affinity() -> Rule {
    without_affinity("podAffinity", "use topology.required or a slice to keep pods together")
}

pub(crate) fn template_has_no_pod_anti_affinity() -> Rule {
    without_affinity("podAntiAffinity", "request whole nodes to keep pods apart")
}

pub(crate) fn template_leaves_the_host_name() -> Rule {
    rule(
        "!has(self.spec.hostname) && !has(self.spec.subdomain)",
        "template.spec.hostname or subdomain is set: every pod gets job-role-index and the job's Service; remove both",
        &[],
        ".spec",
    )
}

pub(crate) fn template_sets_no_priority_value() -> Rule {
    rule(
        "!has(self.spec.priority)",
        "template.spec.priority is %d: pods have the job's priority; remove it, and set spec.priorityClassName of the job",
        &["self.spec.priority"],
        ".spec.priority",
    )
}

fn metadata_is_not_ours(kind: &str) -> Rule {
    let ours = "k.startsWith('berth.dev/')";
    rule(
        format!("!has(self.metadata) || !has(self.metadata.{kind}) || self.metadata.{kind}.all(k, !{ours})"),
        &format!("template.metadata.{kind} has \"%s\": berth.dev/ is set by Berth alone; remove it"),
        &[&format!("self.metadata.{kind}.filter(k, {ours})[0]")],
        &format!(".metadata.{kind}"),
    )
}

pub(crate) fn template_labels_are_not_ours() -> Rule {
    metadata_is_not_ours("labels")
}

pub(crate) fn template_annotations_are_not_ours() -> Rule {
    metadata_is_not_ours("annotations")
}
