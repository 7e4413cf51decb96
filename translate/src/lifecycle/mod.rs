//! The life of a job as pure questions: what follows when a pod ends, which roles may start, when a job has succeeded,
//! and every object that is made for it.

pub mod backoff;
pub mod environment;
pub mod failure;
pub mod naming;
pub mod objects;
pub mod pod;
pub mod ssh;
pub mod stages;
pub mod success;
