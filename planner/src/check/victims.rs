//! Law 6: who may be stopped or shrunk for whom, and that none of them could be spared.

use super::Case;
use super::capacity::{Nodes, Spared};
use super::fate::Fate;
use super::holding::{assumed, beyond};
use super::moment::{Moment, Window};
use super::quota::{self, Queues, lineage};
use super::violation::{Protection, Violation};
use crate::ids::{JobIdx, QueueIdx, ResourceIdx};
use crate::job::{Job, JobSpec, Phase, Running, Seat};
use crate::plan::{Action, StopCause};
use crate::queue::{QueueState, QuotaKey, ReclaimFrom};
use crate::time::Span;
use std::collections::{BTreeMap, BTreeSet};

pub(super) fn check(case: &Case<'_>, nodes: &Nodes<'_, '_>, queues: &Queues<'_, '_>, found: &mut Vec<Violation>) {
    let mut ledger = Ledger::of(case);
    for action in &case.plan.actions {
        match action {
            Action::Stop { job, cause, by } => {
                if let (Some(fate), Some(victim)) = (case.fates.get(job), victim(case, *job)) {
                    reason(case, fate, &victim, *cause, *by, found);
                    if let Some(taker) = by.and_then(|t| Some((t, case.snapshot.state.job(t)?))) {
                        for_another(case, &ledger, &victim, taker, Some(*cause), found);
                    }
                    ledger.leave(case, &victim.running.placement.seats, victim.spec());
                }
            }
            Action::Resize { job, placement, by } => {
                if let Some(victim) = victim(case, *job) {
                    let gone = beyond(&victim.running.placement, placement);
                    if let Some(taker) = by.and_then(|t| Some((t, case.snapshot.state.job(t)?))) {
                        for_another(case, &ledger, &victim, taker, None, found);
                    }
                    ledger.leave(case, &gone, victim.spec());
                }
            }
            Action::Start { job, .. } | Action::Reserve { job, .. } => ledger.come(case, *job),
            Action::Move { .. } | Action::Replace { .. } | Action::Guarantee { .. } => {}
        }
    }
    for (row, fate) in &case.fates {
        cleared(case, *row, fate, found);
        needed(case, *row, fate, nodes, queues, found);
    }
}

/// A running job that is stopped or shrunk.
struct Victim<'a> {
    job: &'a Job,
    running: &'a Running,
}

impl<'a> Victim<'a> {
    fn spec(&self) -> &'a JobSpec {
        &self.job.spec
    }
}

fn victim<'a>(case: &Case<'a>, row: JobIdx) -> Option<Victim<'a>> {
    let job = case.snapshot.state.job(row)?;
    Some(Victim { job, running: job.running()? })
}

/// Whether a stop's cause is so.
fn reason(
    case: &Case<'_>,
    fate: &Fate<'_>,
    victim: &Victim<'_>,
    cause: StopCause,
    by: Option<JobIdx>,
    found: &mut Vec<Violation>,
) {
    let draining = || {
        let queue = |q: &QueueIdx| case.snapshot.state.queue(*q).state == QueueState::Draining;
        let run = case.snapshot.now.since(victim.running.started);
        let due = victim.spec().checkpoint_every.is_some_and(|every| every > Span::ZERO && run >= every);
        due && lineage(&case.snapshot, victim.spec().queue).any(|q| queue(&q))
    };
    let (so, name) = match cause {
        StopCause::Preempted => (by.is_some(), "Preempted"),
        StopCause::Reclaimed => (by.is_some(), "Reclaimed"),
        StopCause::NodeLost => (by.is_none() && !victim.running.lost.is_empty(), "NodeLost"),
        StopCause::Drained => (by.is_none() && draining(), "Drained"),
    };
    if !so {
        found.push(Violation::FalseStop { job: fate.job.spec.key.clone(), cause: name });
    }
}

