//! Decisions of a plan as operations of the commit protocol. From the moment one is handed over, the planner's state
//! assumes it; what the objects say later corrects the assumption.

use super::Engine;
use crate::commit::converge::empty;
use crate::commit::{Journal, Member, OnRefusal, Operation, Selection, member};
use crate::lifecycle::{self, Fate, attempt_for, attempts, grace_seconds, making};
use crate::state::FlightKind;
use crate::state::record::Held;
use crate::status::stamp;
use crds::names::finalizers;
use crds::v1alpha1::{BerthSpec, BerthState, Clears, Moved, TrainingJob};
use crds::{Berth, Code, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use planner::job::{Phase, Placement};
use planner::plan::{Action, StopCause};
use planner::{JobIdx, NodeIdx, Span, Time};
use std::collections::BTreeSet;
use std::sync::Arc;
use translate::amounts::Named;
use translate::berth::{self, Decision};
use translate::lifecycle::backoff::doubling;
use translate::lifecycle::stages;

/// A quota is looked at again when it changes, at the latest after this.
const QUOTA_PAUSE: Span = Span::from_secs(60);

/// Between two replacements of members of one gang, and the calm after which they count anew.
const REPLACED_FIRST: Span = Span::from_secs(5);
const REPLACED_MAX: Span = Span::from_secs(120);
const REPLACED_CALM: Span = Span::from_secs(600);

/// A job that a decision is about, with what is needed to carry it out.
struct Subject {
    key: String,
    job: Arc<TrainingJob>,
    queue: String,
    moment: Timestamp,
}

impl Engine {
    /// Carries one decision out; false if it is left to the next plan because the job is busy.
    pub(super) fn carry_out(&mut self, action: &Action, now: Time) -> bool {
        let Some(subject) = self.subject(action.job(), now) else { return false };
        let launched = match action {
            Action::Start { placement, ends, quality, .. } => {
                if let Some(record) = self.world.records.get_mut(&subject.key) {
                    record.quality = Some(quality.clone());
                }
                self.start(&subject, placement, *ends, now)
            }
            Action::Reserve { start, end, placement, clears, .. } => {
                self.reserve(&subject, (*start, *end), placement, clears, now)
            }
            Action::Move { from, to: Some((start, end, placement)), cause, clears, .. } => {
                let cause = cause.as_ref().map_or_else(|| Code::PulledForward.as_str().to_owned(), ToString::to_string);
                let text = |t: Time| stamp(t).map(|t| t.to_string());
                let moved = Moved { from: text(*from).unwrap_or_default(), to: text(*start), cause };
                self.move_reservation(&subject, (*start, *end), placement, clears, moved, now)
            }
            Action::Move { to: None, .. } => self.drop_reservation(&subject, now),
            Action::Stop { cause, by, .. } => self.stop(&subject, *cause, *by, now),
            Action::Resize { placement, by, .. } => self.reseat(&subject, FlightKind::Resize, placement, *by, now),
            Action::Replace { placement, .. } => self.reseat(&subject, FlightKind::Replace, placement, None, now),
            Action::Guarantee { .. } => {
                self.stale.insert(subject.key.clone());
                true
            }
        };
        if launched {
            if matches!(action, Action::Start { .. } | Action::Resize { .. } | Action::Stop { .. }) {
                self.settle_use(action.job(), now);
            }
            self.world.state.apply(action, now);
            if let Action::Start { job, .. } = action {
                self.world.state.update_job(*job, now, |j| {
                    if let Phase::Running(running) = &mut j.phase {
                        running.settling = true;
                    }
                });
            }
            self.stale.insert(subject.key);
        }
        launched
    }

    /// Decayed use is integrated up to each change of use: between two changes it is constant.
    pub(super) fn settle_use(&mut self, row: JobIdx, now: Time) {
        let Some((queue, user)) = self.world.state.job(row).map(|j| (j.spec.queue, j.spec.user.clone())) else {
            return;
        };
        planner::share::settle(&mut self.world.state, queue, &user, now, self.policy.share_half_life);
    }

    fn subject(&self, row: JobIdx, now: Time) -> Option<Subject> {
        let key = self.world.state.job(row)?.spec.key.to_string();
        let job = self.world.index.jobs.get(&key)?.clone();
        let record = self.world.records.get(&key)?;
        if record.flight.is_some() || record.retry_at.is_some_and(|at| at > now) {
            return None;
        }
        let queue = translate::job::queue_name(&job, self.world.annotations_of(&job)).to_owned();
        Some(Subject { key, job, queue, moment: stamp(now)? })
    }

    /// The Berth of a decision: a new one, or the standing reservation changed.
    fn journal(&self, subject: &Subject, decision: &Decision<'_>) -> Option<(Journal, Berth)> {
        let berths = self.world.berths(&subject.key, &subject.job);
        let incarnation = match berths.current {
            Some(current) => current.spec.incarnation,
            None => berths.next_incarnation(subject.job.status.as_ref()),
        };
        let spec = berth::spec(&subject.job, &subject.queue, incarnation, decision, self.world.state.topology());
        let holds = decision.state == BerthState::Committed;
        match berths.current {
            Some(current) => {
                let mut next = current.clone();
                let base = std::mem::replace(&mut next.spec, spec);
                set_finalizer(&mut next, holds);
                let journal = Journal::Update { berth: Arc::new(next.clone()), base: Box::new(base) };
                Some((journal, next))
            }
            None => {
                let mut next = berth::object(&subject.job, spec).ok()?;
                set_finalizer(&mut next, holds);
                next.status = None;
                Some((Journal::Create(Arc::new(next.clone())), next))
            }
        }
    }

    fn decision<'a>(
        &self,
        state: BerthState,
        window: (Time, Time),
        placement: &'a Placement,
        clears: Vec<Clears>,
    ) -> Decision<'a> {
        let topology = self.world.state.topology();
        let pool = placement.seats.first().map(|s| topology.pool(topology.pool_of(s.node)).name.to_string());
        let epoch = pool.and_then(|p| self.world.epochs.get(&p)).copied().unwrap_or(0);
        Decision { state, start: window.0, end: window.1, placement, clears, epoch, leader_epoch: 0 }
    }

    fn start(&mut self, subject: &Subject, placement: &Placement, ends: Time, now: Time) -> bool {
        // The end is journaled as planned, to the microsecond: promises behind it count on it.
        let window = (Time(now.0 - now.0.rem_euclid(1_000_000)), ends);
        let decision = self.decision(BerthState::Committed, window, placement, Vec::new());
        let Some((journal, berth)) = self.journal(subject, &decision) else { return false };
        if self.is_too_large(subject, &berth) {
            return false;
        }
        if self.is_over_quota(subject, &berth, now) || self.is_without_ground(subject, placement) {
            return false;
        }
        let job = &subject.job;
        let first = stages::startable(&job.spec.roles, |_| false);
        let next = attempts(&self.world, &subject.key, job);
        let made =
            making(&self.world, &subject.key, job, &berth, |m| first.contains(&m.role).then(|| attempt_for(&next, m)));
        let Ok(making) = made else { return false };
        // Volumes that are made for the gang come before its pods.
        let claims = self.claims_of_start(subject, placement);
        let create = if claims.is_empty() { making.pods } else { Vec::new() };
        let operation = Operation {
            planned: self.planned(subject, &making.probes),
            probes: making.probes,
            companions: making.companions,
            claims,
            create,
            on_refusal: OnRefusal::RollBack { grace_seconds: grace_seconds(job) },
            ..empty(&berth, journal, subject.moment)
        };
        self.launch(&subject.key, FlightKind::Start, operation, None, now);
        true
    }

    /// Whether the job's volumes were taken or lost since it was planned, or the labels it was planned by are doubted: it is
    /// looked at again then.
    fn is_without_ground(&mut self, subject: &Subject, placement: &Placement) -> bool {
        let (key, job) = (&subject.key, &subject.job);
        let usable = self.world.volume_trouble(key, job).is_none() && self.world.may_mount(key, job, placement);
        let usable = usable && self.world.level_doubted(key, job).is_none();
        if !usable {
            self.world.touch_job(key);
        }
        !usable
    }

    /// What each of these pods was planned to take.
    fn planned(&self, subject: &Subject, probes: &[Arc<Pod>]) -> Vec<Named> {
        let (key, job) = (&subject.key, &subject.job);
        let takes = |pod: &Arc<Pod>| {
            let role = crate::state::seat_of(pod).0?;
            let row = job.spec.roles.iter().position(|r| r.name == role)?;
            Some(translate::PodAsk::of_ours(&self.world.effective_pod(key, job, row)).ok()?.requests)
        };
        // Half of them would be compared with the wrong ones.
        probes.iter().map(takes).collect::<Option<_>>().unwrap_or_default()
    }

    /// Claims whose volumes are made for this start, each with the node of its role's first seat.
    fn claims_of_start(&self, subject: &Subject, placement: &Placement) -> Vec<Selection> {
        let first = |role: usize| {
            let seat = placement.seats.iter().find(|s| usize::from(s.role) == role)?;
            Some(self.world.state.topology().node_name(seat.node).to_string())
        };
        let chosen = self.world.claims_to_select(&subject.key, &subject.job, first);
        lifecycle::claims::selections(&self.world, &subject.job, chosen)
    }

    /// Whether a ResourceQuota of the namespace would refuse the gang half-way; then nothing of it starts.
    fn is_over_quota(&mut self, subject: &Subject, berth: &Berth, now: Time) -> bool {
        if !self.has_quota(&subject.job) {
            return false;
        }
        let Ok(gang) = making(&self.world, &subject.key, &subject.job, berth, |_| Some(1)) else { return false };
        let Some(message) = self.refused_by_quota(&subject.job, &gang.pods) else { return false };
        let until = now + QUOTA_PAUSE;
        let known = self.world.records.get(&subject.key).and_then(|r| r.backoff.as_ref());
        // Told once, and again only when there is something else to tell: a waiting job writes nothing.
        if known.is_none_or(|held| held.message != message) {
            self.note_job(&subject.key, true, Code::NamespaceQuota, &message);
        }
        if let Some(record) = self.world.records.get_mut(&subject.key) {
            record.backoff = Some(Held { code: Code::NamespaceQuota, message, until: Some(until) });
        }
        self.call_at(now, &subject.key);
        self.call_at(until, &subject.key);
        true
    }

    /// Members that are lost again as soon as they are replaced are not replaced at once: 5 s doubling to 2 min.
    fn may_replace(&mut self, key: &str, now: Time) -> bool {
        let Some(record) = self.world.records.get_mut(key) else { return false };
        let (last, times) = record.replaced.filter(|(at, _)| now.since(*at) < REPLACED_CALM).unwrap_or((Time::ZERO, 0));
        let next = if times == 0 { now } else { last + doubling(REPLACED_FIRST, REPLACED_MAX, times) };
        if next > now {
            self.call_at(next, key);
            return false;
        }
        record.replaced = Some((now, times + 1));
        true
    }

    fn has_quota(&self, job: &TrainingJob) -> bool {
        self.world.index.quotas.values().any(|q| q.metadata.namespace == job.metadata.namespace)
    }

    /// The quota of the job's namespace that these pods would exceed, in words.
    fn refused_by_quota(&self, job: &TrainingJob, pods: &[Arc<Pod>]) -> Option<String> {
        let all = self.world.index.quotas.values().map(AsRef::as_ref);
        let quotas: Vec<_> = all.filter(|q| q.metadata.namespace == job.metadata.namespace).collect();
        crate::quota::exceeded(quotas, pods)
    }

    fn is_too_large(&mut self, subject: &Subject, berth: &Berth) -> bool {
        let bytes = berth::encoded_size(berth);
        if bytes <= berth::MAX_BYTES {
            return false;
        }
        let message = format!("its Berth would take {bytes} bytes, more than {} fit into one object", berth::MAX_BYTES);
        if let Some(record) = self.world.records.get_mut(&subject.key) {
            record.backoff = Some(Held { code: Code::BerthTooLarge, message, until: None });
        }
        true
    }

    fn reserve(
        &mut self,
        subject: &Subject,
        window: (Time, Time),
        placement: &Placement,
        clears: &[JobIdx],
        now: Time,
    ) -> bool {
        let clears = self.cleared(clears);
        let decision = self.decision(BerthState::Reserved, window, placement, clears);
        let Some((journal, berth)) = self.journal(subject, &decision) else { return false };
        if self.is_too_large(subject, &berth) {
            return false;
        }
        self.launch(&subject.key, FlightKind::Reserve, empty(&berth, journal, subject.moment), None, now);
        true
    }

    fn move_reservation(
        &mut self,
        subject: &Subject,
        window: (Time, Time),
        placement: &Placement,
        clears: &[JobIdx],
        moved: Moved,
        now: Time,
    ) -> bool {
        let mut clears = self.cleared(clears);
        if let Some(current) = self.world.berths(&subject.key, &subject.job).current
            && clears.is_empty()
        {
            clears.clone_from(&current.spec.clears);
        }
        let decision = self.decision(BerthState::Reserved, window, placement, clears);
        let Some((mut journal, berth)) = self.journal(subject, &decision) else { return false };
        if let Journal::Update { berth, .. } | Journal::Create(berth) = &mut journal {
            super::moves::note(Arc::make_mut(berth), moved);
        }
        self.launch(&subject.key, FlightKind::Move, empty(&berth, journal, subject.moment), None, now);
        true
    }

    fn drop_reservation(&mut self, subject: &Subject, now: Time) -> bool {
        let Some(current) = self.world.berths(&subject.key, &subject.job).current else { return true };
        let berth = Arc::new(current.clone());
        let operation = empty(&berth, Journal::Delete(berth.clone()), subject.moment);
        self.launch(&subject.key, FlightKind::Drop, operation, None, now);
        true
    }

    /// The Berths whose room a reservation clears.
    fn cleared(&self, rows: &[JobIdx]) -> Vec<Clears> {
        let keys = rows.iter().filter_map(|row| Some(self.world.state.job(*row)?.spec.key.to_string()));
        let berths = keys.filter_map(|key| {
            let job = self.world.index.jobs.get(&key)?;
            let berth = self.world.berths(&key, job).current?;
            let uid = berth.metadata.uid.clone()?;
            Some(Clears { berth: translate::key_of(berth), uid, ranks: Vec::new() })
        });
        berths.collect()
    }

    fn stop(&mut self, subject: &Subject, cause: StopCause, by: Option<JobIdx>, now: Time) -> bool {
        let Some(seen) = lifecycle::look(&self.world, &subject.key, &subject.job, now) else { return false };
        let by = by.and_then(|row| Some(self.world.state.job(row)?.spec.key.to_string()));
        let lost = seen.seats.iter().find(|s| matches!(s.fate, Fate::Lost(_))).map(|s| s.node.clone());
        let (code, object) = match cause {
            StopCause::Preempted => (Code::Preempted, by),
            StopCause::Reclaimed => (Code::Reclaimed, by),
            StopCause::NodeLost => (Code::NodeLost, lost),
            StopCause::Drained => (Code::Drained, Some(subject.queue.clone())),
        };
        let object = object.unwrap_or_else(|| subject.key.clone());
        let mut before = crate::status::compute(&self.world, &subject.key, &subject.job, now);
        before.disruptions = Some(before.disruptions.unwrap_or(0) + 1);
        let verdict =
            lifecycle::stop_for(&self.world, &subject.job, &seen, code, &object, Some(before), subject.moment);
        let lifecycle::Step::Operate { kind, operation, before, told } = verdict.step else { return false };
        if let Some((warning, code, message)) = told {
            self.note_job(&subject.key, warning, code, &message);
        }
        self.launch(&subject.key, kind, *operation, before.map(|b| *b), now);
        true
    }

    /// Other seats for a gang that runs: journaled first; then pods without a seat go and new ones come.
    fn reseat(
        &mut self,
        subject: &Subject,
        kind: FlightKind,
        placement: &Placement,
        by: Option<JobIdx>,
        now: Time,
    ) -> bool {
        let (key, job) = (&subject.key, &subject.job);
        let Some(seen) = lifecycle::look(&self.world, key, job, now) else { return false };
        let old = &seen.berth;
        let (start, end) = berth::window(&old.spec);
        let decision = self.decision(BerthState::Committed, (start.unwrap_or(now), end), placement, Vec::new());
        let topology = self.world.state.topology().clone();
        let fresh = berth::spec(job, &subject.queue, old.spec.incarnation, &decision, &topology);
        let mut next = (**old).clone();
        next.spec = BerthSpec { start: old.spec.start, end: old.spec.end, ..fresh };
        let wanted: BTreeSet<(usize, i64, NodeIdx)> =
            placement.seats.iter().map(|s| (usize::from(s.role), i64::from(s.index), s.node)).collect();
        let stays = |role: usize, index: i32, node: &str| {
            self.world.state.find_node(node).is_some_and(|n| wanted.contains(&(role, i64::from(index), n)))
        };
        let grace = grace_seconds(job);
        let unattended = |fate: &Fate| matches!(fate, Fate::Lost(f) if f.reason == "NodeLost");
        let mut delete: Vec<Member> = Vec::new();
        let mut kept: BTreeSet<i64> = BTreeSet::new();
        for seat in &seen.seats {
            let lost = matches!(seat.fate, Fate::Lost(_));
            if stays(seat.role, seat.index, &seat.node) && !lost {
                kept.insert(seat.rank);
                continue;
            }
            let alive = seat.pod.iter().filter(|p| !crate::commit::is_terminal(p));
            delete.extend(alive.map(|p| member(p, Some(if unattended(&seat.fate) { 0 } else { grace }))));
        }
        let attempt = attempts(&self.world, key, job);
        let made =
            making(&self.world, key, job, &next, |m| (!kept.contains(&m.rank)).then(|| attempt_for(&attempt, m)));
        let Ok(making) = made else { return false };
        if kind == FlightKind::Replace && !self.may_replace(key, now) {
            return false;
        }
        let holds = seen.holds_without(job, |seat| kept.contains(&seat.rank));
        // A gang that can go on as it is does not ask for what its namespace may not have.
        if holds && self.refused_by_quota(job, &making.pods).is_some() {
            return false;
        }
        // One that cannot is complete with its new members, or gone.
        let on_refusal = if holds { OnRefusal::Keep } else { OnRefusal::RollBack { grace_seconds: grace } };
        let (code, text) = match kind {
            FlightKind::Replace => (Code::NodeReplaced, format!("{} members move to other nodes", making.pods.len())),
            _ => (Code::Resized, format!("from {} to {} pods", seen.seats.len(), placement.len())),
        };
        let by = by.and_then(|row| Some(self.world.state.job(row)?.spec.key.to_string()));
        let text = by.map_or(text.clone(), |by| format!("{text}, for {by}"));
        let journal = Journal::Update { berth: Arc::new(next.clone()), base: Box::new(old.spec.clone()) };
        let operation = Operation {
            delete,
            companions: making.companions,
            create: making.pods,
            on_refusal,
            ..empty(&next, journal, subject.moment)
        };
        self.note_job(key, false, code, &text);
        if let Some(record) = self.world.records.get_mut(key) {
            record.quality = None;
        }
        self.launch(key, kind, operation, None, now);
        true
    }
}

/// A Berth that holds room is not forgotten before its pods are gone; a promise holds nothing.
fn set_finalizer(berth: &mut Berth, holds: bool) {
    let all = berth.metadata.finalizers.get_or_insert_default();
    all.retain(|f| f != finalizers::BERTH);
    if holds {
        all.push(finalizers::BERTH.to_owned());
    }
}
