//! One scheduling pass of a private cluster, as the queue's backfill depth says: strict, EASY or conservative.
//!
//! A pass keeps nothing: reservations are laid out anew from what runs and waits. So a pass in which no waiting job fits
//! the free room starts nobody, and is skipped.

use super::job::Rank;
use super::queue::PrivateQueue;
use crate::queue::Backfill;
use crate::time::{Span, Time};
use std::ops::Bound;

fn fits(need: &[i64], free: &[i64]) -> bool {
    need.iter().zip(free).all(|(n, f)| n <= f || *n == 0)
}

fn add(to: &mut [i64], need: &[i64], times: i64) {
    to.iter_mut().zip(need).for_each(|(t, n)| *t += n * times);
}

impl PrivateQueue {
    /// Starts what the rules let start at `now`.
    pub(super) fn pass(&mut self, now: Time, started: &mut Vec<Rank>) {
        self.stirred = false;
        if !self.rules.open || !self.waiting.keys().any(|need| fits(need, &self.free)) {
            return;
        }
        self.take_turns();
        match self.rules.backfill {
            Backfill::Depth(depth) if depth > 1 => self.conservative(depth, now, started),
            other => self.easy(other != Backfill::None, now, started),
        }
    }

    /// The best waiting job after a place, of those whose need may run at all, that may run for its span.
    fn next_after(
        &self,
        after: Option<&Rank>,
        may: impl Fn(&[i64]) -> bool,
        may_for: impl Fn(&[i64], Span) -> bool,
    ) -> Option<(Rank, Vec<i64>, Span)> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let firsts = self.waiting.iter().filter(|(need, _)| may(need)).filter_map(|(need, class)| {
            let (rank, span) = class.range((from, Bound::Unbounded)).find(|(_, span)| may_for(need, **span))?;
            Some((rank, need, *span))
        });
        firsts.min_by(|a, b| a.0.cmp(b.0)).map(|(rank, need, span)| (rank.clone(), need.clone(), span))
    }

    fn head(&self, after: Option<&Rank>) -> Option<(Rank, Vec<i64>, Span)> {
        self.next_after(after, |_| true, |_, _| true)
    }

    fn start(&mut self, rank: &Rank, span: Span, now: Time, started: &mut Vec<Rank>) {
        self.run(&rank.5, now, now + span);
        started.push(rank.clone());
    }

    fn easy(&mut self, backfill: bool, now: Time, started: &mut Vec<Rank>) {
        let head = loop {
            let Some((rank, need, span)) = self.head(None) else { return };
            if !fits(&need, &self.free) {
                break (rank, need);
            }
            self.start(&rank, span, now, started);
        };
        if !backfill {
            return;
        }
        let (shadow, mut spare) = self.shadow(&head.1);
        let mut at = head.0;
        let ends = |span: Span| now + span <= shadow && !(now + span).is_never();
        while let Some((rank, need, span)) =
            self.next_after(Some(&at), |need| fits(need, &self.free), |need, span| ends(span) || fits(need, &spare))
        {
            if !ends(span) {
                add(&mut spare, &need, -1);
            }
            self.start(&rank, span, now, started);
            at = rank;
        }
    }

    /// When the head fits, by what ends until then (all that ends at that very moment included), and what it leaves.
    /// Without a date nothing is spare: then only jobs that end may pass.
    fn shadow(&self, head: &[i64]) -> (Time, Vec<i64>) {
        let mut free = self.free.clone();
        let mut shadow = Time::NEVER;
        for (end, id) in &self.ends {
            if end.is_never() || *end > shadow {
                break;
            }
            if let Some(member) = self.members.get(id) {
                add(&mut free, &member.need, 1);
            }
            if fits(head, &free) {
                shadow = *end;
            }
        }
        if shadow.is_never() {
            return (shadow, vec![-1; free.len()]);
        }
        add(&mut free, head, -1);
        (shadow, free)
    }

    /// The first `depth` jobs that go on waiting get their earliest slot each; others start if that delays none of these.
    fn conservative(&mut self, depth: u32, now: Time, started: &mut Vec<Rank>) {
        let mut profile = self.profile(now);
        let mut at: Option<Rank> = None;
        let mut seats = depth;
        while seats > 0 {
            let Some((rank, need, span)) = self.head(at.as_ref()) else { return };
            let slot = profile.earliest(&need, span);
            if let Some(slot) = slot {
                profile.take(&need, slot, slot + span);
            }
            if slot == Some(now) {
                self.start(&rank, span, now, started);
            } else {
                seats -= 1;
            }
            at = Some(rank);
        }
        while let Some((rank, need, span)) = self.next_after(
            at.as_ref(),
            |need| fits(need, &self.free) && profile.holds(need, now, now),
            |need, span| profile.holds(need, now, now + span),
        ) {
            profile.take(&need, now, now + span);
            self.start(&rank, span, now, started);
            at = Some(rank);
        }
    }

    fn profile(&self, now: Time) -> Profile {
        let mut steps = vec![(now, self.free.clone())];
        for (end, id) in self.ends.iter().filter(|(end, _)| !end.is_never()) {
            let mut free = steps.last().map_or_else(Vec::new, |s| s.1.clone());
            if let Some(member) = self.members.get(id) {
                add(&mut free, &member.need, 1);
            }
            match steps.last_mut() {
                Some(last) if last.0 >= *end => last.1 = free,
                _ => steps.push((*end, free)),
            }
        }
        Profile { steps }
    }
}

/// Free counts over time: each step holds from its time to the next one's.
struct Profile {
    steps: Vec<(Time, Vec<i64>)>,
}

impl Profile {
    /// The earliest step from which the need is free for the whole span.
    fn earliest(&self, need: &[i64], span: Span) -> Option<Time> {
        let mut from = 0;
        loop {
            let start = self.steps.get(from)?.0;
            let end = start + span;
            let blocked = |s: &(Time, Vec<i64>)| !fits(need, &s.1);
            match self.steps[from..].iter().take_while(|s| s.0 < end).position(blocked) {
                Some(step) => from += step + 1,
                None => return Some(start),
            }
        }
    }

    /// Whether the need is free from one time until another, the first moment included.
    fn holds(&self, need: &[i64], from: Time, to: Time) -> bool {
        let first = self.steps.partition_point(|s| s.0 <= from).saturating_sub(1);
        self.steps[first..].iter().take_while(|s| s.0 <= from || s.0 < to).all(|s| fits(need, &s.1))
    }

    fn take(&mut self, need: &[i64], from: Time, to: Time) {
        for at in [from, to] {
            let next = self.steps.partition_point(|s| s.0 < at);
            let there = self.steps.get(next).is_some_and(|s| s.0 == at);
            if next > 0 && !there && !at.is_never() {
                let copy = self.steps[next - 1].1.clone();
                self.steps.insert(next, (at, copy));
            }
        }
        for step in self.steps.iter_mut().filter(|s| s.0 >= from && s.0 < to) {
            add(&mut step.1, need, -1);
        }
    }
}
