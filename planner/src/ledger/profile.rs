//! One node's free room as a step function of time.

use super::{Hold, HoldKind, Ledger};
use crate::ids::NodeIdx;
use crate::resources::Amounts;
use crate::state::Snapshot;
use crate::time::{Span, Time};

/// Free amounts of a node from now on: constant from each point to the next.
#[derive(Debug)]
pub(crate) struct Profile {
    /// When it was built.
    built: Time,
    /// First moment at which time alone would change it (an overdue hold was assumed to end then).
    holds_until: Time,
    stride: usize,
    /// Times of the steps, ascending; the first is not later than now.
    points: Vec<Time>,
    /// Free amounts from each point on, `stride` a point.
    free: Vec<i64>,
    /// Points at which some amount is lower than just before.
    drops: Vec<u32>,
    /// When the first reservation (or window of the admin) begins.
    first_booking: Time,
}

impl Profile {
    pub(super) fn build(snapshot: Snapshot<'_>, cycle: Span, node: NodeIdx, stride: usize, holds: &[Hold]) -> Self {
        let (state, now) = (snapshot.state, snapshot.now);
        let node_state = state.node(node);
        let mut base = vec![0; stride];
        if !node_state.closed && !node_state.lost {
            add(&mut base, &node_state.allocatable, 1);
            add(&mut base, &node_state.foreign, -1);
        }
        // (time, hold, +1 room comes free / -1 room is taken)
        let mut changes: Vec<(Time, usize, i64)> = Vec::with_capacity(holds.len() + 4);
        let mut holds_until = Time::NEVER;
        let mut first_booking = node_state.unavailable.iter().map(|w| w.0).min().unwrap_or(Time::NEVER);
        for (row, hold) in holds.iter().enumerate() {
            let to = Ledger::assumed_end(hold.to, now, cycle);
            if hold.kind == HoldKind::Reserved {
                first_booking = first_booking.min(hold.from);
            }
            if hold.to <= now {
                holds_until = holds_until.min(to);
            }
            if hold.from <= now {
                add(&mut base, &state.shapes.get(hold.shape).requests, -i64::from(hold.count));
            } else {
                changes.push((hold.from, row, -1));
            }
            if !to.is_never() {
                changes.push((to, row, 1));
            }
        }
        changes.sort_unstable_by_key(|&(time, row, sign)| (time, -sign, row));
        let mut profile = Self {
            built: now,
            holds_until,
            stride,
            points: vec![now],
            free: base.clone(),
            drops: Vec::new(),
            first_booking,
        };
        let open = !node_state.closed && !node_state.lost;
        for (time, row, sign) in changes {
            let hold = &holds[row];
            if open {
                add(&mut base, &state.shapes.get(hold.shape).requests, sign * i64::from(hold.count));
            }
            profile.push(time, &base);
        }
        if !open {
            profile.free.iter_mut().for_each(|cell| *cell = 0);
        }
        for &(from, to) in &node_state.unavailable {
            profile.close_between(from, to);
        }
        profile.find_drops();
        profile
    }

    /// Whether the passing of time since it was built changes nothing.
    pub(super) fn still_true_at(&self, now: Time) -> bool {
        now == self.built || (now > self.built && now < self.holds_until && self.points.get(1).is_none_or(|p| *p > now))
    }

    /// Follows the change of one hold; false if it must be built anew instead.
    pub(super) fn change(
        &mut self,
        snapshot: Snapshot<'_>,
        cycle: Span,
        node: NodeIdx,
        hold: &Hold,
        sign: i64,
    ) -> bool {
        let node_state = snapshot.state.node(node);
        if node_state.closed || node_state.lost || !node_state.unavailable.is_empty() || self.built != snapshot.now {
            return false;
        }
        if hold.kind == HoldKind::Reserved {
            if sign > 0 {
                // Whether another booking is the first now is not known here.
                return false;
            }
            self.first_booking = self.first_booking.min(hold.from);
        }
        let to = Ledger::assumed_end(hold.to, snapshot.now, cycle);
        if hold.to <= snapshot.now {
            self.holds_until = self.holds_until.min(to);
        }
        self.split(hold.from);
        self.split(to);
        let requests = &snapshot.state.shapes.get(hold.shape).requests;
        let amounts = sign * i64::from(hold.count);
        let (first, last) = (self.points.partition_point(|p| *p < hold.from), self.points.partition_point(|p| *p < to));
        let first = if hold.from <= self.points[0] { 0 } else { first };
        for row in first..last {
            let start = row * self.stride;
            add(&mut self.free[start..start + self.stride], requests, amounts);
        }
        self.drops.clear();
        self.find_drops();
        true
    }

    /// When the first reservation or announced window begins.
    pub(crate) fn first_booking(&self) -> Time {
        self.first_booking
    }

