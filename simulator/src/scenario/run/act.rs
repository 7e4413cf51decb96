//! A plan's actions carried out: lives begin and end, and events tell of it.

use super::{After, RunError, Runner, Tick, shown, shown_cause};
use crate::scenario::event::{Rank, What};
use crds::v1alpha1::{BerthState, Clears, Moved, Phase as JobPhase};
use planner::job::Placement;
use planner::plan::{Action, StopCause};
use planner::{JobIdx, Span, Time};
use translate::time;

impl Runner<'_> {
    pub(super) fn act(&mut self, action: &Action) -> Result<(), RunError> {
        let key = self.operator.key(action.job());
        if matches!(action, Action::Start { .. } | Action::Resize { .. } | Action::Replace { .. }) {
            self.settle_use(&key);
        }
        self.operator.state.apply(action, self.now);
        match action {
            Action::Start { placement, ends, quality, .. } => {
                self.started(&key, placement, *ends);
                let incarnation = self.lives.get(&*key).map_or(1, |l| l.incarnations);
                let ranks = self.ranks(&key, placement);
                self.tell(
                    &key,
                    What::Started {
                        incarnation,
                        ranks,
                        level: quality.level.to_string(),
                        domain: quality.domain.to_string(),
                        domains: quality.domains,
                    },
                );
            }
            Action::Reserve { start, end, placement, clears, .. } => {
                let clears: Vec<Clears> = clears.iter().filter_map(|victim| self.cleared(*victim)).collect();
                let domain = self.write_promise(&key, *start, *end, placement, Some(clears));
                self.tell(&key, What::Reserved { start: *start, nodes: self.operator.node_names(placement), domain });
                self.foresee(*start, Tick::Wake);
            }
            Action::Move { from, to, cause, .. } => self.moved(&key, *from, to.as_ref(), cause.as_ref()),
            Action::Stop { cause, by, .. } => self.stopped(&key, *cause, *by)?,
            Action::Resize { placement, by, .. } => {
                let by = by.map(|b| shown(&self.operator.key(b)).to_owned());
                let ranks = self.ranks(&key, placement);
                self.write_seats(&key, placement);
                self.tell(&key, What::Resized { ranks, by });
                let grace = self.operator.state.find_job(&key).and_then(|r| self.operator.state.job(r));
                let until = self.now + grace.map_or(Span::ZERO, |j| j.spec.grace);
                self.foresee(until, Tick::Room);
            }
            Action::Replace { swaps, placement, .. } => {
                self.write_seats(&key, placement);
                for (rank, from, to) in swaps {
                    let (from, to) = (self.operator.name(*from), self.operator.name(*to));
                    self.tell(&key, What::NodeReplaced { rank: *rank, from, to });
                }
            }
            Action::Guarantee { .. } => {
                let at = time::timestamp(self.now);
                if let Some(status) = self.store.status(&key) {
                    status.private_start = status.private_start.or(at);
                }
            }
        }
        Ok(())
    }

    pub(super) fn ranks(&self, key: &str, placement: &Placement) -> Vec<Rank> {
        let Some(job) = self.operator.state.find_job(key).and_then(|r| self.operator.state.job(r)) else {
            return Vec::new();
        };
        let mut ranks: Vec<Rank> = placement
            .seats
            .iter()
            .map(|seat| Rank {
                rank: job.spec.first_rank(usize::from(seat.role)) + seat.index,
                role: job.spec.roles[usize::from(seat.role)].name.to_string(),
                index: seat.index,
                node: self.operator.name(seat.node),
            })
            .collect();
        ranks.sort_by_key(|r| r.rank);
        ranks
    }

    pub(super) fn started(&mut self, key: &str, placement: &Placement, ends: Time) {
        let limit = self.limit(key);
        if let Some(life) = self.lives.get_mut(key) {
            life.start(self.now, limit);
        }
        self.write_berth(key, BerthState::Committed, self.now, ends, placement, Vec::new());
        let pods = i32::try_from(placement.len()).unwrap_or(i32::MAX);
        if let Some(berth) = self.store.current_berth(key) {
            let status = berth.status.get_or_insert_default();
            (status.created, status.bound, status.running) = (pods, pods, pods);
        }
        let (at, incarnation) = (time::timestamp(self.now), self.lives.get(key).map(|l| l.incarnations));
        if let Some(status) = self.store.status(key) {
            status.phase = Some(JobPhase::Running);
            status.started_at = at;
            status.incarnation = incarnation;
        }
        self.gate.see_job(&self.store, key);
        self.reasons.remove(key);
        self.foresee_life(key);
    }

    pub(super) fn moved(
        &mut self,
        key: &str,
        from: Time,
        to: Option<&(Time, Time, Placement)>,
        cause: Option<&planner::plan::Cause>,
    ) {
        let text = cause.map(shown_cause);
        match to {
            None => {
                self.store.release(key, text.as_deref().unwrap_or_default());
                self.store.set_phase(key, JobPhase::Pending);
            }
            Some((start, end, placement)) => {
                self.write_promise(key, *start, *end, placement, None);
                let note = Moved {
                    from: time::timestamp(from).map(|t| t.to_string()).unwrap_or_default(),
                    to: time::timestamp(*start).map(|t| t.to_string()),
                    cause: text.clone().unwrap_or_default(),
                };
                if let Some(berth) = self.store.current_berth(key).filter(|_| *start != from) {
                    let moved = &mut berth.status.get_or_insert_default().moved;
                    moved.push(note);
                    let over = moved.len().saturating_sub(20);
                    moved.drain(..over);
                }
                self.foresee(*start, Tick::Wake);
            }
        }
        let to = to.map(|(start, ..)| *start);
        if to != Some(from) || text.is_some() {
            self.tell(key, What::ReservationMoved { from, to, cause: text });
        }
    }

    pub(super) fn stopped(&mut self, key: &str, cause: StopCause, by: Option<JobIdx>) -> Result<(), RunError> {
        let cause = match cause {
            StopCause::Preempted => "Preempted",
            StopCause::Reclaimed => "Reclaimed",
            StopCause::NodeLost => "NodeLost",
            StopCause::Drained => "Drained",
        };
        let by = by.map(|b| shown(&self.operator.key(b)).to_owned());
        let lost = self.stop_life(key);
        if let Some(status) = self.store.status(key) {
            *status.disruptions.get_or_insert(0) += 1;
        }
        self.tell(key, What::Stopped { cause: cause.into(), by, lost });
        self.stopping(key, After::Requeue { requeued: true, last_placement: None }, cause)
    }
}
