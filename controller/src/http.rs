//! The controller's own small server: `/healthz`, `/readyz`, `/metrics`. Read only.

use crate::health::Pulse;
use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;
use prometheus::{Encoder, Registry, TextEncoder};
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;

/// What the pages show.
#[derive(Clone)]
pub struct Pages {
    /// Whether we are well.
    pub pulse: Arc<Pulse>,
    /// All metrics.
    pub registry: Registry,
}

/// Serves until `stop` comes.
///
/// # Errors
/// If the address cannot be listened on.
pub async fn serve(
    address: SocketAddr,
    pages: Pages,
    stop: impl Future<Output = ()> + Send + 'static,
) -> std::io::Result<()> {
    let listener = tokio::net::TcpListener::bind(address).await?;
    tracing::info!(address = %listener.local_addr()?, "serving /healthz, /readyz and /metrics");
    axum::serve(listener, router(pages)).with_graceful_shutdown(stop).await
}

/// The pages.
pub fn router(pages: Pages) -> Router {
    Router::new()
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .with_state(pages)
}

async fn healthz(State(pages): State<Pages>) -> (StatusCode, &'static str) {
    if pages.pulse.is_alive() {
        (StatusCode::OK, "ok\n")
    } else {
        (StatusCode::INTERNAL_SERVER_ERROR, "the owner of the state has not come round for two minutes\n")
    }
}

async fn readyz(State(pages): State<Pages>) -> (StatusCode, String) {
    match pages.pulse.ready() {
        Ok(how) => (StatusCode::OK, format!("{how}\n")),
        Err(missing) => (StatusCode::SERVICE_UNAVAILABLE, missing),
    }
}

async fn metrics(State(pages): State<Pages>) -> (StatusCode, String) {
    let mut text = Vec::new();
    match TextEncoder::new().encode(&pages.registry.gather(), &mut text) {
        Ok(()) => (StatusCode::OK, String::from_utf8_lossy(&text).into_owned()),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
    }
}
