//! The webhook configurations: how the API server reaches us and whom it trusts. What it asks about is config/webhook's.

use crate::args::Args;
use anyhow::{Context, Result};
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ServiceReference, ValidatingWebhookConfiguration, WebhookClientConfig,
};
use kube::Client;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::fmt::Debug;

/// Path of validating reviews.
pub const VALIDATE: &str = "/validate";
/// Path of mutating reviews.
pub const MUTATE: &str = "/mutate";

/// How the API server reaches us.
#[derive(Clone, Debug)]
pub struct Reach {
    /// A URL, such as `https://127.0.0.1:9443`.
    pub url: Option<String>,
    /// Namespace of the Service.
    pub namespace: String,
    /// Name of the Service.
    pub service: String,
}

impl Reach {
    /// Host names and addresses that the server certificate must be for.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        let (service, namespace) = (&self.service, &self.namespace);
        let mut names = vec![format!("{service}.{namespace}.svc"), format!("{service}.{namespace}.svc.cluster.local")];
        names.extend(self.url.as_deref().and_then(host));
        names
    }

    /// How a webhook of that name is reached; none for one that is not ours.
    fn client(&self, webhook: &Value, bundle: &str) -> Result<Option<Value>> {
        let Some((_, path)) = PATHS.iter().find(|(name, _)| webhook == name) else { return Ok(None) };
        let service = ServiceReference {
            name: self.service.clone(),
            namespace: self.namespace.clone(),
            path: Some((*path).to_owned()),
            port: Some(443),
        };
        let client = WebhookClientConfig {
            ca_bundle: Some(ByteString(bundle.as_bytes().to_vec())),
            service: self.url.is_none().then_some(service),
            url: self.url.as_ref().map(|url| format!("{}{path}", url.trim_end_matches('/'))),
        };
        Ok(Some(serde_json::to_value(client)?))
    }
}

/// The host of a URL, without its port.
fn host(url: &str) -> Option<String> {
    let rest = url.strip_prefix("https://")?;
    let authority = rest.split('/').next()?;
    let host = match authority.strip_prefix('[') {
        Some(v6) => v6.split(']').next()?,
        None => authority.split(':').next()?,
    };
    (!host.is_empty()).then(|| host.to_owned())
}

/// Paths by name of the webhook, as config/webhook has them.
const PATHS: [(&str, &str); 2] = [("validate.berth.dev", VALIDATE), ("mutate.berth.dev", MUTATE)];

/// The configurations as they are installed.
const VALIDATING: &str = include_str!("../../config/webhook/validating.yaml");
const MUTATING: &str = include_str!("../../config/webhook/mutating.yaml");

/// An installed configuration under another name, reached as we are.
fn made<K: DeserializeOwned>(text: &str, name: &str, reach: &Reach, bundle: &str) -> Result<K> {
    let mut object: Value = serde_saphyr::from_str(text).context("failed to read our own webhook configuration")?;
    object["metadata"]["name"] = json!(name);
    for webhook in object["webhooks"].as_array_mut().into_iter().flatten() {
        if let Some(client) = reach.client(&webhook["name"], bundle)? {
            webhook["clientConfig"] = client;
        }
    }
    Ok(serde_json::from_value(object)?)
}

/// Writes what we are reached by and what is trusted into both configurations, if they differ. True if both are right.
///
/// # Errors
/// If the API server refuses.
pub async fn inject(client: &Client, args: &Args, reach: &Reach, bundle: &str) -> Result<bool> {
    let a = ensure::<ValidatingWebhookConfiguration>(client, args, VALIDATING, reach, bundle).await?;
    let b = ensure::<MutatingWebhookConfiguration>(client, args, MUTATING, reach, bundle).await?;
    Ok(a && b)
}

