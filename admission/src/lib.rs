//! What Berth refuses, and why: pure rules over a picture of the cluster, used by the webhook and by the simulator.
//!
//! Two kinds of rules: the CRDs' own (one object alone, in CEL; the API server judges by them first), and those that need
//! the live queues, topologies and nodes. What could never run is refused; what only cannot run now is accepted with a
//! warning. Every refusal names field, value and remedy.

mod capacity;
pub mod defaults;
mod job;
mod queue;
mod rules;
pub mod surroundings;
mod topology;
mod verdict;
mod world;

pub use capacity::Capacity;
pub use defaults::Defaults;
pub use job::{JobChange, validate as validate_training_job};
pub use queue::{validate as validate_queue, validate_delete as validate_queue_delete};
pub use topology::{validate as validate_topology, validate_delete as validate_topology_delete};
pub use verdict::{Missing, Rejection, Verdict};
pub use world::{JobFacts, NamespaceFacts, World};
