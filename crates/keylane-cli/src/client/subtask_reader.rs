//! Subtasks from the records of an input, a line of JSON each.

use std::io::Write;

use anyhow::{Context, bail, ensure};
use clap::ValueEnum;
use csv::ByteRecord;
use serde_json::value::RawValue;

use crate::condition::RecordCondition;
use crate::input::{FieldLayout, InputFile, InputFormat, InputRecord, InputSource};
use crate::key::{KeyRule, NoKey, RecordKey};

/// Handling of records without a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum KeylessPolicy {
    /// Their subtasks have none, and wait for no other.
    Unordered,
    /// An error: the job is not submitted.
    Error,
}

/// Conversion of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RecordConversion {
    /// The payload of a subtask.
    Payload,
    /// The record is a subtask in the API's format.
    Whole,
}

/// The subtasks of an input, one after another.
#[derive(Debug)]
pub(super) struct SubtaskReader {
    source: InputSource,
    record: InputRecord,
    /// Whether a payload was read.
    has_read: bool,
    has_keys: bool,
    may_be_empty: bool,
    rule: Option<KeyRule>,
    shared: Vec<KeyRule>,
    barrier: Option<RecordCondition>,
    /// A subtask with a key replaces the latest one of that.
    latest: bool,
    shape: RecordConversion,
    /// The names of a table's columns, as JSON.
    names: Option<Vec<String>>,
}

/// How an input is read.
#[derive(Debug, Clone)]
pub(super) struct InputOptions {
    pub(super) format: InputFormat,
    pub(super) header: bool,
    pub(super) shape: RecordConversion,
    /// As in `keylane run`.
    pub(super) key: Option<String>,
    pub(super) shared_keys: Vec<String>,
    pub(super) barrier: Option<String>,
    pub(super) latest: bool,
    pub(super) nulls: Vec<Vec<u8>>,
    pub(super) keyless: KeylessPolicy,
    /// Whether an input without records is accepted.
    pub(super) may_be_empty: bool,
}

impl SubtaskReader {
    /// Starts reading; errors in the key's rule or the header are found here.
    pub(super) fn new(origin: InputFile, reading: InputOptions) -> anyhow::Result<Self> {
        let source = InputSource::new(origin, reading.format, reading.header)?;
        let no_key = match reading.keyless {
            KeylessPolicy::Unordered => NoKey::Unordered,
            KeylessPolicy::Error => NoKey::Error,
        };
        let rule = |key: String| KeyRule::new(&key, reading.nulls.clone(), no_key, source.layout());
        let shared = reading.shared_keys.into_iter().map(rule).collect::<Result<_, _>>()?;
        let rule = reading.key.map(rule);
        let barrier = reading.barrier.map(|text| {
            let condition = RecordCondition::parse(&text, source.layout());
            condition.with_context(|| format!("--barrier {text}"))
        });
        let names = match source.layout() {
            FieldLayout::Named(header) => Some(names(header)?),
            _ => None,
        };
        Ok(Self {
            rule: rule.transpose()?,
            shared,
            barrier: barrier.transpose()?,
            latest: reading.latest,
            shape: reading.shape,
            names,
            source,
            record: InputRecord::default(),
            has_read: false,
            has_keys: false,
            may_be_empty: reading.may_be_empty,
        })
    }

    /// Returns whether records were read, `--key` was given, and none of them had a key.
    pub(super) fn lacks_all_keys(&self) -> bool {
        self.has_read && self.rule.is_some() && !self.has_keys
    }

    /// Appends the next subtask to `into`, with a line end; false at the end of the input.
    ///
    /// # Errors
    /// If the input cannot be read, or has no records although it must.
    pub(super) fn next(&mut self, into: &mut Vec<u8>) -> anyhow::Result<bool> {
        if !self.source.next(&mut self.record)? {
            ensure!(
                self.may_be_empty || self.record.number > 0,
                "{} has no records, so that the job would have no subtasks; add --allow-empty to submit it \
                 nevertheless",
                self.source.name()
            );
            return Ok(false);
        }
        let written = self.write(into);
        written.with_context(|| format!("{}:{}", self.source.name(), self.record.line))?;
        Ok(true)
    }

