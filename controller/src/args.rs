//! Settings of the controller, from the command line or the environment.

use crate::knobs::Knobs;
use crate::telemetry::LogFormat;
use clap::Parser;
use planner::Span;
use std::net::SocketAddr;
use std::time::Duration;

/// The controller of Berth: gangs start whole, in their domain, within their queue's quota, or not at all.
#[derive(Clone, Debug, Parser)]
#[command(name = "berth-controller", version, about)]
pub struct Args {
    /// Where /healthz, /readyz and /metrics are served.
    #[arg(long, env = "BERTH_LISTEN", default_value = "0.0.0.0:8080")]
    pub listen: SocketAddr,
    /// Namespace of the Lease.
    #[arg(long, env = "BERTH_NAMESPACE", default_value = crds::names::NAMESPACE)]
    pub namespace: String,
    /// Our name in the Lease; the host name and process id if absent.
    #[arg(long, env = "BERTH_IDENTITY")]
    pub identity: Option<String>,
    /// Lead without a Lease. Only where no second controller can exist.
    #[arg(long, env = "BERTH_NO_LEASE")]
    pub no_lease: bool,
    /// How long a renewal of the Lease lasts, in seconds.
    #[arg(long, env = "BERTH_LEASE_SECONDS", default_value_t = 30)]
    pub lease_seconds: u64,
    /// Time limit of one write to the API server, in seconds; less than half of the Lease's.
    #[arg(long, env = "BERTH_WRITE_SECONDS", default_value_t = 10)]
    pub write_seconds: u64,
    /// Writes under way at once. Fewer leave an API server idle between a write and the next, or let others' requests
    /// take the turn of a gang's; more only make every answer late. Its priority and fairness shares it out.
    #[arg(long, env = "BERTH_CONCURRENCY", default_value_t = 96)]
    pub concurrency: usize,
    /// Operations (starts, stops and the like) under way at once; the others wait in order.
    #[arg(long, env = "BERTH_OPERATIONS", default_value_t = 16)]
    pub operations: usize,
    /// Pause after a change before planning, to take what comes with it along, in milliseconds.
    #[arg(long, env = "BERTH_DEBOUNCE_MS", default_value_t = 50)]
    pub debounce_ms: u64,
    /// How long a node may be silent before what runs on it counts as lost, in seconds.
    #[arg(long, env = "BERTH_NODE_LOST_AFTER", default_value_t = 300)]
    pub node_lost_after_seconds: u64,
    /// How long a kubelet may take to accept a pod, in seconds.
    #[arg(long, env = "BERTH_ACCEPT_TIMEOUT", default_value_t = 120)]
    pub accept_timeout_seconds: u64,
    /// How long a stage of dependsOn may take to be ready, in seconds.
    #[arg(long, env = "BERTH_STAGE_TIMEOUT", default_value_t = 600)]
    pub stage_timeout_seconds: u64,
    /// Milliseconds of each second that may be spent on what would start the waiting jobs, and when; 0: nothing is asked.
    #[arg(long, env = "BERTH_WHAT_IF_MS", default_value_t = 50)]
    pub what_if_ms: u64,
    /// How logs look.
    #[arg(long, env = "BERTH_LOG_FORMAT", value_enum, default_value = "text")]
    pub log_format: LogFormat,
    /// Which logs are written, as tracing's filters say it.
    #[arg(long, env = "BERTH_LOG", default_value = "info")]
    pub log: String,
    /// How the cluster is planned.
    #[command(flatten)]
    pub knobs: Knobs,
}

impl Args {
    /// Time limit of one write.
    #[must_use]
    pub fn write_limit(&self) -> Duration {
        Duration::from_secs(self.write_seconds)
    }

    /// Our name: unique among all processes that may ever lead.
    #[must_use]
    pub fn identity(&self) -> String {
        self.identity.clone().unwrap_or_else(|| {
            let host = std::env::var("HOSTNAME").unwrap_or_else(|_| "berth".to_owned());
            format!("{host}-{}-{}", std::process::id(), k8s_openapi::jiff::Timestamp::now().as_millisecond())
        })
    }
}

/// Settings that meanings depend on.
#[derive(Clone, Debug)]
pub struct Settings {
    /// How long a node may be silent before what runs on it counts as lost.
    pub node_lost_after: Span,
    /// How long a kubelet may take to accept a pod.
    pub accept_timeout: Span,
    /// How long a stage of dependsOn may take to be ready.
    pub stage_timeout: Span,
}

/// Whole seconds; more than a clock counts is for ever.
fn span(seconds: u64) -> Span {
    Span::from_secs(i64::try_from(seconds).unwrap_or(i64::MAX).min(i64::MAX / 1_000_000))
}

impl Args {
    /// Settings that meanings depend on.
    #[must_use]
    pub fn settings(&self) -> Settings {
        Settings {
            node_lost_after: span(self.node_lost_after_seconds),
            accept_timeout: span(self.accept_timeout_seconds),
            stage_timeout: span(self.stage_timeout_seconds),
        }
    }
}
