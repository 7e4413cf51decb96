//! Answers that are no objects, in the API server's words.

use super::kinds::Kind;
use serde_json::{Value, json};

/// A failure, as the client reads it.
#[derive(Clone, Debug, PartialEq)]
pub struct Status {
    /// HTTP status.
    pub code: u16,
    /// Kubernetes' reason.
    pub reason: &'static str,
    /// In words.
    pub message: String,
    /// Seconds to wait, if the server says so.
    pub retry_after: Option<u32>,
}

impl Status {
    /// Any failure.
    #[must_use]
    pub fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self { code, reason, message: message.into(), retry_after: None }
    }

    /// 404.
    #[must_use]
    pub fn not_found(kind: &Kind, name: &str) -> Self {
        Self::new(404, "NotFound", format!("{} \"{name}\" not found", kind.resource()))
    }

    /// 409 for a name that is taken.
    #[must_use]
    pub fn exists(kind: &Kind, name: &str) -> Self {
        Self::new(409, "AlreadyExists", format!("{} \"{name}\" already exists", kind.resource()))
    }

    /// 409 for a stale version.
    #[must_use]
    pub fn stale(kind: &Kind, name: &str) -> Self {
        Self::conflict(
            kind,
            name,
            "the object has been modified; please apply your changes to the latest version and try again",
        )
    }

    /// Any other 409.
    #[must_use]
    pub fn conflict(kind: &Kind, name: &str, why: &str) -> Self {
        Self::new(409, "Conflict", format!("Operation cannot be fulfilled on {} \"{name}\": {why}", kind.resource()))
    }

    /// 403.
    #[must_use]
    pub fn forbidden(kind: &Kind, name: &str, why: &str) -> Self {
        Self::new(403, "Forbidden", format!("{} \"{name}\" is forbidden: {why}", kind.resource()))
    }

    /// 422.
    #[must_use]
    pub fn invalid(kind: &Kind, name: &str, why: &str) -> Self {
        let full = if kind.group.is_empty() { kind.kind.to_owned() } else { format!("{}.{}", kind.kind, kind.group) };
        Self::new(422, "Invalid", format!("{full} \"{name}\" is invalid: {why}"))
    }

    /// 400.
    #[must_use]
    pub fn bad(why: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", why)
    }

    /// 410: a version that is forgotten.
    #[must_use]
    pub fn expired() -> Self {
        Self::new(410, "Expired", "The resourceVersion for the provided watch is too old.")
    }

    /// As the body of an answer.
    #[must_use]
    pub fn body(&self) -> Value {
        let mut body = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "reason": self.reason, "code": self.code,
        });
        if let Some(seconds) = self.retry_after {
            body["details"] = json!({"retryAfterSeconds": seconds});
        }
        body
    }
}
