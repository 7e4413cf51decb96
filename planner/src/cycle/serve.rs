//! Floors of all waiting jobs, best job of the best queue first: start it, clear room for it, promise it a date, or let
//! it wait with a reason.

use super::start::Not;
use super::{Cycle, Fate};
use crate::ids::{DomainIdx, JobIdx, QueueIdx};
use crate::job::{JobSpec, Placement, Reservation, Seat};
use crate::ledger::HoldKind;
use crate::place::Ask;
use crate::plan::{Cause, Claim};
use crate::queue::{Backfill, Order, QueueState};
use crate::reason::{Code, Reason};
use crate::resources::Amounts;
use crate::room::FixedRoom;
use crate::share::{Contest, Head};
use crate::state::{ClusterState, RankKey};
use crate::time::{Span, Time};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque, btree_set};
use std::sync::Arc;

/// What became of a job that was considered.
pub(super) enum Outcome {
    /// It starts.
    Started,
    /// It is held from outside: no place in the line, blocks nobody.
    Held(Reason),
    /// It waits; the first `depth` of these get a promise.
    Blocked(Reason),
}

/// The waiting jobs of one leaf queue, in order.
struct Line<'a> {
    queue: QueueIdx,
    jobs: Jobs<'a>,
    /// The job to be considered next.
    head: Option<JobIdx>,
    /// Jobs considered that wait.
    blocked: u32,
    /// Jobs considered in all.
    position: u32,
    /// A claim without a date has been made.
    claimed: bool,
}

