//! `spec.policy`: the knobs of the controller's configuration that a scenario may set.

use super::length::Length;
use planner::Span;
use planner::policy::Policy;
use serde::Deserialize;

/// Knobs; absent ones keep the controller's defaults, but for what a simulated clock changes.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Knobs {
    /// Half-life of decayed use.
    pub share_half_life: Option<Length>,
    /// Length of a cycle; delays nothing here.
    pub cycle: Option<Length>,
    /// Most reservations in all.
    pub max_reservations: Option<u32>,
    /// By how much higher priorities may move a promise in all.
    pub max_postponement: Option<Length>,
    /// Victims that all end within this are waited for.
    pub wait_instead_of_kill: Option<Length>,
    /// Between two changes of size of one job (0 here).
    pub resize_interval: Option<Length>,
    /// Steps of the packing search.
    pub search_limit: Option<u32>,
    /// Whether jobs may be stopped for others.
    pub preemption: Option<bool>,
    /// Whether private schedules are kept.
    pub private_schedules: Option<bool>,
    /// Accepted for completeness: a scenario loses nodes at once.
    pub node_lost_after: Option<Length>,
    /// Accepted for completeness: pods start at once.
    pub accept_timeout: Option<Length>,
    /// Accepted for completeness: pods start at once.
    pub stage_timeout: Option<Length>,
}

impl Knobs {
    /// The planner's policy.
    #[must_use]
    pub fn policy(&self) -> Policy {
        let standard = Policy { resize_interval: Span::ZERO, ..Policy::standard() };
        let span = |given: Option<Length>, default: Span| given.map_or(default, |l| l.0);
        Policy {
            share_half_life: span(self.share_half_life, standard.share_half_life),
            cycle: span(self.cycle, standard.cycle),
            max_reservations: self.max_reservations.unwrap_or(standard.max_reservations),
            max_postponement: span(self.max_postponement, standard.max_postponement),
            wait_instead_of_kill: span(self.wait_instead_of_kill, standard.wait_instead_of_kill),
            resize_interval: span(self.resize_interval, standard.resize_interval),
            search_limit: self.search_limit.unwrap_or(standard.search_limit),
            preemption: self.preemption.unwrap_or(standard.preemption),
            private_schedules: self.private_schedules.unwrap_or(standard.private_schedules),
            ..standard
        }
    }
}
