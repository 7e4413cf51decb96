//! Queue use within a cycle, against the numbers and cases of the field.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)] // the lints are for code outside tests
#![allow(unreachable_pub)]

mod decay;
mod fair;
mod limits;
mod order;
mod reclaim;
mod reports;
mod shares;
mod users;
mod world;
