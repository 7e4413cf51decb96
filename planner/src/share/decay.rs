//! Use that fades: the half-life rule in closed form, and the reading and writing of what `Queue.status` keeps.

use crate::ids::{QueueIdx, ResourceIdx};
use crate::queue::{Decayed, Order, QuotaKey};
use crate::state::{ClusterState, Tally};
use crate::time::{Span, Time};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Users of a queue whose decayed use is kept by name; the rest is pooled under [`POOLED`].
pub const TOP_USERS: usize = 200;
/// The name under which the use of all users beyond [`TOP_USERS`] is kept. No Kubernetes user has it.
pub const POOLED: &str = "*";
/// Decayed use, in resource units, below which a user without running jobs is forgotten.
const FORGOTTEN: f64 = 1e-6;

/// Decayed use at `now`, when use has been constant since `old` was written (decision 13).
///
/// `v' = v·f + use·(1−f)` with `f = 2^(−Δt / half_life)`; with a half-life of zero it is the present use.
#[must_use]
pub fn decay(old: Decayed, use_: f64, now: Time, half_life: Span) -> Decayed {
    let factor = if half_life <= Span::ZERO {
        0.0
    } else if half_life.is_forever() {
        1.0
    } else {
        (-now.since(old.at).as_secs_f64() / half_life.as_secs_f64()).exp2()
    };
    Decayed { value: old.value.mul_add(factor, use_ * (1.0 - factor)), at: now.max(old.at) }
}

/// Decayed use per resource.
pub type DecayedUse = BTreeMap<ResourceIdx, Decayed>;
/// Decayed use per user and resource.
pub type DecayedUsers = BTreeMap<Arc<str>, DecayedUse>;

/// Brings every entry to `now` under the use that was constant until now. A resource without an entry starts at zero
/// now: entries are made for every resource of `totals`, so that use which begins now is counted from now on.
#[must_use]
#[allow(clippy::cast_precision_loss)]
pub fn integrate(old: &DecayedUse, use_: &Tally, totals: &Tally, now: Time, half_life: Span) -> DecayedUse {
    let mut all: DecayedUse = old.clone();
    for key in use_.keys().chain(totals.keys()).filter(|k| k.pool.is_none()) {
        all.entry(key.resource).or_insert(Decayed { value: 0.0, at: now });
    }
    for (resource, entry) in &mut all {
        let present = use_.get(&QuotaKey { pool: None, resource: *resource }).copied().unwrap_or(0);
        *entry = decay(*entry, present as f64, now, half_life);
    }
    all
}

/// What the jobs of each user of one leaf queue hold now.
#[must_use]
pub fn use_by_user(state: &ClusterState, queue: QueueIdx) -> BTreeMap<Arc<str>, Tally> {
    let mut users: BTreeMap<Arc<str>, Tally> = BTreeMap::new();
    for job in state.holding().iter().filter_map(|row| state.job(*row)).filter(|j| j.spec.queue == queue) {
        let tally = users.entry(job.spec.user.clone()).or_default();
        for placement in job.held() {
            state.count_seats(&job.spec, placement, tally, 1);
        }
    }
    users
}

/// What `Queue.status` should say about a leaf's decayed use at `now`. Call it **before** the change of use (a commit,
/// a resize, a release) by a job of `user`: until that moment use was constant, which makes the closed form exact.
///
/// Users are told apart only in queues whose order is `Fair`; the others keep what they have.
#[must_use]
pub fn settled(
    state: &ClusterState,
    queue: QueueIdx,
    user: &Arc<str>,
    now: Time,
    half_life: Span,
) -> (DecayedUse, DecayedUsers) {
    let row = state.queue(queue);
    let totals = state.totals();
    let decayed = integrate(&row.decayed, state.queue_use(queue), totals, now, half_life);
    if row.order != Order::Fair {
        return (decayed, row.users.clone());
    }
    let present = use_by_user(state, queue);
    let nothing = (DecayedUse::new(), Tally::new());
    let names: BTreeSet<&Arc<str>> = row.users.keys().chain(present.keys()).chain([user]).collect();
    let mut users = DecayedUsers::new();
    for name in names {
        let holds = present.get(name);
        let old = row.users.get(name).unwrap_or(&nothing.0);
        let new = integrate(old, holds.unwrap_or(&nothing.1), totals, now, half_life);
        if name == user || holds.is_some() || new.values().any(|d| d.value > FORGOTTEN) {
            users.insert(name.clone(), new);
        }
    }
    (decayed, pool_the_rest(users, |r| total_of(state, r)))
}

/// Writes [`settled`] into the state: what the simulator does before each change of use, and the controller before it
/// sends the same values to the API server.
pub fn settle(state: &mut ClusterState, queue: QueueIdx, user: &Arc<str>, now: Time, half_life: Span) {
    let (decayed, users) = settled(state, queue, user, now, half_life);
    state.set_decayed(queue, decayed, users);
}

#[allow(clippy::cast_precision_loss)]
fn total_of(state: &ClusterState, resource: ResourceIdx) -> f64 {
    let key = QuotaKey { pool: None, resource };
    state.totals().get(&key).copied().unwrap_or(0).max(1) as f64
}

/// The largest fraction of the cluster's total that a user's decayed use makes up.
fn dominant(use_: &DecayedUse, total: &impl Fn(ResourceIdx) -> f64) -> f64 {
    use_.iter().map(|(r, d)| d.value / total(*r)).fold(0.0, f64::max)
}

fn pool_the_rest(mut users: DecayedUsers, total: impl Fn(ResourceIdx) -> f64) -> DecayedUsers {
    let mut ranked: Vec<(f64, Arc<str>)> = users
        .iter()
        .filter(|(name, _)| &***name != POOLED)
        .map(|(name, use_)| (dominant(use_, &total), name.clone()))
        .collect();
    if ranked.len() <= TOP_USERS {
        return users;
    }
    ranked.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
    let mut pooled = users.remove(POOLED).unwrap_or_default();
    for (_, name) in ranked.drain(TOP_USERS..) {
        for (resource, use_) in users.remove(&name).unwrap_or_default() {
            let sum = pooled.entry(resource).or_insert(Decayed { value: 0.0, at: use_.at });
            sum.value += use_.value;
            sum.at = sum.at.max(use_.at);
        }
    }
    users.insert(POOLED.into(), pooled);
    users
}
