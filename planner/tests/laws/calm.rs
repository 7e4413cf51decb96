//! Laws 4 and 7 where nothing goes wrong: no promise ever moves later, and a large gang starts after a bounded time
//! however many small jobs arrive behind it.

use crate::support::build::{Telling, secs};
use crate::support::drive::{Planner, Sim};
use crate::support::law;
use crate::support::world::{JobDraw, Kind, NodeDraw, QueueDraw, Run, World, world};
use berth_planner::Time;
use berth_planner::plan::Plan;
use berth_planner::policy::Policy;
use berth_planner::state::Snapshot;
use proptest::prelude::*;

fn nothing_moves_later(world: &World, planner: Planner) -> Result<(), String> {
    let mut sim = Sim::new(world, Telling::default(), planner);
    sim.run()?;
    match sim.stories.iter().position(|s| s.moved_later > 0) {
        Some(row) => Err(sim.fail(&format!("law 4: the promise of job {row} moved later though nothing happened"))),
        None => Ok(()),
    }
}

#[test]
fn without_trouble_or_higher_priority_no_promise_moves_later() {
    law("4, calm", 2000, &world(Kind::CALM), |w| nothing_moves_later(&w, berth_planner::plan));
}

/// A cluster of whole nodes, some jobs on it, a gang as large as the cluster, and a stream of small jobs behind it.
fn crowd() -> impl Strategy<Value = World> {
    let early = (1u32..4, prop_oneof![Just(8i64), Just(4), Just(1)], 30i64..600, 5i64..=100);
    let late = (prop_oneof![Just(8i64), Just(4), Just(1)], 30i64..400, 5i64..=100);
    let shape = (2usize..7, prop_oneof![Just(1u32), Just(3), Just(100)]);
    (shape, prop::collection::vec(early, 0..6), prop::collection::vec(late, 20..60)).prop_map(
        |((nodes, depth), early, late)| {
            let mut world = World::plain(vec![QueueDraw { depth, ..QueueDraw::open() }]);
            world.nodes = (0..nodes).map(|n| NodeDraw::plain(0, u8::try_from(n / 2).unwrap_or(0))).collect();
            let gang = |pods: u32, gpus, limit, run| {
                let pods = pods.min(u32::try_from(nodes).unwrap_or(1));
                JobDraw { limit: Some(limit), run: Run::Early(run), ..JobDraw::gang(pods, gpus) }
            };
            world.jobs = early.into_iter().map(|(pods, gpus, limit, run)| gang(pods, gpus, limit, run)).collect();
            world.jobs.push(JobDraw { at: 100, ..gang(u32::try_from(nodes).unwrap_or(1), 8, 100, 100) });
            for (row, (gpus, limit, run)) in (0i64..).zip(late) {
                world.jobs.push(JobDraw { at: 101 + row * 15, ..gang(1, gpus, limit, run) });
            }
            world
        },
    )
}

fn starts_in_time(world: &World, planner: Planner) -> Result<(), String> {
    let ahead = world.jobs.iter().take_while(|j| j.at <= 100).count();
    let longest = world.jobs.iter().filter_map(|j| j.limit).max().unwrap_or(0);
    let bound = Time::from_secs(100) + secs(longest * i64::try_from(ahead + 1).unwrap_or(1));
    let mut sim = Sim::new(world, Telling::default(), planner);
    sim.run()?;
    match sim.stories[ahead - 1].started.first() {
        Some(start) if *start <= bound => Ok(()),
        start => Err(sim.fail(&format!("law 7: the large gang starts at {start:?}, which is not by {bound:?}"))),
    }
}

#[test]
fn a_large_gang_starts_however_many_small_jobs_come_behind_it() {
    law("7, bounded wait", 2000, &crowd(), |w| starts_in_time(&w, berth_planner::plan));
}

/// A planner that may promise nothing: small jobs pass for ever.
fn without_promises(snapshot: &Snapshot<'_>, policy: &Policy) -> Plan {
    berth_planner::plan(snapshot, &Policy { max_reservations: 0, ..policy.clone() })
}

#[test]
fn the_bound_is_missed_by_a_planner_that_promises_nothing() {
    let mut world = World::plain(vec![QueueDraw::open()]);
    world.nodes.truncate(2);
    let small = |at| JobDraw { at, run: Run::Limit, ..JobDraw::gang(1, 8) };
    world.jobs = vec![small(0), JobDraw { at: 100, ..JobDraw::gang(2, 8) }];
    world.jobs.extend((0..60).map(|n| small(60 + n * 50)).filter(|j| j.at > 100));
    world.jobs[0].at = 60;
    assert_eq!(starts_in_time(&world, berth_planner::plan), Ok(()));
    let missed = starts_in_time(&world, without_promises);
    assert!(missed.is_err_and(|why| why.contains("law 7")), "nothing is missed");
}
