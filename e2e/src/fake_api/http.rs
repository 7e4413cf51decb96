//! Requests and answers as a `kube::Client` knows them, each on its own task with its own delays: what a client has given
//! up waiting for happens all the same.

use super::faults::Fault;
use super::kinds::Kind;
use super::status::Status;
use super::store::Change;
use super::verbs::{Call, Reply, Server, Verb, text};
use super::watch;
use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use kube::client::Body;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::Instant;

/// Error of a connection.
pub type BodyError = Box<dyn std::error::Error + Send + Sync>;
type Answer = Response<UnsyncBoxBody<Bytes, BodyError>>;

/// A call that nobody waits for any more, but that the server still carries out.
const SLOW: Duration = Duration::from_secs(15);
/// Well within everybody's patience.
const LATE: Duration = Duration::from_secs(4);

/// Told of every change right when it is made, and of every call.
pub trait Audit: Send {
    /// One change of the store.
    fn changed(&mut self, change: &Change, server: &Server, now: Timestamp);
    /// One call with its answer's HTTP status; 0 if the caller never hears one.
    fn called(&mut self, line: &str, call: &Call, fault: Option<Fault>, code: u16, now: Timestamp);
}

/// What all connections share.
pub struct Shared {
    server: Mutex<Server>,
    audit: Mutex<Option<Box<dyn Audit>>>,
    origin: Timestamp,
    start: Instant,
    cuts: AtomicU64,
    mutes: AtomicU64,
    /// Most milliseconds that a change is late at a watch.
    lag_ms: AtomicU64,
    crashes: mpsc::UnboundedSender<String>,
    changes: mpsc::UnboundedSender<Change>,
}

impl Shared {
    /// The server, for reading; changes go through [`Shared::with`].
    pub fn lock(&self) -> MutexGuard<'_, Server> {
        self.server.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the server; everybody who watches over it is told before anything else happens.
    pub fn with<T>(&self, done: impl FnOnce(&mut Server, Timestamp) -> T) -> T {
        let now = self.now();
        let mut server = self.lock();
        let result = done(&mut server, now);
        let fresh = server.store.take_fresh();
        if !fresh.is_empty()
            && let Some(audit) = self.audit.lock().unwrap_or_else(PoisonError::into_inner).as_mut()
        {
            for change in &fresh {
                audit.changed(change, &server, now);
            }
        }
        for change in fresh {
            let _ = self.changes.send(change);
        }
        result
    }

    /// The world's clock.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.origin.saturating_add(self.start.elapsed()).unwrap_or(self.origin)
    }

    /// When the world began.
    #[must_use]
    pub fn origin(&self) -> (Timestamp, Instant) {
        (self.origin, self.start)
    }

    pub(super) fn cuts(&self) -> u64 {
        self.cuts.load(Ordering::SeqCst)
    }

    pub(super) fn mutes(&self) -> u64 {
        self.mutes.load(Ordering::SeqCst)
    }

    pub(super) fn watch_lag(&self) -> Duration {
        let most = self.lag_ms.load(Ordering::SeqCst);
        Duration::from_millis(self.lock().rng.below(most + 1))
    }

    fn note(&self, line: &str, call: &Call, fault: Option<Fault>, code: u16) {
        let now = self.now();
        if let Some(audit) = self.audit.lock().unwrap_or_else(PoisonError::into_inner).as_mut() {
            audit.called(line, call, fault, code, now);
        }
    }
}

/// The fake API server.
#[derive(Clone)]
pub struct FakeApi {
    shared: Arc<Shared>,
}

/// What a fake API server reports as it goes.
pub struct Reports {
    /// Names of lines whose process is to die.
    pub crashes: mpsc::UnboundedReceiver<String>,
    /// Every change of the store.
    pub changes: mpsc::UnboundedReceiver<Change>,
}

