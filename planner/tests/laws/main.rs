//! The planner's laws over random clusters, each shown able to fail.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)] // the lints are for code outside tests
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
