//! The immutable topology: one tree a pool, domains known by their whole path, nodes of a domain in one range.
//!
//! Depth counts from the top: 0 is the pool's root, 1 its broadest level, `levels.len()` the narrowest level, and
//! `levels.len() + 1` the single node.

use crate::ids::{DomainIdx, NodeIdx, PoolIdx};
use std::ops::Range;
use std::sync::Arc;

/// The reserved name of the implicit narrowest level.
pub const NODE_LEVEL: &str = "node";

/// Distance from the root of a pool: 0 the root, 1 the broadest level, then narrower, at last the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Depth(pub u8);

impl Depth {
    /// The root of a pool.
    pub const ROOT: Self = Self(0);
}

/// One level of a pool.
#[derive(Clone, Debug, PartialEq)]
pub struct Level {
    /// Name, as jobs use it.
    pub name: Arc<str>,
    /// Rated bandwidth per GPU and direction inside one domain of the level; 0 when unknown.
    pub gigabytes_per_second: f64,
}

/// What the builder needs to know of a pool.
#[derive(Clone, Debug, PartialEq)]
pub struct PoolSpec {
    /// Name of the Topology; empty for the implicit pool of nodes outside every Topology.
    pub name: Arc<str>,
    /// Levels, broadest first.
    pub levels: Vec<Level>,
    /// Nodes may still be added by an autoscaler: "never" becomes "not now".
    pub growable: bool,
}

/// What the builder needs to know of a node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodePath {
    /// Row of the pool in the list given to the builder.
    pub pool: usize,
    /// Names of its domains from the broadest level on, down to the first level that is unknown.
    pub path: Vec<Arc<str>>,
    /// Name of the node.
    pub name: Arc<str>,
}

/// A pool: the nodes one Topology describes.
#[derive(Clone, Debug)]
pub struct Pool {
    /// Name of the Topology; empty for the implicit pool.
    pub name: Arc<str>,
    /// Levels, broadest first.
    pub levels: Vec<Level>,
    /// Root domain, holding every node of the pool.
    pub root: DomainIdx,
    /// Whether nodes may still be added.
    pub growable: bool,
}

impl Pool {
    /// Depth of a level by name (`node` included), if the pool has it.
    #[must_use]
    pub fn depth_of(&self, level: &str) -> Option<Depth> {
        if level == NODE_LEVEL {
            return Some(self.node_depth());
        }
        let row = self.levels.iter().position(|l| &*l.name == level)?;
        Some(Depth(u8::try_from(row + 1).expect("a Topology has at most 16 levels")))
    }

    /// Depth of single nodes.
    #[must_use]
    pub fn node_depth(&self) -> Depth {
        Depth(u8::try_from(self.levels.len() + 1).expect("a Topology has at most 16 levels"))
    }

    /// Depth of the narrowest named level; the root if there is none.
    #[must_use]
    pub fn narrowest(&self) -> Depth {
        Depth(self.node_depth().0 - 1)
    }

    /// Name of a depth: the level's, `node`, or `cluster` for the root.
    #[must_use]
    pub fn level_name(&self, depth: Depth) -> &str {
        match depth.0 as usize {
            0 => "cluster",
            d if d <= self.levels.len() => &self.levels[d - 1].name,
            _ => NODE_LEVEL,
        }
    }
}

/// A domain of a level (or a pool's root).
#[derive(Clone, Debug)]
pub struct Domain {
    /// Last part of the path; empty for a root.
    pub name: Arc<str>,
    /// Whole path, such as `b1/r3`; empty for a root.
    pub path: Arc<str>,
    /// Its pool.
    pub pool: PoolIdx,
    /// Its depth.
    pub depth: Depth,
    /// The next wider domain; none for a root.
    pub parent: Option<DomainIdx>,
    /// Domains one level narrower, a contiguous range of rows in name order.
    pub children: Range<u32>,
    /// Every node in it, a contiguous range of rows. The first `loose` ones are in no child.
    pub nodes: Range<u32>,
    /// Nodes whose path ends here although narrower levels exist (their label is missing).
    pub loose: u32,
}

