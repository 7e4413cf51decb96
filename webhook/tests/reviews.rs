//! Stories of reviews over a socket: whatever comes in, an answer that helps comes out.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)] // the lints are for code outside tests

use anyhow::{Context, Result};
use axum::http::{Request, Response};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use webhook::cache::Cache;
use webhook::server::{self, Shared};

type ApiServer = tower_test::mock::Handle<Request<Body>, Response<Body>>;

/// A webhook over a plain socket, and the API server that it asks.
async fn start() -> Result<(SocketAddr, Shared, ApiServer)> {
    let (service, api_server) = tower_test::mock::pair::<Request<Body>, Response<Body>>();
    let shared = Shared {
        cache: Cache::new("berth-system"),
        client: Client::new(service, "default"),
        injected: Arc::new(AtomicBool::new(false)),
        controller_user: crds::names::CONTROLLER_USER.into(),
    };
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let router = server::reviews(shared.clone());
    tokio::spawn(async move { axum::serve(listener, router).await });
    Ok((address, shared, api_server))
}

/// The same with its caches full: one queue, one namespace.
async fn start_ready() -> Result<(SocketAddr, Shared, ApiServer)> {
    let (address, shared, api_server) = start().await?;
    for kind in ["Namespace", "Node", "PriorityClass", "Queue", "Topology", "TrainingJob"] {
        shared.cache.note_listed(kind);
    }
    shared.cache.write().set_queue(serde_json::from_value(mk_queue("a"))?);
    Ok((address, shared, api_server))
}

fn mk_queue(name: &str) -> Value {
    json!({"apiVersion": "berth.dev/v1alpha1", "kind": "Queue", "metadata": {"name": name}, "spec": {}})
}

fn mk_job(spec: &Value) -> Value {
    let mut whole = json!({"queue": "a", "roles": [{"name": "w", "replicas": 1,
        "template": {"spec": {"containers": [{"name": "c", "image": "x"}]}}}]});
    whole.as_object_mut().expect("an object").extend(spec.as_object().expect("an object").clone());
    json!({"apiVersion": "berth.dev/v1alpha1", "kind": "TrainingJob",
        "metadata": {"name": "j", "namespace": "team-a"}, "spec": whole})
}

fn review(kind: &str, user: &str, object: &Value) -> Value {
    let resource = format!("{}s", kind.to_lowercase());
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": "r1", "name": "j", "namespace": "team-a", "operation": "CREATE", "userInfo": {"username": user},
        "kind": {"group": "berth.dev", "version": "v1alpha1", "kind": kind},
        "resource": {"group": "berth.dev", "version": "v1alpha1", "resource": resource},
        "object": object, "oldObject": null}})
}

/// Sends a body and answers with status and JSON.
async fn send(address: SocketAddr, path: &str, body: &[u8]) -> Result<(u16, Value)> {
    let mut stream = TcpStream::connect(address).await?;
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await?;
    // A server that refuses by size closes before it has read everything.
    let _ = stream.write_all(body).await;
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    let text = String::from_utf8_lossy(&answer);
    let status = text.split(' ').nth(1).context("a status line")?.parse()?;
    let body = text.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    let json = body.find('{').map_or(Ok(Value::Null), |at| {
        serde_json::Deserializer::from_str(&body[at..]).into_iter().next().unwrap_or(Ok(Value::Null))
    })?;
    Ok((status, json))
}

async fn ask(address: SocketAddr, path: &str, review: &Value) -> Result<Value> {
    let (status, answer) = send(address, path, review.to_string().as_bytes()).await?;
    anyhow::ensure!(status == 200, "{status} {answer}");
    Ok(answer["response"].clone())
}

