//! `Topology`: how node labels name the levels of the network, and whether those labels can be trusted.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::rules::topology as rules;
use crate::{Duration, Timestamp, schema};

/// The implicit narrowest level of every topology.
pub const NODE_LEVEL: &str = "node";

/// How node labels name the levels of one pool's network.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "berth.dev",
    version = "v1alpha1",
    kind = "Topology",
    plural = "topologies",
    doc = "How node labels name the levels of a pool's network, broadest first.",
    shortname = "btopo",
    category = "berth-all",
    status = "TopologyStatus",
    derive = "PartialEq",
    printcolumn(name = "Levels", type_ = "string", json_path = ".status.path", description = "Levels, broadest first"),
    printcolumn(name = "Nodes", type_ = "integer", json_path = ".status.nodes", description = "Nodes in the pool"),
    printcolumn(
        name = "Unknown",
        type_ = "integer",
        json_path = ".status.unknownNodes",
        description = "Nodes whose place is not known"
    ),
    printcolumn(
        name = "Suspect",
        type_ = "integer",
        json_path = ".status.suspectNodes",
        description = "Nodes whose labels are doubted"
    ),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].status",
        description = "Whether gangs are placed by it"
    ),
    printcolumn(
        name = "Epoch",
        type_ = "integer",
        json_path = ".status.epoch",
        description = "Grows with every change of a node's place"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = schema::without_null)]
#[x_kube(
    validation = rules::has_levels_or_a_preset(),
    validation = rules::levels_or_preset_not_both(),
    validation = rules::level_names_are_unique(),
    validation = rules::no_level_is_named_node(),
    validation = rules::labels_are_unique()
)]
pub struct TopologySpec {
    /// The pool it describes. Absent: every node no other Topology selects.
    #[schemars(schema_with = "schema::label_selector")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nodes: Option<LabelSelector>,
    /// Broadest first; `node` is always the implicit narrowest level.
    #[schemars(length(max = 8))]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub levels: Vec<Level>,
    /// The levels of a vendor's labels, instead of `levels`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preset: Option<Preset>,
    /// When mass changes of labels are doubted instead of followed.
    #[serde(default)]
    pub drift: Drift,
    /// Nodes may still come: a job too large for the pool is accepted with a warning.
    #[serde(default)]
    pub growable: bool,
}

impl TopologySpec {
    /// The levels in force: those given, else the preset's.
    pub fn effective_levels(&self) -> Vec<Level> {
        match self.preset {
            Some(preset) if self.levels.is_empty() => preset.levels(),
            _ => self.levels.clone(),
        }
    }
}

/// One level of the network.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = schema::without_null)]
#[x_kube(validation = rules::bandwidth_is_positive(), validation = rules::nodes_at_most_is_positive())]
pub struct Level {
    /// DNS label, unique in the Topology.
    #[schemars(length(min = 1, max = 63), regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub name: String,
    /// Node labels that name the domain; the first one present on a node counts.
    #[schemars(length(min = 1, max = 8), inner(length(min = 1, max = 317)))]
    pub labels: Vec<String>,
    /// Bandwidth per GPU and direction for traffic that stays inside a domain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gigabytes_per_second: Option<f64>,
    /// The most nodes a domain can have; more mean that its labels are wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_nodes: Option<i32>,
}

/// Vendors whose labels we know by heart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum Preset {
    /// NVIDIA Topograph, both eras of its labels.
    Topograph,
    /// Amazon EKS.
    Aws,
    /// Google GKE.
    Gke,
    /// Oracle OKE.
    Oci,
    /// CoreWeave.
    CoreWeave,
    /// Nebius.
    Nebius,
    /// Crusoe.
    Crusoe,
}

