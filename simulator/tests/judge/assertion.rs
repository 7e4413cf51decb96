//! The vocabulary of `Expect`: each assertion says what does not hold.

use super::history::{History, Ranks, nodes, text};
use berth_simulator::scenario::brackets::expand;
use serde_json::Value;
use std::collections::BTreeSet;

/// Seconds that a promise may be late: a cycle of up to 1 s, twice.
const SLACK: f64 = 2.0;

/// What does not hold of one assertion.
pub(crate) fn hold(h: &History, assertion: &Value) -> Vec<String> {
    let Some((kind, a)) = assertion.as_object().filter(|o| o.len() == 1).and_then(|o| o.iter().next()) else {
        return vec![format!("{assertion} is no assertion")];
    };
    let wrong = match kind.as_str() {
        "started" => started(h, a),
        "never_started" => h.starts.get(&job(a)).map(|s| format!("started at {}", s[0].0)),
        "rejected" => none_of(h, a, "Rejected").then(|| "not rejected".to_owned()),
        "not_rejected" => h.of_job(&job(a), &["Rejected"]).next().map(|e| format!("rejected: {}", e["message"])),
        "order" => order(h, a),
        "running_at" => running_at(h, a),
        "no_overlap" => no_overlap(h, a),
        "finished" => finished(h, a),
        "pending_at_end" => pending_at_end(h, a),
        "domains" => domains(h, a),
        "same_slice_domain" => same_slice_domain(h, a),
        "nodes_within" => on_nodes(h, a, std::collections::BTreeSet::is_subset),
        "nodes_equal_set" => on_nodes(h, a, |got, want| got == want),
        "role_on" => role_on(h, a),
        "replaced" => replaced(h, a),
        "stopped" => stopped(h, a),
        "not_stopped" => h.stops.iter().find(|e| e["job"] == a["job"]).map(|e| format!("stopped: {e}")),
        "victims_total" => victims_total(h, a),
        "reserved" => reserved(h, a),
        "not_moved" => not_moved(h, a),
        "event_count" => event_count(h, a),
        "all_of" => return list(a).iter().flat_map(|x| hold(h, x)).collect(),
        "any_of" => {
            let all: Vec<Vec<String>> = list(a).iter().map(|x| hold(h, x)).collect();
            all.iter().all(|w| !w.is_empty()).then(|| format!("none holds: {all:?}"))
        }
        other => Some(format!("{other} is no assertion that this judge knows")),
    };
    wrong.into_iter().map(|w| format!("{kind} {a}: {w}")).collect()
}

fn list(value: &Value) -> Vec<Value> {
    value.as_array().cloned().unwrap_or_default()
}

fn job(a: &Value) -> String {
    text(&a["job"])
}

fn none_of(h: &History, a: &Value, kind: &str) -> bool {
    h.of_job(&job(a), &[kind]).next().is_none()
}

/// A number or a pair as a range.
fn inside(x: f64, range: &Value) -> bool {
    match range.as_array() {
        Some(pair) => pair[0].as_f64().is_some_and(|lo| lo <= x) && pair[1].as_f64().is_some_and(|hi| x <= hi),
        None => range.as_f64().is_none_or(|n| n == x),
    }
}

fn names(value: &Value) -> BTreeSet<String> {
    let patterns = value.as_array().cloned().unwrap_or_else(|| vec![value.clone()]);
    let expanded = patterns.iter().flat_map(|p| expand(&text(p)).unwrap_or_default());
    expanded.map(|(name, _)| name).collect()
}

fn keys(value: &Value) -> Vec<String> {
    value.as_array().map_or_else(|| vec![text(value)], |all| all.iter().map(text).collect())
}

fn nth<'a>(h: &'a History, a: &Value) -> Option<&'a (f64, Ranks)> {
    let which = usize::try_from(a["nth"].as_u64().unwrap_or(1)).ok()?;
    h.starts.get(&job(a))?.get(which - 1)
}

fn first(h: &History, job: &str) -> Option<f64> {
    h.starts.get(job).map(|s| s[0].0)
}

fn started(h: &History, a: &Value) -> Option<String> {
    match nth(h, a) {
        None => Some("never started".into()),
        Some((t, _)) => (!inside(*t, &a["between"])).then(|| format!("started at {t}")),
    }
}

fn order(h: &History, a: &Value) -> Option<String> {
    let (jobs, strict) = if a.is_array() { (list(a), false) } else { (list(&a["jobs"]), a["strict"] == true) };
    let starts: Vec<Option<f64>> = jobs.iter().map(|j| first(h, &text(j))).collect();
    let wrong = starts.windows(2).any(|w| match (w[0], w[1]) {
        (Some(x), Some(y)) => y < x || (strict && y == x),
        _ => true,
    });
    wrong.then(|| format!("starts {starts:?}"))
}

