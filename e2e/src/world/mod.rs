//! A cluster on a virtual clock, by a seed: the real controller in one or several replicas over [`crate::fake_api`], with
//! kubelets, the garbage collector, the namespace controller, users, and other schedulers. The same seed tells the same
//! story, to the byte.
//!
//! - [`reality`]: what a cluster does by itself: kubelets, garbage collection, namespaces.
//! - [`claims`]: volumes made for claims.
//! - [`replica`]: processes of the controller that start, die, stand still and come back.
//! - [`audit`]: the story so far, and the invariants I1 to I6 at every step of it.
//! - [`scenes`]: the stages of a gang's life, each with its beginning and its goal.
//! - [`sweep`]: a fault at every call of every stage.
//! - [`chance`]: whole lives by a seed.
//!
//! Everything runs on one thread of one runtime, whose clock is to be paused: it stands still while anybody has
//! something to do, and jumps when nobody has.

pub mod audit;
pub mod chance;
pub mod claims;
pub mod objects;
pub mod reality;
pub mod replica;
pub mod scenes;
pub mod sweep;

use crate::fake_api::{FakeApi, Faults, Key, Kind, Store, Verb};
use audit::{Audit, Ledger};
use k8s_openapi::jiff::Timestamp;
use replica::Replicas;
use serde_json::Value;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// A user with all rights.
pub const USER: &str = "user";
/// Between two looks at a condition.
const LOOK: Duration = Duration::from_millis(250);

/// A world.
pub struct World {
    /// Its API server.
    pub api: FakeApi,
    /// The controller's processes.
    pub replicas: Replicas,
    ledger: Arc<Mutex<Ledger>>,
    reality: reality::Handle,
}

impl World {
    /// An empty cluster without a controller.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let origin: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap_or(Timestamp::UNIX_EPOCH);
        let (api, reports) = FakeApi::new(seed, origin);
        let ledger = Arc::new(Mutex::new(Ledger::new(origin)));
        api.watch_over(Box::new(Audit::new(ledger.clone())));
        let replicas = Replicas::new(api.clone(), ledger.clone(), reports.crashes);
        let reality = reality::begin(api.clone(), ledger.clone(), reports.changes, seed);
        api.shared().with(|server, _| server.policies.fence = true);
        Self { api, replicas, ledger, reality }
    }

    /// The story so far.
    pub fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Kubelets and the like.
    #[must_use]
    pub fn reality(&self) -> &reality::Handle {
        &self.reality
    }

    /// A line of the story.
    pub fn tell(&self, line: &str) {
        let now = self.api.shared().now();
        self.ledger().tell(now, line);
    }

    /// Creates an object as a user; a refusal is part of the story.
    pub fn create(&self, object: &Value) {
        self.create_as(USER, object);
    }

    /// The same for anybody.
    pub fn create_as(&self, user: &str, object: &Value) {
        let Some(key) = key_of(object) else { return };
        self.tell(&format!("{user} creates {key}"));
        self.act(user, Verb::Create, &key, object.clone());
    }

    /// Changes an object as a user.
    pub fn patch(&self, key: &Key, patch: &Value) {
        self.tell(&format!("{USER} changes {key}: {patch}"));
        self.act(USER, Verb::Patch, key, patch.clone());
    }

    /// Deletes an object as a user.
    pub fn delete(&self, key: &Key) {
        self.tell(&format!("{USER} deletes {key}"));
        self.act(USER, Verb::Delete, key, serde_json::json!({}));
    }

    fn act(&self, user: &str, verb: Verb, key: &Key, body: Value) {
        let refused = self.api.shared().with(|server, now| server.by(user, verb, key, None, body, now).err());
        if let Some(status) = refused {
            self.tell(&format!("refused: {}", status.message));
        }
    }

    /// Reads what is stored.
    pub fn see<T>(&self, look: impl FnOnce(&Store) -> T) -> T {
        look(&self.api.shared().lock().store)
    }

    /// Lets time pass.
    pub async fn pass(&self, seconds: u64) {
        tokio::time::sleep(Duration::from_secs(seconds)).await;
    }

    /// Waits for a condition; false if it does not come in `seconds`.
    pub async fn until(&self, seconds: u64, holds: impl Fn(&Store) -> bool) -> bool {
        let end = Instant::now() + Duration::from_secs(seconds);
        loop {
            if self.see(&holds) {
                return true;
            }
            if Instant::now() >= end {
                return false;
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Trouble begins, call by call from now on.
    pub fn arm(&self, mut faults: Faults) {
        faults.arm();
        self.api.shared().with(|server, _| server.faults = faults);
        self.tell("trouble may begin");
    }

    /// Trouble ends; the number of calls that were counted, and of faults that came true.
    pub fn disarm(&self) -> (u64, u64) {
        self.tell("trouble ends");
        self.api.shared().with(|server, _| {
            server.faults.disarm();
            (server.faults.calls(), server.faults.hits())
        })
    }

    /// Waits until a whole minute passes without a write of the controller, at most `minutes`; then judges what is left.
    pub async fn settle(&self, minutes: u64) {
        let mut quiet = false;
        for _ in 0..minutes {
            let before = self.ledger().writes();
            self.pass(60).await;
            quiet = self.ledger().writes() == before;
            if quiet {
                break;
            }
        }
        let now = self.api.shared().now();
        let server = self.api.shared().lock();
        let mut ledger = self.ledger.lock().unwrap_or_else(PoisonError::into_inner);
        if !quiet {
            ledger.violate(now, "I6", &format!("no minute without a write within {minutes} minutes"));
        }
        ledger.judge_rest(&server.store, now);
    }
}

/// The key of a manifest.
#[must_use]
pub fn key_of(object: &Value) -> Option<Key> {
    let kind = Kind::named(object["kind"].as_str()?)?;
    let metadata = &object["metadata"];
    Some(Key::new(kind, metadata["namespace"].as_str().unwrap_or_default(), metadata["name"].as_str()?))
}
