//! "With what would it start?": one waiting job planned again with one thing changed. Runs outside the cycle, on a copy of
//! the cluster that it may edit.

use super::Cycle;
use crate::counterfactual::{Change, Counterfactual, Effect};
use crate::ids::{JobIdx, QueueIdx};
use crate::job::{Job, JobSpec, Phase};
use crate::policy::Policy;
use crate::queue::{Queue, Quota, QuotaKey};
use crate::state::ClusterState;
use crate::time::{Span, Time};
use std::sync::Arc;

/// Limits that are tried, in minutes, shortest first: lengths that people write.
const LIMITS_MIN: [i64; 14] = [5, 10, 15, 30, 60, 120, 180, 240, 360, 480, 720, 1440, 2880, 10_080];
/// An earlier start is worth telling from this on.
const WORTH_TELLING: Span = Span::from_secs(60);

/// Single changes that would start a waiting job now or markedly earlier, best first; none for a job that is held from
/// outside or that no single change helps.
///
/// `paper` is a copy of the cluster ([`ClusterState::clone`]); it is edited and put back, so that it serves for many jobs
/// of one moment.
pub fn counterfactuals(paper: &mut ClusterState, now: Time, policy: &Policy, job: JobIdx) -> Vec<Counterfactual> {
    let Some(there) = paper.job(job).filter(|j| j.waiting().is_some()) else { return Vec::new() };
    let (spec, phase) = (there.spec.clone(), there.phase.clone());
    // 1. Its own promise is not in its way.
    paper.update_job(job, now, withdraw);
    // 2. What it gets as things stand.
    let asked = Question { now, policy, job, spec: spec.clone() };
    let stands = asked.answer(paper).map_or(Time::NEVER, |effect| effect.start(now));
    // 3. What it gets with each change.
    let mut found = Vec::new();
    if stands > now {
        found.extend(asked.without_patience(paper));
        found.extend(asked.wider(paper));
        found.extend(asked.smaller(paper));
        found.extend(asked.shorter(paper));
        found.extend(asked.richer(paper));
    }
    // 4. As it was.
    paper.update_job(job, now, |j| (j.spec, j.phase) = (spec.clone(), phase));
    found.retain(|c| {
        let start = c.effect.start(now);
        start < stands && (start == now || stands.is_never() || stands.since(start) >= WORTH_TELLING)
    });
    found.sort_by_key(|c| (!matches!(c.effect, Effect::Now { .. }), c.effect.start(now)));
    found
}

fn withdraw(job: &mut Job) {
    if let Phase::Waiting(waiting) = &mut job.phase {
        waiting.reservation = None;
    }
}

/// The job that is asked about.
struct Question<'p> {
    now: Time,
    policy: &'p Policy,
    job: JobIdx,
    spec: Arc<JobSpec>,
}

