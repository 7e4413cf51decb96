//! The life of one job: from its objects alone, what is to be done next. Pure but for reading the picture; every answer
//! is the same whoever asks and however often, so that a crash anywhere changes nothing.

pub(crate) mod claims;
mod failing;
mod keys;
mod leaving;
mod limits;
mod look;
mod pods;
mod step;

pub use leaving::stop_for;
pub use look::{Fate, Look, SeatLook, has_started, look};
pub use pods::{Making, attempt_for, attempts, making};
pub use step::{Step, Verdict, grace_seconds, next, restart_backoff};
