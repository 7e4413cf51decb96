//! A small SVG writer: rectangles, texts and step lines, readable on light and dark ground.

use std::fmt::Write;

/// Colours that stay apart for many hues; by order of use.
pub const PALETTE: [&str; 12] = [
    "#4e79a7", "#f28e2b", "#59a14f", "#e15759", "#76b7b2", "#edc948", "#b07aa1", "#9c755f", "#86bcb6", "#d37295",
    "#a0cbe8", "#8cd17d",
];

/// A picture under construction.
#[derive(Debug)]
pub struct Svg {
    body: String,
}

impl Svg {
    /// An empty picture.
    #[must_use]
    pub fn new(width: f64, height: f64, title: &str) -> Self {
        let mut svg = Self { body: String::new() };
        svg.put(format_args!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" \
             viewBox=\"0 0 {width:.0} {height:.0}\" font-family=\"sans-serif\" font-size=\"11\">\n\
             <title>{}</title>\n<style>\
             .ground{{fill:#fff}}.frame{{fill:none;stroke:#bbb}}.label{{fill:#333}}.line{{fill:none;stroke:#4e79a7}}\
             .name{{fill:#fff;font-size:10px}}.reserved{{fill:none;stroke:#888;stroke-dasharray:3 2}}\
             @media (prefers-color-scheme:dark){{.ground{{fill:#16181d}}.label{{fill:#ddd}}.frame{{stroke:#555}}}}\
             </style>\n<rect class=\"ground\" width=\"100%\" height=\"100%\"/>\n",
            escape(title)
        ));
        svg
    }

    fn put(&mut self, text: std::fmt::Arguments<'_>) {
        self.body.write_fmt(text).expect("a String takes every write");
    }

    /// A rectangle of a class; `fill` overrides its colour unless empty.
    pub fn rect(&mut self, x: f64, y: f64, width: f64, height: f64, class: &str, fill: &str) {
        let fill = if fill.is_empty() { String::new() } else { format!(" fill=\"{fill}\"") };
        self.put(format_args!(
            "<rect class=\"{class}\" x=\"{x:.2}\" y=\"{y:.2}\" width=\"{width:.2}\" height=\"{height:.2}\"{fill}/>\n"
        ));
    }

    /// A rectangle with a tooltip.
    #[allow(clippy::too_many_arguments)]
    pub fn bar(&mut self, x: f64, y: f64, width: f64, height: f64, class: &str, fill: &str, tip: &str) {
        let fill = if fill.is_empty() { String::new() } else { format!(" fill=\"{fill}\"") };
        self.put(format_args!(
            "<rect class=\"{class}\" x=\"{x:.2}\" y=\"{y:.2}\" width=\"{width:.2}\" height=\"{height:.2}\"{fill}>\
             <title>{}</title></rect>\n",
            escape(tip)
        ));
    }

    /// A text.
    pub fn text(&mut self, x: f64, y: f64, class: &str, text: &str) {
        self.put(format_args!("<text class=\"{class}\" x=\"{x:.2}\" y=\"{y:.2}\">{}</text>\n", escape(text)));
    }

    /// A line that keeps each value until the next point.
    pub fn steps(&mut self, points: &[(f64, f64)], class: &str) {
        let Some((x, y)) = points.first() else { return };
        self.put(format_args!("<path class=\"{class}\" d=\"M{x:.1} {y:.1}"));
        for (x, y) in &points[1..] {
            self.put(format_args!("H{x:.1}V{y:.1}"));
        }
        self.put(format_args!("\"/>\n"));
    }

    /// The whole text.
    #[must_use]
    pub fn finish(mut self) -> String {
        self.body.push_str("</svg>\n");
        self.body
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_break_the_picture() {
        let mut svg = Svg::new(10.0, 10.0, "a<b>&\"c\"");
        svg.text(1.0, 2.0, "label", "<script>");
        let text = svg.finish();
        assert!(text.contains("a&lt;b&gt;&amp;&quot;c&quot;") && text.contains("&lt;script&gt;"));
        assert!(!text.contains("<script>") && text.ends_with("</svg>\n"));
    }
}
