//! A fault at every call of every stage; `BERTH_SWEEP=full` (`make sweep`) plays all points, a plain run every fifth.

use super::clock::{run, side_by_side};
use super::figures;
use berth_e2e::fake_api::faults::FAULTS;
use berth_e2e::fake_api::{Fault, Faults};
use berth_e2e::world::scenes::{STAGES, Stage};
use berth_e2e::world::sweep::{Life, play};

/// A plain run plays one point of so many.
const SHARE: u64 = 5;

fn points() -> Vec<(Stage, u64, Fault)> {
    let full = std::env::var("BERTH_SWEEP").is_ok_and(|v| v == "full");
    let mut all = Vec::new();
    for stage in STAGES {
        let calls = run(play(stage, Faults::default(), false)).calls;
        for call in 0..calls {
            for (at, fault) in FAULTS.into_iter().enumerate() {
                if full || (call + at as u64).is_multiple_of(SHARE) {
                    all.push((stage, call, fault));
                }
            }
        }
    }
    all
}

#[test]
fn one_fault_at_any_call_of_any_stage_breaks_no_promise() {
    let points = points();
    let lives: Vec<Life> =
        side_by_side(&points, |(stage, call, fault)| run(play(*stage, Faults::at([(*call, *fault)]), false)));
    let broken: Vec<_> = points.iter().zip(&lives).filter(|(_, life)| !life.violations.is_empty()).collect();
    figures::table(&points, &lives);
    for ((stage, call, fault), life) in &broken {
        figures::keep_story(&format!("{}-{call}-{}", stage.name(), fault.name()), life);
    }
    let all: Vec<String> = broken
        .iter()
        .map(|((stage, call, fault), life)| {
            format!("{} {call} {}: {}", stage.name(), fault.name(), life.violations.join("; "))
        })
        .collect();
    figures::note("points", points.len() as u64);
    figures::note("stages", STAGES.len() as u64);
    figures::note("faults", FAULTS.len() as u64);
    figures::note("point_violations", broken.len() as u64);
    assert!(all.is_empty(), "{} of {} points:\n{}", all.len(), points.len(), all.join("\n"));
}

#[test]
fn the_same_faults_tell_the_same_story_to_the_byte() {
    for stage in STAGES {
        let life = |_| run(play(stage, Faults::by_chance(120, FAULTS.to_vec()), true));
        let (one, two) = (life(1), life(2));
        if one.hash != two.hash {
            let differs = one.story.lines().zip(two.story.lines()).find(|(a, b)| a != b);
            panic!("{}: {differs:#?}", stage.name());
        }
    }
}
