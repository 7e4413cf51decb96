//! Exact counts: for each domain all the ways it can hold the gang's pods, each with the fewest domains it takes.
//!
//! All kinds but the most numerous one (the *major* kind) are counted exactly in a mixed-radix key; for each key a
//! frontier keeps, for growing cost, the most major pods. Costs are sums of digits, one per level from the wanted one
//! outwards, so that comparing numbers compares lexicographically; sums keep that order, which makes merging parts of a
//! domain exact. Every merge counts as work, and work is limited.

use super::pack::Rest;
use super::quest::{Part, Quest, whole};
use crate::ids::{DomainIdx, NodeIdx};
use crate::room::Room;
use crate::topology::Depth;

/// Digits of a cost: 16 bits each (a gang has at most 20,000 pods), the wanted level first. Levels more than seven above
/// the wanted one are not counted.
const DIGITS: u8 = 8;

/// Domains in use by level, packed so that fewer of the wanted level beats everything else.
pub(crate) type Cost = u128;

/// Domains of the wanted level in a cost.
pub(crate) fn wanted_domains(cost: Cost) -> u32 {
    u32::try_from(cost >> (16 * (DIGITS - 1))).unwrap_or(u32::MAX).max(1)
}

/// The cost of one domain of a depth: a digit for each level from the wanted one outwards, none for narrower ones.
pub(crate) fn unit(wanted: Depth, depth: Depth) -> Cost {
    let out = wanted.0.wrapping_sub(depth.0);
    if out < DIGITS { 1 << (16 * (DIGITS - 1 - out)) } else { 0 }
}

/// The work limit was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OutOfWork;

/// For one key, growing costs with growing numbers of major pods.
type Frontier = Vec<(Cost, u32)>;

/// The non-empty keys in growing order.
type Table = Vec<(usize, Frontier)>;

/// Pods by kind.
pub(crate) type Counts = Vec<u32>;

/// The tables of one question.
#[derive(Debug)]
pub(crate) struct Tables<'q, 'a, R> {
    quest: &'q Quest<'a, R>,
    /// Kinds counted in the key.
    minors: Vec<usize>,
    /// The most numerous kind.
    pub(crate) major: usize,
    want: Counts,
    /// Whether domains are counted, or only whether the pods fit.
    counted: bool,
    dense: Vec<Frontier>,
}

impl<'q, 'a, R: Room> Tables<'q, 'a, R> {
    /// Tables for these pods; the work comes off the quest's.
    pub(crate) fn new(quest: &'q Quest<'a, R>, want: Counts, counted: bool) -> Self {
        let major = (0..want.len()).max_by_key(|k| (want[*k], std::cmp::Reverse(*k))).unwrap_or(0);
        let minors = (0..want.len()).filter(|k| *k != major).collect();
        Self { quest, minors, major, want, counted, dense: Vec::new() }
    }

    /// The least cost of holding all pods inside a domain; none if that is impossible.
    pub(crate) fn least_cost(&mut self, domain: DomainIdx) -> Result<Option<Cost>, OutOfWork> {
        let table = self.domain(domain)?;
        Ok(self.cost_of_all(&table).map(|cost| cost + self.unit(self.quest.domain(domain).depth)))
    }

    /// How to divide all pods over the parts of a domain at the least cost; none if they do not fit.
    pub(crate) fn divide(&mut self, domain: DomainIdx) -> Result<Option<Vec<(Part, Counts)>>, OutOfWork> {
        let mut parts: Vec<Part> = self.quest.parts(domain).collect();
        // Tight parts first: the walk back uses late parts only where it must.
        parts.sort_by_key(|p| (self.quest.part_free(*p, self.major), *p));
        let mut tables = Vec::with_capacity(parts.len());
        let mut sums: Vec<Table> = vec![vec![(0, vec![(0, 0)])]];
        for part in &parts {
            let table = self.part(*part, domain)?;
            let next = match sums.last() {
                Some(last) => self.merge(last, &table)?,
                None => Vec::new(),
            };
            sums.push(next);
            tables.push(table);
        }
        let Some(cost) = sums.last().and_then(|s| self.cost_of_all(s)) else { return Ok(None) };
        if let Some(row) = tables.iter().position(|t| self.cost_of_all(t) == Some(cost)) {
            return Ok(Some(vec![(parts[row], self.want.clone())]));
        }
        Ok(Some(self.walk_back(&parts, &tables, &sums, cost)))
    }