impl FakeApi {
    /// An empty server with a seed of its luck, whose clock begins at `origin`.
    #[must_use]
    pub fn new(seed: u64, origin: Timestamp) -> (Self, Reports) {
        let (crashed, crashes) = mpsc::unbounded_channel();
        let (changed, changes) = mpsc::unbounded_channel();
        let shared = Shared {
            server: Mutex::new(Server::new(seed)),
            audit: Mutex::new(None),
            origin,
            start: Instant::now(),
            cuts: AtomicU64::new(0),
            mutes: AtomicU64::new(0),
            lag_ms: AtomicU64::new(20),
            crashes: crashed,
            changes: changed,
        };
        (Self { shared: Arc::new(shared) }, Reports { crashes, changes })
    }

    /// What all connections share.
    #[must_use]
    pub fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Who is told of everything.
    pub fn watch_over(&self, audit: Box<dyn Audit>) {
        *self.shared.audit.lock().unwrap_or_else(PoisonError::into_inner) = Some(audit);
    }

    /// Ends all watches, as a restart of the server does.
    pub fn cut_watches(&self) {
        self.shared.cuts.fetch_add(1, Ordering::SeqCst);
        self.shared.lock().store.stir();
    }

    /// All watches die without a sign.
    pub fn mute_watches(&self) {
        self.shared.mutes.fetch_add(1, Ordering::SeqCst);
        self.shared.lock().store.stir();
    }

    /// Most milliseconds that a change is late at a watch.
    pub fn set_watch_lag(&self, most_ms: u64) {
        self.shared.lag_ms.store(most_ms, Ordering::SeqCst);
    }

    /// A connection of a process.
    #[must_use]
    pub fn line(&self, name: &str, user: &str) -> Line {
        Line {
            shared: self.shared.clone(),
            name: name.into(),
            user: user.into(),
            dead: Arc::new(AtomicBool::new(false)),
            paused: Arc::new(AtomicBool::new(false)),
            resumed: Arc::new(Notify::new()),
        }
    }
}

/// The connection of one process: it dies with it, and stands still with it.
#[derive(Clone)]
pub struct Line {
    shared: Arc<Shared>,
    name: Arc<str>,
    user: Arc<str>,
    dead: Arc<AtomicBool>,
    paused: Arc<AtomicBool>,
    resumed: Arc<Notify>,
}

impl Line {
    /// A client over it.
    #[must_use]
    pub fn client(&self) -> Client {
        Client::new(self.clone(), "default")
    }

    /// Nothing goes through it any more, in either direction.
    pub fn die(&self) {
        self.dead.store(true, Ordering::SeqCst);
    }

    /// Whether it has died.
    #[must_use]
    pub fn is_dead(&self) -> bool {
        self.dead.load(Ordering::SeqCst)
    }

    /// What is sent from now on reaches the server only after [`Line::resume`]; so with answers.
    pub fn pause(&self) {
        self.paused.store(true, Ordering::SeqCst);
    }

    /// Ends a pause.
    pub fn resume(&self) {
        self.paused.store(false, Ordering::SeqCst);
        self.resumed.notify_waiters();
    }

    /// Stands still with its process. What was sent before the process died is on its way all the same.
    async fn stand(&self) {
        while self.paused.load(Ordering::SeqCst) {
            self.resumed.notified().await;
        }
    }

    async fn gate(&self) {
        self.stand().await;
        if self.is_dead() {
            std::future::pending::<()>().await;
        }
    }

