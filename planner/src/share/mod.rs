//! Use of queues during one cycle: who is next, who may start, who is entitled, who must give back.
//!
//! [`Shares`] is a working copy that the cycle changes as it gives room; it never decides where a job goes. Amounts are
//! exact integers, shares exact fractions ([`Ratio`]); decayed use, a float in the API, is rounded once to 2^-20 of a
//! unit, so that sums over a tree do not depend on the order of its rows.

mod columns;
mod contest;
mod decay;
mod fair;
mod guarantee;
mod limit;
mod order;
mod ratio;
mod reclaim;
mod report;
mod users;

pub use contest::Contest;
pub use decay::{DecayedUse, DecayedUsers, POOLED, TOP_USERS, decay, integrate, settle, settled, use_by_user};
pub use limit::{LimitKind, OverLimit};
pub use order::{Head, Standing};
pub use ratio::Ratio;
pub use reclaim::{Reclaim, Taker};
pub use report::{QueueReport, queue_reports};
pub use users::Users;

use crate::ids::{JobIdx, QueueIdx};
use crate::policy::Policy;
use crate::state::{Snapshot, Tally};
use crate::time::Span;
use columns::{Columns, Grid};
use guarantee::Guarantees;
use limit::Lending;
use std::cell::OnceCell;

/// Decayed use counts in this fraction of a resource unit.
const FINE: i128 = 1 << 20;

/// A working copy of queue use that one cycle changes as it gives room.
#[derive(Clone, Debug)]
pub struct Shares<'a> {
    snapshot: Snapshot<'a>,
    half_life: Span,
    columns: Columns,
    /// Every queue after all of its children; ties in row order.
    deepest_first: Vec<QueueIdx>,
    children: Vec<Vec<QueueIdx>>,
    depth: Vec<u32>,
    use_: Grid<i64>,
    running: Vec<u32>,
    /// Decayed use at now, in 1/[`FINE`] units, of plain keys; empty cells with a half-life of zero.
    history: Grid<i128>,
    /// Floors given at this instant.
    given: Grid<i64>,
    weights: Vec<u128>,
    guarantees: Guarantees,
    lending: Vec<Lending>,
    /// Share for order, kept up by `give` and `take`.
    order_share: Vec<Ratio>,
    fair: OnceCell<Grid<i64>>,
}

impl<'a> Shares<'a> {
    /// The use of every queue at the snapshot's moment.
    #[must_use]
    pub fn new(snapshot: Snapshot<'a>, policy: &Policy) -> Self {
        let state = snapshot.state;
        let count = state.queues().len();
        let columns = Columns::of(state);
        let mut children = vec![Vec::new(); count];
        let mut depth = vec![0; count];
        for (row, queue) in state.queues().iter().enumerate().skip(1) {
            children[queue.parent.row()].push(QueueIdx::of(row));
            depth[row] = u32::try_from(state.lineage(QueueIdx::of(row)).count() - 1).expect("trees are shallow");
        }
        let mut deepest_first: Vec<QueueIdx> = (0..count).map(QueueIdx::of).collect();
        deepest_first.sort_by_key(|q| std::cmp::Reverse(depth[q.row()]));
        let mut use_ = Grid::new(count, &columns, 0);
        for row in (0..count).map(QueueIdx::of) {
            for (column, amount) in columns.entries(state.queue_use(row)) {
                use_.row_mut(row)[column] = amount;
            }
        }
        let mut shares = Self {
            snapshot,
            half_life: policy.share_half_life,
            history: order::history(snapshot, policy.share_half_life, &columns, &deepest_first),
            given: Grid::new(count, &columns, 0),
            weights: state.queues().iter().map(|q| order::fixed_weight(q.weight)).collect(),
            guarantees: Guarantees::of(state, &columns, &deepest_first),
            lending: Lending::all_of(state, &columns, &deepest_first),
            order_share: vec![Ratio::ZERO; count],
            running: (0..count).map(|r| state.queue_running(QueueIdx::of(r))).collect(),
            fair: OnceCell::new(),
            columns,
            deepest_first,
            children,
            depth,
            use_,
        };
        for row in 0..count {
            shares.order_share[row] = shares.share_for_order(QueueIdx::of(row));
        }
        shares
    }

