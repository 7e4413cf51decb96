//! When jobs beyond their queue's backfill depth may start: the plan made deeper, on paper. Nothing of it is promised, and
//! it runs outside the cycle.

use super::{Cycle, Fate};
use crate::ids::JobIdx;
use crate::policy::Policy;
use crate::queue::Backfill;
use crate::state::Snapshot;
use crate::time::Time;
use std::collections::BTreeMap;

/// Estimated starts of the first `most` waiting jobs, in global order, that have no promise.
///
/// Every standing promise holds; each job gets the earliest start behind those before it, as if it were due a
/// reservation. Nobody is stopped for anybody. The cost is one search per job: bound it by `most`.
#[must_use]
pub fn forecast(snapshot: &Snapshot<'_>, policy: &Policy, most: u32) -> BTreeMap<JobIdx, Time> {
    let standing = u32::try_from(snapshot.state.reserved().len()).unwrap_or(u32::MAX);
    let policy = Policy {
        preemption: false,
        private_schedules: false,
        explain: false,
        max_reservations: standing.saturating_add(most),
        ..policy.clone()
    };
    let mut cycle = Cycle::open(*snapshot, &policy);
    cycle.beyond = u32::MAX;
    cycle.serve();
    cycle.estimates()
}

impl Cycle<'_> {
    /// What this paper plan gave to jobs without a promise.
    fn estimates(&self) -> BTreeMap<JobIdx, Time> {
        let mut estimates: BTreeMap<JobIdx, Time> = BTreeMap::new();
        for (job, fate) in &self.fates {
            let start = match fate {
                Fate::Promised(Some(reservation)) => reservation.start,
                Fate::Started { .. } => self.now(),
                _ => continue,
            };
            if self.job(*job).waiting().is_some_and(|w| w.reservation.is_none()) {
                estimates.insert(*job, start);
            }
        }
        self.in_strict_order(&mut estimates);
        estimates
    }

    /// Queues without backfill start their jobs one after the other.
    fn in_strict_order(&self, estimates: &mut BTreeMap<JobIdx, Time>) {
        let state = self.state();
        for (row, queue) in state.queues().iter().enumerate() {
            if queue.backfill != Backfill::None {
                continue;
            }
            let mut latest = self.now();
            for key in state.waiting(crate::ids::QueueIdx::of(row)) {
                if let Some(start) = estimates.get_mut(&key.5) {
                    latest = latest.max(*start);
                    *start = latest;
                }
            }
        }
    }
}
