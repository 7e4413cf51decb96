//! Whole cycles on large clusters: a burst of gangs, one small change among 140,000 pods, victims among 700.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, clippy::expect_used)] // the lints are for code outside tests
#![allow(missing_docs)]

mod worlds;

use berth_planner::plan;
use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use std::hint::black_box;
use worlds::{Gang, World};

fn cycles(c: &mut Criterion) {
    let mut group = c.benchmark_group("cycle");
    let mut burst = World::new(5_000, 8, &[("block", 10), ("rack", 50)]);
    for _ in 0..1_000 {
        burst.submit(Gang::of(3, 8));
    }
    group.bench_function("5,000 nodes, 1,000 gangs of 3 that fit", |b| {
        b.iter(|| black_box(plan(&burst.state.at(burst.now), &burst.policy)));
    });
    let mut crowded = World::new(4_000, 35, &[("block", 40), ("rack", 200)]);
    for row in 0..46_667 {
        crowded.submit(Gang { minutes: 60 + row % 600, ..Gang::of(3, 1) });
    }
    crowded.settle();
    group.bench_function("4,000 nodes, 140,000 pods, one gang ends and one comes", |b| {
        b.iter_batched(
            || (),
            |()| {
                let running = crowded.running();
                crowded.end(running[running.len() / 2]);
                crowded.submit(Gang::of(3, 1));
                crowded.cycle()
            },
            BatchSize::PerIteration,
        );
    });
    let mut full = World::new(2_000, 8, &[("block", 25), ("rack", 125)]);
    for row in 0..700u32 {
        full.submit(Gang { minutes: 600, ..Gang::of(if row < 600 { 3 } else { 2 }, 8) });
    }
    full.settle();
    full.submit(Gang { priority: 100, ..Gang::of(12, 8).within("rack") });
    group.bench_function("2,000 full nodes, 700 candidates to preempt", |b| {
        b.iter(|| black_box(plan(&full.state.at(full.now), &full.policy)));
    });
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(10)
        .warm_up_time(std::time::Duration::from_millis(200))
        .measurement_time(std::time::Duration::from_millis(600));
    targets = cycles
}
criterion_main!(benches);