#[tokio::test]
async fn a_good_job_is_accepted_and_a_bad_one_refused_with_its_reason() -> Result<()> {
    let (address, _, mut api) = start_ready().await?;
    tokio::spawn(async move {
        let (_, answer) = api.next_request().await.expect("is asked for a Service of the job's name");
        let status =
            json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404});
        answer.send_response(
            Response::builder().status(404).body(Body::from(status.to_string().into_bytes())).expect("valid"),
        );
    });
    let good = ask(address, "/validate", &review("TrainingJob", "alice", &mk_job(&json!({})))).await?;
    assert_eq!((&good["allowed"], &good["uid"]), (&json!(true), &json!("r1")));
    let template = json!({"spec": {"containers": [{"name": "c"}], "nodeSelectors": {"a": "b"}}});
    let roles = json!({"roles": [{"name": "w", "replicas": 1, "template": template}]});
    let bad = ask(address, "/validate", &review("TrainingJob", "alice", &mk_job(&roles))).await?;
    assert_eq!((&bad["allowed"], &bad["status"]["reason"]), (&json!(false), &json!("UnknownField")));
    let message = bad["status"]["message"].as_str().unwrap_or_default();
    assert!(message.contains("spec.roles[0].template.spec.nodeSelectors"), "{message}");
    Ok(())
}

#[tokio::test]
async fn before_everything_is_listed_nobody_is_judged() -> Result<()> {
    let (address, shared, _api) = start().await?;
    let early = ask(address, "/validate", &review("TrainingJob", "alice", &mk_job(&json!({})))).await?;
    assert_eq!((&early["allowed"], &early["status"]["reason"]), (&json!(false), &json!("NotReady")));
    assert_eq!(shared.cache.missing().len(), 6);
    shared.injected.store(true, Ordering::Relaxed);
    let (status, _) = send(address, "/readyz", b"").await?;
    assert_eq!(status, 405, "health is read, not posted");
    Ok(())
}

#[tokio::test]
async fn what_is_no_review_gets_a_plain_status() -> Result<()> {
    let (address, _, _api) = start_ready().await?;
    let bodies: [&[u8]; 6] = [
        b"",
        b"hello",
        b"{\"apiVersion\":\"v1\",\"kind\":\"Pod\"}",
        b"{\"apiVersion\":\"admission.k8s.io/v1\",\"kind\":\"AdmissionReview\"}",
        b"[[[[[[",
        &[0xff, 0xfe, 0x00],
    ];
    for body in bodies {
        let (status, answer) = send(address, "/validate", body).await?;
        assert_eq!((status, &answer["kind"]), (400, &json!("Status")), "{body:?}");
    }
    let (status, _) = send(address, "/validate", &vec![b' '; 9 << 20]).await?;
    assert_eq!(status, 413, "a body above the limit is not read");
    Ok(())
}

#[tokio::test]
async fn an_object_that_cannot_be_read_is_refused_by_its_field() -> Result<()> {
    let (address, _, _api) = start_ready().await?;
    for (spec, part) in
        [(json!({"maxRuntime": "2d"}), "2d"), (json!({"roles": "many"}), "roles"), (json!({"roles": null}), "roles")]
    {
        let answer = ask(address, "/validate", &review("TrainingJob", "alice", &mk_job(&spec))).await?;
        assert_eq!(answer["allowed"], json!(false), "{spec}");
        let message = answer["status"]["message"].as_str().unwrap_or_default();
        assert!(message.contains(part) || message.contains("sequence"), "{message}");
    }
    let empty = ask(address, "/validate", &review("TrainingJob", "alice", &Value::Null)).await?;
    assert_eq!(empty["allowed"], json!(false));
    Ok(())
}

#[tokio::test]
async fn other_kinds_and_the_controller_pass() -> Result<()> {
    let (address, _, _api) = start_ready().await?;
    let bad = mk_job(&json!({"queue": "nobody"}));
    let mine = ask(address, "/validate", &review("TrainingJob", crds::names::CONTROLLER_USER, &bad)).await?;
    assert_eq!(mine["allowed"], json!(true));
    let berth = ask(address, "/validate", &review("Berth", "alice", &bad)).await?;
    assert_eq!(berth["allowed"], json!(true));
    Ok(())
}

