//! One placement decision on 5,000 nodes: gangs of 4 and of 1,000, on an idle and on a broken cluster.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)] // the lints are for code outside tests
#![allow(missing_docs)]

use berth_planner::ids::{NodeIdx, QueueIdx, ShapeIdx};
use berth_planner::job::{Communication, JobSpec, Locality, Role};
use berth_planner::place::{Ask, fits, place};
use berth_planner::resources::Amounts;
use berth_planner::room::{FixedRoom, Room};
use berth_planner::shape::{NodeSet, Shape, ShapeTable};
use berth_planner::time::{Span, Time};
use berth_planner::topology::{Level, NodePath, PoolSpec, Topology};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use std::hint::black_box;

fn topology(nodes: usize, racks: usize) -> Topology {
    let level = |name: &str| Level { name: name.into(), gigabytes_per_second: 0.0 };
    let pool = PoolSpec { name: "main".into(), levels: vec![level("block"), level("rack")], growable: false };
    let path = |n: usize| {
        let rack = n % racks;
        vec![format!("b{:03}", rack / 10).into(), format!("r{rack:05}").into()]
    };
    let paths: Vec<NodePath> =
        (0..nodes).map(|n| NodePath { pool: 0, path: path(n), name: format!("n{n:06}").into() }).collect();
    Topology::build(&[pool], &paths)
}

fn job(roles: &[(ShapeIdx, u32)], required: Option<&str>) -> JobSpec {
    let role = |(shape, pods): &(ShapeIdx, u32)| Role {
        name: "worker".into(),
        shape: *shape,
        replicas: *pods,
        floor: *pods,
        slice: None,
    };
    JobSpec {
        key: "default/job".into(),
        uid: "1".into(),
        user: "".into(),
        queue: QueueIdx(1),
        priority: 0,
        preemptible: true,
        max_runtime: Span::from_secs(3600),
        grace: Span::ZERO,
        expected_runtime: None,
        checkpoint_every: None,
        locality: Locality { required: required.map(Into::into), preferred: None, patience: Span::ZERO },
        communication: Communication::AllReduce,
        resizable: true,
        replaces_members: true,
        roles: roles.iter().map(role).collect(),
    }
}

/// Two nodes in three are busy with something for up to two hours; half of those are full.
fn break_up(room: &mut FixedRoom<'_>, gpu: ShapeIdx) {
    for row in 0..room.topology().node_count() {
        let node = NodeIdx::of(row);
        let dice = row.wrapping_mul(2_654_435_761) >> 7;
        if dice % 3 != 0 {
            room.take(node, gpu, if dice % 2 == 0 { 8 } else { (1 + dice % 7) as i64 });
            room.set_wholly_free_at(node, Time::from_secs((dice % 7200) as i64));
        }
    }
}

fn decisions(c: &mut Criterion) {
    for (nodes, racks) in [(5_000, 50), (5_000, 1), (6_000, 4_800)] {
        let topology = topology(nodes, racks);
        let mut shapes = ShapeTable::default();
        let mut shape = |requests: [i64; 3]| {
            let eligible = NodeSet::of(nodes, |_| true);
            shapes.intern(Shape { requests: Amounts(requests.to_vec()), filter: "".into(), eligible })
        };
        let (node, gpu, leader) = (shape([1, 64, 8]), shape([1, 8, 1]), shape([1, 16, 0]));
        let free = vec![Amounts(vec![110, 96, 8]); nodes];
        let idle = FixedRoom::new(&topology, &shapes, free);
        let mut broken = idle.clone();
        break_up(&mut broken, gpu);
        for (state, room) in [("idle", &idle), ("broken", &broken)] {
            let mut group = c.benchmark_group(format!("{nodes} nodes, {racks} racks, {state}"));
            for (name, roles, required) in [
                ("single pod", vec![(gpu, 1)], None),
                ("gang of 4", vec![(node, 4)], None),
                ("gang of 4, one rack required", vec![(node, 4)], Some("rack")),
                ("gang of 4 small pods", vec![(gpu, 4)], None),
                ("gang of 1000", vec![(node, 1000)], None),
                ("gang of 1000 small pods", vec![(gpu, 1000)], None),
                ("leader and 32 workers", vec![(leader, 1), (node, 32)], None),
                ("gang of 6000, a no", vec![(node, 6000)], None),
            ] {
                let spec = job(&roles, required);
                let sizes: Vec<u32> = roles.iter().map(|r| r.1).collect();
                let ask = Ask {
                    spec: &spec,
                    sizes: &sizes,
                    start: Time::ZERO,
                    predicted_end: Time::from_secs(3600),
                    most_domains: None,
                    search_limit: 20_000,
                    within: None,
                };
                group.throughput(Throughput::Elements(u64::from(spec.floor())));
                group.bench_function(name, |b| b.iter(|| black_box(place(room, black_box(&ask)))));
            }
            let spec = job(&[(node, 4)], Some("rack"));
            let ask = Ask {
                spec: &spec,
                sizes: &[4],
                start: Time::ZERO,
                predicted_end: Time::from_secs(3600),
                most_domains: None,
                search_limit: 20_000,
                within: None,
            };
            let root = topology.pools()[0].root;
            group.bench_function("fits in any rack", |b| b.iter(|| black_box(fits(room, black_box(&ask), root))));
        }
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(10)
        .warm_up_time(std::time::Duration::from_millis(200))
        .measurement_time(std::time::Duration::from_millis(600));
    targets = decisions
}
criterion_main!(benches);
