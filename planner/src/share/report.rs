//! What `Queue.status` says about quotas, for people.

use super::Shares;
use crate::ids::QueueIdx;
use crate::policy::Policy;
use crate::state::{Snapshot, Tally};
use std::collections::BTreeMap;

/// A queue's standing in figures; plain keys and the pool keys that some queue lists.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct QueueReport {
    /// What its jobs hold.
    pub used: Tally,
    /// Its effective guarantee: what it lists, else the sum of its children's.
    pub guaranteed: Tally,
    /// Held beyond the guarantee, in resources that have one; all of it for a queue without guarantee.
    pub borrowed: Tally,
    /// Unused guarantee that others hold now; divided among lenders in proportion to what each leaves idle.
    pub lent: Tally,
    /// What it would get if everything were divided anew, see [`Shares::fair_share`].
    pub fair_share: Tally,
    /// Its present weighted dominant share (0 is at or below guarantee): `Queue.status.fairShare`.
    pub share: f64,
}

/// The reports of all queues, by row.
#[must_use]
pub fn queue_reports(snapshot: Snapshot, policy: &Policy) -> Vec<QueueReport> {
    let shares = Shares::new(snapshot, policy);
    let mut reports: Vec<QueueReport> =
        (0..snapshot.state.queues().len()).map(|row| report_of(&shares, QueueIdx::of(row))).collect();
    for column in 0..shares.columns.len() {
        for (queue, amount) in lent(&shares, column) {
            reports[queue.row()].lent.insert(shares.columns.key(column), amount);
        }
    }
    reports
}

fn report_of(shares: &Shares, queue: QueueIdx) -> QueueReport {
    let (use_, guarantee) = (shares.use_.row(queue), shares.guarantees.effective.row(queue));
    let has_any = guarantee.iter().any(Option::is_some);
    let listed_somewhere = |c: &usize| {
        let key = shares.columns.key(*c);
        key.pool.is_none() || shares.snapshot.state.queues().iter().any(|q| q.guarantee.contains_key(&key))
    };
    let shown: Vec<usize> = (0..shares.columns.len()).filter(listed_somewhere).collect();
    let tally = |amount: &dyn Fn(usize) -> i64| -> Tally {
        let cells = shown.iter().map(|c| (shares.columns.key(*c), amount(*c)));
        cells.filter(|(_, a)| *a != 0).collect()
    };
    QueueReport {
        used: tally(&|c| use_[c]),
        guaranteed: tally(&|c| guarantee[c].unwrap_or(0)),
        borrowed: tally(&|c| match guarantee[c] {
            Some(g) => (use_[c] - g).max(0),
            None if has_any => 0,
            None => use_[c].max(0),
        }),
        lent: Tally::new(),
        fair_share: shares.fair_share(queue),
        share: shares.present_share(queue, &BTreeMap::new(), 0).to_f64(),
    }
}

/// What leaves lend of one column: idle guarantees as far as use elsewhere exceeds what nobody is guaranteed.
fn lent(shares: &Shares, column: usize) -> Vec<(QueueIdx, i64)> {
    let leaves = || shares.deepest_first.iter().copied().filter(|q| shares.children[q.row()].is_empty());
    let guarantee = |q: QueueIdx| shares.guarantees.effective.row(q)[column];
    let idle = |q: QueueIdx| guarantee(q).map_or(0, |g| (g - shares.use_.row(q)[column]).max(0));
    let all_idle: i64 = leaves().map(idle).sum();
    let usable = shares.snapshot.state.usable().get(&shares.columns.key(column)).copied().unwrap_or(0);
    let free = (usable - shares.use_.row(QueueIdx::ROOT)[column]).max(0);
    let lent = (all_idle - free).max(0);
    if lent == 0 {
        return Vec::new();
    }
    let mut parts: Vec<(i128, QueueIdx, i64)> = leaves()
        .filter(|q| idle(*q) > 0)
        .map(|q| {
            let exact = i128::from(lent) * i128::from(idle(q));
            let whole = i64::try_from(exact / i128::from(all_idle)).unwrap_or(i64::MAX);
            (exact % i128::from(all_idle), q, whole)
        })
        .collect();
    let mut leftover = lent - parts.iter().map(|p| p.2).sum::<i64>();
    let name = |q: QueueIdx| &shares.snapshot.state.queue(q).name;
    parts.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| name(a.1).cmp(name(b.1))));
    for part in &mut parts {
        let extra = i64::from(leftover > 0);
        part.2 += extra;
        leftover -= extra;
    }
    parts.into_iter().map(|(_, q, amount)| (q, amount)).filter(|(_, a)| *a > 0).collect()
}
