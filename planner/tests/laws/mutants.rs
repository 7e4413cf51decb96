//! Each law is shown able to fail: planners with one fault each, all caught on the same random runs that pass without it.

use crate::support::build::Telling;
use crate::support::drive::{Planner, Sim};
use crate::support::world::{Kind, World, world};
use berth_planner::Span;
use berth_planner::plan::{Action, Plan};
use berth_planner::policy::Policy;
use berth_planner::state::Snapshot;
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

fn worlds(count: usize) -> Vec<World> {
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[3u8; 32]);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    let strategy = world(Kind { troubled: false, ..Kind::SMALL });
    (0..count).map(|_| strategy.new_tree(&mut runner).expect("strategies do not reject").current()).collect()
}

/// The first complaint about a planner over some worlds.
fn complaint(planner: Planner) -> Option<String> {
    worlds(300).iter().find_map(|w| Sim::new(w, Telling::default(), planner).run().err())
}

#[track_caller]
fn caught(planner: Planner, law: &str) {
    let why = complaint(planner).expect("the fault is never noticed");
    assert!(why.lines().next().is_some_and(|line| line.contains(law)), "{why}");
}

fn changed(snapshot: &Snapshot<'_>, policy: &Policy, mut change: impl FnMut(&mut Action)) -> Plan {
    let mut plan = berth_planner::plan(snapshot, policy);
    plan.actions.iter_mut().for_each(&mut change);
    plan
}

fn starts_less_than_the_floor(snapshot: &Snapshot<'_>, policy: &Policy) -> Plan {
    changed(snapshot, policy, |action| {
        if let Action::Start { placement, .. } = action {
            placement.seats.clear();
        }
    })
}

fn puts_all_on_one_node(snapshot: &Snapshot<'_>, policy: &Policy) -> Plan {
    changed(snapshot, policy, |action| {
        if let Action::Start { placement, .. } = action {
            let first = placement.seats[0].node;
            placement.seats.iter_mut().for_each(|s| s.node = first);
        }
    })
}

fn swaps_the_ends_of_a_gang(snapshot: &Snapshot<'_>, policy: &Policy) -> Plan {
    changed(snapshot, policy, |action| {
        if let Action::Start { placement, .. } = action {
            placement.seats.reverse();
        }
    })
}

fn promises_too_early(snapshot: &Snapshot<'_>, policy: &Policy) -> Plan {
    changed(snapshot, policy, |action| {
        if let Action::Reserve { start, end, .. } = action {
            *start = *start - Span::from_secs(1);
            *end = *end - Span::from_secs(1);
        }
    })
}

fn forgets_its_promises(snapshot: &Snapshot<'_>, policy: &Policy) -> Plan {
    let mut plan = berth_planner::plan(snapshot, policy);
    let promised = |a: &Action| {
        snapshot
            .state
            .job(a.job())
            .and_then(|j| j.waiting())
            .is_some_and(|w| w.reservation.as_ref().is_some_and(|r| r.start <= snapshot.now))
    };
    plan.actions.retain(|a| !(matches!(a, Action::Start { .. }) && promised(a)));
    plan
}

fn does_one_thing_at_a_time(snapshot: &Snapshot<'_>, policy: &Policy) -> Plan {
    let mut plan = berth_planner::plan(snapshot, policy);
    // Half of a clearing would be another fault, of law 6.
    if plan.actions.iter().any(|a| !matches!(a, Action::Start { .. } | Action::Reserve { .. })) {
        return plan;
    }
    let first = plan.actions.first().map(Action::job);
    let reasons = berth_planner::plan(snapshot, policy).pending;
    plan.actions.truncate(1);
    // Who would have started later in the plan waits "for room".
    for (job, there) in snapshot.state.jobs() {
        let reported = reasons.iter().any(|p| p.job == job);
        if there.waiting().is_some() && !reported && first != Some(job) {
            let reason = berth_planner::reason::Reason::of(berth_planner::reason::Code::NoCapacity, "");
            plan.pending.push(berth_planner::reason::Pending { job, position: 1, reason, start: None });
        }
    }
    plan
}

fn explains_nothing(snapshot: &Snapshot<'_>, policy: &Policy) -> Plan {
    Plan { pending: Vec::new(), ..berth_planner::plan(snapshot, policy) }
}

fn ends_jobs_early(snapshot: &Snapshot<'_>, policy: &Policy) -> Plan {
    changed(snapshot, policy, |action| {
        if let Action::Start { ends, .. } = action {
            *ends = *ends - Span::from_secs(1);
        }
    })
}

#[test]
fn the_runs_pass_without_a_fault() {
    assert_eq!(complaint(berth_planner::plan), None);
}

#[test]
fn each_fault_is_caught_by_its_law() {
    caught(starts_less_than_the_floor, "law 1");
    caught(swaps_the_ends_of_a_gang, "law 1");
    caught(puts_all_on_one_node, "law 2");
    caught(promises_too_early, "law 2");
    caught(forgets_its_promises, "law 4");
    caught(does_one_thing_at_a_time, "law 8");
    caught(explains_nothing, "does not say why");
    caught(ends_jobs_early, "window");
}