    async fn serve(self, request: Request<Body>) -> Result<Answer, BodyError> {
        let (parts, body) = request.into_parts();
        let body = body.collect_bytes().await?;
        let call = match read(&self.user, &parts, &body) {
            Ok(call) => call,
            Err(status) => return Ok(answer(Err(status))),
        };
        let (fault, before, after) = {
            let mut server = self.shared.lock();
            let lease = call.kind.kind == "Lease";
            let server = &mut *server;
            let fault = if lease || !call.is_ours() { None } else { server.faults.next(&mut server.rng) };
            (fault, server.rng.between(300, 3000), server.rng.between(300, 3000))
        };
        if self.is_dead() {
            std::future::pending::<()>().await;
        }
        tokio::time::sleep(Duration::from_micros(before)).await;
        self.stand().await;
        if let Some(instead) = self.instead(&call, fault).await {
            return instead;
        }
        if call.verb == Verb::Watch {
            return self.watch(call, fault);
        }
        let reply = self.shared.with(|server, now| {
            if fault == Some(Fault::Conflict) {
                touch(server, &call, now);
            }
            server.answer(&call, now)
        });
        let code = reply.as_ref().map_or_else(|status| status.code, |(code, _)| *code);
        match fault {
            Some(Fault::CrashAfter) => {
                self.shared.note(&self.name, &call, fault, 0);
                self.crash().await;
            }
            Some(Fault::Lost | Fault::Slow) => {
                self.shared.note(&self.name, &call, fault, 0);
                std::future::pending::<()>().await;
            }
            Some(Fault::Timeout) => {
                self.shared.note(&self.name, &call, fault, 504);
                return Ok(answer(Err(Status::new(
                    504,
                    "Timeout",
                    "request did not complete within the allotted timeout",
                ))));
            }
            _ => self.shared.note(&self.name, &call, fault, code),
        }
        tokio::time::sleep(Duration::from_micros(after)).await;
        self.gate().await;
        Ok(answer(reply))
    }

    /// What a fault does before the server looks at a call.
    async fn instead(&self, call: &Call, fault: Option<Fault>) -> Option<Result<Answer, BodyError>> {
        let say = |status: Status| {
            self.shared.note(&self.name, call, fault, status.code);
            Some(Ok(answer(Err(status))))
        };
        match fault? {
            Fault::CrashBefore => {
                self.shared.note(&self.name, call, fault, 0);
                self.crash().await;
                None
            }
            Fault::Reset => {
                self.shared.note(&self.name, call, fault, 0);
                Some(Err("connection reset by peer".into()))
            }
            Fault::Gone => say(Status::new(410, "Expired", "too old resource version")),
            Fault::Invalid => say(Status::invalid(call.kind, &call.name, "denied by a webhook of somebody else")),
            Fault::Busy => {
                let status = Status::new(429, "TooManyRequests", "the server is overloaded, please try again later");
                say(Status { retry_after: Some(1), ..status })
            }
            Fault::Internal => {
                say(Status::new(500, "InternalError", "Internal error occurred: etcdserver: leader changed"))
            }
            // What a quota that others use at the same moment answers.
            Fault::Conflict if call.verb == Verb::Create => {
                let quota = Kind::named("ResourceQuota")?;
                say(Status::stale(quota, "compute"))
            }
            Fault::Slow => {
                tokio::time::sleep(SLOW).await;
                None
            }
            Fault::Late => {
                tokio::time::sleep(LATE).await;
                None
            }
            _ => None,
        }
    }

    /// The process dies here: it neither gets nor sends anything more.
    async fn crash(&self) {
        self.die();
        let _ = self.shared.crashes.send(self.name.to_string());
        std::future::pending::<()>().await;
    }

    fn watch(&self, call: Call, fault: Option<Fault>) -> Result<Answer, BodyError> {
        let version = call.query.get("resourceVersion").and_then(|v| v.parse().ok()).unwrap_or(0);
        let known = self.shared.lock().store.after(version).is_some();
        self.shared.note(&self.name, &call, fault, if known { 200 } else { 410 });
        if !known {
            return Ok(answer(Err(Status::expired())));
        }
        let body = StreamBody::new(watch::stream(self.shared.clone(), call, version));
        Ok(Response::builder().status(200).body(BodyExt::boxed_unsync(body))?)
    }
}

impl tower::Service<Request<Body>> for Line {
    type Response = Answer;
    type Error = BodyError;
    type Future = futures::future::BoxFuture<'static, Result<Answer, BodyError>>;

    fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> std::task::Poll<Result<(), BodyError>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let (sender, receiver) = oneshot::channel();
        let line = self.clone();
        // On a task of its own: that the caller stops waiting does not undo it.
        tokio::spawn(async move {
            let _ = sender.send(line.serve(request).await);
        });
        Box::pin(async move {
            match receiver.await {
                Ok(answer) => answer,
                Err(_) => std::future::pending().await,
            }
        })
    }
}

