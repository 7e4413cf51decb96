//! Labels that change. A few nodes may move at any time; when many move at once the labels are doubted, and the last
//! trusted places stay in force until the labels are back, have stood still for long, or an admin edits the Topology. A
//! node that moves again and again is suspect: its place counts as unknown.
//!
//! Kept in memory alone: a controller that starts trusts the labels it finds.

use crds::v1alpha1::Drift as Settings;
use planner::{Span, Time};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

const HOUR: Span = Span::from_secs(3600);
/// Doubted labels that stand still for so many times `drift.within` are believed.
const BELIEVED_AFTER: i64 = 10;
/// One node is no mass.
const MASS: usize = 2;

/// Domains of a node, broadest first.
pub type Path = Vec<Arc<str>>;

/// All pools.
#[derive(Debug, Default)]
pub struct Drift {
    pools: BTreeMap<Arc<str>, Pool>,
}

/// What is remembered of one Topology's nodes.
#[derive(Debug, Default)]
struct Pool {
    generation: Option<i64>,
    trusted: BTreeMap<String, Path>,
    /// Moves of the last hour: when, and from where.
    moves: BTreeMap<String, VecDeque<(Time, Path)>>,
    doubt: Option<Doubt>,
    within: Span,
    flaps: usize,
}

/// Labels that are not believed.
#[derive(Debug)]
struct Doubt {
    /// Since they stand as they do.
    since: Time,
    labels: BTreeMap<String, Path>,
}

/// How a pool fares, for people.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// Nodes that moved lately.
    pub moving: usize,
    /// Nodes whose labels are doubted.
    pub doubted: usize,
    /// Nodes that move too often.
    pub suspects: usize,
}

impl Drift {
    /// Takes the labels of a pool's nodes in and makes them the places that count.
    pub fn judge(
        &mut self,
        name: &Arc<str>,
        generation: Option<i64>,
        settings: &Settings,
        labels: &mut BTreeMap<String, Path>,
        now: Time,
    ) {
        let fresh = !self.pools.contains_key(name);
        let pool = self.pools.entry(name.clone()).or_default();
        pool.within = translate::time::span(settings.within);
        pool.flaps = usize::try_from(settings.flaps_per_hour).unwrap_or(0);
        if fresh || pool.generation != generation {
            *pool = Pool { generation, within: pool.within, flaps: pool.flaps, ..Pool::default() };
        } else {
            pool.weigh(settings, labels, now);
        }
        pool.settle(labels, now);
    }

    /// Pools that are no more are forgotten.
    pub fn keep(&mut self, is_there: impl Fn(&str) -> bool) {
        self.pools.retain(|name, _| is_there(name));
    }

    /// How a pool fares.
    #[must_use]
    pub fn standing(&self, name: &str, now: Time) -> Standing {
        let Some(pool) = self.pools.get(name) else { return Standing::default() };
        Standing {
            moving: pool.moving(now),
            doubted: pool.doubt.as_ref().map_or(0, |d| d.labels.len()),
            suspects: pool.moves.values().filter(|m| m.len() > pool.flaps).count(),
        }
    }

    /// Whether a pool's labels are doubted.
    #[must_use]
    pub fn is_doubted(&self, name: &str) -> bool {
        self.pools.get(name).is_some_and(|p| p.doubt.is_some())
    }

    /// Whether any pool's labels are doubted.
    #[must_use]
    pub fn has_doubts(&self) -> bool {
        self.pools.values().any(|p| p.doubt.is_some())
    }

    /// When the pools have to be looked at again although no label changes.
    #[must_use]
    pub fn due(&self) -> Option<Time> {
        let of_pool = |pool: &Pool| {
            let believed = pool.doubt.as_ref().map(|d| d.since + pool.belief());
            let forgotten = pool.moves.values().filter_map(|m| m.front()).map(|(at, _)| *at + HOUR).min();
            [believed, forgotten].into_iter().flatten().min()
        };
        self.pools.values().filter_map(of_pool).min()
    }
}

