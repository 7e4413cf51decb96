//! The fake API server beside a real one: both get the same random requests, and their answers must be alike. What Berth
//! is shown to do on the fake is worth as much as this.
//!
//! `BERTH_CONFORMANCE=N` sends N requests a sequence (250); `BERTH_CONFORMANCE_SEEDS=N` plays N sequences (12).
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)] // the lints are for code outside tests

mod requests;
mod sides;

use anyhow::{Context, Result, ensure};
use berth_e2e::fake_api::{FakeApi, Key, Kind, Rng, Verb};
use berth_e2e::plane::Plane;
use berth_e2e::wait;
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use kube::api::Api;
use kube::runtime::watcher;
use requests::{Ask, NAMESPACE, Requests};
use serde_json::json;
use sides::Side;
use std::fmt::Write;

fn number(name: &str, usual: u64) -> u64 {
    std::env::var(name).ok().and_then(|n| n.parse().ok()).unwrap_or(usual)
}

#[test]
#[ignore = "it needs a control plane, and the fake still differs: see the differences it prints"]
fn the_fake_api_server_answers_as_a_real_one_does() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(compare()).unwrap();
}

async fn compare() -> Result<()> {
    let plane = Plane::up("conformance")?;
    let real = plane.client().await?;
    let mut differences = Vec::new();
    let mut asked = 0;
    for seed in 0..number("BERTH_CONFORMANCE_SEEDS", 12) {
        let namespace = format!("{NAMESPACE}-{seed}");
        prepare(&plane, &real, &namespace).await?;
        let (fake, _reports) = FakeApi::new(seed, Timestamp::now());
        let made = fake.shared().with(|server, now| {
            let kind = Kind::named("Namespace").context("namespaces are known")?;
            let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
            server
                .by("admin", Verb::Create, &Key::new(kind, "", &namespace), None, body, now)
                .map_err(|s| anyhow::anyhow!(s.message))
        });
        made?;
        let fake_client = fake.line("admin", "admin").client();
        let mut sides = [Side::new("real", real.clone(), &namespace), Side::new("fake", fake_client, &namespace)];
        asked += play(seed, &mut sides, &mut differences).await?;
    }
    // What nobody may learn any more: both forget, and both say so.
    plane.run("compact-etcd", &[])?;
    plane.run("resume", &["kube-controller-manager"])?;
    plane.run("restart-apiserver", &[])?;
    forgotten(&real).await?;
    println!("{asked} requests compared");
    ensure!(differences.is_empty(), "{} differences:\n{}", differences.len(), differences.join("\n"));
    Ok(())
}

/// A namespace where nobody else does anything: controllers and kubelets stand still once it is furnished.
async fn prepare(plane: &Plane, real: &Client, namespace: &str) -> Result<()> {
    plane.run("resume", &["kube-controller-manager"])?;
    let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
    let request = http::Request::post("/api/v1/namespaces").header("content-type", "application/json");
    real.request_text(request.body(serde_json::to_vec(&body)?)?).await?;
    let accounts: Api<ServiceAccount> = Api::namespaced(real.clone(), namespace);
    wait::until(accounts, watcher::Config::default(), "the default account", |all| all.contains_key("default")).await?;
    plane.run("pause", &["kube-controller-manager"])?;
    plane.run("pause", &["kwok"])?;
    Ok(())
}

/// One sequence up to its first difference, with what led to it.
async fn play(seed: u64, sides: &mut [Side; 2], differences: &mut Vec<String>) -> Result<u64> {
    let mut requests = Requests::new(Rng::new(seed));
    let mut past: Vec<String> = Vec::new();
    let begun = [sides[0].version().await?, sides[1].version().await?];
    let count = number("BERTH_CONFORMANCE", 250);
    for _ in 0..count {
        let ask = requests.next();
        // After a difference the two go different ways: what follows says nothing.
        if compare_one(seed, &ask, sides, &mut past, differences).await? {
            return Ok(past.len() as u64);
        }
    }
    // All that happened, as watches tell it.
    for (kind, query) in requests::watches() {
        let told = [sides[0].watched(kind, &query, &begun[0]).await?, sides[1].watched(kind, &query, &begun[1]).await?];
        let at = told[0].iter().zip(&told[1]).position(|(a, b)| a != b);
        let at = at.or((told[0].len() != told[1].len()).then(|| told[0].len().min(told[1].len())));
        if let Some(at) = at {
            let (real, fake) = (told[0].get(at), told[1].get(at));
            differences.push(format!(
                "seed {seed}, watch of {kind}{query}, event {at} of {}:\n  real {real:?}\n  fake {fake:?}",
                told[0].len()
            ));
        }
    }
    Ok(count)
}

async fn compare_one(
    seed: u64,
    ask: &Ask,
    sides: &mut [Side; 2],
    past: &mut Vec<String>,
    differences: &mut Vec<String>,
) -> Result<bool> {
    let [real, fake] = sides;
    let answers = [real.ask(ask).await?, fake.ask(ask).await?];
    past.push(format!("{ask} → {}", answers[0].code));
    if let Some(difference) = sides::difference(&answers[0], &answers[1]) {
        let mut text = format!("seed {seed}: {ask}\n  {difference}\n  before:");
        for line in past.iter().rev().skip(1).filter(|l| l.contains(&ask.subject)).take(6) {
            let _ = write!(text, "\n    {line}");
        }
        differences.push(text);
        return Ok(true);
    }
    Ok(false)
}

/// A watch from a version that the store has forgotten is answered 410, at once or as its first event.
async fn forgotten(real: &Client) -> Result<()> {
    let mut real = Side::new("real", real.clone(), "default");
    let (fake, _reports) = FakeApi::new(0, Timestamp::now());
    let mut fake_side = Side::new("fake", fake.line("admin", "admin").client(), "default");
    fake.shared().with(|server, now| {
        let kind = Kind::named("Namespace").expect("namespaces are known");
        let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}});
        let _ = server.by("admin", Verb::Create, &Key::new(kind, "", "default"), None, body, now);
        server.compact();
    });
    for side in [&mut real, &mut fake_side] {
        let told = side.expired("configmaps").await?;
        ensure!(told == (410, "Expired".to_owned()), "{}: {told:?}", side.name);
    }
    Ok(())
}