/// Somebody else writes the object first.
fn touch(server: &mut Server, call: &Call, now: Timestamp) {
    let key = super::store::Key::new(call.kind, &call.namespace, &call.name);
    let _ = now;
    if let Some(object) = server.store.get(&key) {
        let mut object = (**object).clone();
        object["metadata"]["annotations"]["somebody.else/was-here"] = serde_json::json!("1");
        server.store.put(key, object);
    }
}

fn answer(reply: Reply) -> Answer {
    let (code, body, retry) = match reply {
        Ok((code, object)) => (code, object, None),
        Err(status) => (status.code, status.body(), status.retry_after),
    };
    let body = Full::new(Bytes::from(body.to_string())).map_err(|never| match never {}).boxed_unsync();
    let mut response = Response::new(body);
    *response.status_mut() = http::StatusCode::from_u16(code).unwrap_or(http::StatusCode::INTERNAL_SERVER_ERROR);
    if let Some(seconds) = retry {
        response.headers_mut().insert(http::header::RETRY_AFTER, http::HeaderValue::from(seconds));
    }
    response
}

/// Reads a request.
fn read(user: &str, parts: &http::request::Parts, body: &[u8]) -> Result<Call, Status> {
    let unknown = || Status::new(404, "NotFound", "the server could not find the requested resource");
    let path: Vec<&str> = parts.uri.path().split('/').filter(|p| !p.is_empty()).collect();
    let (group, version, rest) = match path.as_slice() {
        ["api", version, rest @ ..] => ("", *version, rest),
        ["apis", group, version, rest @ ..] => (*group, *version, rest),
        _ => return Err(unknown()),
    };
    let (namespace, rest) = match rest {
        ["namespaces", namespace, plural, rest @ ..] if *plural != "status" => {
            let mut all = vec![*plural];
            all.extend_from_slice(rest);
            (*namespace, all)
        }
        rest => ("", rest.to_vec()),
    };
    let (plural, name, sub) = match rest.as_slice() {
        [plural] => (*plural, "", None),
        [plural, name] => (*plural, *name, None),
        [plural, name, sub] => (*plural, *name, Some((*sub).to_owned())),
        _ => return Err(unknown()),
    };
    let kind = Kind::of_path(group, version, plural).ok_or_else(unknown)?;
    let query = pairs(parts.uri.query().unwrap_or_default());
    let body: Value = if body.is_empty() {
        Value::Null
    } else {
        serde_json::from_slice(body).map_err(|error| Status::bad(error.to_string()))?
    };
    let watches = query.get("watch").is_some_and(|w| w == "true" || w == "1");
    let verb = match parts.method {
        Method::GET if watches => Verb::Watch,
        Method::GET if name.is_empty() => Verb::List,
        Method::GET => Verb::Get,
        Method::POST => Verb::Create,
        Method::PUT => Verb::Update,
        Method::PATCH => Verb::Patch,
        Method::DELETE => Verb::Delete,
        _ => return Err(Status::new(405, "MethodNotAllowed", "the server does not allow this method")),
    };
    let inside = text(&body, "/metadata/namespace");
    if verb == Verb::Create && !inside.is_empty() && inside != namespace && sub.is_none() {
        return Err(Status::bad(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    let call = Call {
        user: user.to_owned(),
        verb,
        kind,
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        sub,
        query,
        body,
    };
    Ok(call)
}

/// Query parameters, decoded.
fn pairs(query: &str) -> BTreeMap<String, String> {
    let all = query.split('&').filter(|p| !p.is_empty());
    all.map(|pair| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        (decoded(name), decoded(value))
    })
    .collect()
}

fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        match byte {
            b'+' => bytes.push(b' '),
            b'%' => {
                let digit =
                    |b: Option<u8>| b.and_then(|b| char::from(b).to_digit(16)).and_then(|d| u8::try_from(d).ok());
                let (high, low) = (digit(rest.next()), digit(rest.next()));
                bytes.push(high.unwrap_or(0) * 16 + low.unwrap_or(0));
            }
            other => bytes.push(other),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
