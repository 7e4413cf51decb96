//! The world of a test binary: one control plane with everything of `config/default`, the webhook and the controller as
//! processes with their service accounts' rights, and the namespaces of stories.

use crate::plane::Plane;
use crate::process::{self, Component};
use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Node;
use kube::Client;
use kube::api::{Api, DynamicObject, PostParams};
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Mutex;

/// A component may have to compile its caches on a busy machine before it is ready.
const READY: Duration = Duration::from_secs(120);

/// Environment variables of components, and their values.
pub type Settings = &'static [(&'static str, &'static str)];

/// What stories share.
pub struct World {
    /// The administrator's client.
    pub client: Client,
    /// The controller; stories that kill it run alone.
    pub controller: Mutex<Component>,
    /// The webhook.
    pub webhook: Mutex<Component>,
    /// Port of the controller's metrics.
    pub metrics: u16,
    /// What components are told beside the usual.
    settings: Settings,
    /// The control plane; ends last.
    pub plane: Arc<Plane>,
}

impl World {
    /// Brings everything up.
    ///
    /// # Errors
    /// If a part does not come up; its output is in the message.
    pub async fn up(name: &str) -> Result<Self> {
        Self::up_with(name, &[]).await
    }

    /// The same with settings of its own for the components: names of environment variables and their values.
    ///
    /// # Errors
    /// If a part does not come up; its output is in the message.
    pub async fn up_with(name: &str, settings: Settings) -> Result<Self> {
        // 1. The control plane, while the binaries are brought up to date.
        let owned = name.to_owned();
        let plane = tokio::task::spawn_blocking(move || Plane::up(&owned));
        let built = tokio::task::spawn_blocking(process::build);
        built.await??;
        let plane = Arc::new(plane.await??);
        // 2. Everything a cluster gets, but the Deployments.
        let [hook, hook_health, metrics] = [process::free_port()?, process::free_port()?, process::free_port()?];
        plane.install()?;
        // 3. The components, each with its own rights.
        let mut webhook = component(
            &plane,
            crds::names::WEBHOOK_ACCOUNT,
            hook_health,
            &[("BERTH_WEBHOOK_LISTEN", hook), ("BERTH_WEBHOOK_HEALTH", hook_health)],
            settings,
        )?;
        let listen = [("BERTH_LISTEN", metrics)];
        let mut controller = component(&plane, crds::names::CONTROLLER_ACCOUNT, metrics, &listen, settings)?;
        webhook.start()?;
        controller.start()?;
        webhook.ready(READY).await?;
        controller.ready(READY).await?;
        let client = plane.client().await?;
        Ok(Self { client, controller: Mutex::new(controller), webhook: Mutex::new(webhook), metrics, settings, plane })
    }

    /// Another replica of the controller, not started yet, and the port of its metrics.
    ///
    /// # Errors
    /// If there is no port for it.
    pub fn replica(&self) -> Result<(Component, u16)> {
        let port = process::free_port()?;
        let listen = [("BERTH_LISTEN", port)];
        Ok((component(&self.plane, crds::names::CONTROLLER_ACCOUNT, port, &listen, self.settings)?, port))
    }

    /// Creates any object; kind and namespace are read from it.
    ///
    /// # Errors
    /// The server's refusal, as it is.
    pub async fn create(&self, object: &Value) -> Result<DynamicObject> {
        self.create_with(object, &PostParams::default()).await
    }

    /// Asks whether an object would be created.
    ///
    /// # Errors
    /// The server's refusal, as it is.
    pub async fn would_create(&self, object: &Value) -> Result<DynamicObject> {
        self.create_with(object, &PostParams { dry_run: true, ..PostParams::default() }).await
    }

