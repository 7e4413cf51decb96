//! What a phase costs: processor time by process, and calls by verb as the API server itself counted them.

use anyhow::{Context, Result};
use berth_e2e::World;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Clock ticks a second in /proc; fixed by Linux for user space.
const TICKS: f64 = 100.0;

/// Processor seconds by process since it began.
pub(crate) type Cpu = BTreeMap<String, f64>;

/// Processor time of every process of the world, and of this one.
pub(crate) async fn cpu(world: &World) -> Result<Cpu> {
    let mut all = Cpu::new();
    for (name, pid) in processes(world).await? {
        all.insert(name, seconds(pid).unwrap_or(0.0));
    }
    Ok(all)
}

async fn processes(world: &World) -> Result<Vec<(String, u32)>> {
    let said = world.plane.run("status", &["--json"])?;
    let said: serde_json::Value = serde_json::from_str(said.trim()).context("hack/plane status --json")?;
    let mut all: Vec<(String, u32)> = Vec::new();
    for process in said["processes"].as_array().into_iter().flatten() {
        let pid = process["pid"].as_u64().and_then(|pid| u32::try_from(pid).ok());
        all.extend(process["name"].as_str().map(str::to_owned).zip(pid));
    }
    all.extend(world.controller.lock().await.pid().map(|pid| ("controller".to_owned(), pid)));
    all.extend(world.webhook.lock().await.pid().map(|pid| ("webhook".to_owned(), pid)));
    all.push(("this client".to_owned(), std::process::id()));
    Ok(all)
}

/// User and system time of a process.
fn seconds(pid: u32) -> Option<f64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in parentheses, may hold anything.
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
    let (user, system): (f64, f64) = (fields.get(11)?.parse().ok()?, fields.get(12)?.parse().ok()?);
    Some((user + system) / TICKS)
}

/// Resident memory of a process, in MiB.
pub(crate) fn rss_mib(pid: u32) -> Result<f64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = text.lines().find(|l| l.starts_with("VmRSS:")).context("no VmRSS")?;
    let kib: f64 = line.split_whitespace().nth(1).context("no number")?.parse()?;
    Ok(kib / 1024.0)
}

/// What was spent between two looks, the largest first.
pub(crate) fn spent(before: &Cpu, after: &Cpu) -> String {
    let mut all: Vec<(f64, &String)> =
        after.iter().map(|(name, at)| (at - before.get(name).copied().unwrap_or(0.0), name)).collect();
    all.sort_by(|a, b| b.0.total_cmp(&a.0));
    all.iter().filter(|(s, _)| *s >= 0.05).map(|(s, name)| format!("{name} {s:.2}")).collect::<Vec<_>>().join(", ")
}

/// Calls answered so far: "VERB resource/subresource" to count.
pub(crate) type Calls = BTreeMap<String, u64>;

/// The API server's own counters.
pub(crate) async fn calls(world: &World) -> Result<Calls> {
    let request = http::Request::get("/metrics").body(Vec::new())?;
    let text = world.client.request_text(request).await?;
    let mut all = Calls::new();
    for line in text.lines().filter_map(|l| l.strip_prefix("apiserver_request_total{")) {
        let Some((labels, count)) = line.rsplit_once("} ") else { continue };
        let label = |name: &str| {
            let (_, rest) = labels.split_once(&format!("{name}=\""))?;
            rest.split_once('"').map(|(value, _)| value)
        };
        let (verb, resource) = (label("verb").unwrap_or_default(), label("resource").unwrap_or_default());
        let sub = label("subresource").filter(|s| !s.is_empty()).map_or_else(String::new, |s| format!("/{s}"));
        let dry = label("dry_run").filter(|s| !s.is_empty()).map_or("", |_| " (dry run)");
        let count = count.parse::<f64>().unwrap_or(0.0);
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // a counter
        let count = count as u64;
        *all.entry(format!("{verb} {resource}{sub}{dry}")).or_default() += count;
    }
    Ok(all)
}

/// Waits until the server has little to do: what setting up has begun in others must not weigh on what is measured.
pub(crate) async fn calm(world: &World) -> Result<()> {
    let limit = Instant::now() + Duration::from_secs(60);
    let mut before = calls(world).await?;
    while Instant::now() < limit {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let after = calls(world).await?;
        if between(&before, &after).values().sum::<u64>() < 25 {
            return Ok(());
        }
        before = after;
    }
    Ok(())
}

/// Calls between two looks.
pub(crate) fn between(before: &Calls, after: &Calls) -> Calls {
    let grown = after.iter().map(|(key, n)| (key.clone(), n - before.get(key).copied().unwrap_or(0)));
    grown.filter(|(_, n)| *n > 0).collect()
}

/// Those of the calls that are Berth's writes: to its kinds, and to what it makes for a gang. Others' writes (the fake
/// kubelets' statuses, the slices of the endpoint controller), events and dry runs, which write nothing, are not.
pub(crate) fn of_berth(calls: &Calls) -> Calls {
    let writes = ["POST", "PUT", "PATCH", "APPLY", "DELETE"];
    let kinds =
        ["pods", "pods/eviction", "services", "configmaps", "secrets", "berths", "berths/status", "trainingjobs"];
    let statuses = ["trainingjobs/status", "queues/status", "topologies/status"];
    let counts = |key: &str| {
        key.split_once(' ')
            .is_some_and(|(verb, what)| writes.contains(&verb) && (kinds.contains(&what) || statuses.contains(&what)))
    };
    calls.iter().filter(|(key, _)| counts(key)).map(|(key, n)| (key.clone(), *n)).collect()
}
