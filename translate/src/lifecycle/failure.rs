//! Why a pod ended, whose fault it was, and what follows.
//!
//! Only failures of the user's own code count. A pod that a node, an eviction, a kubelet or somebody else ended is an
//! infrastructure loss, which is replaced without being counted.

use crate::ports::is_sidecar;
use crds::v1alpha1::{FailureAction, FailurePolicy, RuleAction};
use k8s_openapi::api::core::v1::{ContainerStateTerminated, ContainerStatus, Pod};

/// Reason of a pod that restarted in place more often than its job may.
pub const TOO_MANY_RESTARTS: &str = "TooManyRestarts";

/// How a pod stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It has not ended.
    Alive,
    /// All its containers ended well.
    Succeeded,
    /// The user's code failed.
    User(Failure),
    /// Something else ended it.
    Infrastructure(Failure),
    /// The kubelet would not take it: nothing of it ever ran.
    Refused(Failure),
}

/// What is known of a failure, as `status.lastFailure` shows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Failure {
    /// Exit code of the first container that failed.
    pub exit_code: Option<i32>,
    /// Reason as the kubelet gave it.
    pub reason: String,
    /// The same in words.
    pub message: String,
}

/// What is done about a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// The job has failed.
    Fail,
    /// All pods are stopped and the gang starts again.
    RestartGang,
    /// The pod is replaced in the same incarnation.
    ReplacePod,
    /// The pod is replaced and nothing is counted.
    Ignore,
}

/// An action, and whether it counts against `maxRestarts`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// What is done.
    pub action: Action,
    /// Whether the failure counts.
    pub counted: bool,
    /// The job fails because it used up its restarts, not because somebody said so.
    pub exhausted: bool,
}

/// How a pod stands, by itself. What we deleted ourselves is not asked: the caller knows what it stops.
#[must_use]
pub fn classify(pod: &Pod, policy: &FailurePolicy) -> Outcome {
    let status = pod.status.as_ref();
    match status.and_then(|s| s.phase.as_deref()) {
        Some("Succeeded") => Outcome::Succeeded,
        Some("Failed") => of_failed(pod),
        _ => match restarted_too_often(pod, policy.max_restarts) {
            Some(failure) => Outcome::User(failure),
            None => Outcome::Alive,
        },
    }
}

fn of_failed(pod: &Pod) -> Outcome {
    let status = pod.status.as_ref();
    let reason = status.and_then(|s| s.reason.clone()).unwrap_or_default();
    let message = status.and_then(|s| s.message.clone()).unwrap_or_default();
    let ended = first_failed(pod);
    if let Some(why) = disruption(pod) {
        return Outcome::Infrastructure(Failure { exit_code: exit_code(ended), reason: why.0, message: why.1 });
    }
    if is_refusal(&reason) || (ended.is_none() && !anything_ran(pod)) {
        return Outcome::Refused(Failure { exit_code: None, reason, message });
    }
    if is_node_s_doing(&reason) || pod.metadata.deletion_timestamp.is_some() {
        let reason = if reason.is_empty() { "Deleted".to_owned() } else { reason };
        return Outcome::Infrastructure(Failure { exit_code: exit_code(ended), reason, message });
    }
    let of_container = |text: Option<String>, pods: String| text.filter(|t| !t.is_empty()).unwrap_or(pods);
    Outcome::User(Failure {
        exit_code: exit_code(ended),
        reason: of_container(ended.and_then(|e| e.reason.clone()), reason),
        message: of_container(ended.and_then(|e| e.message.clone()), message),
    })
}

/// Reason and message of the condition by which Kubernetes says that a pod was ended from outside.
fn disruption(pod: &Pod) -> Option<(String, String)> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    let target = conditions.iter().find(|c| c.type_ == "DisruptionTarget" && c.status == "True")?;
    let reason = target.reason.clone().filter(|r| !r.is_empty()).unwrap_or_else(|| "DisruptionTarget".to_owned());
    Some((reason, target.message.clone().unwrap_or_default()))
}

/// Reasons with which a kubelet refuses a pod before anything of it runs.
fn is_refusal(reason: &str) -> bool {
    reason.starts_with("OutOf")
        || matches!(
            reason,
            "UnexpectedAdmissionError"
                | "TopologyAffinityError"
                | "NodeAffinity"
                | "NodePorts"
                | "NodeName"
                | "NodeUnschedulable"
                | "NodeNotReady"
                | "TaintToleration"
                | "InsufficientResourceError"
                | "AppArmor"
                | "SysctlForbidden"
                | "PodOSNotSupported"
                | "PodOSSelectorNodeLabelDoesNotMatch"
                | "PodFeatureUnsupported"
                | "InvalidNodeInfo"
        )
}

/// Reasons with which nodes and their controllers end pods.
fn is_node_s_doing(reason: &str) -> bool {
    matches!(reason, "NodeLost" | "NodeShutdown" | "Shutdown" | "Terminated" | "Evicted" | "Preempting" | "Preempted")
}

