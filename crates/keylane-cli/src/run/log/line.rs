//! Line of an attempt in the log.

use std::borrow::Cow;
use std::os::unix::process::ExitStatusExt;

use serde::{Deserialize, Serialize};

use crate::key::RecordKey;
use crate::process::{AttemptTimes, RecordEnd};
use crate::run_stats::RecordLocation;

use super::prior_pages::PriorState;
use crate::record_keys::RecordKeys;

/// Meaning of a line for a run that continues from the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(in crate::run) enum LoggedResult {
    /// The record succeeded.
    Done,
    /// The attempt failed, and a further one was to follow.
    Retry,
    /// The record failed finally, and its key went on.
    Failed,
    /// The record failed finally, and counts as done.
    Skipped,
    /// The record failed finally, and is in the dead letters.
    DeadLetter,
    /// The record failed finally, and its key or the run stopped there.
    Stopped,
    /// A later record of the key replaced it before it started.
    Replaced,
    /// The run ended the command or lost its output; the record has to run again.
    Interrupted,
}

/// An attempt that has ended, or a record that ended without one.
pub(in crate::run) struct LoggedAttempt<'r> {
    pub(in crate::run) place: &'r RecordLocation,
    pub(in crate::run) keys: LoggedKeys<'r>,
    /// Place of the first record of its batch, if that has more than one record.
    pub(in crate::run) batch: Option<u64>,
    pub(in crate::run) attempt: u32,
    /// `None` if no attempt was made.
    pub(in crate::run) times: Option<AttemptTimes>,
    pub(in crate::run) end: &'r RecordEnd,
    pub(in crate::run) result: LoggedResult,
}

/// Line of the log.
#[derive(Debug, Serialize)]
struct LogLine<'a> {
    place: u64,
    hash: String,
    #[serde(flatten)]
    keys: KeyFields<'a>,
    /// Place of the first record of its batch.
    #[serde(skip_serializing_if = "Option::is_none")]
    batch: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    attempt: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    start_us: Option<i64>,
    end_us: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    exit: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    signal: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
    result: LoggedResult,
    /// Number of the run that ran a finally failed record again.
    #[serde(skip_serializing_if = "Option::is_none")]
    rerun: Option<u32>,
}

/// Keys in a line of the log.
#[derive(Debug, Default, Serialize)]
pub(in crate::run) struct KeyFields<'a> {
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
pub(in crate::run) enum LoggedKeys<'k> {
    /// The only key, or none.
    One(&'k RecordKey),
    All(&'k RecordKeys),
}

impl LoggedResult {
    /// State of a record after a line with this result.
    pub(super) fn state(self) -> PriorState {
        match self {
            Self::Done | Self::Skipped | Self::DeadLetter | Self::Replaced => PriorState::Finished,
            Self::Failed => PriorState::Failed,
            Self::Stopped => PriorState::Stopped,
            Self::Retry | Self::Interrupted => PriorState::Unfinished,
        }
    }
}

impl LoggedAttempt<'_> {
    /// Appends the line. `rerun` is the number of the run, if the record had failed finally before.
    pub(super) fn write(
        &self,
        text: &mut Vec<u8>,
        has_limit: bool,
        now_us: i64,
        rerun: Option<u32>,
    ) {
        let (exit, signal, error) = match self.end {
            RecordEnd::Exited(status) => (status.code(), status.signal(), None),
            RecordEnd::Answered => (None, None, None),
            RecordEnd::Failed(why) => (None, None, Some(&**why)),
        };
        let line = LogLine {
            place: self.place.number,
            hash: format!("{:016x}", self.place.hash),
            keys: self.keys.fields(has_limit),
            batch: self.batch,
            attempt: self.times.map(|_| self.attempt),
            start_us: self.times.map(|times| times.start_us),
            end_us: self.times.map_or(now_us, |times| times.end_us),
            exit,
            signal,
            error,
            result: self.result,
            rerun,
        };
        serde_json::to_writer(&mut *text, &line)
            .expect("a line has no map with other keys than strings");
        text.push(b'\n');
    }
}

impl<'k> LoggedKeys<'k> {
    pub(in crate::run) fn fields(&self, has_limit: bool) -> KeyFields<'k> {
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
