//! What each verb means: from a call and the stored objects to an answer and a change. No I/O; time and luck are given.

use super::admission::Policies;
use super::faults::Faults;
use super::kinds::Kind;
use super::rng::Rng;
use super::status::Status;
use super::store::{Key, Store};
use crds::names::CONTROLLER_USER;
use k8s_openapi::jiff::Timestamp;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verb {
    /// One object.
    Get,
    /// Many.
    List,
    /// Changes of many.
    Watch,
    /// A new one.
    Create,
    /// Another in its place.
    Update,
    /// A change of it (JSON merge patch).
    Patch,
    /// Its end.
    Delete,
}

impl Verb {
    /// As RBAC names it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Watch => "watch",
            Self::Create => "create",
            Self::Update => "update",
            Self::Patch => "patch",
            Self::Delete => "delete",
        }
    }

    /// Whether it may change anything.
    #[must_use]
    pub fn writes(self) -> bool {
        !matches!(self, Self::Get | Self::List | Self::Watch)
    }
}

/// One request, read.
#[derive(Clone, Debug)]
pub struct Call {
    /// Who asks.
    pub user: String,
    /// What.
    pub verb: Verb,
    /// Of which kind.
    pub kind: &'static Kind,
    /// In which namespace; empty for all, and for objects of the cluster.
    pub namespace: String,
    /// Of which name; empty for many and for a creation.
    pub name: String,
    /// Subresource.
    pub sub: Option<String>,
    /// Query parameters.
    pub query: BTreeMap<String, String>,
    /// Body.
    pub body: Value,
}

impl Call {
    fn param(&self, name: &str) -> &str {
        self.query.get(name).map_or("", String::as_str)
    }

    /// Whether nothing is to be changed.
    #[must_use]
    pub fn is_dry(&self) -> bool {
        self.param("dryRun") == "All"
    }

    /// Name of what it is about.
    #[must_use]
    pub fn subject(&self) -> String {
        let name = if self.name.is_empty() { text(&self.body, "/metadata/name") } else { &self.name };
        let sub = self.sub.as_ref().map(|s| format!("/{s}")).unwrap_or_default();
        let place = if self.namespace.is_empty() { String::new() } else { format!("{}/", self.namespace) };
        format!("{}{sub} {place}{name}", self.kind.kind)
    }

    fn key(&self) -> Key {
        Key::new(self.kind, &self.namespace, &self.name)
    }

    /// Whether an object is among those asked for.
    #[must_use]
    pub fn selects(&self, object: &Value) -> bool {
        labels_match(self.param("labelSelector"), object) && fields_match(self.param("fieldSelector"), object)
    }
}

/// The server without its wires.
#[derive(Debug)]
pub struct Server {
    /// What is stored.
    pub store: Store,
    /// Luck.
    pub rng: Rng,
    /// What goes wrong.
    pub faults: Faults,
    /// What is refused.
    pub policies: Policies,
    /// Pages of lists that are not read to their end: objects by token.
    pages: BTreeMap<String, (u64, Vec<Arc<Value>>)>,
    /// Statuses taken for an object although they were meant for an earlier one of its name.
    pub misled: u64,
}

/// An answer: HTTP status and object, or a failure.
pub type Reply = Result<(u16, Value), Status>;

