//! A job's times against its queue's limits.

use super::JobChange;
use crate::verdict::Verdict;
use crds::Code;
use crds::v1alpha1::Queue;

pub(super) fn judge(change: JobChange<'_>, queue: Option<&Queue>, verdict: &mut Verdict) {
    let job = change.new;
    let effective = translate::job::max_runtime(job, queue);
    if let Some(limit) = queue.and_then(|q| q.spec.max_runtime_limit)
        && change.raised(|job| translate::job::max_runtime(job, queue))
        && effective.is_none_or(|e| e > limit)
    {
        let value = effective.map_or_else(|| "unlimited".to_owned(), |e| e.to_string());
        let fault = format!("it must be at most the maxRuntimeLimit of its queue, which is {limit}; lower it");
        verdict.refuse(Code::RuntimeTooLong, "spec.maxRuntime", value, &fault);
    }
    // The job's own two are judged by its own rules; this is for a limit that it inherits.
    if let (Some(expected), Some(limit), None) = (job.spec.expected_runtime, effective, job.spec.max_runtime)
        && expected > limit
    {
        let fault = format!(
            "it must be at most maxRuntime, which is {limit} by its queue's default; lower it, or set maxRuntime"
        );
        verdict.refuse(Code::RuntimeTooLong, "spec.expectedRuntime", expected, &fault);
    }
    grace(change, queue, verdict);
}

fn grace(change: JobChange<'_>, queue: Option<&Queue>, verdict: &mut Verdict) {
    let Some(queue) = queue else { return };
    let (grace, most) = (translate::job::grace(change.new), queue.spec.max_grace_period);
    if grace > translate::time::span(most) && change.raised(|job| Some(translate::job::grace(job))) {
        let own = change.new.spec.checkpoint.is_some_and(|c| c.grace_period.is_some());
        let field = if own { "spec.checkpoint.gracePeriod" } else { "spec.roles: terminationGracePeriodSeconds" };
        let fault = format!("it must be at most the maxGracePeriod of its queue, which is {most}; lower it");
        verdict.refuse(Code::GracePeriodTooLong, field, grace, &fault);
    }
}
