//! Points of the plan's time, fine enough to tell "there now" from "from now on", and what happens between them.

use crate::time::Time;

/// A point in time: at one instant, what is physically there comes before what is promised from then on. Room that is
/// let go "now" can so be promised from now on, but not be used by a start of the very same plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Moment(pub(super) Time, bool);

impl Moment {
    /// The instant of the plan, as it is found.
    pub(super) fn found(now: Time) -> Self {
        Self(now, false)
    }

    /// A later instant, or the present one after the plan.
    pub(super) fn at(time: Time) -> Self {
        Self(time, true)
    }
}

/// From one moment until another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Window {
    /// First moment.
    pub(super) from: Moment,
    /// First moment after.
    pub(super) until: Moment,
}

/// One line of a [`sweep`]: something that takes amounts during a window.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line<'l> {
    /// When.
    pub(super) window: Window,
    /// How much of each of the columns.
    pub(super) amounts: &'l [i64],
    /// How many times.
    pub(super) times: i64,
    /// Whether an excess while it is there is its fault.
    pub(super) watched: bool,
    /// Row to report.
    pub(super) tag: usize,
}

/// An excess: at some moment a column holds more than its cap while a watched line takes part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Excess {
    /// When it begins.
    pub(super) at: Moment,
    /// The column.
    pub(super) column: usize,
    /// Held in all.
    pub(super) need: i64,
    /// Tag of a watched line that is there.
    pub(super) tag: usize,
}

/// Adds the lines up over time and finds the first excess over `caps` (columns beyond it are capped at zero).
pub(super) fn sweep(lines: &[Line<'_>], caps: &[i64]) -> Option<Excess> {
    let mut events: Vec<(Moment, bool, usize)> = Vec::with_capacity(lines.len() * 2);
    for (row, line) in lines.iter().enumerate() {
        if line.window.from < line.window.until {
            events.push((line.window.from, true, row));
            events.push((line.window.until, false, row));
        }
    }
    events.sort_unstable();
    let columns = lines.iter().map(|l| l.amounts.len()).max().unwrap_or(0);
    let (mut held, mut watched) = (vec![0i64; columns], vec![0i64; columns]);
    let mut next = 0;
    while let Some(&(at, ..)) = events.get(next) {
        let mut grown = false;
        while let Some(&(moment, begins, row)) = events.get(next).filter(|e| e.0 == at) {
            debug_assert_eq!(moment, at);
            let line = &lines[row];
            let sign = if begins { line.times } else { -line.times };
            for (column, amount) in line.amounts.iter().enumerate() {
                held[column] += amount * sign;
                watched[column] += if line.watched { amount * sign } else { 0 };
            }
            grown |= begins;
            next += 1;
        }
        let over = |c: &usize| watched[*c] > 0 && held[*c] > caps.get(*c).copied().unwrap_or(0);
        if let Some(column) = (0..columns).find(over).filter(|_| grown) {
            let there = |l: &Line<'_>| {
                l.watched
                    && l.window.from <= at
                    && at < l.window.until
                    && l.amounts.get(column).is_some_and(|amount| *amount > 0)
            };
            let tag = lines.iter().filter(|l| there(l)).map(|l| l.tag).next().unwrap_or(0);
            return Some(Excess { at, column, need: held[column], tag });
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(from: i64, until: i64, amount: &'static [i64], watched: bool) -> Line<'static> {
        let window = Window { from: Moment::at(Time(from)), until: Moment::at(Time(until)) };
        Line { window, amounts: amount, times: 1, watched, tag: from as usize }
    }

    #[test]
    fn an_excess_is_found_at_its_first_moment_and_only_while_a_watched_line_is_there() {
        let old = [line(0, 10, &[6], false), line(0, 10, &[6], false)];
        assert_eq!(sweep(&old, &[8]), None);
        let fresh = [line(0, 10, &[6], false), line(5, 20, &[3], true)];
        let excess = sweep(&fresh, &[8]).unwrap();
        assert_eq!((excess.at.0, excess.need, excess.tag), (Time(5), 9, 5));
        assert_eq!(sweep(&[line(0, 5, &[6], false), line(5, 20, &[3], true)], &[8]), None);
    }

    #[test]
    fn room_let_go_now_may_be_promised_from_now_but_not_used_by_a_start_now() {
        let now = Time(7);
        let leaver = Window { from: Moment::found(now), until: Moment::at(now) };
        let going = Line { window: leaver, amounts: &[8], times: 1, watched: false, tag: 0 };
        let start = Window { from: Moment::found(now), until: Moment::at(Time(9)) };
        let promise = Window { from: Moment::at(now), until: Moment::at(Time(9)) };
        let taker = |window| Line { window, amounts: &[8], times: 1, watched: true, tag: 1 };
        assert!(sweep(&[going, taker(start)], &[8]).is_some());
        assert!(sweep(&[going, taker(promise)], &[8]).is_none());
    }
}
