//! Rules of a `TrainingJob` against the cluster.
//!
//! They run when a job is made, and for what a change touches: lowering and suspending always pass, and a job that was
//! accepted once is not refused later for what became of the cluster.

mod floor;
mod immutable;
mod levels;
mod limits;
mod never;
mod placement;
mod template;

use crate::rules;
use crate::verdict::Verdict;
use crate::world::World;
use crds::v1alpha1::{Queue, TrainingJob};
use serde_json::Value;

/// One request about a job.
#[derive(Clone, Copy, Debug)]
pub struct JobChange<'a> {
    /// The job as it would be.
    pub new: &'a TrainingJob,
    /// The job as it is; none when it is made.
    pub old: Option<&'a TrainingJob>,
    /// The new object as it was sent, where there is one: it may hold fields that we do not know.
    pub raw: Option<&'a Value>,
}

impl JobChange<'_> {
    /// Whether what `part` reads of the job is new.
    fn changed<T: PartialEq>(&self, part: impl Fn(&TrainingJob) -> T) -> bool {
        self.old.is_none_or(|old| part(old) != part(self.new))
    }

    /// Whether a number grew, or is new. An absent one is the largest.
    fn raised<T: Ord>(&self, part: impl Fn(&TrainingJob) -> Option<T>) -> bool {
        let Some(old) = self.old else { return true };
        match (part(old), part(self.new)) {
            (Some(before), Some(now)) => now > before,
            (Some(_), None) => true,
            (None, _) => false,
        }
    }
}

/// Judges a job that is made or changed.
pub fn validate(change: JobChange<'_>, world: &World) -> Verdict {
    let mut verdict = Verdict::default();
    // Nothing about a job on its way out may keep it from going.
    if change.new.metadata.deletion_timestamp.is_some() {
        return verdict;
    }
    rules::training_job(change.new, change.old, &mut verdict);
    immutable::judge(change, &mut verdict);
    template::judge(change, &mut verdict);
    let queue = placement::judge(change, world, &mut verdict);
    limits::judge(change, queue, &mut verdict);
    levels::judge(change, world, &mut verdict);
    // A job that is wrong by itself would only be misunderstood as one that does not fit.
    if verdict.accepted() {
        floor::judge(change, queue, world, &mut verdict);
        never::judge(change, world, &mut verdict);
    }
    verdict
}

/// The job's queue as the world knows it.
fn queue_of<'a>(job: &TrainingJob, world: &'a World) -> (String, Option<&'a Queue>) {
    let namespace = job.metadata.namespace.as_deref().and_then(|n| world.namespace(n));
    let name = translate::job::queue_name(job, namespace.map(|n| &n.annotations)).to_owned();
    let queue = world.queue(&name);
    (name, queue)
}
