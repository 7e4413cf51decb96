//! Fair shares: guarantees first, then what is left of the parent's share, by weight, as far as each can use it.

use super::columns::Grid;
use super::{Ratio, Shares};
use crate::ids::QueueIdx;
use crate::state::Tally;

/// One child's part in the division of what guarantees leave.
#[derive(Clone, Debug)]
struct Claimant {
    row: usize,
    /// What it can still use.
    most: i64,
    weight: u128,
    name: std::sync::Arc<str>,
}

impl Shares<'_> {
    /// The fair share of a queue in plain resource keys: min(guarantee, demand) (for what it does not list: its part in
    /// proportion), and water-filling by weight of the
    /// parent's rest among siblings with demand left, capped by limit and demand. The root divides the usable cluster.
    ///
    /// Demand is what is in use plus the floors of waiting jobs, as the cycle found it: starts and stops inside the
    /// cycle only move it between the two, which is why fair shares stand still while a cycle evicts.
    #[must_use]
    pub fn fair_share(&self, queue: QueueIdx) -> Tally {
        self.columns.tally(self.fair().row(queue))
    }

    /// [`Shares::fair_share`] under other demands, by queue row; only leaves' entries are read.
    #[must_use]
    pub fn fair_share_of(&self, queue: QueueIdx, demands: &[Tally]) -> Tally {
        let demand = |q: QueueIdx| demands.get(q.row()).cloned().unwrap_or_default();
        self.columns.tally(self.divide(&self.capped_demands(demand)).row(queue))
    }

    pub(super) fn fair(&self) -> &Grid<i64> {
        self.fair.get_or_init(|| {
            let state = self.snapshot.state;
            self.divide(&self.capped_demands(|queue| {
                let mut demand = state.queue_use(queue).clone();
                for (.., row) in state.waiting(queue) {
                    let Some(job) = state.job(*row) else { continue };
                    if job.waiting().is_some_and(|w| w.hold.is_none()) {
                        super::add_tally(&mut demand, &state.floor_tally(&job.spec), 1);
                    }
                }
                demand
            }))
        })
    }

    /// Demand of each queue within its limit: leaves' own, others' the sum of their children's.
    fn capped_demands(&self, leaf_demand: impl Fn(QueueIdx) -> Tally) -> Grid<i64> {
        let state = self.snapshot.state;
        let mut demands = Grid::new(state.queues().len(), &self.columns, 0);
        for &queue in &self.deepest_first {
            if self.children[queue.row()].is_empty() {
                for (column, amount) in self.columns.entries(&leaf_demand(queue)) {
                    demands.row_mut(queue)[column] = amount;
                }
            }
            for (key, most) in &state.queue(queue).limit {
                if let Some(column) = self.columns.find(*key) {
                    let cell = &mut demands.row_mut(queue)[column];
                    *cell = (*cell).min(*most);
                }
            }
            if queue != QueueIdx::ROOT {
                let row = demands.row(queue).to_vec();
                let parent = demands.row_mut(state.queue(queue).parent);
                parent.iter_mut().zip(row).for_each(|(sum, part)| *sum = sum.saturating_add(part));
            }
        }
        demands
    }

    fn divide(&self, demands: &Grid<i64>) -> Grid<i64> {
        let state = self.snapshot.state;
        let mut fair: Grid<i64> = Grid::new(state.queues().len(), &self.columns, 0);
        for column in (0..self.columns.len()).filter(|c| !self.columns.is_pooled(*c)) {
            let usable = state.usable().get(&self.columns.key(column)).copied().unwrap_or(0);
            fair.row_mut(QueueIdx::ROOT)[column] = usable.min(demands.row(QueueIdx::ROOT)[column]).max(0);
        }
        for &parent in self.deepest_first.iter().rev() {
            for column in (0..self.columns.len()).filter(|c| !self.columns.is_pooled(*c)) {
                let mut rest = fair.row(parent)[column];
                let mut claimants = Vec::new();
                for &child in &self.children[parent.row()] {
                    let demand = demands.row(child)[column];
                    let base = self.guarantees.implied.row(child)[column].min(demand);
                    fair.row_mut(child)[column] = base;
                    rest -= base;
                    if demand > base {
                        let (weight, name) = (self.weights[child.row()], state.queue(child).name.clone());
                        claimants.push(Claimant { row: child.row(), most: demand - base, weight, name });
                    }
                }
                for (row, part) in pour(rest, claimants) {
                    fair.row_mut(QueueIdx::of(row))[column] += part;
                }
            }
        }
        fair
    }
}

/// Divides `rest` by weight so that nobody gets more than it can use; whole units, the leftover by largest remainder,
/// then name.
fn pour(rest: i64, mut claimants: Vec<Claimant>) -> Vec<(usize, i64)> {
    let Ok(mut rest) = u128::try_from(rest) else { return Vec::new() };
    let most = |c: &Claimant| u128::from(c.most.unsigned_abs());
    claimants.sort_by(|a, b| {
        Ratio::new(most(a), a.weight).cmp(&Ratio::new(most(b), b.weight)).then_with(|| a.name.cmp(&b.name))
    });
    let mut weights: u128 = claimants.iter().map(|c| c.weight).sum();
    let mut parts = Vec::with_capacity(claimants.len());
    let mut served = 0;
    for claimant in &claimants {
        // In order of saturation: if this one cannot be filled, none of the later ones can.
        if most(claimant) * weights > rest * claimant.weight {
            break;
        }
        parts.push((claimant.row, claimant.most));
        rest -= most(claimant);
        weights -= claimant.weight;
        served += 1;
    }
    let mut open: Vec<(u128, &Claimant, u128)> =
        claimants[served..].iter().map(|c| (rest * c.weight % weights, c, rest * c.weight / weights)).collect();
    let mut leftover = rest - open.iter().map(|o| o.2).sum::<u128>();
    if served == claimants.len() {
        leftover = 0;
    }
    open.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.name.cmp(&b.1.name)));
    for (_, claimant, whole) in open {
        let extra = u128::from(leftover > 0);
        leftover -= extra;
        parts.push((claimant.row, i64::try_from(whole + extra).unwrap_or(i64::MAX)));
    }
    parts
}
