//! Condition on a record, for `--barrier`.

use anyhow::Context;
use regex::bytes::Regex;

use crate::input::{FieldLayout, FieldSelector, FieldValue, InputRecord};

/// Condition that a record fulfils or not.
#[derive(Debug)]
pub(crate) enum RecordCondition {
    /// A field has this value.
    Equals(FieldSelector, Vec<u8>),
    /// The record matches.
    Matches(Regex),
}

impl RecordCondition {
    /// Parses `FIELD=VALUE` or `/REGEX/`.
    pub(crate) fn parse(text: &str, layout: &FieldLayout) -> anyhow::Result<Self> {
        if let Some(inner) = text.strip_prefix('/') {
            let pattern = inner.strip_suffix('/').context("a regex ends with a slash, too")?;
            return Ok(Self::Matches(Regex::new(pattern)?));
        }
        let (field, value) = text.split_once('=').with_context(|| {
            format!("`{text}` is no condition; write FIELD=VALUE, or /REGEX/ for the whole record")
        })?;
        let field = match field.starts_with('.') {
            true => layout.path(field)?,
            false => layout.field(field)?,
        };
        Ok(Self::Equals(field, value.as_bytes().to_vec()))
    }

    pub(crate) fn holds(&self, record: &InputRecord) -> bool {
        match self {
            Self::Equals(field, value) => match field.of(record) {
                FieldValue::Text(text) => *text == **value,
                FieldValue::Missing | FieldValue::Null => false,
            },
            Self::Matches(regex) => regex.is_match(&record.raw),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holds(condition: &str, layout: &FieldLayout, raw: &str) -> bool {
        let record = InputRecord { raw: raw.into(), ..InputRecord::default() };
        RecordCondition::parse(condition, layout).unwrap().holds(&record)
    }

    #[test]
    fn a_condition_is_a_value_of_a_field_or_a_match() {
        assert!(holds("2=end", &FieldLayout::Lines, "a end"));
        assert!(!holds("2=end", &FieldLayout::Lines, "end a"));
        assert!(!holds("2=end", &FieldLayout::Lines, "end"));
        assert!(holds("/^--/", &FieldLayout::Lines, "-- end of day"));
        assert!(holds(".t=x=y", &FieldLayout::Ndjson, r#"{"t":"x=y"}"#));
        assert!(!holds(".t=", &FieldLayout::Ndjson, r#"{"t":null}"#));
    }

    #[test]
    fn what_is_no_condition_is_refused() {
        for wrong in ["end", "/x", "/(/", "name=x"] {
            assert!(RecordCondition::parse(wrong, &FieldLayout::Lines).is_err(), "{wrong}");
        }
    }
}
