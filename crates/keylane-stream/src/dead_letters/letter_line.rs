//! A line of a file of dead letters: parses what `FileDeadLetters` writes, and what a person edits.

use std::time::{Duration, SystemTime};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};

use crate::{Header, Partition, Position, Record};

/// A dead letter as its line in a file has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LetterLine {
    pub(super) name: LetterName,
    /// Time at which the record was written.
    pub(super) written: SystemTime,
    pub(super) record: Record,
}

/// Name of a letter: its record and the time of its failure. A record that fails again later has
/// another letter.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct LetterName {
    pub(super) partition: Partition,
    pub(super) position: Position,
    /// Milliseconds since 1970.
    pub(super) failed_at: u64,
}

impl LetterName {
    /// Reads the name from the fields of a line.
    pub(super) fn of(fields: &Map<String, Value>) -> Result<Self, String> {
        let stream = fields.get("stream").and_then(Value::as_str);
        let stream = stream.ok_or("`stream` is not a text")?;
        let number = u32::try_from(self::number(fields, "partition")?);
        let number = number.map_err(|_| "`partition` is too large")?;
        let position = self::number(fields, "position")?;
        if position >= Position::END.get() {
            return Err("`position` is too large".to_owned());
        }
        let failed_at = number_or(fields, "failed_at", 0)?;
        let (partition, position) = (Partition::new(stream, number), Position::new(position));
        Ok(LetterName { partition, position, failed_at })
    }

    /// Returns the fields of the name.
    pub(super) fn as_json(&self) -> Value {
        serde_json::json!({
            "stream": self.partition.stream(),
            "partition": self.partition.number(),
            "position": self.position.get(),
            "failed_at": self.failed_at,
        })
    }
}

impl LetterLine {
    /// Parses a line.
    pub(super) fn parse(line: &[u8]) -> Result<Self, String> {
        let fields = object(line)?;
        let name = LetterName::of(&fields)?;
        let written = Duration::from_millis(number_or(&fields, "written", 0)?);
        let headers = match fields.get("headers") {
            None | Some(Value::Null) => Vec::new(),
            Some(Value::Array(headers)) => {
                headers.iter().map(header).collect::<Result<Vec<_>, _>>()?
            }
            Some(_) => return Err("`headers` is not an array".to_owned()),
        };
        Ok(LetterLine {
            name,
            written: SystemTime::UNIX_EPOCH + written,
            record: Record {
                key: bytes(&fields, "key")?.map(Into::into),
                payload: bytes(&fields, "payload")?.map(Into::into),
                headers,
            },
        })
    }
}

/// Parses a line of JSON with fields.
pub(super) fn object(line: &[u8]) -> Result<Map<String, Value>, String> {
    match serde_json::from_slice(line) {
        Ok(Value::Object(fields)) => Ok(fields),
        Ok(_) => Err("it is not an object".to_owned()),
        Err(error) => Err(format!("it is not JSON: {error}")),
    }
}

fn header(value: &Value) -> Result<Header, String> {
    let fields = value.as_object().ok_or("a header is not an object")?;
    let name = fields.get("name").and_then(Value::as_str);
    let name = name.ok_or("the `name` of a header is not a text")?;
    Ok((name.to_owned(), bytes(fields, "value")?))
}

/// Returns the bytes of a field: its text; the decoded base64 of the field with the suffix
/// `_base64`; or another JSON value, which a person may have written in place of its text.
fn bytes(fields: &Map<String, Value>, name: &str) -> Result<Option<Vec<u8>>, String> {
    let encoded = format!("{name}_base64");
    match (fields.get(name), fields.get(&encoded)) {
        (Some(_), Some(_)) => Err(format!("it has `{name}` and `{encoded}`; keep one of them")),
        (None | Some(Value::Null), None) => Ok(None),
        (Some(Value::String(text)), None) => Ok(Some(text.clone().into_bytes())),
        (Some(value), None) => Ok(Some(value.to_string().into_bytes())),
        (None, Some(value)) => {
            let decoded = value.as_str().and_then(|text| STANDARD.decode(text).ok());
            decoded.map(Some).ok_or_else(|| format!("`{encoded}` is not base64"))
        }
    }
}

fn number(fields: &Map<String, Value>, name: &str) -> Result<u64, String> {
    let number = fields.get(name).and_then(Value::as_u64);
    number.ok_or_else(|| format!("`{name}` is not a number"))
}

fn number_or(fields: &Map<String, Value>, name: &str, default: u64) -> Result<u64, String> {
    if fields.contains_key(name) { number(fields, name) } else { Ok(default) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_is_text_base64_null_or_json_that_a_person_wrote() {
        let payload = |field: &str| {
            let line = format!(r#"{{"stream":"t","partition":0,"position":7{field}}}"#);
            LetterLine::parse(line.as_bytes()).map(|letter| letter.record.payload)
        };
        assert_eq!(payload(r#","payload":"a \"b\"""#).unwrap().unwrap(), &b"a \"b\""[..]);
        assert_eq!(payload(r#","payload_base64":"AP8=""#).unwrap().unwrap(), &[0, 255][..]);
        assert_eq!(payload(r#","payload":{"n":1}"#).unwrap().unwrap(), &br#"{"n":1}"#[..]);
        assert_eq!(payload(r#","payload":null"#), Ok(None));
        assert_eq!(payload(""), Ok(None));
        assert!(payload(r#","payload":"a","payload_base64":"AP8=""#).is_err());
        assert!(payload(r#","payload_base64":"?""#).unwrap_err().contains("not base64"));
    }

    #[test]
    fn a_line_that_is_no_letter_is_refused_with_its_field() {
        for (line, field) in [
            ("1", "not an object"),
            ("{", "not JSON"),
            ("{}", "`stream`"),
            (r#"{"stream":"t","partition":-1,"position":7}"#, "`partition`"),
            (r#"{"stream":"t","partition":0}"#, "`position`"),
            (r#"{"stream":"t","partition":0,"position":9223372036854775807}"#, "`position`"),
            (r#"{"stream":"t","partition":0,"position":7,"headers":1}"#, "`headers`"),
            (r#"{"stream":"t","partition":0,"position":7,"headers":[{}]}"#, "`name`"),
            (r#"{"stream":"t","partition":0,"position":7,"written":"x"}"#, "`written`"),
        ] {
            let error = LetterLine::parse(line.as_bytes()).unwrap_err();
            assert!(error.contains(field), "{line}: {error}");
        }
    }
}
