//! Texts of stored values.

use keylane_allocate::Rule;
use serde_json::value::RawValue;

use crate::Key;

pub(in crate::engine) fn text_of(key: &Key) -> String {
    String::from_utf8_lossy(&key.0).into_owned()
}

pub(in crate::engine) fn rule_text(rule: Rule) -> &'static str {
    match rule {
        Rule::Keep => "keep",
        Rule::Aged => "aged",
        Rule::Admit => "admit",
        Rule::Least => "least",
    }
}

/// Returns bytes that were JSON when they were written.
pub(super) fn raw(bytes: &[u8]) -> Option<Box<RawValue>> {
    let text = std::str::from_utf8(bytes).ok()?;
    if text.is_empty() {
        return None;
    }
    RawValue::from_string(text.to_owned()).ok()
}
