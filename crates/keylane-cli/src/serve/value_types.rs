//! Values of the configuration that are written as text: durations, sizes and ranges; and lists of words.

use std::fmt;
use std::time::Duration;

use serde::de::value::SeqAccessDeserializer;
use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::duration_arg::DurationArg;

/// Retention time of jobs: a duration, also in days, or `forever`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(super) struct RetentionTime(pub(super) Option<Duration>);

impl TryFrom<String> for RetentionTime {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        if text == "forever" {
            return Ok(RetentionTime(None));
        }
        if let Some(days) = text.strip_suffix('d').and_then(|days| days.parse::<u32>().ok()) {
            return Ok(RetentionTime(Some(Duration::from_secs(u64::from(days) * 24 * 3600))));
        }
        let span: DurationArg = text
            .parse()
            .map_err(|_| format!("`{text}` is no time to keep jobs; write 12h, 7d or forever"))?;
        Ok(RetentionTime(Some(span.0)))
    }
}

/// Deserializes the words of a command. An error for a text has the remedy, because no shell splits it.
pub(super) fn words<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Vec<String>>, D::Error> {
    struct Words;

    impl<'de> Visitor<'de> for Words {
        type Value = Vec<String>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(r#"a list of words, such as ["./handle", "--fast"]"#)
        }

        fn visit_seq<A: SeqAccess<'de>>(self, words: A) -> Result<Self::Value, A::Error> {
            Vec::deserialize(SeqAccessDeserializer::new(words))
        }
    }

    deserializer.deserialize_seq(Words).map(Some)
}

/// Time between two scheduled backups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(super) struct BackupInterval(pub(super) Duration);

impl TryFrom<String> for BackupInterval {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        match RetentionTime::try_from(text.clone()) {
            Ok(RetentionTime(Some(interval))) if interval >= Duration::from_secs(60) => {
                Ok(BackupInterval(interval))
            }
            _ => Err(format!(
                "`{text}` is no time between backups; write 1m or longer, such as 6h or 1d"
            )),
        }
    }
}

/// A number of bytes, as in `512M`: with K, M or G for 2¹⁰, 2²⁰ or 2³⁰.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(super) struct ByteSize(pub(super) u64);

impl TryFrom<String> for ByteSize {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
        let shift = match &text[digits.len()..] {
            "" => Some(0),
            "K" => Some(10),
            "M" => Some(20),
            "G" => Some(30),
            _ => None,
        };
        let count: Option<u64> = digits.parse().ok();
        let size = count.zip(shift).and_then(|(count, shift)| count.checked_mul(1 << shift));
        size.map(ByteSize)
            .ok_or_else(|| format!("`{text}` is no number of bytes; write 64K, 512M or 2G"))
    }
}

/// The first wait and the longest, as in `1s..1m`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(super) struct BackoffRange(pub(super) Duration, pub(super) Duration);

impl TryFrom<String> for BackoffRange {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let wrong = || format!("`{text}` is no range of waits; write 1s..1m");
        let (first, longest) = text.split_once("..").ok_or_else(wrong)?;
        let first: DurationArg = first.parse().map_err(|_| wrong())?;
        let longest: DurationArg = longest.parse().map_err(|_| wrong())?;
        if longest.0 < first.0 {
            return Err(format!("in `{text}` the first wait is longer than the longest"));
        }
        Ok(BackoffRange(first.0, longest.0))
    }
}
