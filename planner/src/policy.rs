//! The administrator's knobs. There is no `Default`: every caller says what it runs with, see [`Policy::standard`].

use crate::time::Span;

/// Knobs of a plan. Durations are lengths of time on the cluster's clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Half-life of use in queue order; zero: present use only.
    pub share_half_life: Span,
    /// Length of a cycle: an overdue job is assumed to end one more later, doubling.
    pub cycle: Span,
    /// Most reservations in all, in global order.
    pub max_reservations: u32,
    /// By how much higher-priority submissions may move a promise in all before it is firm.
    pub max_postponement: Span,
    /// Room that is at most this far away is waited for instead of stopping anybody (or the victims' grace, if longer).
    pub worth_waiting: Span,
    /// Victims that all end within this are waited for instead.
    pub wait_instead_of_kill: Span,
    /// Between two changes of size of one job.
    pub resize_interval: Span,
    /// Steps of the packing search after which it says so and gives up.
    pub search_limit: u32,
    /// Whether jobs may be stopped for others at all.
    pub preemption: bool,
    /// Whether other queues' jobs are stopped only for private starts that have come (law 10), not for entitlement or a
    /// fairer share as such: fewest stops. Replays of quotas use it.
    pub reclaim_for_private_only: bool,
    /// Whether queues' private schedules are carried along (law 10).
    pub private_schedules: bool,
    /// Whether to give every waiting job its reason; a replay that reads none saves the work.
    pub explain: bool,
    /// Replays only: patience counts from the first possible start instead of from submission, and holds only jobs that
    /// are due a promise.
    pub patience_from_first_start: bool,
    /// Replays only: jobs take the first fitting nodes in row order, or pseudo-random ones by this seed, instead of the
    /// topology's choice.
    pub placement: PlacementRule,
}

/// How nodes are chosen; everything but `Topology` exists to be compared with in replays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlacementRule {
    /// Fewest domains, least loss of free node-time.
    Topology,
    /// First nodes that fit, in row order.
    First,
    /// Pseudo-random nodes from a seed.
    Random(u64),
}

impl Policy {
    /// The controller's standing configuration.
    #[must_use]
    pub fn standard() -> Self {
        Self {
            share_half_life: Span::from_secs(24 * 3600),
            cycle: Span::from_secs(1),
            max_reservations: 1000,
            max_postponement: Span::from_secs(24 * 3600),
            worth_waiting: Span::from_secs(60),
            wait_instead_of_kill: Span::from_secs(300),
            resize_interval: Span::from_secs(60),
            search_limit: 20_000,
            preemption: true,
            reclaim_for_private_only: false,
            private_schedules: true,
            patience_from_first_start: false,
            explain: true,
            placement: PlacementRule::Topology,
        }
    }
}