fn statuses(pod: &Pod) -> impl Iterator<Item = &ContainerStatus> {
    let status = pod.status.as_ref();
    let lists = status.map(|s| [s.init_container_statuses.as_ref(), s.container_statuses.as_ref()]);
    lists.into_iter().flatten().flatten().flatten()
}

/// Statuses of containers that decide: sidecars do not.
fn deciding(pod: &Pod) -> impl Iterator<Item = &ContainerStatus> {
    let spec = pod.spec.as_ref();
    let sidecars: Vec<&str> = spec
        .into_iter()
        .flat_map(|s| s.init_containers.iter().flatten())
        .filter(|c| is_sidecar(c))
        .map(|c| c.name.as_str())
        .collect();
    statuses(pod).filter(move |s| !sidecars.contains(&s.name.as_str()))
}

/// The end of the container that failed first; the one listed first where they failed together.
fn first_failed(pod: &Pod) -> Option<&ContainerStateTerminated> {
    deciding(pod)
        .filter_map(|s| s.state.as_ref()?.terminated.as_ref())
        .filter(|end| end.exit_code != 0)
        .min_by_key(|end| end.finished_at.as_ref().map(|at| at.0))
}

fn exit_code(ended: Option<&ContainerStateTerminated>) -> Option<i32> {
    ended.map(|end| end.exit_code)
}

fn anything_ran(pod: &Pod) -> bool {
    statuses(pod).any(|s| s.state.as_ref().is_some_and(|state| state.running.is_some() || state.terminated.is_some()))
}

/// Restarts that the kubelet made in place, sidecars aside.
#[must_use]
pub fn restarts_in_place(pod: &Pod) -> i32 {
    deciding(pod).map(|s| s.restart_count).sum()
}

fn restarted_too_often(pod: &Pod, most: i32) -> Option<Failure> {
    let restarts = restarts_in_place(pod);
    if restarts <= most.max(0) {
        return None;
    }
    let last = deciding(pod).filter_map(|s| s.last_state.as_ref()?.terminated.as_ref()).find(|end| end.exit_code != 0);
    Some(Failure {
        exit_code: exit_code(last),
        reason: TOO_MANY_RESTARTS.to_owned(),
        message: format!("restarted {restarts} times in place, more than failurePolicy.maxRestarts of {most}"),
    })
}

/// What follows a failure of the user's own code in a pod of `role`, after `restarts` counted failures before it.
#[must_use]
pub fn decide(policy: &FailurePolicy, role: &str, exit_code: Option<i32>, restarts: i32) -> Decision {
    let matching = policy.rules.iter().find(|rule| {
        let code = rule.exit_codes.is_empty() || exit_code.is_some_and(|code| rule.exit_codes.contains(&code));
        code && (rule.roles.is_empty() || rule.roles.iter().any(|r| r == role))
    });
    let action = match matching.map(|rule| rule.action) {
        Some(RuleAction::Fail) => Action::Fail,
        Some(RuleAction::RestartGang) => Action::RestartGang,
        Some(RuleAction::ReplacePod) => Action::ReplacePod,
        Some(RuleAction::Ignore) => return Decision { action: Action::Ignore, counted: false, exhausted: false },
        None => default_action(policy),
    };
    let exhausted = action != Action::Fail && restarts >= policy.max_restarts;
    Decision { action: if exhausted { Action::Fail } else { action }, counted: true, exhausted }
}

fn default_action(policy: &FailurePolicy) -> Action {
    match policy.on_pod_failure {
        FailureAction::RestartGang => Action::RestartGang,
        FailureAction::ReplacePod => Action::ReplacePod,
        FailureAction::Fail => Action::Fail,
    }
}

