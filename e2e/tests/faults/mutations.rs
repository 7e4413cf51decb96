//! Every invariant can fail: the protocol is broken on purpose, and the auditor must say so, by the right law.

use super::clock::run;
use super::figures;
use berth_e2e::fake_api::Faults;
use berth_e2e::world::World;
use berth_e2e::world::chance::live;
use berth_e2e::world::objects::{foreign_pod, job, phase};
use berth_e2e::world::scenes::Stage;
use berth_e2e::world::sweep::play;
use controller::sabotage::{SABOTAGES, Sabotage, set};

/// The first violation of a law while the protocol is broken this way.
fn caught(way: Sabotage) -> Option<String> {
    set(Some(way));
    let (law, found) = match way {
        Sabotage::SkipJournal => ("I3", stage(Stage::Start)),
        Sabotage::StopHalf => ("I1", stage(Stage::Delete)),
        Sabotage::ReleaseEarly => ("I2", stage(Stage::Preempt)),
        Sabotage::BlindToOthers => ("I2", beside_others()),
        Sabotage::NoAdoption => ("I4", stage(Stage::Start)),
        Sabotage::NoUid => ("I4", stage(Stage::Delete)),
        Sabotage::NoFence => ("I4", super::leadership::stale_writes_without_a_policy()),
        Sabotage::NoCause => ("I5", seeds("I5")),
        Sabotage::StatusEveryTurn => ("I6", stage(Stage::Start)),
    };
    set(None);
    found.into_iter().find(|v| v.contains(&format!("VIOLATION {law}:")))
}

fn stage(stage: Stage) -> Vec<String> {
    run(play(stage, Faults::default(), false)).violations
}

/// Lives by a seed until one breaks a law.
fn seeds(law: &str) -> Vec<String> {
    let lives = (0..200).map(|seed| run(live(seed, false)).violations);
    lives.into_iter().find(|all| all.iter().any(|v| v.contains(law))).unwrap_or_default()
}

/// A job comes to a cluster whose nodes others hold.
fn beside_others() -> Vec<String> {
    run(async {
        let world = World::new(1);
        world.furnish(4);
        for at in 0..4 {
            world.create_as("kube-scheduler", &foreign_pod(&format!("x{at}"), &format!("n{at}"), 6));
        }
        world.replicas.start("r0");
        world.pass(20).await;
        world.create(&job("{name: j, roles: [{replicas: 2}]}"));
        world.until(60, |s| phase(s, "j") == "Running").await;
        let ledger = world.ledger();
        ledger.violations().to_vec()
    })
}

#[test]
fn every_way_to_break_the_protocol_is_caught() {
    let mut missed = Vec::new();
    for way in SABOTAGES {
        match caught(way) {
            Some(violation) => println!("{way:?}: {}", violation.trim()),
            None => missed.push(way),
        }
    }
    figures::note("mutations", SABOTAGES.len() as u64);
    figures::note("mutations_caught", (SABOTAGES.len() - missed.len()) as u64);
    assert!(missed.is_empty(), "not caught: {missed:?}");
}
