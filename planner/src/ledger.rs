//! Capacity over time: who holds what on each node and until when, with this plan's own decisions laid over it.
//!
//! The [`Ledger`] answers two kinds of question: what is free from now on for a length of time ([`NowRoom`], from slot
//! counts kept up incrementally) and what is free during any later window ([`SpaceRoom`], built for one domain). It never
//! copies the cluster: a plan's changes live in per-node deltas that vanish with it.

mod counts;
mod now_room;
mod profile;
mod space_room;

pub(crate) use counts::Scratch;
pub(crate) use now_room::NowRoom;
pub(crate) use profile::Profile;
pub(crate) use space_room::SpaceRoom;

use crate::ids::{DomainIdx, JobIdx, NodeIdx, ShapeIdx};
use crate::job::{JobSpec, Placement};
use crate::state::{ClusterState, Snapshot};
use crate::time::{Span, Time};
use std::cell::RefMut;

/// Why room is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum HoldKind {
    /// By pods that run.
    Running,
    /// By pods told to go.
    Leaving,
    /// By a reservation.
    Reserved,
}

/// Room of one job on one node during a window of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hold {
    /// Whose.
    pub job: JobIdx,
    /// Kind of pod.
    pub shape: ShapeIdx,
    /// Pods.
    pub count: u32,
    /// Since or from when; running pods hold since ever.
    pub from: Time,
    /// Until when it is promised to nobody else.
    pub to: Time,
    /// When it is expected to end (for placement only).
    pub predicted: Time,
    /// Why.
    pub kind: HoldKind,
}

/// This plan's changes to one node.
#[derive(Debug, Default)]
pub(crate) struct Delta {
    added: Vec<Hold>,
    /// Jobs whose holds of one kind, as the state knows them, do not count any more.
    removed: Vec<(JobIdx, HoldKind)>,
}

/// A moment's cluster with one plan's decisions laid over it.
pub(crate) struct Ledger<'a> {
    pub(crate) snapshot: Snapshot<'a>,
    cycle: Span,
    scratch: RefMut<'a, Scratch>,
    changed: Vec<NodeIdx>,
    /// Counts changes that made room; answers "does not fit" from before it are void.
    pub(crate) loosened: u64,
}

impl<'a> Ledger<'a> {
    pub(crate) fn open(snapshot: Snapshot<'a>, cycle: Span) -> Self {
        let mut scratch = snapshot.state.scratch.borrow_mut();
        scratch.sync(snapshot.state);
        Self { snapshot, cycle, scratch, changed: Vec::new(), loosened: 0 }
    }

