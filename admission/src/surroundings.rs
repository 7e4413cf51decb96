//! Rules of a new job against what stands in its namespace under the names that it uses: a Service of its own name, and
//! the claims that its pods mount. Read for the one job, not kept.

use crate::verdict::{Verdict, quoted};
use crds::Code;
use crds::v1alpha1::{NODE_LEVEL, RendezvousKind, TrainingJob};
use std::collections::{BTreeMap, BTreeSet};
use translate::volumes::BY_HAND;

/// A claim as it was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClaimFacts {
    /// Its access modes.
    pub access_modes: Vec<String>,
    /// It has its volume.
    pub bound: bool,
    /// That volume exists on one node alone.
    pub local: bool,
    /// Who makes volumes of its class, where it is not bound and its class exists.
    pub provisioner: Option<String>,
}

/// What was found in a job's namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Surroundings {
    /// A Service of the job's name that no TrainingJob owns.
    pub service_taken: bool,
    /// The claims that its templates name; none for one that does not exist.
    pub claims: BTreeMap<String, Option<ClaimFacts>>,
    /// Classes of volumes that are to be made for each pod, but whose volumes nobody makes.
    pub by_hand: BTreeSet<String>,
}

/// Names of the claims that a job's templates name.
#[must_use]
pub fn claims_of(job: &TrainingJob) -> BTreeSet<&str> {
    job.spec.roles.iter().flat_map(claims_of_role).collect()
}

fn claims_of_role(role: &crds::v1alpha1::Role) -> impl Iterator<Item = &str> {
    role.template.spec.iter().flat_map(translate::volumes::claims_of)
}

/// Names of the classes of volumes that are to be made for each pod of a job.
#[must_use]
pub fn classes_of(job: &TrainingJob) -> BTreeSet<&str> {
    job.spec.roles.iter().filter_map(|r| r.template.spec.as_ref()).flat_map(translate::volumes::classes_of).collect()
}

/// Judges a new job by what was found.
pub fn judge(job: &TrainingJob, found: &Surroundings, verdict: &mut Verdict) {
    let name = job.metadata.name.as_deref().unwrap_or_default();
    if found.service_taken && job.spec.rendezvous.kind != RendezvousKind::None {
        let fault = "a Service of that name exists and is not the job's; rename the job, remove the Service, or set rendezvous.kind: None";
        verdict.refuse(Code::ServiceNameTaken, "metadata.name", quoted(name), fault);
    }
    for (claim, facts) in &found.claims {
        match facts {
            None => verdict.warn(format!("claim \"{claim}\" does not exist yet: the job waits until it is made")),
            Some(facts) => serves(job, claim, facts, verdict),
        }
    }
    for (row, role) in job.spec.roles.iter().enumerate() {
        let classes = role.template.spec.iter().flat_map(translate::volumes::classes_of);
        if let Some(class) = classes.into_iter().find(|c| found.by_hand.contains(*c)) {
            let field = format!("spec.roles[{row}].template.spec.volumes");
            let fault = "it makes no volumes, so none can be made for each pod; name a class with a provisioner";
            verdict.refuse(Code::VolumeUnsupported, field, format!("StorageClass \"{class}\""), fault);
        }
    }
}

