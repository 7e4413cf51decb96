//! The same cases on a real API server, through kubectl; does nothing unless `BERTH_KUBECTL` is set.

use std::{
    io::Write,
    process::{Command, Output, Stdio},
};

use serde_json::{Value, json};

/// Runs kubectl with `args` and `object` on its standard input; None without a server.
fn kubectl(args: &[&str], object: &Value) -> Option<Output> {
    let command = std::env::var("BERTH_KUBECTL").ok()?;
    let mut words = command.split_whitespace();
    let mut child = Command::new(words.next().expect("BERTH_KUBECTL names a command"))
        .args(words)
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("kubectl runs");
    let mut stdin = child.stdin.take().expect("a pipe");
    stdin.write_all(object.to_string().as_bytes()).expect("kubectl reads");
    drop(stdin);
    Some(child.wait_with_output().expect("kubectl ends"))
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The server takes `object`.
pub(crate) fn accepts(object: &Value) {
    if let Some(output) = kubectl(&["create", "--dry-run=server", "-f", "-"], object) {
        assert!(output.status.success(), "the server refuses {object}: {}", said(&output));
    }
}

/// The server refuses `object`, as a change of `old` if there is one, with `message`.
pub(crate) fn refuses(object: &Value, old: Option<&Value>, message: &str) {
    let verb = if old.is_some() { "replace" } else { "create" };
    let refusal = old.map_or(Some(()), store);
    let Some(output) = refusal.and_then(|()| kubectl(&[verb, "--dry-run=server", "-f", "-"], object)) else { return };
    let said = said(&output);
    assert!(!output.status.success(), "the server takes {object}");
    assert!(said.contains(message), "the server refuses {object} with {said}\ninstead of {message}");
}

/// Makes `old`, with its status, what the server has.
fn store(old: &Value) -> Option<()> {
    let made = kubectl(&["delete", "--ignore-not-found", "-f", "-"], old)?;
    assert!(made.status.success(), "{}", said(&made));
    let made = kubectl(&["create", "-f", "-"], old)?;
    assert!(made.status.success(), "{}", said(&made));
    let Some(status) = old.get("status") else { return Some(()) };
    let patch = json!({"status": status}).to_string();
    let made = kubectl(&["patch", "--subresource=status", "--type=merge", "-p", &patch, "-f", "-"], old)?;
    assert!(made.status.success(), "{}", said(&made));
    Some(())
}
