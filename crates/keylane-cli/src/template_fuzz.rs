//! Fuzz target: templates of arguments. The text that is rendered is that of a plain replacement.

use super::Template;
use crate::duration_arg::DurationArg;
use crate::input::{FieldLayout, InputRecord};

fn template(input: &[u8]) {
    let layout = FieldLayout::Lines;
    let template = match Template::parse(input, &layout) {
        Ok(template) => template,
        Err(error) => return assert!(!format!("{error:#}").is_empty()),
    };
    let record = InputRecord { number: 12, raw: b"first {} last".to_vec(), ..Default::default() };
    let mut rendered = Vec::new();
    let is_rendered = template.render(&record, b"key", &mut rendered).is_ok();
    if let Some(expected) = plain(input).filter(|_| is_rendered) {
        assert_eq!(rendered, expected);
    }
    if let Some(constant) = template.constant() {
        assert!(!template.has_placeholder() && rendered == constant);
    }
}

/// Renders a template, if it is one of the words of a line, by replacements from left to right.
fn plain(mut text: &[u8]) -> Option<Vec<u8>> {
    let words: [(&[u8], &[u8]); 8] = [
        (b"{{", b"{"),
        (b"}}", b"}"),
        (b"{}", b"first {} last"),
        (b"{key}", b"key"),
        (b"{#}", b"12"),
        (b"{1}", b"first"),
        (b"{2}", b"{}"),
        (b"{3}", b"last"),
    ];
    let mut rendered = Vec::new();
    while let Some((byte, rest)) = text.split_first() {
        if let Some((word, value)) = words.iter().find(|(word, _)| text.starts_with(word)) {
            rendered.extend_from_slice(value);
            text = &text[word.len()..];
        } else if *byte == b'{' {
            return None;
        } else {
            rendered.push(*byte);
            text = rest;
        }
    }
    Some(rendered)
}

/// A duration in whole milliseconds has another written form that is the same duration.
fn duration(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    let Ok(DurationArg(duration)) = text.parse::<DurationArg>() else { return };
    let ms = duration.as_millis();
    if duration.subsec_nanos() % 1_000_000 == 0 && ms < 1 << 50 {
        let again = format!("{ms}ms").parse::<DurationArg>();
        assert_eq!(again.map(|again| again.0.as_millis()), Ok(ms));
    }
}

fn run(name: &str, target: impl Fn(&[u8])) {
    keylane_testkit::fuzz::run(format!("{}/corpus/{name}", env!("CARGO_MANIFEST_DIR")), target);
}

#[test]
fn templates() {
    run("template", template);
}

#[test]
fn durations() {
    run("duration", duration);
}
