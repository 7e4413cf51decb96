//! The planner's policy from the command line or the environment: the same names as `policy` in scenarios.

use clap::Args;
use crds::Duration;
use planner::Span;
use planner::policy::Policy;
use translate::time::span;

/// How the cluster is planned. What is absent is as [`Policy::standard`] has it.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Policy")]
pub struct Knobs {
    /// Half-life of use in the order of queues; 0s: present use only [default: 24h]
    #[arg(long, env = "BERTH_SHARE_HALF_LIFE", value_name = "DURATION")]
    pub share_half_life: Option<Duration>,
    /// Most reservations in all, in global order [default: 1000]
    #[arg(long, env = "BERTH_MAX_RESERVATIONS", value_name = "N")]
    pub max_reservations: Option<u32>,
    /// By how much higher priorities may move a promise in all [default: 24h]
    #[arg(long, env = "BERTH_MAX_POSTPONEMENT", value_name = "DURATION")]
    pub max_postponement: Option<Duration>,
    /// Victims that all end within this are waited for [default: 5m]
    #[arg(long, env = "BERTH_WAIT_INSTEAD_OF_KILL", value_name = "DURATION")]
    pub wait_instead_of_kill: Option<Duration>,
    /// Between two changes of size of one job [default: 1m]
    #[arg(long, env = "BERTH_RESIZE_INTERVAL", value_name = "DURATION")]
    pub resize_interval: Option<Duration>,
    /// Steps of the packing search after which it says so and gives up [default: 20000]
    #[arg(long, env = "BERTH_SEARCH_LIMIT", value_name = "STEPS")]
    pub search_limit: Option<u32>,
    /// Whether jobs may be stopped for others [default: true]
    #[arg(long, env = "BERTH_PREEMPTION", value_name = "BOOL")]
    pub preemption: Option<bool>,
    /// Whether each queue is never worse off than alone on its guarantee [default: true]
    #[arg(long, env = "BERTH_PRIVATE_SCHEDULES", value_name = "BOOL")]
    pub private_schedules: Option<bool>,
}

impl Knobs {
    /// The planner's policy.
    #[must_use]
    pub fn policy(&self) -> Policy {
        let standard = Policy::standard();
        let length = |given: Option<Duration>, default: Span| given.map_or(default, span);
        Policy {
            share_half_life: length(self.share_half_life, standard.share_half_life),
            max_reservations: self.max_reservations.unwrap_or(standard.max_reservations),
            max_postponement: length(self.max_postponement, standard.max_postponement),
            wait_instead_of_kill: length(self.wait_instead_of_kill, standard.wait_instead_of_kill),
            resize_interval: length(self.resize_interval, standard.resize_interval),
            search_limit: self.search_limit.unwrap_or(standard.search_limit),
            preemption: self.preemption.unwrap_or(standard.preemption),
            private_schedules: self.private_schedules.unwrap_or(standard.private_schedules),
            ..standard
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::args::Args;
    use clap::Parser;
    use planner::Span;
    use planner::policy::Policy;

    #[test]
    fn without_flags_the_policy_is_the_standing_one() {
        let args = Args::parse_from(["berth-controller"]);
        assert_eq!(args.knobs.policy(), Policy::standard());
    }

    #[test]
    fn a_flag_changes_its_knob_alone_and_is_written_as_in_manifests() {
        let args = Args::parse_from(["berth-controller", "--share-half-life", "1h30m", "--preemption", "false"]);
        let expected = Policy { share_half_life: Span::from_secs(5400), preemption: false, ..Policy::standard() };
        assert_eq!(args.knobs.policy(), expected);
    }

    #[test]
    fn a_length_in_days_is_refused_with_what_would_be_accepted() {
        let refused = Args::try_parse_from(["berth-controller", "--max-postponement", "2d"]);
        let text = refused.err().map(|e| e.to_string()).unwrap_or_default();
        assert!(text.contains("--max-postponement") && text.contains("2d"), "{text}");
    }
}
