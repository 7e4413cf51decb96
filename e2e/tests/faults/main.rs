//! The real controller in worlds on a virtual clock: every fault at every call, and I1 to I6 at every step.
#![allow(clippy::print_stdout)] // a sweep's table is what it is run for

mod admitted;
mod clock;
mod figures;
mod leadership;
mod mutations;
mod pinned;
mod points;
mod seeds;
mod stages;
mod volumes;
