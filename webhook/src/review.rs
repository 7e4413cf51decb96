//! One review: from the API server's bytes to an answer. Whatever comes in, the answer is a review or a plain status,
//! never a panic.

use crate::cache::Cache;
use admission::{
    Defaults, JobChange, Verdict, validate_queue, validate_queue_delete, validate_topology, validate_topology_delete,
    validate_training_job,
};
use crds::Code;
use crds::v1alpha1::{Queue, Topology, TrainingJob};
use kube::core::DynamicObject;
use kube::core::admission::{AdmissionRequest, AdmissionResponse, AdmissionReview, Operation};
use serde::de::DeserializeOwned;
use serde_json::Value;
use thiserror::Error;

/// A request that cannot be answered.
#[derive(Debug, Error)]
pub enum ReviewError {
    /// The body is no review.
    #[error("the body is no AdmissionReview of admission.k8s.io/v1: {0}")]
    Malformed(String),
}

/// The request in a body.
///
/// # Errors
/// If the body is no review.
pub fn request_of(body: &[u8]) -> Result<AdmissionRequest<DynamicObject>, ReviewError> {
    let review: AdmissionReview<DynamicObject> =
        serde_json::from_slice(body).map_err(|e| ReviewError::Malformed(e.to_string()))?;
    if review.types.api_version != "admission.k8s.io/v1" || review.types.kind != "AdmissionReview" {
        let types = format!("{} {}", review.types.api_version, review.types.kind);
        return Err(ReviewError::Malformed(format!("it is {types:?}")));
    }
    review.try_into().map_err(|_| ReviewError::Malformed("it has no request".to_owned()))
}

/// Whether the request is about a kind that we judge. Others were never asked for and pass.
#[must_use]
pub fn is_ours(request: &AdmissionRequest<DynamicObject>) -> bool {
    request.kind.group == crds::v1alpha1::GROUP
        && request.sub_resource.as_deref().unwrap_or_default().is_empty()
        && matches!(request.kind.kind.as_str(), "TrainingJob" | "Queue" | "Topology")
}

/// Judges a request by what the cache knows now. An object that cannot be read is refused with its fault.
pub fn judge(request: &AdmissionRequest<DynamicObject>, cache: &Cache) -> Verdict {
    let outcome = match (request.kind.kind.as_str(), &request.operation) {
        ("TrainingJob", Operation::Create | Operation::Update) => training_job(request, cache),
        ("Queue", Operation::Create | Operation::Update) => {
            both::<Queue>(request).map(|(new, old, _)| validate_queue(&new, old.as_ref(), &cache.read()))
        }
        ("Topology", Operation::Create | Operation::Update) => {
            both::<Topology>(request).map(|(new, old, _)| validate_topology(&new, old.as_ref(), &cache.read()))
        }
        ("Queue", Operation::Delete) => Ok(validate_queue_delete(&request.name, &cache.read())),
        ("Topology", Operation::Delete) => match old_of::<Topology>(request) {
            Some(old) => Ok(validate_topology_delete(&old, &cache.read())),
            None => Ok(Verdict::default()),
        },
        _ => Ok(Verdict::default()),
    };
    outcome.unwrap_or_else(|fault| unreadable(&fault))
}

fn training_job(request: &AdmissionRequest<DynamicObject>, cache: &Cache) -> Result<Verdict, String> {
    let (new, old, raw) = both::<TrainingJob>(request)?;
    Ok(validate_training_job(JobChange { new: &new, old: old.as_ref(), raw: Some(&raw) }, &cache.read()))
}

/// The job of a request that makes one, if it can be read.
#[must_use]
pub fn new_job(request: &AdmissionRequest<DynamicObject>) -> Option<TrainingJob> {
    let makes = request.kind.kind == "TrainingJob" && request.operation == Operation::Create;
    makes.then(|| both::<TrainingJob>(request).ok()).flatten().map(|(new, ..)| new)
}

/// The new object, the old one and the new one as it was sent. An old one that cannot be read counts as none: its
/// repair must not be kept back by what is wrong with it.
fn both<K: DeserializeOwned>(request: &AdmissionRequest<DynamicObject>) -> Result<(K, Option<K>, Value), String> {
    let raw = request.object.as_ref().ok_or("the review has no object")?;
    let raw = serde_json::to_value(raw).map_err(|e| e.to_string())?;
    let new = serde_json::from_value(raw.clone()).map_err(|e| e.to_string())?;
    Ok((new, old_of(request), raw))
}

fn old_of<K: DeserializeOwned>(request: &AdmissionRequest<DynamicObject>) -> Option<K> {
    let raw = serde_json::to_value(request.old_object.as_ref()?).ok()?;
    serde_json::from_value(raw).ok()
}

fn unreadable(fault: &str) -> Verdict {
    let message = format!("spec: {fault}; correct it");
    let rejection =
        admission::Rejection { code: Code::InvalidSpec, field: "spec".into(), value: String::new(), message };
    Verdict { rejections: vec![rejection], ..Verdict::default() }
}

/// The answer to a validating review.
#[must_use]
pub fn answer(request: &AdmissionRequest<DynamicObject>, verdict: Verdict) -> AdmissionReview<DynamicObject> {
    let mut response = AdmissionResponse::from(request);
    if !verdict.accepted() {
        response = response.deny(verdict.message());
        response.result.code = 422;
        response.result.reason = verdict.rejections.first().map(|r| r.code.to_string()).unwrap_or_default();
    }
    response.warnings = Some(verdict.warnings).filter(|w| !w.is_empty());
    response.into_review()
}

/// The answer to a mutating review: what a new job does not say is filled in.
///
/// # Errors
/// If the patch cannot be written.
pub fn fill_in(
    request: &AdmissionRequest<DynamicObject>,
    cache: &Cache,
) -> Result<AdmissionReview<DynamicObject>, String> {
    let response = AdmissionResponse::from(request);
    let made = request.kind.kind == "TrainingJob" && request.operation == Operation::Create;
    // An object that cannot be read is refused by the validating review, with its fault.
    let Some((job, _, raw)) = both::<TrainingJob>(request).ok().filter(|_| made) else {
        return Ok(response.into_review());
    };
    let user = request.user_info.username.as_deref().unwrap_or_default();
    let operations = Defaults::of(&job, user, &cache.read()).patch(&raw);
    let patch = serde_json::from_value(Value::Array(operations)).map_err(|e| e.to_string())?;
    Ok(response.with_patch(patch).map_err(|e| e.to_string())?.into_review())
}

/// Refuses since nobody can know: the caches are empty or the API server does not answer.
#[must_use]
pub fn not_ready(request: &AdmissionRequest<DynamicObject>, why: &str) -> AdmissionReview<DynamicObject> {
    let mut response =
        AdmissionResponse::from(request).deny(format!("{}: {why}; try again in a few seconds", Code::NotReady));
    response.result.code = 503;
    response.result.reason = Code::NotReady.to_string();
    response.into_review()
}