    fn walk_back<P: Copy>(&self, parts: &[P], tables: &[Table], sums: &[Table], cost: Cost) -> Vec<(P, Counts)> {
        let (mut key, mut major, mut cost) = (self.full_key(), self.want[self.major], cost);
        let mut shares = Vec::new();
        for row in (0..parts.len()).rev() {
            let options = tables[row].iter().flat_map(|(k, f)| f.iter().map(move |(c, m)| (*k, *c, *m)));
            let fits = options.into_iter().find(|(k, c, m)| {
                self.fits_in(*k, key) && *c <= cost && holds(&sums[row], key - k, cost - c, major.saturating_sub(*m))
            });
            let Some((k, c, m)) = fits else { continue };
            let taken = m.min(major);
            if k > 0 || taken > 0 {
                shares.push((parts[row], self.counts(k, taken)));
            }
            (key, major, cost) = (key - k, major - taken, cost - c);
        }
        shares.reverse();
        shares
    }

    /// Everything a domain can hold. Its own unit of cost is not in it.
    fn domain(&mut self, domain: DomainIdx) -> Result<Table, OutOfWork> {
        let here = self.quest.domain(domain);
        if self.minors.is_empty() && (here.depth >= self.quest.wanted || !self.counted) {
            let cap = self.quest.cap(domain, self.major).min(u64::from(self.want[self.major]));
            return Ok(vec![(0, prune(vec![(0, 0), (0, u32::try_from(cap).unwrap_or(u32::MAX))]))]);
        }
        let mut sum: Table = vec![(0, vec![(0, 0)])];
        for part in self.quest.parts(domain) {
            let table = self.part(part, domain)?;
            sum = self.merge(&sum, &table)?;
        }
        Ok(self.cut(sum, |kind| self.quest.cells[kind] == Some(here.depth)))
    }

    /// Everything a part of `parent` can hold, with the domains that this takes.
    fn part(&mut self, part: Part, parent: DomainIdx) -> Result<Table, OutOfWork> {
        if (0..self.want.len()).all(|kind| self.quest.part_free(part, kind) == 0) {
            return Ok(vec![(0, vec![(0, 0)])]);
        }
        let outer = self.quest.domain(parent).depth;
        let (table, cost) = match part {
            Part::Domain(domain) => (self.domain(domain)?, self.unit(self.quest.domain(domain).depth)),
            // A node of its own is a domain of its own at every level below the gap.
            Part::Node(node) => {
                let depths = outer.0 + 1..=self.quest.wanted.0;
                (self.node(node), depths.map(|d| self.unit(Depth(d))).sum())
            }
        };
        Ok(with_cost(table, cost))
    }

    fn node(&mut self, node: NodeIdx) -> Table {
        let mut found: Vec<(usize, u32)> = Vec::new();
        let mut rest = Rest::new(self.quest.room, node);
        self.fill_node(&mut rest, 0, 0, 1, &mut found);
        found.sort_unstable();
        let table = found.into_iter().map(|(key, most)| (key, prune(vec![(0, 0), (0, most)]))).collect();
        self.cut(table, |kind| self.quest.cut_by_node(node, kind))
    }

    fn fill_node(&self, rest: &mut Rest<'_, R>, depth: usize, key: usize, stride: usize, out: &mut Vec<(usize, u32)>) {
        let Some(&kind) = self.minors.get(depth) else {
            out.push((key, rest.holds(self.quest.kinds[self.major].shape).min(self.want[self.major])));
            return;
        };
        let shape = self.quest.kinds[kind].shape;
        let most = rest.holds(shape).min(self.want[kind]);
        for pods in 0..=most {
            let mut left = rest.clone();
            left.take(shape, pods);
            self.fill_node(&mut left, depth + 1, key + pods as usize * stride, stride * self.radix(kind), out);
        }
    }

    /// Rounds down to whole slices the kinds for which that is due.
    fn cut(&self, table: Table, due: impl Fn(usize) -> bool) -> Table {
        let slice = |kind: usize| if due(kind) { self.quest.kinds[kind].slice } else { 1 };
        if (0..self.want.len()).all(|kind| slice(kind) == 1) {
            return table;
        }
        let by = slice(self.major);
        let keep = |key: usize| {
            let counts = self.counts(key, 0);
            self.minors.iter().all(|k| counts[*k].is_multiple_of(slice(*k)))
        };
        let cut = |frontier: Frontier| prune(frontier.into_iter().map(|(c, m)| (c, whole(m, by))).collect());
        table.into_iter().filter(|(key, _)| keep(*key)).map(|(key, frontier)| (key, cut(frontier))).collect()
    }

