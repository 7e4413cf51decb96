//! The stream of changes after a version, as one client's connection sees it: in order, a little late, with bookmarks,
//! until its time is over, it is cut, or the version is forgotten.

use super::http::{BodyError, Shared};
use super::status::Status;
use super::store::{Change, What};
use super::verbs::Call;
use bytes::Bytes;
use futures::Stream;
use futures::stream::unfold;
use http_body::Frame;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// Between two bookmarks.
const BOOKMARKS: Duration = Duration::from_secs(60);

struct Watching {
    shared: Arc<Shared>,
    call: Call,
    version: u64,
    ends: Instant,
    bookmark: Instant,
    cut: u64,
    mute: u64,
    news: Arc<Notify>,
    over: bool,
}

/// The changes of what a call selects, after a version.
pub(super) fn stream(
    shared: Arc<Shared>,
    call: Call,
    version: u64,
) -> impl Stream<Item = Result<Frame<Bytes>, BodyError>> + Send + 'static {
    let seconds = call.query.get("timeoutSeconds").and_then(|s| s.parse().ok()).unwrap_or(300);
    let now = Instant::now();
    let (cut, mute, news) = {
        let server = shared.lock();
        (shared.cuts(), shared.mutes(), server.store.news())
    };
    let ends = now + Duration::from_secs(seconds);
    let watching = Watching { shared, call, version, ends, bookmark: now + BOOKMARKS, cut, mute, news, over: false };
    unfold(watching, |mut watching| async move {
        let chunk = watching.next().await?;
        Some((Ok(Frame::data(chunk)), watching))
    })
}

impl Watching {
    async fn next(&mut self) -> Option<Bytes> {
        let news = self.news.clone();
        loop {
            let heard = news.notified();
            tokio::pin!(heard);
            heard.as_mut().enable();
            if self.over || self.cut != self.shared.cuts() {
                return None;
            }
            if self.mute != self.shared.mutes() {
                // Dead without a sign: nothing comes any more, not even an end.
                std::future::pending::<()>().await;
            }
            if let Some(lines) = self.due() {
                return Some(lines);
            }
            let until = self.ends.min(self.bookmark);
            tokio::select! {
                biased;
                () = &mut heard => {
                    let lag = self.shared.watch_lag();
                    tokio::time::sleep(lag).await;
                }
                () = tokio::time::sleep_until(until) => {
                    if let Some(bookmark) = self.mark_time() {
                        return Some(bookmark);
                    }
                }
            }
        }
    }

    /// What there is to say now.
    fn due(&mut self) -> Option<Bytes> {
        let server = self.shared.lock();
        let Some(changes) = server.store.after(self.version) else {
            self.over = true;
            return Some(line("ERROR", &Status::expired().body()));
        };
        let mut all = Vec::new();
        let mut version = self.version;
        for change in changes {
            version = change.version;
            if let Some(kind) = self.seen_as(change) {
                all.extend_from_slice(&line(kind, &change.object));
            }
        }
        self.version = version;
        (!all.is_empty()).then(|| Bytes::from(all))
    }

    /// What a change is to somebody who sees only what he selected.
    fn seen_as(&self, change: &Change) -> Option<&'static str> {
        if change.key.kind != self.call.kind.kind
            || !(self.call.namespace.is_empty() || self.call.namespace == change.key.namespace)
        {
            return None;
        }
        let before = change.before.as_ref().is_some_and(|o| self.call.selects(o));
        let after = change.what != What::Deleted && self.call.selects(&change.object);
        match (before, after) {
            (false, true) => Some("ADDED"),
            (true, true) => Some("MODIFIED"),
            (true, false) => Some("DELETED"),
            (false, false) => None,
        }
    }

    fn mark_time(&mut self) -> Option<Bytes> {
        let now = Instant::now();
        self.over = now >= self.ends;
        if !self.over && now < self.bookmark {
            return None;
        }
        self.bookmark = now + BOOKMARKS;
        let wanted = self.call.query.get("allowWatchBookmarks").is_some_and(|v| v == "true");
        let kind = self.call.kind;
        let object = json!({
            "kind": kind.kind, "apiVersion": kind.api_version(),
            "metadata": {"resourceVersion": self.version.to_string(), "creationTimestamp": null},
        });
        wanted.then(|| line("BOOKMARK", &object))
    }
}

fn line(kind: &str, object: &Value) -> Bytes {
    let mut text = json!({"type": kind, "object": object}).to_string();
    text.push('\n');
    Bytes::from(text)
}
