//! A component of Berth as a child process: its binary from the target folder, its log in a file, its life ended with ours.

use crate::plane::root;
use anyhow::{Context, Result, bail};
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;

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
    let packages = ["-p", "berth-controller", "-p", "berth-webhook", "--bins"];
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
    /// How many lines it has logged; closed when it ends.
    logged: watch::Receiver<usize>,
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
        let (said, voice) = std::io::pipe()?;
        let mut command = Command::new(&binary);
        command.envs(self.env.iter().cloned());
        command.stdin(Stdio::null()).stdout(voice.try_clone()?).stderr(voice);
        let child = command.spawn().with_context(|| format!("{} does not start", binary.display()))?;
        // The command holds our ends of the pipe: with them gone, the pipe ends when the child does.
        drop(command);
        let script = format!("read -r _; kill -9 {} 2>/dev/null", child.id());
        let mut reaper = Command::new("sh");
        reaper.args(["-c", &script]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let logged = keep_log(said, log);
        self.running = Some(Running { child, _reaper: reaper.spawn()?.stdin, logged });
        Ok(())
    }

    /// Its process, while it runs.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.running.as_ref().map(|running| running.child.id())
    }

    /// Sends it a signal by name: `STOP` makes it stand still, `CONT` lets it go on.
    ///
    /// # Errors
    /// If it does not run.
    pub fn signal(&self, name: &str) -> Result<()> {
        let pid = self.pid().with_context(|| format!("{} does not run", self.name))?;
        let status = Command::new("kill").arg(format!("-{name}")).arg(pid.to_string()).status()?;
        if !status.success() {
            bail!("{} could not be sent {name}", self.name);
        }
        Ok(())
    }

    /// Ends it as a crash would: SIGKILL, no word of farewell.
    pub fn kill(&mut self) {
        if let Some(mut running) = self.running.take() {
            let _ = running.child.kill();
            let _ = running.child.wait();
        }
    }

    /// Waits until the process that runs now has ended, however it ends; none runs: at once.
    pub fn ended(&self) -> impl Future<Output = ()> + Send + 'static {
        let logged = self.running.as_ref().map(|r| r.logged.clone());
        async move {
            if let Some(mut logged) = logged {
                while logged.changed().await.is_ok() {}
            }
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

    /// Waits until `/readyz` says so: asked anew whenever the process has said something, since it logs what it gets.
    ///
    /// # Errors
    /// If the process ends or is not ready in time; the end of its log is in the message.
    pub async fn ready(&mut self, limit: Duration) -> Result<()> {
        let (name, health) = (self.name, self.health);
        let Some(running) = self.running.as_mut() else { bail!("{name} was not started") };
        let mut answer = String::new();
        let asking = async {
            loop {
                running.logged.borrow_and_update();
                answer = get(health, "/readyz").await.unwrap_or_else(|e| e.to_string());
                if answer.starts_with("HTTP/1.1 200") || answer.starts_with("HTTP/1.0 200") {
                    return true;
                }
                if running.logged.changed().await.is_err() {
                    return false;
                }
            }
        };
        match tokio::time::timeout(limit, asking).await {
            Ok(true) => Ok(()),
            Ok(false) => {
                let status = running.child.wait()?;
                bail!("{name} ended, {status}:\n{}", tail(&self.log, "", 40))
            }
            Err(_) => bail!("{name} is not ready after {limit:?}: {answer}\n{}", tail(&self.log, "", 40)),
        }
    }
}

/// Copies what a process says into its log, line by line; the count of lines so far, closed at its end.
fn keep_log(said: impl Read + Send + 'static, mut log: File) -> watch::Receiver<usize> {
    let (count, logged) = watch::channel(0);
    std::thread::spawn(move || {
        let mut said = BufReader::new(said);
        let mut line = Vec::new();
        while said.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
            // A full disk must not stop the process that logs.
            let _ = log.write_all(&line);
            line.clear();
            count.send_modify(|lines| *lines += 1);
        }
    });
    logged
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
