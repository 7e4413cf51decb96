//! Wiring: client, caches, certificates, servers. One task each.

use crate::args::{Args, LogFormat};
use crate::cache::Cache;
use crate::configuration::{self, Reach};
use crate::rotation::Material;
use crate::server::{self, Shared};
use anyhow::{Context, Result};
use axum_server::Handle;
use axum_server::tls_rustls::RustlsConfig;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::jiff::Timestamp;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How often while something is missing or went wrong.
const RETRY_EVERY: Duration = Duration::from_secs(2);
/// How long requests under way may take when we are told to stop.
const DRAIN: Duration = Duration::from_secs(10);

/// Runs the webhook until it is told to stop.
///
/// # Errors
/// If it cannot start.
pub async fn run(args: Args) -> Result<()> {
    let reach = Reach { url: args.url.clone(), namespace: args.namespace.clone(), service: args.service.clone() };
    let client = connect(&args).await?;
    let cache = Cache::new(&args.namespace);
    let mut watches = cache.watch(&client);
    let shared = Shared {
        cache,
        client: client.clone(),
        injected: Arc::new(AtomicBool::new(false)),
        controller_user: args.controller_user.as_str().into(),
    };
    let plain = Handle::new();
    let health = tokio::spawn(
        axum_server::bind(args.health).handle(plain.clone()).serve(server::health(shared.clone()).into_make_service()),
    );
    let material = first_material(&client, &args, &reach).await;
    let tls =
        RustlsConfig::from_pem(material.server.cert.clone().into_bytes(), material.server.key.clone().into_bytes())
            .await
            .context("failed to load our own certificate")?;
    let keeper = tokio::spawn(keep(client, args.clone(), reach, material, tls.clone(), shared.injected.clone()));
    let handle = Handle::new();
    tokio::spawn(stop(vec![handle.clone(), plain]));
    tracing::info!(listen = %args.listen, health = %args.health, "serving");
    let outcome = axum_server::bind_rustls(args.listen, tls)
        .handle(handle)
        .serve(server::reviews(shared).into_make_service())
        .await
        .with_context(|| format!("failed to serve on {}", args.listen));
    keeper.abort();
    health.abort();
    watches.shutdown().await;
    outcome
}

/// A client by the kubeconfig that is named, else by what is around.
async fn connect(args: &Args) -> Result<Client> {
    let config = match &args.kubeconfig {
        Some(path) => {
            let file = Kubeconfig::read_from(path).with_context(|| format!("failed to read {}", path.display()))?;
            Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?
        }
        None => Config::infer().await.context("no cluster is around; name a --kubeconfig")?,
    };
    Ok(Client::try_from(config)?)
}

/// The certificates to begin with; tried until the API server lets us.
async fn first_material(client: &Client, args: &Args, reach: &Reach) -> Material {
    loop {
        match material(client, args, reach).await {
            Ok(material) => return material,
            Err(error) => tracing::warn!(error = format!("{error:#}"), "no certificates yet"),
        }
        tokio::time::sleep(RETRY_EVERY).await;
    }
}

async fn material(client: &Client, args: &Args, reach: &Reach) -> Result<Material> {
    let secrets: Api<Secret> = Api::namespaced(client.clone(), &args.namespace);
    crate::secret::current(&secrets, &args.secret, &reach.names(), Timestamp::now()).await
}

/// Keeps certificates fresh and the configurations true, for ever. What is trusted is written before what it signs is
/// served, and both long before anything ends.
async fn keep(
    client: Client,
    args: Args,
    reach: Reach,
    mut served: Material,
    tls: RustlsConfig,
    injected: Arc<AtomicBool>,
) {
    loop {
        let pause = match freshen(&client, &args, &reach, &mut served, &tls).await {
            Ok(true) => {
                if !injected.swap(true, Ordering::Relaxed) {
                    tracing::info!("the webhook configurations name us, and trust what we serve");
                }
                args.look_every()
            }
            Ok(false) => RETRY_EVERY,
            Err(error) => {
                tracing::warn!(error = format!("{error:#}"), "certificates were not looked after; tried again");
                RETRY_EVERY
            }
        };
        tokio::time::sleep(pause).await;
    }
}

async fn freshen(
    client: &Client,
    args: &Args,
    reach: &Reach,
    served: &mut Material,
    tls: &RustlsConfig,
) -> Result<bool> {
    let now = material(client, args, reach).await?;
    let injected = configuration::inject(client, args, reach, &now.bundle()).await?;
    if now.server != served.server {
        tls.reload_from_pem(now.server.cert.clone().into_bytes(), now.server.key.clone().into_bytes())
            .await
            .context("failed to load a renewed certificate")?;
        tracing::info!(ends = %now.server.ends, "serving with a renewed certificate");
    }
    *served = now;
    Ok(injected)
}

async fn stop(handles: Vec<Handle<SocketAddr>>) {
    let interrupt = tokio::signal::ctrl_c();
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        match signal(SignalKind::terminate()) {
            Ok(mut terminate) => {
                tokio::select! { _ = interrupt => {}, _ = terminate.recv() => {} }
            }
            Err(_) => {
                let _ = interrupt.await;
            }
        }
    }
    #[cfg(not(unix))]
    let _ = interrupt.await;
    tracing::info!("stopping");
    for handle in handles {
        handle.graceful_shutdown(Some(DRAIN));
    }
}

/// Sets logs up.
///
/// # Errors
/// If the filter cannot be read.
pub fn start_logs(args: &Args) -> Result<()> {
    let filter = tracing_subscriber::EnvFilter::try_new(&args.log).context("failed to read --log")?;
    let logs = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let set = match args.log_format {
        LogFormat::Text => logs.try_init(),
        LogFormat::Json => logs.json().try_init(),
    };
    set.map_err(|error| anyhow::anyhow!("failed to start logs: {error}"))
}