    pub(crate) fn state(&self) -> &'a ClusterState {
        self.snapshot.state
    }

    pub(crate) fn now(&self) -> Time {
        self.snapshot.now
    }

    /// Adds a job's room on its nodes.
    pub(crate) fn hold(
        &mut self,
        job: JobIdx,
        spec: &JobSpec,
        placement: &Placement,
        kind: HoldKind,
        window: (Time, Time),
        predicted: Time,
    ) {
        for (node, role, count) in placement.by_node() {
            let shape = spec.roles[usize::from(role)].shape;
            let hold = Hold { job, shape, count, from: window.0, to: window.1, predicted, kind };
            self.add(node, hold);
        }
    }

    fn add(&mut self, node: NodeIdx, hold: Hold) {
        let now = self.now();
        let requests = self.state().shapes.get(hold.shape).requests.clone();
        let scratch = &mut *self.scratch;
        if hold.kind != HoldKind::Reserved {
            scratch.add_free(node, &requests, -i64::from(hold.count));
        }
        let delta = scratch.delta(node);
        if delta.added.is_empty() && delta.removed.is_empty() {
            self.changed.push(node);
        }
        delta.added.push(hold);
        scratch.change(node, self.snapshot, self.cycle, &hold, -1);
        if hold.kind == HoldKind::Reserved {
            scratch.booked.insert(node.0);
        }
        debug_assert!(hold.kind == HoldKind::Reserved || hold.from <= now, "only reservations start later");
    }

    /// Takes a job's room of one kind off its nodes, whether the state or this plan put it there.
    pub(crate) fn release(&mut self, job: JobIdx, placement: &Placement, kind: HoldKind) {
        self.loosened += 1;
        for node in placement.nodes() {
            let state = self.snapshot.state;
            let scratch = &mut *self.scratch;
            let delta = scratch.delta(node);
            if delta.added.is_empty() && delta.removed.is_empty() {
                self.changed.push(node);
            }
            let mut gone: Vec<Hold> = Vec::new();
            delta.added.retain(|h| {
                let hit = h.job == job && h.kind == kind;
                if hit {
                    gone.push(*h);
                }
                !hit
            });
            if !delta.removed.contains(&(job, kind)) {
                let base = state.holds(node).iter().filter(|h| h.job == job && h.kind == kind);
                gone.extend(base.copied());
                delta.removed.push((job, kind));
            }
            for hold in &gone {
                if hold.kind != HoldKind::Reserved {
                    let requests = state.shapes.get(hold.shape).requests.clone();
                    scratch.add_free(node, &requests, i64::from(hold.count));
                }
                scratch.change(node, self.snapshot, self.cycle, hold, 1);
            }
            scratch.rebook(node, state);
        }
    }

    /// Everything that holds room on a node, this plan's view.
    pub(crate) fn holds(&self, node: NodeIdx) -> impl Iterator<Item = Hold> + '_ {
        effective_holds(self.snapshot.state, &self.scratch, node)
    }

    /// The least free amounts of a node during a window.
    pub(crate) fn free_during(&mut self, node: NodeIdx, from: Time, to: Time) -> Vec<i64> {
        let (snapshot, cycle) = (self.snapshot, self.cycle);
        self.scratch.profile(snapshot, cycle, node).least(from, to)
    }

    /// When a node is predicted to be wholly free of what is on it at `from`.
    pub(crate) fn wholly_free_at(&self, node: NodeIdx, from: Time) -> Time {
        if from <= self.now() {
            return self.scratch.wholly_free_at(self.snapshot, node);
        }
        let now = self.now();
        let end = |h: &Hold| if h.predicted > now { h.predicted.min(h.to) } else { h.to };
        self.holds(node).filter(|h| h.from <= from && end(h) > from).map(|h| end(&h)).max().unwrap_or(from)
    }

    /// Capacity of one node over time.
    pub(crate) fn profile(&mut self, node: NodeIdx) -> &Profile {
        let (snapshot, cycle) = (self.snapshot, self.cycle);
        self.scratch.profile(snapshot, cycle, node)
    }

    /// Room from now until `end`, for pods of these shapes.
    pub(crate) fn now_room(&mut self, shapes: &[ShapeIdx], end: Time) -> NowRoom<'_> {
        NowRoom::open(self.snapshot, self.cycle, &mut self.scratch, shapes, end)
    }

    /// Upper bound of the pods of a shape that a domain holds now, whatever is reserved.
    pub(crate) fn at_most(&mut self, domain: DomainIdx, shape: ShapeIdx) -> u64 {
        self.scratch.table(self.snapshot.state, shape);
        self.scratch.table_ref(shape).domain[domain.row()]
    }

    /// Pods of a shape that a node holds now, whatever is reserved; after [`Ledger::at_most`] was asked of the shape.
    pub(crate) fn slots(&mut self, node: NodeIdx, shape: ShapeIdx) -> u32 {
        self.scratch.table(self.snapshot.state, shape);
        self.scratch.table_ref(shape).node[node.row()]
    }

    /// Room of some nodes (in row order) during any window; every other node has none.
    pub(crate) fn space_room(
        &mut self,
        nodes: Vec<NodeIdx>,
        shapes: &[ShapeIdx],
        from: Time,
        to: Time,
    ) -> SpaceRoom<'a> {
        SpaceRoom::open(self, nodes, shapes, from, to)
    }

    /// Nodes of a domain, in row order, that may have room for a pod of some of these shapes at a moment not later than
    /// `until`. No other node has.
    pub(crate) fn open_by(&mut self, domain: DomainIdx, shapes: &[ShapeIdx], until: Time) -> Vec<NodeIdx> {
        let range = self.state().topology().domain(domain).nodes.clone();
        let mut open: Vec<NodeIdx> = Vec::new();
        for (nth, &shape) in shapes.iter().enumerate() {
            let (snapshot, cycle) = (self.snapshot, self.cycle);
            let table = self.scratch.openings(snapshot, cycle, shape);
            let rows = &table[range.start as usize..range.end as usize];
            let hits = rows.iter().zip(range.clone()).filter(|(at, _)| **at <= until && !at.is_never());
            open.extend(hits.map(|(_, row)| NodeIdx(row)));
            if nth > 0 {
                open.sort_unstable();
                open.dedup();
            }
        }
        open
    }

    /// A moment by which about `nodes` nodes of some domains have opened for pods of a shape; never if fewer ever do.
    pub(crate) fn opened(&mut self, domains: &[DomainIdx], shape: ShapeIdx, nodes: usize) -> Time {
        let state = self.state();
        let (snapshot, cycle) = (self.snapshot, self.cycle);
        let table = self.scratch.openings(snapshot, cycle, shape);
        let ranges = domains.iter().map(|domain| state.topology().domain(*domain).nodes.clone());
        let mut times: Vec<Time> =
            ranges.flat_map(|r| table[r.start as usize..r.end as usize].iter().copied()).collect();
        if times.len() <= nodes { Time::NEVER } else { *times.select_nth_unstable(nodes).1 }
    }

    /// Fewest domains of the wanted level that a job of this class could have on the empty cluster (1 if it never fits).
    pub(crate) fn best_domains(&mut self, class: u32, spec: &JobSpec, search_limit: u32) -> u32 {
        if let Some(&known) = self.scratch.best_domains.get(&class) {
            return known;
        }
        let state = self.state();
        let free = state.nodes().iter().map(|n| n.allocatable.clone()).collect();
        let room = crate::room::FixedRoom::new(state.topology(), &state.shapes, free);
        let sizes: Vec<u32> = spec.roles.iter().map(|r| r.floor).collect();
        let ask = crate::place::Ask {
            spec,
            sizes: &sizes,
            start: Time::ZERO,
            predicted_end: Time::ZERO,
            most_domains: None,
            search_limit,
            within: None,
        };
        let best = crate::place::place(&room, &ask).map_or(1, |found| found.domains);
        self.scratch.best_domains.insert(class, best);
        best
    }

    /// When a hold is assumed to end: overdue ones one more cycle later, doubling.
    pub(crate) fn assumed_end(to: Time, now: Time, cycle: Span) -> Time {
        if to > now {
            return to;
        }
        let mut wait = cycle.0.max(1);
        while to.0.saturating_add(wait) <= now.0 {
            wait = wait.saturating_mul(2);
        }
        Time(to.0.saturating_add(wait))
    }
}

impl Drop for Ledger<'_> {
    /// A plan's changes vanish with it.
    fn drop(&mut self) {
        let changed = std::mem::take(&mut self.changed);
        self.scratch.forget(&changed);
    }
}

/// Holds of a node with a plan's delta laid over them.
fn effective_holds<'s>(
    state: &'s ClusterState,
    scratch: &'s Scratch,
    node: NodeIdx,
) -> impl Iterator<Item = Hold> + 's {
    let delta = scratch.deltas.get(node.row()).and_then(|d| d.as_deref());
    let removed: &[(JobIdx, HoldKind)] = delta.map_or(&[], |d| &d.removed);
    let added: &[Hold] = delta.map_or(&[], |d| &d.added);
    let base = state.holds(node).iter().filter(move |h| !removed.contains(&(h.job, h.kind)));
    base.chain(added).copied()
}
