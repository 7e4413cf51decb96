//! Wiring: one line for each task, and the order in which they begin and end.

use crate::args::Args;
use crate::clock::Clock;
use crate::commit::Executor;
use crate::engine::Engine;
use crate::health::Pulse;
use crate::http::{self, Pages};
use crate::lease::{Candidate, Claim, Election};
use crate::metrics::Metrics;
use crate::telemetry::Telemetry;
use crate::watch;
use anyhow::{Context, bail};
use kube::{Client, Config};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch as signal};

/// Changes that may wait for the owner; watchers wait for room.
const DELTAS: usize = 16_384;
/// Renewals within one term.
const RENEWALS: u32 = 6;

/// What one replica is given from outside: nothing in it is made by looking around.
pub struct Surroundings {
    /// For lists and watches.
    pub reading: Client,
    /// For everything else; it must not try again by itself: the protocol knows better when a write may be.
    pub writing: Client,
    /// What time it is.
    pub clock: Clock,
    /// Signs of life.
    pub pulse: Arc<Pulse>,
    /// Figures.
    pub metrics: Arc<Metrics>,
}

/// Runs until a signal comes or leadership is lost.
///
/// # Errors
/// If the cluster cannot be reached at all, or leadership was lost: the process is to be restarted then.
pub async fn run(args: Args, telemetry: &Telemetry) -> anyhow::Result<()> {
    if args.write_seconds * 2 > args.lease_seconds {
        bail!("--write-seconds {} must be at most half of --lease-seconds {}", args.write_seconds, args.lease_seconds);
    }
    let config = Config::infer().await.context("no cluster: set KUBECONFIG, or run inside one")?;
    let reading = Client::try_from(config.clone()).context("the client cannot be made")?;
    let mut config = config;
    config.default_retry = false;
    let writing = Client::try_from(config).context("the client cannot be made")?;
    let (metrics, pulse) = (Arc::new(Metrics::global()), Arc::new(Pulse::default()));
    let (stop, stopped) = signal::channel(false);
    tokio::spawn(async move {
        terminated().await;
        let _ = stop.send(true);
    });
    let pages = Pages { pulse: pulse.clone(), registry: telemetry.registry.clone() };
    let server = tokio::spawn(http::serve(args.listen, pages, until(stopped.clone())));
    let surroundings = Surroundings { reading, writing, clock: Clock::wall(), pulse, metrics };
    let ended = replica(&args, surroundings, stopped).await;
    server.abort();
    ended
}

/// The life of one replica: it waits for the Lease, works, and gives the Lease back when told to stop.
///
/// # Errors
/// If leadership was lost.
pub async fn replica(args: &Args, around: Surroundings, stopped: signal::Receiver<bool>) -> anyhow::Result<()> {
    let Surroundings { reading, writing, clock, pulse, metrics } = around;
    // 1. Lead.
    let claim = if args.no_lease { Claim::forever() } else { Claim::none() };
    let mut election = Election::new(writing.clone(), clock.clone(), candidate(args), claim.clone());
    if !args.no_lease {
        tokio::select! {
            biased;
            () = until(stopped.clone()) => return Ok(()),
            () = election.acquire() => {}
        }
    }
    pulse.set_leading(true);
    metrics.leader(true);

    // 2. Only now look: what is listed is newer than anything an earlier leader wrote.
    let (sender, deltas) = mpsc::channel(DELTAS);
    watch::spawn_all(reading, sender, pulse.clone(), metrics.clone());
    let executor = Executor::new(writing, claim, args.concurrency, args.write_limit(), metrics.clone());
    let engine = Engine::new(args, clock, executor, deltas, pulse, metrics.clone());

    // 3. Work until told to stop, or until somebody else leads.
    let lost = tokio::select! {
        biased;
        () = engine.run(until(stopped)) => false,
        () = election.hold(), if !args.no_lease => true,
    };
    metrics.leader(false);
    if lost {
        bail!("leadership was lost");
    }
    if !args.no_lease {
        election.release().await;
    }
    Ok(())
}

fn candidate(args: &Args) -> Candidate {
    let duration = Duration::from_secs(args.lease_seconds);
    Candidate {
        namespace: args.namespace.clone(),
        name: crds::names::LEASE.to_owned(),
        identity: args.identity(),
        duration,
        period: duration / RENEWALS,
    }
}

async fn until(mut stopped: signal::Receiver<bool>) {
    // An error means that nobody can ever say stop: then nobody waits for it either.
    let _ = stopped.wait_for(|stop| *stop).await;
}

/// Waits for SIGTERM or SIGINT.
async fn terminated() {
    use tokio::signal::unix::{SignalKind, signal};
    match signal(SignalKind::terminate()) {
        Ok(mut term) => {
            tokio::select! {
                _ = term.recv() => {}
                _ = tokio::signal::ctrl_c() => {}
            }
        }
        Err(_) => {
            let _ = tokio::signal::ctrl_c().await;
        }
    }
    tracing::info!("told to stop");
}
