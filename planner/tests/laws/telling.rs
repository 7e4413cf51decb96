//! Law 8: order-preserving names and the order of the inputs change nothing but the names, over whole runs.

use crate::support::build::Telling;
use crate::support::drive::{Planner, Sim};
use crate::support::law;
use crate::support::world::{Kind, World, world};

const PREFIX: &str = "zz~";

fn transcript(world: &World, telling: Telling, planner: Planner) -> Result<Vec<String>, String> {
    let mut sim = Sim::new(world, telling, planner);
    sim.transcript = Some(Vec::new());
    sim.run()?;
    Ok(sim.transcript.unwrap_or_default())
}

fn told_otherwise(world: &World, planner: Planner) -> Result<(), String> {
    let plain = transcript(world, Telling::default(), planner)?;
    let other = transcript(world, Telling { prefix: PREFIX, reversed: true }, planner)?;
    let other: Vec<String> = other.iter().map(|line| line.replace(PREFIX, "")).collect();
    match plain.iter().zip(&other).find(|(a, b)| a != b) {
        Some((a, b)) => Err(format!("law 8: told otherwise, {a} becomes {b}")),
        None if plain.len() != other.len() => Err("law 8: told otherwise, a run has another length".to_owned()),
        None => Ok(()),
    }
}

#[test]
fn names_and_the_order_of_inputs_change_nothing() {
    law("8, renaming and shuffling", 800, &world(Kind::SMALL), |w| told_otherwise(&w, berth_planner::plan));
    let silent = Kind { troubled: false, ..Kind::SMALL };
    law("8, renaming and shuffling, calm", 1200, &world(silent), |w| told_otherwise(&w, berth_planner::plan));
}
