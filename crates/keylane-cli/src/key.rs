//! Key of a record: the bytes for which order is kept, or none.
//!
//! The first characters of `--key` decide its form, so that no form is ambiguous:
//!
//! | form | key |
//! |---|---|
//! | `.a.b` | the value at that path of a JSON record |
//! | `.a.b[]` | each element of the array at that path |
//! | `/regex/` | its first group where it matches the record, else the whole match |
//! | text with `{` | the text with its placeholders filled in |
//! | anything else | a field: a column's name or number, a JSON member, a word's number |
//!
//! A record has no key where that value is missing, null, empty or one of the
//! `--null` values; a template has none where all of its fields are so.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use anyhow::Context;
use clap::ValueEnum;
use regex::bytes::Regex;

use crate::input::{FieldLayout, FieldSelector, FieldValue, InputRecord, JsonPath};
use crate::template::Template;

/// Maximum number of bytes of a key in a message.
const MAX_SHOWN: usize = 100;

/// Parsed `--key`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum RecordKey {
    /// Records with equal bytes run one after the other.
    Named(Arc<[u8]>),
    /// A record that waits for none; its number makes it unlike all others.
    Unkeyed(u64),
    /// All records without a key, in one line.
    Serial,
}

impl RecordKey {
    /// Bytes of the key; empty if there is none.
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Self::Named(bytes) => bytes,
            Self::Unkeyed(_) | Self::Serial => b"",
        }
    }
}

impl fmt::Display for RecordKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Named(bytes) => {
                let shown = &bytes[..bytes.len().min(MAX_SHOWN)];
                write!(f, "key {}", String::from_utf8_lossy(shown).escape_debug())?;
                match bytes.len() {
                    ..=MAX_SHOWN => Ok(()),
                    all => write!(f, "... of {all} bytes"),
                }
            }
            Self::Unkeyed(_) | Self::Serial => f.write_str("no key"),
        }
    }
}

/// Handling of records without a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum NoKey {
    /// They run at any time, in parallel.
    Unordered,
    /// They run one after the other, as if they had a key in common.
    Serial,
    /// The first of them ends the run.
    Error,
}

/// The record has no key although it must.
#[derive(Debug, thiserror::Error)]
#[error("the record has no key; give it one, or allow it with --no-key unordered")]
pub(crate) struct KeyMissing;

/// How the key of every record is found.
#[derive(Debug)]
pub(crate) struct KeyRule {
    select: KeySelector,
    nulls: Vec<Vec<u8>>,
    no_key: NoKey,
    scratch: Vec<u8>,
}

#[derive(Debug)]
enum KeySelector {
    Field(FieldSelector),
    /// Each element of an array.
    List(JsonPath),
    Match(Regex),
    Template(Template),
}

impl KeyRule {
    pub(crate) fn new(
        text: &str,
        nulls: Vec<Vec<u8>>,
        no_key: NoKey,
        layout: &FieldLayout,
    ) -> anyhow::Result<Self> {
        Self::named("--key", text, nulls, no_key, layout)
    }

    /// Creates the rule of an option, which errors name.
    pub(crate) fn named(
        option: &str,
        text: &str,
        nulls: Vec<Vec<u8>>,
        no_key: NoKey,
        layout: &FieldLayout,
    ) -> anyhow::Result<Self> {
        let select =
            KeySelector::parse(text, layout).with_context(|| format!("{option} {text}"))?;
        Ok(Self { select, nulls, no_key, scratch: Vec::new() })
    }

    /// Adds the record's keys by this rule: none, one, or those in a list.
    pub(crate) fn add_keys(&mut self, record: &InputRecord, into: &mut Vec<Arc<[u8]>>) {
        let KeySelector::List(list) = &self.select else {
            into.extend(self.named_key(record));
            return;
        };
        for value in list.elements(&record.raw) {
            if let FieldValue::Text(text) = value
                && !text.is_empty()
                && !self.nulls.iter().any(|null| *null == *text)
            {
                into.push(text.as_ref().into());
            }
        }
    }

    pub(crate) fn key_of(&mut self, record: &InputRecord) -> Result<RecordKey, KeyMissing> {
        match (self.named_key(record), self.no_key) {
            (Some(key), _) => Ok(RecordKey::Named(key)),
            (None, NoKey::Unordered) => Ok(RecordKey::Unkeyed(record.number)),
            (None, NoKey::Serial) => Ok(RecordKey::Serial),
            (None, NoKey::Error) => Err(KeyMissing),
        }
    }

    /// The record's key, if it has one; the first of a list.
    fn named_key(&mut self, record: &InputRecord) -> Option<Arc<[u8]>> {
        self.scratch.clear();
        let nulls = &self.nulls;
        let absent = |text: &[u8]| nulls.iter().any(|null| null == text);
        let text = match &self.select {
            KeySelector::Field(field) => match field.of(record) {
                FieldValue::Text(text) => text,
                FieldValue::Missing | FieldValue::Null => Cow::Borrowed(&b""[..]),
            },
            KeySelector::List(list) => match list.elements(&record.raw).next() {
                Some(FieldValue::Text(text)) => text,
                _ => Cow::Borrowed(&b""[..]),
            },
            KeySelector::Match(regex) => Cow::Borrowed(matched(regex, &record.raw)),
            KeySelector::Template(template) => {
                match template.render_key(record, absent, &mut self.scratch) {
                    true => Cow::Borrowed(self.scratch.as_slice()),
                    false => Cow::Borrowed(&b""[..]),
                }
            }
        };
        (!text.is_empty() && !absent(&text)).then(|| text.as_ref().into())
    }
}

