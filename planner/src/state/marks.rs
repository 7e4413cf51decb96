//! Jobs that a cycle must look at for a reason of their own.

use crate::ids::JobIdx;
use crate::job::{Job, Phase};
use crate::time::Time;
use std::collections::BTreeSet;

/// Jobs that a cycle must look at for a reason of their own, so that it need not look at all of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Marks {
    /// Waiting and held from outside.
    pub(crate) held: BTreeSet<JobIdx>,
    /// Running with lost members.
    pub(crate) hurt: BTreeSet<JobIdx>,
    /// Waiting to restart where they were.
    pub(crate) restarting: BTreeSet<JobIdx>,
    /// Able to run at more than one size.
    pub(crate) elastic: BTreeSet<JobIdx>,
    /// Started in their queue's private cluster.
    pub(crate) private: BTreeSet<JobIdx>,
    /// With surplus seats on their way out.
    pub(crate) shedding: BTreeSet<JobIdx>,
    /// Told to go and still there.
    pub(crate) leaving: BTreeSet<JobIdx>,
    /// Running, by start.
    pub(crate) started: BTreeSet<(Time, JobIdx)>,
}

impl Marks {
    pub(super) fn mark(&mut self, row: JobIdx, job: &Job, add: bool) {
        let (held, hurt, restarting, private) = match &job.phase {
            Phase::Waiting(w) => (w.hold.is_some(), false, w.last_placement.is_some(), w.private_start.is_some()),
            Phase::Running(r) => (false, !r.lost.is_empty(), false, r.private_start.is_some()),
            Phase::Leaving(_) => (false, false, false, false),
        };
        let set = |marked: bool, jobs: &mut BTreeSet<JobIdx>| {
            if marked && add {
                jobs.insert(row);
            } else {
                jobs.remove(&row);
            }
        };
        set(held, &mut self.held);
        set(hurt, &mut self.hurt);
        set(restarting, &mut self.restarting);
        set(private, &mut self.private);
        // One edited below its size has to give pods back, elastic or not.
        let oversize = job.running().is_some_and(|r| r.placement.len() > job.spec.replicas() as usize);
        set(job.spec.is_elastic() || oversize, &mut self.elastic);
        set(!job.shedding.is_empty(), &mut self.shedding);
        set(matches!(job.phase, Phase::Leaving(_)), &mut self.leaving);
        if let Some(running) = job.running() {
            let entry = (running.started, row);
            if add {
                self.started.insert(entry)
            } else {
                self.started.remove(&entry)
            };
        }
    }
}
