//! Slurm's invariant: of two waiting jobs of one queue, the one that ranks higher and is not larger is not planned later.

use crate::support::build::{self, Telling};
use crate::support::law;
use crate::support::world::{JobDraw, NodeDraw, QueueDraw, World};
use berth_planner::Time;
use berth_planner::job::{Phase, Placement, Running, Seat};
use berth_planner::plan::{Action, Plan};
use proptest::prelude::*;

/// 32 whole nodes; (nodes, seconds) of what runs, and (nodes, minutes) of what waits, best first.
#[derive(Clone, Debug)]
struct Backlog {
    running: Vec<(u32, i64)>,
    waiting: Vec<(u32, i64)>,
}

const NODES: u32 = 32;

fn backlog() -> impl Strategy<Value = Backlog> {
    let running = prop::collection::vec((1u32..9, 10i64..2000), 0..6);
    let waiting = prop::collection::vec((1u32..=NODES, 1i64..30), 1..14);
    (running, waiting).prop_map(|(running, waiting)| Backlog { running, waiting })
}

fn gang(nodes: u32, seconds: i64) -> JobDraw {
    JobDraw { limit: Some(seconds), ..JobDraw::gang(nodes, 8) }
}

/// The start that one plan gives each waiting job.
fn planned(backlog: &Backlog) -> Vec<Option<Time>> {
    let mut world = World::plain(vec![QueueDraw::open()]);
    world.nodes = (0..NODES).map(|_| NodeDraw::plain(0, 0)).collect();
    world.preemption = false;
    let mut state = build::empty(&world, Telling::default());
    let now = Time::from_secs(10);
    let mut next = 0;
    for (row, (nodes, seconds)) in backlog.running.iter().enumerate() {
        if next + nodes > NODES {
            break;
        }
        build::submit(&mut state, Telling::default(), &world.nodes, 50 + row, &gang(*nodes, *seconds), Time::ZERO);
        let job = state.find_job(&build::job_key(50 + row)).unwrap();
        let node = |i: u32| state.find_node(&build::node_name((next + i) as usize)).unwrap();
        let seats = (0..*nodes).map(|index| Seat { role: 0, index, node: node(index) }).collect();
        next += nodes;
        let running = Running {
            placement: Placement { seats },
            started: Time::ZERO,
            ends: Time::from_secs(*seconds).max(Time::from_secs(11)),
            lost: Vec::new(),
            guaranteed: false,
            resized: Time::ZERO,
            firm: false,
            private_start: None,
            settling: false,
        };
        state.update_job(job, Time::ZERO, |j| j.phase = Phase::Running(Box::new(running)));
    }
    for (row, (nodes, minutes)) in backlog.waiting.iter().enumerate() {
        build::submit(&mut state, Telling::default(), &world.nodes, row, &gang(*nodes, minutes * 60), now);
    }
    let Plan { actions, .. } = berth_planner::plan(&state.at(now), &build::policy(&world));
    let start = |row: usize| {
        let job = state.find_job(&build::job_key(row)).unwrap();
        actions.iter().find_map(|action| match action {
            Action::Start { job: j, .. } if *j == job => Some(now),
            Action::Reserve { job: j, start, .. } if *j == job => Some(*start),
            _ => None,
        })
    };
    (0..backlog.waiting.len()).map(start).collect()
}

fn order_holds(backlog: &Backlog) -> Result<(), String> {
    let starts = planned(backlog);
    let waiting = &backlog.waiting;
    for (better, start) in starts.iter().enumerate() {
        let start = start.ok_or_else(|| format!("job {better} is not planned at all"))?;
        for worse in better + 1..waiting.len() {
            let not_larger = waiting[better].0 <= waiting[worse].0 && waiting[better].1 <= waiting[worse].1;
            if not_larger && starts[worse].is_some_and(|s| s < start) {
                return Err(format!("job {worse} is planned before job {better}: {starts:?}"));
            }
        }
    }
    Ok(())
}

#[test]
fn who_ranks_higher_and_is_not_larger_is_not_planned_later() {
    law("order of plans", 2000, &backlog(), |b| order_holds(&b));
}

#[test]
fn the_published_backlogs_of_the_field_keep_it() {
    // (a) 1 node runs for 10 minutes, 32 wait, 31 nodes of 5 minutes backfill.
    let a = Backlog { running: vec![(1, 610)], waiting: vec![(32, 10), (31, 5)] };
    assert_eq!(planned(&a), [Some(Time::from_secs(610)), Some(Time::from_secs(10))]);
    // (b) ticket 20847: nodes and minutes by falling rank.
    let b = [(6, 10), (27, 15), (28, 14), (29, 13), (30, 12), (5, 10), (5, 10), (30, 11)];
    assert_eq!(order_holds(&Backlog { running: vec![], waiting: b.to_vec() }), Ok(()));
}
