//! A job as the planner sees it: a gang of roles with floors, a constraint, limits in time, and where it stands.

mod phase;
mod placement;

pub use phase::{Hold, Job, Leaving, Phase, Reservation, Running, Waiting};
pub use placement::{Placement, Seat};

use crate::ids::{QueueIdx, ShapeIdx};
use crate::time::Span;
use std::sync::Arc;

/// How a job's members talk, which weighs its placement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Communication {
    /// Ring or tree over all ranks: count domains and the narrowest link crossed.
    #[default]
    AllReduce,
    /// Everybody with everybody: as AllReduce.
    AllToAll,
    /// Consecutive ranks only: count edges.
    Pipeline,
    /// Everybody with the first role.
    ParameterServer,
    /// Not at all: topology is ignored, holes are filled; may span pools.
    Independent,
}

/// Every `size` consecutive ranks of a role lie in one domain of level `within`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slice {
    /// Pods a slice; divides floor and replicas.
    pub size: u32,
    /// Level name.
    pub within: Arc<str>,
}

/// One role of a gang.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Role {
    /// Name.
    pub name: Arc<str>,
    /// The kind of pod.
    pub shape: ShapeIdx,
    /// The most pods that may run.
    pub replicas: u32,
    /// The fewest pods that may run.
    pub floor: u32,
    /// Slices, if asked for.
    pub slice: Option<Slice>,
}

impl Role {
    /// Pods by which the role grows and shrinks at once.
    #[must_use]
    pub fn step(&self) -> u32 {
        self.slice.as_ref().map_or(1, |s| s.size)
    }
}

/// The topology constraint.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Locality {
    /// Never wider than one domain of this level.
    pub required: Option<Arc<str>>,
    /// Tried first; narrower than `required`.
    pub preferred: Option<Arc<str>>,
    /// How long after `queued_at` to wait for `preferred` while `required` would fit.
    pub patience: Span,
}

/// What a job asks for. Does not change while a plan is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobSpec {
    /// `namespace/name`, unique among living jobs; last tie-break but one.
    pub key: Arc<str>,
    /// Unique id of the object; last tie-break.
    pub uid: Arc<str>,
    /// Who submitted it.
    pub user: Arc<str>,
    /// The leaf queue.
    pub queue: QueueIdx,
    /// Higher goes first.
    pub priority: i64,
    /// Whether it may be stopped for others.
    pub preemptible: bool,
    /// Hard limit of one incarnation; [`Span::FOREVER`] without one.
    pub max_runtime: Span,
    /// From the stop signal to the kill.
    pub grace: Span,
    /// Expected run time, for placement and estimates only.
    pub expected_runtime: Option<Span>,
    /// Most work lost when stopped; none: all of it.
    pub checkpoint_every: Option<Span>,
    /// Topology constraint.
    pub locality: Locality,
    /// Communication pattern.
    pub communication: Communication,
    /// Whether the gang may change its size while it runs (Jax and Mpi gangs may not).
    pub resizable: bool,
    /// On a lost node: replace the member in the same incarnation (true) or restart the gang (false).
    pub replaces_members: bool,
    /// Roles in rank order.
    pub roles: Vec<Role>,
}

impl JobSpec {
    /// How long a start holds its room at most: limit and grace.
    #[must_use]
    pub fn window(&self) -> Span {
        if self.max_runtime.is_forever() { Span::FOREVER } else { self.max_runtime + self.grace }
    }

    /// The run time to use for placement: the expected one, else the limit.
    #[must_use]
    pub fn predicted(&self) -> Span {
        self.expected_runtime.unwrap_or(self.max_runtime)
    }

    /// Fewest pods of the gang.
    #[must_use]
    pub fn floor(&self) -> u32 {
        self.roles.iter().map(|r| r.floor).sum()
    }

    /// Most pods of the gang.
    #[must_use]
    pub fn replicas(&self) -> u32 {
        self.roles.iter().map(|r| r.replicas).sum()
    }

    /// Rank of the first pod of a role: the replicas of the roles before it.
    #[must_use]
    pub fn first_rank(&self, role: usize) -> u32 {
        self.roles[..role].iter().map(|r| r.replicas).sum()
    }

    /// Whether it can run at more than one size.
    #[must_use]
    pub fn is_elastic(&self) -> bool {
        self.roles.iter().any(|r| r.floor < r.replicas)
    }
}

/// What decides where a job fits.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PlacementClass {
    roles: Vec<(ShapeIdx, u32, u32, Option<Slice>)>,
    required: Option<Arc<str>>,
    preferred: Option<Arc<str>>,
    communication: Communication,
}

impl JobSpec {
    /// The class that the job belongs to.
    #[must_use]
    pub fn placement_class(&self) -> PlacementClass {
        PlacementClass {
            roles: self.roles.iter().map(|r| (r.shape, r.floor, r.replicas, r.slice.clone())).collect(),
            required: self.locality.required.clone(),
            preferred: self.locality.preferred.clone(),
            communication: self.communication,
        }
    }
}
