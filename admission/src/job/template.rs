//! What the schema lets pass in a pod template: fields that would be lost, values that nobody could read, and features
//! that this version does not have.

use super::JobChange;
use crate::verdict::{Verdict, quoted};
use crds::Code;
use crds::v1alpha1::{Role, TrainingJob};
use serde_json::Value;

/// Annotations by which pods ask an autoscaler for nodes; our pods are made only where there is room.
const PROVISIONING: [&str; 3] = [
    "autoscaling.x-k8s.io/consume-provisioning-request",
    "cluster-autoscaler.kubernetes.io/consume-provisioning-request",
    "autoscaling.x-k8s.io/provisioning-class-name",
];

pub(super) fn judge(change: JobChange<'_>, verdict: &mut Verdict) {
    for (row, role) in change.new.spec.roles.iter().enumerate() {
        let of_role =
            |job: &TrainingJob| job.spec.roles.iter().find(|r| r.name == role.name).map(|r| r.template.clone());
        if change.changed(of_role) {
            known(change.raw, row, verdict);
            provisions_nothing(row, role, verdict);
        }
        if !is_label(&role.name) {
            let fault = "a role's name is a DNS label: at most 63 lower-case letters, digits and dashes";
            verdict.refuse(Code::InvalidSpec, format!("spec.roles[{row}].name"), quoted(&role.name), fault);
        }
    }
    let roles = change.new.spec.roles.len();
    if !(1..=16).contains(&roles) {
        verdict.refuse(Code::InvalidSpec, "spec.roles", format!("{roles} roles"), "a job has 1 to 16 roles");
    }
    if change.changed(|job| job.spec.roles.iter().map(|r| r.template.spec.clone()).collect::<Vec<_>>()) {
        readable(change.new, verdict);
    }
}

/// What the planner could not read is refused where the user can see it.
fn readable(job: &TrainingJob, verdict: &mut Verdict) {
    if let Err(error) = translate::job::asks(job) {
        verdict.refuse(Code::InvalidSpec, error.field, "", &error.fault.to_string());
    }
}

fn known(raw: Option<&Value>, row: usize, verdict: &mut Verdict) {
    let Some(template) = raw.and_then(|r| r.pointer(&format!("/spec/roles/{row}/template"))) else { return };
    for path in crds::unknown_fields(template) {
        let fault = "this version does not know the field, so it would be lost; correct its spelling, or remove it";
        verdict.refuse(Code::UnknownField, format!("spec.roles[{row}].{path}"), "", fault);
    }
}

fn provisions_nothing(row: usize, role: &Role, verdict: &mut Verdict) {
    let noted = role.template.metadata.as_ref().and_then(|m| m.annotations.as_ref());
    for name in PROVISIONING.iter().filter(|name| noted.is_some_and(|a| a.contains_key(**name))) {
        let field = format!("spec.roles[{row}].template.metadata.annotations[{name}]");
        let fault =
            "ProvisioningRequests and scaling nodes up are not part of v1alpha1; remove it, and add nodes before";
        verdict.refuse(Code::NotSupported, field, "", fault);
    }
}

fn is_label(name: &str) -> bool {
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    (1..=63).contains(&name.len()) && name.chars().all(inner) && !name.starts_with('-') && !name.ends_with('-')
}
