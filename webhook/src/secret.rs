//! The Secret that all webhooks share: read, made once, stepped on by whoever comes first.

use crate::certs::Signed;
use crate::rotation::{Material, Other};
use anyhow::{Context, Result};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, ObjectMeta, PostParams};
use std::collections::BTreeMap;

/// Times that a lost race is followed by another look, before it is an error.
const ATTEMPTS: usize = 8;

/// The material in force, after every step that is due. Of several webhooks one makes it and the others adopt it.
///
/// # Errors
/// If the API server does not answer, or the Secret holds something else.
pub async fn current(secrets: &Api<Secret>, name: &str, names: &[String], now: Timestamp) -> Result<Material> {
    for _ in 0..ATTEMPTS {
        let Some(secret) = secrets.get_opt(name).await.context("failed to read the Secret")? else {
            create(secrets, name, &Material::new(names, now)?).await?;
            continue;
        };
        // A Secret laid out by somebody, or by hand, is filled like one that is missing.
        let (material, next) = match decode(&secret) {
            Some(material) => (Some(material.clone()), material.step(names, now)?),
            None => (None, Some(Material::new(names, now)?)),
        };
        match (material, next) {
            (Some(material), None) => return Ok(material),
            (_, Some(next)) => replace(secrets, name, secret, &next).await?,
            (None, None) => {}
        }
    }
    anyhow::bail!("the Secret {name} changed under every one of {ATTEMPTS} attempts")
}

async fn create(secrets: &Api<Secret>, name: &str, material: &Material) -> Result<()> {
    let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
    let secret = Secret { metadata, data: Some(encode(material)), ..Secret::default() };
    lost_race_is_fine(secrets.create(&PostParams::default(), &secret).await.map(drop))
}

async fn replace(secrets: &Api<Secret>, name: &str, mut secret: Secret, material: &Material) -> Result<()> {
    // The version that was read goes along, so that only one writer wins.
    secret.data = Some(encode(material));
    lost_race_is_fine(secrets.replace(name, &PostParams::default(), &secret).await.map(drop))
}

fn lost_race_is_fine(outcome: kube::Result<()>) -> Result<()> {
    match outcome {
        Err(kube::Error::Api(status)) if status.is_conflict() || status.is_already_exists() => Ok(()),
        other => other.context("failed to write the Secret"),
    }
}

fn encode(material: &Material) -> BTreeMap<String, ByteString> {
    let mut data = BTreeMap::new();
    let mut put = |name: &str, text: String| data.insert(name.to_owned(), ByteString(text.into_bytes()));
    let mut signed = |prefix: &str, signed: &Signed| {
        put(&format!("{prefix}.crt"), signed.cert.clone());
        put(&format!("{prefix}.key"), signed.key.clone());
        put(&format!("{prefix}.ends"), signed.ends.to_string());
    };
    signed("ca", &material.ca);
    signed("tls", &material.server);
    if let Some(other) = &material.other {
        signed("other-ca", &other.ca);
        put("other-ca.made", other.made.to_string());
        put("other-ca.since", other.since.to_string());
        put("other-ca.successor", other.successor.to_string());
    }
    put("ca.made", material.ca_made.to_string());
    put("tls.names", material.names.join("\n"));
    data
}

fn decode(secret: &Secret) -> Option<Material> {
    let data = secret.data.as_ref()?;
    let text = |name: &str| String::from_utf8(data.get(name)?.0.clone()).ok();
    let moment = |name: &str| text(name)?.parse::<Timestamp>().ok();
    let signed = |prefix: &str| {
        Some(Signed {
            cert: text(&format!("{prefix}.crt"))?,
            key: text(&format!("{prefix}.key"))?,
            ends: moment(&format!("{prefix}.ends"))?,
        })
    };
    let other = match signed("other-ca") {
        None => None,
        Some(ca) => Some(Other {
            ca,
            made: moment("other-ca.made")?,
            since: moment("other-ca.since")?,
            successor: text("other-ca.successor")?.parse().ok()?,
        }),
    };
    Some(Material {
        ca: signed("ca")?,
        ca_made: moment("ca.made")?,
        other,
        server: signed("tls")?,
        names: text("tls.names")?.lines().map(str::to_owned).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn material_survives_the_secret_and_anything_else_is_not_taken_for_it() {
        let now = Timestamp::from_second(1_796_064_000).expect("a moment");
        let mut material = Material::new(&["a".to_owned(), "127.0.0.1".to_owned()], now).expect("makes");
        let other = crate::certs::new_ca(now).expect("makes");
        for keep in [None, Some(Other { ca: other, made: now, since: now, successor: true })] {
            material.other = keep;
            let secret = Secret { data: Some(encode(&material)), ..Secret::default() };
            assert_eq!(decode(&secret), Some(material.clone()));
        }
        let mut broken = encode(&material);
        broken.remove("tls.key");
        assert_eq!(decode(&Secret { data: Some(broken), ..Secret::default() }), None);
        assert_eq!(decode(&Secret::default()), None);
    }
}
