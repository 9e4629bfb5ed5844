//! A span, and the ids that it has.

use sha2::{Digest, Sha256};

use crate::Key;
use crate::engine::cut_text::cut_text;
use crate::engine::query::text_of;
use crate::wire::Timestamp;

/// Maximum number of keys in an attribute.
const MAX_KEYS: usize = 4;

/// Maximum size of a text, in bytes.
pub(super) const MAX_TEXT_BYTES: usize = 256;

/// Span of a job or an attempt.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Span {
    pub(super) trace: u128,
    pub(super) id: u64,
    pub(super) parent: Option<u64>,
    pub(super) name: String,
    pub(super) begin: Timestamp,
    pub(super) end: Timestamp,
    /// Time of the first start of a job.
    pub(super) started: Option<Timestamp>,
    pub(super) attributes: Vec<(&'static str, AttributeValue)>,
    pub(super) error: Option<String>,
}

/// Value of an attribute.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum AttributeValue {
    Text(String),
    Number(u64),
    Texts(Vec<String>),
}

impl AttributeValue {
    /// The first keys, cut.
    pub(super) fn keys<'a>(keys: impl Iterator<Item = &'a Key>) -> Self {
        let text = |key: &Key| cut_text(&text_of(key), MAX_TEXT_BYTES);
        AttributeValue::Texts(keys.take(MAX_KEYS).map(text).collect())
    }
}

/// Trace of a job, and the span in it that is the job's parent. A job that was submitted without one begins a trace.
pub(super) fn trace_of(job: [u8; 16], traceparent: Option<&str>) -> (u128, Option<u64>) {
    let parse = |text: &str| {
        let mut fields = text.split('-').skip(1);
        let trace = u128::from_str_radix(fields.next()?, 16).ok()?;
        Some((trace, Some(u64::from_str_radix(fields.next()?, 16).ok()?)))
    };
    traceparent.and_then(parse).unwrap_or((u128::from_be_bytes(job), None))
}

/// First bytes of a hash; not zero, which no id may be.
pub(super) fn hash(parts: &[&[u8]]) -> u64 {
    let mut hasher = Sha256::new();
    parts.iter().for_each(|part| hasher.update(part));
    let bytes = hasher.finalize()[..8].try_into().expect("a hash has more bytes");
    u64::from_be_bytes(bytes).max(1)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::engine::traces) fn span() -> Span {
        Span {
            trace: 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736,
            id: 7,
            parent: Some(9),
            name: "resize attempt".into(),
            begin: Timestamp(1_000),
            end: Timestamp(1_250),
            started: None,
            attributes: vec![
                ("keylane.attempt", AttributeValue::Number(2)),
                ("keylane.keys", AttributeValue::Texts(vec!["ann".into()])),
            ],
            error: Some("no space".into()),
        }
    }

    #[test]
    fn a_job_is_in_the_trace_of_its_submission_or_begins_one() {
        let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let expected = (0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736, Some(0x00f0_67aa_0ba9_02b7));
        assert_eq!(trace_of([3; 16], Some(parent)), expected);
        assert_eq!(trace_of([3; 16], None), (u128::from_be_bytes([3; 16]), None));
    }

    #[test]
    fn keys_are_cut() {
        let keys = vec![Key::new("k".repeat(300).as_bytes()); 9];
        let expected = vec![format!("{}…", "k".repeat(253)); 4];
        assert_eq!(AttributeValue::keys(keys.iter()), AttributeValue::Texts(expected));
    }
}
