//! The ssh keys of an Mpi job: made once, kept in a Secret that the job owns, never read back.

use crds::v1alpha1::{RendezvousKind, TrainingJob};
use k8s_openapi::api::core::v1::Secret;
use rcgen::{KeyPair, PKCS_ED25519, PublicKeyData};
use translate::lifecycle::ssh::{self, KeyPair as SshKeys};

/// Where RFC 8410 puts the 32 bytes of the private key in its PKCS #8 form.
const SEED: std::ops::Range<usize> = 16..48;

/// A Secret with fresh keys for a job that wants them; if one is there already, the server keeps that.
#[must_use]
pub(super) fn ssh_secret(job: &TrainingJob) -> Option<Secret> {
    if job.spec.rendezvous.kind != RendezvousKind::Mpi {
        return None;
    }
    let pair = KeyPair::generate_for(&PKCS_ED25519).ok()?;
    let private = pair.serialize_der();
    let seed: &[u8; 32] = private.get(SEED)?.try_into().ok()?;
    let public: &[u8; 32] = pair.der_bytes().try_into().ok()?;
    ssh::secret(job, SshKeys { seed, public }).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_mpi_job_gets_keys_that_differ_each_time_and_others_get_none() {
        let job = |kind: &str| -> TrainingJob {
            serde_json::from_value(serde_json::json!({
                "apiVersion": "berth.dev/v1alpha1", "kind": "TrainingJob",
                "metadata": {"name": "j", "namespace": "ns", "uid": "u"},
                "spec": {"rendezvous": {"kind": kind}, "roles": [{"name": "w", "replicas": 1, "template": {"spec": {"containers": []}}}]},
            }))
            .expect("a job")
        };
        assert!(ssh_secret(&job("Torch")).is_none());
        let (one, two) = (ssh_secret(&job("Mpi")).expect("keys"), ssh_secret(&job("Mpi")).expect("keys"));
        assert_ne!(one.data, two.data);
        assert_eq!(one.metadata.name.as_deref(), Some("j-ssh"));
    }
}
