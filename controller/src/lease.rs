//! Leadership by a Lease of our own: holder, expiry on our own monotonic clock, and `leaseTransitions` as the epoch that
//! fences writes. Every acquisition raises the epoch, our own re-acquisition too.
//!
//! Invariant: we believe to lead only until `duration` after we *sent* the last renewal that succeeded, and everybody
//! else waits `duration` after they *saw* it: two never lead at once, whatever the clocks say.

use crate::clock::Clock;
use crate::commit::Fence;
use crds::Berth;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::Client;
use kube::api::{Api, ListParams, PostParams};
use std::future::Future;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// Whether and until when we lead.
#[derive(Debug)]
pub struct Claim {
    epoch: AtomicI64,
    expires: Mutex<Option<Instant>>,
}

impl Claim {
    /// Nobody's claim yet.
    #[must_use]
    pub fn none() -> Arc<Self> {
        Arc::new(Self { epoch: AtomicI64::new(0), expires: Mutex::new(None) })
    }

    /// A claim without a Lease, for a single process in tests.
    #[must_use]
    pub fn forever() -> Arc<Self> {
        let far = Instant::now() + Duration::from_secs(100 * 365 * 24 * 3600);
        Arc::new(Self { epoch: AtomicI64::new(0), expires: Mutex::new(Some(far)) })
    }

    fn held_until(&self, at: Option<Instant>) {
        *self.expires.lock().unwrap_or_else(PoisonError::into_inner) = at;
    }
}

impl Fence for Claim {
    fn epoch(&self) -> i64 {
        self.epoch.load(Ordering::SeqCst)
    }

    fn is_current_for(&self, span: Duration) -> bool {
        let expires = *self.expires.lock().unwrap_or_else(PoisonError::into_inner);
        crate::sabotage::is(crate::sabotage::Sabotage::NoFence) || expires.is_some_and(|at| Instant::now() + span <= at)
    }
}

/// Who we are and how long a term lasts.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// Namespace of the Lease.
    pub namespace: String,
    /// Name of the Lease.
    pub name: String,
    /// Our name.
    pub identity: String,
    /// How long a renewal lasts. Must exceed the time limit of a write with room to spare.
    pub duration: Duration,
    /// How often we renew, and how often others look.
    pub period: Duration,
}

/// The election seen from one candidate.
pub struct Election {
    candidate: Candidate,
    client: Client,
    clock: Clock,
    claim: Arc<Claim>,
    /// The record as last seen to change, and when we saw it.
    seen: Option<(LeaseSpec, Instant)>,
}

impl Election {
    /// A candidate's view.
    #[must_use]
    pub fn new(client: Client, clock: Clock, candidate: Candidate, claim: Arc<Claim>) -> Self {
        Self { candidate, client, clock, claim, seen: None }
    }

    /// Waits until we lead.
    pub async fn acquire(&mut self) {
        loop {
            match self.try_acquire().await {
                Ok(true) => return,
                Ok(false) => {}
                Err(error) => tracing::warn!(%error, "could not look at the Lease"),
            }
            tokio::time::sleep(self.candidate.period).await;
        }
    }

    /// Renews until leadership is lost.
    pub async fn hold(&mut self) {
        loop {
            tokio::time::sleep(self.candidate.period).await;
            match self.renew().await {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => tracing::warn!(%error, "could not renew the Lease"),
            }
            if !self.claim.is_current_for(Duration::ZERO) {
                break;
            }
        }
        self.claim.held_until(None);
        tracing::error!("leadership lost");
    }

    /// Gives the Lease back, so that the next leader need not wait.
    pub async fn release(&mut self) {
        self.claim.held_until(None);
        let Some((mut spec, _)) = self.seen.clone() else { return };
        if spec.holder_identity.as_deref() != Some(&self.candidate.identity) {
            return;
        }
        spec.holder_identity = None;
        if let Ok(Some(lease)) = self.read().await {
            let ours = lease.spec.as_ref().and_then(|s| s.holder_identity.as_deref()) == Some(&self.candidate.identity);
            if ours {
                let _ = self.replace(lease.metadata, spec).await;
            }
        }
    }

    async fn try_acquire(&mut self) -> kube::Result<bool> {
        let sent = Instant::now();
        let Some(lease) = self.read().await? else { return self.create().await };
        let spec = lease.spec.clone().unwrap_or_default();
        if self.seen.as_ref().is_none_or(|(known, _)| *known != spec) {
            self.seen = Some((spec.clone(), sent));
        }
        if !self.is_free(&spec) {
            return Ok(false);
        }
        let epoch = i64::from(spec.lease_transitions.unwrap_or(0)) + 1;
        self.take(Some(lease.metadata), epoch).await
    }

