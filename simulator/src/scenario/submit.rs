//! Submissions and edits as the API server judges them: schema, the CRD's own rules, then admission.

use super::store::Store;
use crds::TrainingJob;
use crds::cel::Rules;
use serde_json::Value;

/// Why a submission or an edit was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// One of the closed table.
    pub code: String,
    /// In words.
    pub message: String,
}

/// The judge.
pub struct Gate {
    rules: Rules,
}

impl Default for Gate {
    fn default() -> Self {
        Self { rules: Rules::of::<TrainingJob>() }
    }
}

impl Gate {
    /// Judges a manifest; `old` is the stored job it changes.
    ///
    /// # Errors
    /// If it is refused.
    pub fn judge(&self, store: &Store, manifest: &Value, old: Option<&TrainingJob>) -> Result<TrainingJob, Refusal> {
        let job: TrainingJob = serde_path_to_error::deserialize(manifest.clone()).map_err(|e| Refusal {
            code: crds::Code::InvalidSpec.as_str().to_owned(),
            message: format!("{}: {}", e.path(), e.inner()),
        })?;
        if let Some(broken) = self.rules.broken(&job, old).first() {
            return Err(Refusal {
                code: crds::Code::InvalidSpec.as_str().to_owned(),
                message: format!("{}: {}", broken.field, broken.message),
            });
        }
        admit(store, &job, old)?;
        Ok(job)
    }
}

/// Cluster-dependent rules.
fn admit(_store: &Store, job: &TrainingJob, _old: Option<&TrainingJob>) -> Result<(), Refusal> {
    translate::job::asks(job)
        .map(|_| ())
        .map_err(|e| Refusal { code: e.fault.code().as_str().to_owned(), message: e.to_string() })
}
