//! Law 5: a queue and each of its ancestors stay within limit and `maxRunningJobs` at every moment of the plan, and what
//! is not preemptible stays within guarantees.

use super::Case;
use super::capacity::{Spared, watched};
use super::holding::{Holding, Kind};
use super::moment::{Excess, Line, sweep};
use super::violation::{Name, Violation};
use crate::ids::{JobIdx, PoolIdx, QueueIdx};
use crate::job::{JobSpec, Placement, Seat};
use crate::plan::Action;
use crate::queue::{Quota, QuotaKey};
use crate::state::Snapshot;
use std::collections::BTreeMap;

/// Pods by role and pool: what quotas count.
pub(super) type Counts = Vec<(u8, PoolIdx, i64)>;

/// The restricted queues above everything that the plan touches, and what is held in each.
pub(super) struct Queues<'h, 'a> {
    holdings: &'h [Holding<'a>],
    counts: Vec<Counts>,
    held: BTreeMap<QueueIdx, Vec<usize>>,
}

impl<'h, 'a> Queues<'h, 'a> {
    pub(super) fn of(case: &Case<'_>, holdings: &'h [Holding<'a>]) -> Self {
        let mut held: BTreeMap<QueueIdx, Vec<usize>> = BTreeMap::new();
        for holding in holdings.iter().filter(|h| watched(case, h)) {
            for queue in lineage(&case.snapshot, holding.spec.queue) {
                let here = case.snapshot.state.queue(queue);
                if !here.limit.is_empty() || here.max_running_jobs.is_some() {
                    held.entry(queue).or_default();
                }
            }
        }
        let mut counts = vec![Counts::new(); holdings.len()];
        for (row, holding) in holdings.iter().enumerate() {
            let mut counted = false;
            for queue in lineage(&case.snapshot, holding.spec.queue) {
                if let Some(rows) = held.get_mut(&queue) {
                    rows.push(row);
                    counted = true;
                }
            }
            if counted {
                counts[row] = count(&case.snapshot, &holding.seats);
            }
        }
        Self { holdings, counts, held }
    }

    pub(super) fn check(&self, case: &Case<'_>, found: &mut Vec<Violation>) {
        for queue in self.held.keys() {
            if let Some(excess) = self.excess(case, *queue, None, |h| watched(case, h)) {
                found.push(self.violation(case, *queue, excess));
            }
        }
        guarantees(case, self.holdings, found);
    }

    /// Columns: the keys of the limit in order, then the number of jobs.
    fn excess(
        &self,
        case: &Case<'_>,
        queue: QueueIdx,
        extra: Option<(&[i64], &Spared<'_>)>,
        watch: impl Fn(&Holding<'_>) -> bool,
    ) -> Option<Excess> {
        let here = case.snapshot.state.queue(queue);
        let rows = self.held.get(&queue)?;
        let amounts: Vec<Vec<i64>> = rows
            .iter()
            .map(|row| {
                columns(case, self.holdings[*row].spec, &self.counts[*row], &here.limit, self.holdings[*row].counts)
            })
            .collect();
        let mut lines: Vec<Line<'_>> = rows
            .iter()
            .zip(&amounts)
            .map(|(row, amounts)| {
                let holding = &self.holdings[*row];
                Line { window: holding.window, amounts, times: 1, watched: watch(holding), tag: *row }
            })
            .collect();
        if let Some((amounts, spared)) = extra {
            lines.push(Line { window: spared.stay, amounts, times: 1, watched: false, tag: 0 });
        }
        let jobs = here.max_running_jobs.map_or(i64::MAX, i64::from);
        let caps: Vec<i64> = here.limit.values().copied().chain([jobs]).collect();
        sweep(&lines, &caps)
    }

    fn violation(&self, case: &Case<'_>, queue: QueueIdx, excess: Excess) -> Violation {
        let here = case.snapshot.state.queue(queue);
        let (name, at, job) = (here.name.clone(), excess.at.0, self.holdings[excess.tag].spec.key.clone());
        match here.limit.iter().nth(excess.column) {
            Some((key, limit)) => Violation::OverLimit {
                queue: name,
                key: key_name(&case.snapshot, *key),
                at,
                need: excess.need,
                limit: *limit,
                job,
            },
            None => Violation::TooManyRunning {
                queue: name,
                at,
                count: excess.need,
                most: here.max_running_jobs.unwrap_or_default(),
                job,
            },
        }
    }

    /// Whether a job that is not preemptible (the taker, or one whose promise begins while the taker is there) would start
    /// beyond a guarantee above it and the taker if the victim kept these seats.
    pub(super) fn needs_the_guarantee(&self, case: &Case<'_>, taker: JobIdx, spared: &Spared<'_>) -> bool {
        let Some(own) = self.holdings.iter().find(|h| h.job == taker && h.kind != Kind::Old) else { return false };
        let (stay, there) = (spared.stay, own.window);
        let strict = self.holdings.iter().filter(|h| h.kind != Kind::Old && !h.spec.preemptible && h.counts);
        strict
            .filter(|h| stay.from <= h.window.from && h.window.from < stay.until)
            .filter(|h| there.from <= h.window.from && h.window.from < there.until)
            .any(|begins| self.beyond_a_guarantee(case, begins, own, spared))
    }

    /// Whether, when one job begins, a guarantee above it, the taker and the victim would be exceeded with these seats.
    fn beyond_a_guarantee(
        &self,
        case: &Case<'_>,
        begins: &Holding<'_>,
        taker: &Holding<'_>,
        spared: &Spared<'_>,
    ) -> bool {
        let at = begins.window.from;
        let of = |h: &Holding<'_>, key| amount(&case.snapshot, h.spec, &count(&case.snapshot, &h.seats), key);
        let theirs = count(&case.snapshot, spared.seats);
        let victims: Vec<QueueIdx> = lineage(&case.snapshot, spared.spec.queue).collect();
        let takers: Vec<QueueIdx> = lineage(&case.snapshot, taker.spec.queue).collect();
        let shared = lineage(&case.snapshot, begins.spec.queue).filter(|q| victims.contains(q) && takers.contains(q));
        shared.into_iter().any(|queue| {
            let there = |h: &&Holding<'_>| {
                h.window.from <= at && at < h.window.until && lineage(&case.snapshot, h.spec.queue).any(|q| q == queue)
            };
            case.snapshot.state.queue(queue).guarantee.iter().any(|(key, most)| {
                let kept = amount(&case.snapshot, spared.spec, &theirs, *key);
                let used: i64 = self.holdings.iter().filter(there).map(|h| of(h, *key)).sum();
                of(begins, *key) > 0 && of(taker, *key) > 0 && kept > 0 && used + kept > *most
            })
        })
    }

    /// Whether some limit above `taker` would be exceeded if its victim kept these seats.
    pub(super) fn needs_them_gone(
        &self,
        case: &Case<'_>,
        taker: JobIdx,
        taker_queue: QueueIdx,
        spared: &Spared<'_>,
        whole: bool,
    ) -> bool {
        let victims: Vec<QueueIdx> = lineage(&case.snapshot, spared.spec.queue).collect();
        let counts = count(&case.snapshot, spared.seats);
        lineage(&case.snapshot, taker_queue).filter(|q| victims.contains(q)).any(|queue| {
            let limit = &case.snapshot.state.queue(queue).limit;
            let amounts = columns(case, spared.spec, &counts, limit, whole);
            self.excess(case, queue, Some((&amounts, spared)), |h| h.job == taker && h.kind != Kind::Old).is_some()
        })
    }
}

/// What a holding takes of each key of a quota, then whether it counts as a job.
fn columns(case: &Case<'_>, spec: &JobSpec, counts: &Counts, quota: &Quota, counted: bool) -> Vec<i64> {
    quota.keys().map(|key| amount(&case.snapshot, spec, counts, *key)).chain([i64::from(counted)]).collect()
}

/// A queue and its ancestors, the root last.
pub(super) fn lineage<'s>(snapshot: &Snapshot<'s>, queue: QueueIdx) -> impl Iterator<Item = QueueIdx> + use<'s> {
    let state = snapshot.state;
    std::iter::successors(Some(queue), move |at| (*at != QueueIdx::ROOT).then(|| state.queue(*at).parent))
}

