//! `--log`: a line of JSON for each record that ran, for programs and for `keylane verify`.
//!
//! A record's line is written before its key starts the next record, by one write call, so a crash
//! loses no line of a record that another record of its key has followed.

use std::borrow::Cow;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::{Mutex, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use anyhow::Context;
use serde::Serialize;

use crate::key::RecordKey;
use crate::run_stats::RecordLocation;

use crate::record_keys::RecordKeys;

/// File for the log of one run.
#[derive(Debug)]
pub(crate) struct RecordLog {
    path: PathBuf,
    file: Mutex<File>,
    /// A moment by both clocks. Later times come from the steady one, so that setting the system's
    /// clock does not reorder them.
    origin: (Instant, SystemTime),
    /// Several records of a key may run at once.
    has_limit: bool,
}

/// End of a record that ran.
#[derive(Debug)]
pub(crate) enum RecordEnd {
    /// Its command has ended.
    Exited(ExitStatus),
    /// A worker has answered.
    Answered,
    /// It failed for this reason.
    Failed(String),
}

/// Line of the log.
#[derive(Debug, Serialize)]
struct LogLine<'a> {
    place: u64,
    #[serde(flatten)]
    keys: KeyFields<'a>,
    attempt: u32,
    start_us: i64,
    end_us: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    exit: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    signal: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
}

/// Keys in a line of the log.
#[derive(Debug, Default, Serialize)]
pub(super) struct KeyFields<'a> {
    /// The only key.
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<Cow<'a, str>>,
    /// The only key, if it is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    key_hex: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    keys: Vec<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    shared_keys: Vec<Cow<'a, str>>,
    /// Keys of which several records may run at once.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    limited_keys: Vec<Cow<'a, str>>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    barrier: bool,
}

/// Keys of a record for the log.
#[derive(Debug)]
pub(crate) enum LoggedKeys<'k> {
    /// The only key, or none.
    One(&'k RecordKey),
    All(&'k RecordKeys),
}

impl<'k> LoggedKeys<'k> {
    pub(super) fn fields(&self, has_limit: bool) -> KeyFields<'k> {
        let texts = |keys: &'k [RecordKey]| keys.iter().map(text_of).collect();
        match self {
            LoggedKeys::One(key) => one_key(key),
            LoggedKeys::All(RecordKeys { is_barrier: true, .. }) => {
                KeyFields { barrier: true, ..KeyFields::default() }
            }
            LoggedKeys::All(keys) => match (keys.exclusive(), keys.shared()) {
                (exclusive, shared) if has_limit => KeyFields {
                    limited_keys: texts(exclusive),
                    shared_keys: texts(shared),
                    ..KeyFields::default()
                },
                ([], []) => KeyFields::default(),
                ([key], []) => one_key(key),
                (exclusive, shared) => KeyFields {
                    keys: texts(exclusive),
                    shared_keys: texts(shared),
                    ..KeyFields::default()
                },
            },
        }
    }
}

fn one_key(key: &RecordKey) -> KeyFields<'_> {
    let (key, key_hex) = match key {
        RecordKey::Unkeyed(_) => (None, None),
        // No key is empty, so the empty one can stand for all records without a key.
        RecordKey::Serial => (Some(Cow::Borrowed("")), None),
        RecordKey::Named(bytes) => match std::str::from_utf8(bytes) {
            Ok(key) => (Some(Cow::Borrowed(key)), None),
            Err(_) => (None, Some(hex(bytes))),
        },
    };
    KeyFields { key, key_hex, ..KeyFields::default() }
}

/// One of several keys. If it is not UTF-8: a character of the private use area, and hexadecimal
/// digits.
fn text_of(key: &RecordKey) -> Cow<'_, str> {
    match std::str::from_utf8(key.bytes()) {
        Ok(text) => Cow::Borrowed(text),
        Err(_) => Cow::Owned(format!("\u{f8ff}{}", hex(key.bytes()))),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

impl RecordLog {
    /// Creates the file, so that an error is reported before any command starts.
    pub(super) fn create(path: &Path, has_limit: bool) -> anyhow::Result<Self> {
        let mut options = File::options();
        // It contains keys.
        let options = options.write(true).create(true).truncate(true).mode(0o600);
        let file = options
            .open(path)
            .with_context(|| format!("cannot write the log to {}", path.display()))?;
        let origin = (Instant::now(), SystemTime::now());
        Ok(RecordLog { path: path.to_owned(), file: Mutex::new(file), origin, has_limit })
    }

    /// Returns the time in microseconds since 1970.
    pub(crate) fn now_us(&self) -> i64 {
        let (steady, wall) = self.origin;
        let since_1970 = wall.duration_since(UNIX_EPOCH).unwrap_or_default() + steady.elapsed();
        i64::try_from(since_1970.as_micros()).unwrap_or(i64::MAX)
    }

    /// Writes the line of a record that ends now.
    ///
    /// # Errors
    /// If the file cannot be written, with the remedy.
    pub(crate) fn write(
        &self,
        place: &RecordLocation,
        keys: &LoggedKeys<'_>,
        attempt: u32,
        start_us: i64,
        end: &RecordEnd,
    ) -> anyhow::Result<()> {
        let mut text = Vec::with_capacity(160);
        self.line(&mut text, place, keys, attempt, start_us, end);
        self.write_text(&text)
    }

    /// Appends the line of an attempt that ends now.
    pub(super) fn line(
        &self,
        text: &mut Vec<u8>,
        place: &RecordLocation,
        keys: &LoggedKeys<'_>,
        attempt: u32,
        start_us: i64,
        end: &RecordEnd,
    ) {
        let (exit, signal, error) = match end {
            RecordEnd::Exited(status) => (status.code(), status.signal(), None),
            RecordEnd::Answered => (None, None, None),
            RecordEnd::Failed(why) => (None, None, Some(&**why)),
        };
        let (place, end_us) = (place.number, self.now_us());
        let keys = keys.fields(self.has_limit);
        let line = LogLine { place, keys, attempt, start_us, end_us, exit, signal, error };
        serde_json::to_writer(&mut *text, &line)
            .expect("a line has no map with other keys than strings");
        text.push(b'\n');
    }

    /// Writes whole lines.
    pub(super) fn write_text(&self, text: &[u8]) -> anyhow::Result<()> {
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        file.write_all(text).with_context(|| {
            format!(
                "cannot write the log {}; make room on its disk, or leave out --log",
                self.path.display()
            )
        })
    }
}