/// Whether this victim may make way for that taker. `cause` is none for surplus.
fn for_another(
    case: &Case<'_>,
    ledger: &Ledger,
    victim: &Victim<'_>,
    taker: (JobIdx, &Job),
    cause: Option<StopCause>,
    found: &mut Vec<Violation>,
) {
    let (row, job) = taker;
    let mut protect = |so: bool, why: Protection| {
        if so {
            let (victim, taker) = (victim.spec().key.clone(), job.spec.key.clone());
            found.push(Violation::Protected { victim, taker, why });
        }
    };
    let queue = case.snapshot.state.queue(victim.spec().queue);
    let age = case.snapshot.now.since(victim.running.started);
    protect(!case.policy.preemption && cause.is_some(), Protection::Policy);
    protect(!victim.spec().preemptible && cause.is_some(), Protection::NotPreemptible);
    protect(victim.running.settling, Protection::Settling);
    protect(cause.is_some() && age < queue.reclaim_min_runtime, Protection::MinRuntime);
    let lent_for_private =
        cause != Some(StopCause::Preempted) && private_start_has_come(case, job) && !victim.running.guaranteed;
    if victim.spec().queue == job.spec.queue {
        let higher = job.spec.priority > victim.spec().priority;
        let surplus = cause.is_none() && job.spec.priority >= victim.spec().priority;
        protect(!higher && !surplus && !lent_for_private, Protection::Priority);
        protect(cause == Some(StopCause::Preempted) && victim.running.firm, Protection::Firm);
        return;
    }
    protect(victim.running.guaranteed && cause.is_some(), Protection::Guaranteed);
    protect(cause == Some(StopCause::Preempted), Protection::Priority);
    let open = match queue.reclaim_from {
        ReclaimFrom::Any => true,
        ReclaimFrom::LowerPriority => job.spec.priority > victim.spec().priority,
        ReclaimFrom::Never => false,
    };
    protect(!open, Protection::ReclaimFrom);
    if !lent_for_private {
        let (theirs, ours) = siblings(case, victim.spec().queue, job.spec.queue);
        protect(!ledger.above_guarantee(case, theirs, victim.spec(), &job.spec), Protection::QueueWithinGuarantee);
        // A family without a guarantee of its own stands for what its leaves are guaranteed.
        let entitled = ledger.entitled(case, ours, row) || ledger.entitled(case, job.spec.queue, row);
        let entitled = entitled || ledger.fairer(case, theirs, ours, row, victim);
        protect(!entitled, Protection::NotEntitled);
    }
}

fn private_start_has_come(case: &Case<'_>, taker: &Job) -> bool {
    let start = match &taker.phase {
        Phase::Waiting(waiting) => waiting.private_start,
        Phase::Running(running) => running.private_start,
        Phase::Leaving(_) => None,
    };
    start.is_some_and(|at| at <= case.snapshot.now)
}

/// The ancestors (or selves) of two queues just below their lowest common ancestor.
fn siblings(case: &Case<'_>, one: QueueIdx, other: QueueIdx) -> (QueueIdx, QueueIdx) {
    let below: Vec<QueueIdx> = lineage(&case.snapshot, one).collect();
    let theirs: Vec<QueueIdx> = lineage(&case.snapshot, other).collect();
    let shared = below.iter().rev().zip(theirs.iter().rev()).take_while(|(a, b)| a == b).count();
    let child = |line: &[QueueIdx]| line[line.len().saturating_sub(shared + 1)];
    (child(&below), child(&theirs))
}