/// What follows the loss of a pod that was nobody's fault: it is replaced alone where the job wants that, else the gang
/// restarts. `onPodFailure: Fail` speaks of the user's code only.
#[must_use]
pub fn after_loss(policy: &FailurePolicy) -> Action {
    match policy.on_pod_failure {
        FailureAction::ReplacePod => Action::ReplacePod,
        _ => Action::RestartGang,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn mk_pod(status: Value) -> Pod {
        serde_json::from_value(json!({
            "spec": {
                "containers": [{"name": "main"}, {"name": "helper"}],
                "initContainers": [{"name": "side", "restartPolicy": "Always"}, {"name": "init"}],
            },
            "status": status,
        }))
        .expect("a pod")
    }

    fn ended(name: &str, code: i32, second: u32) -> Value {
        json!({"name": name, "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": {"terminated": {
            "exitCode": code, "reason": "Error", "finishedAt": format!("1970-01-01T00:00:{second:02}Z")}}})
    }

    fn outcome(status: Value) -> Outcome {
        classify(&mk_pod(status), &FailurePolicy::default())
    }

    fn exit_of(outcome: Outcome) -> Option<i32> {
        match outcome {
            Outcome::User(failure) => failure.exit_code,
            other => panic!("not the user's: {other:?}"),
        }
    }

    #[test]
    fn the_container_that_failed_first_decides_and_sidecars_do_not() {
        let status = json!({"phase": "Failed",
            "containerStatuses": [ended("main", 137, 9), ended("helper", 42, 5)],
            "initContainerStatuses": [ended("side", 1, 1), ended("init", 0, 2)]});
        assert_eq!(exit_of(outcome(status)), Some(42));
        let init = json!({"phase": "Failed", "initContainerStatuses": [ended("init", 3, 2)]});
        assert_eq!(exit_of(outcome(init)), Some(3));
    }

    #[test]
    fn out_of_memory_is_the_user_s() {
        let mut main = ended("main", 137, 9);
        main["state"]["terminated"]["reason"] = json!("OOMKilled");
        let Outcome::User(failure) = outcome(json!({"phase": "Failed", "containerStatuses": [main]})) else {
            panic!("it is the user's")
        };
        assert_eq!((failure.exit_code, failure.reason.as_str()), (Some(137), "OOMKilled"));
    }

    #[test]
    fn a_disruption_is_nobody_s_fault_whatever_the_exit_code() {
        let status = json!({"phase": "Failed", "containerStatuses": [ended("main", 143, 9)], "conditions": [
            {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}]});
        let Outcome::Infrastructure(failure) = outcome(status) else { panic!("it was evicted") };
        assert_eq!((failure.exit_code, failure.reason.as_str()), (Some(143), "EvictionByEvictionAPI"));
        let shutdown = json!({"phase": "Failed", "reason": "Terminated", "containerStatuses": [ended("main", 143, 9)]});
        assert!(matches!(outcome(shutdown), Outcome::Infrastructure(_)));
    }

    #[test]
    fn a_kubelet_s_refusal_is_told_apart() {
        for reason in [
            "OutOfcpu",
            "OutOfnvidia.com/gpu",
            "UnexpectedAdmissionError",
            "TopologyAffinityError",
            "NodeAffinity",
            "Novel",
        ] {
            let refused = outcome(json!({"phase": "Failed", "reason": reason}));
            assert!(matches!(&refused, Outcome::Refused(f) if f.reason == reason), "{refused:?}");
        }
    }

    #[test]
    fn a_pod_that_somebody_deleted_is_a_loss() {
        let mut pod = mk_pod(json!({"phase": "Failed", "containerStatuses": [ended("main", 137, 9)]}));
        pod.metadata.deletion_timestamp = serde_json::from_value(json!("1970-01-01T00:00:09Z")).expect("a time");
        assert!(
            matches!(classify(&pod, &FailurePolicy::default()), Outcome::Infrastructure(f) if f.reason == "Deleted")
        );
    }

    #[test]
    fn restarts_in_place_are_the_kubelet_s_until_there_are_too_many() {
        let running = |count: i32| {
            json!({"phase": "Running", "containerStatuses": [{"name": "main", "image": "", "imageID": "",
            "ready": true, "restartCount": count, "lastState": {"terminated": {"exitCode": 7}}}]})
        };
        assert_eq!(outcome(running(3)), Outcome::Alive);
        assert_eq!(exit_of(outcome(running(4))), Some(7));
    }

    fn mk_policy(value: Value) -> FailurePolicy {
        serde_json::from_value(value).expect("a policy")
    }

    #[test]
    fn the_first_matching_rule_wins_else_the_default() {
        let policy = mk_policy(json!({"maxRestarts": 2, "onPodFailure": "ReplacePod", "rules": [
            {"exitCodes": [42], "roles": ["launcher"], "action": "Ignore"},
            {"exitCodes": [42, 43], "action": "Fail"},
            {"roles": ["launcher"], "action": "RestartGang"}]}));
        for (role, code, want) in [
            ("launcher", Some(42), Action::Ignore),
            ("worker", Some(42), Action::Fail),
            ("launcher", Some(1), Action::RestartGang),
            ("launcher", None, Action::RestartGang),
            ("worker", Some(1), Action::ReplacePod),
            ("worker", None, Action::ReplacePod),
        ] {
            assert_eq!(decide(&policy, role, code, 0).action, want, "{role} {code:?}");
        }
    }

    #[test]
    fn restarts_are_used_up_by_counted_failures_only() {
        let policy = mk_policy(json!({"maxRestarts": 2, "rules": [{"exitCodes": [9], "action": "Ignore"}]}));
        let of = |code, restarts| decide(&policy, "worker", Some(code), restarts);
        assert_eq!(of(1, 1), Decision { action: Action::RestartGang, counted: true, exhausted: false });
        assert_eq!(of(1, 2), Decision { action: Action::Fail, counted: true, exhausted: true });
        assert_eq!(of(9, 2), Decision { action: Action::Ignore, counted: false, exhausted: false });
    }

    #[test]
    fn a_lost_node_never_fails_a_job() {
        assert_eq!(after_loss(&mk_policy(json!({"onPodFailure": "Fail"}))), Action::RestartGang);
        assert_eq!(after_loss(&mk_policy(json!({"onPodFailure": "ReplacePod"}))), Action::ReplacePod);
    }
}
