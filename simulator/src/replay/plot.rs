//! A replay as a picture: units in use and jobs waiting over time.

use super::engine::Moment;
use crate::svg::Svg;

const WIDTH: f64 = 1000.0;
const HEIGHT: f64 = 180.0;
const LEFT: f64 = 60.0;
const GAP: f64 = 40.0;

/// Draws use (above) and queue (below).
#[must_use]
#[allow(clippy::cast_precision_loss)]
pub fn draw(moments: &[Moment], capacity: u64, title: &str) -> String {
    let mut svg = Svg::new(LEFT + WIDTH + 20.0, 2.0 * HEIGHT + 3.0 * GAP, title);
    let from = moments.first().map_or(0.0, |m| m.at.as_secs_f64());
    let to = moments.last().map_or(1.0, |m| m.at.as_secs_f64()).max(from + 1.0);
    let longest = moments.iter().map(|m| m.queued).max().unwrap_or(0).max(1) as f64;
    let used = |m: &Moment| m.used as f64 / capacity.max(1) as f64;
    let queued = |m: &Moment| m.queued as f64 / longest;
    for (top, label, most, value) in [
        (GAP, "units in use", format!("{capacity}"), &used as &dyn Fn(&Moment) -> f64),
        (2.0 * GAP + HEIGHT, "jobs waiting", format!("{longest:.0}"), &queued),
    ] {
        svg.rect(LEFT, top, WIDTH, HEIGHT, "frame", "");
        svg.text(LEFT, top - 6.0, "label", label);
        svg.text(4.0, top + 10.0, "label", &most);
        let points: Vec<(f64, f64)> = thinned(moments, value)
            .into_iter()
            .map(|(at, v)| (LEFT + (at - from) / (to - from) * WIDTH, top + HEIGHT * (1.0 - v)))
            .collect();
        svg.steps(&points, "line");
    }
    svg.text(LEFT, 2.0 * HEIGHT + 2.5 * GAP, "label", &format!("{:.1} days", (to - from) / 86_400.0));
    svg.finish()
}

/// At most some thousands of points: of each group of moments the lowest and the highest are kept.
fn thinned(moments: &[Moment], value: &dyn Fn(&Moment) -> f64) -> Vec<(f64, f64)> {
    let group = moments.len().div_ceil(2000).max(1);
    let mut points = Vec::new();
    for part in moments.chunks(group) {
        let of = |m: &Moment| (m.at.as_secs_f64(), value(m));
        let low = part.iter().min_by(|a, b| value(a).total_cmp(&value(b)));
        let high = part.iter().max_by(|a, b| value(a).total_cmp(&value(b)));
        if let (Some(low), Some(high)) = (low, high) {
            let (first, second) = if low.at <= high.at { (low, high) } else { (high, low) };
            points.push(of(first));
            points.push(of(second));
        }
    }
    points
}
