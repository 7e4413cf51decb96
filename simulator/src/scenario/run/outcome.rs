//! The report of a run that is over.

use super::{Runner, shown};
use crate::scenario::life::Life;
use crate::scenario::report::{JobReport, PendingReport, RunReport, digest};
use crds::v1alpha1::Phase as JobPhase;
use planner::Time;
use std::collections::BTreeMap;

impl Runner<'_> {
    pub(super) fn report(self) -> RunReport {
        let mut jobs = BTreeMap::new();
        for (key, at) in &self.rejected {
            let report = JobReport {
                submitted: Some(*at),
                started: None,
                finished: None,
                wait: None,
                incarnations: 0,
                phase: "Rejected".into(),
                pending: None,
            };
            jobs.insert(shown(key).to_owned(), report);
        }
        for (key, life) in &self.lives {
            jobs.insert(shown(key).to_owned(), self.job_report(key, life));
        }
        for submission in &self.submissions[self.next_submission..] {
            let report = JobReport {
                submitted: None,
                started: None,
                finished: None,
                wait: None,
                incarnations: 0,
                phase: "NotSubmitted".into(),
                pending: None,
            };
            jobs.entry(submission.name()).or_insert(report);
        }
        let tree = self.operator.state.topology();
        let nodes = (0..tree.node_count()).map(|row| tree.node_name(planner::NodeIdx::of(row)).to_string()).collect();
        RunReport {
            scenario: self.scenario.name.clone(),
            digest: digest(&self.events),
            jobs,
            checks: self.checks,
            faults: self.faults,
            nodes,
            ended: self.now,
            events: self.events,
        }
    }

    pub(super) fn job_report(&self, key: &str, life: &Life) -> JobReport {
        let phase = self.store.jobs.get(key).and_then(|j| j.status.as_ref()?.phase);
        let waits = matches!(phase, Some(JobPhase::Pending | JobPhase::Reserved));
        let pending = self.reasons.get(key).filter(|_| waits);
        JobReport {
            submitted: Some(life.submitted),
            started: life.first_start,
            finished: life.finished,
            wait: life.first_start.map(|start| Time(start.since(life.submitted).0)),
            incarnations: life.incarnations,
            phase: phase.map_or_else(|| "Deleted".into(), |p| format!("{p:?}")),
            pending: pending
                .map(|(code, _, message)| PendingReport { code: code.name().into(), message: message.clone() }),
        }
    }
}