    /// Free when nobody holds it, or its holder let it run out in front of our eyes.
    fn is_free(&self, spec: &LeaseSpec) -> bool {
        if spec.holder_identity.as_deref().unwrap_or_default().is_empty() {
            return true;
        }
        let seconds = u64::try_from(spec.lease_duration_seconds.unwrap_or(0)).unwrap_or(0);
        let lasts = Duration::from_secs(seconds).max(self.candidate.duration);
        self.seen.as_ref().is_some_and(|(_, at)| at.elapsed() > lasts)
    }

    /// A Lease made anew starts above every epoch that was ever written.
    async fn create(&mut self) -> kube::Result<bool> {
        let all = Api::<Berth>::all(self.client.clone());
        let berths = self.in_time(all.list(&ListParams::default())).await?;
        let highest = berths.iter().map(|b| b.spec.leader_epoch).max().unwrap_or(0);
        self.take(None, highest + 1).await
    }

    async fn take(&mut self, metadata: Option<ObjectMeta>, epoch: i64) -> kube::Result<bool> {
        let now = MicroTime(self.clock.timestamp());
        let spec = LeaseSpec {
            holder_identity: Some(self.candidate.identity.clone()),
            lease_duration_seconds: Some(self.seconds()),
            lease_transitions: Some(i32::try_from(epoch).unwrap_or(i32::MAX)),
            acquire_time: Some(now.clone()),
            renew_time: Some(now),
            ..LeaseSpec::default()
        };
        let sent = Instant::now();
        let written = match metadata {
            Some(metadata) => self.replace(metadata, spec).await,
            None => {
                let metadata = ObjectMeta { name: Some(self.candidate.name.clone()), ..ObjectMeta::default() };
                let (api, lease) = (self.api(), Lease { metadata, spec: Some(spec) });
                self.in_time(api.create(&PostParams::default(), &lease)).await
            }
        };
        match written {
            Ok(lease) => {
                self.seen = lease.spec.map(|s| (s, sent));
                self.claim.epoch.store(epoch, Ordering::SeqCst);
                self.claim.held_until(Some(sent + self.candidate.duration));
                tracing::info!(epoch, identity = self.candidate.identity, "leading");
                Ok(true)
            }
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(false),
            Err(error) => Err(error),
        }
    }

    async fn renew(&mut self) -> kube::Result<bool> {
        let sent = Instant::now();
        let Some(lease) = self.read().await? else { return Ok(false) };
        let mut spec = lease.spec.unwrap_or_default();
        let ours = spec.holder_identity.as_deref() == Some(&self.candidate.identity)
            && i64::from(spec.lease_transitions.unwrap_or(0)) == self.claim.epoch();
        if !ours {
            return Ok(false);
        }
        spec.renew_time = Some(MicroTime(self.clock.timestamp()));
        match self.replace(lease.metadata, spec).await {
            Ok(lease) => {
                self.seen = lease.spec.map(|s| (s, sent));
                self.claim.held_until(Some(sent + self.candidate.duration));
                Ok(true)
            }
            // Somebody wrote it between our read and our write: look again at once.
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(true),
            Err(error) => Err(error),
        }
    }

    async fn replace(&self, metadata: ObjectMeta, spec: LeaseSpec) -> kube::Result<Lease> {
        let lease = Lease { metadata, spec: Some(spec) };
        let api = self.api();
        self.in_time(api.replace(&self.candidate.name, &PostParams::default(), &lease)).await
    }

    async fn read(&self) -> kube::Result<Option<Lease>> {
        let api = self.api();
        self.in_time(api.get_opt(&self.candidate.name)).await
    }

    /// Long enough for a server under load, short enough for two more tries within the term. Reads too: a leader that
    /// waits for an answer that never comes would neither lead nor end.
    async fn in_time<T>(&self, request: impl Future<Output = kube::Result<T>>) -> kube::Result<T> {
        match tokio::time::timeout(self.candidate.duration / 3, request).await {
            Ok(done) => done,
            Err(_) => Err(kube::Error::Service("no answer about the Lease in time".into())),
        }
    }

    fn api(&self) -> Api<Lease> {
        Api::namespaced(self.client.clone(), &self.candidate.namespace)
    }

    fn seconds(&self) -> i32 {
        i32::try_from(self.candidate.duration.as_secs()).unwrap_or(i32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_ends_before_a_write_could_outlast_it() {
        let claim = Claim::none();
        assert!(!claim.is_current_for(Duration::ZERO), "nobody leads before the Lease was taken");
        claim.held_until(Some(Instant::now() + Duration::from_secs(20)));
        assert!(claim.is_current_for(Duration::from_secs(10)));
        assert!(!claim.is_current_for(Duration::from_secs(30)));
        claim.held_until(None);
        assert!(!claim.is_current_for(Duration::ZERO));
    }
}