fn seconds(value: &Value) -> f64 {
    let text = value.as_str().and_then(|t| t.parse::<crds::Duration>().ok());
    #[allow(clippy::cast_precision_loss)]
    let read = text.map(|d| d.as_micros() as f64 / 1e6);
    read.or_else(|| value.as_f64()).unwrap_or(f64::NAN)
}

#[allow(clippy::cast_precision_loss)]
fn running_at(h: &History, a: &Value) -> Option<String> {
    let state = h.at(seconds(&a["t"]));
    a["jobs"].as_object()?.iter().find_map(|(job, want)| {
        let got = state.get(job).map_or(0, Ranks::len);
        (!inside(got as f64, want)).then(|| format!("{job} runs {got} pods"))
    })
}

fn no_overlap(h: &History, a: &Value) -> Option<String> {
    let jobs = list(&a["jobs"]);
    let both = |state: &std::collections::BTreeMap<String, Ranks>| {
        jobs.iter().filter(|j| state.contains_key(&text(j))).count()
    };
    h.steps.iter().find(|(_, state)| both(state) > 1).map(|(t, _)| format!("they overlap at {t}"))
}

fn finished(h: &History, a: &Value) -> Option<String> {
    let name = job(a);
    let Some(end) = h.of_job(&name, &["Finished"]).last() else { return Some("never finished".into()) };
    let result = a["result"].is_null() || a["result"] == end["result"];
    let t = end["t"].as_f64().unwrap_or(0.0);
    (!result || (!a["between"].is_null() && !inside(t, &a["between"]))).then(|| format!("{end}"))
}

fn pending_at_end(h: &History, a: &Value) -> Option<String> {
    let name = job(a);
    let phase = h.phases.get(&name).map_or("", String::as_str);
    let runs = h.steps.last().is_some_and(|(_, s)| s.contains_key(&name));
    let ended = !none_of(h, a, "Finished") || !none_of(h, a, "Rejected");
    (runs || ended || !["Pending", "Reserved", "Restarting"].contains(&phase)).then(|| format!("phase {phase}"))
}

#[allow(clippy::cast_precision_loss)]
fn domains(h: &History, a: &Value) -> Option<String> {
    let Some((t, ranks)) = nth(h, a) else { return Some("never started".into()) };
    let paths: BTreeSet<Vec<String>> = nodes(ranks).iter().map(|n| h.path(n, &keys(&a["label"]), *t)).collect();
    let (got, most) = (paths.len() as f64, a["max"].as_f64());
    let wrong = a["count"].as_f64().is_some_and(|c| c != got) || most.is_some_and(|m| got > m);
    wrong.then(|| format!("{paths:?}"))
}

fn same_slice_domain(h: &History, a: &Value) -> Option<String> {
    let Some((t, ranks)) = nth(h, a) else { return Some("never started".into()) };
    let role = a["role"].as_str();
    let mine: Vec<&String> =
        ranks.values().filter(|(r, _)| role.is_none_or(|want| want == r)).map(|(_, n)| n).collect();
    let size = usize::try_from(a["size"].as_u64()?).ok()?;
    mine.chunks(size).find_map(|slice| {
        let paths: BTreeSet<Vec<String>> = slice.iter().map(|n| h.path(n, &keys(&a["path"]), *t)).collect();
        (paths.len() > 1).then(|| format!("a slice on {slice:?}"))
    })
}

fn on_nodes(h: &History, a: &Value, fits: fn(&BTreeSet<String>, &BTreeSet<String>) -> bool) -> Option<String> {
    let Some((_, ranks)) = nth(h, a) else { return Some("never started".into()) };
    let got = nodes(ranks);
    (!fits(&got, &names(&a["nodes"]))).then(|| format!("nodes {got:?}"))
}

fn role_on(h: &History, a: &Value) -> Option<String> {
    let Some((_, ranks)) = nth(h, a) else { return Some("never started".into()) };
    let role = text(&a["role"]);
    let got: BTreeSet<String> = ranks.values().filter(|(r, _)| *r == role).map(|(_, n)| n.clone()).collect();
    (!got.is_subset(&names(&a["nodes"]))).then(|| format!("on {got:?}"))
}

#[allow(clippy::cast_precision_loss)]
fn replaced(h: &History, a: &Value) -> Option<String> {
    let name = job(a);
    let got: Vec<String> = h.of_job(&name, &["NodeReplaced"]).map(|e| text(&e["to"])).collect();
    let times = if a["times"].is_null() { !got.is_empty() } else { inside(got.len() as f64, &a["times"]) };
    let allowed = names(&a["nodes"]);
    (!times || got.iter().any(|n| !allowed.contains(n))).then(|| format!("replaced by {got:?}"))
}