#[tokio::test]
async fn a_queue_that_the_cache_has_not_seen_is_read_live_before_anybody_is_refused() -> Result<()> {
    let (address, _, mut api) = start_ready().await?;
    let server = tokio::spawn(async move {
        // The queue; then a Service of the job's name; then the other queue.
        for found in [true, false, false] {
            let (request, answer) = api.next_request().await.expect("is asked");
            let name = request.uri().path().rsplit('/').next().unwrap_or_default().to_owned();
            let status =
                json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404});
            let (code, body) = if found { (200, mk_queue(&name)) } else { (404, status) };
            answer.send_response(
                Response::builder().status(code).body(Body::from(body.to_string().into_bytes())).expect("valid"),
            );
        }
    });
    let new = ask(address, "/validate", &review("TrainingJob", "alice", &mk_job(&json!({"queue": "new"})))).await?;
    assert_eq!(new["allowed"], json!(true), "{new}");
    let none = ask(address, "/validate", &review("TrainingJob", "alice", &mk_job(&json!({"queue": "nobody"})))).await?;
    assert_eq!((&none["allowed"], &none["status"]["reason"]), (&json!(false), &json!("UnknownQueue")));
    server.await?;
    Ok(())
}

#[tokio::test]
async fn nodes_that_the_cache_has_not_seen_are_read_live_before_a_gang_is_refused_for_want_of_room() -> Result<()> {
    let (address, shared, mut api) = start_ready().await?;
    shared.cache.write().set_node(serde_json::from_value(mk_node("n1"))?);
    let server = tokio::spawn(async move {
        let lists = [mk_list("Node", &["n1", "n2"]), mk_list("Topology", &[]), Value::Null];
        let later = [mk_list("Node", &["n1"]), mk_list("Topology", &[])];
        for body in lists.into_iter().chain(later) {
            let (_, answer) = api.next_request().await.expect("is asked");
            // Nothing stands under the name of the job's Service.
            let code = if body.is_null() { 404 } else { 200 };
            let status =
                json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404});
            let body = if body.is_null() { status } else { body };
            answer.send_response(
                Response::builder().status(code).body(Body::from(body.to_string().into_bytes())).expect("valid"),
            );
        }
    });
    let template = json!({"spec": {"containers": [{"name": "c", "image": "x",
        "resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "1"}}}]}});
    let two = mk_job(&json!({"roles": [{"name": "w", "replicas": 2, "template": template}]}));
    let fits = ask(address, "/validate", &review("TrainingJob", "alice", &two)).await?;
    assert_eq!(fits["allowed"], json!(true), "{fits}");
    let never = ask(address, "/validate", &review("TrainingJob", "alice", &two)).await?;
    assert_eq!((&never["allowed"], &never["status"]["reason"]), (&json!(false), &json!("FloorExceedsPool")), "{never}");
    assert_eq!(shared.cache.read().nodes().count(), 1, "what is read for one answer does not outlive it");
    server.await?;
    Ok(())
}

fn mk_node(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name},
        "status": {"allocatable": {"cpu": "1", "pods": "10"},
            "conditions": [{"type": "Ready", "status": "True"}]}})
}

fn mk_list(kind: &str, names: &[&str]) -> Value {
    let version = if kind == "Node" { "v1" } else { "berth.dev/v1alpha1" };
    let items: Vec<Value> = names.iter().map(|name| mk_node(name)).collect();
    json!({"apiVersion": version, "kind": format!("{kind}List"), "metadata": {"resourceVersion": "9"}, "items": items})
}

#[tokio::test]
async fn a_job_is_filled_in_with_who_made_it() -> Result<()> {
    let (address, _, _api) = start_ready().await?;
    let answer = ask(address, "/mutate", &review("TrainingJob", "alice", &mk_job(&json!({})))).await?;
    assert_eq!((&answer["allowed"], &answer["patchType"]), (&json!(true), &json!("JSONPatch")));
    let queue = ask(address, "/mutate", &review("Queue", "alice", &mk_queue("b"))).await?;
    assert_eq!((&queue["allowed"], queue.get("patch")), (&json!(true), None));
    Ok(())
}
