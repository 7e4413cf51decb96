//! One planning cycle: the only code with the control flow of a plan, as numbered steps.

mod claim;
mod clearing;
mod counterfactual;
mod earliest;
mod entitle;
mod forecast;
mod grow;
mod line;
mod pass;
mod prey;
mod promises;
mod quota_time;
mod reasons;
mod repair;
mod serve;
mod start;
mod victims;

use crate::ids::{DomainIdx, JobIdx, PoolIdx, QueueIdx, ShapeIdx};
use crate::job::{Job, JobSpec, Placement, Reservation};
use crate::ledger::{HoldKind, Ledger};
use crate::plan::{Action, Cause, Plan, StopCause};
use crate::policy::Policy;
use crate::queue::{Order, QuotaKey};
use crate::reason::Reason;
use crate::share::{Shares, Users};
use crate::state::{ClusterState, Snapshot, Tally};
use crate::time::{Span, Time};
use quota_time::QuotaBook;
use std::collections::BTreeMap;
use std::sync::Arc;

pub use counterfactual::counterfactuals;
pub use forecast::forecast;

/// Plans one moment of a cluster.
///
/// Pure and deterministic: the same snapshot and policy give the same plan. Apply its actions in order
/// ([`ClusterState::apply`]), then call [`ClusterState::planned`]; planning again then changes nothing.
pub fn plan(snapshot: &Snapshot<'_>, policy: &Policy) -> Plan {
    let mut cycle = Cycle::open(*snapshot, policy);
    // 1. Promises first: what was written stands, or moves with a cause.
    cycle.keep_promises();
    // 2. Those who lost members, before new work.
    cycle.repair();
    // 3. Queues that give room back: draining ones, and those over a limit that was cut.
    cycle.give_back();
    // 4. Private starts that have come: guaranteed room is given back to whom it belongs.
    cycle.private_starts();
    // 5. Floors of all waiting jobs, best job of the best queue first: start, clear room, reserve, or wait.
    cycle.serve();
    // 6. Surplus, one slice a round, last.
    cycle.grow();
    // 7. Once more where what was done changes what those before it may have: so would the next plan.
    cycle.go_on();
    // 8. When to look again though nothing happens.
    cycle.close()
}

/// What this plan does to a job.
#[derive(Clone, Debug)]
enum Fate {
    /// Starts; row of the action.
    Started { row: usize, placement: Placement, ends: Time },
    /// Told to stop.
    Stopping,
    /// Runs on with other seats; row of the action.
    Resized { row: Option<usize>, placement: Placement },
    /// Holds this reservation from now on (none: lost it).
    Promised(Option<Reservation>),
}

/// The working state of one plan.
pub(crate) struct Cycle<'a> {
    snapshot: Snapshot<'a>,
    policy: &'a Policy,
    ledger: Ledger<'a>,
    shares: Shares<'a>,
    users: Users<'a>,
    quota: QuotaBook,
    plan: Plan,
    fates: BTreeMap<JobIdx, Fate>,
    /// Per class: the shortest window that did not fit, and the count of loosenings it was seen at.
    misfits: BTreeMap<u32, (u64, Span)>,
    demands: BTreeMap<(QueueIdx, u32), Arc<Demand>>,
    best_domains: BTreeMap<u32, u32>,
    /// Queue, class, priority and whether its private start has come: the shortest window for which no victims can make
    /// room in this plan.
    preyless: BTreeMap<(QueueIdx, u32, i64, bool), Span>,
    /// Per class: why it has no room.
    no_room: BTreeMap<(u32, bool), (Reason, Vec<DomainIdx>)>,
    reservations: u32,
    /// How much deeper than their backfill depth queues are planned: on paper only.
    beyond: u32,
    wake: Time,
    /// Whether room is free that no promise counted on. Not any more once all promises were looked at.
    freed: bool,
    /// Decisions so far.
    decisions: u32,
    /// Something was done by which jobs looked at before it may get more than they got.
    unsettled: bool,
    /// Victims were looked for in vain: whatever is decided after it may change that.
    sought: bool,
}

/// Times that a plan goes on over all waiting jobs; each needs a decision in the one before it.
const MOST_ROUNDS: usize = 8;

/// What a class of jobs takes at its floor.
#[derive(Debug)]
struct Demand {
    /// By plain keys, and by pool keys for each pool it could be in.
    by_pool: Vec<(PoolIdx, Tally)>,
    /// By plain keys only.
    plain: Tally,
    sizes: Vec<u32>,
    shapes: Vec<ShapeIdx>,
    candidates: Vec<DomainIdx>,
}

