//! Dense indexes: each names a row of one table of the [`crate::state::ClusterState`] and means nothing outside it.

macro_rules! index {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u32);

        impl $name {
            /// The row number, for indexing a table.
            #[must_use]
            pub fn row(self) -> usize {
                self.0 as usize
            }

            /// The index of a row; tables never hold 2^32 rows.
            #[must_use]
            pub fn of(row: usize) -> Self {
                Self(u32::try_from(row).expect("tables are smaller than 2^32 rows"))
            }
        }
    };
}

index!(
    /// A node, in the order of its topology: pool, path, name. Nodes of one domain are therefore one range.
    NodeIdx
);
index!(
    /// A domain of the topology tree (the root of a pool included, single nodes not).
    DomainIdx
);
index!(
    /// A pool: the nodes one Topology describes, or the implicit pool of all other nodes.
    PoolIdx
);
index!(
    /// A distinct pod shape: requests and the nodes that may hold it.
    ShapeIdx
);
index!(
    /// A job. Indexes are reused after a job is gone; compare keys, not indexes, across time.
    JobIdx
);
index!(
    /// A queue of the tree; row 0 is the implicit root.
    QueueIdx
);
index!(
    /// A resource name (`cpu`, `nvidia.com/gpu`, `pods`, …).
    ResourceIdx
);

impl QueueIdx {
    /// The implicit root of the queue tree.
    pub const ROOT: Self = Self(0);
}
