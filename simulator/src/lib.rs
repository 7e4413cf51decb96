//! The simulator: scenarios and trace replays through the production planner under a virtual clock.
//!
//! Same input, same output, byte for byte: no clock (planner timings of a replay excepted), no randomness but seeds
//! from the command line. Nothing here decides anything about jobs; every decision is a plan's.

pub mod brain;
pub mod number;
pub mod replay;
pub mod scenario;
pub mod svg;
pub mod topology;
pub mod trace;
