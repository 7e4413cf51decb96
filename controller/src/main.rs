//! The controller's binary: parse, set up, run.

use anyhow::anyhow;
use clap::Parser;
use controller::args::Args;
use controller::{app, telemetry};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    // Before any connection: exactly one provider of cryptography in the process.
    rustls::crypto::ring::default_provider()
        .install_default()
        .map_err(|_| anyhow!("another provider of cryptography is in place already"))?;
    let args = Args::parse();
    let telemetry = telemetry::install(args.log_format, &args.log)?;
    let outcome = app::run(args, &telemetry).await;
    telemetry.flush();
    outcome
}
