//! Metadata of a record for its handler: position, timestamp, headers, and whether it is a
//! tombstone.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::process::Command;
use std::time::UNIX_EPOCH;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use keylane_stream::consumer::Attempt;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use serde_json::{Map, Value, json};

/// The longest text of headers that a variable of the environment gets. Linux takes 128 KiB for one.
const MAX_VARIABLE: usize = 64 * 1024;

/// Maximum size of the record's headers as text in one HTTP header, in bytes. Most servers accept
/// no more for all headers.
const MAX_HEADER: usize = 4 * 1024;

/// Sets the metadata as variables of a command. `key` is the ordering key.
pub(super) fn describe(command: &mut Command, attempt: &Attempt, key: &[u8]) {
    let partition = attempt.partition();
    command
        .env("KEYLANE_PARTITION", partition.to_string())
        .env("KEYLANE_STREAM", partition.stream())
        .env("KEYLANE_PARTITION_NUMBER", partition.number().to_string())
        .env("KEYLANE_POSITION", attempt.position().to_string())
        .env("KEYLANE_WRITTEN", written(attempt).to_string())
        .env("KEYLANE_ATTEMPT", attempt.number().to_string());
    if key.contains(&0) {
        // No variable can have such a byte.
        command.env("KEYLANE_KEY_BASE64", BASE64_STANDARD.encode(key));
    } else {
        command.env("KEYLANE_KEY", OsStr::from_bytes(key));
    }
    if attempt.is_tombstone() {
        command.env("KEYLANE_TOMBSTONE", "1");
    }
    match headers(attempt) {
        Some(text) if text.len() <= MAX_VARIABLE => command.env("KEYLANE_HEADERS", text),
        Some(_) => command.env("KEYLANE_HEADERS_OMITTED", "1"),
        None => command,
    };
}

/// Metadata as headers of a request.
pub(super) fn headers_of(attempt: &Attempt, key: Option<&[u8]>) -> HeaderMap {
    let (partition, position) = (attempt.partition(), attempt.position());
    let mut into = HeaderMap::new();
    let mut put = |name: &'static str, value: &[u8]| {
        // A value that is not a valid header value is left out.
        if let Ok(value) = HeaderValue::from_bytes(value) {
            into.insert(HeaderName::from_static(name), value);
        }
    };
    put("keylane-partition", partition.to_string().as_bytes());
    put("keylane-stream", partition.stream().as_bytes());
    put("keylane-partition-number", partition.number().to_string().as_bytes());
    put("keylane-position", position.to_string().as_bytes());
    put("keylane-written", written(attempt).to_string().as_bytes());
    put("keylane-attempt", attempt.number().to_string().as_bytes());
    put("idempotency-key", format!("{partition}@{position}").as_bytes());
    if let Some(key) = key {
        put("keylane-key", key);
    }
    if attempt.is_tombstone() {
        put("keylane-tombstone", b"1");
    }
    match headers(attempt) {
        Some(text) if text.len() <= MAX_HEADER => put("keylane-headers", text.as_bytes()),
        Some(_) => put("keylane-headers-omitted", b"true"),
        None => {}
    }
    into
}

/// The whole record as a line of JSON, with the field names of dead letters in a file.
pub(super) fn envelope(attempt: &Attempt) -> Vec<u8> {
    let mut fields = Map::new();
    let mut put = |name: &str, value: Value| fields.insert(name.to_owned(), value);
    put("stream", attempt.partition().stream().into());
    put("partition", attempt.partition().number().into());
    put("position", attempt.position().get().into());
    put("written", written(attempt).into());
    put("attempt", attempt.number().into());
    put("headers", Value::Array(header_list(attempt)));
    put_bytes(&mut fields, "key", attempt.key());
    put_bytes(&mut fields, "payload", attempt.record().payload.as_deref());
    let mut line = Value::Object(fields).to_string().into_bytes();
    line.push(b'\n');
    line
}

/// Milliseconds since 1970.
fn written(attempt: &Attempt) -> u64 {
    let since = attempt.written().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// The record's headers as JSON; none if it has none.
fn headers(attempt: &Attempt) -> Option<String> {
    let headers = header_list(attempt);
    (!headers.is_empty()).then(|| Value::Array(headers).to_string())
}

fn header_list(attempt: &Attempt) -> Vec<Value> {
    let headers = attempt.record().headers.iter();
    headers
        .map(|(name, value)| {
            let mut header = Map::from_iter([("name".to_owned(), json!(name))]);
            put_bytes(&mut header, "value", value.as_deref());
            Value::Object(header)
        })
        .collect()
}

/// Adds bytes as text; as base64 with a suffixed name if they are not UTF-8; null if absent.
fn put_bytes(fields: &mut Map<String, Value>, name: &str, bytes: Option<&[u8]>) {
    match bytes.map(std::str::from_utf8) {
        None => fields.insert(name.to_owned(), Value::Null),
        Some(Ok(text)) => fields.insert(name.to_owned(), text.into()),
        Some(Err(_)) => {
            let text = BASE64_STANDARD.encode(bytes.unwrap_or_default());
            fields.insert(format!("{name}_base64"), text.into())
        }
    };
}