fn one_of(value: &Value, wanted: &Value) -> bool {
    wanted.is_null() || wanted.as_array().map_or(value == wanted, |all| all.contains(value))
}

#[allow(clippy::cast_precision_loss)]
fn stopped(h: &History, a: &Value) -> Option<String> {
    let mine: Vec<&Value> = h.stops.iter().filter(|e| e["job"] == a["job"]).collect();
    let hits = mine.iter().filter(|e| {
        one_of(&e["cause"], &a["cause"])
            && one_of(&e["by"], &a["by"])
            && (a["between"].is_null() || inside(e["t"].as_f64().unwrap_or(0.0), &a["between"]))
    });
    let (hits, times) = (hits.count(), if a["times"].is_null() { Value::from(1) } else { a["times"].clone() });
    (!inside(hits as f64, &times)).then(|| format!("{hits} such stops of {mine:?}"))
}

fn victims_total(h: &History, a: &Value) -> Option<String> {
    let victims: Vec<&Value> =
        h.stops.iter().filter(|e| e["cause"] == "Preempted" || e["cause"] == "Reclaimed").collect();
    let n = victims.len() as u64;
    let wrong = a["max"].as_u64().is_some_and(|max| n > max) || a["equal"].as_u64().is_some_and(|e| n != e);
    wrong.then(|| format!("{n} victims: {victims:?}"))
}

fn reserved(h: &History, a: &Value) -> Option<String> {
    let name = job(a);
    let got: Vec<&Value> = h.of_job(&name, &["Reserved"]).collect();
    let Some(event) = (if a["last"] == true { got.last() } else { got.first() }) else {
        return Some("never reserved".into());
    };
    let start = a["start"].is_null() || inside(event["start"].as_f64().unwrap_or(f64::NAN), &a["start"]);
    let within = names(&a["nodes_within"]);
    let nodes = a["nodes_within"].is_null() || list(&event["nodes"]).iter().all(|n| within.contains(&text(n)));
    (!start || !nodes).then(|| event.to_string())
}

fn not_moved(h: &History, a: &Value) -> Option<String> {
    let name = job(a);
    let (mut start, mut promised): (Option<f64>, Option<Vec<Value>>) = (None, None);
    for event in h.of_job(&name, &["Reserved", "ReservationMoved", "Started"]) {
        match event["event"].as_str().unwrap_or("") {
            "ReservationMoved" => {
                let from = event["from"].as_f64().unwrap_or(0.0);
                if event["to"].as_f64().is_none_or(|to| to > from + SLACK) {
                    return Some(format!("moved: {event}"));
                }
                start = event["to"].as_f64();
            }
            "Reserved" => {
                let now = event["start"].as_f64().unwrap_or(0.0);
                if start.is_some_and(|s| now > s + SLACK) {
                    return Some(format!("reserved again later: {event}"));
                }
                start = Some(now);
                promised.get_or_insert_with(|| list(&event["nodes"]));
            }
            _ => {
                let t = event["t"].as_f64().unwrap_or(0.0);
                if start.is_some_and(|s| t > s + SLACK) {
                    return Some(format!("started at {t}, promised for {start:?}"));
                }
                return elsewhere(h, a, &name, t, promised.as_deref());
            }
        }
    }
    None
}

/// Whether the first start lies in other domains than were promised first.
fn elsewhere(h: &History, a: &Value, name: &str, t: f64, promised: Option<&[Value]>) -> Option<String> {
    let (Some(promised), false) = (promised, a["label"].is_null()) else { return None };
    let keys = keys(&a["label"]);
    let want: BTreeSet<_> = promised.iter().map(|n| h.path(&text(n), &keys, t)).collect();
    let got: BTreeSet<_> = nodes(&h.starts.get(name)?.first()?.1).iter().map(|n| h.path(n, &keys, t)).collect();
    (want != got).then(|| format!("promised in {want:?}, started in {got:?}"))
}

fn event_count(h: &History, a: &Value) -> Option<String> {
    let begins = |e: &Value, key: &str| a[key].as_str().is_none_or(|want| text(&e[key]).starts_with(want));
    let n = h
        .events
        .iter()
        .filter(|e| e["event"] == a["event"] && (a["job"].is_null() || e["job"] == a["job"]))
        .filter(|e| begins(e, "cause") && begins(e, "code"))
        .count() as u64;
    let wrong = a["max"].as_u64().is_some_and(|x| n > x)
        || a["min"].as_u64().is_some_and(|x| n < x)
        || a["equal"].as_u64().is_some_and(|x| n != x);
    wrong.then(|| format!("{n} events"))
}