/// Counts seats by role and pool.
pub(super) fn count(snapshot: &Snapshot<'_>, seats: &[Seat]) -> Counts {
    let topology = snapshot.state.topology();
    let single = topology.pools().len() == 1;
    let mut counts = Counts::new();
    for seat in seats {
        let pool = if single { PoolIdx(0) } else { topology.domain(topology.innermost(seat.node)).pool };
        match counts.iter_mut().find(|c| (c.0, c.1) == (seat.role, pool)) {
            Some(there) => there.2 += 1,
            None => counts.push((seat.role, pool, 1)),
        }
    }
    counts
}

/// What these pods count for under one quota key.
pub(super) fn amount(snapshot: &Snapshot<'_>, spec: &JobSpec, counts: &Counts, key: QuotaKey) -> i64 {
    let each = |role: u8| {
        let shape = snapshot.state.shapes.get(spec.roles[usize::from(role)].shape);
        shape.requests.0.get(key.resource.row()).copied().unwrap_or(0)
    };
    counts.iter().filter(|(_, pool, _)| key.pool.is_none_or(|p| p == *pool)).map(|(role, _, n)| each(*role) * n).sum()
}

/// A key as users write it.
pub(super) fn key_name(snapshot: &Snapshot<'_>, key: QuotaKey) -> Name {
    let resource = snapshot.state.resources.name(key.resource);
    match key.pool.and_then(|p| snapshot.state.topology().pools().get(p.row())) {
        Some(pool) => format!("{}/{resource}", pool.name).into(),
        None => resource.into(),
    }
}

