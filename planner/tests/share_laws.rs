//! Laws of queue use on random trees: evictions end, nobody is taken below what is its right, names and order of input
//! do not matter.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)] // the lints are for code outside tests

use berth_planner::ids::QueueIdx;
use berth_planner::job::{Communication, JobSpec, Locality, Phase, Role, Waiting};
use berth_planner::policy::Policy;
use berth_planner::queue::{Queue, QuotaKey};
use berth_planner::resources::Amounts;
use berth_planner::shape::{NodeSet, Shape};
use berth_planner::share::{Head, Reclaim, Shares, Taker, add_tally};
use berth_planner::state::{ClusterState, NodeState, Tally};
use berth_planner::topology::{NodePath, PoolSpec};
use berth_planner::{Span, Time};
use proptest::prelude::*;
use std::collections::BTreeMap;

/// A family of leaves: its own guarantee, and (guarantee, weight) of each leaf.
type Family = (Option<i64>, Vec<(i64, u8)>);
/// (leaf, GPUs, CPUs) of jobs, all waiting at first.
type Wants = Vec<(usize, i64, i64)>;

fn families() -> impl Strategy<Value = Vec<Family>> {
    let leaf = (prop_oneof![Just(0), 1i64..7], 1u8..4);
    // A family that lists a guarantee lists at least what its leaves do.
    let family = (prop::option::of(0i64..4), prop::collection::vec(leaf, 1..4));
    let family = family.prop_map(|(more, leaves)| (more.map(|m| m + leaves.iter().map(|l| l.0).sum::<i64>()), leaves));
    prop::collection::vec(family, 1..4)
}

fn wants() -> impl Strategy<Value = Wants> {
    prop::collection::vec((0usize..9, 0i64..7, 0i64..9), 1..30)
}

struct World {
    state: ClusterState,
    leaves: Vec<QueueIdx>,
    gpu: QuotaKey,
    cpu: QuotaKey,
}

/// `order` permutes the order in which families are added.
fn world(families: &[Family], reversed: bool) -> World {
    let mut state = ClusterState::new();
    let (gpu, cpu) = (state.resources.intern("gpu"), state.resources.intern("cpu"));
    let mut allocatable = Amounts::default();
    allocatable.set(gpu, 16);
    allocatable.set(cpu, 32);
    let pools = [PoolSpec { name: "".into(), levels: Vec::new(), growable: false }];
    let path = NodePath { pool: 0, path: Vec::new(), name: "node".into() };
    state.set_nodes(&pools, vec![(path, NodeState { allocatable, ..NodeState::default() })]);
    let key = |resource| QuotaKey { pool: None, resource };
    let mut rows: Vec<usize> = (0..families.len()).collect();
    if reversed {
        rows.reverse();
    }
    let mut leaves: BTreeMap<(usize, usize), QueueIdx> = BTreeMap::new();
    for row in rows {
        let (own, members) = &families[row];
        let mut family = Queue::open(&format!("f{row}"), QueueIdx::ROOT);
        family.guarantee.extend(own.map(|g| (key(gpu), g)));
        let family = state.set_queue(family);
        let mut columns: Vec<usize> = (0..members.len()).collect();
        if reversed {
            columns.reverse();
        }
        for column in columns {
            let (guarantee, weight) = members[column];
            let mut leaf = Queue { weight: f64::from(weight), ..Queue::open(&format!("f{row}l{column}"), family) };
            if guarantee > 0 {
                leaf.guarantee.insert(key(gpu), guarantee);
            }
            leaves.insert((row, column), state.set_queue(leaf));
        }
    }
    World { state, leaves: leaves.into_values().collect(), gpu: key(gpu), cpu: key(cpu) }
}

