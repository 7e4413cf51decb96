//! A control plane of `hack/plane` in a folder of its own. It is taken down when dropped, and by its guard when this
//! process is gone, however that ended.

use anyhow::{Context, Result, bail};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// Root of the repository.
#[must_use]
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().map_or_else(PathBuf::new, Path::to_path_buf)
}

/// A running control plane.
#[derive(Debug)]
pub struct Plane {
    dir: PathBuf,
    admin: PathBuf,
}

impl Plane {
    /// Brings one up, with our kinds in it; `name` tells test binaries apart.
    ///
    /// # Errors
    /// If a tool cannot be built or does not come up; the output of `hack/plane` is in the message.
    pub fn up(name: &str) -> Result<Self> {
        let dir = root().join("target/e2e").join(format!("{name}-{}", std::process::id()));
        std::fs::create_dir_all(&dir).with_context(|| format!("{} cannot be made", dir.display()))?;
        let mut plane = Self { dir, admin: PathBuf::new() };
        let owner = std::process::id().to_string();
        let crds = root().join("config/crd");
        let said = plane.run("up", &["--json", "--quiet", "--owner", &owner, "--crds", &crds.to_string_lossy()])?;
        let said: serde_json::Value = serde_json::from_str(said.trim()).context("hack/plane up --json")?;
        plane.admin = said["kubeconfig"].as_str().context("hack/plane up names no kubeconfig")?.into();
        Ok(plane)
    }

    /// Its folder.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The administrator's kubeconfig.
    #[must_use]
    pub fn admin(&self) -> &Path {
        &self.admin
    }

    /// `hack/plane VERB --dir … ARGS`; what it printed.
    ///
    /// # Errors
    /// If it fails.
    pub fn run(&self, verb: &str, args: &[&str]) -> Result<String> {
        run(Command::new(root().join("hack/plane")).arg(verb).arg("--dir").arg(&self.dir).args(args))
    }

    /// `hack/install-local`: everything of `config/default` but the Deployments.
    ///
    /// # Errors
    /// If the server refuses any of it.
    pub fn install(&self) -> Result<String> {
        run(Command::new(root().join("hack/install-local")).arg(&self.dir))
    }

    /// A kubeconfig with the rights of a service account of ours.
    ///
    /// # Errors
    /// If there is no such account.
    pub fn token(&self, account: &str) -> Result<PathBuf> {
        let out = self.dir.join(format!("{account}.kubeconfig"));
        let name = format!("{}/{account}", crds::names::NAMESPACE);
        self.run("token", &["--service-account", &name, "--out", &out.to_string_lossy()])?;
        Ok(out)
    }

    /// The administrator's client; clients belong to the runtime they are made in.
    ///
    /// # Errors
    /// If the kubeconfig does not read.
    pub async fn client(&self) -> Result<Client> {
        let kubeconfig = Kubeconfig::read_from(&self.admin)?;
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
        Ok(Client::try_from(config)?)
    }
}

impl Drop for Plane {
    fn drop(&mut self) {
        // The guard does it otherwise; the logs stay.
        let _ = self.run("down", &[]);
    }
}

/// Runs a command to its end; what it printed.
fn run(command: &mut Command) -> Result<String> {
    let output: Output = command.stdin(Stdio::null()).output().with_context(|| format!("{command:?}"))?;
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if !output.status.success() {
        bail!("{command:?} failed, {}:\n{out}{err}", output.status);
    }
    Ok(out.into_owned())
}
