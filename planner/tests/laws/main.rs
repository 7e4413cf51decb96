//! The planner's laws over random clusters, each shown able to fail.
#![allow(unreachable_pub)]

#[path = "../support/mod.rs"]
mod support;

mod calm;
mod checker;
mod checker_victims;
mod mutants;
mod order;
mod runs;
mod telling;
