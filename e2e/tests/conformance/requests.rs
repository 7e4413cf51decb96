//! Random requests of the sorts that Berth sends, with places for what each server said before.

use berth_e2e::fake_api::Rng;
use berth_e2e::job;
use serde_json::{Value, json};
use std::fmt;

/// Namespaces of sequences begin so.
pub(crate) const NAMESPACE: &str = "conformance";

/// One request. Its body and query may hold `$version`, `$stale`, `$uid` and `$other`: what its server said of the
/// subject last, before that, and of the subject's earlier namesake.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    pub(crate) method: &'static str,
    pub(crate) plural: &'static str,
    pub(crate) name: Option<&'static str>,
    pub(crate) sub: &'static str,
    pub(crate) query: String,
    pub(crate) content: &'static str,
    pub(crate) body: Option<Value>,
    /// Kind and name, as the sides remember objects.
    pub(crate) subject: String,
}

impl fmt::Display for Ask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let body = self.body.as_ref().map(ToString::to_string).unwrap_or_default();
        let body: String = body.chars().take(240).collect();
        write!(f, "{} {}{}{} {body}", self.method, self.subject, self.sub, self.query)
    }
}

/// What is watched of every sequence.
pub(crate) fn watches() -> Vec<(&'static str, String)> {
    let selected = |kind, query: &str| (kind, query.to_owned());
    vec![
        selected("configmaps", ""),
        selected("pods", ""),
        selected("pods", "&labelSelector=app%3Dx"),
        selected("pods", "&fieldSelector=spec.nodeName%21%3D"),
        selected("berths", ""),
        selected("trainingjobs", "&labelSelector=app"),
    ]
}

const KINDS: [&str; 6] = ["configmaps", "pods", "pods", "berths", "berths", "trainingjobs"];
const NAMES: [&str; 3] = ["a", "b", "c"];

/// The stream of requests of a seed.
pub(crate) struct Requests(Rng);

impl Requests {
    pub(crate) fn new(rng: Rng) -> Self {
        Self(rng)
    }

    fn one<T: Copy>(&mut self, all: &[T]) -> T {
        *self.0.pick(all).expect("there are some")
    }

    /// The next one.
    pub(crate) fn next(&mut self) -> Ask {
        let (plural, name) = (self.one(&KINDS), self.one(&NAMES));
        match self.0.below(20) {
            0..6 => self.create(plural, name),
            6 => self.ask("GET", plural, Some(name), "", "", None),
            7..9 => self.replace(plural, name),
            9..12 => self.patch(plural, name),
            12..14 => self.status(plural, name),
            14..17 => self.delete(plural, name),
            17 => self.evict(name),
            _ => self.list(plural),
        }
    }

    fn ask(
        &mut self,
        method: &'static str,
        plural: &'static str,
        name: Option<&'static str>,
        sub: &'static str,
        query: &str,
        body: Option<Value>,
    ) -> Ask {
        let content = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
        let subject = format!("{plural} {}", name.unwrap_or("*"));
        Ask { method, plural, name, sub, query: query.to_owned(), content, body, subject }
    }

    fn labels(&mut self) -> Value {
        match self.0.below(4) {
            0 => json!({}),
            1 => json!({"app": "x"}),
            2 => json!({"app": "y"}),
            _ => json!({"app": "x", "more": "z"}),
        }
    }

