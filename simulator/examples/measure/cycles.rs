//! What a cycle costs on large clusters, and how that grows: the planner alone, one core, in memory.

use crate::figure::Figures;
use crate::traces::Traces;
use crate::worlds::{Cycled, Gang, World};
use anyhow::{Context, Result};
use std::time::Duration;

/// Cycles that a mean is taken over.
const ROUNDS: usize = 200;

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

#[allow(clippy::cast_precision_loss)] // counts of pods are small
fn number(n: usize) -> f64 {
    n as f64
}

/// Mean and longest of some times, in milliseconds.
fn mean_and_max(times: &[Duration]) -> (f64, f64) {
    let sum: f64 = times.iter().map(|t| millis(*t)).sum();
    (sum / number(times.len().max(1)), times.iter().map(|t| millis(*t)).fold(0.0, f64::max))
}

fn racks(nodes: usize, racks: usize) -> World {
    World::new(nodes, 8, &[("block", racks.div_ceil(5)), ("rack", racks)])
}

/// One gang ends, one is submitted, again and again; what planning took.
fn turnover(world: &mut World, gang: Gang, rounds: usize) -> Vec<Duration> {
    decided(world, gang, rounds).into_iter().map(|(time, _)| time).collect()
}

/// As [`turnover`], each cycle with the number of its decisions: gangs started, promises made and moved.
fn decided(world: &mut World, gang: Gang, rounds: usize) -> Vec<(Duration, usize)> {
    let mut times = Vec::with_capacity(rounds);
    for round in 0..rounds {
        let running = world.running();
        if let Some(&job) = running.get(round * 7919 % running.len().max(1)) {
            world.end(job);
        }
        world.submit(gang);
        let cycled = world.cycle();
        times.push((cycled.planning, cycled.plan.actions.len()));
    }
    times
}

pub(crate) fn decisions(_: &Traces, figures: &mut Figures) -> Result<()> {
    let peers = [(1_000, "kube-scheduler 3.7 ms, without topology"), (2_000, "5.0 ms"), (3_000, "5.7 ms")];
    for (gangs, peer) in peers {
        eprintln!("decisions, {gangs} gangs …");
        let mut world = racks(5_000, 50);
        for _ in 0..gangs {
            world.submit(Gang::of(3, 8));
        }
        let cycled = world.cycle();
        let mean = millis(cycled.planning) / number(gangs);
        let name = format!("5,000 nodes, 50 racks, {gangs} gangs of 3 waiting that fit: mean of a decision");
        figures.lower(name, mean, "ms", 0.5, peer);
        // The same number waits behind a full cluster; one ends, and one of them takes its place.
        let mut world = racks(5_000, 50);
        for _ in 0..1_666 + gangs {
            world.submit(Gang::of(3, 8));
        }
        world.settle();
        let cycles = decided(&mut world, Gang::of(3, 8), ROUNDS);
        let (mean, longest) = mean_and_max(&cycles.iter().map(|c| c.0).collect::<Vec<_>>());
        let decisions = number(cycles.iter().map(|c| c.1).sum()) / number(cycles.len());
        let name = format!("5,000 full nodes, {gangs} gangs of 3 waiting, one ends: mean of a decision");
        figures.lower(name, mean / decisions.max(1.0), "ms", 0.5, peer);
        let name = format!(
            "the same: mean of a cycle, which pulls {decisions:.0} promises forward and tells all why they wait"
        );
        figures.lower(name, mean, "ms", 100.0, format!("longest {longest:.2} ms; the mark is that of a small change"));
    }
    Ok(())
}

pub(crate) fn throughput(_: &Traces, figures: &mut Figures) -> Result<()> {
    let rows = [
        (
            750,
            Gang::of(4, 8).within("rack"),
            "750 gangs of 4 in a rack each",
            "kube-scheduler 492–630 scoring 5 racks, 104–114 scoring all 50",
        ),
        (1_250, Gang::of(4, 8), "1,250 gangs of 4 anywhere", "kube-scheduler 492–630"),
        (
            9,
            Gang::of(1_000, 4).within("block"),
            "9 gangs of 1,000 in a block each",
            "kube-scheduler 615–975 scoring 5 racks, 67–224 scoring all 50",
        ),
        (9, Gang::of(1_000, 4), "9 gangs of 1,000 anywhere", "kube-scheduler 615–975"),
    ];
    for (gangs, gang, name, peer) in rows {
        eprintln!("throughput, {name} …");
        let mut world = World::new(5_000, 8, &[("block", 5), ("rack", 50)]);
        for _ in 0..gangs {
            world.submit(gang);
        }
        let cycled = world.cycle();
        let pods = number(cycled.starts()) * f64::from(gang.pods);
        let rate = pods / cycled.planning.as_secs_f64();
        figures.higher(format!("5,000 nodes, {name}: pods placed a second"), rate, "pods/s", 50_000.0, peer);
    }
    Ok(())
}

/// 4,000 nodes with 35 pods each.
fn crowded() -> World {
    let mut world = World::new(4_000, 35, &[("block", 40), ("rack", 200)]);
    for row in 0..46_667 {
        world.submit(Gang { minutes: 60 + row % 600, ..Gang::of(3, 1) });
    }
    world.settle();
    world
}