    fn write(&mut self, into: &mut Vec<u8>) -> anyhow::Result<()> {
        if self.shape == RecordConversion::Whole {
            into.extend_from_slice(self.record.raw.trim_ascii());
            into.push(b'\n');
            return Ok(());
        }
        self.has_read = true;
        into.push(b'{');
        if let Some(rule) = &mut self.rule
            && let RecordKey::Named(key) = rule.key_of(&self.record)?
        {
            self.has_keys = true;
            into.extend_from_slice(b"\"key\":");
            key_text(&key, into)?;
            into.push(b',');
            if self.latest {
                into.extend_from_slice(b"\"latest\":true,");
            }
        }
        self.shared_keys(into)?;
        if self.barrier.as_ref().is_some_and(|barrier| barrier.holds(&self.record)) {
            into.extend_from_slice(b"\"barrier\":true,");
        }
        into.extend_from_slice(b"\"payload\":");
        self.payload(into)?;
        into.extend_from_slice(b"}\n");
        Ok(())
    }

    fn shared_keys(&mut self, into: &mut Vec<u8>) -> anyhow::Result<()> {
        let mut is_first = true;
        for rule in &mut self.shared {
            let RecordKey::Named(key) = rule.key_of(&self.record)? else { continue };
            let before: &[u8] = if is_first { b"\"shared_keys\":[" } else { b"," };
            into.extend_from_slice(before);
            key_text(&key, into)?;
            is_first = false;
        }
        if !is_first {
            into.extend_from_slice(b"],");
        }
        Ok(())
    }

    /// A JSON value is itself, a line a text, a row an object by the header, or else a list.
    fn payload(&self, into: &mut Vec<u8>) -> anyhow::Result<()> {
        match (self.source.layout(), &self.names) {
            (FieldLayout::Ndjson, _) => into.extend_from_slice(self.record.raw.trim_ascii()),
            (FieldLayout::Lines, _) => string(&self.record.raw, into)?,
            (_, Some(names)) => {
                for (index, (name, value)) in names.iter().zip(&self.record.row).enumerate() {
                    into.push(if index == 0 { b'{' } else { b',' });
                    into.write_all(name.as_bytes())?;
                    into.push(b':');
                    string(value, into)?;
                }
                into.push(b'}');
            }
            (_, None) => {
                for (index, value) in self.record.row.iter().enumerate() {
                    into.push(if index == 0 { b'[' } else { b',' });
                    string(value, into)?;
                }
                into.push(b']');
            }
        }
        Ok(())
    }
}

/// Names of the columns, which become the names of an object's members.
fn names(header: &ByteRecord) -> anyhow::Result<Vec<String>> {
    let mut names: Vec<String> = Vec::new();
    for column in header {
        let name =
            str::from_utf8(column).context("the header is not valid UTF-8, as JSON must be")?;
        let name = serde_json::to_string(name)?;
        if names.contains(&name) {
            bail!("two columns are called {name}; payloads need different names");
        }
        names.push(name);
    }
    ensure!(!names.is_empty(), "the header has no columns");
    Ok(names)
}

fn key_text(key: &[u8], into: &mut Vec<u8>) -> anyhow::Result<()> {
    let key = str::from_utf8(key).context("the key is not valid UTF-8, as JSON must be")?;
    Ok(serde_json::to_writer(into, key)?)
}

fn string(bytes: &[u8], into: &mut Vec<u8>) -> anyhow::Result<()> {
    let text = str::from_utf8(bytes);
    let text = text
        .context("not valid UTF-8, as JSON must be; convert the input, for example with iconv")?;
    Ok(serde_json::to_writer(into, text)?)
}

/// Checks that a text is JSON, and keeps it as it is.
pub(super) fn json(text: String) -> anyhow::Result<Box<RawValue>> {
    RawValue::from_string(text)
        .context("the payload is not JSON; a text has quotes of its own: '\"text\"'")
}

#[cfg(test)]
mod tests {
    use std::fs;

    use keylane_service::wire::SubmitSubtask;

    use super::*;

