//! One watcher task per kind: list with quorum, watch, back off, begin anew. What it sees goes as a [`Delta`] over one
//! bounded channel to the single owner of the state.
//!
//! Own loop instead of a shared controller runtime: each kind has its own back-off, restart counter and sign of life, so
//! one bad kind never holds up the others and a watch that died silently is seen.

mod kinds;
mod prune;

pub use kinds::{Delta, spawn_all};
pub use prune::{asking, pruned_pod};

use crate::health::Pulse;
use crate::metrics::Metrics;
use futures::TryStreamExt;
use kube::api::{Api, ListParams, WatchParams};
use kube::core::WatchEvent;
use kube::{Resource, ResourceExt};
use serde::de::DeserializeOwned;
use std::fmt::Debug;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;

/// Shorter than the idle cuts of common load balancers (240 s).
const WATCH_SECONDS: u32 = 200;
/// A watch that says nothing for longer than it may live has died unseen: begun anew.
const SILENCE: Duration = Duration::from_secs(WATCH_SECONDS as u64 + 10);
/// A list, or the beginning of a watch, that is not answered by then never is.
const ANSWER: Duration = Duration::from_secs(60);
/// Objects a page of a list.
const PAGE: u32 = 1000;
/// First pause after trouble; doubles up to [`PAUSE_MAX`].
const PAUSE_MIN: Duration = Duration::from_millis(200);
const PAUSE_MAX: Duration = Duration::from_secs(15);

/// A change of one kind of object.
#[derive(Clone, Debug)]
pub enum Change<K> {
    /// All objects there are; whatever was known before and is not among them is gone.
    Reset(Vec<Arc<K>>),
    /// New or changed.
    Set(Arc<K>),
    /// Deleted, as last seen.
    Gone(Arc<K>),
}

/// What one watcher needs.
pub(crate) struct Watcher<K> {
    kind: &'static str,
    api: Api<K>,
    fields: Option<&'static str>,
    prune: fn(&mut K),
    wrap: fn(Change<K>) -> Delta,
    sender: mpsc::Sender<Delta>,
    pulse: Arc<Pulse>,
    metrics: Arc<Metrics>,
}

/// Why a watch ended.
enum End {
    /// The server closed it in its time: go on from the last version.
    Closed,
    /// The version is too old: list anew.
    Expired,
    /// The receiver is gone: stop.
    Stopped,
}

impl<K> Watcher<K>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
{
    /// Lists and watches for ever.
    async fn run(self) {
        let mut pause = PAUSE_MIN;
        loop {
            match self.list_and_watch(&mut pause).await {
                Ok(End::Stopped) => return,
                Ok(_) => {}
                Err(error) => {
                    tracing::warn!(kind = self.kind, %error, pause_ms = pause.as_millis(), "watch failed");
                    self.pulse.failed(self.kind);
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(PAUSE_MAX);
                }
            }
            self.metrics.watch_restarted(self.kind);
        }
    }

    async fn list_and_watch(&self, pause: &mut Duration) -> kube::Result<End> {
        let Some(mut version) = self.list().await? else { return Ok(End::Stopped) };
        *pause = PAUSE_MIN;
        loop {
            match self.watch(&mut version).await? {
                End::Closed => self.alive(),
                end => return Ok(end),
            }
        }
    }

    /// Reads everything with quorum and hands it over; the version to watch from, or none if nobody listens.
    async fn list(&self) -> kube::Result<Option<String>> {
        let mut params =
            ListParams { field_selector: self.fields.map(str::to_owned), ..ListParams::default() }.limit(PAGE);
        let mut all = Vec::new();
        loop {
            let page = answered(self.api.list(&params)).await?;
            self.alive();
            all.extend(page.items.into_iter().map(|object| self.pruned(object)));
            match page.metadata.continue_.filter(|c| !c.is_empty()) {
                Some(next) => params.continue_token = Some(next),
                None => {
                    let version = page.metadata.resource_version.unwrap_or_default();
                    let sent = self.sender.send((self.wrap)(Change::Reset(all))).await;
                    self.pulse.synced(self.kind);
                    return Ok(sent.is_ok().then_some(version));
                }
            }
        }
    }

    async fn watch(&self, version: &mut String) -> kube::Result<End> {
        let params = WatchParams {
            field_selector: self.fields.map(str::to_owned),
            timeout: Some(WATCH_SECONDS),
            bookmarks: true,
            ..WatchParams::default()
        };
        let stream = answered(self.api.watch(&params, version)).await?;
        futures::pin_mut!(stream);
        loop {
            let Ok(next) = tokio::time::timeout(SILENCE, stream.try_next()).await else { return Ok(End::Closed) };
            let Some(event) = next? else { return Ok(End::Closed) };
            self.alive();
            let change = match event {
                WatchEvent::Added(object) | WatchEvent::Modified(object) => Change::Set(self.pruned(object)),
                WatchEvent::Deleted(object) => Change::Gone(self.pruned(object)),
                WatchEvent::Bookmark(bookmark) => {
                    version.clone_from(&bookmark.metadata.resource_version);
                    continue;
                }
                WatchEvent::Error(status) if status.code == 410 => return Ok(End::Expired),
                WatchEvent::Error(status) => return Err(kube::Error::Api(status)),
            };
            if let Change::Set(object) | Change::Gone(object) = &change {
                *version = object.resource_version().unwrap_or_default();
            }
            if self.sender.send((self.wrap)(change)).await.is_err() {
                return Ok(End::Stopped);
            }
        }
    }

    fn pruned(&self, mut object: K) -> Arc<K> {
        object.managed_fields_mut().clear();
        (self.prune)(&mut object);
        Arc::new(object)
    }

    fn alive(&self) {
        let now = self.pulse.beat(self.kind);
        self.metrics.watch_alive(self.kind, now);
    }
}

/// A connection can die without a sign; whoever waits on it must not wait for ever.
async fn answered<T>(request: impl Future<Output = kube::Result<T>>) -> kube::Result<T> {
    match tokio::time::timeout(ANSWER, request).await {
        Ok(answer) => answer,
        Err(_) => Err(kube::Error::Service(format!("no answer within {ANSWER:?}").into())),
    }
}