impl<'a> Cycle<'a> {
    fn open(snapshot: Snapshot<'a>, policy: &'a Policy) -> Self {
        let (mut shares, mut users) = (Shares::new(snapshot, policy), Users::new(snapshot, policy));
        shares.count_this_instant();
        users.count_this_instant();
        Self {
            snapshot,
            policy,
            ledger: Ledger::open(snapshot, policy.cycle),
            shares,
            users,
            quota: QuotaBook::open(snapshot, policy),
            plan: Plan::default(),
            fates: BTreeMap::new(),
            misfits: BTreeMap::new(),
            demands: BTreeMap::new(),
            best_domains: BTreeMap::new(),
            preyless: BTreeMap::new(),
            no_room: BTreeMap::new(),
            reservations: u32::try_from(snapshot.state.reserved().len()).unwrap_or(u32::MAX),
            beyond: 0,
            wake: Time::NEVER,
            freed: snapshot.state.freed(),
            decisions: 0,
            unsettled: false,
            sought: false,
        }
    }

    fn state(&self) -> &'a ClusterState {
        self.snapshot.state
    }

    fn now(&self) -> Time {
        self.snapshot.now
    }

    fn job(&self, job: JobIdx) -> &'a Job {
        self.state().job(job).expect("a plan only names living jobs")
    }

    fn spec(&self, job: JobIdx) -> Arc<JobSpec> {
        self.job(job).spec.clone()
    }

    /// A moment at which planning again may change something although nothing happened.
    fn wake_at(&mut self, time: Time) {
        if time > self.now() {
            self.wake = self.wake.min(time);
        }
    }

    /// The reservation of a waiting job as this plan has it.
    fn promise(&self, job: JobIdx) -> Option<Reservation> {
        self.promised(job).cloned()
    }

    /// The same, to look at.
    fn promised(&self, job: JobIdx) -> Option<&Reservation> {
        match self.fates.get(&job) {
            Some(Fate::Promised(reservation)) => reservation.as_ref(),
            Some(_) => None,
            None => self.job(job).waiting().and_then(|w| w.reservation.as_ref()),
        }
    }

    /// The seats of a running job as this plan has them; none if it does not run.
    fn seats(&self, job: JobIdx) -> Option<Placement> {
        match self.fates.get(&job) {
            Some(Fate::Started { placement, .. } | Fate::Resized { placement, .. }) => Some(placement.clone()),
            Some(Fate::Stopping | Fate::Promised(_)) => None,
            None => self.job(job).running().map(|r| r.placement.clone()),
        }
    }

    /// When a running job's room is promised to others.
    fn ends(&self, job: JobIdx) -> Time {
        match self.fates.get(&job) {
            Some(Fate::Started { ends, .. }) => *ends,
            _ => self.job(job).running().map_or(Time::NEVER, |r| r.ends),
        }
    }

    /// Until when quotas count what a running job holds: an overdue one is assumed to stay a little longer.
    fn held_until(&self, job: JobIdx) -> Time {
        Ledger::assumed_end(self.ends(job), self.now(), self.policy.cycle)
    }

    fn demand(&mut self, job: JobIdx) -> Arc<Demand> {
        let there = self.job(job);
        let key = (there.spec.queue, there.class);
        if let Some(known) = self.demands.get(&key) {
            return known.clone();
        }
        let demand = Arc::new(Demand::of(self.state(), &there.spec));
        self.demands.insert(key, demand.clone());
        demand
    }

    /// Fewest domains of the wanted level that a job could have on the empty cluster.
    fn domains_at_best(&mut self, job: JobIdx) -> u32 {
        let class = self.job(job).class;
        if let Some(&known) = self.best_domains.get(&class) {
            return known;
        }
        let best = self.ledger.best_domains(class, &self.job(job).spec, self.policy.search_limit);
        self.best_domains.insert(class, best);
        best
    }

    /// What a placement counts for in quotas.
    fn tally(&self, spec: &JobSpec, placement: &Placement) -> Tally {
        let mut tally = Tally::new();
        self.state().count_seats(spec, placement, &mut tally, 1);
        tally
    }

    // --- decisions, each kept in the ledger, the shares, the quota book and the plan alike ---

    fn start(&mut self, job: JobIdx, placement: Placement) {
        let spec = self.spec(job);
        let now = self.now();
        let ends = now + spec.window();
        let predicted = (now + spec.predicted()).min(ends);
        let tally = self.tally(&spec, &placement);
        let private = self.job(job).waiting().is_some_and(|w| w.private_start.is_some());
        let guaranteed = private || self.shares.entitled(spec.queue, &tally);
        let best = self.domains_at_best(job);
        let quality = crate::place::quality(self.state().topology(), &spec, &placement, best);
        self.ledger.hold(job, &spec, &placement, HoldKind::Running, (Time(i64::MIN), ends), predicted);
        self.shares.give(spec.queue, &tally);
        self.users.give(spec.queue, &spec.user, &tally);
        self.quota.add(self.state(), spec.queue, Time(i64::MIN), ends, &tally);
        self.wake_at(ends);
        self.decided(self.state().queue(spec.queue).order == Order::Fair || !self.plan.claims.is_empty());
        let row = self.plan.actions.len();
        self.plan.actions.push(Action::Start { job, placement: placement.clone(), ends, guaranteed, quality });
        self.fates.insert(job, Fate::Started { row, placement, ends });
    }

    /// Lays a reservation into the ledger and the quota book.
    fn put_in(&mut self, job: JobIdx, reservation: &Reservation) {
        let spec = self.spec(job);
        let predicted = (reservation.start + spec.predicted()).min(reservation.end);
        let window = reservation.counts_during(self.now(), self.policy.cycle);
        self.ledger.hold(job, &spec, &reservation.placement, HoldKind::Reserved, window, predicted);
        let tally = self.tally(&spec, &reservation.placement);
        self.quota.promise(self.state(), &spec, window.0, window.1, &tally);
    }

    /// Takes a reservation out of the ledger and the quota book.
    fn take_out(&mut self, job: JobIdx, reservation: &Reservation) {
        let spec = self.spec(job);
        self.ledger.release(job, &reservation.placement, HoldKind::Reserved);
        let tally = self.tally(&spec, &reservation.placement);
        let (from, to) = reservation.counts_during(self.now(), self.policy.cycle);
        self.quota.remove(self.state(), spec.queue, from, to, &tally);
    }

    /// Promises a start to a job without a reservation.
    fn reserve(&mut self, job: JobIdx, start: Time, placement: Placement, clears: Vec<JobIdx>) {
        let end = start + self.spec(job).window();
        let clearing = !clears.is_empty();
        let reservation = Reservation { start, end, placement: placement.clone(), promised: start, clearing };
        self.put_in(job, &reservation);
        self.wake_at(start);
        self.reservations += 1;
        self.decided(false);
        self.plan.actions.push(Action::Reserve { job, start, end, placement, clears });
        self.fates.insert(job, Fate::Promised(Some(reservation)));
    }

    /// Changes a reservation that has been taken out of the ledger.
    fn move_to(
        &mut self,
        job: JobIdx,
        old: &Reservation,
        to: Option<(Time, Placement)>,
        cause: Option<Cause>,
        clears: Vec<JobIdx>,
    ) {
        let window = self.spec(job).window();
        let to = to.map(|(start, placement)| (start, start + window, placement));
        let reservation = to.as_ref().map(|(start, end, placement)| Reservation {
            start: *start,
            end: *end,
            placement: placement.clone(),
            promised: if cause.is_some() { *start } else { old.promised.min(*start) },
            clearing: old.clearing || !clears.is_empty(),
        });
        match &reservation {
            Some(r) => {
                self.put_in(job, r);
                self.wake_at(r.start);
            }
            None => self.reservations = self.reservations.saturating_sub(1),
        }
        self.decided(cause.is_some());
        self.plan.actions.push(Action::Move { job, from: old.start, to, cause, clears });
        self.fates.insert(job, Fate::Promised(reservation));
    }

    /// Tells a running job to go.
    fn stop(&mut self, job: JobIdx, cause: StopCause, by: Option<JobIdx>) {
        let Some(placement) = self.seats(job) else { return };
        let spec = self.spec(job);
        let gone_by = self.now() + spec.grace;
        self.ledger.release(job, &placement, HoldKind::Running);
        // Also with a grace of zero its pods are there until their owner says that they are gone.
        let window = (Time(i64::MIN), gone_by);
        self.ledger.hold(job, &spec, &placement, HoldKind::Leaving, window, gone_by);
        let tally = self.tally(&spec, &placement);
        self.shares.leave(spec.queue, &tally);
        self.users.take(spec.queue, &spec.user, &tally, false);
        let held_until = self.held_until(job);
        self.quota.remove(self.state(), spec.queue, Time(i64::MIN), held_until, &tally);
        // Its queue may start nobody else on what it held before it is gone.
        let gone = Ledger::assumed_end(gone_by, self.now(), self.policy.cycle);
        self.quota.add(self.state(), spec.queue, Time(i64::MIN), gone, &tally);
        self.wake_at(gone_by);
        self.decided(true);
        self.plan.actions.push(Action::Stop { job, cause, by });
        self.fates.insert(job, Fate::Stopping);
    }

    /// Gives a running (or just started) job other seats.
    fn resize(&mut self, job: JobIdx, placement: Placement, by: Option<JobIdx>) {
        let Some(old) = self.seats(job) else { return };
        let spec = self.spec(job);
        let ends = self.ends(job);
        let before = self.tally(&spec, &old);
        let after = self.tally(&spec, &placement);
        let predicted = ends.min(self.now() + spec.predicted());
        self.ledger.release(job, &old, HoldKind::Running);
        self.ledger.hold(job, &spec, &placement, HoldKind::Running, (Time(i64::MIN), ends), predicted);
        let shed = old.without(&placement);
        if !shed.is_empty() {
            let gone_by = self.now() + spec.grace;
            let gone = Ledger::assumed_end(gone_by, self.now(), self.policy.cycle);
            self.quota.shed(self.state(), spec.queue, gone, &self.tally(&spec, &shed));
            self.ledger.hold(job, &spec, &shed, HoldKind::Leaving, (Time(i64::MIN), gone_by), gone_by);
        }
        self.shares.shrink(spec.queue, &before);
        self.shares.grow(spec.queue, &after);
        self.users.resize(spec.queue, &spec.user, &before, &after);
        let held_until = self.held_until(job);
        self.quota.remove(self.state(), spec.queue, Time(i64::MIN), held_until, &before);
        self.quota.add(self.state(), spec.queue, Time(i64::MIN), held_until, &after);
        self.decided(true);
        let best = self.domains_at_best(job);
        match self.fates.get_mut(&job) {
            Some(Fate::Started { row, placement: there, .. }) => {
                *there = placement.clone();
                let quality = crate::place::quality(self.snapshot.state.topology(), &spec, &placement, best);
                if let Action::Start { placement: seats, quality: shown, .. } = &mut self.plan.actions[*row] {
                    *seats = placement;
                    *shown = quality;
                }
            }
            Some(Fate::Resized { row: Some(row), placement: there }) => {
                *there = placement.clone();
                if let Action::Resize { placement: seats, by: whom, .. } = &mut self.plan.actions[*row] {
                    *seats = placement;
                    *whom = by.or(*whom);
                }
            }
            _ => {
                let row = self.plan.actions.len();
                self.plan.actions.push(Action::Resize { job, placement: placement.clone(), by });
                self.fates.insert(job, Fate::Resized { row: Some(row), placement });
            }
        }
    }

    /// Step 7 of the cycle: as long as decisions were made that those looked at before may gain by (victims went, turns
    /// changed, room that a claim held was given), everybody is looked at again.
    fn go_on(&mut self) {
        for _ in 0..MOST_ROUNDS {
            if !std::mem::take(&mut self.unsettled) {
                return;
            }
            let before = self.decisions;
            self.forget_claims();
            self.preyless.clear();
            self.no_room.clear();
            self.plan.pending.clear();
            self.freed = false;
            self.sought = false;
            self.serve();
            self.grow();
            if self.decisions == before {
                return;
            }
        }
    }

    /// Notes a decision; `stirs`: others may gain by it who were looked at before.
    fn decided(&mut self, stirs: bool) {
        self.decisions += 1;
        self.unsettled |= stirs || self.sought;
    }

    fn close(mut self) -> Plan {
        for &job in &self.state().marks().held {
            if let Some(until) = self.job(job).waiting().and_then(|w| w.hold.as_ref()).and_then(|h| h.until) {
                self.wake_at(until);
            }
        }
        self.plan.wake = (!self.wake.is_never()).then_some(self.wake);
        self.plan
    }
}

impl Demand {
    fn of(state: &ClusterState, spec: &JobSpec) -> Self {
        let mut plain = Tally::new();
        for role in &spec.roles {
            for (resource, amount) in state.shapes.get(role.shape).requests.iter() {
                *plain.entry(QuotaKey { pool: None, resource }).or_default() += amount * i64::from(role.floor);
            }
        }
        let candidates = crate::place::candidates(state.topology(), spec);
        let mut pools: Vec<PoolIdx> = candidates.iter().map(|d| state.topology().domain(*d).pool).collect();
        pools.dedup();
        let by_pool = pools
            .into_iter()
            .map(|pool| {
                let mut tally = plain.clone();
                tally.extend(plain.iter().map(|(k, v)| (QuotaKey { pool: Some(pool), resource: k.resource }, *v)));
                (pool, tally)
            })
            .collect();
        let sizes = spec.roles.iter().map(|r| r.floor).collect();
        let mut shapes: Vec<ShapeIdx> = spec.roles.iter().map(|r| r.shape).collect();
        shapes.sort_unstable();
        shapes.dedup();
        Self { by_pool, plain, sizes, shapes, candidates }
    }
}
