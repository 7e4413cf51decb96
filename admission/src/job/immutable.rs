//! What may not change: who made a job, ever; and what its pods are made from, while it holds nodes.

use super::JobChange;
use crate::verdict::{Verdict, quoted};
use crds::Code;
use crds::v1alpha1::{Phase, TrainingJob};

pub(super) fn judge(change: JobChange<'_>, verdict: &mut Verdict) {
    let Some(old) = change.old else { return };
    let (was, is) = (translate::job::user(old), translate::job::user(change.new));
    if was != is {
        let fault = format!("it says who made the job and stays {}; leave it as it is", quoted(was));
        verdict.refuse(Code::FieldImmutable, "metadata.annotations[berth.dev/user]", quoted(is), &fault);
    }
    if holds_nodes(old) {
        templates_stay(change.new, old, verdict);
    }
}

/// Whether a job holds nodes, by the phase that its own rules look at too.
fn holds_nodes(job: &TrainingJob) -> bool {
    let phase = job.status.as_ref().and_then(|s| s.phase);
    matches!(phase, Some(Phase::Starting | Phase::Running))
}

/// Templates are compared here: the schema keeps their unknown fields, which the CRD's rules cannot see.
fn templates_stay(new: &TrainingJob, old: &TrainingJob, verdict: &mut Verdict) {
    for (row, role) in new.spec.roles.iter().enumerate() {
        let before = old.spec.roles.iter().find(|r| r.name == role.name);
        if before.is_some_and(|before| before.template != role.template) {
            let fault = format!(
                "the template of role \"{}\" cannot change while the job holds nodes: set suspend: true first, or submit a new job",
                role.name
            );
            verdict.refuse(Code::FieldImmutable, format!("spec.roles[{row}].template"), "", &fault);
        }
    }
}
