//! What `config/` installs fits the constants of the code, gives no right away, and its samples pass the CRDs' own rules.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)] // the lints are for code outside tests

use std::{collections::BTreeMap, fs, path::PathBuf};

use crds::{Queue, Topology, TrainingJob, cel::Rules, names};
use kube::CustomResourceExt;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

/// Every object below config/FOLDER, by file.
fn objects(folder: &str) -> Vec<(String, Value)> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../config").join(folder);
    let mut files: Vec<_> = fs::read_dir(&folder).expect("a folder").map(|e| e.expect("an entry").path()).collect();
    files.sort();
    files.retain(|path| path.file_name().is_some_and(|name| name != "kustomization.yaml"));
    let read = |path: PathBuf| {
        let text = fs::read_to_string(&path).expect("a readable file");
        let documents: Vec<Value> = serde_saphyr::from_multiple(&text).expect("YAML");
        documents.into_iter().map(move |object| (path.display().to_string(), object))
    };
    files.into_iter().flat_map(read).collect()
}

fn of_kind(folder: &str, kind: &str) -> Vec<Value> {
    objects(folder).into_iter().map(|(_, object)| object).filter(|object| object["kind"] == kind).collect()
}

fn texts(value: &Value) -> Vec<&str> {
    value.as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

#[test]
fn no_role_has_a_wildcard_and_secrets_are_never_listed() {
    let mut rules = 0;
    for role in of_kind("rbac", "ClusterRole").into_iter().chain(of_kind("rbac", "Role")) {
        for rule in role["rules"].as_array().expect("rules") {
            rules += 1;
            let all = ["apiGroups", "resources", "verbs"].map(|field| texts(&rule[field])).concat();
            assert!(!all.contains(&"*"), "{rule}");
            let (resources, verbs) = (texts(&rule["resources"]), texts(&rule["verbs"]));
            assert!(
                !resources.contains(&"secrets") || !(verbs.contains(&"list") || verbs.contains(&"watch")),
                "{rule}"
            );
            assert!(!resources.contains(&"pods") || !verbs.contains(&"update"), "our pods are never updated: {rule}");
        }
    }
    assert!(rules > 20, "only {rules} rules were read");
}

#[test]
fn manifests_and_code_use_the_same_names() {
    let accounts: Vec<_> = of_kind("rbac", "ServiceAccount").iter().map(|a| a["metadata"]["name"].clone()).collect();
    assert_eq!(accounts, [names::CONTROLLER_ACCOUNT, names::WEBHOOK_ACCOUNT]);
    assert_eq!(of_kind("manager", "Namespace")[0]["metadata"]["name"], names::NAMESPACE);
    assert_eq!(of_kind("webhook", "Service")[0]["metadata"]["name"], names::WEBHOOK_SERVICE);
    for kind in ["ValidatingWebhookConfiguration", "MutatingWebhookConfiguration"] {
        let configuration = &of_kind("webhook", kind)[0];
        assert_eq!(configuration["metadata"]["name"], names::WEBHOOK_CONFIGURATION);
        let service = &configuration["webhooks"][0]["clientConfig"]["service"];
        assert_eq!(
            (&service["name"], &service["namespace"]),
            (&names::WEBHOOK_SERVICE.into(), &names::NAMESPACE.into())
        );
    }
    let named = |role: &str, resource: &str| {
        let roles = of_kind("rbac", "Role").into_iter().chain(of_kind("rbac", "ClusterRole"));
        let rules: Vec<_> = roles
            .filter(|r| r["metadata"]["name"] == role)
            .flat_map(|r| r["rules"].as_array().cloned())
            .flatten()
            .collect();
        let rule =
            rules.iter().find(|r| texts(&r["resources"]).contains(&resource) && r.get("resourceNames").is_some());
        rule.map(|r| r["resourceNames"][0].clone()).expect("a rule with a name")
    };
    assert_eq!(named("berth-controller", "leases"), names::LEASE);
    assert_eq!(named("berth-webhook", "secrets"), names::WEBHOOK_SECRET);
    assert_eq!(named("berth-webhook", "validatingwebhookconfigurations"), names::WEBHOOK_CONFIGURATION);
    assert_eq!(of_kind("starter", "Queue")[0]["metadata"]["name"], names::DEFAULT_QUEUE);
}

#[test]
fn policies_name_the_controller_its_lease_and_its_labels() {
    let mut seen = BTreeMap::new();
    for object in of_kind("policy", "ValidatingAdmissionPolicy") {
        let text = object.to_string();
        seen.insert(object["metadata"]["name"].as_str().expect("a name").to_owned(), text);
    }
    assert_eq!(
        seen.keys().collect::<Vec<_>>(),
        ["berth-fence-berths", "berth-fence-pods", "berth-guard-berths", "berth-guard-pods", "berth-guard-user"]
    );
    for (name, text) in &seen {
        assert!(name == "berth-guard-user" || text.contains(names::CONTROLLER_USER), "{name}");
        assert!(!name.contains("fence") || text.contains(names::annotations::LEADER_EPOCH), "{name}");
        assert!(!name.contains("pods") || text.contains(names::labels::BERTH), "{name}");
    }
    assert!(seen["berth-guard-berths"].contains(names::finalizers::BERTH));
    assert!(seen["berth-guard-user"].contains(names::annotations::USER));
    for binding in
        of_kind("policy", "ValidatingAdmissionPolicyBinding").iter().filter(|b| b["spec"].get("paramRef").is_some())
    {
        let lease = &binding["spec"]["paramRef"];
        assert_eq!((&lease["name"], &lease["namespace"]), (&names::LEASE.into(), &names::NAMESPACE.into()));
    }
}

#[test]
fn our_own_pods_run_with_the_least_they_need() {
    let deployments = of_kind("manager", "Deployment");
    assert_eq!(deployments.len(), 2);
    for deployment in deployments {
        let pod = &deployment["spec"]["template"]["spec"];
        assert_eq!(deployment["spec"]["replicas"], 2);
        assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
        assert_eq!(pod["securityContext"]["seccompProfile"]["type"], "RuntimeDefault");
        for field in ["hostNetwork", "hostPID", "hostIPC", "volumes"] {
            assert!(pod.get(field).is_none(), "{field}");
        }
        let container = &pod["containers"][0];
        assert_eq!(container["securityContext"]["readOnlyRootFilesystem"], true);
        assert_eq!(container["securityContext"]["allowPrivilegeEscalation"], false);
        assert_eq!(container["securityContext"]["capabilities"]["drop"][0], "ALL");
        assert!(container["resources"]["limits"]["memory"].is_string());
        assert!(container.get("livenessProbe").is_some() && container.get("readinessProbe").is_some());
    }
}

fn pass<K: CustomResourceExt + Serialize + DeserializeOwned>(objects: &[Value]) -> usize {
    let rules = Rules::of::<K>();
    for object in objects {
        let typed: K = serde_json::from_value(object.clone()).expect("the types read it");
        assert_eq!(rules.broken(&typed, None), [], "{object}");
    }
    objects.len()
}

#[test]
fn samples_and_starters_pass_the_rules_of_their_kinds() {
    let both = |kind| [of_kind("samples", kind), of_kind("starter", kind)].concat();
    assert_eq!(pass::<TrainingJob>(&both("TrainingJob")), 8);
    assert_eq!(pass::<Queue>(&both("Queue")), 4);
    assert_eq!(pass::<Topology>(&both("Topology")), 2);
}
