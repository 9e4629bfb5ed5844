//! Values of a JSON text, read without a tree: numbers keep their text, so large ones never
//! collapse into one key.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::error::RecordFlaw;
use super::value::FieldValue;

/// Names of members from the outermost object inwards; a number also indexes
/// an array, from zero.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct JsonPath(Vec<String>);

impl JsonPath {
    /// The path of one member of the outermost object.
    pub(super) fn member(name: &str) -> Self {
        Self(vec![name.to_owned()])
    }

    /// Parses `.a.b`; a name that contains a dot is written in double quotes.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut rest = text;
        let mut steps = Vec::new();
        while !rest.is_empty() {
            rest = rest.strip_prefix('.')?;
            let (step, after) = match rest.strip_prefix('"') {
                Some(quoted) => quoted.split_once('"')?,
                None => rest.split_at(rest.find('.').unwrap_or(rest.len())),
            };
            if step.is_empty() {
                return None;
            }
            steps.push(step.to_owned());
            rest = after;
        }
        (!steps.is_empty()).then_some(Self(steps))
    }

    /// The value at this path of `json`, which [`check`] has accepted.
    pub(super) fn find<'r>(&self, json: &'r [u8]) -> FieldValue<'r> {
        self.raw(json).map_or(FieldValue::Missing, text_of)
    }

    /// The elements of the array at this path; another value is the only element.
    pub(crate) fn elements<'r>(&self, json: &'r [u8]) -> impl Iterator<Item = FieldValue<'r>> {
        let raw = self.raw(json);
        let elements = match raw.filter(|raw| raw.starts_with('[')) {
            Some(array) => {
                let array = serde_json::from_str::<Vec<&RawValue>>(array);
                let array = array.expect("the record was checked when it was read");
                array.into_iter().map(|item| text_of(item.get())).collect()
            }
            None => raw.map(text_of).into_iter().collect::<Vec<_>>(),
        };
        elements.into_iter()
    }

    /// The text of the value at this path.
    fn raw<'r>(&self, json: &'r [u8]) -> Option<&'r str> {
        let mut here = str::from_utf8(json).expect("the record was checked when it was read");
        for step in &self.0 {
            here = step_into(here, step)?.get();
        }
        Some(here.trim_ascii())
    }
}

/// Accepts exactly one JSON value in UTF-8.
pub(crate) fn check(json: &[u8]) -> Result<(), RecordFlaw> {
    let text = str::from_utf8(json).map_err(|error| RecordFlaw::Utf8(error.valid_up_to() + 1))?;
    serde_json::from_str::<IgnoredAny>(text)
        .map_err(|error| RecordFlaw::Json(column_only(&error)))?;
    Ok(())
}

/// The message without its line, which is always one here and would confuse.
fn column_only(error: &serde_json::Error) -> String {
    let message = error.to_string();
    let what = message.split(" at line ").next().unwrap_or(&message);
    format!("{what} at column {}", error.column())
}

fn text_of(json: &str) -> FieldValue<'_> {
    match json.as_bytes().first() {
        Some(b'n') => FieldValue::Null,
        Some(b'"') => FieldValue::Text(unquoted(json)),
        _ => FieldValue::Text(Cow::Borrowed(json.as_bytes())),
    }
}

fn unquoted(json: &str) -> Cow<'_, [u8]> {
    let inner = &json[1..json.len() - 1];
    if memchr::memchr(b'\\', inner.as_bytes()).is_none() {
        return Cow::Borrowed(inner.as_bytes());
    }
    let mut parser = serde_json::Deserializer::from_str(json);
    let text = parser.deserialize_bytes(StringBytes);
    Cow::Owned(text.expect("the record was checked when it was read"))
}

/// Bytes of a JSON string. An escaped surrogate without its pair, which no UTF-8 text has, gets the three bytes of its
/// number, so that different strings stay different keys.
struct StringBytes;

impl Visitor<'_> for StringBytes {
    type Value = Vec<u8>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_bytes<E>(self, bytes: &[u8]) -> Result<Vec<u8>, E> {
        Ok(bytes.to_vec())
    }
}

fn step_into<'r>(json: &'r str, step: &str) -> Option<&'r RawValue> {
    let mut parser = serde_json::Deserializer::from_str(json);
    PathStep(step).deserialize(&mut parser).ok().flatten()
}

/// Finds one member of an object (the last of that name) or one element of an
/// array.
struct PathStep<'s>(&'s str);

