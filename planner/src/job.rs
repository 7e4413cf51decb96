//! A job as the planner sees it: a gang of roles with floors, a constraint, limits in time, and where it stands.

use crate::ids::{JobIdx, NodeIdx, QueueIdx, ShapeIdx};
use crate::plan::Cause;
use crate::reason::Code;
use crate::time::{Span, Time};
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

/// One pod's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Seat {
    /// Row of the role.
    pub role: u8,
    /// Index in the role.
    pub index: u32,
    /// The node.
    pub node: NodeIdx,
}

/// Where a gang is or would be: seats sorted by role and index, that is, by rank.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Placement {
    /// The seats.
    pub seats: Vec<Seat>,
}

impl Placement {
    /// Pods of one role.
    #[must_use]
    pub fn count(&self, role: usize) -> u32 {
        u32::try_from(self.seats.iter().filter(|s| usize::from(s.role) == role).count()).expect("at most 20,000 pods")
    }

    /// Number of pods.
    #[must_use]
    pub fn len(&self) -> usize {
        self.seats.len()
    }

    /// Whether it has no pods.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.seats.is_empty()
    }

    /// The distinct nodes, in row order.
    #[must_use]
    pub fn nodes(&self) -> Vec<NodeIdx> {
        let mut nodes: Vec<NodeIdx> = self.seats.iter().map(|s| s.node).collect();
        nodes.sort_unstable();
        nodes.dedup();
        nodes
    }

    /// Pods by (node, role), in that order: what the ledger counts.
    #[must_use]
    pub fn by_node(&self) -> Vec<(NodeIdx, u8, u32)> {
        let mut cells: Vec<(NodeIdx, u8)> = self.seats.iter().map(|s| (s.node, s.role)).collect();
        cells.sort_unstable();
        let mut counted: Vec<(NodeIdx, u8, u32)> = Vec::new();
        for (node, role) in cells {
            match counted.last_mut() {
                Some(last) if last.0 == node && last.1 == role => last.2 += 1,
                _ => counted.push((node, role, 1)),
            }
        }
        counted
    }
}

/// A promise kept as a `Reserved` Berth.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reservation {
    /// When it starts.
    pub start: Time,
    /// When its window ends; [`Time::NEVER`] without a limit.
    pub end: Time,
    /// Its nodes.
    pub placement: Placement,
    /// The earliest start the job was ever promised without a recorded cause since.
    pub promised: Time,
    /// Jobs that were told to make room for it and have not all gone yet: nobody else is chosen meanwhile.
    pub clearing: bool,
}

/// Why a waiting job is not considered at all in this plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hold {
    /// The code shown to the user.
    pub code: Code,
    /// The object or detail that the message names.
    pub detail: Arc<str>,
    /// When it ends by itself, if it does.
    pub until: Option<Time>,
}

/// A job that waits for its room.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Waiting {
    /// Its standing reservation.
    pub reservation: Option<Reservation>,
    /// Held by something outside the planner (queue held, namespace quota, back-off, never fits): it holds nothing and
    /// blocks nobody.
    pub hold: Option<Hold>,
    /// It ran before and was stopped by us or lost nodes: it goes before waiting equals.
    pub requeued: bool,
    /// It lost nodes and its room is held while the repair has a date.
    pub repair: bool,
    /// After a failure of the user's code: the nodes to restart on if that delays nobody.
    pub last_placement: Option<Placement>,
    /// By how much higher-priority submissions have moved its promise so far.
    pub postponed: Span,
    /// When it would have started in its queue's private cluster, if that moment has come.
    pub private_start: Option<Time>,
}

/// A job that holds its room.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Running {
    /// Where.
    pub placement: Placement,
    /// Start of this incarnation.
    pub started: Time,
    /// When the room is promised to others: start + limit + grace; [`Time::NEVER`] without a limit.
    pub ends: Time,
    /// Ranks lost with their nodes and not yet replaced.
    pub lost: Vec<u32>,
    /// Guaranteed (from its private start on) or lent.
    pub guaranteed: bool,
    /// Last change of size, for [`crate::policy::Policy::resize_interval`].
    pub resized: Time,
    /// Started on a promise that had become firm: no victim of later submissions of higher priority.
    pub firm: bool,
    /// When it would have started in its queue's private cluster, if that moment has come.
    pub private_start: Option<Time>,
    /// Not all of its pods exist yet (commit still under way): it is not resized or chosen as victim.
    pub settling: bool,
}

/// A job told to stop whose pods are still there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leaving {
    /// What it still holds.
    pub placement: Placement,
    /// When it is gone at the latest.
    pub gone_by: Time,
    /// For whom it makes room, if for anybody.
    pub taker: Option<JobIdx>,
}

/// Where a job stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Waits for room.
    Waiting(Box<Waiting>),
    /// Holds its room.
    Running(Box<Running>),
    /// Was told to stop.
    Leaving(Box<Leaving>),
}

/// A living job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// What it asks for.
    pub spec: Arc<JobSpec>,
    /// First submission; kept over preemption and node loss.
    pub queued_at: Time,
    /// Breaks ties of `queued_at` before the key does (file order in the simulator, 0 on a cluster).
    pub sequence: u64,
    /// Where it stands.
    pub phase: Phase,
    /// Part of a running gang's surplus on its way out: seats that still hold room until a time.
    pub shedding: Vec<(Placement, Time)>,
    /// Why its last reservation was dropped or moved, for the report.
    pub last_cause: Option<Cause>,
    /// Number of its placement class: jobs of one class fit exactly the same places.
    pub class: u32,
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