    fn merge(&mut self, a: &Table, b: &Table) -> Result<Table, OutOfWork> {
        if let [(0, only)] = b.as_slice()
            && only.as_slice() == [(0, 0)]
        {
            return Ok(a.clone());
        }
        let keys = self.full_key() + 1;
        self.work(keys as u64)?;
        self.dense.resize(keys, Vec::new());
        let top = self.want[self.major];
        for (ka, fa) in a {
            let mut merges = b.len() as u64;
            for (kb, fb) in b {
                if !self.fits_in(*kb, self.full_key() - ka) {
                    continue;
                }
                let cell = &mut self.dense[ka + kb];
                cell.extend(fa.iter().flat_map(|x| fb.iter().map(|y| (x.0 + y.0, (x.1 + y.1).min(top)))));
                merges += (fa.len() * fb.len()) as u64;
            }
            if let Err(stop) = self.work(merges) {
                self.dense.clear();
                return Err(stop);
            }
        }
        let filled = self.dense.iter_mut().enumerate().filter(|(_, f)| !f.is_empty());
        Ok(filled.map(|(key, f)| (key, prune(std::mem::take(f)))).collect())
    }

    /// Takes work off what is left.
    fn work(&self, merges: u64) -> Result<(), OutOfWork> {
        if self.quest.spend(merges) { Ok(()) } else { Err(OutOfWork) }
    }

    fn cost_of_all(&self, table: &Table) -> Option<Cost> {
        let (_, frontier) = table.last().filter(|(key, _)| *key == self.full_key())?;
        frontier.iter().find(|(_, most)| *most >= self.want[self.major]).map(|(cost, _)| *cost)
    }

    fn unit(&self, depth: Depth) -> Cost {
        if self.counted { unit(self.quest.wanted, depth) } else { 0 }
    }

    fn radix(&self, kind: usize) -> usize {
        self.want[kind] as usize + 1
    }

    fn full_key(&self) -> usize {
        self.minors.iter().fold(1usize, |all, k| all.saturating_mul(self.radix(*k))) - 1
    }

    /// Whether every digit of `inner` is at most that of `outer`.
    fn fits_in(&self, inner: usize, outer: usize) -> bool {
        let (mut a, mut b) = (inner, outer);
        self.minors.iter().all(|kind| {
            let radix = self.radix(*kind);
            let fits = a % radix <= b % radix;
            (a, b) = (a / radix, b / radix);
            fits
        })
    }

    /// The pods by kind of a key and a number of major pods.
    fn counts(&self, key: usize, major: u32) -> Counts {
        let mut counts = vec![0; self.want.len()];
        counts[self.major] = major;
        let mut key = key;
        for kind in &self.minors {
            counts[*kind] = u32::try_from(key % self.radix(*kind)).unwrap_or(u32::MAX);
            key /= self.radix(*kind);
        }
        counts
    }
}

/// Sorts by cost and keeps only entries that hold more than every cheaper one.
fn prune(mut frontier: Frontier) -> Frontier {
    frontier.sort_unstable_by(|a, b| a.0.cmp(&b.0).then(b.1.cmp(&a.1)));
    let mut most = None;
    frontier.retain(|(_, pods)| {
        let more = most.is_none_or(|m| *pods > m);
        if more {
            most = Some(*pods);
        }
        more
    });
    frontier
}

/// Adds the cost of using a part at all to everything but not using it.
fn with_cost(table: Table, cost: Cost) -> Table {
    if cost == 0 {
        return table;
    }
    let mut out = table;
    for (key, frontier) in &mut out {
        for entry in frontier.iter_mut() {
            entry.0 += cost;
        }
        if *key == 0 {
            frontier.insert(0, (0, 0));
            *frontier = prune(std::mem::take(frontier));
        }
    }
    out
}

fn holds(table: &Table, key: usize, cost: Cost, major: u32) -> bool {
    let Ok(row) = table.binary_search_by_key(&key, |(k, _)| *k) else { return false };
    table[row].1.iter().any(|(c, m)| *c <= cost && *m >= major)
}

/// How to divide all pods over the roots of several pools, by row; none if they do not fit.
pub(crate) fn divide_pools<R: Room>(
    quests: &[(DomainIdx, Quest<'_, R>)],
    want: &Counts,
) -> Result<Option<Vec<(usize, Counts)>>, OutOfWork> {
    let Some((_, first)) = quests.first() else { return Ok(None) };
    let mut sum = Tables::new(first, want.clone(), false);
    let mut tables = Vec::with_capacity(quests.len());
    let mut sums: Vec<Table> = vec![vec![(0, vec![(0, 0)])]];
    for (root, quest) in quests {
        let table = Tables::new(quest, want.clone(), false).domain(*root)?;
        let next = match sums.last() {
            Some(last) => sum.merge(last, &table)?,
            None => Vec::new(),
        };
        sums.push(next);
        tables.push(table);
    }
    let rows: Vec<usize> = (0..quests.len()).collect();
    let cost = sums.last().and_then(|s| sum.cost_of_all(s));
    Ok(cost.map(|cost| sum.walk_back(&rows, &tables, &sums, cost)))
}
