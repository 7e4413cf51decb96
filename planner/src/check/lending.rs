//! Law 5, lending limits: what queues keep back of their guarantees is lent to nobody, recounted after the plan.

use super::fate::Fate;
use super::quota::{Counts, amount, count, key_name, lineage};
use super::violation::Violation;
use super::{Case, fate::Fates};
use crate::ids::{JobIdx, NodeIdx, QueueIdx};
use crate::job::{Job, Phase, Placement, Seat};
use crate::queue::QuotaKey;
use std::collections::BTreeSet;

/// What one key comes to after the plan, by queue row.
struct After {
    used: Vec<i64>,
    /// Unused room that must stay for a queue and those below it.
    kept: Vec<i64>,
    /// What usable nodes have for our pods.
    have: i64,
}

pub(super) fn check(case: &Case<'_>, found: &mut Vec<Violation>) {
    let queues = case.snapshot.state.queues();
    let keys: BTreeSet<QuotaKey> =
        queues.iter().flat_map(|q| q.lending_limit.keys().filter(|k| q.guarantee.contains_key(k))).copied().collect();
    for key in keys {
        let after = After::of(case, key);
        let mut gainers = case.fates.values().filter(|fate| gains(case, fate, key) > 0);
        found.extend(gainers.find_map(|fate| after.lent_too_much(case, fate, key)));
    }
}

impl After {
    fn of(case: &Case<'_>, key: QuotaKey) -> Self {
        let used = used(case, key);
        let kept = (0..used.len()).map(|row| kept(case, key, &used, QueueIdx::of(row))).collect();
        Self { used, kept, have: usable(case, key) }
    }

    fn lent_too_much(&self, case: &Case<'_>, fate: &Fate<'_>, key: QuotaKey) -> Option<Violation> {
        let line: Vec<QueueIdx> = lineage(&case.snapshot, fate.job.spec.queue).collect();
        let others = |parent: QueueIdx, own: QueueIdx| -> i64 {
            children(case, parent).filter(|q| *q != own).map(|q| self.kept[q.row()]).sum()
        };
        let by_parent: Vec<(QueueIdx, i64)> = line.windows(2).map(|pair| (pair[1], others(pair[1], pair[0]))).collect();
        let kept: i64 = by_parent.iter().map(|(_, kept)| kept).sum();
        let need = self.used[QueueIdx::ROOT.row()] + kept;
        let (parent, _) = by_parent.into_iter().find(|(_, kept)| *kept > 0).filter(|_| need > self.have)?;
        let queue = case.snapshot.state.queue(parent).name.clone();
        let (job, key) = (fate.job.spec.key.clone(), key_name(&case.snapshot, key));
        Some(Violation::OverLent { job, queue, key, need, have: self.have })
    }
}

fn children<'c>(case: &'c Case<'_>, parent: QueueIdx) -> impl Iterator<Item = QueueIdx> + 'c {
    let queues = case.snapshot.state.queues().iter().enumerate().skip(1);
    queues.filter(move |(_, q)| q.parent == parent).map(|(row, _)| QueueIdx::of(row))
}

/// A queue's own unlendable part that it does not use, or what is kept below it, if that is more.
fn kept(case: &Case<'_>, key: QuotaKey, used: &[i64], queue: QueueIdx) -> i64 {
    let here = case.snapshot.state.queue(queue);
    let unlent = match (here.guarantee.get(&key), here.lending_limit.get(&key)) {
        (Some(guarantee), Some(most)) => (guarantee - most).max(0),
        _ => 0,
    };
    let own = (unlent - used[queue.row()]).clamp(0, unlent);
    own.max(children(case, queue).map(|q| kept(case, key, used, q)).sum())
}

/// The seats that a job runs on after the plan; what is told to go holds nothing of a quota's lending any more.
fn seats_after<'a>(row: JobIdx, job: &'a Job, fates: &Fates<'a>) -> &'a [Seat] {
    let running = match &job.phase {
        Phase::Running(running) => Some(&running.placement),
        Phase::Waiting(_) | Phase::Leaving(_) => None,
    };
    let after: Option<&'a Placement> = match fates.get(&row) {
        Some(fate) if fate.begin.is_some() => fate.begin.map(|b| b.placement),
        Some(fate) if fate.halt.is_some() => None,
        Some(fate) => fate.reshaped.or(running),
        None => running,
    };
    after.map_or(&[], |placement| &placement.seats)
}

fn used(case: &Case<'_>, key: QuotaKey) -> Vec<i64> {
    let mut used = vec![0; case.snapshot.state.queues().len()];
    for (row, job) in case.snapshot.state.jobs() {
        let counts: Counts = count(&case.snapshot, seats_after(row, job, &case.fates));
        let amount = amount(&case.snapshot, &job.spec, &counts, key);
        if amount != 0 {
            lineage(&case.snapshot, job.spec.queue).for_each(|queue| used[queue.row()] += amount);
        }
    }
    used
}

/// How much more of a key a job holds after the plan than before.
fn gains(case: &Case<'_>, fate: &Fate<'_>, key: QuotaKey) -> i64 {
    let of = |placement: Option<&Placement>| {
        let counts = placement.map(|p| count(&case.snapshot, &p.seats)).unwrap_or_default();
        amount(&case.snapshot, &fate.job.spec, &counts, key)
    };
    let before = fate.job.running().filter(|_| fate.begin.is_none()).map(|r| &r.placement);
    let after = fate.begin.map(|b| b.placement).or(fate.reshaped.filter(|_| fate.halt.is_none()));
    if after.is_some() { of(after) - of(before) } else { 0 }
}

fn usable(case: &Case<'_>, key: QuotaKey) -> i64 {
    let topology = case.snapshot.state.topology();
    let pool_of = |row: usize| topology.domain(topology.innermost(NodeIdx::of(row))).pool;
    let nodes = case.snapshot.state.nodes().iter().enumerate().filter(|(_, n)| !n.closed && !n.lost);
    let there = nodes.filter(|(row, _)| key.pool.is_none_or(|pool| pool_of(*row) == pool));
    there.map(|(_, n)| n.allocatable.get(key.resource) - n.foreign.get(key.resource)).sum()
}
