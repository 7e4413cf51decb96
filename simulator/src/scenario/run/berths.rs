//! What the objects say of a decision: Berths written as the controller would.

use super::Runner;
use crds::v1alpha1::{BerthState, Clears, Phase as JobPhase};
use planner::job::Placement;
use planner::{JobIdx, Time};
use translate::berth::Decision;
use translate::time;

impl Runner<'_> {
    /// Writes a job's Berth, the one in force or a new one; the narrowest domain that holds it.
    pub(super) fn write_berth(
        &mut self,
        key: &str,
        state: BerthState,
        start: Time,
        end: Time,
        placement: &Placement,
        clears: Vec<Clears>,
    ) -> String {
        let Some(job) = self.store.jobs.get(key) else { return String::new() };
        let incarnation = self.lives.get(key).map_or(1, |l| l.incarnations + i64::from(state == BerthState::Reserved));
        let queue = self.operator.state.find_job(key).and_then(|r| self.operator.state.job(r));
        let queue = queue.map_or("", |j| &*self.operator.state.queue(j.spec.queue).name).to_owned();
        let decision = Decision { state, start, end, placement, clears, epoch: 1, leader_epoch: 1 };
        let spec = translate::berth::spec(job, &queue, incarnation, &decision, self.operator.state.topology());
        let domain = spec.domain.clone().unwrap_or_default();
        if let Ok(berth) = translate::berth::object(job, spec) {
            let name = translate::key_of(&berth);
            match self.store.berths.get_mut(&name) {
                Some(old) => old.spec = berth.spec,
                None => {
                    self.store.berths.insert(name, berth);
                }
            }
        }
        domain
    }

    pub(super) fn write_promise(
        &mut self,
        key: &str,
        start: Time,
        end: Time,
        placement: &Placement,
        clears: Option<Vec<Clears>>,
    ) -> String {
        let kept =
            || self.store.jobs.get(key).and_then(|j| self.store.berths_of(j).current).map(|b| b.spec.clears.clone());
        let clears = clears.or_else(kept).unwrap_or_default();
        self.store.set_phase(key, JobPhase::Reserved);
        let domain = self.write_berth(key, BerthState::Reserved, start, end, placement, clears);
        let promised = self.operator.state.find_job(key).and_then(|r| self.operator.state.job(r)?.waiting());
        let promised = promised.and_then(|w| w.reservation.as_ref()).map(|r| r.promised);
        if let Some(berth) = self.store.current_berth(key) {
            berth.status.get_or_insert_default().promised = promised.and_then(time::timestamp);
        }
        domain
    }

    pub(super) fn write_seats(&mut self, key: &str, placement: &Placement) {
        let Some(job) = self.store.jobs.get(key) else { return };
        let roles = translate::berth::role_names(job);
        let assignments = translate::berth::assignments(&roles, placement, self.operator.state.topology());
        if let Some(berth) = self.store.current_berth(key) {
            berth.spec.assignments = assignments;
            berth.status.get_or_insert_default().created = i32::try_from(placement.len()).unwrap_or(i32::MAX);
        }
    }

    pub(super) fn cleared(&mut self, victim: JobIdx) -> Option<Clears> {
        let key = self.operator.key(victim);
        let berth = self.store.current_berth(&key)?;
        let name = berth.metadata.name.clone().unwrap_or_default();
        Some(Clears { berth: name, uid: berth.metadata.uid.clone().unwrap_or_default(), ranks: Vec::new() })
    }
}
