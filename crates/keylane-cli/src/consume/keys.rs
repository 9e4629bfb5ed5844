//! Key of a record, and the record as input of templates.

use std::sync::{Mutex, PoisonError};

use keylane_stream::Record;

use crate::input::{self, FieldLayout};
use crate::key::{KeyRule, NoKey};

/// How the keys of records are found.
#[derive(Debug)]
pub(super) struct KeyExtractor {
    /// None for the record's own key. Locked for the buffers that it reuses.
    rule: Option<Mutex<KeyRule>>,
    /// Whether payloads have to be JSON.
    json: bool,
}

/// A payload that has to be JSON and is not.
#[derive(Debug, thiserror::Error)]
#[error("its payload is {0}")]
pub(super) struct NotJson(String);

impl KeyExtractor {
    pub(super) fn new(text: Option<&str>, layout: &FieldLayout) -> anyhow::Result<Self> {
        let rule = |text| KeyRule::new(text, Vec::new(), NoKey::Unordered, layout);
        let json = matches!(layout, FieldLayout::Ndjson);
        Ok(KeyExtractor { rule: text.map(rule).transpose()?.map(Mutex::new), json })
    }

    /// Whether a record can be handled: its payload is JSON, if it has to be. A tombstone has none.
    pub(super) fn check(&self, record: &Record) -> Result<(), NotJson> {
        match &record.payload {
            Some(payload) if self.json => {
                input::check_json(payload).map_err(|flaw| NotJson(flaw.to_string()))
            }
            _ => Ok(()),
        }
    }

    pub(super) fn key_of(&self, record: &Record) -> Option<Vec<u8>> {
        let Some(rule) = &self.rule else { return record.key.clone() };
        if record.payload.is_none() || self.check(record).is_err() {
            // It has no members; its handler refuses text that is not JSON.
            return None;
        }
        let seen = as_input(record, 0);
        let key = rule.lock().unwrap_or_else(PoisonError::into_inner).key_of(&seen);
        let key = key.expect("records without a key are not refused here");
        Some(key.bytes().to_vec()).filter(|key| !key.is_empty())
    }
}

/// The record as templates see it.
pub(super) fn as_input(record: &Record, number: u64) -> input::InputRecord {
    input::InputRecord {
        number,
        line: number,
        raw: record.payload().to_vec(),
        ..Default::default()
    }
}