    async fn create_with(&self, object: &Value, params: &PostParams) -> Result<DynamicObject> {
        let object: DynamicObject = serde_json::from_value(object.clone())?;
        let types = object.types.clone().context("an object has a kind")?;
        let gvk = kube::core::GroupVersionKind::try_from(&types)?;
        let plural = match types.kind.as_str() {
            "PriorityClass" => "priorityclasses".to_owned(),
            "Topology" => "topologies".to_owned(),
            kind => format!("{}s", kind.to_lowercase()),
        };
        let resource = kube::core::ApiResource::from_gvk_with_plural(&gvk, &plural);
        let api: Api<DynamicObject> = match &object.metadata.namespace {
            Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, &resource),
            None => Api::all_with(self.client.clone(), &resource),
        };
        Ok(api.create(params, &object).await?)
    }

    /// Nodes.
    #[must_use]
    pub fn nodes(&self) -> Api<Node> {
        Api::all(self.client.clone())
    }

    /// Ends the controller as a crash would, and starts it again.
    ///
    /// # Errors
    /// If it does not come back.
    pub async fn crash_controller(&self) -> Result<()> {
        let mut controller = self.controller.lock().await;
        controller.kill();
        controller.start()?;
        controller.ready(READY).await
    }

    /// Starts the controller again whenever it ends by itself, as a kubelet would: it does when a busy machine costs it
    /// its Lease. Ends when dropped.
    #[must_use]
    pub fn keep_controller(self: &Arc<Self>) -> Keeper {
        let world = Arc::downgrade(self);
        Keeper(tokio::spawn(async move {
            while let Some(world) = world.upgrade() {
                let ended = world.controller.lock().await.ended();
                // Whoever kills it on purpose holds the lock until it is up again.
                ended.await;
                match world.controller.lock().await.revive() {
                    Ok(true) => eprintln!("        the controller had ended by itself; it is started again"),
                    Ok(false) => {}
                    Err(error) => return eprintln!("{error:#}"),
                }
            }
        }))
    }

    /// What the components logged last about `word`.
    pub async fn logs(&self, word: &str) -> String {
        let mut all = String::new();
        for component in [&self.controller, &self.webhook] {
            let component = component.lock().await;
            let log = component.log();
            all += &format!("--- {} about {word}\n{}\n", log.display(), process::tail(log, word, 60));
            all += &format!("--- its warnings\n{}\n", process::tail(log, "WARN", 15));
        }
        all
    }
}

/// Keeps the controller running until dropped.
pub struct Keeper(tokio::task::JoinHandle<()>);

impl Drop for Keeper {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A component with its service account's rights; short terms, so that a killed leader is followed soon.
fn component(
    plane: &Plane,
    name: &'static str,
    health: u16,
    ports: &[(&str, u16)],
    own: Settings,
) -> Result<Component> {
    let kubeconfig = plane.token(name)?;
    let url = format!("https://127.0.0.1:{}", ports[0].1);
    let env = [
        ("BERTH_WEBHOOK_URL", &*url),
        ("KUBECONFIG", &*kubeconfig.to_string_lossy()),
        ("BERTH_NAMESPACE", crds::names::NAMESPACE),
        ("BERTH_LOG", "info,berth=debug,controller=debug,webhook=debug"),
        ("BERTH_LEASE_SECONDS", "20"),
        ("BERTH_WRITE_SECONDS", "8"),
        ("BERTH_NODE_LOST_AFTER", "2"),
        ("BERTH_ACCEPT_TIMEOUT", "60"),
        ("BERTH_STAGE_TIMEOUT", "60"),
        ("BERTH_WEBHOOK_LOOK_SECONDS", "1"),
        ("BERTH_RESIZE_INTERVAL", "5s"),
        ("NO_COLOR", "1"),
    ];
    // The last of a name counts.
    let settings = env.iter().chain(own).map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    let listening = ports.iter().map(|(key, port)| ((*key).to_owned(), format!("127.0.0.1:{port}")));
    Ok(Component::new(name, plane.dir(), health, settings.chain(listening).collect()))
}
