//! The single owner of all state: it takes changes in, asks each changed job what it needs, plans at its own pace, hands
//! operations to the commit protocol, and writes what users see.

mod act;
mod cluster;
mod flush;
mod launch;
mod moves;
mod notes;
mod plan;
pub mod what_if;

use crate::args::Args;
use crate::clock::Clock;
use crate::commit::Executor;
use crate::health::Pulse;
use crate::lifecycle::{self, Step};
use crate::metrics::Metrics;
use crate::state::World;
use crate::watch::Delta;
use launch::Landing;
use notes::Notebook;
use planner::Time;
use planner::job::Phase;
use planner::policy::Policy;
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::Instant;
use what_if::Questions;

/// Changes taken in at once before the state is looked at again.
const BATCH: usize = 16_384;
/// Landings that may wait; a task that lands waits for room.
const LANDINGS: usize = 4096;
/// The longest sleep: clocks jump, and nothing should depend on a timer alone.
const SLEEP_MAX: Duration = Duration::from_secs(30);

/// The owner.
pub struct Engine {
    world: World,
    clock: Clock,
    policy: Policy,
    executor: Executor,
    /// Operations go one after the other beyond so many, so that each gang is whole as early as it can be.
    runway: Arc<Semaphore>,
    notebook: Notebook,
    metrics: Arc<Metrics>,
    pulse: Arc<Pulse>,
    debounce: Duration,
    deltas: mpsc::Receiver<Delta>,
    landings: mpsc::Receiver<Landing>,
    landing: mpsc::Sender<Landing>,
    /// Jobs to look at again at a time although nothing happens.
    timers: BTreeMap<Time, BTreeSet<String>>,
    /// When planning again could change something although nothing happens.
    wake: Option<Time>,
    /// Jobs whose status may have changed.
    stale: BTreeSet<String>,
    /// Other statuses, and when each was last written.
    written: BTreeMap<String, Time>,
    /// Uids of objects whose status is being written.
    in_writing: BTreeSet<String>,
    /// Jobs that are gone whose Berths are being removed.
    orphans: BTreeSet<String>,
    queues_flushed: Option<Time>,
    topologies_flushed: Option<Time>,
    /// Versions of unreadable objects that their users were told of.
    unreadable_told: BTreeMap<String, String>,
    /// Dry runs under way, by what their answers depend on.
    probing: BTreeSet<String>,
    /// Operations under way.
    flying: usize,
    questions: Questions,
    /// Every kind has been listed, and people were told.
    complete: bool,
}

impl Engine {
    /// An owner that knows nothing yet.
    #[must_use]
    pub fn new(
        args: &Args,
        clock: Clock,
        executor: Executor,
        deltas: mpsc::Receiver<Delta>,
        pulse: Arc<Pulse>,
        metrics: Arc<Metrics>,
    ) -> Self {
        let (landing, landings) = mpsc::channel(LANDINGS);
        let notebook = Notebook::open(executor.clone(), &args.identity(), metrics.clone());
        Self {
            world: World::new(args.settings()),
            clock,
            policy: args.knobs.policy(),
            executor,
            runway: Arc::new(Semaphore::new(args.operations)),
            notebook,
            metrics,
            pulse,
            debounce: Duration::from_millis(args.debounce_ms),
            deltas,
            landings,
            landing,
            timers: BTreeMap::new(),
            wake: None,
            stale: BTreeSet::new(),
            written: BTreeMap::new(),
            in_writing: BTreeSet::new(),
            orphans: BTreeSet::new(),
            queues_flushed: None,
            topologies_flushed: None,
            unreadable_told: BTreeMap::new(),
            probing: BTreeSet::new(),
            flying: 0,
            questions: Questions::new(args.what_if_ms),
            complete: false,
        }
    }

    /// Turns until `stop` comes; then waits for what is under way.
    pub async fn run(mut self, stop: impl Future<Output = ()>) {
        tokio::pin!(stop);
        loop {
            // 1. Wait for something to happen or to become due.
            let woken = tokio::select! {
                biased;
                () = &mut stop => break,
                woken = self.wait() => woken,
            };
            if !woken {
                break;
            }
            // 2. Take what comes with it along.
            if !self.debounce.is_zero() {
                tokio::time::sleep(self.debounce).await;
            }
            self.drain();
            self.pulse.owner_turned();
            // 3. Act on a picture that is complete.
            if self.pulse.is_synced() {
                if !std::mem::replace(&mut self.complete, true) {
                    tracing::info!("every kind is listed: planning begins");
                }
                self.turn();
            }
        }
        self.settle().await;
    }

    /// True when there is something to do, false when nobody will ever send anything again.
    async fn wait(&mut self) -> bool {
        let sleep = self.next_due();
        // In a fixed order, so that a run can be told again; what the others bring is taken in right after, by `drain`.
        tokio::select! {
            biased;
            delta = self.deltas.recv() => match delta {
                Some(delta) => { self.world.apply(delta); true }
                None => false,
            },
            landing = self.landings.recv() => {
                if let Some(landing) = landing { self.land(landing); }
                true
            }
            () = tokio::time::sleep_until(sleep) => true,
        }
    }

