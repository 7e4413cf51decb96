//! Law 1: a gang gets at least every floor, in whole slices, with each rank once, for a window of the right length.

use super::Case;
use super::fate::{Fate, Promise};
use super::violation::Violation;
use crate::job::{JobSpec, Placement, Role, Seat};
use crate::time::Time;

pub(super) fn check(case: &Case<'_>, found: &mut Vec<Violation>) {
    for fate in case.fates.values() {
        let spec = &fate.job.spec;
        if let Some(begin) = fate.begin {
            whole(case, spec, begin.placement, Ranks::Start, found);
            right_end(spec, case.snapshot.now, begin.ends, found);
        }
        for Promise { start, end, placement, .. } in made(fate) {
            whole(case, spec, placement, Ranks::Start, found);
            right_end(spec, start, end, found);
        }
        if let Some(placement) = fate.reshaped {
            whole(case, spec, placement, Ranks::InPlace, found);
        }
    }
}

/// Every promise the plan makes for a job, those it changes again included.
pub(super) fn made<'f, 'a>(fate: &'f Fate<'a>) -> impl Iterator<Item = Promise<'a>> + 'f {
    let last = fate.promise.filter(|p| p.fresh && fate.reserved);
    fate.changes.iter().filter_map(|c| c.after).chain(last)
}

/// Whether gaps between ranks are allowed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ranks {
    /// Indexes count from 0 without a gap.
    Start,
    /// A gang that runs may have gaps.
    InPlace,
}

fn right_end(spec: &JobSpec, start: Time, is: Time, found: &mut Vec<Violation>) {
    let should = if spec.max_runtime.is_forever() { Time::NEVER } else { start + spec.max_runtime + spec.grace };
    if is != should {
        found.push(Violation::WrongEnd { job: spec.key.clone(), is, should });
    }
}

fn whole(case: &Case<'_>, spec: &JobSpec, placement: &Placement, ranks: Ranks, found: &mut Vec<Violation>) {
    let job = || spec.key.clone();
    let nodes = case.snapshot.state.nodes().len();
    let bad = |s: &&Seat| {
        s.node.row() >= nodes || spec.roles.get(usize::from(s.role)).is_none_or(|role| s.index >= role.replicas)
    };
    if let Some(Seat { role, index, .. }) = placement.seats.iter().find(bad).copied() {
        found.push(Violation::BadSeat { job: job(), role, index });
        return;
    }
    for pair in placement.seats.windows(2) {
        if (pair[0].role, pair[0].index) >= (pair[1].role, pair[1].index) {
            let Seat { role, index, .. } = pair[1];
            found.push(Violation::SeatTwice { job: job(), role, index });
            return;
        }
    }
    for (row, role) in spec.roles.iter().enumerate() {
        let indexes: Vec<u32> =
            placement.seats.iter().filter(|s| usize::from(s.role) == row).map(|s| s.index).collect();
        role_is_whole(spec, role, &indexes, ranks, found);
    }
}

fn role_is_whole(spec: &JobSpec, role: &Role, indexes: &[u32], ranks: Ranks, found: &mut Vec<Violation>) {
    let job = || spec.key.clone();
    let seats = u32::try_from(indexes.len()).unwrap_or(u32::MAX);
    if seats < role.floor {
        found.push(Violation::BelowFloor { job: job(), role: role.name.clone(), floor: role.floor, seats });
    }
    if let Some(slice) = &role.slice {
        let size = slice.size.max(1);
        for chunk in indexes.chunk_by(|a, b| a / size == b / size) {
            if chunk.len() != size as usize {
                found.push(Violation::BrokenSlice { job: job(), role: role.name.clone(), slice: chunk[0] / size });
                break;
            }
        }
    }
    let gap = (0u32..).zip(indexes).find(|(should, is)| should != *is);
    if let Some((index, _)) = gap.filter(|_| ranks == Ranks::Start) {
        found.push(Violation::RankGap { job: job(), role: role.name.clone(), index });
    }
}
