//! What is refused or filled in before it is stored: namespaces on their way out, quotas, and Berth's fencing policy
//! (`config/policy/fence.yaml`).

use super::kinds::Kind;
use super::status::Status;
use super::store::Key;
use super::verbs::{Call, Server, text};
use crds::names::{LEASE, NAMESPACE, annotations, labels};
use serde_json::{Value, json};

/// Which policies are in force.
#[derive(Clone, Debug, Default)]
pub struct Policies {
    /// Whether the fencing policy is installed.
    pub fence: bool,
    /// The epoch that the policy sees, if its view of the Lease lags behind.
    pub lagging_epoch: Option<i64>,
    /// Calls refused by it.
    pub fenced: u64,
}

impl Server {
    /// Whether a namespace takes new objects.
    pub(super) fn namespace_takes(&self, call: &Call, name: &str) -> Result<(), Status> {
        let key = Key { kind: "Namespace", namespace: String::new(), name: call.namespace.clone() };
        let Some(namespace) = self.store.get(&key) else {
            return Err(Status::new(404, "NotFound", format!("namespaces \"{}\" not found", call.namespace)));
        };
        if text(namespace, "/metadata/deletionTimestamp").is_empty() {
            return Ok(());
        }
        let why =
            format!("unable to create new content in namespace {} because it is being terminated", call.namespace);
        Err(Status::forbidden(call.kind, name, &why))
    }

    /// What the server writes into a new object by itself.
    pub(super) fn fill_in(&self, kind: &Kind, object: &mut Value) {
        match kind.kind {
            "Pod" => {
                object["status"] = json!({"phase": "Pending", "qosClass": "BestEffort"});
                self.add_sidecar(object);
            }
            "Namespace" => {
                object["spec"] = json!({"finalizers": ["kubernetes"]});
                object["status"] = json!({"phase": "Active"});
            }
            _ => {}
        }
    }

    /// What an injecting webhook does: each pod of a namespace gets a container that asks for so many GPUs.
    fn add_sidecar(&self, pod: &mut Value) {
        let name = text(pod, "/metadata/namespace").to_owned();
        let namespace = self.store.get(&Key { kind: "Namespace", namespace: String::new(), name });
        let gpus = namespace.map_or("", |n| text(n, "/metadata/annotations/sidecar.test~1gpus")).to_owned();
        if let (false, Some(containers)) = (gpus.is_empty(), pod["spec"]["containers"].as_array_mut()) {
            let resources = json!({"requests": {"nvidia.com/gpu": gpus}, "limits": {"nvidia.com/gpu": gpus}});
            containers.push(json!({"name": "sidecar", "image": "sidecar", "resources": resources}));
        }
    }

    /// What a namespace's security level refuses.
    fn is_secure(&self, call: &Call, pod: &Value) -> Result<(), Status> {
        let key = Key { kind: "Namespace", namespace: String::new(), name: call.namespace.clone() };
        let level =
            self.store.get(&key).map_or("", |n| text(n, "/metadata/labels/pod-security.kubernetes.io~1enforce"));
        if level != "restricted" {
            return Ok(());
        }
        let why = "violates PodSecurity \"restricted:latest\": allowPrivilegeEscalation != false";
        Err(Status::forbidden(call.kind, text(pod, "/metadata/name"), why))
    }

    /// Policies and quotas.
    pub(super) fn admit(&mut self, call: &Call, object: &Value, is_new: bool) -> Result<(), Status> {
        let ours = text(object, "/metadata/labels/berth.dev~1berth");
        let fenced = match call.kind.kind {
            "Pod" => is_new && !ours.is_empty(),
            "Berth" => true,
            _ => false,
        };
        if self.policies.fence && fenced && call.is_ours() {
            self.fence(call, object)?;
        }
        if is_new && call.kind.kind == "Pod" {
            if call.is_ours() {
                self.is_secure(call, object)?;
            }
            self.within_quota(call, object)?;
        }
        Ok(())
    }

    fn fence(&mut self, call: &Call, object: &Value) -> Result<(), Status> {
        let lease = Key { kind: "Lease", namespace: NAMESPACE.to_owned(), name: LEASE.to_owned() };
        let current = self.store.get(&lease).and_then(|l| l["spec"]["leaseTransitions"].as_i64());
        let Some(epoch) = self.policies.lagging_epoch.or(current) else {
            return Err(Status::forbidden(
                call.kind,
                &call.name,
                "no params found for policy binding with `Deny` parameterNotFoundAction",
            ));
        };
        let notes = &object["metadata"]["annotations"];
        let written = notes.get(annotations::LEADER_EPOCH).and_then(Value::as_str);
        if written == Some(epoch.to_string().as_str()) {
            return Ok(());
        }
        self.policies.fenced += 1;
        let why = format!(
            "ValidatingAdmissionPolicy 'berth-fence' denied request: StaleLeader: metadata.annotations[{}] is {}, but the \
             leader epoch is {epoch}: another leader writes now",
            annotations::LEADER_EPOCH,
            written.unwrap_or("missing"),
        );
        Err(Status::forbidden(call.kind, text(object, "/metadata/name"), &why))
    }

    // --- quotas: only the number of pods is counted ---

    fn within_quota(&self, call: &Call, pod: &Value) -> Result<(), Status> {
        for (key, quota) in self.store.list("ResourceQuota", &call.namespace) {
            let hard = number(&quota["spec"]["hard"]["pods"]);
            let used = number(&quota["status"]["used"]["pods"]).unwrap_or(0);
            if let Some(hard) = hard.filter(|hard| used + 1 > *hard) {
                let why =
                    format!("exceeded quota: {}, requested: pods=1, used: pods={used}, limited: pods={hard}", key.name);
                return Err(Status::forbidden(call.kind, text(pod, "/metadata/name"), &why));
            }
        }
        Ok(())
    }

    pub(super) fn charge(&mut self, kind: &Kind, object: &Value) {
        if kind.kind == "Pod" {
            self.count_pods(text(object, "/metadata/namespace").to_owned().as_str(), 1);
        }
    }

    pub(super) fn refund(&mut self, kind: &Kind, object: &Value) {
        let over = matches!(text(object, "/status/phase"), "Succeeded" | "Failed");
        if kind.kind == "Pod" && !over {
            self.count_pods(text(object, "/metadata/namespace"), -1);
        }
    }

    /// Changes how many pods the quotas of a namespace count.
    pub fn count_pods(&mut self, namespace: &str, by: i64) {
        let quotas: Vec<(Key, Value)> =
            self.store.list("ResourceQuota", namespace).map(|(k, v)| (k.clone(), (**v).clone())).collect();
        for (key, mut quota) in quotas {
            let used = number(&quota["status"]["used"]["pods"]).unwrap_or(0) + by;
            quota["status"]["hard"] = quota["spec"]["hard"].clone();
            quota["status"]["used"]["pods"] = json!(used.max(0).to_string());
            self.store.put(key, quota);
        }
    }

    /// Whether a pod is one of ours.
    #[must_use]
    pub fn is_our_pod(pod: &Value) -> bool {
        pod["metadata"]["labels"].get(labels::BERTH).is_some()
    }
}

fn number(value: &Value) -> Option<i64> {
    value.as_i64().or_else(|| value.as_str()?.parse().ok())
}
