//! Every job that waits has one reason, nobody else has one, and claims are made by those who may.

use super::Case;
use super::violation::Violation;
use crate::job::Phase;

pub(super) fn check(case: &Case<'_>, found: &mut Vec<Violation>) {
    // A policy that asks for no explanations gets none.
    if case.policy.explain {
        reasons(case, found);
    }
    claims(case, found);
}

fn reasons(case: &Case<'_>, found: &mut Vec<Violation>) {
    let mut reported: Vec<u32> = Vec::with_capacity(case.plan.pending.len());
    for pending in &case.plan.pending {
        if case.snapshot.state.job(pending.job).is_none() {
            found.push(Violation::NoSuchJob { row: pending.job.0 });
        }
        reported.push(pending.job.0);
    }
    reported.sort_unstable();
    for (row, job) in case.snapshot.state.jobs() {
        let started = case.fates.get(&row).is_some_and(|f| f.begin.is_some());
        let waits = matches!(job.phase, Phase::Waiting(_)) && !started;
        let first = reported.partition_point(|r| *r < row.0);
        let times = reported[first..].iter().take_while(|r| **r == row.0).count();
        let key = || job.spec.key.clone();
        match (waits, times) {
            (true, 0) if !case.policy.explain => {}
            (true, 0) => found.push(Violation::Unexplained { job: key() }),
            (true, 1) | (false, 0) => {}
            _ => found.push(Violation::OddReason { job: key() }),
        }
    }
}

fn claims(case: &Case<'_>, found: &mut Vec<Violation>) {
    for (row, claim) in case.plan.claims.iter().enumerate() {
        let Some(job) = case.snapshot.state.job(claim.job) else {
            found.push(Violation::NoSuchJob { row: claim.job.0 });
            continue;
        };
        let started = case.fates.get(&claim.job).is_some_and(|f| f.begin.is_some());
        let own = job.spec.queue == claim.queue && job.waiting().is_some() && !started;
        if !own || case.plan.claims[..row].iter().any(|c| c.queue == claim.queue) {
            let queue = case.snapshot.state.queue(claim.queue).name.clone();
            found.push(Violation::OddClaim { job: job.spec.key.clone(), queue });
        }
    }
}