pub(crate) fn many_pods(_: &Traces, figures: &mut Figures) -> Result<()> {
    eprintln!("4,000 nodes, 140,000 pods …");
    let mut world = crowded();
    let running = number(world.running().len());
    let (mean, longest) = mean_and_max(&turnover(&mut world, Gang::of(3, 1), ROUNDS));
    let peer = format!("KAI 2,350 ms; {running:.0} gangs run here, longest cycle {longest:.2} ms");
    figures.lower("4,000 nodes, 140,000 pods, one gang ends and one comes: mean of a cycle", mean, "ms", 100.0, peer);
    let whole: Vec<Duration> = (0..20).map(|_| all_of(&turn(&mut world))).collect();
    let name = "the same with the checker and the state's update: mean of a cycle";
    figures.lower(name, mean_and_max(&whole).0, "ms", 100.0, "");
    Ok(())
}

fn turn(world: &mut World) -> Cycled {
    let running = world.running();
    world.end(running[running.len() / 2]);
    world.submit(Gang::of(3, 1));
    world.cycle()
}

fn all_of(cycled: &Cycled) -> Duration {
    cycled.planning + cycled.checking + cycled.applying
}

pub(crate) fn many_domains(_: &Traces, figures: &mut Figures) -> Result<()> {
    eprintln!("6,000 nodes, 9,600 domains …");
    let mut world = World::new(6_000, 8, &[("zone", 600), ("block", 3_000), ("host", 6_000)]);
    world.submit(Gang::of(1, 8));
    world.settle();
    let mut times = Vec::new();
    for pods in 2..52 {
        world.submit(Gang::of(pods, 8));
        times.push(world.cycle().planning);
    }
    let (mean, longest) = mean_and_max(&times);
    let peer = format!("Volcano 330 s, then a few s; longest here {longest:.2} ms");
    figures.lower("6,000 nodes, 9,600 domains, one new gang: mean of a cycle", mean, "ms", 20.0, peer);
    Ok(())
}

pub(crate) fn preemption(_: &Traces, figures: &mut Figures) -> Result<()> {
    eprintln!("2,000 nodes, 700 preemption candidates …");
    let mut world = World::new(2_000, 8, &[("block", 25), ("rack", 125)]);
    for row in 0..700u32 {
        world.submit(Gang { minutes: 600, ..Gang::of(if row < 600 { 3 } else { 2 }, 8) });
    }
    world.settle();
    let mut times = Vec::new();
    for round in 0..20 {
        let gang = Gang { priority: 100, minutes: 60, ..Gang::of(8 + round % 8, 8).within("rack") };
        let job = world.submit(gang);
        let cycled = world.cycle();
        times.push(cycled.planning);
        // The victims stay: only the decision is measured, again and again on the same cluster.
        let stopped: Vec<_> = cycled
            .plan
            .actions
            .iter()
            .filter(|a| matches!(a, berth_planner::plan::Action::Stop { .. }))
            .map(berth_planner::plan::Action::job)
            .collect();
        for victim in stopped {
            world.end(victim);
        }
        world.settle();
        world.end(job);
        for _ in 0..8 {
            world.submit(Gang { minutes: 600, ..Gang::of(3, 8) });
        }
        world.settle();
    }
    let (mean, longest) = mean_and_max(&times);
    let peer = format!("Kueue 40,000 ms; mean here {mean:.2} ms");
    figures.lower("2,000 full nodes, 700 candidates to preempt: longest decision", longest, "ms", 200.0, peer);
    Ok(())
}

/// One small change on clusters of growing size.
pub(crate) fn curve(_: &Traces, figures: &mut Figures) -> Result<()> {
    let mut means = Vec::new();
    for nodes in [500usize, 1_000, 5_000, 10_000, 50_000] {
        eprintln!("curve, {nodes} nodes …");
        let mut world = racks(nodes, nodes / 20);
        for _ in 0..nodes / 4 + 50 {
            world.submit(Gang { minutes: 600, ..Gang::of(4, 8) });
        }
        world.settle();
        turnover(&mut world, Gang::of(4, 8), 20);
        let (mean, longest) = mean_and_max(&turnover(&mut world, Gang::of(4, 8), ROUNDS));
        let peer = format!("full cluster, 50 gangs waiting; longest {longest:.2} ms");
        figures.lower(
            format!("curve: one gang ends and one comes on {nodes} nodes: mean of a cycle"),
            mean,
            "ms",
            20.0,
            peer,
        );
        means.push(mean);
    }
    let growth = means.last().copied().unwrap_or(0.0) / means.first().copied().unwrap_or(1.0);
    figures.lower(
        "curve: a hundred times the nodes cost so many times more",
        growth,
        "×",
        100.0,
        "100 would be in proportion",
    );
    Ok(())
}

/// Resident memory of a process that holds 5,000 nodes and 150,000 pods and has planned them.
pub(crate) fn memory(_: &Traces, figures: &mut Figures) -> Result<()> {
    eprintln!("memory …");
    let this = std::env::current_exe()?;
    let out = std::process::Command::new(this).arg("memory").output()?;
    let text = String::from_utf8(out.stdout)?;
    let mib: f64 = text.trim().parse().with_context(|| format!("{text:?} is no number of MiB"))?;
    figures.lower("5,000 nodes, 150,000 pods: peak resident memory", mib, "MiB", 1_024.0, "the mark is ours: one GiB");
    Ok(())
}

/// What the child of [`memory`] does: fills a cluster, turns it over, says its peak.
pub(crate) fn hold() -> Option<u64> {
    let mut world = World::new(5_000, 30, &[("block", 50), ("rack", 250)]);
    for row in 0..50_000 {
        world.submit(Gang { minutes: 60 + row % 600, ..Gang::of(3, 1) });
    }
    world.settle();
    turnover(&mut world, Gang::of(3, 1), 50);
    berth_simulator::replay::metrics::peak_rss_mib()
}