impl Pool {
    fn belief(&self) -> Span {
        Span(self.within.0.saturating_mul(BELIEVED_AFTER))
    }

    fn moving(&self, now: Time) -> usize {
        self.moves.values().filter(|m| m.back().is_some_and(|(at, _)| now < *at + self.within)).count()
    }

    /// Sorts what changed into moves and doubts.
    fn weigh(&mut self, settings: &Settings, labels: &BTreeMap<String, Path>, now: Time) {
        let percent = usize::try_from(settings.hold_above_percent).unwrap_or(0);
        let is_mass = |nodes: usize| nodes >= MASS && nodes * 100 > percent * labels.len();
        let moved = self.moved(labels);
        match &mut self.doubt {
            Some(doubt) => {
                if doubt.labels != moved {
                    *doubt = Doubt { since: now, labels: moved.clone() };
                }
                if is_mass(moved.len()) && now < doubt.since + self.belief() {
                    return;
                }
                self.doubt = None;
            }
            None => {
                let lately = self.lately(now);
                let moving = lately.iter().filter(|n| !moved.contains_key(*n)).count() + moved.len();
                if !moved.is_empty() && is_mass(moving) {
                    // What began it is no better than what followed.
                    lately.iter().for_each(|node| self.take_back(node, now));
                    self.doubt = Some(Doubt { since: now, labels: self.moved(labels) });
                    return;
                }
            }
        }
        for node in moved.into_keys() {
            let from = self.trusted.get(&node).cloned().unwrap_or_default();
            self.moves.entry(node).or_default().push_back((now, from));
        }
    }

    /// Nodes whose labels are not what is trusted.
    fn moved(&self, labels: &BTreeMap<String, Path>) -> BTreeMap<String, Path> {
        let moved = |(node, path): &(&String, &Path)| self.trusted.get(*node).is_some_and(|known| known != *path);
        labels.iter().filter(moved).map(|(node, path)| (node.clone(), path.clone())).collect()
    }

    /// Nodes that moved within the time that makes a mass.
    fn lately(&self, now: Time) -> Vec<String> {
        let late = self.moves.iter().filter(|(_, m)| m.back().is_some_and(|(at, _)| now < *at + self.within));
        late.map(|(node, _)| node.clone()).collect()
    }

    /// Trusts of a node what was trusted before its late moves.
    fn take_back(&mut self, node: &str, now: Time) {
        let Some(moves) = self.moves.get_mut(node) else { return };
        while moves.back().is_some_and(|(at, _)| now < *at + self.within) {
            let Some((_, from)) = moves.pop_back() else { return };
            self.trusted.insert(node.to_owned(), from);
        }
    }

