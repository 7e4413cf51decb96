//! Alike pods on the nodes of one domain: which nodes, and how much free node-time that breaks.
//!
//! With c(t) the nodes of the domain that are wholly free at t by prediction, taking k(t) of them costs
//! ∫[c² − (c−k)²]dt over the job's life: the tightest domain over that time is the cheapest, and a node that would not
//! come free before the job ends costs nothing.

use super::ask::Loss;
use super::quest::Quest;
use crate::ids::NodeIdx;
use crate::room::Room;

/// From this size of domain on the part of the loss that needs sorted times is bounded instead of summed: such a domain
/// has few rivals, and a decision must not sort thousands of nodes.
const SORTED_AT_MOST: usize = 2048;

/// Steps of the careful choice of fewest nodes at most; beyond it the largest nodes are taken. About a millisecond.
const FEWEST_STEPS: usize = 1 << 17;

/// A node that holds at least one pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Spot {
    /// How long it would be wholly free during the job's life: broken nodes first.
    overlap: i64,
    promised: bool,
    health: u8,
    /// Holes: the smallest first. Whole nodes: the largest first, so that fewest are broken, except for pods that do not
    /// talk: they take the smallest first throughout.
    size_order: u32,
    node: NodeIdx,
    pods: u32,
}

/// The nodes of one domain (or one node alone) as a job of one kind sees them.
#[derive(Debug)]
pub(crate) struct Leaf {
    spots: Vec<Spot>,
    overlaps: Vec<i64>,
    sum: i64,
    life: i64,
    ordered: bool,
}

/// Nodes chosen with their pods, and what the choice costs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Chosen {
    /// Pods by node.
    pub(crate) pods: Vec<(NodeIdx, u32)>,
    /// Free node-time broken.
    pub(crate) loss: Loss,
    /// Nodes that others wait for.
    pub(crate) promised: u32,
    /// Sum of the nodes' health: 0 is best.
    pub(crate) health: u32,
}

impl Leaf {
    /// Reads nodes for pods of a kind.
    pub(crate) fn read<R: Room>(quest: &Quest<'_, R>, nodes: impl Iterator<Item = NodeIdx>, kind: usize) -> Self {
        Self::read_for(quest, nodes, kind, u32::MAX)
    }

    /// Reads nodes of which [`Leaf::choose`] will be asked for at most `most` pods, least broken first: of many nodes
    /// only the best are kept.
    pub(crate) fn read_for<R: Room>(
        quest: &Quest<'_, R>,
        nodes: impl Iterator<Item = NodeIdx>,
        kind: usize,
        most: u32,
    ) -> Self {
        let many = nodes.size_hint().0 > SORTED_AT_MOST;
        let overlaps = Vec::with_capacity(if many { 0 } else { nodes.size_hint().0 });
        let mut leaf = Self { spots: Vec::new(), overlaps, sum: 0, life: quest.life(), ordered: false };
        // Every spot holds a pod, so no more spots than pods are ever used; some more leave a choice for the last.
        let keep = (most as usize).saturating_add(64);
        let mut bar = i64::MAX;
        for node in nodes {
            let overlap = quest.overlap(node);
            if !many {
                leaf.overlaps.push(overlap);
            }
            leaf.sum += overlap;
            let pods = if overlap > bar { 0 } else { quest.node_cap(node, kind) };
            if pods > 0 {
                let size_order = if quest.is_whole(node) && !quest.flat { u32::MAX - pods } else { pods };
                let (promised, health) = (quest.room.promised(node), quest.room.health(node));
                leaf.spots.push(Spot { overlap, promised, health, size_order, node, pods });
                if leaf.spots.len() / 4 > keep {
                    let (_, worst, _) = leaf.spots.select_nth_unstable(keep);
                    bar = worst.overlap;
                    leaf.spots.truncate(keep);
                }
            }
        }
        leaf
    }

    /// Adds the nodes of another leaf that serve as well.
    pub(crate) fn join(&mut self, other: Self) {
        self.spots.extend(other.spots);
        self.overlaps.extend(other.overlaps);
        self.sum += other.sum;
    }

    /// Chooses nodes for `pods` pods, which the leaf must be able to hold: least broken first, or, with `fewest`, on as
    /// few nodes as possible.
    pub(crate) fn choose(&mut self, pods: u32, fewest: bool) -> Chosen {
        let one_each = self.spots.iter().all(|s| s.pods == 1);
        let spots = if fewest && !one_each { self.fewest_nodes(pods) } else { self.least_broken(pods) };
        let mut chosen = Chosen::default();
        for (spot, pods) in &spots {
            chosen.pods.push((spot.node, *pods));
            chosen.promised += u32::from(spot.promised);
            chosen.health += u32::from(spot.health);
        }
        let overlaps: Vec<i64> = spots.iter().map(|(s, _)| s.overlap).collect();
        chosen.loss = self.loss(overlaps);
        chosen
    }

    /// The loss of taking 1, 2, … pods in the order of [`Leaf::choose`]: (pods, loss up to there), both growing.
    pub(crate) fn curve(&mut self) -> Vec<(u32, i128)> {
        self.order(usize::MAX);
        let sums = MinSums::new(&mut self.overlaps, self.sum, self.life);
        let (mut pods, mut loss, mut taken) = (0, 0, 0i128);
        let mut curve = Vec::with_capacity(self.spots.len());
        for spot in &self.spots {
            let overlap = i128::from(spot.overlap);
            // Spots come by growing overlap: each earlier one is the smaller of every pair with this one.
            loss += 2 * sums.below(spot.overlap) - 2 * taken - overlap;
            taken += overlap;
            pods += spot.pods;
            curve.push((pods, loss));
        }
        curve
    }