impl Server {
    /// An empty server.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            store: Store::default(),
            rng: Rng::new(seed),
            faults: Faults::default(),
            policies: Policies::default(),
            pages: BTreeMap::new(),
            misled: 0,
        }
    }

    /// Answers a call. Watches are answered elsewhere.
    ///
    /// # Errors
    /// As the API server refuses.
    pub fn answer(&mut self, call: &Call, now: Timestamp) -> Reply {
        match (call.verb, call.sub.as_deref()) {
            (Verb::Get, _) => self.get(call),
            (Verb::List | Verb::Watch, _) => self.list(call),
            (Verb::Create, Some("eviction")) => self.evict(call, now),
            (Verb::Create, None) => self.create(call, now),
            (Verb::Update, sub) => self.update(call, sub == Some("status"), call.body.clone(), now),
            (Verb::Patch, sub) => self.patch(call, sub == Some("status"), now),
            (Verb::Delete, None) => self.delete(call, now),
            (_, Some(sub)) => Err(Status::new(404, "NotFound", format!("no subresource {sub}"))),
        }
    }

    fn found(&self, call: &Call) -> Result<Arc<Value>, Status> {
        self.store.get(&call.key()).cloned().ok_or_else(|| Status::not_found(call.kind, &call.name))
    }

    fn get(&self, call: &Call) -> Reply {
        Ok((200, (*self.found(call)?).clone()))
    }

    // --- list ---

    fn list(&mut self, call: &Call) -> Reply {
        let limit: usize = call.param("limit").parse().unwrap_or(0);
        let token = call.param("continue").to_owned();
        let (version, rest) = if token.is_empty() {
            let all = self.store.list(call.kind.kind, &call.namespace).map(|(_, object)| object.clone());
            (self.store.version(), all.filter(|o| call.selects(o)).collect::<Vec<_>>())
        } else {
            self.pages.remove(&token).ok_or_else(|| {
                Status::new(410, "Expired", "The provided continue parameter is too old to display a consistent list")
            })?
        };
        let mut page = rest;
        let mut metadata = json!({"resourceVersion": version.to_string()});
        if limit > 0 && page.len() > limit {
            let later = page.split_off(limit);
            let next = format!("{version}-{}", later.len());
            metadata["continue"] = json!(next);
            metadata["remainingItemCount"] = json!(later.len());
            self.pages.insert(next, (version, later));
        }
        let items: Vec<Value> = page.iter().map(|o| (**o).clone()).collect();
        let kind = format!("{}List", call.kind.kind);
        Ok((200, json!({"kind": kind, "apiVersion": call.kind.api_version(), "metadata": metadata, "items": items})))
    }

    /// Forgets changes and half-read lists, as a compaction of etcd does.
    pub fn compact(&mut self) {
        self.pages.clear();
        self.store.compact();
    }

    // --- create ---

    fn create(&mut self, call: &Call, now: Timestamp) -> Reply {
        let kind = call.kind;
        let mut object = call.body.clone();
        if !object["metadata"].is_object() {
            return Err(Status::bad("the object has no metadata"));
        }
        let name = text(&object, "/metadata/name").to_owned();
        if name.is_empty() {
            return Err(Status::invalid(kind, "", "metadata.name: Required value: name or generateName is required"));
        }
        if !text(&object, "/metadata/resourceVersion").is_empty() {
            return Err(Status::bad("resourceVersion should not be set on objects to be created"));
        }
        if kind.namespaced {
            self.namespace_takes(call, &name)?;
            object["metadata"]["namespace"] = json!(call.namespace);
        }
        let key = Key::new(kind, &call.namespace, &name);
        let uid = self.store.uid();
        let metadata = &mut object["metadata"];
        metadata["uid"] = json!(uid);
        metadata["creationTimestamp"] = json!(seconds(now));
        for unset in ["deletionTimestamp", "deletionGracePeriodSeconds", "generation", "selfLink"] {
            remove(metadata, unset);
        }
        if kind.generation {
            metadata["generation"] = json!(1);
        }
        object["kind"] = json!(kind.kind);
        object["apiVersion"] = json!(kind.api_version());
        if kind.status {
            remove(&mut object, "status");
        }
        self.fill_in(kind, &mut object);
        self.admit(call, &object, true)?;
        if self.store.get(&key).is_some() {
            return Err(Status::exists(kind, &name));
        }
        if call.is_dry() {
            return Ok((201, object));
        }
        self.charge(kind, &object);
        Ok((201, (*self.store.put(key, object)).clone()))
    }

    // --- update and patch ---

    fn patch(&mut self, call: &Call, is_status: bool, now: Timestamp) -> Reply {
        let mut next = (*self.found(call)?).clone();
        merge(&mut next, &call.body);
        // A patch without a version is laid over whatever there is.
        if text(&call.body, "/metadata/resourceVersion").is_empty() {
            remove(&mut next["metadata"], "resourceVersion");
            return self.replace(call, is_status, next, false, now);
        }
        self.replace(call, is_status, next, true, now)
    }

    fn update(&mut self, call: &Call, is_status: bool, next: Value, now: Timestamp) -> Reply {
        self.replace(call, is_status, next, true, now)
    }

    fn replace(&mut self, call: &Call, is_status: bool, mut next: Value, strict: bool, now: Timestamp) -> Reply {
        let (kind, name) = (call.kind, call.name.as_str());
        let old = self.found(call)?;
        // 1. Is it the object that was meant?
        let uid = text(&next, "/metadata/uid");
        // A real server takes the metadata of a custom resource's status from what is stored, and the uid with it.
        let ignored = is_status && kind.custom;
        let another = !uid.is_empty() && uid != text(&old, "/metadata/uid");
        self.misled += u64::from(another && ignored);
        if another && !ignored {
            let why = format!(
                "Precondition failed: UID in precondition: {uid}, UID in object meta: {}",
                text(&old, "/metadata/uid")
            );
            return Err(Status::conflict(kind, name, &why));
        }
        let version = text(&next, "/metadata/resourceVersion");
        if version.is_empty() && strict && (kind.custom || kind.kind == "Lease") {
            let why = "metadata.resourceVersion: Invalid value: 0: must be specified for an update";
            return Err(Status::invalid(kind, name, why));
        }
        if !version.is_empty() && version != text(&old, "/metadata/resourceVersion") {
            return Err(Status::stale(kind, name));
        }
        // 2. What the call may not change stays.
        if is_status {
            let status = next.get("status").cloned();
            next = (*old).clone();
            set(&mut next, "status", status);
        } else {
            if kind.status {
                set(&mut next, "status", old.get("status").cloned());
            }
            for kept in ["uid", "name", "namespace", "creationTimestamp", "generation", "resourceVersion"]
                .into_iter()
                .chain(["deletionTimestamp", "deletionGracePeriodSeconds"])
            {
                set(&mut next["metadata"], kept, old["metadata"].get(kept).cloned());
            }
            next["kind"] = json!(kind.kind);
            next["apiVersion"] = json!(kind.api_version());
            remove(&mut next["metadata"], "managedFields");
        }
        next["metadata"]["resourceVersion"] = old["metadata"]["resourceVersion"].clone();
        let going = !text(&old, "/metadata/deletionTimestamp").is_empty();
        if going && !is_status {
            let before = strings(&old, "/metadata/finalizers");
            if strings(&next, "/metadata/finalizers").iter().any(|f| !before.contains(f)) {
                let why =
                    "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted";
                return Err(Status::invalid(kind, name, why));
            }
        }
        // 3. Who may?
        if !is_status {
            self.admit(call, &next, false)?;
        }
        if next == *old || call.is_dry() {
            return Ok((200, next));
        }
        // 4. Does the spec differ?
        if kind.generation && kind.kind != "Pod" && spec_differs(&old, &next) {
            next["metadata"]["generation"] = json!(old["metadata"]["generation"].as_i64().unwrap_or(0) + 1);
        }
        // 5. The last finalizer was all that held it.
        let held = !strings(&next, "/metadata/finalizers").is_empty();
        let waits = next["metadata"]["deletionGracePeriodSeconds"].as_i64().unwrap_or(0) > 0;
        let key = call.key();
        let stored = self.store.put(key.clone(), next);
        if going && !held && !waits {
            self.end(&key);
            return Ok((200, (*stored).clone()));
        }
        let _ = now;
        Ok((200, (*stored).clone()))
    }

    // --- delete ---

    fn delete(&mut self, call: &Call, now: Timestamp) -> Reply {
        let (kind, name) = (call.kind, call.name.as_str());
        let old = self.found(call)?;
        let wanted = &call.body["preconditions"];
        for (field, at) in [("uid", "/metadata/uid"), ("resourceVersion", "/metadata/resourceVersion")] {
            if let Some(wanted) = wanted[field].as_str()
                && wanted != text(&old, at)
            {
                let label = if field == "uid" { "UID" } else { "ResourceVersion" };
                let have = text(&old, at);
                let why =
                    format!("Precondition failed: {label} in precondition: {wanted}, {label} in object meta: {have}");
                return Err(Status::conflict(kind, name, &why));
            }
        }
        if call.is_dry() || call.param("dryRun") == "All" {
            return Ok((200, (*old).clone()));
        }
        let grace = self.grace(kind, &old, call.body["gracePeriodSeconds"].as_i64());
        let held = !strings(&old, "/metadata/finalizers").is_empty()
            || kind.kind == "Namespace" && !strings(&old, "/spec/finalizers").is_empty();
        if grace == 0 && !held {
            let last = self.end(&call.key());
            return Ok((200, last.map_or_else(|| success(kind, &old), |last| gone(kind, &last))));
        }
        let mut next = (*old).clone();
        let known = old["metadata"]["deletionGracePeriodSeconds"].as_i64();
        let going = !text(&old, "/metadata/deletionTimestamp").is_empty();
        if !going || known.is_some_and(|known| grace < known) {
            let gone_at =
                seconds(now.saturating_add(std::time::Duration::from_secs(grace.unsigned_abs())).unwrap_or(now));
            next["metadata"]["deletionTimestamp"] = json!(gone_at);
            next["metadata"]["deletionGracePeriodSeconds"] = json!(grace);
            if !going && kind.generation {
                next["metadata"]["generation"] = json!(old["metadata"]["generation"].as_i64().unwrap_or(0) + 1);
            }
            if kind.kind == "Namespace" {
                next["status"]["phase"] = json!("Terminating");
            }
            let stored = self.store.put(call.key(), next);
            return Ok((200, (*stored).clone()));
        }
        Ok((200, (*old).clone()))
    }

    /// Seconds between the stop signal and the kill: only pods that a kubelet has are waited for.
    fn grace(&self, kind: &Kind, object: &Value, asked: Option<i64>) -> i64 {
        if kind.kind != "Pod" {
            return 0;
        }
        let bound = !text(object, "/spec/nodeName").is_empty();
        let over = matches!(text(object, "/status/phase"), "Succeeded" | "Failed");
        if !bound || over {
            return 0;
        }
        asked.or_else(|| object["spec"]["terminationGracePeriodSeconds"].as_i64()).unwrap_or(30)
    }

    /// Removes an object for good.
    pub fn end(&mut self, key: &Key) -> Option<Arc<Value>> {
        let last = self.store.remove(key)?;
        if let Some(kind) = Kind::named(key.kind) {
            self.refund(kind, &last);
        }
        Some(last)
    }

    fn evict(&mut self, call: &Call, now: Timestamp) -> Reply {
        let mut delete = call.clone();
        delete.verb = Verb::Delete;
        delete.sub = None;
        delete.body = call.body.get("deleteOptions").cloned().unwrap_or_else(|| json!({}));
        self.delete(&delete, now)?;
        Ok((201, json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201})))
    }

    // --- for those who live in the server's world ---

    /// A call by somebody else than the controller, at once and without trouble.
    pub fn by(&mut self, user: &str, verb: Verb, key: &Key, sub: Option<&str>, body: Value, now: Timestamp) -> Reply {
        let kind = Kind::named(key.kind).ok_or_else(|| Status::bad("no such kind"))?;
        let call = Call {
            user: user.to_owned(),
            verb,
            kind,
            namespace: key.namespace.clone(),
            name: if verb == Verb::Create { String::new() } else { key.name.clone() },
            sub: sub.map(str::to_owned),
            query: BTreeMap::new(),
            body,
        };
        self.answer(&call, now)
    }
}