/// A taker's reservation counts only on those told to go, and everybody told to go is for somebody who gets the room.
fn cleared(case: &Case<'_>, row: JobIdx, fate: &Fate<'_>, found: &mut Vec<Violation>) {
    let taker_of = |fate: &Fate<'_>| fate.halt.and_then(|h| h.by).or(fate.shrunk_for);
    for victim in fate.clears {
        if case.fates.get(victim).and_then(taker_of) != Some(row) {
            found.push(Violation::NotCleared { taker: fate.job.spec.key.clone(), victim: case.key(*victim) });
        }
    }
    let Some(taker) = taker_of(fate) else { return };
    let other = case.fates.get(&taker);
    let gets = other.is_some_and(|t| {
        let promised = t.promise.is_some_and(|p| p.fresh) && (t.clears.contains(&row) || !t.reserved);
        t.begin.is_some() || promised || t.reshaped.is_some()
    });
    if !gets {
        found.push(Violation::TakerGetsNothing { victim: fate.job.spec.key.clone(), taker: case.key(taker) });
    }
    let reservation = case.snapshot.state.job(taker).and_then(Job::waiting).and_then(|w| w.reservation.as_ref());
    let clearing = reservation.is_some_and(|r| r.clearing);
    if clearing && other.is_none_or(|t| t.changes.is_empty()) {
        found.push(Violation::SecondRound { taker: case.key(taker) });
    }
}

/// No victim can be spared: with it, some node of the taker's very seats or some limit above the taker is exceeded.
fn needed(
    case: &Case<'_>,
    row: JobIdx,
    fate: &Fate<'_>,
    nodes: &Nodes<'_, '_>,
    queues: &Queues<'_, '_>,
    found: &mut Vec<Violation>,
) {
    let Some(running) = fate.job.running() else { return };
    let whole = fate.halt.is_some();
    let Some(taker) = fate.halt.and_then(|h| h.by).or(fate.shrunk_for) else { return };
    let Some(taker_job) = case.snapshot.state.job(taker) else { return };
    debug_assert_ne!(row, taker);
    let gone: Vec<Seat> = match fate.reshaped.filter(|_| !whole) {
        Some(after) => beyond(&running.placement, after),
        None => running.placement.seats.clone(),
    };
    let now = case.snapshot.now;
    let grace = fate.job.spec.grace;
    let from = Moment::at(now + grace);
    let until =
        Moment::at(if running.ends <= now { assumed(running.ends, now, case.policy.cycle) } else { running.ends });
    let spared = Spared { spec: &fate.job.spec, seats: &gone, stay: Window { from, until } };
    let by_room = nodes.needs_them_gone(case, taker, &spared);
    let by_guarantee = || queues.needs_the_guarantee(case, taker, &spared);
    if !by_room && !queues.needs_them_gone(case, taker, taker_job.spec.queue, &spared, whole) && !by_guarantee() {
        let (victim, taker) = (fate.job.spec.key.clone(), case.key(taker));
        found.push(Violation::NotNeeded { victim, taker });
    }
}

/// What each queue that matters holds as the plan's actions go on: what runs and is not told to go, and what starts or
/// has room cleared for it.
struct Ledger {
    used: BTreeMap<QueueIdx, BTreeMap<QuotaKey, i64>>,
    come: BTreeSet<JobIdx>,
}

impl Ledger {
    /// Only queues between which somebody takes room matter.
    fn of(case: &Case<'_>) -> Self {
        let mut ledger = Self { used: BTreeMap::new(), come: BTreeSet::new() };
        for action in &case.plan.actions {
            let (Action::Stop { job, by: Some(by), .. } | Action::Resize { job, by: Some(by), .. }) = action else {
                continue;
            };
            if let (Some(victim), Some(taker)) = (case.snapshot.state.job(*job), case.snapshot.state.job(*by)) {
                let (theirs, ours) = siblings(case, victim.spec.queue, taker.spec.queue);
                for queue in [theirs, ours, taker.spec.queue] {
                    ledger.used.entry(queue).or_default();
                }
            }
        }
        if !ledger.used.is_empty() {
            for (row, job) in case.snapshot.state.jobs() {
                match &job.phase {
                    Phase::Running(running) => ledger.add(case, &job.spec, &running.placement.seats, 1),
                    Phase::Waiting(waiting) => {
                        if let Some(r) = waiting.reservation.as_ref().filter(|r| r.clearing) {
                            ledger.come.insert(row);
                            ledger.add(case, &job.spec, &r.placement.seats, 1);
                        }
                    }
                    Phase::Leaving(_) => {}
                }
            }
        }
        ledger
    }