fn serves(job: &TrainingJob, claim: &str, facts: &ClaimFacts, verdict: &mut Verdict) {
    let users: Vec<usize> =
        (0..job.spec.roles.len()).filter(|row| claims_of_role(&job.spec.roles[*row]).any(|c| c == claim)).collect();
    let Some(first) = users.first() else { return };
    let field = format!("spec.roles[{first}].template.spec.volumes");
    let pods: i64 = users.iter().map(|row| i64::from(job.spec.roles[*row].replicas)).sum();
    let on_one_node = job.spec.topology.required.as_deref() == Some(NODE_LEVEL);
    if !translate::volumes::serves(&facts.access_modes, pods, on_one_node || facts.local) {
        let fault = format!(
            "it is {} and {pods} pods use it, which may run on several nodes; use a claim that many nodes can mount (ReadWriteMany, ReadOnlyMany)",
            facts.access_modes.join(", ")
        );
        verdict.refuse(Code::VolumeUnsupported, field.clone(), format!("claim \"{claim}\""), &fault);
    }
    if !facts.bound && facts.provisioner.as_deref() == Some(BY_HAND) {
        let fault = "it is not bound and its class makes no volumes, so none can be made where the job is placed; bind it first, or use another class";
        verdict.refuse(Code::VolumeUnsupported, field, format!("claim \"{claim}\""), fault);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn mk_job(replicas: i32) -> TrainingJob {
        let volume = json!({"name": "data", "persistentVolumeClaim": {"claimName": "data"}});
        let template = json!({"spec": {"containers": [{"name": "c"}], "volumes": [volume]}});
        serde_json::from_value(
            json!({"apiVersion": "berth.dev/v1alpha1", "kind": "TrainingJob", "metadata": {"name": "j"},
            "spec": {"roles": [{"name": "w", "replicas": replicas, "template": template}]}}),
        )
        .expect("a TrainingJob")
    }

    fn judged(job: &TrainingJob, facts: Option<ClaimFacts>) -> Verdict {
        let mut verdict = Verdict::default();
        let claims = BTreeMap::from([("data".to_owned(), facts)]);
        judge(job, &Surroundings { claims, ..Surroundings::default() }, &mut verdict);
        verdict
    }

    fn mk_claim(mode: &str, bound: bool, provisioner: &str) -> Option<ClaimFacts> {
        Some(ClaimFacts { access_modes: vec![mode.into()], bound, local: false, provisioner: Some(provisioner.into()) })
    }

    #[test]
    fn a_claim_must_serve_every_pod_that_uses_it() {
        assert!(judged(&mk_job(2), mk_claim("ReadWriteMany", true, "x")).accepted());
        assert!(judged(&mk_job(1), mk_claim("ReadWriteOnce", true, "x")).accepted());
        let refused = judged(&mk_job(2), mk_claim("ReadWriteOnce", true, "x"));
        assert_eq!(refused.rejections[0].code, Code::VolumeUnsupported);
        assert!(
            refused.message().contains("claim \"data\": it is ReadWriteOnce and 2 pods use it"),
            "{}",
            refused.message()
        );
        let mut on_one_node = mk_job(2);
        on_one_node.spec.topology.required = Some(NODE_LEVEL.into());
        assert!(judged(&on_one_node, mk_claim("ReadWriteOnce", true, "x")).accepted());
    }

    #[test]
    fn a_claim_that_nobody_can_fill_is_refused_and_a_missing_one_waited_for() {
        assert!(!judged(&mk_job(1), mk_claim("ReadWriteOnce", false, BY_HAND)).accepted());
        assert!(judged(&mk_job(1), mk_claim("ReadWriteOnce", true, BY_HAND)).accepted());
        let missing = judged(&mk_job(1), None);
        assert!(missing.accepted());
        assert_eq!(missing.warnings, ["claim \"data\" does not exist yet: the job waits until it is made"]);
    }

    #[test]
    fn volumes_for_each_pod_need_a_class_that_makes_them() {
        let volume =
            json!({"name": "s", "ephemeral": {"volumeClaimTemplate": {"spec": {"storageClassName": "local"}}}});
        let mut job = mk_job(2);
        job.spec.roles[0].template.spec.as_mut().expect("has one").volumes =
            serde_json::from_value(json!([volume])).expect("volumes");
        assert_eq!(classes_of(&job), BTreeSet::from(["local"]));
        let mut verdict = Verdict::default();
        judge(
            &job,
            &Surroundings { by_hand: BTreeSet::from(["local".into()]), ..Surroundings::default() },
            &mut verdict,
        );
        assert!(verdict.message().contains("StorageClass \"local\": it makes no volumes"), "{}", verdict.message());
    }

    #[test]
    fn somebody_else_s_service_of_the_same_name_is_in_the_way() {
        let found = Surroundings { service_taken: true, ..Surroundings::default() };
        let mut verdict = Verdict::default();
        judge(&mk_job(1), &found, &mut verdict);
        assert_eq!(verdict.rejections[0].code, Code::ServiceNameTaken);
        let mut alone = mk_job(1);
        alone.spec.rendezvous.kind = RendezvousKind::None;
        let mut verdict = Verdict::default();
        judge(&alone, &found, &mut verdict);
        assert!(verdict.accepted());
    }
}
