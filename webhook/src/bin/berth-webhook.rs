//! The binary: reads its settings, chooses the crypto provider, runs.

use anyhow::{Result, anyhow};
use clap::Parser;
use webhook::app;
use webhook::args::Args;

#[tokio::main]
async fn main() -> Result<()> {
    let args = Args::parse();
    app::start_logs(&args)?;
    rustls::crypto::ring::default_provider()
        .install_default()
        .map_err(|_| anyhow!("another crypto provider was installed before ours"))?;
    app::run(args).await
}
