//! One of the two servers: it is asked in its own words (its uids, its versions), and answers in words that can be
//! compared: each uid and version by the order in which it was first seen.

use crate::requests::Ask;
use anyhow::{Context, Result};
use futures::{AsyncBufReadExt, TryStreamExt};
use kube::Client;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::pin::pin;

const ROOT_CA: &str = "kube-root-ca.crt";

/// An answer that can be compared.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Answer {
    pub(crate) code: u16,
    pub(crate) body: Value,
}

/// A server.
pub(crate) struct Side {
    pub(crate) name: &'static str,
    client: Client,
    namespace: String,
    /// Of each object, every uid and version in order.
    seen: BTreeMap<String, Vec<(String, String)>>,
    uids: BTreeMap<String, String>,
    versions: BTreeMap<String, String>,
}

impl Side {
    pub(crate) fn new(name: &'static str, client: Client, namespace: &str) -> Self {
        let (seen, uids, versions) = Default::default();
        Self { name, client, namespace: namespace.to_owned(), seen, uids, versions }
    }

    fn path(&self, plural: &str) -> String {
        let group = if matches!(plural, "berths" | "trainingjobs") { "apis/berth.dev/v1alpha1" } else { "api/v1" };
        format!("/{group}/namespaces/{}/{plural}", self.namespace)
    }

    /// Sends a request and reads the answer.
    pub(crate) async fn ask(&mut self, ask: &Ask) -> Result<Answer> {
        let name = ask.name.map(|n| format!("/{n}")).unwrap_or_default();
        let uri = format!("{}{name}{}{}", self.path(ask.plural), ask.sub, ask.query);
        let body = ask.body.as_ref().map(|b| self.filled(&b.to_string(), &ask.subject)).unwrap_or_default();
        let request = http::Request::builder().method(ask.method).uri(uri).header("content-type", ask.content);
        let answer = self.send(request.body(body.into_bytes())?).await?;
        self.remember(&answer.body, ask);
        Ok(Answer { code: answer.code, body: self.plain(answer.body, ask) })
    }

    async fn send(&self, request: http::Request<Vec<u8>>) -> Result<Answer> {
        let (parts, body) = request.into_parts();
        let response = self.client.send(http::Request::from_parts(parts, kube::client::Body::from(body))).await?;
        let code = response.status().as_u16();
        let body = response.into_body().collect_bytes().await?;
        let body = serde_json::from_slice(&body).with_context(|| String::from_utf8_lossy(&body).into_owned())?;
        Ok(Answer { code, body })
    }

    /// The request in this server's words.
    fn filled(&self, text: &str, subject: &str) -> String {
        let known = self.seen.get(subject).map(Vec::as_slice).unwrap_or_default();
        let (uid, version) = known.last().cloned().unwrap_or(("no-uid".to_owned(), "1".to_owned()));
        let stale = known.iter().rev().nth(1).map_or("1", |(_, v)| v);
        let other = known.iter().rev().find(|(u, _)| *u != uid).map_or("another-uid", |(u, _)| u);
        text.replace("$version", &version)
            .replace("$stale", stale)
            .replace("$uid", &uid)
            .replace("$other", other)
            .replace("$namespace", &self.namespace)
    }

    fn remember(&mut self, body: &Value, ask: &Ask) {
        let metadata = &body["metadata"];
        let dry = ask.query.contains("dryRun");
        let (Some(uid), Some(version)) = (metadata["uid"].as_str(), metadata["resourceVersion"].as_str()) else {
            return;
        };
        if dry {
            return;
        }
        let all = self.seen.entry(ask.subject.clone()).or_default();
        if all.last().is_none_or(|last| *last != (uid.to_owned(), version.to_owned())) {
            all.push((uid.to_owned(), version.to_owned()));
        }
    }

    /// The answer in words that both sides share.
    fn plain(&mut self, body: Value, ask: &Ask) -> Value {
        if body["kind"] == "Status" {
            let mut told = json!({"status": body["status"], "reason": body["reason"]});
            if body["status"] == "Success" {
                told["kind"] = body["details"]["kind"].clone();
            }
            return told;
        }
        if let Some(items) = body["items"].as_array() {
            // The controllers furnish every namespace with it.
            let items = items.iter().filter(|o| o["metadata"]["name"] != ROOT_CA);
            let items: Vec<Value> = items.map(|o| self.object(o.clone())).collect();
            let more = body["metadata"]["continue"].as_str().is_some_and(|c| !c.is_empty());
            let left = body["metadata"]["remainingItemCount"].clone();
            // How many are left is not told where a selector would have to look at them.
            let left = if ask.query.contains("Selector") { Value::Null } else { left };
            return json!({"items": items, "more": more, "left": left});
        }
        let dry = ask.query.contains("dryRun");
        let mut object = self.object(body);
        if dry {
            // Nothing was given out: what it would have been differs every time.
            for volatile in ["uid", "resourceVersion"] {
                if let Some(value) = object["metadata"].get_mut(volatile) {
                    *value = json!("dry");
                }
            }
        }
        object
    }

