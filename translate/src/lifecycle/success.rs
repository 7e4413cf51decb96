//! When a job has succeeded: by the roles its policy names, else by all.

use crds::v1alpha1::TrainingJobSpec;

/// Pods of one role.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Seats of the Berth.
    pub seats: u32,
    /// Seats whose pod succeeded.
    pub succeeded: u32,
}

/// Whether the job has succeeded, by the pods of each role in order. A role without seats decides nothing, and a job
/// whose deciding roles have none has not succeeded.
#[must_use]
pub fn has_succeeded(spec: &TrainingJobSpec, tallies: &[Tally]) -> bool {
    let decides = |name: &str| spec.success_policy.as_ref().is_none_or(|p| p.roles.iter().any(|r| r == name));
    let deciding: Vec<&Tally> = spec
        .roles
        .iter()
        .zip(tallies)
        .filter(|(role, tally)| decides(&role.name) && tally.seats > 0)
        .map(|(_, t)| t)
        .collect();
    !deciding.is_empty() && deciding.iter().all(|t| t.succeeded >= t.seats)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::tests::mk_job;
    use serde_json::json;

    fn succeeded(policy: serde_json::Value, launcher: (u32, u32), worker: (u32, u32)) -> bool {
        let tally = |(seats, succeeded)| Tally { seats, succeeded };
        has_succeeded(&mk_job(policy).spec, &[tally(launcher), tally(worker)])
    }

    #[test]
    fn all_pods_must_succeed_where_nobody_says() {
        assert!(succeeded(json!({}), (1, 1), (4, 4)));
        assert!(!succeeded(json!({}), (1, 1), (4, 3)));
        assert!(!succeeded(json!({}), (0, 0), (0, 0)));
    }

    #[test]
    fn named_roles_decide_alone() {
        let policy = || json!({"successPolicy": {"roles": ["launcher"]}});
        assert!(succeeded(policy(), (1, 1), (4, 0)));
        assert!(!succeeded(policy(), (1, 0), (4, 4)));
    }
}