impl World {
    fn shares(&self) -> Shares<'_> {
        let policy = Policy { share_half_life: Span::ZERO, ..Policy::standard() };
        Shares::new(self.state.at(Time::ZERO), &policy)
    }

    /// Lets all jobs wait, so that fair shares know what is wanted.
    fn submit(&mut self, wants: &Wants) {
        for (row, (leaf, gpus, cpus)) in wants.iter().enumerate() {
            let mut requests = Amounts::default();
            requests.set(self.gpu.resource, *gpus);
            requests.set(self.cpu.resource, *cpus);
            let eligible = NodeSet::of(1, |_| true);
            let shape = self.state.shapes.intern(Shape { requests, filter: "".into(), eligible });
            let key: std::sync::Arc<str> = format!("ns/j{row}").into();
            let spec = JobSpec {
                uid: key.clone(),
                key,
                user: "ann".into(),
                queue: self.leaves[leaf % self.leaves.len()],
                priority: 0,
                preemptible: true,
                max_runtime: Span::FOREVER,
                grace: Span::ZERO,
                expected_runtime: None,
                checkpoint_every: None,
                locality: Locality::default(),
                communication: Communication::AllReduce,
                resizable: false,
                replaces_members: false,
                roles: vec![Role { name: "worker".into(), shape, replicas: 1, floor: 1, slice: None }],
            };
            self.state.add_job(spec, Time::ZERO, row as u64, Phase::Waiting(Box::<Waiting>::default()));
        }
        self.state.shapes_changed();
    }

    fn tally(&self, gpus: i64, cpus: i64) -> Tally {
        [(self.gpu, gpus), (self.cpu, cpus)].into_iter().filter(|(_, n)| *n > 0).collect()
    }
}