    /// Brings at least the first `most` spots into order and drops those that cannot be reached.
    fn order(&mut self, most: usize) {
        if self.ordered {
            return;
        }
        let keep = most.saturating_add(64);
        if keep < self.spots.len() / 2 {
            self.spots.select_nth_unstable(keep);
            self.spots.truncate(keep);
        }
        self.spots.sort_unstable();
        self.ordered = true;
    }

    fn least_broken(&mut self, pods: u32) -> Vec<(Spot, u32)> {
        self.order(pods as usize);
        let mut left = pods;
        let mut taken = Vec::new();
        for (row, spot) in self.spots.iter().enumerate() {
            if left <= spot.pods {
                // The last pods go to the fullest node that is otherwise as good.
                let class = |s: &Spot| (s.overlap, s.promised, s.health);
                let alike = self.spots[row..].iter().take_while(|s| class(s) == class(spot));
                let last = alike.filter(|s| s.pods >= left).min_by_key(|s| (s.pods, s.node)).unwrap_or(spot);
                taken.push((*last, left));
                return taken;
            }
            taken.push((*spot, spot.pods));
            left -= spot.pods;
        }
        taken
    }

    /// The fewest nodes that hold the pods; among those, each in turn the least broken that still lets the rest fit.
    fn fewest_nodes(&mut self, pods: u32) -> Vec<(Spot, u32)> {
        self.order(usize::MAX);
        let mut rest: Vec<u32> = self.spots.iter().map(|s| s.pods).collect();
        rest.sort_unstable_by(|a, b| b.cmp(a));
        let mut slots = count_down(&rest, pods);
        if slots * self.spots.len() > FEWEST_STEPS {
            self.spots.sort_unstable_by_key(|s| (std::cmp::Reverse(s.pods), *s));
            return take_in_order(&self.spots, pods);
        }
        let mut left = pods;
        let mut taken = Vec::with_capacity(slots);
        for spot in &self.spots {
            if slots == 0 {
                break;
            }
            let among = spot.pods >= rest[slots - 1];
            let head: u32 = rest[..slots - 1].iter().sum();
            let others = if among { head + rest[slots - 1] - spot.pods } else { head };
            if spot.pods.saturating_add(others) >= left {
                taken.push((*spot, spot.pods.min(left)));
                left -= spot.pods.min(left);
                slots -= 1;
                if let Ok(at) = rest.binary_search_by(|p| spot.pods.cmp(p)) {
                    rest.remove(at);
                }
            }
        }
        taken
    }

    /// The loss of breaking nodes with these overlaps.
    pub(crate) fn loss(&mut self, mut chosen: Vec<i64>) -> Loss {
        chosen.sort_unstable();
        let partly = chosen.iter().any(|o| *o > 0 && *o < self.life);
        let sums = if partly {
            MinSums::new(&mut self.overlaps, self.sum, self.life)
        } else {
            MinSums { sorted: &[], prefix: Vec::new(), sum: self.sum, life: self.life }
        };
        let (mut loss, mut taken) = (0i128, 0i128);
        for overlap in chosen {
            loss += 2 * sums.below(overlap) - 2 * taken - i128::from(overlap);
            taken += i128::from(overlap);
        }
        Loss(loss)
    }
}

/// Takes pods off spots in their order.
fn take_in_order(spots: &[Spot], pods: u32) -> Vec<(Spot, u32)> {
    let mut left = pods;
    let mut taken = Vec::new();
    for spot in spots {
        if left == 0 {
            break;
        }
        taken.push((*spot, spot.pods.min(left)));
        left -= spot.pods.min(left);
    }
    taken
}

/// How many of the largest sizes (given in falling order) make up `pods`; all if they do not.
pub(crate) fn count_down(sizes: &[u32], pods: u32) -> usize {
    let mut left = pods;
    for (row, size) in sizes.iter().enumerate() {
        if left <= *size {
            return row + 1;
        }
        left -= size;
    }
    sizes.len()
}

/// Answers Σ over a domain's nodes of min(overlap, theirs).
struct MinSums<'l> {
    sorted: &'l [i64],
    prefix: Vec<i64>,
    sum: i64,
    life: i64,
}

impl<'l> MinSums<'l> {
    fn new(overlaps: &'l mut [i64], sum: i64, life: i64) -> Self {
        if overlaps.len() > SORTED_AT_MOST {
            return Self { sorted: &[], prefix: Vec::new(), sum, life };
        }
        overlaps.sort_unstable();
        let mut prefix = Vec::with_capacity(overlaps.len() + 1);
        prefix.push(0);
        for overlap in overlaps.iter() {
            prefix.push(prefix.last().copied().unwrap_or(0) + overlap);
        }
        Self { sorted: overlaps, prefix, sum, life }
    }

    fn below(&self, overlap: i64) -> i128 {
        if overlap == 0 || overlap >= self.life || self.sorted.is_empty() {
            // Whole nodes see everybody's overlap, nodes that do not come free nobody's; the rest is bounded.
            return if overlap == 0 { 0 } else { i128::from(self.sum) };
        }
        let at = self.sorted.partition_point(|o| *o <= overlap);
        i128::from(self.prefix[at]) + i128::from(overlap) * (self.sorted.len() - at) as i128
    }
}
