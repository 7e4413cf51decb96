//! Submissions in file order, through the same admission as the webhook's.

use super::{RunError, Runner, stored};
use crate::scenario::event::What;
use crate::scenario::life::Life;
use crate::scenario::shorthand::Submission;
use crds::v1alpha1::Phase as JobPhase;
use planner::job::Phase;
use translate::time;

impl Runner<'_> {
    pub(super) fn submit_due(&mut self) -> Result<(), RunError> {
        while let Some(submission) = self.submissions.get(self.next_submission).copied().filter(|s| s.at <= self.now) {
            self.next_submission += 1;
            self.submit(submission)?;
        }
        Ok(())
    }

    pub(super) fn submit(&mut self, submission: &Submission) -> Result<(), RunError> {
        let key = stored(&submission.name());
        match self.gate.judge(&submission.manifest, None) {
            Err(refusal) => {
                self.rejected.insert(key.clone(), self.now);
                self.tell(&key, What::Rejected { code: refusal.code, message: refusal.message });
                Ok(())
            }
            Ok(mut job) => {
                let number = self.store.sequence.len() as u64 + self.deleted.len() as u64;
                job.metadata.uid = Some(format!("{number:08}"));
                job.metadata.generation = Some(1);
                no_grace_unless_asked(&mut job);
                let suspended = job.spec.suspend;
                self.store.jobs.insert(key.clone(), job);
                self.store.sequence.insert(key.clone(), number);
                self.lives.insert(key.clone(), Life::of(submission));
                let at = time::timestamp(self.now);
                if let Some(status) = self.store.status(&key) {
                    status.submitted_at = at;
                    status.phase = Some(if suspended { JobPhase::Suspended } else { JobPhase::Pending });
                }
                self.gate.see_job(&self.store, &key);
                if !suspended {
                    self.operator.add_job(&self.store, &key, self.now, Phase::Waiting(Box::default()), self.now)?;
                }
                Ok(())
            }
        }
    }
}

/// A grace of 0 s is the simulator's default, where a cluster's is 30 s.
fn no_grace_unless_asked(job: &mut crds::TrainingJob) {
    let of_template =
        |r: &crds::v1alpha1::Role| r.template.spec.as_ref().and_then(|s| s.termination_grace_period_seconds);
    let asked = job.spec.checkpoint.is_some_and(|c| c.grace_period.is_some())
        || job.spec.roles.iter().any(|r| of_template(r).is_some());
    if !asked {
        job.spec.checkpoint.get_or_insert_default().grace_period = Some(crds::Duration::ZERO);
    }
}