impl KeySelector {
    fn parse(text: &str, layout: &FieldLayout) -> anyhow::Result<Self> {
        if let Some(inner) = text.strip_prefix('/') {
            let pattern = inner.strip_suffix('/').context("a regex ends with a slash, too")?;
            return Ok(Self::Match(Regex::new(pattern)?));
        }
        if let Some(path) = text.strip_suffix("[]").filter(|path| path.starts_with('.')) {
            return layout.json_path(path).map(Self::List);
        }
        if text.starts_with('.') {
            return layout.path(text).map(Self::Field);
        }
        if !text.contains('{') {
            return layout.field(text).map(Self::Field);
        }
        let template = Template::parse(text.as_bytes(), layout)?;
        anyhow::ensure!(!template.names_key(), "the key cannot be made from {{key}} itself");
        anyhow::ensure!(
            template.has_placeholder(),
            "the template is the same for all records; name a field in it"
        );
        Ok(Self::Template(template))
    }
}

fn matched<'r>(regex: &Regex, raw: &'r [u8]) -> &'r [u8] {
    let Some(found) = regex.captures(raw) else { return b"" };
    let part = if found.len() > 1 { found.get(1) } else { found.get(0) };
    part.map_or(b"", |part| part.as_bytes())
}

#[cfg(test)]
mod tests {
    use csv::ByteRecord;

    use super::*;

    fn key(rule: &str, layout: &FieldLayout, raw: &str) -> RecordKey {
        let mut rule = KeyRule::new(rule, vec![b"NA".to_vec()], NoKey::Unordered, layout).unwrap();
        let row = ByteRecord::from(raw.split(',').collect::<Vec<_>>());
        rule.key_of(&InputRecord { number: 3, line: 4, raw: raw.into(), row }).unwrap()
    }

    fn named(text: &str) -> RecordKey {
        RecordKey::Named(text.as_bytes().into())
    }

    #[test]
    fn each_form_selects_what_it_says() {
        let table = FieldLayout::Named(ByteRecord::from(vec!["a", "b"]));
        assert_eq!(key("b", &table, "x,y"), named("y"));
        assert_eq!(key("1", &table, "x,y"), named("x"));
        assert_eq!(key("{b}/{a}", &table, "x,y"), named("y/x"));
        assert_eq!(key("/x,(.)/", &table, "x,y"), named("y"));
        assert_eq!(key("/x./", &table, "x,y"), named("x,"));
        assert_eq!(key("2", &FieldLayout::Lines, "GET /a"), named("/a"));
        assert_eq!(key(".u.id", &FieldLayout::Ndjson, r#"{"u":{"id":5}}"#), named("5"));
        assert_eq!(key("u", &FieldLayout::Ndjson, r#"{"u":"me"}"#), named("me"));
    }

    #[test]
    fn missing_null_empty_and_named_values_are_no_key() {
        let table = FieldLayout::Named(ByteRecord::from(vec!["a", "b"]));
        for raw in ["x,", "x,NA"] {
            assert_eq!(key("b", &table, raw), RecordKey::Unkeyed(3), "{raw}");
        }
        assert_eq!(key("{a}-{b}", &table, "NA,"), RecordKey::Unkeyed(3));
        assert_eq!(key("{a}-{b}", &table, "x,NA"), named("x-"));
        assert_eq!(key("/z(.)/", &table, "x,y"), RecordKey::Unkeyed(3));
        assert_eq!(key(".u", &FieldLayout::Ndjson, r#"{"u":null}"#), RecordKey::Unkeyed(3));
        assert_eq!(key(".u", &FieldLayout::Ndjson, "{}"), RecordKey::Unkeyed(3));
        assert_eq!(key("9", &FieldLayout::Lines, "a b"), RecordKey::Unkeyed(3));
    }

    #[test]
    fn a_message_has_the_beginning_of_a_long_key() {
        let shown = |length| named(&"k".repeat(length)).to_string();
        assert_eq!(shown(MAX_SHOWN), format!("key {}", "k".repeat(MAX_SHOWN)));
        let long = format!("key {}... of 3000000 bytes", "k".repeat(MAX_SHOWN));
        assert_eq!(shown(3_000_000), long);
    }

    #[test]
    fn records_without_key_follow_the_policy() {
        let rule = |no_key| KeyRule::new("1", vec![], no_key, &FieldLayout::Lines).unwrap();
        let empty = InputRecord::default();
        assert_eq!(rule(NoKey::Serial).key_of(&empty).unwrap(), RecordKey::Serial);
        assert!(rule(NoKey::Error).key_of(&empty).is_err());
    }

    #[test]
    fn wrong_rules_say_what_to_write() {
        let table = FieldLayout::Named(ByteRecord::from(vec!["a", "a"]));
        let message = |rule: &str, layout: &FieldLayout| {
            format!("{:#}", KeyRule::new(rule, vec![], NoKey::Unordered, layout).unwrap_err())
        };
        assert!(message("a", &table).contains("give the number instead"));
        assert!(message("zz", &table).contains("the columns are a, a"));
        assert!(message(".a", &table).contains("needs --ndjson"));
        assert!(message("/a", &table).contains("ends with a slash"));
        assert!(message("/(/", &table).contains("unclosed group"));
        assert!(message("{key}", &table).contains("cannot be made from {key}"));
        assert!(message("{{", &table).contains("the same for all records"));
        assert!(message("id", &FieldLayout::Lines).contains("is no number"));
        for layout in [FieldLayout::Lines, FieldLayout::Numbered(Some(2))] {
            assert!(message("0", &layout).contains("--key 0: fields are counted from 1"));
        }
        assert!(message("7", &FieldLayout::Numbered(Some(2))).contains("the rows have 2"));
    }
}