    /// Trusts what is not doubted, and writes the places that count over the labels.
    fn settle(&mut self, labels: &mut BTreeMap<String, Path>, now: Time) {
        for times in self.moves.values_mut() {
            while times.front().is_some_and(|(at, _)| now >= *at + HOUR) {
                times.pop_front();
            }
        }
        self.moves.retain(|node, times| !times.is_empty() && labels.contains_key(node));
        if let Some(doubt) = &self.doubt {
            for (node, path) in labels.iter_mut().filter(|(node, _)| doubt.labels.contains_key(*node)) {
                path.clone_from(&self.trusted[node]);
            }
        }
        self.trusted.clone_from(labels);
        for (node, times) in &self.moves {
            if let Some(path) = labels.get_mut(node).filter(|_| times.len() > self.flaps) {
                path.clear();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Cluster {
        drift: Drift,
        labels: BTreeMap<String, Path>,
    }

    impl Cluster {
        fn new(nodes: usize) -> Self {
            let labels = (0..nodes).map(|n| (format!("n{n:02}"), vec![format!("r{}", n / 2).into()])).collect();
            let mut cluster = Self { drift: Drift::default(), labels };
            cluster.places(0);
            cluster
        }

        fn relabel(&mut self, node: usize, rack: &str) {
            self.labels.insert(format!("n{node:02}"), vec![rack.into()]);
        }

        /// The rack of each node as it counts; `?` for none.
        fn places(&mut self, seconds: i64) -> Vec<String> {
            let mut labels = self.labels.clone();
            self.drift.judge(&"pool".into(), Some(1), &Settings::default(), &mut labels, Time::from_secs(seconds));
            labels.into_values().map(|path| path.first().map_or("?".to_owned(), ToString::to_string)).collect()
        }

        fn standing(&self, seconds: i64) -> (usize, usize, usize) {
            let Standing { moving, doubted, suspects } = self.drift.standing("pool", Time::from_secs(seconds));
            (moving, doubted, suspects)
        }
    }

    #[test]
    fn a_few_nodes_may_move_and_many_at_once_are_doubted_until_their_labels_are_back() {
        let mut cluster = Cluster::new(10);
        cluster.relabel(0, "x");
        cluster.relabel(1, "x");
        assert_eq!(cluster.places(10)[..2], ["x", "x"], "two of ten are not above 20 %");
        assert_eq!(cluster.standing(11), (2, 0, 0));
        cluster.relabel(2, "x");
        assert_eq!(
            cluster.places(30)[..3],
            ["r0", "r0", "r1"],
            "a third within the minute is, and takes the first along"
        );
        assert_eq!(cluster.standing(30), (0, 3, 0));
        assert!(cluster.drift.is_doubted("pool"));
        assert_eq!(cluster.places(31)[..3], ["r0", "r0", "r1"]);
        cluster.relabel(2, "r1");
        assert_eq!(cluster.places(40)[..3], ["x", "x", "r1"], "two alone are no mass");
        assert!(!cluster.drift.is_doubted("pool"));
        cluster.relabel(4, "y");
        assert_eq!(cluster.places(200)[4], "y", "a minute later the first two are forgotten");
    }

    #[test]
    fn labels_that_stand_still_or_that_an_admin_confirms_are_believed() {
        let mut cluster = Cluster::new(10);
        for node in 0..5 {
            cluster.relabel(node, "x");
        }
        assert_eq!(cluster.places(0)[0], "r0");
        assert_eq!(cluster.drift.due(), Some(Time::from_secs(600)));
        cluster.relabel(5, "x");
        assert_eq!(cluster.places(500)[0], "r0", "they still change");
        assert_eq!(cluster.places(1099)[0], "r0");
        assert_eq!(cluster.places(1100)[..6], ["x"; 6]);
        for node in 0..5 {
            cluster.relabel(node, "y");
        }
        assert_eq!(cluster.places(1200)[0], "x");
        let mut labels = cluster.labels.clone();
        let confirmed = Time::from_secs(1201);
        cluster.drift.judge(&"pool".into(), Some(2), &Settings::default(), &mut labels, confirmed);
        assert_eq!(labels["n00"], [Arc::from("y")]);
    }

    #[test]
    fn a_node_that_moves_again_and_again_has_no_place_until_it_rests() {
        let mut cluster = Cluster::new(10);
        for turn in 0..5 {
            cluster.relabel(0, if turn % 2 == 0 { "x" } else { "r0" });
            let place = cluster.places(turn * 120)[0].clone();
            assert_eq!(place == "?", turn == 4, "turn {turn}: {place}");
        }
        assert_eq!(cluster.standing(500), (1, 0, 1));
        assert_eq!(cluster.places(3599)[0], "?");
        assert_eq!(cluster.drift.due(), Some(Time::from_secs(3600)));
        assert_eq!(cluster.places(3600)[0], "x", "the first move is an hour ago");
    }

    #[test]
    fn one_node_is_no_mass_and_new_nodes_do_not_move() {
        let mut cluster = Cluster::new(2);
        cluster.relabel(0, "x");
        assert_eq!(cluster.places(10), ["x", "r0"]);
        for node in 2..20 {
            cluster.relabel(node, "new");
        }
        assert_eq!(cluster.places(11)[19], "new");
        assert!(!cluster.drift.is_doubted("pool"));
    }
}
