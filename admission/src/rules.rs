//! The CRDs' own rules with their codes: what the API server judges by itself before it asks anybody.

use crate::verdict::{Rejection, Verdict};
use crds::Code;
use crds::cel::{Broken, Rules};
use crds::v1alpha1::{Queue, Topology, TrainingJob};
use serde::Serialize;
use std::sync::LazyLock;

static TRAINING_JOB: LazyLock<Rules> = LazyLock::new(Rules::of::<TrainingJob>);
static QUEUE: LazyLock<Rules> = LazyLock::new(Rules::of::<Queue>);
static TOPOLOGY: LazyLock<Rules> = LazyLock::new(Rules::of::<Topology>);

/// Judges a job by its own rules.
pub(crate) fn training_job(new: &TrainingJob, old: Option<&TrainingJob>, verdict: &mut Verdict) {
    judge(&TRAINING_JOB, new, old, verdict);
}

/// Judges a queue by its own rules.
pub(crate) fn queue(new: &Queue, old: Option<&Queue>, verdict: &mut Verdict) {
    judge(&QUEUE, new, old, verdict);
}

/// Judges a Topology by its own rules.
pub(crate) fn topology(new: &Topology, old: Option<&Topology>, verdict: &mut Verdict) {
    judge(&TOPOLOGY, new, old, verdict);
}

fn judge<K: Serialize>(rules: &Rules, new: &K, old: Option<&K>, verdict: &mut Verdict) {
    for broken in rules.broken(new, old) {
        let (code, value) = (code_of(&broken), value_of(&broken.message));
        let (field, message) = (field_of(&broken), broken.message);
        verdict.rejections.push(Rejection { code, field, value, message });
    }
}

/// What a message says begins with what it is about; the first match wins.
const CODES: [(&str, Code); 24] = [
    ("while the job holds nodes", Code::FieldImmutable),
    ("metadata.name is", Code::InvalidName),
    ("spec.roles: the name", Code::DuplicateRole),
    ("replicas are together", Code::TooManyPods),
    ("names a role", Code::UnknownRole),
    ("is no role of the job", Code::UnknownRole),
    ("goes in a circle", Code::DependencyCycle),
    ("depends on itself", Code::DependencyCycle),
    ("minReplicas of role", Code::FloorAboveReplicas),
    ("replicas of role", Code::FloorAboveReplicas),
    ("slice.size of role", Code::SliceDoesNotDivide),
    ("spec.expectedRuntime is", Code::RuntimeTooLong),
    ("spec.defaults.maxRuntime is", Code::RuntimeTooLong),
    ("topology.preferred is", Code::PreferredNotNarrower),
    ("template.spec.resourceClaims", Code::NotSupported),
    ("template.spec", Code::TemplateUnsupported),
    ("template.metadata", Code::TemplateUnsupported),
    ("spec.parent is", Code::QueueCycle),
    ("spec.guarantee of", Code::GuaranteeOverLimit),
    ("spec.defaults.priorityClassName", Code::PriorityClassNotAllowed),
    ("spec.levels is empty", Code::NoLevels),
    ("spec.levels: ", Code::DuplicateLevel),
    ("cannot change", Code::FieldImmutable),
    ("spec.preset is", Code::InvalidSpec),
];

fn code_of(broken: &Broken) -> Code {
    CODES.iter().find(|(part, _)| broken.message.contains(part)).map_or(Code::InvalidSpec, |(_, code)| *code)
}

/// The field's path; rules of the whole object name none, and are about its name.
fn field_of(broken: &Broken) -> String {
    let path = broken.field.trim_start_matches('.');
    if path.is_empty() { "metadata.name".to_owned() } else { path.to_owned() }
}

/// The value that a message names: what stands between `is` and the next colon or comma, if that is one word or quoted.
fn value_of(message: &str) -> String {
    let after = message.split_once(" is ").map_or("", |(_, rest)| rest);
    let end = after.find([':', ',']).unwrap_or(0);
    let value = &after[..end];
    let plain = !value.contains(' ') && !matches!(value, "set" | "empty");
    if plain || value.starts_with('"') { value.to_owned() } else { String::new() }
}
