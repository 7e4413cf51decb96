//! Clusters for topology replays, read from files.

pub mod lingjun;
pub mod manifests;

use std::sync::Arc;

/// A node of a cluster file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MappedNode {
    /// Name.
    pub name: Arc<str>,
    /// Names of its domains, broadest level first.
    pub path: Vec<Arc<str>>,
    /// GPUs, if the file says so.
    pub gpus: Option<u64>,
}

/// Nodes and levels, both in the file's order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterMap {
    /// Level names, broadest first.
    pub levels: Vec<Arc<str>>,
    /// Nodes.
    pub nodes: Vec<MappedNode>,
}

/// Reads a cluster file: Lingjun `topo.csv`, or YAML.
///
/// # Errors
/// If the file is unusable.
pub fn read(path: &std::path::Path) -> Result<ClusterMap, crate::trace::TraceError> {
    let source = crate::trace::Source::open(path)?;
    let yaml = path.extension().is_some_and(|e| e == "yaml" || e == "yml");
    if yaml { manifests::read(&source) } else { lingjun::read(&source) }
}

impl ClusterMap {
    /// Only the nodes that lie in a domain of this name, at whatever level; none if there is no such domain.
    #[must_use]
    pub fn subtree(mut self, domain: &str) -> Option<Self> {
        self.nodes.retain(|n| n.path.iter().any(|d| &**d == domain));
        (!self.nodes.is_empty()).then_some(self)
    }
}