/// Starts and growth of jobs that are not preemptible, within every guarantee above them: the floors of all starts in the
/// order of the plan, then what these jobs take beyond their floors (decision 17 serves surplus last).
fn guarantees(case: &Case<'_>, holdings: &[Holding<'_>], found: &mut Vec<Violation>) {
    let mut used: BTreeMap<QueueIdx, BTreeMap<QuotaKey, i64>> = BTreeMap::new();
    for fate in case.fates.values().filter(|f| !f.job.spec.preemptible && (f.begin.is_some() || f.reshaped.is_some())) {
        for queue in lineage(&case.snapshot, fate.job.spec.queue) {
            used.entry(queue).or_insert_with(|| use_before(case, holdings, queue));
        }
    }
    if used.is_empty() {
        return;
    }
    for action in &case.plan.actions {
        let (Some(job), Action::Start { placement, .. }) = (case.snapshot.state.job(action.job()), action) else {
            continue;
        };
        let (floor, _) = at_floor(&job.spec, placement);
        take(case, &mut used, &job.spec, &floor, found);
    }
    for fate in case.fates.values().filter(|f| !f.job.spec.preemptible) {
        let surplus = match (fate.begin, fate.job.running(), fate.reshaped) {
            (Some(begin), ..) => at_floor(&fate.job.spec, begin.placement).1,
            (None, Some(running), Some(after)) if fate.halt.is_none() => {
                // A member that only changes its node takes nothing new.
                let rank = |s: &Seat| (s.role, s.index);
                let new = |s: &Seat| !running.placement.seats.iter().any(|old| rank(old) == rank(s));
                after.seats.iter().filter(|s| new(s)).copied().collect()
            }
            _ => continue,
        };
        take(case, &mut used, &fate.job.spec, &surplus, found);
    }
}

/// Counts seats in every queue above a job and says where one that is not preemptible borrows.
fn take(
    case: &Case<'_>,
    used: &mut BTreeMap<QueueIdx, BTreeMap<QuotaKey, i64>>,
    spec: &JobSpec,
    seats: &[Seat],
    found: &mut Vec<Violation>,
) {
    let counts = count(&case.snapshot, seats);
    for queue in lineage(&case.snapshot, spec.queue) {
        let here = case.snapshot.state.queue(queue);
        let Some(used) = used.get_mut(&queue) else { continue };
        let mut over = here.guarantee.is_empty() && queue == spec.queue && !seats.is_empty();
        for (key, guarantee) in &here.guarantee {
            let more = amount(&case.snapshot, spec, &counts, *key);
            let all = used.entry(*key).or_default();
            *all += more;
            over |= more > 0 && *all > *guarantee;
        }
        if over && !spec.preemptible {
            let (job, queue) = (spec.key.clone(), here.name.clone());
            found.push(Violation::NonPreemptibleBorrows { job, queue });
        }
    }
}

/// Seats of the floor, and those beyond it.
fn at_floor(spec: &JobSpec, placement: &Placement) -> (Vec<Seat>, Vec<Seat>) {
    let of_floor = |s: &&Seat| spec.roles.get(usize::from(s.role)).is_some_and(|role| s.index < role.floor);
    placement.seats.iter().partition(of_floor)
}

/// What a queue and all below it held before the plan, by the keys of its guarantee.
fn use_before(case: &Case<'_>, holdings: &[Holding<'_>], queue: QueueIdx) -> BTreeMap<QuotaKey, i64> {
    let mut used = BTreeMap::new();
    let keys: Vec<QuotaKey> = case.snapshot.state.queue(queue).guarantee.keys().copied().collect();
    let mine = |h: &&Holding<'_>| h.kind == Kind::Old && lineage(&case.snapshot, h.spec.queue).any(|q| q == queue);
    for holding in holdings.iter().filter(mine) {
        let counts = count(&case.snapshot, &holding.seats);
        for key in &keys {
            *used.entry(*key).or_default() += amount(&case.snapshot, holding.spec, &counts, *key);
        }
    }
    used
}
