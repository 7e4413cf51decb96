//! Settings of the webhook, from the command line or the environment.

use clap::{Parser, ValueEnum};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// How logs look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// For people.
    Text,
    /// For machines.
    Json,
}

/// The admission webhook of Berth: what can never run is refused, with the reason.
#[derive(Clone, Debug, Parser)]
#[command(name = "berth-webhook", version, about)]
pub struct Args {
    /// Where reviews are served, by TLS.
    #[arg(long, env = "BERTH_WEBHOOK_LISTEN", default_value = "0.0.0.0:9443")]
    pub listen: SocketAddr,
    /// Where /healthz and /readyz are served, without TLS.
    #[arg(long, env = "BERTH_WEBHOOK_HEALTH", default_value = "0.0.0.0:8081")]
    pub health: SocketAddr,
    /// How the API server reaches us, such as https://127.0.0.1:9443. Absent: by the Service.
    #[arg(long, env = "BERTH_WEBHOOK_URL")]
    pub url: Option<String>,
    /// A kubeconfig file. Absent: the environment's, else the service account's.
    #[arg(long)]
    pub kubeconfig: Option<PathBuf>,
    /// The namespace that Berth runs in.
    #[arg(long, env = "BERTH_NAMESPACE", default_value = crds::names::NAMESPACE)]
    pub namespace: String,
    /// The Service by which the API server reaches us.
    #[arg(long, env = "BERTH_WEBHOOK_SERVICE", default_value = crds::names::WEBHOOK_SERVICE)]
    pub service: String,
    /// The Secret that holds our certificates.
    #[arg(long, env = "BERTH_WEBHOOK_SECRET", default_value = crds::names::WEBHOOK_SECRET)]
    pub secret: String,
    /// Name of the webhook configurations, validating and mutating.
    #[arg(long, env = "BERTH_WEBHOOK_CONFIGURATION", default_value = crds::names::WEBHOOK_CONFIGURATION)]
    pub configuration: String,
    /// The user whose writes are never reviewed.
    #[arg(long, env = "BERTH_CONTROLLER_USER", default_value = crds::names::CONTROLLER_USER)]
    pub controller_user: String,
    /// Make the webhook configurations where they do not exist yet, instead of waiting for them.
    #[arg(long, env = "BERTH_WEBHOOK_CREATE_CONFIGURATION")]
    pub create_configuration: bool,
    /// How often certificates and configurations are looked at, in seconds: far below the hour that two CAs overlap.
    #[arg(long, env = "BERTH_WEBHOOK_LOOK_SECONDS", default_value_t = 60)]
    pub look_seconds: u64,
    /// How logs look.
    #[arg(long, env = "BERTH_LOG_FORMAT", value_enum, default_value = "text")]
    pub log_format: LogFormat,
    /// Which logs are written, as tracing's filters say it.
    #[arg(long, env = "BERTH_LOG", default_value = "info")]
    pub log: String,
}

impl Args {
    /// How often certificates and configurations are looked at.
    #[must_use]
    pub fn look_every(&self) -> Duration {
        Duration::from_secs(self.look_seconds.max(1))
    }
}
