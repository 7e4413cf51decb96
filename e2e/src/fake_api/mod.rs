//! A small API server in this process, with the semantics that Berth relies on: resourceVersion, uid, generation, list and
//! watch with bookmarks and 410, stale writes, preconditions, grace, finalizers, quota, and the fencing policy. The real
//! controller talks to it through an ordinary `kube::Client`.
//!
//! - [`kinds`]: which kinds there are and how they behave.
//! - [`store`]: objects by key, one version for all, a log of changes.
//! - [`verbs`]: what each verb means; no I/O, no time of its own.
//! - [`admission`]: what is refused or filled in before it is stored.
//! - [`watch`]: the stream of changes after a version.
//! - [`http`]: requests and answers as the client knows them.
//! - [`faults`]: what goes wrong with a call.
//!
//! `tests/conformance.rs` compares it with a real API server.

pub mod admission;
pub mod faults;
pub mod http;
pub mod kinds;
pub mod rng;
pub mod status;
pub mod store;
pub mod verbs;
pub mod watch;

pub use faults::{Fault, Faults};
pub use http::{FakeApi, Line};
pub use kinds::Kind;
pub use rng::Rng;
pub use store::{Change, Key, Store, What};
pub use verbs::{Call, Server, Verb};
