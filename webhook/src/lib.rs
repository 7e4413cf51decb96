//! The admission webhook of Berth: the rules of `admission` behind TLS, over caches of the live cluster.
//!
//! It sees TrainingJobs, Queues and Topologies alone and only when their spec changes, so its death never blocks other
//! people's pods. It makes and rotates its own certificates, and writes its CA into its own configuration.

pub mod app;
pub mod args;
pub mod cache;
pub mod certs;
pub mod configuration;
pub mod live;
pub mod review;
pub mod rotation;
pub mod secret;
pub mod server;
