//! Stories on a real API server: a control plane, the controller and the webhook as real processes with their own
//! service accounts' rights, and what a user of each story would see.
//!
//! - [`fake_api`]: an API server in this process, for worlds with a virtual clock.
//! - [`plane`]: a control plane of `hack/plane`, gone when the test process is.
//! - [`process`]: the controller and the webhook as child processes.
//! - [`harness`]: all of it together, once for each test binary.
//! - [`story`]: a namespace, a queue, a pool of nodes and a topology of its own for each story.
//! - [`settled`]: whether a real cluster has come to rest as promised.
//! - [`job`]: a short way to write jobs.
//! - [`wait`]: waiting by condition, never by time.
//! - [`world`]: whole clusters on a virtual clock over [`fake_api`], with every fault at every call.
//! - [`runner`]: runs stories side by side, and those that disturb others alone.

pub mod fake_api;
pub mod harness;
pub mod job;
pub mod plane;
pub mod process;
pub mod runner;
pub mod settled;
pub mod story;
pub mod wait;
pub mod world;

pub use harness::World;
pub use story::{Shape, Story};
