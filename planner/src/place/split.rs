//! Divides alike pods over the fewest parts of one domain: all but one are taken whole, one in part, so that the summed
//! loss is least.

use super::leaf::{Leaf, count_down};
use super::quest::{Part, Quest, clip, own_nodes};
use crate::room::Room;

/// Steps of the exact division at most; beyond it parts are taken one by one. About a millisecond.
const TABLE_STEPS: u64 = 1 << 20;

/// A part with the loss of taking 1, 2, … pods of it.
#[derive(Debug)]
pub(crate) struct Item {
    part: Part,
    /// Pods that may be taken.
    cap: u32,
    /// Pods free, those that make no whole slice included.
    free: u32,
    /// (pods, loss) at the steps where the loss grows.
    curve: Vec<(u32, i128)>,
}

/// Loss first; then squared free pods broken, the same rule one level down.
type Cost = (i128, u64);

impl Item {
    /// Reads a part; none if it holds nothing.
    pub(crate) fn read<R: Room>(quest: &Quest<'_, R>, part: Part, kind: usize) -> Option<Self> {
        let cap = clip(quest.part_cap(part, kind));
        if cap == 0 {
            return None;
        }
        let mut leaf = match part {
            Part::Node(node) => Leaf::read(quest, std::iter::once(node), kind),
            Part::Domain(domain) if quest.domain(domain).children.is_empty() => {
                Leaf::read(quest, own_nodes(quest.domain(domain)), kind)
            }
            Part::Domain(domain) => Leaf::read(quest, quest.domain(domain).node_range(), kind),
        };
        Some(Self { part, cap, free: clip(quest.part_free(part, kind)), curve: leaf.curve() })
    }

    fn cost(&self, pods: u32) -> Cost {
        let at = self.curve.partition_point(|(upto, _)| *upto < pods);
        let loss = self.curve.get(at).or(self.curve.last()).map_or(0, |(_, loss)| *loss);
        let (free, left) = (u64::from(self.free), u64::from(self.free.saturating_sub(pods)));
        (loss, free * free - left * left)
    }
}

fn sum(a: Cost, b: Cost) -> Cost {
    (a.0 + b.0, a.1 + b.1)
}

/// Pods for each part in use; none if they do not fit. `pods` is in whole slices where the parts are.
pub(crate) fn split<R: Room>(quest: &Quest<'_, R>, kind: usize, items: &[Item], pods: u32) -> Option<Vec<(Part, u32)>> {
    let mut caps: Vec<u32> = items.iter().map(|i| i.cap).collect();
    caps.sort_unstable_by(|a, b| b.cmp(a));
    let count = count_down(&caps, pods);
    if caps.iter().take(count).map(|c| u64::from(*c)).sum::<u64>() < u64::from(pods) {
        return None;
    }
    let step = cut_step(quest, kind, items);
    let units = u64::from(pods / step) + 1;
    let largest = u64::from(caps.first().copied().unwrap_or(0) / step);
    let cells = items.len() as u64 * count as u64 * units;
    let exact = cells.saturating_mul(largest + 1) <= TABLE_STEPS;
    let taken = if exact { by_table(items, pods, count, step) } else { one_by_one(items, pods, count) };
    Some(taken.into_iter().map(|(row, pods)| (items[row].part, pods)).collect())
}

/// The slice size where every part holds whole slices only, else 1.
fn cut_step<R: Room>(quest: &Quest<'_, R>, kind: usize, items: &[Item]) -> u32 {
    let slice = quest.kinds[kind].slice;
    let whole = slice > 1 && items.iter().all(|i| i.cap % slice == 0 && part_cuts(quest, i.part, kind));
    if whole { slice } else { 1 }
}

fn part_cuts<R: Room>(quest: &Quest<'_, R>, part: Part, kind: usize) -> bool {
    match part {
        Part::Node(node) => quest.cut_by_node(node, kind),
        Part::Domain(domain) => quest.cells[kind].is_some_and(|cell| cell >= quest.domain(domain).depth),
    }
}