    fn object(&mut self, plural: &str, name: &str) -> Value {
        let mut metadata = json!({"name": name, "labels": self.labels()});
        if self.0.chance(250) {
            metadata["finalizers"] = json!(["berth.dev/test"]);
        }
        if self.0.chance(150) {
            metadata["annotations"] = json!({"note": "n"});
        }
        let mut object = match plural {
            "configmaps" => json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"k": self.one(&["1", "2"])}}),
            "pods" => {
                let mut spec = json!({"containers": [{"name": "a", "image": "b"}], "terminationGracePeriodSeconds": 5});
                if self.0.chance(700) {
                    spec["nodeName"] = json!("somewhere");
                }
                json!({"apiVersion": "v1", "kind": "Pod", "spec": spec})
            }
            "berths" => json!({
                "apiVersion": "berth.dev/v1alpha1", "kind": "Berth",
                "spec": {"job": "j", "jobUid": "u", "incarnation": 1, "queue": "q", "state": "Committed"},
            }),
            _ => job::manifest(&format!("{{name: {name}, roles: [{{replicas: 1}}]}}"), "", "q", "p").expect("it reads"),
        };
        object["metadata"] = metadata;
        object
    }

    fn create(&mut self, plural: &'static str, name: &'static str) -> Ask {
        let query = self.one(&["", "", "", "", "?dryRun=All", "?fieldManager=berth"]);
        let mut object = self.object(plural, name);
        if self.0.chance(60) {
            object["metadata"]["resourceVersion"] = json!("$version");
        }
        if self.0.chance(40) {
            object["metadata"].as_object_mut().expect("a mapping").remove("name");
        }
        let mut ask = self.ask("POST", plural, None, "", query, Some(object));
        ask.subject = format!("{plural} {name}");
        ask
    }

    fn replace(&mut self, plural: &'static str, name: &'static str) -> Ask {
        // A pod's spec does not change, so pods are not replaced.
        let plural = if plural == "pods" { "berths" } else { plural };
        let mut object = self.object(plural, name);
        match self.0.below(6) {
            0 => {}
            1 => object["metadata"]["resourceVersion"] = json!("$stale"),
            _ => object["metadata"]["resourceVersion"] = json!("$version"),
        }
        match self.0.below(8) {
            0 => object["metadata"]["uid"] = json!("$other"),
            1 => object["metadata"]["uid"] = json!("$uid"),
            _ => {}
        }
        let query = self.one(&["", "", "", "?dryRun=All"]);
        self.ask("PUT", plural, Some(name), "", query, Some(object))
    }

    fn patch(&mut self, plural: &'static str, name: &'static str) -> Ask {
        let mut metadata = match self.0.below(4) {
            0 => json!({"finalizers": []}),
            1 => json!({"finalizers": ["berth.dev/test"]}),
            2 => json!({"labels": {"app": self.one(&["x", "y"])}}),
            _ => json!({"annotations": {"note": null}}),
        };
        match self.0.below(6) {
            0 => metadata["resourceVersion"] = json!("$stale"),
            1 | 2 => metadata["resourceVersion"] = json!("$version"),
            _ => {}
        }
        match self.0.below(6) {
            0 => metadata["uid"] = json!("$other"),
            1 | 2 => metadata["uid"] = json!("$uid"),
            _ => {}
        }
        let mut body = json!({"metadata": metadata});
        if plural == "berths" && self.0.chance(300) {
            body["spec"] = json!({"leaderEpoch": self.one(&[1, 2])});
        }
        self.ask("PATCH", plural, Some(name), "", "?fieldManager=berth", Some(body))
    }

    fn status(&mut self, plural: &'static str, name: &'static str) -> Ask {
        let status = match plural {
            "pods" => json!({"phase": self.one(&["Running", "Succeeded", "Failed"])}),
            "berths" => json!({"created": self.one(&[1, 2])}),
            "trainingjobs" => json!({"restarts": self.one(&[1, 2])}),
            _ => return self.patch(plural, name),
        };
        let mut metadata = json!({});
        match self.0.below(5) {
            0 => metadata["uid"] = json!("$other"),
            1..4 => metadata["uid"] = json!("$uid"),
            _ => metadata["resourceVersion"] = json!("$stale"),
        }
        // What is not status is left alone.
        if self.0.chance(200) {
            metadata["labels"] = json!({"app": "of-a-status-write"});
        }
        self.ask("PATCH", plural, Some(name), "/status", "", Some(json!({"metadata": metadata, "status": status})))
    }

    fn delete_options(&mut self) -> Value {
        let mut options = json!({"propagationPolicy": "Background"});
        match self.0.below(6) {
            0 => options["preconditions"] = json!({"uid": "$other"}),
            1 | 2 => options["preconditions"] = json!({"uid": "$uid"}),
            3 => options["preconditions"] = json!({"uid": "$uid", "resourceVersion": "$stale"}),
            4 => options["preconditions"] = json!({"resourceVersion": "$version"}),
            _ => {}
        }
        match self.0.below(4) {
            0 | 1 => options["gracePeriodSeconds"] = json!(0),
            2 => options["gracePeriodSeconds"] = json!(3),
            _ => {}
        }
        options
    }

    fn delete(&mut self, plural: &'static str, name: &'static str) -> Ask {
        let options = self.delete_options();
        self.ask("DELETE", plural, Some(name), "", "", Some(options))
    }

    fn evict(&mut self, name: &'static str) -> Ask {
        let mut options = self.delete_options();
        options.as_object_mut().expect("a mapping").remove("propagationPolicy");
        let body = json!({
            "apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": "$namespace"},
            "deleteOptions": options,
        });
        self.ask("POST", "pods", Some(name), "/eviction", "", Some(body))
    }

    fn list(&mut self, plural: &'static str) -> Ask {
        let query = self.one(&[
            "",
            "?limit=2",
            "?labelSelector=app%3Dx",
            "?labelSelector=app%21%3Dx",
            "?labelSelector=app",
            "?labelSelector=%21app",
            "?labelSelector=app%3Dx%2Cmore%3Dz",
            "?fieldSelector=metadata.name%3Da",
            "?fieldSelector=metadata.name%21%3Da&limit=1",
        ]);
        self.ask("GET", plural, None, "", query, None)
    }
}
