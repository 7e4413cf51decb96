//! The keys of an Mpi job in the files that ssh reads. The key itself is made by whoever has a source of randomness.

use super::naming;
use super::objects::owned;
use crate::error::TranslateError;
use crds::v1alpha1::TrainingJob;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use std::collections::BTreeMap;

const KIND: &[u8] = b"ssh-ed25519";
const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// An ed25519 key pair: 32 bytes each.
#[derive(Clone, Copy)]
pub struct KeyPair<'a> {
    /// The private part.
    pub seed: &'a [u8; 32],
    /// The public part that belongs to it.
    pub public: &'a [u8; 32],
}

/// The Secret with a job's keys, under the names that ssh looks for in a home directory.
///
/// # Errors
/// If the job was never stored.
pub fn secret(job: &TrainingJob, keys: KeyPair<'_>) -> Result<Secret, TranslateError> {
    let name = job.metadata.name.as_deref().unwrap_or_default();
    let public = public_line(keys.public);
    // Pods of one gang are replaced under the same names with new host keys, so names are not tied to keys.
    let config = "Host *\n  StrictHostKeyChecking no\n  UserKnownHostsFile /dev/null\n  LogLevel ERROR\n";
    let files = [
        ("id_ed25519", private_file(keys)),
        ("id_ed25519.pub", public.clone()),
        ("authorized_keys", public),
        ("config", config.to_owned()),
    ];
    let data: BTreeMap<String, ByteString> =
        files.into_iter().map(|(name, text)| (name.to_owned(), ByteString(text.into_bytes()))).collect();
    Ok(Secret {
        metadata: owned(job, naming::ssh_name(name))?,
        data: Some(data),
        type_: Some("Opaque".to_owned()),
        ..Secret::default()
    })
}

fn public_line(public: &[u8; 32]) -> String {
    format!("ssh-ed25519 {}\n", base64(&public_blob(public)))
}

fn public_blob(public: &[u8]) -> Vec<u8> {
    let mut blob = Vec::new();
    string(&mut blob, KIND);
    string(&mut blob, public);
    blob
}

/// OpenSSH's own format, without a passphrase.
fn private_file(keys: KeyPair<'_>) -> String {
    let mut inner = Vec::new();
    // The same number twice shows a reader that it decrypted rightly; nothing is encrypted here.
    inner.extend_from_slice(&[0; 8]);
    string(&mut inner, KIND);
    string(&mut inner, keys.public);
    let both: Vec<u8> = keys.seed.iter().chain(keys.public).copied().collect();
    string(&mut inner, &both);
    string(&mut inner, b"");
    let mut pad = 1u8;
    while inner.len() % 8 != 0 {
        inner.push(pad);
        pad += 1;
    }
    let mut file = b"openssh-key-v1\0".to_vec();
    string(&mut file, b"none");
    string(&mut file, b"none");
    string(&mut file, b"");
    file.extend_from_slice(&1u32.to_be_bytes());
    string(&mut file, &public_blob(keys.public));
    string(&mut file, &inner);
    let text = base64(&file);
    let lines: Vec<&str> =
        text.as_bytes().chunks(70).map(|line| std::str::from_utf8(line).unwrap_or_default()).collect();
    format!("-----BEGIN OPENSSH PRIVATE KEY-----\n{}\n-----END OPENSSH PRIVATE KEY-----\n", lines.join("\n"))
}

fn string(to: &mut Vec<u8>, bytes: &[u8]) {
    to.extend_from_slice(&u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_be_bytes());
    to.extend_from_slice(bytes);
}

fn base64(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let word = chunk.iter().fold(0u32, |word, byte| word << 8 | u32::from(*byte)) << (8 * (3 - chunk.len()));
        for place in 0..4 {
            let digit = ALPHABET[(word >> (18 - 6 * place) & 63) as usize];
            text.push(if place <= chunk.len() { char::from(digit) } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::tests::mk_job;
    use serde_json::json;

    #[test]
    fn base64_is_the_usual_one() {
        for (bytes, want) in [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")] {
            assert_eq!(base64(bytes.as_bytes()), want);
        }
    }

    #[test]
    fn the_secret_has_the_files_that_ssh_looks_for() {
        let (seed, public) = ([1u8; 32], [2u8; 32]);
        let secret = secret(&mk_job(json!({})), KeyPair { seed: &seed, public: &public }).expect("stored");
        let data = secret.data.expect("has some");
        assert_eq!(data.keys().collect::<Vec<_>>(), ["authorized_keys", "config", "id_ed25519", "id_ed25519.pub"]);
        let line = String::from_utf8(data["id_ed25519.pub"].0.clone()).expect("text");
        assert!(line.starts_with("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI"), "{line}");
    }
}
