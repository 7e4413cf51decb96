//! The stages of a gang's life.

use super::clock::run;
use berth_e2e::fake_api::Faults;
use berth_e2e::world::scenes::STAGES;
use berth_e2e::world::sweep::play;

#[test]
fn every_stage_reaches_its_goal_when_nothing_goes_wrong() {
    for stage in STAGES {
        let life = run(play(stage, Faults::default(), true));
        println!("{}: {} calls, hash {:x}", stage.name(), life.calls, life.hash);
        assert!(life.violations.is_empty(), "{}\n{:?}", life.story, life.violations);
    }
}
