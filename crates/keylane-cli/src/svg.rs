//! Plain SVG output: a few shapes, in colours that are legible on light and dark pages.

use std::fmt::{Display, Write as _};

/// Colours that are distinguishable with any colour vision (Okabe and Ito's, without black and
/// yellow, which vanish on one of the two pages).
pub(crate) const COLOURS: [&str; 6] =
    ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#56b4e9"];

/// A drawing under way.
#[derive(Debug)]
pub(crate) struct SvgDrawing {
    width: u32,
    height: u32,
    body: String,
}

/// Position of a text relative to its point.
#[derive(Debug, Clone, Copy)]
pub(crate) enum TextAnchor {
    Start,
    Middle,
    End,
}

impl SvgDrawing {
    pub(crate) fn new(width: u32, height: u32) -> Self {
        SvgDrawing { width, height, body: String::new() }
    }

    pub(crate) fn text(&mut self, x: f64, y: f64, anchor: TextAnchor, text: impl Display) {
        let anchor = match anchor {
            TextAnchor::Start => "start",
            TextAnchor::Middle => "middle",
            TextAnchor::End => "end",
        };
        let text = escape(&text.to_string());
        self.push(format_args!(
            r#"<text class="ink" x="{x:.1}" y="{y:.1}" text-anchor="{anchor}">{text}</text>"#
        ));
    }

    /// A thin line of the axes.
    pub(crate) fn rule(&mut self, from: (f64, f64), to: (f64, f64)) {
        let ((x1, y1), (x2, y2)) = (from, to);
        self.push(format_args!(
            r#"<line class="rule" x1="{x1:.1}" y1="{y1:.1}" x2="{x2:.1}" y2="{y2:.1}"/>"#
        ));
    }

    /// A box with a tooltip.
    pub(crate) fn bar(&mut self, at: (f64, f64), size: (f64, f64), colour: &str, tip: &str) {
        let ((x, y), (width, height), tip) = (at, size, escape(tip));
        self.push(format_args!(
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" rx=\"2\" \
             fill=\"{colour}\"><title>{tip}</title></rect>"
        ));
    }

    /// A curve through points, with a dot at each.
    pub(crate) fn curve(&mut self, points: &[(f64, f64)], colour: &str, is_dashed: bool) {
        let line: Vec<_> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let line = line.join(" ");
        let dash = if is_dashed { r#" stroke-dasharray="5 4""# } else { "" };
        self.push(format_args!(
            r#"<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"{dash}/>"#
        ));
        for (x, y) in points {
            self.push(format_args!(r#"<circle cx="{x:.1}" cy="{y:.1}" r="3" fill="{colour}"/>"#));
        }
    }

    fn push(&mut self, shape: std::fmt::Arguments<'_>) {
        writeln!(self.body, "{shape}").expect("a string takes everything");
    }

    /// The whole file.
    pub(crate) fn finish(self) -> String {
        let SvgDrawing { width, height, body } = self;
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
             viewBox=\"0 0 {width} {height}\" font-family=\"system-ui, sans-serif\" \
             font-size=\"12\">\n\
             <style>\n\
             .paper {{ fill: #ffffff }} .ink {{ fill: #1b1f24 }} .rule {{ stroke: #c4c9d0 }}\n\
             @media (prefers-color-scheme: dark) {{\n\
             .paper {{ fill: #14171a }} .ink {{ fill: #e6e8ea }} .rule {{ stroke: #454b52 }}\n\
             }}\n\
             </style>\n\
             <rect class=\"paper\" width=\"{width}\" height=\"{height}\"/>\n{body}</svg>\n"
        )
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_escaped_and_every_page_is_readable() {
        let mut svg = SvgDrawing::new(10, 10);
        svg.text(1.0, 2.0, TextAnchor::Middle, "<a & \"b\">");
        svg.curve(&[(0.0, 1.0), (2.0, 3.0)], COLOURS[0], true);
        let text = svg.finish();
        assert_eq!(text.matches("<circle").count(), 2);
        assert!(text.contains("&lt;a &amp; &quot;b&quot;&gt;</text>"), "{text}");
        assert!(text.contains("prefers-color-scheme: dark"));
        assert!(text.starts_with("<svg ") && text.ends_with("</svg>\n"));
    }
}
