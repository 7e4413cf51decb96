//! The HTTP side: routes, limits of size and time, and health.

use crate::cache::Cache;
use crate::{live, review};
use admission::{Missing, Verdict, surroundings};
use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use kube::Client;
use kube::core::DynamicObject;
use kube::core::admission::{AdmissionRequest, AdmissionReview};
use serde_json::json;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// A review holds two objects, each at most what etcd takes (1.5 MiB), in JSON.
const BODY_LIMIT: usize = 8 << 20;
/// Below the API server's patience (5 s in config/webhook), so that our reason is read and not its.
const ANSWER_LIMIT: Duration = Duration::from_millis(4500);

/// What every request needs.
#[derive(Clone)]
pub struct Shared {
    /// The cluster.
    pub cache: Cache,
    /// For what the cache does not know.
    pub client: Client,
    /// The API server trusts what we serve.
    pub injected: Arc<AtomicBool>,
    /// The user whose writes are not reviewed.
    pub controller_user: Arc<str>,
}

/// The routes served by TLS.
pub fn reviews(shared: Shared) -> Router {
    Router::new()
        .route(crate::configuration::VALIDATE, post(validate))
        .route(crate::configuration::MUTATE, post(mutate))
        .route("/healthz", get(|| async { "ok" }))
        .route("/readyz", get(ready))
        .layer(DefaultBodyLimit::max(BODY_LIMIT))
        .with_state(shared)
}

/// The routes served without TLS.
pub fn health(shared: Shared) -> Router {
    Router::new().route("/healthz", get(|| async { "ok" })).route("/readyz", get(ready)).with_state(shared)
}

async fn ready(State(shared): State<Shared>) -> Response {
    let missing = shared.cache.missing();
    if !missing.is_empty() {
        return (StatusCode::SERVICE_UNAVAILABLE, format!("not listed yet: {}", missing.join(", "))).into_response();
    }
    if !shared.injected.load(Ordering::Relaxed) {
        return (StatusCode::SERVICE_UNAVAILABLE, "not in the webhook configurations yet").into_response();
    }
    "ok".into_response()
}

type Review = AdmissionReview<DynamicObject>;

async fn validate(State(shared): State<Shared>, body: Bytes) -> Response {
    answer(&shared, &body, |shared, request| async move {
        match verdict(&shared, request.clone()).await {
            Ok(verdict) => {
                log(&request, &verdict);
                Ok(review::answer(&request, verdict))
            }
            Err(why) => Ok(review::not_ready(&request, &why)),
        }
    })
    .await
}

async fn mutate(State(shared): State<Shared>, body: Bytes) -> Response {
    answer(&shared, &body, |shared, request| async move { review::fill_in(&request, &shared.cache) }).await
}

/// The frame of every review: reads it, lets pass what is not ours to judge, and bounds the time.
async fn answer<F>(
    shared: &Shared,
    body: &[u8],
    judge: impl FnOnce(Shared, Arc<AdmissionRequest<DynamicObject>>) -> F,
) -> Response
where
    F: Future<Output = Result<Review, String>>,
{
    let request = match review::request_of(body) {
        Ok(request) => Arc::new(request),
        Err(error) => return refused(StatusCode::BAD_REQUEST, "BadRequest", &error.to_string()),
    };
    let by_controller = request.user_info.username.as_deref() == Some(&*shared.controller_user);
    if by_controller || !review::is_ours(&request) {
        return axum::Json(review::answer(&request, Verdict::default())).into_response();
    }
    let missing = shared.cache.missing();
    if !missing.is_empty() {
        let why = format!("the webhook has not seen every {} yet", missing.join(", "));
        return axum::Json(review::not_ready(&request, &why)).into_response();
    }
    match tokio::time::timeout(ANSWER_LIMIT, judge(shared.clone(), request.clone())).await {
        Ok(Ok(review)) => axum::Json(review).into_response(),
        Ok(Err(fault)) => refused(StatusCode::INTERNAL_SERVER_ERROR, "InternalError", &fault),
        Err(_) => axum::Json(review::not_ready(&request, "judging it took too long")).into_response(),
    }
}

/// The verdict: by the rules, then by what stands in a new job's namespace.
async fn verdict(shared: &Shared, request: Arc<AdmissionRequest<DynamicObject>>) -> Result<Verdict, String> {
    let mut verdict = by_rules(shared, request.clone()).await?;
    if let Some(job) = review::new_job(&request).filter(|_| verdict.accepted()) {
        surroundings::judge(&job, &live::surroundings(&shared.client, &job).await, &mut verdict);
    }
    Ok(verdict)
}

/// What was looked for in vain is read live before anybody is refused for it: once each, since what is found may ask for
/// more.
async fn by_rules(shared: &Shared, request: Arc<AdmissionRequest<DynamicObject>>) -> Result<Verdict, String> {
    let mut verdict = judge(&shared.cache, request.clone()).await?;
    let (fresh, mut looked) = (shared.cache.copy(), BTreeSet::new());
    loop {
        let missing: Vec<Missing> = verdict.missing.iter().filter(|m| !looked.contains(*m)).cloned().collect();
        if missing.is_empty() {
            return Ok(verdict);
        }
        match live::look(&shared.client, &fresh, &missing).await {
            Ok(true) => verdict = judge(&fresh, request.clone()).await?,
            Ok(false) => return Ok(verdict),
            Err(error) => return Err(format!("what the object names could not be looked up ({error})")),
        }
        looked.extend(missing);
    }
}

/// Judges beside the async threads: the question whether a gang could ever fit is work. A rule that panics is an answer
/// too.
async fn judge(cache: &Cache, request: Arc<AdmissionRequest<DynamicObject>>) -> Result<Verdict, String> {
    let cache = cache.clone();
    let task = tokio::task::spawn_blocking(move || review::judge(&request, &cache));
    task.await.map_err(|error| {
        tracing::error!(%error, "a rule failed");
        "a rule of the webhook failed, which its log tells more of".to_owned()
    })
}

fn log(request: &AdmissionRequest<DynamicObject>, verdict: &Verdict) {
    if !verdict.accepted() {
        let namespace = request.namespace.as_deref().unwrap_or_default();
        let user = request.user_info.username.as_deref().unwrap_or_default();
        tracing::info!(
            kind = request.kind.kind,
            namespace,
            name = request.name,
            user,
            why = verdict.message(),
            "refused"
        );
    }
}

/// A status of Kubernetes, for what is no review.
fn refused(code: StatusCode, reason: &str, message: &str) -> Response {
    let status = json!({"apiVersion": "v1", "kind": "Status", "status": "Failure",
        "code": code.as_u16(), "reason": reason, "message": message});
    (code, axum::Json(status)).into_response()
}
