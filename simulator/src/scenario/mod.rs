//! Scenarios: one YAML file of manifests and a timeline, run through the production planner under a virtual clock.
//!
//! Data flow: [`document`] (text → documents) → [`input`] and [`shorthand`] (documents → objects and timeline) →
//! [`run()`]: a [`store`] of objects as an API server would hold them, an [`operator`] that keeps the planner's state by
//! them as the controller does, and [`life`], the truth about how long jobs really run → [`event`]s and [`report`].

pub mod brackets;
pub mod document;
pub mod event;
pub mod gantt;
pub mod input;
pub mod knobs;
pub mod length;
pub mod life;
pub mod operator;
pub mod report;
pub mod run;
pub mod shorthand;
pub mod store;
pub mod submit;
pub mod timeline;

pub use document::InputError;
pub use input::Scenario;
pub use report::RunReport;
pub use run::run;