impl Question<'_> {
    /// What the job gets on this cluster, by the same steps as in a cycle.
    fn answer(&self, paper: &ClusterState) -> Option<Effect> {
        let mut cycle = Cycle::open(paper.at(self.now), self.policy);
        cycle.answer(self.job)
    }

    /// What it gets with a change of the job.
    fn with_job(&self, paper: &mut ClusterState, change: impl FnOnce(&mut JobSpec)) -> Option<Effect> {
        let mut edited = (*self.spec).clone();
        change(&mut edited);
        paper.update_job(self.job, self.now, |j| j.spec = Arc::new(edited));
        let effect = self.answer(paper);
        paper.update_job(self.job, self.now, |j| j.spec = self.spec.clone());
        effect
    }

    /// What it gets with a change of a queue.
    fn with_queue(&self, paper: &mut ClusterState, queue: QueueIdx, change: impl FnOnce(&mut Queue)) -> Option<Effect> {
        let was = paper.queue(queue).clone();
        let mut edited = was.clone();
        change(&mut edited);
        paper.set_queue(edited);
        let effect = self.answer(paper);
        paper.set_queue(was);
        effect
    }

    fn without_patience(&self, paper: &mut ClusterState) -> Option<Counterfactual> {
        if self.spec.locality.patience <= Span::ZERO {
            return None;
        }
        let effect = self.with_job(paper, |spec| spec.locality.patience = Span::ZERO)?;
        Some(Counterfactual { change: Change::NoPatience, effect })
    }

    /// The narrowest wider level that lets it start now, else the one that gives the earliest start.
    fn wider(&self, paper: &mut ClusterState) -> Option<Counterfactual> {
        let required = self.spec.locality.required.clone()?;
        let mut best: Option<Counterfactual> = None;
        for level in wider_levels(paper, &required) {
            let effect = self.with_job(paper, |spec| {
                spec.locality.preferred = spec.locality.preferred.take().or(Some(required.clone()));
                spec.locality.patience = Span::ZERO;
                spec.locality.required.clone_from(&level);
            });
            let Some(effect) = effect else { continue };
            let start = effect.start(self.now);
            if best.as_ref().is_none_or(|b| start < b.effect.start(self.now)) {
                best = Some(Counterfactual { change: Change::Required(level), effect });
            }
            if start == self.now {
                break;
            }
        }
        best
    }

    /// The largest floor of its largest role with which it starts now.
    fn smaller(&self, paper: &mut ClusterState) -> Option<Counterfactual> {
        let (row, role) = self.spec.roles.iter().enumerate().max_by_key(|(row, r)| (r.floor, usize::MAX - row))?;
        let step = role.step();
        let with = |paper: &mut ClusterState, steps: u32| {
            let effect = self.with_job(paper, |spec| spec.roles[row].floor = steps * step);
            effect.filter(|e| matches!(e, Effect::Now { .. }))
        };
        let (steps, effect) = largest(role.floor / step - 1, |steps| with(paper, steps))?;
        Some(Counterfactual { change: Change::Floor { role: role.name.clone(), pods: steps * step }, effect })
    }

    /// The longest limit that people write with which it starts now.
    fn shorter(&self, paper: &mut ClusterState) -> Option<Counterfactual> {
        let lengths: Vec<Span> = LIMITS_MIN.iter().map(|m| Span::from_secs(m * 60)).collect();
        let below = lengths.iter().filter(|l| **l < self.spec.max_runtime).count();
        let with = |paper: &mut ClusterState, row: u32| {
            let effect = self.with_job(paper, |spec| spec.max_runtime = lengths[row as usize - 1]);
            effect.filter(|e| matches!(e, Effect::Now { .. }))
        };
        let (row, effect) = largest(u32::try_from(below).unwrap_or(0), |row| with(paper, row))?;
        Some(Counterfactual { change: Change::Limit(lengths[row as usize - 1]), effect })
    }

    /// More of its queue's (or an ancestor's) limit, and of its queue's guarantee.
    fn richer(&self, paper: &mut ClusterState) -> Vec<Counterfactual> {
        let floor = paper.floor_tally(&self.spec);
        let mut found = Vec::new();
        let lineage: Vec<QueueIdx> = paper.lineage(self.spec.queue).collect();
        for queue in lineage {
            let there = paper.queue(queue);
            let short = shortage(paper, queue, &there.limit, &floor, false);
            let name = there.name.clone();
            if !short.is_empty() {
                let effect = self.with_queue(paper, queue, |q| raise(&mut q.limit, &short));
                let more = named(paper, &short);
                found.extend(
                    effect.map(|e| Counterfactual { change: Change::QueueLimit { queue: name, more }, effect: e }),
                );
            }
        }
        let own = self.spec.queue;
        let there = paper.queue(own);
        let (short, queue) = (shortage(paper, own, &there.guarantee, &floor, true), there.name.clone());
        if !short.is_empty() {
            let effect = self.with_queue(paper, own, |q| raise(&mut q.guarantee, &short));
            let more = named(paper, &short);
            found.extend(effect.map(|effect| Counterfactual { change: Change::Guarantee { queue, more }, effect }));
        }
        found
    }
}

