//! Scratch tables that only save work: free rows, slot counts per shape up the tree, profiles. They follow a log of
//! touched nodes, so that their cost grows with what changed and not with the cluster.

use super::{Delta, Hold, HoldKind, Profile, effective_holds};
use crate::ids::{DomainIdx, NodeIdx, ShapeIdx};
use crate::resources::Amounts;
use crate::state::{ClusterState, Snapshot};
use crate::time::{Span, Time};
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};

/// How many pods of one shape fit on each node and in each domain now, whatever is reserved.
#[derive(Debug, Default)]
pub(crate) struct CountTable {
    pub(crate) node: Vec<u32>,
    pub(crate) domain: Vec<u64>,
    /// Position in the log up to which it is true.
    read: usize,
}

/// When a node has room for the first pod of one shape, now or later. A lower bound: time that passes can only make it
/// later, so it may rule nodes out and never a moment in.
#[derive(Debug, Default)]
struct OpeningTable {
    at: Vec<Time>,
    /// Position in the log of booked nodes up to which it is true.
    read: usize,
}

/// The scratch tables of a cluster.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    /// Nodes whose free row changed, in order.
    log: Vec<NodeIdx>,
    /// Nodes whose room at some time changed, in order.
    booking_log: Vec<NodeIdx>,
    openings: Vec<Option<OpeningTable>>,
    /// Nodes whose state changed outside plans since the last sync.
    pending: Vec<NodeIdx>,
    /// All tables are void.
    void: bool,
    stride: usize,
    free: Vec<i64>,
    tables: Vec<Option<CountTable>>,
    profiles: Vec<Option<Profile>>,
    /// When a node is wholly free, and the moment from which on that is to be asked anew.
    wholly_free: Vec<Cell<Option<(Time, Time)>>>,
    pub(super) deltas: Vec<Option<Box<Delta>>>,
    /// Nodes with a hold that starts later than now, or with a window of the admin.
    pub(crate) booked: BTreeSet<u32>,
    /// Per class of jobs, fewest domains on the empty cluster.
    pub(crate) best_domains: BTreeMap<u32, u32>,
}