impl Domain {
    /// Its nodes.
    pub fn node_range(&self) -> impl ExactSizeIterator<Item = NodeIdx> + DoubleEndedIterator + use<> {
        let range = self.nodes.clone();
        range.map(NodeIdx)
    }

    /// Its child domains.
    pub fn child_range(&self) -> impl ExactSizeIterator<Item = DomainIdx> + DoubleEndedIterator + use<> {
        let range = self.children.clone();
        range.map(DomainIdx)
    }

    /// Number of nodes.
    #[must_use]
    pub fn node_count(&self) -> u32 {
        self.nodes.end - self.nodes.start
    }
}

/// All pools and domains. Built once for a set of nodes and labels and shared.
#[derive(Clone, Debug, Default)]
pub struct Topology {
    pools: Vec<Pool>,
    domains: Vec<Domain>,
    names: Vec<Arc<str>>,
    innermost: Vec<DomainIdx>,
}

impl Topology {
    /// Builds the tree. Node rows are given in the order pool, path, name, whatever the order of the input.
    #[must_use]
    pub fn build(pools: &[PoolSpec], nodes: &[NodePath]) -> Self {
        let mut sorted: Vec<&NodePath> = nodes.iter().collect();
        sorted.sort();
        let mut tree = Self {
            pools: Vec::new(),
            domains: Vec::new(),
            names: sorted.iter().map(|n| n.name.clone()).collect(),
            innermost: vec![DomainIdx(0); sorted.len()],
        };
        for (row, spec) in pools.iter().enumerate() {
            tree.add_pool(row, spec, &sorted);
        }
        tree
    }

    fn add_pool(&mut self, row: usize, spec: &PoolSpec, sorted: &[&NodePath]) {
        let start = sorted.partition_point(|n| n.pool < row);
        let end = sorted.partition_point(|n| n.pool <= row);
        let root = DomainIdx::of(self.domains.len());
        let pool = PoolIdx::of(row);
        self.pools.push(Pool { name: spec.name.clone(), levels: spec.levels.clone(), root, growable: spec.growable });
        self.domains.push(Domain {
            name: "".into(),
            path: "".into(),
            pool,
            depth: Depth::ROOT,
            parent: None,
            children: 0..0,
            nodes: row_number(start)..row_number(end),
            loose: 0,
        });
        // Breadth first, so that the children of one domain are neighbours.
        let mut next = root.row();
        while next < self.domains.len() {
            self.split(DomainIdx::of(next), sorted, spec.levels.len());
            next += 1;
        }
    }

    fn split(&mut self, idx: DomainIdx, sorted: &[&NodePath], levels: usize) {
        let parent = self.domains[idx.row()].clone();
        let depth = parent.depth.0 as usize;
        let first_child = row_number(self.domains.len());
        let mut loose = 0;
        let mut at = parent.nodes.start;
        while at < parent.nodes.end {
            let node = sorted[at as usize];
            let Some(name) = node.path.get(depth).filter(|_| depth < levels) else {
                self.innermost[at as usize] = idx;
                loose += 1;
                at += 1;
                continue;
            };
            let mut end = at + 1;
            while end < parent.nodes.end && sorted[end as usize].path.get(depth) == Some(name) {
                end += 1;
            }
            let path: Arc<str> =
                if parent.path.is_empty() { name.clone() } else { format!("{}/{name}", parent.path).into() };
            self.domains.push(Domain {
                name: name.clone(),
                path,
                pool: parent.pool,
                depth: Depth(parent.depth.0 + 1),
                parent: Some(idx),
                children: 0..0,
                nodes: at..end,
                loose: 0,
            });
            at = end;
        }
        let children = first_child..row_number(self.domains.len());
        let domain = &mut self.domains[idx.row()];
        domain.children = children;
        domain.loose = if depth < levels { loose } else { 0 };
        let children = domain.children.clone();
        for child in children {
            let nodes = self.domains[child as usize].nodes.clone();
            for node in nodes {
                self.innermost[node as usize] = DomainIdx(child);
            }
        }
    }