    fn made(input: &str, reading: InputOptions) -> anyhow::Result<Vec<String>> {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), input).unwrap();
        let mut subtasks = SubtaskReader::new(InputFile::open(Some(file.path()))?, reading)?;
        let mut bytes = Vec::new();
        while subtasks.next(&mut bytes)? {}
        let lines: Vec<String> = String::from_utf8(bytes)?.lines().map(String::from).collect();
        for line in &lines {
            serde_json::from_str::<SubmitSubtask>(line).expect("the API takes it");
        }
        Ok(lines)
    }

    fn reading(format: InputFormat, key: Option<&str>) -> InputOptions {
        InputOptions {
            format,
            header: false,
            shape: RecordConversion::Payload,
            key: key.map(String::from),
            shared_keys: Vec::new(),
            barrier: None,
            latest: false,
            nulls: vec![b"NA".to_vec()],
            keyless: KeylessPolicy::Unordered,
            may_be_empty: false,
        }
    }

    #[test]
    fn each_format_has_payloads_of_its_own() {
        let lines = made("GET /a\n\n\"x\"\n", reading(InputFormat::Lines, Some("2"))).unwrap();
        let expected =
            [r#"{"key":"/a","payload":"GET /a"}"#, r#"{"payload":""}"#, r#"{"payload":"\"x\""}"#];
        assert_eq!(lines, expected);
        let values =
            made("{\"u\": 7, \"n\": 1e400}\n", reading(InputFormat::Ndjson, Some(".u"))).unwrap();
        assert_eq!(values, [r#"{"key":"7","payload":{"u": 7, "n": 1e400}}"#]);
        let rows = made("a,\"b\nc\"\nNA,d\n", reading(InputFormat::Csv, Some("1"))).unwrap();
        assert_eq!(rows, [r#"{"key":"a","payload":["a","b\nc"]}"#, r#"{"payload":["NA","d"]}"#]);
        let named = InputOptions { header: true, ..reading(InputFormat::Tsv, None) };
        assert_eq!(made("u\tn\n1\t2\n", named).unwrap(), [r#"{"payload":{"u":"1","n":"2"}}"#]);
    }

    #[test]
    fn shared_keys_and_barriers_are_found_in_each_record() {
        let shared_keys = vec![".c".to_owned(), ".d".to_owned()];
        let reading = InputOptions {
            shared_keys,
            barrier: Some(".d=3".to_owned()),
            ..reading(InputFormat::Ndjson, Some(".u"))
        };
        let lines = made("{\"u\":1,\"c\":2,\"d\":3}\n{\"d\":\"NA\"}\n", reading).unwrap();
        let expected = [
            r#"{"key":"1","shared_keys":["2","3"],"barrier":true,"payload":{"u":1,"c":2,"d":3}}"#,
            r#"{"payload":{"d":"NA"}}"#,
        ];
        assert_eq!(lines, expected);
    }

    #[test]
    fn a_record_with_a_key_replaces_the_latest_one() {
        let latest = InputOptions { latest: true, ..reading(InputFormat::Ndjson, Some(".u")) };
        let lines = made("{\"u\":1}\n{\"u\":\"NA\"}\n", latest).unwrap();
        let expected =
            [r#"{"key":"1","latest":true,"payload":{"u":1}}"#, r#"{"payload":{"u":"NA"}}"#];
        assert_eq!(lines, expected);
    }

    #[test]
    fn an_input_without_records_is_refused_unless_it_may_be_empty() {
        let mut whole = reading(InputFormat::Ndjson, None);
        whole.shape = RecordConversion::Whole;
        let table = InputOptions { header: true, ..reading(InputFormat::Csv, None) };
        for (input, reading) in [
            ("", reading(InputFormat::Lines, None)),
            ("\n\n", reading(InputFormat::Ndjson, None)),
            ("u,n\n", table),
            ("", whole),
        ] {
            let empty = InputOptions { may_be_empty: true, ..reading.clone() };
            assert!(made(input, empty).unwrap().is_empty(), "{input:?}");
            let error = made(input, reading).unwrap_err().to_string();
            assert!(
                error.contains(" has no records") && error.contains("--allow-empty"),
                "{error}"
            );
        }
    }

    #[test]
    fn whole_subtasks_stay_as_they_are() {
        let whole =
            InputOptions { shape: RecordConversion::Whole, ..reading(InputFormat::Ndjson, None) };
        let line = r#"{"keys":["a","b"],"payload":[1]}"#;
        assert_eq!(made(&format!("{line}\n"), whole).unwrap(), [line]);
    }

    #[test]
    fn invalid_subtasks_are_named_with_their_line() {
        let why = |input: &str, reading| format!("{:#}", made(input, reading).unwrap_err());
        let strict = InputOptions {
            keyless: KeylessPolicy::Error,
            ..reading(InputFormat::Ndjson, Some(".u"))
        };
        let message = why("{\"u\":1}\n{\"v\":2}\n", strict);
        assert!(message.contains(":2: the record has no key"), "{message}");
        assert!(
            why("{\"u\":1}\n{\n", reading(InputFormat::Ndjson, None))
                .contains(":2: not valid JSON")
        );
        let named = InputOptions { header: true, ..reading(InputFormat::Csv, None) };
        assert!(why("a,a\n1,2\n", named).contains("two columns are called \"a\""));
    }
}
