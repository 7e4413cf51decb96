//! The binary: reads its settings, chooses the crypto provider, runs.

use anyhow::{Result, anyhow};
use clap::Parser;
use webhook::app;
use webhook::args::Args;
use webhook::configuration::{self, Reach};

#[tokio::main]
async fn main() -> Result<()> {
    let args = Args::parse();
    if args.print_configuration {
        let reach = Reach { url: args.url.clone(), namespace: args.namespace.clone(), service: args.service.clone() };
        #[allow(clippy::print_stdout)]
        {
            print!("{}", configuration::yaml(&args.configuration, &reach, &args.controller_user)?);
        }
        return Ok(());
    }
    app::start_logs(&args)?;
    rustls::crypto::ring::default_provider()
        .install_default()
        .map_err(|_| anyhow!("another crypto provider was installed before ours"))?;
    app::run(args).await
}
