//! A fault at every call of every stage.

use super::World;
use super::scenes::Stage;
use crate::fake_api::Faults;

/// What came of one life.
#[derive(Clone, Debug)]
pub struct Life {
    /// Calls while trouble could come.
    pub calls: u64,
    /// Faults that came true.
    pub hits: u64,
    /// What was violated.
    pub violations: Vec<String>,
    /// A number that differs when the story does.
    pub hash: u64,
    /// The story, if something was violated.
    pub story: String,
}

/// Plays a stage with faults at these calls; `keep` keeps its story in any case.
pub async fn play(stage: Stage, faults: Faults, keep: bool) -> Life {
    let world = World::new(1);
    let (calls, hits) = stage.play(&world, faults).await;
    let ledger = world.ledger();
    let violations = ledger.violations().to_vec();
    let story = if keep || !violations.is_empty() { ledger.story() } else { String::new() };
    Life { calls, hits, violations, hash: ledger.hash(), story }
}
