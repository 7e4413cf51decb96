//! Rules of one `Berth`: what even its own writer may never do.

use kube::core::Rule;

use super::rule;

fn stays(field: &str) -> Rule {
    rule(
        format!("self.{field} == oldSelf.{field}"),
        &format!("spec.{field} cannot change: a Berth belongs to one incarnation of one job"),
        &[],
        &format!(".{field}"),
    )
}

pub(crate) fn job_stays() -> Rule {
    stays("job")
}

pub(crate) fn job_uid_stays() -> Rule {
    stays("jobUid")
}

pub(crate) fn incarnation_stays() -> Rule {
    stays("incarnation")
}

pub(crate) fn released_is_final() -> Rule {
    rule(
        "oldSelf.state != 'Released' || self.state == 'Released'",
        "spec.state is %s, but the Berth was Released: make a new one",
        &["self.state"],
        ".state",
    )
}

pub(crate) fn committed_is_not_taken_back() -> Rule {
    rule(
        "oldSelf.state != 'Committed' || self.state != 'Reserved'",
        "spec.state is Reserved, but the Berth was Committed: release it first",
        &[],
        ".state",
    )
}

pub(crate) fn end_after_start() -> Rule {
    rule(
        "!has(self.start) || !has(self.end) || self.start <= self.end",
        "spec.end is before spec.start: a window ends after it begins",
        &[],
        ".end",
    )
}