impl<'de> DeserializeSeed<'de> for PathStep<'_> {
    type Value = Option<&'de RawValue>;

    fn deserialize<D: Deserializer<'de>>(self, input: D) -> Result<Self::Value, D::Error> {
        input.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for PathStep<'_> {
    type Value = Option<&'de RawValue>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object or an array")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut found = None;
        while let Some(matches) = map.next_key_seed(MemberName(self.0))? {
            if matches {
                found = Some(map.next_value()?);
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(found)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        let wanted: Option<usize> = self.0.parse().ok();
        let mut found = None;
        let mut index = 0;
        while let Some(item) = items.next_element()? {
            if wanted == Some(index) {
                found = Some(item);
            }
            index += 1;
        }
        Ok(found)
    }
}

/// Compares a member's name without copying it.
struct MemberName<'s>(&'s str);

impl<'de> DeserializeSeed<'de> for MemberName<'_> {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, input: D) -> Result<bool, D::Error> {
        // As bytes, because a name can have a surrogate without its pair.
        input.deserialize_bytes(self)
    }
}

impl Visitor<'_> for MemberName<'_> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_bytes<E>(self, name: &[u8]) -> Result<bool, E> {
        Ok(name == self.0.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, json: &str) -> Option<String> {
        match JsonPath::parse(path).unwrap().find(json.as_bytes()) {
            FieldValue::Text(text) => Some(String::from_utf8(text.into_owned()).unwrap()),
            FieldValue::Null => Some("<null>".into()),
            FieldValue::Missing => None,
        }
    }

    /// JSON permits an escaped surrogate without its pair. It ended the command.
    #[test]
    fn surrogates_without_their_pair_are_values_and_names() {
        let json = br#"{"\ud800": 1, "k": "\udc00x", "j": "\udc01x", "a": "\ud83d\ude00"}"#;
        check(json).unwrap();
        let value = |name: &str| JsonPath::member(name).find(json);
        assert_eq!(value("k"), FieldValue::Text(Cow::Borrowed(b"\xed\xb0\x80x")));
        assert_ne!(value("k"), value("j"));
        assert_eq!(value("a"), FieldValue::Text(Cow::Borrowed("😀".as_bytes())));
        assert_eq!(value("none"), FieldValue::Missing);
    }

    #[test]
    fn a_path_reaches_into_objects_and_arrays() {
        let json = r#"{"a": {"b.c": [1, "two\n", {"d": null}]}, "a2": 3}"#;
        assert_eq!(found(r#".a."b.c".1"#, json).as_deref(), Some("two\n"));
        assert_eq!(found(r#".a."b.c".2.d"#, json).as_deref(), Some("<null>"));
        assert_eq!(found(r#".a."b.c".9"#, json), None);
        assert_eq!(found(".a2", json).as_deref(), Some("3"));
        assert_eq!(found(".a2.deeper", json), None);
        assert_eq!(found(".nothing", json), None);
    }

    #[test]
    fn elements_are_those_of_an_array_or_the_value_itself() {
        let elements = |json: &str| {
            let all = JsonPath::member("a");
            let texts = all.elements(json.as_bytes()).map(|value| match value {
                FieldValue::Text(text) => String::from_utf8(text.into_owned()).unwrap(),
                FieldValue::Null => "<null>".into(),
                FieldValue::Missing => "<missing>".into(),
            });
            texts.collect::<Vec<_>>()
        };
        assert_eq!(elements(r#"{"a": [ "x", 2, null , [3]] }"#), ["x", "2", "<null>", "[3]"]);
        assert_eq!(elements(r#"{"a": "[1]"}"#), ["[1]"]);
        assert_eq!(elements(r#"{"a": []}"#), [""; 0]);
        assert_eq!(elements("{}"), [""; 0]);
    }

    #[test]
    fn numbers_stay_as_written_and_escaped_names_match() {
        let json = r#"{"id": 12345678901234567890123, "\u0061b": "x"}"#;
        assert_eq!(found(".id", json).as_deref(), Some("12345678901234567890123"));
        assert_eq!(found(".ab", json).as_deref(), Some("x"));
    }

    #[test]
    fn the_last_of_two_equal_names_counts() {
        assert_eq!(found(".a", r#"{"a":1,"a":2}"#).as_deref(), Some("2"));
    }

    #[test]
    fn malformed_paths_are_refused() {
        assert!(
            ["", ".", "a", ".a..b", ".a.", ".\"a"].iter().all(|p| JsonPath::parse(p).is_none())
        );
    }
}
