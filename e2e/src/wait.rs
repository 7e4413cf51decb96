//! Waiting by condition: a watch that ends when what is looked at satisfies it, or with what was seen last.

use anyhow::{Result, bail};
use futures::{StreamExt, pin_mut};
use kube::api::Api;
use kube::runtime::{WatchStreamExt, watcher, watcher::Event};
use kube::{Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::time::Duration;

/// Long enough for a busy machine; conditions that hold are seen at once.
pub const PATIENCE: Duration = Duration::from_secs(90);

/// Objects by name.
pub type Objects<K> = BTreeMap<String, K>;

/// Waits until the objects that `config` selects satisfy `done`, and returns them.
///
/// # Errors
/// If they do not within [`PATIENCE`]; the message says `what` was waited for and what was seen last.
pub async fn until<K>(
    api: Api<K>,
    config: watcher::Config,
    what: &str,
    mut done: impl FnMut(&Objects<K>) -> bool,
) -> Result<Objects<K>>
where
    K: Resource + Clone + DeserializeOwned + Serialize + Debug + Send + 'static,
{
    let mut seen: Objects<K> = BTreeMap::new();
    let watch = async {
        let events = watcher(api, config).default_backoff();
        pin_mut!(events);
        let (mut fresh, mut listed) = (BTreeMap::new(), false);
        while let Some(event) = events.next().await {
            match event {
                Ok(Event::Init) => fresh.clear(),
                Ok(Event::InitApply(object)) => drop(fresh.insert(object.name_any(), object)),
                Ok(Event::InitDone) => (seen, listed) = (std::mem::take(&mut fresh), true),
                Ok(Event::Apply(object)) => drop(seen.insert(object.name_any(), object)),
                Ok(Event::Delete(object)) => drop(seen.remove(&object.name_any())),
                // The watcher tries again by itself.
                Err(_) => continue,
            }
            if listed && done(&seen) {
                return;
            }
        }
    };
    let ended = tokio::time::timeout(PATIENCE, watch).await;
    match ended {
        Ok(()) => Ok(seen),
        Err(_) => bail!("not within {PATIENCE:?}: {what}. Seen last:\n{}", describe(&seen)),
    }
}

/// One line for each object: its name and status.
fn describe<K: Resource + Serialize>(objects: &Objects<K>) -> String {
    let line = |(name, object): (&String, &K)| {
        let value = serde_json::to_value(object).unwrap_or_default();
        let leaving = object.meta().deletion_timestamp.as_ref().map_or("", |_| " (being deleted)");
        let node = value["spec"]["nodeName"].as_str().unwrap_or_default();
        format!("  {name}{leaving} {node} {}", value["status"].to_string().chars().take(1200).collect::<String>())
    };
    if objects.is_empty() { "  nothing".to_owned() } else { objects.iter().map(line).collect::<Vec<_>>().join("\n") }
}
