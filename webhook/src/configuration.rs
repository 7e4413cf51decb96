//! The webhook configurations: what the API server asks us about. One source for the objects in `config/` and for those
//! made at run time.

use anyhow::{Context, Result};
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{
    MatchCondition, MutatingWebhook, MutatingWebhookConfiguration, RuleWithOperations, ServiceReference,
    ValidatingWebhook, ValidatingWebhookConfiguration, WebhookClientConfig,
};
use kube::Client;
use kube::api::{Api, ObjectMeta, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

/// Longest time that the API server waits for us.
pub const TIMEOUT_SECS: i32 = 10;
/// Path of validating reviews.
pub const VALIDATE: &str = "/validate";
/// Path of mutating reviews.
pub const MUTATE: &str = "/mutate";
const VALIDATE_NAME: &str = "validate.berth.dev";
const MUTATE_NAME: &str = "mutate.berth.dev";

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

    fn client(&self, path: &str, bundle: Option<&str>) -> WebhookClientConfig {
        let service = ServiceReference {
            name: self.service.clone(),
            namespace: self.namespace.clone(),
            path: Some(path.to_owned()),
            port: Some(443),
        };
        WebhookClientConfig {
            ca_bundle: bundle.map(|b| ByteString(b.as_bytes().to_vec())),
            service: self.url.is_none().then_some(service),
            url: self.url.as_ref().map(|url| format!("{}{path}", url.trim_end_matches('/'))),
        }
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

fn rule(operations: &[&str], resources: &[&str]) -> RuleWithOperations {
    let texts = |all: &[&str]| Some(all.iter().map(|t| (*t).to_owned()).collect());
    RuleWithOperations {
        api_groups: texts(&[crds::v1alpha1::GROUP]),
        api_versions: texts(&[crds::v1alpha1::VERSION]),
        operations: texts(operations),
        resources: texts(resources),
        scope: Some("*".to_owned()),
    }
}

/// The controller's own writes are never reviewed, and changes only where they touch the spec or who made the object.
fn conditions(controller_user: &str) -> Vec<MatchCondition> {
    let user = |object: &str| {
        let notes = format!("{object}.metadata.annotations");
        format!("(has({notes}) && 'berth.dev/user' in {notes} ? {notes}['berth.dev/user'] : '')")
    };
    let changed = format!(
        "request.operation != 'UPDATE' || object.spec != oldObject.spec || {} != {}",
        user("object"),
        user("oldObject")
    );
    let condition = |name: &str, expression: String| MatchCondition { name: name.to_owned(), expression };
    vec![
        condition("not-the-controller", format!("request.userInfo.username != '{controller_user}'")),
        condition("spec-changes", changed),
    ]
}

/// The validating configuration.
#[must_use]
pub fn validating(
    name: &str,
    reach: &Reach,
    controller_user: &str,
    bundle: Option<&str>,
) -> ValidatingWebhookConfiguration {
    let webhook = ValidatingWebhook {
        name: VALIDATE_NAME.to_owned(),
        admission_review_versions: vec!["v1".to_owned()],
        client_config: reach.client(VALIDATE, bundle),
        failure_policy: Some("Fail".to_owned()),
        match_policy: Some("Equivalent".to_owned()),
        match_conditions: Some(conditions(controller_user)),
        rules: Some(vec![
            rule(&["CREATE", "UPDATE"], &["trainingjobs", "queues", "topologies"]),
            rule(&["DELETE"], &["queues", "topologies"]),
        ]),
        side_effects: "None".to_owned(),
        timeout_seconds: Some(TIMEOUT_SECS),
        ..ValidatingWebhook::default()
    };
    ValidatingWebhookConfiguration { metadata: named(name), webhooks: Some(vec![webhook]) }
}

/// The mutating configuration.
#[must_use]
pub fn mutating(
    name: &str,
    reach: &Reach,
    controller_user: &str,
    bundle: Option<&str>,
) -> MutatingWebhookConfiguration {
    let webhook = MutatingWebhook {
        name: MUTATE_NAME.to_owned(),
        admission_review_versions: vec!["v1".to_owned()],
        client_config: reach.client(MUTATE, bundle),
        failure_policy: Some("Fail".to_owned()),
        match_policy: Some("Equivalent".to_owned()),
        match_conditions: Some(conditions(controller_user).into_iter().take(1).collect()),
        reinvocation_policy: Some("Never".to_owned()),
        rules: Some(vec![rule(&["CREATE"], &["trainingjobs"])]),
        side_effects: "None".to_owned(),
        timeout_seconds: Some(TIMEOUT_SECS),
        ..MutatingWebhook::default()
    };
    MutatingWebhookConfiguration { metadata: named(name), webhooks: Some(vec![webhook]) }
}

fn named(name: &str) -> ObjectMeta {
    ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() }
}

/// Both as YAML, for `config/`.
///
/// # Errors
/// If they cannot be written.
pub fn yaml(name: &str, reach: &Reach, controller_user: &str) -> Result<String> {
    let validating = serde_saphyr::to_string(&validating(name, reach, controller_user, None))?;
    let mutating = serde_saphyr::to_string(&mutating(name, reach, controller_user, None))?;
    Ok(format!("# Generated by `berth-webhook --print-configuration`. Do not edit.\n{validating}---\n{mutating}"))
}

/// Writes what we are reached by and what is trusted into both configurations, if they differ. True if both are right.
///
/// # Errors
/// If the API server refuses.
pub async fn inject(client: &Client, args: &crate::args::Args, reach: &Reach, bundle: &str) -> Result<bool> {
    let name = args.configuration.as_str();
    let (user, bundle) = (args.controller_user.as_str(), Some(bundle));
    let validating = validating(name, reach, user, bundle);
    let mutating = mutating(name, reach, user, bundle);
    let a = ensure(&Api::all(client.clone()), name, &validating, args.create_configuration).await?;
    let b = ensure(&Api::all(client.clone()), name, &mutating, args.create_configuration).await?;
    Ok(a && b)
}

async fn ensure<K>(api: &Api<K>, name: &str, wanted: &K, create: bool) -> Result<bool>
where
    K: kube::Resource + Clone + std::fmt::Debug + serde::de::DeserializeOwned + serde::Serialize,
{
    let Some(found) = api.get_opt(name).await.context("failed to read a webhook configuration")? else {
        if create {
            api.create(&PostParams::default(), wanted).await.context("failed to make a webhook configuration")?;
        }
        return Ok(create);
    };
    let (found, wanted) = (serde_json::to_value(&found)?, serde_json::to_value(wanted)?);
    let operations = corrections(&found, &wanted);
    if !operations.is_empty() {
        let patch: Patch<()> = Patch::Json(serde_json::from_value(Value::Array(operations))?);
        api.patch(name, &PatchParams::default(), &patch).await.context("failed to correct a webhook configuration")?;
    }
    Ok(true)
}

/// What must change so that each webhook of a configuration is reached as wanted. Rules and policies are the
/// administrator's: only the client part is ours. The name of the webhook is tested, in case somebody re-orders them.
fn corrections(found: &Value, wanted: &Value) -> Vec<Value> {
    let webhooks = |object: &Value| object["webhooks"].as_array().cloned().unwrap_or_default();
    let wanted = webhooks(wanted);
    let mut operations = Vec::new();
    for (row, webhook) in webhooks(found).iter().enumerate() {
        let Some(right) = wanted.iter().find(|w| w["name"] == webhook["name"]) else { continue };
        if webhook["clientConfig"] != right["clientConfig"] {
            operations.push(json!({"op": "test", "path": format!("/webhooks/{row}/name"), "value": webhook["name"]}));
            let path = format!("/webhooks/{row}/clientConfig");
            operations.push(json!({"op": "replace", "path": path, "value": right["clientConfig"]}));
        }
    }
    operations
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mk_reach(url: Option<&str>) -> Reach {
        Reach { url: url.map(str::to_owned), namespace: "berth-system".into(), service: "berth-webhook".into() }
    }

    #[test]
    fn both_configurations_see_our_kinds_alone() {
        insta::assert_snapshot!(yaml("berth", &mk_reach(None), crds::names::CONTROLLER_USER).expect("writes"));
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
    fn only_the_client_part_is_corrected_and_only_if_it_differs() {
        let value = |url, bundle| serde_json::to_value(validating("berth", &mk_reach(url), "c", bundle)).expect("json");
        let (installed, right) = (value(None, None), value(Some("https://127.0.0.1:9443"), Some("pem")));
        let operations = corrections(&installed, &right);
        assert_eq!(operations.len(), 2);
        assert_eq!(operations[1]["path"], "/webhooks/0/clientConfig");
        assert_eq!(operations[1]["value"]["url"], "https://127.0.0.1:9443/validate");
        assert_eq!(corrections(&right, &right), Vec::<Value>::new());
    }
}
