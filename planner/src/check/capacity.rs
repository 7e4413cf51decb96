//! Law 2: no node holds more of any resource than it has, at any moment of the plan.

use super::holding::{Holding, Kind};
use super::moment::{Excess, Line, Window, sweep};
use super::violation::Violation;
use super::{Case, Scope};
use crate::ids::{JobIdx, NodeIdx, ResourceIdx};
use crate::job::{JobSpec, Seat};

/// What one job holds on one node: a holding, one of its roles, how often.
#[derive(Clone, Copy, Debug)]
struct Cell {
    holding: usize,
    role: u8,
    count: i64,
}

/// The touched nodes and all that is held on them.
pub(super) struct Nodes<'h, 'a> {
    holdings: &'h [Holding<'a>],
    /// Row in `touched` by node, `u32::MAX` for nodes that the plan leaves alone.
    rows: Vec<u32>,
    touched: Vec<NodeIdx>,
    cells: Vec<Vec<Cell>>,
}

impl<'h, 'a> Nodes<'h, 'a> {
    pub(super) fn of(case: &Case<'_>, holdings: &'h [Holding<'a>]) -> Self {
        let mut nodes = Self {
            holdings,
            rows: vec![u32::MAX; case.snapshot.state.nodes().len()],
            touched: Vec::new(),
            cells: Vec::new(),
        };
        for holding in holdings.iter().filter(|h| watched(case, h)) {
            for seat in holding.seats.iter() {
                nodes.touch(seat.node);
            }
        }
        nodes.cells.resize(nodes.touched.len(), Vec::new());
        for (row, holding) in holdings.iter().enumerate() {
            for seat in holding.seats.iter() {
                if let Some(cells) = nodes.rows.get(seat.node.row()).and_then(|r| nodes.cells.get_mut(*r as usize)) {
                    match cells.last_mut() {
                        Some(last) if last.holding == row && last.role == seat.role => last.count += 1,
                        _ => cells.push(Cell { holding: row, role: seat.role, count: 1 }),
                    }
                }
            }
        }
        nodes
    }

    fn touch(&mut self, node: NodeIdx) {
        let row = &mut self.rows[node.row()];
        if *row == u32::MAX {
            *row = u32::try_from(self.touched.len()).unwrap_or(u32::MAX);
            self.touched.push(node);
        }
    }

    pub(super) fn check(&self, case: &Case<'_>, found: &mut Vec<Violation>) {
        for row in 0..self.touched.len() {
            let node = self.touched[row];
            let state = case.snapshot.state.node(node);
            // Anything new on such a node is a violation of its own; what stands there is not to be counted.
            if state.closed || state.lost {
                continue;
            }
            if let Some(excess) = self.excess(case, row, &[], |h| watched(case, h)) {
                found.push(self.violation(case, node, excess));
            }
        }
    }

    fn violation(&self, case: &Case<'_>, node: NodeIdx, excess: Excess) -> Violation {
        let resource = ResourceIdx::of(excess.column);
        Violation::OverCapacity {
            node: case.node_name(node),
            resource: case.snapshot.state.resources.name(resource).into(),
            at: excess.at.0,
            need: excess.need,
            have: caps(case, node).get(excess.column).copied().unwrap_or(0),
            job: self.holdings[excess.tag].spec.key.clone(),
        }
    }

    fn excess(
        &self,
        case: &Case<'_>,
        row: usize,
        extra: &[Line<'_>],
        watch: impl Fn(&Holding<'_>) -> bool,
    ) -> Option<Excess> {
        let line = |cell: &Cell| {
            let holding = &self.holdings[cell.holding];
            let shape = holding.spec.roles[usize::from(cell.role)].shape;
            let requests = &case.snapshot.state.shapes.get(shape).requests;
            let (times, tag) = (cell.count, cell.holding);
            Line { window: holding.window, amounts: &requests.0, times, watched: watch(holding), tag }
        };
        let lines: Vec<Line<'_>> = self.cells[row].iter().map(line).chain(extra.iter().copied()).collect();
        sweep(&lines, &caps(case, self.touched[row]))
    }

    /// Whether some node would be too full for `taker` if its victim kept these seats for a further window.
    pub(super) fn needs_them_gone(&self, case: &Case<'_>, taker: JobIdx, spared: &Spared<'_>) -> bool {
        let mut seats = spared.seats.to_vec();
        seats.sort_unstable_by_key(|s| s.node);
        seats.chunk_by(|a, b| a.node == b.node).any(|seats| {
            let row = self.rows.get(seats[0].node.row()).map_or(usize::MAX, |r| *r as usize);
            let wants = |cells: &Vec<Cell>| cells.iter().any(|c| self.holdings[c.holding].job == taker);
            self.cells.get(row).is_some_and(wants) && self.too_full(case, row, taker, seats, spared)
        })
    }

    fn too_full(&self, case: &Case<'_>, row: usize, taker: JobIdx, seats: &[Seat], spared: &Spared<'_>) -> bool {
        let line = |seat: &Seat| {
            let shape = spared.spec.roles[usize::from(seat.role)].shape;
            let amounts = &case.snapshot.state.shapes.get(shape).requests.0;
            Line { window: spared.stay, amounts, times: 1, watched: false, tag: 0 }
        };
        let extra: Vec<Line<'_>> = seats.iter().map(line).collect();
        self.excess(case, row, &extra, |h| h.job == taker && h.kind != Kind::Old).is_some()
    }
}

/// What a victim gives up, as if it kept it.
pub(super) struct Spared<'a> {
    pub(super) spec: &'a JobSpec,
    pub(super) seats: &'a [Seat],
    /// From when the plan has the seats gone until the job would have ended.
    pub(super) stay: Window,
}

/// Whether an excess while this is there is the plan's fault.
pub(super) fn watched(case: &Case<'_>, holding: &Holding<'_>) -> bool {
    match holding.kind {
        Kind::Fresh => true,
        Kind::Standing => case.scope == Scope::Everything,
        Kind::Old => false,
    }
}

/// What a node has for our pods.
fn caps(case: &Case<'_>, node: NodeIdx) -> Vec<i64> {
    let state = case.snapshot.state.node(node);
    let mut caps = state.allocatable.0.clone();
    for (row, amount) in state.foreign.0.iter().enumerate() {
        match caps.get_mut(row) {
            Some(cap) => *cap -= amount,
            None => caps.push(-amount),
        }
    }
    caps
}
