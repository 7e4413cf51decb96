//! Recounts the derived tables from scratch: the invariant of the state, asserted in tests.

use super::{ClusterState, RankKey, Tally};
use crate::resources::Amounts;
use std::collections::{BTreeMap, BTreeSet};

impl ClusterState {
    /// Recounts every derived table and says which differs from the one kept up incrementally.
    ///
    /// # Errors
    /// The name of the first table that differs.
    pub fn audit(&mut self) -> Result<(), &'static str> {
        let used = self.used.clone();
        let (queue_use, running) = (self.queue_use.clone(), self.queue_running.clone());
        let (waiting, holding) = (self.waiting.clone(), self.running.clone());
        let marks = self.marks.clone();
        let by_class = self.by_class.clone();
        self.recount();
        let same = |a: &Amounts, b: &Amounts| {
            (0..a.0.len().max(b.0.len())).all(|r| a.0.get(r).unwrap_or(&0) == b.0.get(r).unwrap_or(&0))
        };
        let nonzero = |t: &Tally| t.iter().filter(|(_, v)| **v != 0).map(|(k, v)| (*k, *v)).collect::<Vec<_>>();
        if used.len() != self.used.len() || !used.iter().zip(&self.used).all(|(a, b)| same(a, b)) {
            return Err("used");
        }
        if queue_use.iter().zip(&self.queue_use).any(|(a, b)| nonzero(a) != nonzero(b)) {
            return Err("queue_use");
        }
        if running != self.queue_running {
            return Err("queue_running");
        }
        let (totals, usable) = (self.totals.clone(), self.usable.clone());
        self.recount_nodes();
        if nonzero(&totals) != nonzero(&self.totals) || nonzero(&usable) != nonzero(&self.usable) {
            return Err("totals");
        }
        if waiting != self.waiting {
            return Err("waiting");
        }
        if holding != self.running {
            return Err("running");
        }
        let nonempty = |tables: &[BTreeMap<u32, BTreeSet<RankKey>>]| {
            let classes = |t: &BTreeMap<u32, BTreeSet<RankKey>>| {
                t.iter().filter(|(_, jobs)| !jobs.is_empty()).map(|(c, jobs)| (*c, jobs.clone())).collect::<Vec<_>>()
            };
            tables.iter().map(classes).collect::<Vec<_>>()
        };
        let filed: usize = self.by_class.iter().flat_map(BTreeMap::values).map(BTreeSet::len).sum();
        if nonempty(&by_class) != nonempty(&self.by_class) || filed != self.waiting.iter().map(BTreeSet::len).sum() {
            return Err("by_class");
        }
        if marks != self.marks {
            return Err("marks");
        }
        Ok(())
    }
}
