//! Processes of the controller: each with its own connection, started again after its death as a kubelet would.

use super::audit::Ledger;
use crate::fake_api::{FakeApi, Line};
use clap::Parser;
use controller::app::{self, Surroundings};
use controller::args::Args;
use controller::clock::Clock;
use controller::health::Pulse;
use controller::metrics::Metrics;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::task::AbortHandle;

/// Between a death and the next start.
const RESTART: Duration = Duration::from_secs(2);

/// What a process sent before it stood still and died arrives this much later.
const LATE: Duration = Duration::from_secs(16);

struct Process {
    line: Line,
    task: AbortHandle,
    stop: watch::Sender<bool>,
    pulse: Arc<Pulse>,
}

struct Inner {
    api: FakeApi,
    ledger: Arc<Mutex<Ledger>>,
    /// By the name of the replica.
    processes: Mutex<BTreeMap<String, Process>>,
    /// Seconds that a replica's wall clock is off.
    skew: Arc<AtomicI64>,
    born: AtomicU64,
}

/// All replicas.
#[derive(Clone)]
pub struct Replicas(Arc<Inner>);

impl Replicas {
    pub(super) fn new(api: FakeApi, ledger: Arc<Mutex<Ledger>>, mut crashes: mpsc::UnboundedReceiver<String>) -> Self {
        let inner = Inner {
            api,
            ledger,
            processes: Mutex::new(BTreeMap::new()),
            skew: Arc::new(AtomicI64::new(0)),
            born: AtomicU64::new(0),
        };
        let all = Self(Arc::new(inner));
        let watching = all.clone();
        tokio::spawn(async move {
            while let Some(name) = crashes.recv().await {
                watching.restart(&name);
            }
        });
        all
    }

    fn processes(&self) -> MutexGuard<'_, BTreeMap<String, Process>> {
        self.0.processes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self, line: &str) {
        let now = self.0.api.shared().now();
        self.0.ledger.lock().unwrap_or_else(PoisonError::into_inner).tell(now, line);
    }

    /// Starts a replica.
    pub fn start(&self, name: &str) {
        let born = self.0.born.fetch_add(1, Ordering::SeqCst);
        self.tell(&format!("{name} starts"));
        let line = self.0.api.line(name, crds::names::CONTROLLER_USER);
        let (stop, stopped) = watch::channel(false);
        let pulse = Arc::new(Pulse::default());
        let around = Surroundings {
            reading: line.client(),
            writing: line.client(),
            clock: self.clock(),
            pulse: pulse.clone(),
            metrics: Arc::new(Metrics::global()),
        };
        let (all, owned, args) = (self.clone(), name.to_owned(), args(name, born));
        let task = tokio::spawn(async move {
            let ended = app::replica(&args, around, stopped).await;
            if ended.is_err() {
                all.restart(&owned);
            }
        });
        let process = Process { line, task: task.abort_handle(), stop, pulse };
        self.processes().insert(name.to_owned(), process);
    }

    fn clock(&self) -> Clock {
        let (origin, start) = self.0.api.shared().origin();
        let skew = self.0.skew.clone();
        Clock::of(move || {
            let off = k8s_openapi::jiff::SignedDuration::from_secs(skew.load(Ordering::SeqCst));
            origin.saturating_add(start.elapsed()).and_then(|t| t.saturating_add(off)).unwrap_or(origin)
        })
    }

    /// All wall clocks jump.
    pub fn skew(&self, seconds: i64) {
        self.tell(&format!("the controller's clock is {seconds} s off"));
        self.0.skew.store(seconds, Ordering::SeqCst);
    }

    /// Ends a process as SIGKILL does.
    pub fn kill(&self, name: &str) -> bool {
        let Some(process) = self.processes().remove(name) else { return false };
        process.line.die();
        process.task.abort();
        // What a process that stood still had sent lands long after its end.
        let line = process.line;
        tokio::spawn(async move {
            tokio::time::sleep(LATE).await;
            line.resume();
        });
        self.tell(&format!("{name} is dead"));
        true
    }

    /// Ends a process and starts it again.
    pub fn restart(&self, name: &str) {
        if !self.kill(name) {
            return;
        }
        let (all, name) = (self.clone(), name.to_owned());
        tokio::spawn(async move {
            tokio::time::sleep(RESTART).await;
            all.start(&name);
        });
    }

    /// Asks a process to end in good order.
    pub fn stop(&self, name: &str) {
        self.tell(&format!("{name} is told to stop"));
        if let Some(process) = self.processes().get(name) {
            let _ = process.stop.send(true);
        }
    }

    /// From now on nothing of a process reaches the server, nor any answer it.
    pub fn pause(&self, name: &str) {
        self.tell(&format!("{name} stands still"));
        if let Some(process) = self.processes().get(name) {
            process.line.pause();
        }
    }

    /// What a paused process sent arrives now.
    pub fn resume(&self, name: &str) {
        self.tell(&format!("{name} goes on"));
        if let Some(process) = self.processes().get(name) {
            process.line.resume();
        }
    }

    /// What a replica says of its readiness.
    #[must_use]
    pub fn ready(&self, name: &str) -> Option<Result<&'static str, String>> {
        self.processes().get(name).map(|p| p.pulse.ready())
    }
}

/// Short terms, so that a world's life is short.
fn args(name: &str, born: u64) -> Args {
    let identity = format!("--identity={name}-{born}");
    let all = [
        "berth-controller",
        &identity,
        "--lease-seconds=15",
        "--write-seconds=5",
        "--node-lost-after-seconds=20",
        "--accept-timeout-seconds=20",
        "--stage-timeout-seconds=60",
        // Answered on a thread of its own: no seed could replay that.
        "--what-if-ms=0",
    ];
    Args::parse_from(all)
}