    /// Pools in row order.
    #[must_use]
    pub fn pools(&self) -> &[Pool] {
        &self.pools
    }

    /// One pool.
    #[must_use]
    pub fn pool(&self, pool: PoolIdx) -> &Pool {
        &self.pools[pool.row()]
    }

    /// All domains; the ones of a pool are neighbours, broader ones first.
    #[must_use]
    pub fn domains(&self) -> &[Domain] {
        &self.domains
    }

    /// One domain.
    #[must_use]
    pub fn domain(&self, domain: DomainIdx) -> &Domain {
        &self.domains[domain.row()]
    }

    /// Number of nodes.
    #[must_use]
    pub fn node_count(&self) -> usize {
        self.names.len()
    }

    /// Name of a node.
    #[must_use]
    pub fn node_name(&self, node: NodeIdx) -> &Arc<str> {
        &self.names[node.row()]
    }

    /// The narrowest domain that a node's labels put it in.
    #[must_use]
    pub fn innermost(&self, node: NodeIdx) -> DomainIdx {
        self.innermost[node.row()]
    }

    /// The pool of a node.
    #[must_use]
    pub fn pool_of(&self, node: NodeIdx) -> PoolIdx {
        self.domain(self.innermost(node)).pool
    }

    /// The domain of a node at a depth (not for single nodes); none where its path is unknown there.
    #[must_use]
    pub fn domain_at(&self, node: NodeIdx, depth: Depth) -> Option<DomainIdx> {
        self.ancestor_at(self.innermost(node), depth)
    }

    /// The domain at `depth` that holds `domain`; none if that one is broader than `depth`.
    #[must_use]
    pub fn ancestor_at(&self, domain: DomainIdx, depth: Depth) -> Option<DomainIdx> {
        let mut at = domain;
        loop {
            let here = self.domain(at);
            match here.depth.cmp(&depth) {
                std::cmp::Ordering::Equal => return Some(at),
                std::cmp::Ordering::Less => return None,
                std::cmp::Ordering::Greater => at = here.parent?,
            }
        }
    }

    /// Domains of a pool at a depth, in path order.
    pub fn domains_at(&self, pool: PoolIdx, depth: Depth) -> impl Iterator<Item = DomainIdx> + '_ {
        // A pool's rows are breadth first: each depth is one run.
        let start = self.pool(pool).root.row();
        self.domains[start..]
            .iter()
            .enumerate()
            .take_while(move |(_, d)| d.pool == pool && d.depth <= depth)
            .filter(move |(_, d)| d.depth == depth)
            .map(move |(row, _)| DomainIdx::of(start + row))
    }

    /// The narrowest depth at which all these nodes share one domain (the node depth for one node); none across pools.
    #[must_use]
    pub fn shared_depth(&self, nodes: impl IntoIterator<Item = NodeIdx>) -> Option<(Depth, DomainIdx)> {
        let mut nodes = nodes.into_iter();
        let first = nodes.next()?;
        let mut domain = self.innermost(first);
        let mut depth = self.pool(self.domain(domain).pool).node_depth();
        for node in nodes {
            if node == first {
                continue;
            }
            let mut other = self.innermost(node);
            depth = depth.min(self.domain(domain).depth);
            while domain != other {
                let (a, b) = (self.domain(domain), self.domain(other));
                if a.depth >= b.depth {
                    domain = a.parent?;
                } else {
                    other = b.parent?;
                }
            }
            depth = depth.min(self.domain(domain).depth);
        }
        Some((depth, domain))
    }
}

fn row_number(row: usize) -> u32 {
    u32::try_from(row).expect("tables are smaller than 2^32 rows")
}
