//! Gangs whose members do not talk: topology is ignored, holes are filled, pools may be spanned.

use super::ask::{Ask, Kind};
use super::descend::{Choice, Worth};
use super::leaf::Leaf;
use super::mixed::{exact, greedy};
use super::pack::Greedy;
use super::quest::Quest;
use super::search::{Best, best_of_all};
use super::table::{OutOfWork, divide_pools};
use crate::ids::{DomainIdx, PoolIdx};
use crate::room::Room;

/// The best place over all pools together.
pub(crate) fn best_independent<R: Room>(room: &R, ask: &Ask<'_>, kinds: &[Kind]) -> Best {
    let topology = room.topology();
    let roots: Vec<(DomainIdx, PoolIdx)> = match ask.within {
        Some(domain) => vec![(domain, topology.domain(domain).pool)],
        None => (0..topology.pools().len())
            .map(PoolIdx::of)
            .map(|pool| (topology.pool(pool).root, pool))
            .filter(|(root, _)| topology.domain(*root).node_count() > 0)
            .collect(),
    };
    let quests: Vec<(DomainIdx, Quest<'_, R>)> =
        roots.into_iter().filter_map(|(root, pool)| Some((root, Quest::new(room, ask, kinds, pool)?))).collect();
    match kinds {
        [kind] if kind.within.is_none() => holes(&quests, kind),
        _ => {
            let whole = best_of_all(room, ask, kinds);
            if whole.choice.is_some() { whole } else { spanning(&quests) }
        }
    }
}

/// Alike pods without slices: the least broken nodes of all.
fn holes<R: Room>(quests: &[(DomainIdx, Quest<'_, R>)], kind: &Kind) -> Best {
    let mut best = Best::default();
    let room: u64 = quests.iter().map(|(root, q)| q.room.pods_in(*root, kind.shape)).sum();
    if room < u64::from(kind.pods) {
        return best;
    }
    let mut all: Option<Leaf> = None;
    for (root, quest) in quests {
        let leaf = Leaf::read_for(quest, quest.domain(*root).node_range(), 0, kind.pods);
        all = Some(match all {
            Some(mut sum) => {
                sum.join(leaf);
                sum
            }
            None => leaf,
        });
    }
    let chosen = all.map(|mut leaf| leaf.choose(kind.pods, false));
    best.offer(1, chosen.map(|c| Choice::of(c, 0, false)));
    best
}

/// Several kinds or slices, over several pools.
fn spanning<R: Room>(quests: &[(DomainIdx, Quest<'_, R>)]) -> Best {
    let mut best = Best::default();
    let Some((_, first)) = quests.first() else { return best };
    let want: Vec<u32> = first.kinds.iter().map(|k| k.pods).collect();
    let mut left = want.clone();
    let mut loads = Vec::new();
    for (root, quest) in quests {
        let mut greedy = Greedy::new(quest);
        for (kind, left) in left.iter_mut().enumerate() {
            *left -= greedy.fill(*root, kind, *left);
        }
        loads.extend(greedy.loads);
    }
    if left.iter().all(|pods| *pods == 0) {
        best.offer(1, Some(Choice { loads, worth: Worth::default() }));
        return best;
    }
    let divided = divide_pools(quests, &want).and_then(|shares| {
        let Some(shares) = shares else { return Ok(None) };
        let mut loads = Vec::new();
        for (row, counts) in shares {
            let (root, quest) = &quests[row];
            let packed = match greedy(quest, *root, &counts) {
                Some(loads) => Some(loads),
                None => exact(quest, *root, &counts)?,
            };
            let Some(packed) = packed else { return Ok(None) };
            loads.extend(packed);
        }
        Ok(Some(loads))
    });
    match divided {
        Ok(Some(loads)) => best.offer(1, Some(Choice { loads, worth: Worth::default() })),
        Ok(None) => {}
        Err(OutOfWork) => best.stopped = true,
    }
    best
}