    fn add(&mut self, case: &Case<'_>, spec: &JobSpec, seats: &[Seat], times: i64) {
        let counts = quota::count(&case.snapshot, seats);
        for queue in lineage(&case.snapshot, spec.queue) {
            let Some(used) = self.used.get_mut(&queue) else { continue };
            for key in keys(case, queue) {
                *used.entry(key).or_default() += quota::amount(&case.snapshot, spec, &counts, key) * times;
            }
        }
    }

    fn leave(&mut self, case: &Case<'_>, seats: &[Seat], spec: &JobSpec) {
        self.add(case, spec, seats, -1);
    }

    /// A job starts, or room is cleared for it.
    fn come(&mut self, case: &Case<'_>, row: JobIdx) {
        let Some(fate) = case.fates.get(&row).filter(|f| f.begin.is_some() || !f.clears.is_empty()) else { return };
        if self.come.insert(row) {
            self.add(case, &fate.job.spec, taken(fate), 1);
        }
    }

    fn get(&self, queue: QueueIdx, key: QuotaKey) -> i64 {
        self.used.get(&queue).and_then(|u| u.get(&key)).copied().unwrap_or(0)
    }

    /// Whether a queue is above what it may call its own in something that its job has and the taker wants.
    fn above_guarantee(&self, case: &Case<'_>, queue: QueueIdx, victim: &JobSpec, taker: &JobSpec) -> bool {
        let guarantee = &case.snapshot.state.queue(queue).guarantee;
        let right = right(case, queue, &total(case));
        keys(case, queue).into_iter().any(|key| {
            let own = match key.pool {
                None => right[key.resource.row()],
                Some(_) => to_f64(guarantee.get(&key).copied().unwrap_or(0)),
            };
            let over = to_f64(self.get(queue, key)) > own;
            over && requests(case, victim, key.resource) && requests(case, taker, key.resource)
        })
    }

    /// Whether the taker fits its queue's guarantee beside what that queue holds.
    fn entitled(&self, case: &Case<'_>, queue: QueueIdx, taker: JobIdx) -> bool {
        let Some(fate) = case.fates.get(&taker) else { return false };
        let guarantee = &case.snapshot.state.queue(queue).guarantee;
        let wants = self.wants(case, fate);
        let mut listed = false;
        let fits = guarantee.iter().all(|(key, most)| {
            let more = quota::amount(&case.snapshot, &fate.job.spec, &wants, *key);
            listed |= more > 0;
            more == 0 || self.others(case, queue, taker, *key) + more <= *most
        });
        fits && listed
    }

    /// Held by a queue without the taker, which may have been counted already.
    fn others(&self, case: &Case<'_>, queue: QueueIdx, taker: JobIdx, key: QuotaKey) -> i64 {
        let own = case.fates.get(&taker).filter(|_| self.come.contains(&taker));
        let own = own.map_or(0, |f| quota::amount(&case.snapshot, &f.job.spec, &self.wants(case, f), key));
        self.get(queue, key) - own
    }

    fn wants(&self, case: &Case<'_>, fate: &Fate<'_>) -> quota::Counts {
        quota::count(&case.snapshot, taken(fate))
    }