impl Preset {
    /// The levels the vendor's labels name, broadest first.
    pub fn levels(self) -> Vec<Level> {
        match self {
            Self::Topograph => vec![
                level("datacenter", &["fabric.topograph.run/tier-2", "network.topology.nvidia.com/core"]),
                level("block", &["fabric.topograph.run/tier-1", "network.topology.nvidia.com/spine"]),
                level("rack", &["fabric.topograph.run/tier-0", "network.topology.nvidia.com/leaf"]),
                level(
                    "nvlink",
                    &["accelerator.topograph.run/domain", "network.topology.nvidia.com/accelerator", CLIQUE],
                ),
            ],
            Self::Aws => vec![
                level("spine", &["topology.k8s.aws/network-node-layer-1"]),
                level("block", &["topology.k8s.aws/network-node-layer-2"]),
                level("rack", &["topology.k8s.aws/network-node-layer-3"]),
                level("nvlink", &["topology.k8s.aws/ultraserver-id", CLIQUE]),
            ],
            Self::Gke => vec![
                level("block", &["cloud.google.com/gce-topology-block"]),
                level("rack", &["cloud.google.com/gce-topology-subblock"]),
            ],
            Self::Oci => vec![
                level("island", &["oci.oraclecloud.com/rdma.hpc_island_id"]),
                level(
                    "block",
                    &["oci.oraclecloud.com/rdma.network_block_id", "oci.oraclecloud.com/host.network_block_id"],
                ),
                level("rack", &["oci.oraclecloud.com/rdma.local_block_id", "oci.oraclecloud.com/host.rack_id"]),
            ],
            Self::CoreWeave => vec![
                level("fabric", &["ib.coreweave.cloud/fabric", "backend.coreweave.cloud/fabric"]),
                level("rack", &["ib.coreweave.cloud/leafgroup", "backend.coreweave.cloud/leafgroup"]),
                level("nvlink", &["ds.coreweave.com/nvlink.domain", CLIQUE]),
            ],
            Self::Nebius => vec![
                level("fabric", &["topology.nebius.com/gpu-cluster-id"]),
                level("block", &["topology.nebius.com/tier-2"]),
                level("rack", &["topology.nebius.com/tier-1"]),
                level("nvlink", &["topology.nebius.com/nvl-instance-group-id", CLIQUE]),
            ],
            Self::Crusoe => vec![
                level("partition", &["crusoe.ai/ib.partition.id"]),
                level("rack", &["crusoe.ai/pod.id"]),
                level("nvlink", &[CLIQUE]),
            ],
        }
    }
}

/// NVLink clique as the GPU operator publishes it on every vendor's nodes.
const CLIQUE: &str = "nvidia.com/gpu.clique";

fn level(name: &str, labels: &[&str]) -> Level {
    Level { name: name.to_owned(), labels: labels.iter().map(|&l| l.to_owned()).collect(), ..Level::default() }
}

/// When changes of labels are doubted instead of followed.
#[derive(KubeSchema, Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = rules::percent_is_a_percentage(), validation = rules::flaps_not_negative())]
pub struct Drift {
    /// Hold the topology when more than this part of the nodes moves…
    #[serde(default = "twenty")]
    pub hold_above_percent: i32,
    /// …within this time.
    #[serde(default = "one_minute")]
    pub within: Duration,
    /// A node that moves more often than this an hour is suspect.
    #[serde(default = "four")]
    pub flaps_per_hour: i32,
}

impl Default for Drift {
    fn default() -> Self {
        Self { hold_above_percent: twenty(), within: one_minute(), flaps_per_hour: four() }
    }
}

fn twenty() -> i32 {
    20
}

fn one_minute() -> Duration {
    Duration::from_mins(1)
}

fn four() -> i32 {
    4
}

/// What the labels of the pool's nodes say. Written by the controller alone.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = schema::without_null)]
pub struct TopologyStatus {
    /// The generation of the spec this status speaks of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Ready, Drifting, Held.
    #[schemars(schema_with = "schema::conditions")]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// Grows with every change of a node's place.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epoch: Option<i64>,
    /// Level names for a column: "block/rack/node".
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Each level, broadest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub levels: Vec<LevelStatus>,
    /// Nodes in the pool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nodes: Option<i32>,
    /// Nodes whose place is not known: they serve only jobs that ask for no level.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unknown_nodes: Option<i32>,
    /// Nodes whose labels are doubted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suspect_nodes: Option<i32>,
    /// When a node last changed its place.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_change: Option<Timestamp>,
}

/// One level as the nodes show it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LevelStatus {
    /// Name of the level.
    pub name: String,
    /// Domains of it.
    pub domains: i32,
    /// Nodes in the smallest domain.
    pub nodes_min: i32,
    /// Nodes in the largest domain.
    pub nodes_max: i32,
}
