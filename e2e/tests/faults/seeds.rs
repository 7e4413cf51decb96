//! Whole lives by a seed. `BERTH_SEEDS` says how many (CI: 1,000), `BERTH_FIRST_SEED` from where, `BERTH_SEED` replays one
//! and tells its story; `BERTH_SEED_HOURS` goes on for that long.

use super::clock::{run, side_by_side};
use super::figures;
use berth_e2e::world::chance::live;
use std::time::{Duration, Instant};

/// A plain run's share; CI sets its own.
const SHARE: u64 = 100;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn no_life_breaks_a_promise() {
    if let Some(seed) = number("BERTH_SEED") {
        let life = run(live(seed, true));
        println!("{}", life.story);
        assert!(life.violations.is_empty(), "seed {seed}: {:#?}", life.violations);
        return;
    }
    let (first, share) = (number("BERTH_FIRST_SEED").unwrap_or(0), number("BERTH_SEEDS").unwrap_or(SHARE));
    let until = Instant::now() + Duration::from_secs(3600 * number("BERTH_SEED_HOURS").unwrap_or(0));
    let (mut next, mut broken, mut faults) = (first, Vec::new(), 0);
    loop {
        let seeds: Vec<u64> = (next..next + share).collect();
        let lives = side_by_side(&seeds, |seed| run(live(*seed, false)));
        for (seed, life) in seeds.iter().zip(&lives) {
            faults += life.hits;
            if !life.violations.is_empty() {
                figures::keep_story(&format!("seed-{seed}"), life);
                broken.push(format!("seed {seed}: {}", life.violations.join("; ")));
            }
        }
        next += share;
        if Instant::now() >= until {
            break;
        }
    }
    println!("{} lives from seed {first} on, {faults} faults, {} broke a promise", next - first, broken.len());
    figures::note("seeds", next - first);
    figures::note("seed_violations", broken.len() as u64);
    assert!(broken.is_empty(), "replay one with BERTH_SEED=N:\n{}", broken.join("\n"));
}

#[test]
fn a_seed_tells_the_same_story_to_the_byte() {
    for seed in 0..6 {
        let (one, two) = (run(live(seed, true)), run(live(seed, true)));
        let differs = one.story.lines().zip(two.story.lines()).find(|(a, b)| a != b);
        assert_eq!(one.hash, two.hash, "seed {seed}: {differs:#?}");
    }
}