impl Clone for Scratch {
    /// A copy of a cluster builds its own tables when it needs them.
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl Scratch {
    /// Notes that a node's room changed outside a plan.
    pub(crate) fn touch(&mut self, node: NodeIdx) {
        if !self.void {
            self.pending.push(node);
        }
    }

    /// Voids all tables.
    pub(crate) fn reset(&mut self) {
        self.void = true;
        self.best_domains.clear();
        self.pending.clear();
    }

    /// Brings free rows and bookings up to the state.
    pub(super) fn sync(&mut self, state: &ClusterState) {
        let nodes = state.topology().node_count();
        if self.void || self.stride != state.resources.len() || self.free.len() != nodes * state.resources.len() {
            self.rebuild(state, nodes);
            return;
        }
        let pending = std::mem::take(&mut self.pending);
        for node in pending {
            self.refresh(node, state);
        }
        if self.booking_log.len() > 4 * nodes + 1024 {
            self.booking_log.clear();
            self.openings.clear();
        }
        if self.log.len() > 4 * nodes + 1024 {
            self.log.clear();
            for table in &mut self.tables {
                // A table that has read everything stays true; others are built anew when used.
                *table = None;
            }
        }
    }

    fn rebuild(&mut self, state: &ClusterState, nodes: usize) {
        *self = Self { stride: state.resources.len(), ..Self::default() };
        self.free = vec![0; nodes * self.stride];
        self.profiles = std::iter::repeat_with(|| None).take(nodes).collect();
        self.wholly_free = vec![Cell::new(None); nodes];
        self.deltas = std::iter::repeat_with(|| None).take(nodes).collect();
        for row in 0..nodes {
            self.refresh(NodeIdx::of(row), state);
        }
        self.log.clear();
        self.booking_log.clear();
    }

    fn refresh(&mut self, node: NodeIdx, state: &ClusterState) {
        let free = state.free_now(node);
        let start = node.row() * self.stride;
        for (row, cell) in self.free[start..start + self.stride].iter_mut().enumerate() {
            *cell = free.0.get(row).copied().unwrap_or(0);
        }
        let booked =
            !state.node(node).unavailable.is_empty() || state.holds(node).iter().any(|h| h.kind == HoldKind::Reserved);
        if booked {
            self.booked.insert(node.0);
        } else {
            self.booked.remove(&node.0);
        }
        self.note(node, state);
    }

    /// A plan's change of a node: counts and profiles of it are void.
    pub(super) fn note(&mut self, node: NodeIdx, _state: &ClusterState) {
        self.log.push(node);
        self.booking_log.push(node);
        self.profiles[node.row()] = None;
        self.wholly_free[node.row()].set(None);
    }

    /// A plan's change of one hold: sign -1 takes room, 1 gives it back. The profile follows instead of being void.
    pub(super) fn change(&mut self, node: NodeIdx, snapshot: Snapshot<'_>, cycle: Span, hold: &Hold, sign: i64) {
        if hold.kind != HoldKind::Reserved {
            self.log.push(node);
            self.wholly_free[node.row()].set(None);
        }
        self.booking_log.push(node);
        if let Some(mut profile) = self.profiles[node.row()].take()
            && profile.still_true_at(snapshot.now)
            && profile.change(snapshot, cycle, node, hold, sign)
        {
            self.profiles[node.row()] = Some(profile);
        }
    }

    pub(super) fn rebook(&mut self, node: NodeIdx, state: &ClusterState) {
        let booked = !state.node(node).unavailable.is_empty()
            || effective_holds(state, self, node).any(|h| h.kind == HoldKind::Reserved);
        if booked {
            self.booked.insert(node.0);
        } else {
            self.booked.remove(&node.0);
        }
    }

    pub(super) fn add_free(&mut self, node: NodeIdx, requests: &Amounts, times: i64) {
        let start = node.row() * self.stride;
        for (resource, amount) in requests.iter() {
            self.free[start + resource.row()] += amount * times;
        }
    }

    pub(super) fn delta(&mut self, node: NodeIdx) -> &mut Delta {
        self.deltas[node.row()].get_or_insert_with(Box::default)
    }

    /// Forgets a plan's changes.
    pub(super) fn forget(&mut self, changed: &[NodeIdx]) {
        for &node in changed {
            self.deltas[node.row()] = None;
            self.pending.push(node);
        }
    }

    /// Free amounts of a node now.
    pub(crate) fn free_row(&self, node: NodeIdx) -> &[i64] {
        let start = node.row() * self.stride;
        &self.free[start..start + self.stride]
    }

    /// Brings the slot counts of a shape up to date.
    pub(super) fn table(&mut self, state: &ClusterState, shape: ShapeIdx) {
        if self.tables.len() <= shape.row() {
            self.tables.resize_with(shape.row() + 1, || None);
        }
        let known = self.tables[shape.row()].take();
        let table = match known {
            Some(table) => self.caught_up(state, shape, table),
            None => self.counted(state, shape),
        };
        self.tables[shape.row()] = Some(table);
    }

    /// Slot counts of a shape that [`Scratch::table`] has brought up to date.
    pub(super) fn table_ref(&self, shape: ShapeIdx) -> &CountTable {
        self.tables[shape.row()].as_ref().expect("the table was just brought up to date")
    }

    fn count(&self, state: &ClusterState, shape: ShapeIdx, node: NodeIdx) -> u32 {
        let node_state = state.node(node);
        let shape = state.shapes.get(shape);
        if node_state.closed || node_state.lost || !shape.eligible.contains(node) {
            return 0;
        }
        shape.requests.times_in(self.free_row(node))
    }

    fn counted(&self, state: &ClusterState, shape: ShapeIdx) -> CountTable {
        let topology = state.topology();
        let nodes = topology.node_count();
        let mut table =
            CountTable { node: vec![0; nodes], domain: vec![0; topology.domains().len()], read: self.log.len() };
        for row in 0..nodes {
            let node = NodeIdx::of(row);
            let count = self.count(state, shape, node);
            table.node[row] = count;
            table.domain[topology.innermost(node).row()] += u64::from(count);
        }
        for row in (0..table.domain.len()).rev() {
            if let Some(parent) = topology.domain(DomainIdx::of(row)).parent {
                table.domain[parent.row()] += table.domain[row];
            }
        }
        table
    }

    fn caught_up(&self, state: &ClusterState, shape: ShapeIdx, mut table: CountTable) -> CountTable {
        let topology = state.topology();
        for &node in &self.log[table.read..] {
            let count = self.count(state, shape, node);
            let old = std::mem::replace(&mut table.node[node.row()], count);
            if old == count {
                continue;
            }
            let mut at = Some(topology.innermost(node));
            while let Some(domain) = at {
                let cell = &mut table.domain[domain.row()];
                *cell = *cell + u64::from(count) - u64::from(old);
                at = topology.domain(domain).parent;
            }
        }
        table.read = self.log.len();
        table
    }

    /// When each node first has room for a pod of a shape: by row, a lower bound; never if it has none at all.
    pub(super) fn openings(&mut self, snapshot: Snapshot<'_>, cycle: Span, shape: ShapeIdx) -> &[Time] {
        if self.openings.len() <= shape.row() {
            self.openings.resize_with(shape.row() + 1, || None);
        }
        let nodes = snapshot.state.topology().node_count();
        let mut table = self.openings[shape.row()].take().unwrap_or_default();
        let fresh: Vec<NodeIdx> = if table.at.len() == nodes {
            let mut touched = self.booking_log[table.read..].to_vec();
            touched.sort_unstable();
            touched.dedup();
            touched
        } else {
            table.at = vec![Time::NEVER; nodes];
            (0..nodes).map(NodeIdx::of).collect()
        };
        for node in fresh {
            let shape = snapshot.state.shapes.get(shape);
            let first = if shape.eligible.contains(node) {
                self.profile(snapshot, cycle, node).first_slot(&shape.requests, Span::ZERO, snapshot.now)
            } else {
                None
            };
            table.at[node.row()] = first.unwrap_or(Time::NEVER);
        }
        table.read = self.booking_log.len();
        &self.openings[shape.row()].insert(table).at
    }

    /// Capacity of one node over time.
    pub(super) fn profile(&mut self, snapshot: Snapshot<'_>, cycle: Span, node: NodeIdx) -> &Profile {
        let stale = self.profiles[node.row()].as_ref().is_none_or(|p| !p.still_true_at(snapshot.now));
        if stale {
            let holds: Vec<Hold> = effective_holds(snapshot.state, self, node).collect();
            let profile = Profile::build(snapshot, cycle, node, self.stride, &holds);
            self.profiles[node.row()] = Some(profile);
        }
        self.profiles[node.row()].as_ref().expect("just built")
    }

    /// When a node is predicted to be wholly free of what runs on it now.
    pub(super) fn wholly_free_at(&self, snapshot: Snapshot<'_>, node: NodeIdx) -> Time {
        if let Some((known, until)) = self.wholly_free[node.row()].get()
            && snapshot.now < until
        {
            return known;
        }
        let mut until = Time::NEVER;
        let state = snapshot.state;
        let foreign_device = state
            .node(node)
            .foreign
            .iter()
            .any(|(resource, amount)| amount > 0 && state.resources.devices().contains(&resource));
        let at = if foreign_device {
            Time::NEVER
        } else {
            let mut last = Time(i64::MIN);
            for hold in effective_holds(state, self, node) {
                if hold.from > snapshot.now {
                    until = until.min(hold.from);
                } else if hold.predicted > snapshot.now {
                    until = until.min(hold.predicted);
                    last = last.max(hold.predicted);
                } else {
                    last = last.max(hold.to);
                }
            }
            last
        };
        self.wholly_free[node.row()].set(Some((at, until)));
        at
    }
}