impl Call {
    /// Whether the controller asks.
    #[must_use]
    pub fn is_ours(&self) -> bool {
        self.user == CONTROLLER_USER
    }
}

/// What a deletion at once is answered with: pods come back, other kinds come back as a success.
fn gone(kind: &Kind, last: &Value) -> Value {
    if kind.kind == "Pod" { last.clone() } else { success(kind, last) }
}

fn success(kind: &Kind, last: &Value) -> Value {
    let details = json!({"name": last["metadata"]["name"], "uid": last["metadata"]["uid"], "kind": kind.plural});
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details})
}

fn spec_differs(old: &Value, new: &Value) -> bool {
    let parts = |v: &Value| -> Map<String, Value> {
        let all = v.as_object().cloned().unwrap_or_default();
        all.into_iter().filter(|(k, _)| !matches!(k.as_str(), "metadata" | "status" | "kind" | "apiVersion")).collect()
    };
    parts(old) != parts(new)
}

/// RFC 7386.
pub fn merge(base: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *base = patch.clone();
        return;
    };
    if !base.is_object() {
        *base = json!({});
    }
    let Value::Object(base) = base else { return };
    for (key, value) in patch {
        if value.is_null() {
            base.remove(key);
        } else {
            merge(base.entry(key.clone()).or_insert(Value::Null), value);
        }
    }
}