    /// Whether the taker's queue, with it, has no larger share than the victim's queue keeps without the victim.
    fn fairer(&self, case: &Case<'_>, theirs: QueueIdx, ours: QueueIdx, taker: JobIdx, victim: &Victim<'_>) -> bool {
        let Some(fate) = case.fates.get(&taker) else { return false };
        let (wants, lost) = (self.wants(case, fate), quota::count(&case.snapshot, &victim.running.placement.seats));
        let total = total(case);
        let share = |queue: QueueIdx, used: &dyn Fn(QuotaKey) -> i64| {
            let (right, weight) = (right(case, queue, &total), case.snapshot.state.queue(queue).weight);
            let part = |row: usize| {
                let key = QuotaKey { pool: None, resource: ResourceIdx::of(row) };
                let beyond = to_f64(used(key)) - right[row];
                if beyond <= 0.0 { 0.0 } else { beyond / to_f64(total[row].max(1)) / weight }
            };
            (0..total.len()).map(part).fold(0.0, f64::max)
        };
        let after =
            |key| self.others(case, ours, taker, key) + quota::amount(&case.snapshot, &fate.job.spec, &wants, key);
        let kept = |key| self.get(theirs, key) - quota::amount(&case.snapshot, victim.spec(), &lost, key);
        share(ours, &after) <= share(theirs, &kept) + 1e-9
    }
}

/// What a queue may call its own, by resource row: what it lists (everywhere, else for pools together); of resources it
/// does not list, the part of the cluster that it is guaranteed of any; or what its children have together, if more.
fn right(case: &Case<'_>, queue: QueueIdx, total: &[i64]) -> Vec<f64> {
    let here = case.snapshot.state.queue(queue);
    let plain = |row: usize| here.guarantee.get(&QuotaKey { pool: None, resource: ResourceIdx::of(row) }).copied();
    let pooled = |row: usize| {
        let of_resource = here.guarantee.iter().filter(|(key, _)| key.pool.is_some() && key.resource.row() == row);
        of_resource.map(|(_, most)| *most).reduce(|a, b| a + b)
    };
    let listed: Vec<Option<f64>> = (0..total.len()).map(|row| plain(row).or_else(|| pooled(row)).map(to_f64)).collect();
    let fraction = |(row, most): (usize, &Option<f64>)| most.filter(|_| total[row] > 0).map(|m| m / to_f64(total[row]));
    let most = listed.iter().enumerate().filter_map(fraction).fold(0.0, f64::max).min(1.0);
    let queues = case.snapshot.state.queues().iter().enumerate().skip(1);
    let children = queues.filter(|(_, q)| q.parent == queue).map(|(row, _)| right(case, QueueIdx::of(row), total));
    let mut sum = vec![0.0; total.len()];
    for child in children {
        sum.iter_mut().zip(child).for_each(|(all, part)| *all += part);
    }
    let own = |row: usize| listed[row].unwrap_or_else(|| (most * to_f64(total[row])).floor());
    (0..total.len()).map(|row| if plain(row).is_some() { own(row) } else { own(row).max(sum[row]) }).collect()
}

#[allow(clippy::cast_precision_loss)]
fn to_f64(amount: i64) -> f64 {
    amount as f64
}

/// Allocatable of all registered nodes, by resource row.
fn total(case: &Case<'_>) -> Vec<i64> {
    let mut total = vec![0i64; case.snapshot.state.resources.len()];
    for node in case.snapshot.state.nodes() {
        for (all, amount) in total.iter_mut().zip(&node.allocatable.0) {
            *all = all.saturating_add(*amount);
        }
    }
    total
}

/// Every plain key, and those that a queue's guarantee lists.
fn keys(case: &Case<'_>, queue: QueueIdx) -> Vec<QuotaKey> {
    let plain = (0..case.snapshot.state.resources.len()).map(|r| QuotaKey { pool: None, resource: ResourceIdx::of(r) });
    let pooled = case.snapshot.state.queue(queue).guarantee.keys().filter(|k| k.pool.is_some()).copied();
    plain.chain(pooled).collect()
}

fn requests(case: &Case<'_>, spec: &JobSpec, resource: ResourceIdx) -> bool {
    spec.roles.iter().any(|r| case.snapshot.state.shapes.get(r.shape).requests.get(resource) > 0)
}

/// The seats that a job is given by the plan.
fn taken<'a>(fate: &Fate<'a>) -> &'a [Seat] {
    fate.begin.map(|b| b.placement).or(fate.promise.map(|p| p.placement)).map_or(&[], |p| &p.seats)
}