/// Starts and evictions until nothing changes, as a cycle does them but without any topology.
fn settle(w: &World, wants: &Wants, rounds: usize) -> Result<usize, TestCaseError> {
    let mut fair_evictions = 0;
    let mut shares = w.shares();
    let jobs: Vec<(QueueIdx, Tally)> =
        wants.iter().map(|(l, g, c)| (w.leaves[l % w.leaves.len()], w.tally(*g, *c))).collect();
    let mut runs = vec![false; jobs.len()];
    // A job that starts within its queue's guarantee is guaranteed, not lent, and nobody's victim.
    let mut guaranteed = vec![false; jobs.len()];
    let room = |runs: &[bool]| {
        let mut free = w.tally(16, 32);
        jobs.iter().zip(runs).filter(|(_, r)| **r).for_each(|((_, t), _)| add_tally(&mut free, t, -1));
        free
    };
    let fits = |t: &Tally, free: &Tally| t.iter().all(|(k, n)| *n <= free[k]);
    for _ in 0..rounds {
        let mut changed = false;
        // Evictions first: they are what could go round in circles.
        for taker in (0..jobs.len()).filter(|j| !jobs[*j].1.is_empty()) {
            if runs[taker] || fits(&jobs[taker].1, &room(&runs)) {
                continue;
            }
            let (queue, demand) = (jobs[taker].0, &jobs[taker].1);
            let (before, trial) = (runs.clone(), shares.clone());
            for victim in (0..jobs.len()).rev() {
                let (theirs, held) = (jobs[victim].0, &jobs[victim].1);
                let question = Taker { queue, demand, private_start: false };
                let needed = runs[victim] && !guaranteed[victim] && !fits(demand, &room(&runs));
                if needed && shares.may_reclaim(&question, theirs, held) != Reclaim::No {
                    // By hand: something that both want is used beyond what the victim's queue lists of it.
                    let listed = &w.state.queue(theirs).guarantee;
                    let used = shares.used(theirs);
                    let above = |k: &QuotaKey| used.get(k).copied().unwrap_or(0) > listed.get(k).copied().unwrap_or(0);
                    let both = |k: &&QuotaKey| demand.contains_key(*k) && held.contains_key(*k);
                    prop_assert!(demand.keys().filter(both).any(above), "nothing borrowed is taken");
                    fair_evictions += usize::from(shares.may_reclaim(&question, theirs, held) == Reclaim::FairShare);
                    shares.take(theirs, held);
                    runs[victim] = false;
                }
            }
            if fits(demand, &room(&runs)) {
                guaranteed[taker] = shares.entitled(queue, demand);
                shares.give(queue, demand);
                runs[taker] = true;
                changed = true;
            } else {
                (runs, shares) = (before, trial);
            }
        }
        let mut heads: Vec<usize> = (0..jobs.len()).filter(|j| !runs[*j] && fits(&jobs[*j].1, &room(&runs))).collect();
        heads.sort_by_key(|j| (jobs[*j].0, *j));
        heads.dedup_by_key(|j| jobs[*j].0);
        let asked: Vec<(QueueIdx, Head)> = heads
            .iter()
            .map(|j| (jobs[*j].0, Head { priority: 0, queued_at: Time::ZERO, sequence: 0, demand: &jobs[*j].1 }))
            .collect();
        if let Some(best) = shares.best_queue(&asked) {
            let job = heads.into_iter().find(|j| jobs[*j].0 == best).expect("it was asked for");
            guaranteed[job] = shares.entitled(best, &jobs[job].1);
            shares.give(best, &jobs[job].1);
            runs[job] = true;
            changed = true;
        }
        if !changed {
            return Ok(fair_evictions);
        }
    }
    Err(TestCaseError::fail("evictions do not end"))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn starts_and_evictions_come_to_rest(families in families(), wants in wants()) {
        // Fair shares stand still only while demand does: every job is there from the beginning.
        let mut w = world(&families, false);
        w.submit(&wants);
        settle(&w, &wants, 200)?;
    }

    #[test]
    fn the_order_in_which_queues_were_added_does_not_matter(families in families(), wants in wants()) {
        let (a, b) = (world(&families, false), world(&families, true));
        let mut uses = [a.shares(), b.shares()];
        for (leaf, gpus, cpus) in &wants {
            for (w, shares) in [&a, &b].into_iter().zip(&mut uses) {
                shares.give(w.leaves[leaf % w.leaves.len()], &w.tally(*gpus, *cpus));
            }
        }
        let [first, second] = uses;
        let one = a.tally(1, 1);
        let head = Head { priority: 0, queued_at: Time::ZERO, sequence: 0, demand: &one };
        let best = |w: &World, shares: &Shares| {
            let heads: Vec<_> = w.leaves.iter().map(|q| (*q, head)).collect();
            shares.best_queue(&heads).map(|q| w.state.queue(q).name.clone())
        };
        prop_assert_eq!(best(&a, &first), best(&b, &second));
        for (x, y) in a.leaves.iter().zip(&b.leaves) {
            prop_assert_eq!(first.order_share(*x), second.order_share(*y));
            prop_assert_eq!(first.fair_share(*x), second.fair_share(*y));
            prop_assert_eq!(first.entitled(*x, &one), second.entitled(*y, &one));
        }
    }

    #[test]
    fn fair_shares_add_up_and_keep_within_demand(families in families(), wants in wants()) {
        let w = world(&families, false);
        let shares = w.shares();
        let mut demands = vec![Tally::new(); w.state.queues().len()];
        for (leaf, gpus, cpus) in &wants {
            add_tally(&mut demands[w.leaves[leaf % w.leaves.len()].row()], &w.tally(*gpus, *cpus), 1);
        }
        let cpus = |t: &Tally| t.get(&w.cpu).copied().unwrap_or(0);
        let fair: Vec<Tally> = w.leaves.iter().map(|q| shares.fair_share_of(*q, &demands)).collect();
        let demand: i64 = demands.iter().map(cpus).sum();
        // All that is wanted or all there is is divided; more only where guarantees promise more than there is.
        let divided = fair.iter().map(cpus).sum::<i64>();
        let promised = |f: &Family| f.1.iter().map(|l| l.0).sum::<i64>().max(f.0.unwrap_or(0));
        let covered = families.iter().map(promised).sum::<i64>() <= 16;
        prop_assert!(divided == demand.min(32) || (!covered && divided > 32), "{divided} of {demand}");
        for (leaf, fair) in w.leaves.iter().zip(&fair) {
            let demand = &demands[leaf.row()];
            prop_assert!(fair.iter().all(|(k, n)| *n <= demand.get(k).copied().unwrap_or(0)));
        }
    }
}

#[test]
fn the_generator_makes_evictions_by_fair_share_too() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;
    let mut runner = TestRunner::deterministic();
    let mut seen = 0;
    for _ in 0..300 {
        let families = families().new_tree(&mut runner).expect("a tree").current();
        let wants = wants().new_tree(&mut runner).expect("jobs").current();
        let mut w = world(&families, false);
        w.submit(&wants);
        seen += settle(&w, &wants, 200).expect("it rests");
    }
    assert!(seen > 20, "{seen} evictions by fair share in 300 instances");
}