/// Levels wider than one, narrowest first, then none at all.
fn wider_levels(paper: &ClusterState, required: &Arc<str>) -> Vec<Option<Arc<str>>> {
    let pools = paper.topology().pools();
    let found = pools.iter().find_map(|p| Some((p, p.depth_of(required)?)));
    let above = found.into_iter().flat_map(|(pool, depth)| {
        (1..depth.0).rev().map(|d| Some(Arc::from(pool.level_name(crate::topology::Depth(d)))))
    });
    above.chain([None]).collect()
}

/// The largest number up to `most` that passes a test which smaller ones pass more easily, with what the test gave.
fn largest<T>(most: u32, mut test: impl FnMut(u32) -> Option<T>) -> Option<(u32, T)> {
    let (mut passes, mut fails) = (None, most + 1);
    let mut low = 0;
    while low + 1 < fails {
        let middle = low + (fails - low) / 2;
        match test(middle) {
            Some(given) => {
                low = middle;
                passes = Some((middle, given));
            }
            None => fails = middle,
        }
    }
    passes
}

/// By how much a quota falls short of what a queue uses and a floor more. Resources that it does not list are free,
/// but for a queue without any guarantee, which is entitled to nothing.
fn shortage(
    paper: &ClusterState,
    queue: QueueIdx,
    quota: &Quota,
    floor: &crate::state::Tally,
    from_nothing: bool,
) -> Vec<(QuotaKey, i64)> {
    let used = paper.queue_use(queue);
    let missing = |key: &QuotaKey, have: i64| {
        let wanted = used.get(key).copied().unwrap_or(0) + floor.get(key).copied().unwrap_or(0);
        (floor.contains_key(key) && wanted > have).then_some((*key, wanted - have))
    };
    if quota.is_empty() && from_nothing {
        let gpus = floor.keys().filter(|k| k.pool.is_none() && paper.resources.name(k.resource).ends_with("/gpu"));
        return gpus.filter_map(|key| missing(key, 0)).collect();
    }
    quota.iter().filter_map(|(key, have)| missing(key, *have)).collect()
}

fn raise(quota: &mut Quota, by: &[(QuotaKey, i64)]) {
    for (key, more) in by {
        *quota.entry(*key).or_default() += more;
    }
}

fn named(paper: &ClusterState, by: &[(QuotaKey, i64)]) -> Vec<(Arc<str>, i64)> {
    let name = |key: &QuotaKey| -> Arc<str> {
        let resource = paper.resources.name(key.resource);
        match key.pool {
            Some(pool) => format!("{}/{resource}", paper.topology().pool(pool).name).into(),
            None => resource.into(),
        }
    };
    by.iter().map(|(key, more)| (name(key), *more)).collect()
}

impl Cycle<'_> {
    /// Start now, room cleared, or a date: the steps of [`Cycle::consider_new`] without the line it stands in.
    fn answer(&mut self, job: JobIdx) -> Option<Effect> {
        if self.outside_hold(job).is_some() {
            return None;
        }
        let patience = self.patience(job);
        if let Ok(placement) = self.place_now(job, patience.map(|p| p.0)) {
            return Some(self.starts_in(job, &placement));
        }
        if let Some((goal, until)) = patience {
            let preferred = self.earliest(job, self.now(), Some(goal)).filter(|(start, _)| *start <= until);
            if let Some((start, _)) = preferred {
                return Some(Effect::Earlier { start });
            }
            if let Ok(placement) = self.place_now(job, None) {
                return Some(self.starts_in(job, &placement));
            }
        }
        if self.policy.preemption
            && let Some(cleared) = self.choose_victims(job, None)
        {
            let victims = cleared.victims.iter().map(|v| self.job(v.job).spec.key.clone()).collect();
            return Some(Effect::Clears { victims, start: cleared.start });
        }
        self.earliest(job, self.now(), None).map(|(start, _)| Effect::Earlier { start })
    }

    fn starts_in(&self, job: JobIdx, placement: &crate::job::Placement) -> Effect {
        let quality = crate::place::quality(self.state().topology(), &self.job(job).spec, placement, 1);
        Effect::Now { domain: if quality.domain.is_empty() { "cluster".into() } else { quality.domain } }
    }
}