async fn ensure<K>(client: &Client, args: &Args, installed: &str, reach: &Reach, bundle: &str) -> Result<bool>
where
    K: kube::Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Serialize,
{
    let (api, name) = (Api::<K>::all(client.clone()), args.configuration.as_str());
    let Some(found) = api.get_opt(name).await.context("failed to read a webhook configuration")? else {
        if args.create_configuration {
            let wanted: K = made(installed, name, reach, bundle)?;
            api.create(&PostParams::default(), &wanted).await.context("failed to make a webhook configuration")?;
        }
        return Ok(args.create_configuration);
    };
    let operations = corrections(&serde_json::to_value(&found)?, reach, bundle)?;
    if !operations.is_empty() {
        let patch: Patch<()> = Patch::Json(serde_json::from_value(Value::Array(operations))?);
        api.patch(name, &PatchParams::default(), &patch).await.context("failed to correct a webhook configuration")?;
    }
    Ok(true)
}

/// What must change so that each webhook of a configuration is reached as wanted. Rules and policies are the
/// administrator's: only the client part is ours. The name of the webhook is tested, in case somebody re-orders them.
fn corrections(found: &Value, reach: &Reach, bundle: &str) -> Result<Vec<Value>> {
    let mut operations = Vec::new();
    for (row, webhook) in found["webhooks"].as_array().into_iter().flatten().enumerate() {
        let Some(right) = reach.client(&webhook["name"], bundle)? else { continue };
        if webhook["clientConfig"] != right {
            operations.push(json!({"op": "test", "path": format!("/webhooks/{row}/name"), "value": webhook["name"]}));
            operations.push(json!({"op": "replace", "path": format!("/webhooks/{row}/clientConfig"), "value": right}));
        }
    }
    Ok(operations)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mk_reach(url: Option<&str>) -> Reach {
        Reach { url: url.map(str::to_owned), namespace: "berth-system".into(), service: "berth-webhook".into() }
    }

    #[test]
    fn a_certificate_is_for_whatever_the_api_server_calls_us_by() {
        let of = |url| mk_reach(Some(url)).names().pop();
        assert_eq!(of("https://127.0.0.1:9443").as_deref(), Some("127.0.0.1"));
        assert_eq!(of("https://[::1]:9443/x").as_deref(), Some("::1"));
        assert_eq!(of("https://host.example/").as_deref(), Some("host.example"));
        assert_eq!(mk_reach(None).names()[0], "berth-webhook.berth-system.svc");
    }

    #[test]
    fn what_is_installed_is_reached_as_we_are_in_its_client_part_alone() {
        let installed: Value = serde_saphyr::from_str(VALIDATING).expect("yaml");
        let reach = mk_reach(Some("https://127.0.0.1:9443/"));
        let operations = corrections(&installed, &reach, "pem").expect("json");
        assert_eq!(operations.len(), 2);
        assert_eq!(operations[1]["path"], "/webhooks/0/clientConfig");
        assert_eq!(operations[1]["value"]["url"], "https://127.0.0.1:9443/validate");
        let right: ValidatingWebhookConfiguration = made(VALIDATING, "other", &reach, "pem").expect("reads");
        let right = serde_json::to_value(right).expect("json");
        assert_eq!(
            (&right["metadata"]["name"], corrections(&right, &reach, "pem").expect("json").len()),
            (&json!("other"), 0)
        );
        assert_eq!(corrections(&right, &reach, "renewed").expect("json").len(), 2);
    }

    #[test]
    fn every_installed_webhook_is_one_that_we_answer() {
        for text in [VALIDATING, MUTATING] {
            let installed: Value = serde_saphyr::from_str(text).expect("yaml");
            for webhook in installed["webhooks"].as_array().expect("a list") {
                let ours = mk_reach(None).client(&webhook["name"], "pem").expect("json").expect("is ours");
                let service = &webhook["clientConfig"]["service"];
                assert_eq!((&ours["service"]["path"], &ours["service"]["name"]), (&service["path"], &service["name"]));
            }
        }
    }
}
