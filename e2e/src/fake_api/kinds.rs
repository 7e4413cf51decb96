//! The kinds that the product reads or writes, and what differs among them.

/// A kind of object.
#[derive(Debug, PartialEq, Eq)]
pub struct Kind {
    /// API group; empty for core.
    pub group: &'static str,
    /// Version.
    pub version: &'static str,
    /// Name in the singular, as in manifests.
    pub kind: &'static str,
    /// Name in paths.
    pub plural: &'static str,
    /// Whether its objects live in namespaces.
    pub namespaced: bool,
    /// Whether status is written by a subresource alone.
    pub status: bool,
    /// Whether `generation` counts changes of the spec.
    pub generation: bool,
    /// Whether it is one of ours: a custom resource, which may not be replaced without a version.
    pub custom: bool,
}

const fn core(kind: &'static str, plural: &'static str, namespaced: bool, status: bool) -> Kind {
    Kind { group: "", version: "v1", kind, plural, namespaced, status, generation: false, custom: false }
}

const fn of(group: &'static str, kind: &'static str, plural: &'static str, namespaced: bool, status: bool) -> Kind {
    Kind { group, version: "v1", kind, plural, namespaced, status, generation: false, custom: false }
}

const fn ours(kind: &'static str, plural: &'static str, namespaced: bool) -> Kind {
    Kind {
        group: "berth.dev",
        version: "v1alpha1",
        kind,
        plural,
        namespaced,
        status: true,
        generation: true,
        custom: true,
    }
}

/// All of them.
pub static KINDS: [Kind; 22] = [
    core("Node", "nodes", false, true),
    Kind { generation: true, ..core("Pod", "pods", true, true) },
    core("Service", "services", true, true),
    core("ConfigMap", "configmaps", true, false),
    core("Secret", "secrets", true, false),
    core("Namespace", "namespaces", false, true),
    core("LimitRange", "limitranges", true, false),
    core("ResourceQuota", "resourcequotas", true, true),
    core("PersistentVolume", "persistentvolumes", false, true),
    core("PersistentVolumeClaim", "persistentvolumeclaims", true, true),
    Kind { generation: true, ..of("scheduling.k8s.io", "PriorityClass", "priorityclasses", false, false) },
    of("node.k8s.io", "RuntimeClass", "runtimeclasses", false, false),
    Kind { generation: true, ..of("policy", "PodDisruptionBudget", "poddisruptionbudgets", true, true) },
    Kind { generation: true, ..of("apps", "DaemonSet", "daemonsets", true, true) },
    of("storage.k8s.io", "StorageClass", "storageclasses", false, false),
    of("storage.k8s.io", "CSINode", "csinodes", false, false),
    of("coordination.k8s.io", "Lease", "leases", true, false),
    of("events.k8s.io", "Event", "events", true, false),
    ours("TrainingJob", "trainingjobs", true),
    ours("Queue", "queues", false),
    ours("Topology", "topologies", false),
    ours("Berth", "berths", true),
];

impl Kind {
    /// The kind of a path.
    #[must_use]
    pub fn of_path(group: &str, version: &str, plural: &str) -> Option<&'static Self> {
        KINDS.iter().find(|k| k.group == group && k.version == version && k.plural == plural)
    }

    /// The kind of a name.
    #[must_use]
    pub fn named(kind: &str) -> Option<&'static Self> {
        KINDS.iter().find(|k| k.kind == kind)
    }

    /// As in manifests.
    #[must_use]
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.to_owned() } else { format!("{}/{}", self.group, self.version) }
    }

    /// As in messages: `pods`, `berths.berth.dev`.
    #[must_use]
    pub fn resource(&self) -> String {
        if self.group.is_empty() { self.plural.to_owned() } else { format!("{}.{}", self.plural, self.group) }
    }
}
