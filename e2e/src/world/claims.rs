//! Volumes as a cluster makes them: claims for single pods, a volume for each claim whose class makes any, where the
//! chosen node is. A volume of a class with parameter `reach: rack` is usable in the rack of that node alone.

use super::objects::node_key;
use crate::fake_api::verbs::text;
use crate::fake_api::{FakeApi, Key, Verb};
use serde_json::{Value, json};

/// Who makes them.
const PROVISIONER: &str = "provisioner";

fn claim_key(namespace: &str, name: &str) -> Key {
    Key { kind: "PersistentVolumeClaim", namespace: namespace.to_owned(), name: name.to_owned() }
}

/// Volumes of a pod that are made for it alone: name and template.
pub(super) fn templates(pod: &Value) -> impl Iterator<Item = (&str, &Value)> {
    let volumes = pod["spec"]["volumes"].as_array();
    let all = volumes.into_iter().flatten().map(|v| (text(v, "/name"), &v["ephemeral"]["volumeClaimTemplate"]));
    all.filter(|(_, template)| template.is_object())
}

/// Makes a pod's own claims.
pub(super) fn make(api: &FakeApi, key: &Key, pod: &Value) {
    let owner = json!([{"apiVersion": "v1", "kind": "Pod", "name": key.name, "uid": pod["metadata"]["uid"], "controller": true}]);
    for (volume, template) in templates(pod) {
        let name = format!("{}-{volume}", key.name);
        let claim = json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim", "spec": template["spec"],
            "metadata": {"name": name, "namespace": key.namespace, "ownerReferences": owner},
        });
        api.shared().with(|server, now| {
            let _ =
                server.by("ephemeral-controller", Verb::Create, &claim_key(&key.namespace, &name), None, claim, now);
        });
    }
}

/// Whether all claims of a pod have their volume.
pub(super) fn are_bound(api: &FakeApi, key: &Key, pod: &Value) -> bool {
    let volumes = pod["spec"]["volumes"].as_array();
    let shared = volumes.into_iter().flatten().map(|v| text(v, "/persistentVolumeClaim/claimName").to_owned());
    let own = templates(pod).map(|(volume, _)| format!("{}-{volume}", key.name));
    let server = api.shared().lock();
    shared.filter(|name| !name.is_empty()).chain(own).all(|name| {
        let claim = server.store.get(&claim_key(&key.namespace, &name));
        claim.is_some_and(|c| text(c, "/status/phase") == "Bound")
    })
}

/// Makes the volume of a claim whose turn has come, and binds the two; what was done, in words.
pub(super) fn provision(api: &FakeApi, key: &Key, uid: &str) -> Option<String> {
    let (claim, class, rack) = {
        let server = api.shared().lock();
        let claim = server.store.get(key).filter(|c| text(c, "/metadata/uid") == uid)?.clone();
        let name = text(&claim, "/spec/storageClassName").to_owned();
        let class = server.store.get(&Key { kind: "StorageClass", namespace: String::new(), name })?.clone();
        let node = claim["metadata"]["annotations"]["volume.kubernetes.io/selected-node"].as_str();
        let rack =
            node.and_then(|n| server.store.get(&node_key(n))).map(|n| n["metadata"]["labels"]["net/rack"].clone());
        (claim, class, rack)
    };
    let waits = text(&class, "/volumeBindingMode") == "WaitForFirstConsumer" && rack.is_none();
    let by_hand = text(&class, "/provisioner") == "kubernetes.io/no-provisioner";
    if waits || by_hand || !text(&claim, "/spec/volumeName").is_empty() {
        return None;
    }
    let name = format!("pv-{uid}");
    let mut volume = json!({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name},
        "spec": {
            "claimRef": {"namespace": key.namespace, "name": key.name, "uid": uid},
            "csi": {"driver": class["provisioner"], "volumeHandle": uid},
        },
    });
    if text(&class, "/parameters/reach") == "rack" && rack.is_some() {
        let only = json!({"key": "net/rack", "operator": "In", "values": [rack]});
        volume["spec"]["nodeAffinity"] = json!({"required": {"nodeSelectorTerms": [{"matchExpressions": [only]}]}});
    }
    let at = Key { kind: "PersistentVolume", namespace: String::new(), name: name.clone() };
    api.shared().with(|server, now| {
        let _ = server.by(PROVISIONER, Verb::Create, &at, None, volume, now);
        let _ = server.by(PROVISIONER, Verb::Patch, key, None, json!({"spec": {"volumeName": name}}), now);
        let _ = server.by(PROVISIONER, Verb::Patch, key, Some("status"), json!({"status": {"phase": "Bound"}}), now);
    });
    Some(format!("{key} has a volume"))
}