    fn object(&mut self, mut object: Value) -> Value {
        let next = |all: &mut BTreeMap<String, String>, of: &str, letter: char| {
            let count = all.len();
            all.entry(of.to_owned()).or_insert_with(|| format!("{letter}{count}")).clone()
        };
        if let Some(metadata) = object["metadata"].as_object_mut() {
            metadata.remove("managedFields");
            metadata.remove("namespace");
            for time in ["creationTimestamp", "deletionTimestamp"] {
                if let Some(value) = metadata.get_mut(time) {
                    *value = json!("time");
                }
            }
            for empty in ["labels", "annotations", "finalizers"] {
                let is_empty = metadata.get(empty).is_some_and(|v| {
                    v.as_object().is_some_and(serde_json::Map::is_empty) || v.as_array().is_some_and(Vec::is_empty)
                });
                if is_empty {
                    metadata.remove(empty);
                }
            }
            if let Some(uid) = metadata.get_mut("uid") {
                *uid = json!(next(&mut self.uids, uid.as_str().unwrap_or_default(), 'u'));
            }
            if let Some(version) = metadata.get_mut("resourceVersion") {
                *version = json!(next(&mut self.versions, version.as_str().unwrap_or_default(), 'v'));
            }
        }
        if let Some(all) = object.as_object_mut() {
            all.remove("kind");
            all.remove("apiVersion");
        }
        object
    }

    /// The present version of the whole store.
    pub(crate) async fn version(&self) -> Result<String> {
        let answer = self.send(http::Request::get(self.path("configmaps")).body(Vec::new())?).await?;
        Ok(answer.body["metadata"]["resourceVersion"].as_str().context("a list has a version")?.to_owned())
    }

    /// Everything a watch tells from a version on: kinds of events with names, labels and versions.
    pub(crate) async fn watched(&mut self, plural: &str, query: &str, from: &str) -> Result<Vec<String>> {
        let uri = format!(
            "{}?watch=true&resourceVersion={from}&timeoutSeconds=2&allowWatchBookmarks=true{query}",
            self.path(plural)
        );
        let mut told = Vec::new();
        // Not zipped: the server sends a member for each event, and the client would read the first alone.
        let request = http::Request::get(uri).header("accept-encoding", "identity");
        let lines = self.client.request_stream(request.body(Vec::new())?).await?;
        let mut lines = pin!(lines.lines());
        while let Some(line) = lines.try_next().await? {
            let event: Value = serde_json::from_str(&line)?;
            let kind = event["type"].as_str().unwrap_or_default().to_owned();
            if kind == "BOOKMARK" || event["object"]["metadata"]["name"] == ROOT_CA {
                continue;
            }
            let object = self.object(event["object"].clone());
            let metadata = &object["metadata"];
            told.push(format!(
                "{kind} {} {} {} {} {}",
                metadata["name"],
                metadata["uid"],
                metadata["resourceVersion"],
                metadata["labels"],
                metadata["deletionTimestamp"]
            ));
        }
        Ok(told)
    }

    /// What a watch from a forgotten version is answered: code and reason.
    pub(crate) async fn expired(&mut self, plural: &str) -> Result<(u16, String)> {
        let uri = format!("{}?watch=true&resourceVersion=1&timeoutSeconds=2", self.path(plural));
        let request = http::Request::get(uri).body(kube::client::Body::empty())?;
        let response = self.client.send(request).await?;
        let body = response.into_body().collect_bytes().await?;
        let first = body.split(|b| *b == b'\n').next().unwrap_or_default();
        let first: Value = serde_json::from_slice(first)?;
        let status = if first["type"] == "ERROR" { &first["object"] } else { &first };
        let code = status["code"].as_u64().and_then(|c| u16::try_from(c).ok()).unwrap_or(0);
        Ok((code, status["reason"].as_str().unwrap_or_default().to_owned()))
    }
}

/// How two answers differ: in code, reason, metadata, or in what the fake says that the real one does not. (The real one
/// fills in defaults that nobody reads.)
pub(crate) fn difference(real: &Answer, fake: &Answer) -> Option<String> {
    if real.code != fake.code {
        return Some(format!("real {} {}, fake {} {}", real.code, real.body, fake.code, fake.body));
    }
    lacks("", &real.body, &fake.body)
}

fn lacks(at: &str, real: &Value, fake: &Value) -> Option<String> {
    let whole = at.ends_with("/metadata") || at.ends_with("/labels");
    match (real, fake) {
        (Value::Object(real), Value::Object(fake)) => {
            if whole && let Some(key) = real.keys().find(|key| !fake.contains_key(*key)) {
                return Some(format!("{at}/{key}: real {}, fake nothing", real[key]));
            }
            fake.iter()
                .find_map(|(key, value)| lacks(&format!("{at}/{key}"), real.get(key).unwrap_or(&Value::Null), value))
        }
        (Value::Array(real), Value::Array(fake)) if real.len() == fake.len() => {
            real.iter().zip(fake).enumerate().find_map(|(i, (a, b))| lacks(&format!("{at}/{i}"), a, b))
        }
        (real, fake) => (real != fake).then(|| format!("{at}: real {real}, fake {fake}")),
    }
}