    /// What the present instant has done already counts as if this cycle had done it: jobs told to go hold nothing any
    /// more, and floors that were given at this very instant are in nobody's history yet. A plan is so continued, not
    /// begun anew, by the next one of the same instant.
    pub(crate) fn count_this_instant(&mut self) {
        let Snapshot { state, now } = self.snapshot;
        for job in state.marks().leaving.union(&state.marks().shedding).filter_map(|row| state.job(*row)) {
            let mut going = Tally::new();
            let leaves = job.running().is_none() && job.waiting().is_none();
            let shed = job.shedding.iter().map(|(placement, _)| placement);
            let whole = if leaves { job.held() } else { shed.collect() };
            whole.iter().for_each(|placement| state.count_seats(&job.spec, placement, &mut going, 1));
            self.change_use(job.spec.queue, &going, -1, -i32::from(leaves));
        }
        for (_, row) in state.marks().started.range((now, JobIdx(0))..) {
            let Some((job, running)) = state.job(*row).and_then(|j| Some((j, j.running()?))) else { continue };
            let mut floor = Tally::new();
            state.count_seats(&job.spec, &running.placement.at_floor(&job.spec), &mut floor, 1);
            self.count_given(job.spec.queue, &floor, 1);
            self.change_use(job.spec.queue, &Tally::new(), 1, 0);
        }
    }

    /// A job of the queue starts in this cycle.
    pub fn give(&mut self, queue: QueueIdx, tally: &Tally) {
        self.count_given(queue, tally, 1);
        self.change_use(queue, tally, 1, 1);
    }

    /// A start of this cycle is undone.
    pub fn take(&mut self, queue: QueueIdx, tally: &Tally) {
        self.count_given(queue, tally, -1);
        self.change_use(queue, tally, -1, -1);
    }

    /// A job of the queue stops in this cycle. Its past, and what this instant gave, stay counted.
    pub fn leave(&mut self, queue: QueueIdx, tally: &Tally) {
        self.change_use(queue, tally, -1, -1);
    }

    /// A stop is undone.
    pub fn stay(&mut self, queue: QueueIdx, tally: &Tally) {
        self.change_use(queue, tally, 1, 1);
    }

    /// A running job of the queue grows by `tally`.
    pub fn grow(&mut self, queue: QueueIdx, tally: &Tally) {
        self.change_use(queue, tally, 1, 0);
    }

    /// A running job of the queue gives `tally` back and runs on.
    pub fn shrink(&mut self, queue: QueueIdx, tally: &Tally) {
        self.change_use(queue, tally, -1, 0);
    }

    fn count_given(&mut self, queue: QueueIdx, tally: &Tally, times: i64) {
        for here in self.snapshot.state.lineage(queue) {
            for (column, amount) in self.columns.entries(tally) {
                self.given.row_mut(here)[column] += amount * times;
            }
        }
    }

    fn change_use(&mut self, queue: QueueIdx, tally: &Tally, times: i64, jobs: i32) {
        let state = self.snapshot.state;
        let entries: Vec<(usize, i64)> = self.columns.entries(tally).collect();
        for here in state.lineage(queue) {
            for &(column, amount) in &entries {
                self.use_.row_mut(here)[column] += amount * times;
            }
            let running = &mut self.running[here.row()];
            *running = running.saturating_add_signed(jobs);
            self.order_share[here.row()] = self.share_for_order(here);
        }
        self.recount_lending(queue);
    }

    /// Present use of a queue and those below, with what this cycle gave and took.
    #[must_use]
    pub fn used(&self, queue: QueueIdx) -> Tally {
        self.columns.tally(self.use_.row(queue))
    }

    /// Jobs of a queue and those below that hold room.
    #[must_use]
    pub fn running(&self, queue: QueueIdx) -> u32 {
        self.running[queue.row()]
    }

    /// The snapshot this is a working copy of.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot<'a> {
        self.snapshot
    }

    /// The children of the lowest common ancestor in whose families the two queues are. A queue with itself, or with one
    /// of its ancestors, has no such pair: then both are the nearer common queue.
    #[must_use]
    pub fn lca_child(&self, a: QueueIdx, b: QueueIdx) -> (QueueIdx, QueueIdx) {
        let state = self.snapshot.state;
        let parent = |q: QueueIdx| state.queue(q).parent;
        let (mut a, mut b) = (a, b);
        while self.depth[a.row()] > self.depth[b.row()] && parent(a) != b {
            a = parent(a);
        }
        while self.depth[b.row()] > self.depth[a.row()] && parent(b) != a {
            b = parent(b);
        }
        if a == b || parent(a) == b {
            return (b, b);
        }
        if parent(b) == a {
            return (a, a);
        }
        while parent(a) != parent(b) {
            (a, b) = (parent(a), parent(b));
        }
        (a, b)
    }
}

/// Adds `times` × `more` to a tally.
pub fn add_tally(tally: &mut Tally, more: &Tally, times: i64) {
    for (key, amount) in more {
        *tally.entry(*key).or_default() += amount * times;
    }
}
