//! A run as a picture: a row a node, a bar a job's stay on it, dashed where it was promised.

use super::event::{Rank, What};
use super::report::RunReport;
use crate::svg::{PALETTE, Svg};
use planner::Time;
use std::collections::{BTreeMap, BTreeSet};

const LEFT: f64 = 140.0;
const WIDTH: f64 = 1000.0;
const ROW: f64 = 18.0;
const TOP: f64 = 40.0;

/// One stay of a job on a node.
struct Stay<'a> {
    job: &'a str,
    node: String,
    from: Time,
    to: Time,
}

/// Draws the run.
#[must_use]
pub fn draw(report: &RunReport) -> String {
    let rows: BTreeMap<&str, usize> = report.nodes.iter().enumerate().map(|(row, n)| (n.as_str(), row)).collect();
    let (stays, end) = stays(report);
    let scale = WIDTH / end.as_secs_f64().max(1.0);
    #[allow(clippy::cast_precision_loss)]
    let y = |node: &str| TOP + *rows.get(node).unwrap_or(&0) as f64 * ROW;
    #[allow(clippy::cast_precision_loss)]
    let height = TOP + report.nodes.len() as f64 * ROW;
    let mut svg = Svg::new(LEFT + WIDTH + 20.0, height + 40.0, &report.scenario);
    svg.text(8.0, 20.0, "label", &report.scenario);
    for node in &report.nodes {
        svg.text(8.0, y(node) + 13.0, "label", node);
        svg.rect(LEFT, y(node), WIDTH, ROW, "frame", "");
    }
    let colours: BTreeMap<&str, &str> =
        report.jobs.keys().enumerate().map(|(row, job)| (job.as_str(), PALETTE[row % PALETTE.len()])).collect();
    for stay in &stays {
        let (x, width) = (stay.from.as_secs_f64() * scale, (stay.to.since(stay.from)).as_secs_f64() * scale);
        let tip = format!("{} on {}: {} to {} s", stay.job, stay.node, stay.from.as_secs_f64(), stay.to.as_secs_f64());
        let colour = colours.get(stay.job).copied().unwrap_or(PALETTE[0]);
        svg.bar(LEFT + x, y(&stay.node) + 1.0, width.max(1.0), ROW - 2.0, "stay", colour, &tip);
        if width > 8.0 * f64::from(u32::try_from(stay.job.len()).unwrap_or(u32::MAX)) {
            svg.text(LEFT + x + 3.0, y(&stay.node) + 13.0, "name", stay.job);
        }
    }
    promises(report, &mut svg, scale, &y);
    for part in 0..=4 {
        let at = end.as_secs_f64() * f64::from(part) / 4.0;
        svg.text(LEFT + at * scale - 10.0, height + 16.0, "label", &format!("{at:.0} s"));
    }
    svg.finish()
}

/// From every promise to the job's next start, on the promised nodes.
fn promises(report: &RunReport, svg: &mut Svg, scale: f64, y: &dyn Fn(&str) -> f64) {
    for (row, event) in report.events.iter().enumerate() {
        let What::Reserved { start, nodes, .. } = &event.what else { continue };
        let next = report.events[row..].iter().find(|e| e.job == event.job && matches!(e.what, What::Started { .. }));
        let until = next.map_or(*start, |e| e.t).max(event.t);
        for node in nodes {
            let (x, width) = (event.t.as_secs_f64() * scale, until.since(event.t).as_secs_f64() * scale);
            let tip = format!("{} is promised {node} at {} s", event.job, start.as_secs_f64());
            svg.bar(LEFT + x, y(node) + 4.0, width, ROW - 8.0, "reserved", "", &tip);
        }
    }
}

/// Who was where, from the events alone.
fn stays(report: &RunReport) -> (Vec<Stay<'_>>, Time) {
    let mut stays = Vec::new();
    let mut open: BTreeMap<&str, (Time, BTreeSet<String>)> = BTreeMap::new();
    let last = report.events.last().map_or(Time::ZERO, |e| e.t);
    let nodes = |ranks: &[Rank]| -> BTreeSet<String> { ranks.iter().map(|r| r.node.clone()).collect() };
    for event in &report.events {
        let job = event.job.as_str();
        let now: Option<BTreeSet<String>> = match &event.what {
            What::Started { ranks, .. } | What::Resized { ranks, .. } => Some(nodes(ranks)),
            What::NodeReplaced { from, to, .. } => open.get(job).map(|(_, held)| {
                let mut held = held.clone();
                held.remove(from);
                held.insert(to.clone());
                held
            }),
            What::Stopped { .. } | What::Finished { .. } => None,
            _ => continue,
        };
        if let Some((from, held)) = open.remove(job) {
            stays.extend(held.into_iter().map(|node| Stay { job, node, from, to: event.t }));
        }
        if let Some(held) = now {
            open.insert(job, (event.t, held));
        }
    }
    for (job, (from, held)) in open {
        stays.extend(held.into_iter().map(|node| Stay { job, node, from, to: last.max(from) }));
    }
    (stays, last)
}