    fn next_due(&self) -> Instant {
        let now = self.clock.now();
        let first = [self.timers.keys().next().copied(), self.wake, self.questions_due()].into_iter().flatten().min();
        let micros = first.map_or(u64::MAX, |t| u64::try_from(t.since(now).0).unwrap_or(0));
        Instant::now() + Duration::from_micros(micros).min(SLEEP_MAX)
    }

    fn drain(&mut self) {
        self.metrics.depth("deltas", self.deltas.len());
        self.metrics.depth("landings", self.landings.len());
        for _ in 0..BATCH {
            let Ok(delta) = self.deltas.try_recv() else { break };
            self.world.apply(delta);
        }
        while let Ok(landing) = self.landings.try_recv() {
            self.land(landing);
        }
    }

    /// One turn: numbered steps, each a function with a named outcome.
    fn turn(&mut self) {
        let started = std::time::Instant::now();
        let now = self.clock.now();
        // 1. What is due counts as changed.
        self.ring(now);
        // 2. The planner's picture follows the objects.
        let dirty = self.world.take_dirty();
        self.world.sync(&dirty, now);
        self.stale.extend(dirty.iter().cloned());
        if let Some(due) = self.world.drift.due() {
            self.call_at(due, "");
        }
        // 3. Each changed job is asked what it needs.
        for key in &dirty {
            self.step(key, now);
            self.try_out(key);
        }
        // 4. A plan, if one could differ from the last.
        if self.world.take_changed() || self.wake.is_some_and(|wake| wake <= now) {
            let planning = self.plan(now);
            self.metrics.cycle(started.elapsed(), planning);
        }
        // 5. What users see.
        self.flush(now);
        // 6. What they may want to know besides, when there is time for it.
        self.ask(now);
    }

    fn ring(&mut self, now: Time) {
        while let Some((at, _)) = self.timers.first_key_value() {
            if *at > now {
                break;
            }
            if let Some((_, keys)) = self.timers.pop_first() {
                for key in keys {
                    self.world.touch_job(&key);
                }
                // What a plan left out because of a pause may be done now.
                self.world.note_changed();
            }
        }
    }

    fn call_at(&mut self, at: Time, key: &str) {
        self.timers.entry(at).or_default().insert(key.to_owned());
    }

    /// Asks a job what it needs, and has it done.
    fn step(&mut self, key: &str, now: Time) {
        let Some(record) = self.world.records.get(key) else {
            // Berths of jobs that are gone still have to go.
            let verdict = lifecycle::next(&self.world, key, now);
            if let Step::Operate { kind, operation, .. } = verdict.step {
                self.launch_orphan(key, kind, *operation);
            }
            return;
        };
        if record.flight.is_some() {
            return;
        }
        if let Some(pause) = record.retry_at.filter(|at| *at > now) {
            self.call_at(pause, key);
            return;
        }
        self.note_losses(key, now);
        let verdict = lifecycle::next(&self.world, key, now);
        if let Some(due) = verdict.due {
            self.call_at(due, key);
        }
        self.avoid(key, &verdict.refused_by, now);
        match verdict.step {
            Step::Rest => {}
            Step::Operate { kind, operation, before, told } => {
                if let Some((warning, code, message)) = told {
                    self.note_job(key, warning, code, &message);
                }
                self.launch(key, kind, *operation, before.map(|b| *b), now);
                self.assume_stopping(key, kind, now);
            }
            // A namesake may come the moment that we let go, and a status on its way would land on it: a real API server
            // does not look at the uid in one. The job is looked at again when the write lands.
            Step::Finalizers(_) if self.is_being_told(key) => {}
            Step::Finalizers(all) => self.launch_finalizers(key, all),
            Step::Delete => self.launch_delete_job(key),
            Step::Prune(berth) => self.launch_prune(key, &berth),
        }
    }

    /// Whether a status of a job, or of a Berth of it, is on its way.
    fn is_being_told(&self, key: &str) -> bool {
        let on_its_way = |uid: &String| self.in_writing.contains(uid);
        let mut berths = self.world.index.berths_of_job(key).filter_map(|b| b.metadata.uid.as_ref());
        self.world.records.get(key).is_some_and(|r| on_its_way(&r.uid)) || berths.any(on_its_way)
    }

    /// Remembers since when a gang lacks members.
    fn note_losses(&mut self, key: &str, now: Time) {
        let phase = self.world.state.find_job(key).and_then(|row| self.world.state.job(row)).map(|j| &j.phase);
        let lacks = matches!(phase, Some(Phase::Running(running)) if !running.lost.is_empty());
        if let Some(record) = self.world.records.get_mut(key) {
            record.lost_since = lacks.then(|| record.lost_since.unwrap_or(now));
        }
    }

    /// Waits for what is under way, as long as leadership could last.
    async fn settle(&mut self) {
        tracing::info!(flying = self.flying, "finishing what is under way");
        let deadline = Instant::now() + Duration::from_secs(10);
        while self.flying > 0 {
            tokio::select! {
                biased;
                landing = self.landings.recv() => match landing {
                    Some(landing) => self.land(landing),
                    None => return,
                },
                () = tokio::time::sleep_until(deadline) => return,
            }
        }
    }
}
