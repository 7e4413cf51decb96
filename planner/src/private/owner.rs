//! Between the cluster's state and the private schedules: what the owner of both needs.

use super::{PrivateJob, PrivateStart};
use crate::ids::JobIdx;
use crate::state::{ClusterState, Tally};

/// A job of the state as its private schedule is told of it.
#[must_use]
pub fn private_job(state: &ClusterState, job: JobIdx) -> Option<PrivateJob> {
    let job = state.job(job)?;
    Some(PrivateJob {
        id: job.spec.uid.clone(),
        key: job.spec.key.clone(),
        user: job.spec.user.clone(),
        priority: job.spec.priority,
        queued_at: job.queued_at,
        sequence: job.sequence,
        demand: state.floor_tally(&job.spec),
        limit: job.spec.window(),
    })
}

/// Whether the guarantees of all leaves together fit the usable cluster: only then are private starts promises.
#[must_use]
pub fn guarantees_covered(state: &ClusterState) -> bool {
    let mut sum = Tally::new();
    let parents: std::collections::BTreeSet<_> = state.queues().iter().skip(1).map(|q| q.parent).collect();
    for (row, queue) in state.queues().iter().enumerate() {
        if !parents.contains(&crate::QueueIdx::of(row)) {
            crate::share::add_tally(&mut sum, &queue.guarantee, 1);
        }
    }
    sum.iter().all(|(key, amount)| *amount <= state.usable().get(key).copied().unwrap_or(0))
}

/// Writes private starts that have come into the jobs that still live. The next plan starts or guarantees them.
pub fn note_starts(state: &mut ClusterState, starts: &[PrivateStart]) {
    for start in starts {
        if let Some(row) = state.find_job(&start.key)
            && state.job(row).is_some_and(|j| j.spec.uid == start.id)
        {
            state.set_private_start(row, Some(start.at));
        }
    }
}