/// Seconds, as metadata has them.
#[must_use]
pub fn seconds(at: Timestamp) -> String {
    Timestamp::from_second(at.as_second()).unwrap_or(at).to_string()
}

/// The text at a pointer; empty if there is none.
#[must_use]
pub fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// The texts at a pointer.
#[must_use]
pub fn strings(object: &Value, pointer: &str) -> Vec<String> {
    let all = object.pointer(pointer).and_then(Value::as_array);
    all.into_iter().flatten().filter_map(|v| v.as_str().map(str::to_owned)).collect()
}

fn remove(object: &mut Value, field: &str) {
    if let Value::Object(map) = object {
        map.remove(field);
    }
}

fn set(object: &mut Value, field: &str, value: Option<Value>) {
    match value {
        Some(value) => object[field] = value,
        None => remove(object, field),
    }
}

fn labels_match(selector: &str, object: &Value) -> bool {
    selector.split(',').filter(|s| !s.is_empty()).all(|one| {
        let label = |name: &str| object["metadata"]["labels"].get(name).and_then(Value::as_str);
        if let Some((name, value)) = one.split_once("!=") {
            label(name) != Some(value)
        } else if let Some((name, value)) = one.split_once('=') {
            label(name) == Some(value.trim_start_matches('='))
        } else if let Some(name) = one.strip_prefix('!') {
            label(name).is_none()
        } else {
            label(one).is_some()
        }
    })
}

fn fields_match(selector: &str, object: &Value) -> bool {
    selector.split(',').filter(|s| !s.is_empty()).all(|one| {
        let (path, value, equal) = match one.split_once("!=") {
            Some((path, value)) => (path, value, false),
            None => match one.split_once('=') {
                Some((path, value)) => (path, value.trim_start_matches('='), true),
                None => return false,
            },
        };
        let pointer = format!("/{}", path.replace('.', "/"));
        (text(object, &pointer) == value) == equal
    })
}