    /// How many pods of a shape can start at each moment from `from` on and stay for `length`: steps (time, pods),
    /// ascending, the first at `from`.
    pub(crate) fn steps(&self, requests: &Amounts, length: Span, from: Time) -> Vec<(Time, u32)> {
        let pods: Vec<u32> = (0..self.points.len()).map(|row| requests.times_in(self.row(row))).collect();
        let mut starts: Vec<Time> = vec![from];
        starts.extend(self.points.iter().copied().filter(|p| *p > from));
        if !length.is_forever() {
            // Just after (drop - length) the window reaches into the drop.
            let late = self.drops().map(|d| Time(d.0.saturating_sub(length.0).saturating_add(1)));
            starts.extend(late.filter(|t| *t > from));
        }
        starts.sort_unstable();
        starts.dedup();
        let mut steps: Vec<(Time, u32)> = Vec::with_capacity(starts.len());
        // Rows whose pods ascend: the front is the least of the window.
        let mut window: std::collections::VecDeque<usize> = std::collections::VecDeque::new();
        let mut next = self.row_at(from);
        for start in starts {
            let (first, end) = (self.row_at(start), start + length);
            while next < self.points.len() && (self.points[next] < end || next <= first) {
                while window.back().is_some_and(|&row| pods[row] >= pods[next]) {
                    window.pop_back();
                }
                window.push_back(next);
                next += 1;
            }
            while window.front().is_some_and(|&row| row < first) {
                window.pop_front();
            }
            let least = window.front().map_or(0, |&row| pods[row]);
            if steps.last().is_none_or(|s| s.1 != least) {
                steps.push((start, least));
            }
        }
        steps
    }

    /// The first moment from `from` on at which one pod of a shape can start and stay for `length`.
    pub(crate) fn first_slot(&self, requests: &Amounts, length: Span, from: Time) -> Option<Time> {
        let mut row = self.row_at(from);
        let mut start = from;
        loop {
            while row < self.points.len() && requests.times_in(self.row(row)) == 0 {
                row += 1;
                start = *self.points.get(row)?;
            }
            let mut ahead = row + 1;
            while ahead < self.points.len() && self.points[ahead] < start + length {
                if requests.times_in(self.row(ahead)) == 0 {
                    break;
                }
                ahead += 1;
            }
            if ahead >= self.points.len() || self.points[ahead] >= start + length {
                return Some(start);
            }
            row = ahead;
            start = self.points[ahead];
        }
    }

    fn push(&mut self, time: Time, free: &[i64]) {
        if self.points.last() == Some(&time) {
            let start = self.free.len() - self.stride;
            self.free[start..].copy_from_slice(free);
            return;
        }
        self.points.push(time);
        self.free.extend_from_slice(free);
    }

    /// Nothing is free in `[from, to)`.
    fn close_between(&mut self, from: Time, to: Time) {
        if to <= self.points[0] {
            return;
        }
        self.split(from);
        self.split(to);
        for row in 0..self.points.len() {
            if self.points[row] >= from && self.points[row] < to {
                let start = row * self.stride;
                self.free[start..start + self.stride].iter_mut().for_each(|cell| *cell = 0);
            }
        }
    }

    fn split(&mut self, at: Time) {
        if at <= self.points[0] || at.is_never() {
            return;
        }
        if let Err(row) = self.points.binary_search(&at) {
            self.points.insert(row, at);
            let copy: Vec<i64> = self.row(row - 1).to_vec();
            let start = row * self.stride;
            self.free.splice(start..start, copy);
        }
    }

    fn find_drops(&mut self) {
        for row in 1..self.points.len() {
            if self.row(row).iter().zip(self.row(row - 1)).any(|(a, b)| a < b) {
                self.drops.push(u32::try_from(row).expect("a node has less than 2^32 holds"));
            }
        }
    }

    fn row(&self, row: usize) -> &[i64] {
        &self.free[row * self.stride..(row + 1) * self.stride]
    }

    fn row_at(&self, time: Time) -> usize {
        self.points.partition_point(|p| *p <= time).max(1) - 1
    }

    /// Times at which room is taken away.
    pub(crate) fn drops(&self) -> impl Iterator<Item = Time> + '_ {
        self.drops.iter().map(|&row| self.points[row as usize])
    }

    /// The least free amounts during `[from, to)`.
    pub(crate) fn least(&self, from: Time, to: Time) -> Vec<i64> {
        let first = self.row_at(from);
        let mut least = self.row(first).to_vec();
        for &drop in &self.drops {
            let row = drop as usize;
            if row > first && self.points[row] < to {
                for (cell, free) in least.iter_mut().zip(self.row(row)) {
                    *cell = (*cell).min(*free);
                }
            }
        }
        least
    }
}

fn add(cells: &mut [i64], amounts: &Amounts, times: i64) {
    for (resource, amount) in amounts.iter() {
        if let Some(cell) = cells.get_mut(resource.row()) {
            *cell += amount * times;
        }
    }
}
