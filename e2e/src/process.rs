//! A component of Berth as a child process: its binary from the target folder, its log in a file, its life ended with ours.

use crate::plane::root;
use anyhow::{Context, Result, bail};
use std::fs::{File, OpenOptions};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// A port nobody uses at this moment.
///
/// # Errors
/// If there is none.
pub fn free_port() -> Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// Folder of binaries to use as they are, instead of building those of this checkout.
const BINARIES: &str = "BERTH_BINARIES";

/// Builds the binaries; nothing to do where they are current.
///
/// # Errors
/// If they do not build.
pub fn build() -> Result<()> {
    if std::env::var_os(BINARIES).is_some() {
        return Ok(());
    }
    // The same command as in hack/test, so that it finds everything built.
    let packages = ["--workspace", "--bins"];
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let status = Command::new(cargo).current_dir(root()).args(["build", "-q"]).args(packages).status()?;
    if !status.success() {
        bail!("the controller and the webhook do not build");
    }
    Ok(())
}

/// Folder of the binaries: that of the test that runs, without `deps`.
fn binaries() -> Result<PathBuf> {
    if let Some(folder) = std::env::var_os(BINARIES) {
        return Ok(folder.into());
    }
    let me = std::env::current_exe()?;
    let folder = me.ancestors().find(|p| p.join("deps").is_dir()).context("no target folder above this test")?;
    Ok(folder.to_owned())
}

/// A component that can be started, killed and started again.
#[derive(Debug)]
pub struct Component {
    name: &'static str,
    env: Vec<(String, String)>,
    log: PathBuf,
    health: u16,
    running: Option<Running>,
}

#[derive(Debug)]
struct Running {
    child: Child,
    /// Closed when we end, which ends the reaper's wait, which ends the child.
    _reaper: Option<ChildStdin>,
}

impl Component {
    /// A component that does not run yet; `/readyz` is at port `health`.
    #[must_use]
    pub fn new(name: &'static str, dir: &Path, health: u16, env: Vec<(String, String)>) -> Self {
        Self { name, env, log: dir.join(format!("{name}.log")), health, running: None }
    }

    /// Where it logs.
    #[must_use]
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// Starts it.
    ///
    /// # Errors
    /// If the binary is missing.
    pub fn start(&mut self) -> Result<()> {
        let log: File = OpenOptions::new().create(true).append(true).open(&self.log)?;
        let binary = binaries()?.join(self.name);
        let mut command = Command::new(&binary);
        command.envs(self.env.iter().cloned());
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let child = command.spawn().with_context(|| format!("{} does not start", binary.display()))?;
        let script = format!("read -r _; kill -9 {} 2>/dev/null", child.id());
        let mut reaper = Command::new("sh");
        reaper.args(["-c", &script]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        self.running = Some(Running { child, _reaper: reaper.spawn()?.stdin });
        Ok(())
    }

    /// Ends it as a crash would: SIGKILL, no word of farewell.
    pub fn kill(&mut self) {
        if let Some(mut running) = self.running.take() {
            let _ = running.child.kill();
            let _ = running.child.wait();
        }
    }

    /// Starts it again if it ended by itself, as a kubelet would. True if it had.
    ///
    /// # Errors
    /// If it does not start.
    pub fn revive(&mut self) -> Result<bool> {
        let ended = match self.running.as_mut() {
            Some(running) => running.child.try_wait()?.is_some(),
            None => false,
        };
        if ended {
            self.start()?;
        }
        Ok(ended)
    }

    /// Waits until `/readyz` says so.
    ///
    /// # Errors
    /// If the process ends or is not ready in time; the end of its log is in the message.
    pub async fn ready(&mut self, limit: Duration) -> Result<()> {
        let deadline = Instant::now() + limit;
        let mut answer = String::new();
        while Instant::now() < deadline {
            let Some(running) = self.running.as_mut() else { bail!("{} was not started", self.name) };
            if let Some(status) = running.child.try_wait()? {
                bail!("{} ended, {status}:\n{}", self.name, tail(&self.log, "", 40));
            }
            answer = get(self.health, "/readyz").await.unwrap_or_else(|e| e.to_string());
            if answer.starts_with("HTTP/1.1 200") || answer.starts_with("HTTP/1.0 200") {
                return Ok(());
            }
            // Between two looks at another process there is nothing to wait for but time.
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        bail!("{} is not ready after {limit:?}: {answer}\n{}", self.name, tail(&self.log, "", 40))
    }
}

impl Drop for Component {
    fn drop(&mut self) {
        self.kill();
    }
}

/// One GET, the answer with its status line.
///
/// # Errors
/// If nobody answers.
pub async fn get(port: u16, path: &str) -> Result<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
    stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}

/// The last `count` lines of a log that contain `word`.
#[must_use]
pub fn tail(log: &Path, word: &str, count: usize) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().filter(|line| line.contains(word)).collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}