enum Jobs<'a> {
    /// All of them.
    Ranked(btree_set::Iter<'a, RankKey>),
    /// The rest of the classes that could still start now: who needs a date has got one.
    Startable(BinaryHeap<Reverse<(&'a RankKey, u32)>>, BTreeMap<u32, btree_set::Range<'a, RankKey>>),
    /// Per user, for `Fair` order: whose use is least goes first.
    ByUser(BTreeMap<Arc<str>, VecDeque<JobIdx>>),
}

impl<'a> Line<'a> {
    fn open(state: &'a ClusterState, queue: QueueIdx) -> Self {
        let ranked = state.waiting(queue).iter();
        let jobs = match state.queue(queue).order {
            Order::Priority => Jobs::Ranked(ranked),
            Order::Fair => {
                let mut users: BTreeMap<Arc<str>, VecDeque<JobIdx>> = BTreeMap::new();
                for job in ranked.map(|key| key.5) {
                    if let Some(there) = state.job(job) {
                        users.entry(there.spec.user.clone()).or_default().push_back(job);
                    }
                }
                Jobs::ByUser(users)
            }
        };
        Self { queue, jobs, head: None, blocked: 0, position: 0, claimed: false }
    }

    fn drain(&mut self) -> Vec<JobIdx> {
        let rest: Vec<JobIdx> = match &mut self.jobs {
            Jobs::Ranked(jobs) => jobs.map(|key| key.5).collect(),
            Jobs::Startable(..) => Vec::new(),
            Jobs::ByUser(users) => std::mem::take(users).into_values().flatten().collect(),
        };
        let head = self.head.take();
        self.jobs = Jobs::ByUser(BTreeMap::new());
        head.into_iter().chain(rest).collect()
    }
}

impl<'a> Cycle<'a> {
    /// Where a waiting job stands in its queue.
    pub(super) fn rank(&self, job: JobIdx) -> RankKey {
        ClusterState::rank_key(self.job(job), job)
    }

    /// Step 5 of the cycle.
    pub(super) fn serve(&mut self) {
        let state = self.state();
        let mut lines: Vec<Line<'a>> = (0..state.queues().len())
            .map(QueueIdx::of)
            .filter(|q| !state.waiting(*q).is_empty())
            .map(|q| Line::open(state, q))
            .collect();
        let mut contest = Contest::new(&self.shares);
        for line in &mut lines {
            self.enter(&mut contest, line);
        }
        while let Some(queue) = contest.best() {
            let Some(line) = lines.iter_mut().find(|l| l.queue == queue) else { break };
            let before = self.plan.actions.len();
            if let Some(job) = line.head.take() {
                self.serve_one(line, job);
            }
            self.enter(&mut contest, line);
            self.refresh(&mut contest, before, queue);
        }
    }

    /// Takes a line's next job as its head and tells the contest.
    fn enter(&mut self, contest: &mut Contest, line: &mut Line<'a>) {
        let Some(job) = self.next_of(line) else {
            contest.set(&self.shares, line.queue, None);
            return;
        };
        line.head = Some(job);
        let demand = self.demand(job);
        let there = self.job(job);
        let head = Head {
            priority: there.spec.priority,
            queued_at: there.queued_at,
            sequence: there.sequence,
            demand: &demand.plain,
        };
        contest.set(&self.shares, line.queue, Some(&head));
    }

    /// Tells the contest of other queues whose use changed (victims).
    fn refresh(&self, contest: &mut Contest, since: usize, served: QueueIdx) {
        for action in &self.plan.actions[since..] {
            let queue = self.job(action.job()).spec.queue;
            if queue != served {
                contest.refresh(&self.shares, queue);
            }
        }
    }

    fn next_of(&mut self, line: &mut Line<'a>) -> Option<JobIdx> {
        let queue = line.queue;
        match &mut line.jobs {
            Jobs::Ranked(jobs) => {
                let key = jobs.next()?;
                if !self.policy.explain && self.only_starts(queue, line.blocked) {
                    line.jobs = self.startable(queue, key);
                    return self.next_of(line);
                }
                Some(key.5)
            }
            Jobs::Startable(heap, classes) => {
                // A class of which nothing fits any more is left out with all that is behind its head.
                while let Some(Reverse((key, class))) = heap.pop() {
                    let demand = self.demand(key.5);
                    if self.could_fit(&demand) {
                        if let Some(next) = classes.get_mut(&class).and_then(Iterator::next) {
                            heap.push(Reverse((next, class)));
                        }
                        return Some(key.5);
                    }
                }
                None
            }
            Jobs::ByUser(users) => {
                let heads: Vec<(Arc<str>, JobIdx)> =
                    users.iter().filter_map(|(user, jobs)| Some((user.clone(), *jobs.front()?))).collect();
                let best = heads.into_iter().min_by(|a, b| {
                    let by_use = self.users.share(queue, &a.0).cmp(&self.users.share(queue, &b.0));
                    by_use.then_with(|| self.rank(a.1).cmp(&self.rank(b.1)))
                })?;
                users.get_mut(&best.0)?.pop_front()
            }
        }
    }

    /// Whether the jobs that come now can only start or wait: all promises the queue may have are given.
    fn only_starts(&self, queue: QueueIdx, blocked: u32) -> bool {
        let given = match self.state().queue(queue).backfill {
            Backfill::None => false,
            Backfill::Depth(depth) => blocked >= depth.saturating_add(self.beyond),
        };
        given && !self.policy.preemption && self.state().reserved().len() <= blocked as usize
    }

    /// The jobs from `key` on, by class, of the classes that could start now.
    fn startable(&mut self, queue: QueueIdx, key: &'a RankKey) -> Jobs<'a> {
        let mut heap = BinaryHeap::new();
        let mut ranges = BTreeMap::new();
        for (&class, jobs) in self.state().waiting_by_class(queue) {
            let mut range = jobs.range(key..);
            let Some(first) = range.next() else { continue };
            let demand = self.demand(first.5);
            if self.could_fit(&demand) {
                heap.push(Reverse((first, class)));
                ranges.insert(class, range);
            }
        }
        Jobs::Startable(heap, ranges)
    }

    fn serve_one(&mut self, line: &mut Line<'_>, job: JobIdx) {
        line.position += 1;
        match self.consider(line, job) {
            Outcome::Started => line.position -= 1,
            Outcome::Held(reason) => self.explain(job, line.position, reason, None),
            Outcome::Blocked(reason) => {
                line.blocked += 1;
                self.explain(job, line.position, reason, None);
                if self.state().queue(line.queue).backfill == Backfill::None && self.beyond == 0 {
                    self.close_line(line, job);
                }
            }
        }
    }

    /// Strict order: nobody passes the blocked head.
    fn close_line(&mut self, line: &mut Line<'_>, head: JobIdx) {
        let object = self.job(head).spec.key.clone();
        let rest = line.drain();
        if !self.policy.explain {
            return;
        }
        for job in rest {
            line.position += 1;
            let reason = match self.outside_hold(job) {
                Some(held) => held,
                None => Reason::of(Code::BehindHead, object.clone()),
            };
            self.explain(job, line.position, reason, None);
        }
    }

    /// Why a job is not considered at all.
    pub(super) fn outside_hold(&self, job: JobIdx) -> Option<Reason> {
        let there = self.job(job);
        if let Some(hold) = there.waiting().and_then(|w| w.hold.as_ref())
            && hold.until.is_none_or(|until| until > self.now())
        {
            let mut reason = Reason::of(hold.code, hold.detail.clone());
            reason.until = hold.until;
            return Some(reason);
        }
        let closed =
            self.state().lineage(there.spec.queue).find(|q| self.state().queue(*q).state != QueueState::Open)?;
        Some(Reason::of(Code::QueueHeld, self.state().queue(closed).name.clone()))
    }

    fn consider(&mut self, line: &mut Line<'_>, job: JobIdx) -> Outcome {
        if matches!(self.fates.get(&job), Some(Fate::Started { .. })) {
            return Outcome::Started;
        }
        if let Some(held) = self.outside_hold(job) {
            return Outcome::Held(held);
        }
        if let Some(Fate::Promised(Some(reservation))) = self.fates.get(&job)
            && reservation.clearing
        {
            // Its victims were told to go a moment ago: it starts in a later plan, when they are gone, grace or not.
            let reservation = reservation.clone();
            return Outcome::Blocked(self.why_promised(job, &reservation));
        }
        match self.promise(job) {
            Some(reservation) => self.consider_promised(job, &reservation),
            None => self.consider_new(line, job),
        }
    }

    /// A job with a date: starts when it is due, or earlier when room came free.
    fn consider_promised(&mut self, job: JobIdx, old: &Reservation) -> Outcome {
        let due = old.start <= self.now();
        let patience = self.patience(job).filter(|(_, until)| old.start <= *until);
        if !due && !self.state().freed() {
            // Nothing came free that the promise did not count on; only a victim's protection may have ended.
            return self.clear_room_instead(job, old).unwrap_or_else(|| Outcome::Blocked(self.why_promised(job, old)));
        }
        self.take_out(job, old);
        let here = if due { self.same_seats(job, old) } else { None };
        let place = match here {
            Some(placement) => Ok(placement),
            None => self.place_now(job, patience.map(|p| p.0)),
        };
        if let Ok(placement) = place {
            self.start(job, placement);
            self.reservations = self.reservations.saturating_sub(1);
            return Outcome::Started;
        }
        if old.clearing {
            // Its room is being cleared where it was promised, and nowhere else.
            self.put_in(job, old);
            return Outcome::Blocked(self.why_promised(job, old));
        }
        let sooner = self.earliest(job, self.now(), patience.map(|p| p.0)).filter(|(start, _)| *start < old.start);
        if !self.pass_lower_promised(job, old, sooner.as_ref().map_or(old.start, |s| s.0)) {
            match sooner {
                Some((start, placement)) => self.move_to(job, old, Some((start, placement)), None, Vec::new()),
                None => self.put_in(job, old),
            }
        }
        let promised = self.promise(job).unwrap_or_else(|| old.clone());
        if let Some(outcome) = self.clear_room_instead(job, &promised) {
            return outcome;
        }
        Outcome::Blocked(self.why_promised(job, &promised))
    }

    /// The promised seats, if they are free now and the quota allows.
    fn same_seats(&mut self, job: JobIdx, reservation: &Reservation) -> Option<Placement> {
        self.quota_allows(job).ok()?;
        let spec = self.spec(job);
        let end = self.now() + spec.window();
        for (node, role, count) in reservation.placement.by_node() {
            let state = self.state().node(node);
            let shape = self.state().shapes.get(spec.roles[usize::from(role)].shape);
            if state.closed || state.lost || !shape.eligible.contains(node) {
                return None;
            }
            let mut free = self.ledger.free_during(node, self.now(), end);
            for (other, row, pods) in reservation.placement.by_node() {
                if other == node && row != role {
                    let requests = &self.state().shapes.get(spec.roles[usize::from(row)].shape).requests;
                    requests.iter().for_each(|(r, a)| free[r.row()] -= a * i64::from(pods));
                }
            }
            if shape.requests.times_in(&free) < count {
                return None;
            }
        }
        Some(reservation.placement.clone())
    }

    /// A job without a date.
    fn consider_new(&mut self, line: &mut Line<'_>, job: JobIdx) -> Outcome {
        let patience = self.patience(job);
        let refused = match self.place_now(job, patience.map(|p| p.0)) {
            Ok(placement) => {
                self.start(job, placement);
                return Outcome::Started;
            }
            Err(not) => not,
        };
        if let Some((goal, until)) = patience {
            if let Some(outcome) = self.wait_for_preferred(line, job, goal, until) {
                return outcome;
            }
            // Patience is of no use: the best there is will do.
            if let Ok(placement) = self.place_now(job, None) {
                self.start(job, placement);
                return Outcome::Started;
            }
        }
        if self.policy.preemption
            && let Some(outcome) = self.clear_room(job, None)
        {
            return outcome;
        }
        if let Some(outcome) = self.pass_lower(line, job) {
            // With the others' promises out of the way, clearing room may have become possible too.
            self.preyless.clear();
            let promised = self.promise(job);
            return promised.and_then(|p| self.clear_room_instead(job, &p)).unwrap_or(outcome);
        }
        self.promise_date(line, job, &refused)
    }

    /// Patience has not run out: wait for the preferred level if the plan shows it in time.
    fn wait_for_preferred(&mut self, line: &Line<'_>, job: JobIdx, goal: u32, until: Time) -> Option<Outcome> {
        if self.policy.patience_from_first_start && !self.due_a_promise(line) {
            return None;
        }
        let until = if until.is_never() { self.first_start(job) + self.patience_of(job) } else { until };
        let (start, placement) = self.earliest(job, self.now(), Some(goal)).filter(|(start, _)| *start <= until)?;
        self.wake_at(until);
        if start > self.now() && self.due_a_promise(line) {
            self.reserve(job, start, placement, Vec::new());
        }
        let level = self.spec(job).locality.preferred.clone().unwrap_or_else(|| "".into());
        let mut reason = Reason::of(Code::WaitingForPatience, level);
        reason.until = Some(start);
        Some(Outcome::Blocked(reason))
    }

    fn patience_of(&self, job: JobIdx) -> Span {
        self.job(job).spec.locality.patience
    }

    /// When the job could start anywhere at all.
    fn first_start(&mut self, job: JobIdx) -> Time {
        if self.place_now(job, None).is_ok() {
            return self.now();
        }
        self.earliest(job, self.now(), None).map_or(Time::NEVER, |(start, _)| start)
    }

    fn due_a_promise(&self, line: &Line<'_>) -> bool {
        let deep = match self.state().queue(line.queue).backfill {
            Backfill::None => self.beyond > 0,
            Backfill::Depth(depth) => line.blocked < depth.saturating_add(self.beyond),
        };
        deep && self.reservations < self.policy.max_reservations
    }

    /// The earliest start as a reservation, or a claim where there is no date.
    fn promise_date(&mut self, line: &mut Line<'_>, job: JobIdx, refused: &Not) -> Outcome {
        let reason = |cycle: &mut Self| cycle.why_not(job, refused);
        if !self.due_a_promise(line) {
            return Outcome::Blocked(reason(self));
        }
        // A start "now" that was just refused waits for pods that are on their way out at this very instant.
        match self.earliest(job, self.now(), None).filter(|(start, _)| *start > self.now()) {
            Some((start, placement)) => {
                let mut reason = reason(self);
                reason.until = Some(start);
                self.reserve(job, start, placement, Vec::new());
                Outcome::Blocked(reason)
            }
            None => {
                let reason = reason(self);
                if !line.claimed && matches!(refused, Not::Space { .. }) {
                    line.claimed = self.claim(job, line.queue);
                }
                Outcome::Blocked(reason)
            }
        }
    }

    /// A claim without a date (decision 5): the free room of one domain goes to no lower-ranked job.
    fn claim(&mut self, job: JobIdx, queue: QueueIdx) -> bool {
        let spec = self.spec(job);
        let demand = self.demand(job);
        let Some(domain) = self.claimed_domain(&spec, &demand) else { return false };
        let placement = self.part_of_floor(job, domain);
        if placement.is_empty() {
            return false;
        }
        self.ledger.hold(job, &spec, &placement, HoldKind::Reserved, (self.now(), Time::NEVER), Time::NEVER);
        self.plan.claims.push(Claim { queue, job, domain });
        true
    }

    /// The candidate in which jobs without a limit hold least of what the job wants, and in which it can come true.
    fn claimed_domain(&mut self, spec: &JobSpec, demand: &super::Demand) -> Option<DomainIdx> {
        let state = self.state();
        let wanted: u64 = demand.sizes.iter().map(|s| u64::from(*s)).sum();
        let mut best: Option<(u64, DomainIdx)> = None;
        for &domain in &demand.candidates {
            let (mut room, mut unlimited) = (0, 0);
            for node in state.topology().domain(domain).node_range() {
                let there = state.node(node);
                if there.closed || there.lost {
                    continue;
                }
                let mut empty = there.allocatable.clone();
                empty.add(&there.foreign, -1);
                let mut kept = empty.clone();
                for hold in self.ledger.holds(node).filter(|h| h.to.is_never()) {
                    kept.add(&state.shapes.get(hold.shape).requests, -i64::from(hold.count));
                }
                let most = |free: &[i64]| {
                    let fit = |s: &crate::ids::ShapeIdx| {
                        let shape = state.shapes.get(*s);
                        if shape.eligible.contains(node) { shape.requests.times_in(free) } else { 0 }
                    };
                    u64::from(demand.shapes.iter().map(fit).max().unwrap_or(0))
                };
                room += most(&empty.0);
                unlimited += most(&empty.0) - most(&kept.0).min(most(&empty.0));
            }
            // Without jobs that never end there is a date, or nothing will ever come free.
            if unlimited > 0
                && room >= wanted
                && best.is_none_or(|(least, _)| unlimited < least)
                && self.fits_emptied(spec, demand, domain)
            {
                best = Some((unlimited, domain));
            }
        }
        best.map(|(_, domain)| domain)
    }

    /// Whether a job would fit a domain's usable nodes if all our jobs were gone; where it would not, foreign pods and
    /// cordons are in the way, and a claim would hold room for nothing.
    fn fits_emptied(&self, spec: &JobSpec, demand: &super::Demand, domain: DomainIdx) -> bool {
        let state = self.state();
        let range = state.topology().domain(domain).nodes.clone();
        let empty = (0u32..).zip(state.nodes()).map(|(row, node)| {
            let mut free = node.allocatable.clone();
            free.add(&node.foreign, -1);
            if node.closed || node.lost || !range.contains(&row) { Amounts::default() } else { free }
        });
        let room = FixedRoom::new(state.topology(), &state.shapes, empty.collect());
        let ask = Ask {
            spec,
            sizes: &demand.sizes,
            start: self.now(),
            predicted_end: self.now() + spec.predicted(),
            most_domains: None,
            search_limit: self.policy.search_limit,
            within: Some(domain),
        };
        crate::place::place(&room, &ask).is_ok()
    }

    /// As much of a job's floor as a domain has free now.
    fn part_of_floor(&mut self, job: JobIdx, domain: DomainIdx) -> Placement {
        let spec = self.spec(job);
        let nodes: Vec<_> = self.state().topology().domain(domain).node_range().collect();
        let mut seats = Vec::new();
        let mut left: Vec<u32> = spec.roles.iter().map(|r| r.floor).collect();
        for node in nodes {
            if self.state().node(node).closed || self.state().node(node).lost {
                continue;
            }
            let mut free = self.ledger.free_during(node, self.now(), Time::NEVER);
            for (row, role) in spec.roles.iter().enumerate() {
                let shape = self.state().shapes.get(role.shape);
                if !shape.eligible.contains(node) {
                    continue;
                }
                let take = shape.requests.times_in(&free).min(left[row]);
                for _ in 0..take {
                    let index = role.floor - left[row];
                    seats.push(Seat { role: u8::try_from(row).expect("at most 16 roles"), index, node });
                    left[row] -= 1;
                }
                shape.requests.iter().for_each(|(r, a)| free[r.row()] -= a * i64::from(take));
            }
        }
        seats.sort_unstable();
        Placement { seats }
    }

    /// Standing promises of lower-ranked jobs give way to a job newly ranked above them (decision 3): same queue and
    /// higher priority, or another queue within its guarantee against borrowers.
    fn pass_lower(&mut self, line: &Line<'_>, job: JobIdx) -> Option<Outcome> {
        if !self.due_a_promise(line) {
            return None;
        }
        let yielding = self.yielding_to(job);
        if yielding.is_empty() {
            return None;
        }
        let without = self.earliest(job, self.now(), None);
        for (other, reservation) in &yielding {
            self.take_out(*other, reservation);
        }
        let with = self.earliest(job, self.now(), None);
        let gains = match (&with, &without) {
            (Some(w), Some(wo)) => w.0 < wo.0,
            (Some(_), None) => true,
            _ => false,
        };
        let may_start = self.quota_allows(job).is_ok();
        let Some((start, placement)) = with.filter(|w| gains && (may_start || w.0 > self.now())) else {
            for (other, reservation) in &yielding {
                self.put_in(*other, reservation);
            }
            return None;
        };
        let outcome = if start <= self.now() {
            self.start(job, placement);
            Outcome::Started
        } else {
            self.reserve(job, start, placement, Vec::new());
            let mut reason = Reason::of(Code::NoCapacity, "");
            reason.until = Some(start);
            reason.wanted = i64::from(self.spec(job).floor());
            Outcome::Blocked(reason)
        };
        self.resettle(job, yielding);
        Some(outcome)
    }

    /// The same for a job that has a date already (its priority was raised, or room came free that a lower one holds).
    /// Its own reservation is out of the ledger. True if it has a sooner one now.
    fn pass_lower_promised(&mut self, job: JobIdx, old: &Reservation, sooner_than: Time) -> bool {
        let spec = self.spec(job);
        let lower = self.state().reserved().iter().any(|other| {
            let theirs = &self.job(*other).spec;
            theirs.queue == spec.queue && theirs.priority < spec.priority
        });
        if !lower {
            return false;
        }
        let mut yielding = self.yielding_to(job);
        yielding.retain(|(other, r)| self.spec(*other).queue == spec.queue && r.start < sooner_than);
        if yielding.is_empty() {
            return false;
        }
        for (other, reservation) in &yielding {
            self.take_out(*other, reservation);
        }
        let Some((start, placement)) = self.earliest(job, self.now(), None).filter(|(s, _)| *s < sooner_than) else {
            for (other, reservation) in &yielding {
                self.put_in(*other, reservation);
            }
            return false;
        };
        self.move_to(job, old, Some((start, placement)), None, Vec::new());
        self.resettle(job, yielding);
        true
    }

    /// The reservations that a job may displace, in the order of their ranks.
    fn yielding_to(&mut self, job: JobIdx) -> Vec<(JobIdx, Reservation)> {
        let spec = self.spec(job);
        let demand = self.demand(job);
        let entitled = self.shares.entitled(spec.queue, &demand.plain);
        let mut standing: BTreeSet<JobIdx> = self.state().reserved().clone();
        standing.extend(self.fates.iter().filter(|(_, f)| matches!(f, Fate::Promised(Some(_)))).map(|(j, _)| *j));
        let mut yielding: Vec<(RankKey, JobIdx, Reservation)> = Vec::new();
        for other in standing {
            let Some(reservation) = self.promise(other) else { continue };
            if reservation.clearing || other == job {
                continue;
            }
            let theirs = self.spec(other);
            let postponed = self.job(other).waiting().map_or(crate::time::Span::ZERO, |w| w.postponed);
            let lower = theirs.queue == spec.queue
                && theirs.priority < spec.priority
                && postponed < self.policy.max_postponement;
            let borrower = entitled && theirs.queue != spec.queue && {
                let tally = self.demand(other).plain.clone();
                !self.shares.entitled(theirs.queue, &tally)
            };
            if lower || borrower {
                yielding.push((self.rank(other), other, reservation));
            }
        }
        yielding.sort_by(|a, b| a.0.cmp(&b.0));
        yielding.into_iter().map(|(_, other, reservation)| (other, reservation)).collect()
    }

    /// Puts displaced reservations back: as they were where that still fits, else at their new earliest start.
    fn resettle(&mut self, winner: JobIdx, displaced: Vec<(JobIdx, Reservation)>) {
        let key = self.spec(winner).key.clone();
        let queue = self.spec(winner).queue;
        let (own, others): (Vec<_>, Vec<_>) =
            displaced.into_iter().partition(|(job, _)| self.spec(*job).queue == queue);
        self.resettle_as(&Cause::HigherPriority(key.clone()), own);
        self.resettle_as(&Cause::Entitled(key), others);
    }

    /// As [`Cycle::resettle`], for one cause.
    pub(super) fn resettle_as(&mut self, cause: &Cause, displaced: Vec<(JobIdx, Reservation)>) {
        let mut moved = Vec::new();
        for (other, reservation) in displaced {
            self.put_in(other, &reservation);
            let spoiled = reservation.placement.nodes().into_iter().any(|node| {
                let free = self.ledger.free_during(node, reservation.start, reservation.end);
                free.iter().any(|f| *f < 0)
            });
            let over = {
                let spec = self.spec(other);
                let tally = self.tally(&spec, &reservation.placement);
                let state = self.state();
                self.quota.remove(state, spec.queue, reservation.start, reservation.end, &tally);
                let fits = self.quota.fits(state, &spec, &tally, reservation.start);
                self.quota.promise(state, &spec, reservation.start, reservation.end, &tally);
                !fits
            };
            if spoiled || over {
                self.take_out(other, &reservation);
                moved.push((other, reservation));
            }
        }
        for (other, reservation) in moved {
            let next = self.earliest(other, self.now(), None);
            self.move_to(other, &reservation, next, Some(cause.clone()), Vec::new());
        }
    }

    /// A promised job that could start sooner by victims whose protection has ended.
    fn clear_room_instead(&mut self, job: JobIdx, promised: &Reservation) -> Option<Outcome> {
        let patient = self.patience(job).is_some_and(|(_, until)| promised.start <= until);
        if !self.policy.preemption || promised.clearing || patient {
            return None;
        }
        self.clear_room(job, Some(promised))
    }

    /// Stops victims for a job if that is allowed, sufficient and better than waiting.
    pub(super) fn clear_room(&mut self, job: JobIdx, promised: Option<&Reservation>) -> Option<Outcome> {
        let cleared = self.choose_victims(job, promised)?;
        if let Some(reservation) = promised {
            self.take_out(job, reservation);
        }
        let names = cleared.victims.iter().map(|v| self.job(v.job).spec.key.to_string()).collect::<Vec<_>>().join(", ");
        let victims: Vec<JobIdx> = cleared.victims.iter().map(|v| v.job).collect();
        for victim in cleared.victims {
            match victim.shrunk {
                Some(placement) => self.resize(victim.job, placement, Some(job)),
                None => self.stop(victim.job, victim.cause, Some(job)),
            }
        }
        if let Some(reservation) = promised {
            // The old promise is pulled forward to the cleared room.
            self.move_to(job, reservation, Some((cleared.start, cleared.placement)), None, victims);
        } else {
            self.reserve(job, cleared.start, cleared.placement, victims);
        }
        let mut reason = Reason::of(Code::ClearingRoom, names);
        reason.until = Some(cleared.start);
        Some(Outcome::Blocked(reason))
    }
}