/// Exact: over the parts in order, by parts used, steps given and whether one was used in part.
fn by_table(items: &[Item], pods: u32, count: usize, step: u32) -> Vec<(usize, u32)> {
    let units = (pods / step) as usize;
    let width = (units + 1) * (count + 1) * 2;
    let at = |used: usize, given: usize, partly: bool| (used * (units + 1) + given) * 2 + usize::from(partly);
    let mut best: Vec<Option<Cost>> = vec![None; width];
    best[at(0, 0, false)] = Some((0, 0));
    let mut trail: Vec<Vec<u32>> = Vec::with_capacity(items.len());
    for item in items {
        let cap = (item.cap / step) as usize;
        let mut gave = vec![0u32; width];
        // Parts used fall, so that each item is used once.
        for used in (0..count).rev() {
            for given in (0..units).rev() {
                for partly in [true, false] {
                    let Some(here) = best[at(used, given, partly)] else { continue };
                    let most = cap.min(units - given);
                    let least = if partly { cap } else { 1 };
                    for take in least..=most {
                        let then = at(used + 1, given + take, partly || take < cap);
                        let taken = u32::try_from(take).unwrap_or(u32::MAX);
                        let cost = sum(here, item.cost(taken * step));
                        if best[then].is_none_or(|b| cost < b) {
                            best[then] = Some(cost);
                            gave[then] = taken;
                        }
                    }
                }
            }
        }
        trail.push(gave);
    }
    let goals = [at(count, units, false), at(count, units, true)];
    let goal = goals.into_iter().filter(|g| best[*g].is_some()).min_by_key(|g| best[*g]);
    goal.map_or_else(Vec::new, |goal| walk_back(items, &trail, goal, units, step))
}

/// Reads the division off the trail: what each item gave on the way to the goal, last item first.
fn walk_back(items: &[Item], trail: &[Vec<u32>], goal: usize, units: usize, step: u32) -> Vec<(usize, u32)> {
    let mut taken = Vec::new();
    let mut here = goal;
    for row in (0..items.len()).rev() {
        let gave = trail[row][here];
        if gave == 0 {
            continue;
        }
        taken.push((row, gave * step));
        let (slot, partly) = (here / 2, here % 2 == 1);
        let was_whole = gave * step >= items[row].cap;
        let slot = slot - (units + 1) - gave as usize;
        here = slot * 2 + usize::from(partly && was_whole);
    }
    taken.reverse();
    taken
}

/// Quick: each in turn the part with the least loss a pod that still lets the rest fit; the last one the cheapest that
/// holds what is left.
fn one_by_one(items: &[Item], pods: u32, count: usize) -> Vec<(usize, u32)> {
    let mut by_size: Vec<usize> = (0..items.len()).collect();
    by_size.sort_by_key(|row| (std::cmp::Reverse(items[*row].cap), *row));
    // Only the largest parts can matter much when nearly all the room of `count` parts is needed.
    by_size.truncate((count * 4).max(256));
    let mut order = by_size.clone();
    order.sort_by(|a, b| {
        let rate = |row: usize, times: u32| items[row].cost(items[row].cap).0 * i128::from(times);
        rate(*a, items[*b].cap).cmp(&rate(*b, items[*a].cap)).then(a.cmp(b))
    });
    let mut used = vec![false; items.len()];
    let mut taken = Vec::with_capacity(count);
    let mut left = pods;
    for row in order {
        if taken.len() + 1 >= count {
            break;
        }
        let slots = count - taken.len() - 1;
        let others = by_size.iter().filter(|r| !used[**r] && **r != row).take(slots);
        let rest: u64 = others.map(|r| u64::from(items[*r].cap)).sum();
        if items[row].cap < left && rest + u64::from(items[row].cap) >= u64::from(left) {
            used[row] = true;
            left -= items[row].cap;
            taken.push((row, items[row].cap));
        }
    }
    let last =
        (0..items.len()).filter(|r| !used[*r] && items[*r].cap >= left).min_by_key(|r| (items[*r].cost(left), *r));
    taken.extend(last.map(|row| (row, left)));
    taken.sort_unstable();
    taken
}
