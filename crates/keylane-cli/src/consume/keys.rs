//! Key of a record.

use std::sync::{Arc, Mutex, PoisonError};

use keylane_stream::Record;

use super::payloads::PayloadFormat;
use crate::key::{KeyRule, NoKey};

/// How the keys of records are found.
#[derive(Debug)]
pub(super) struct KeyExtractor {
    /// None for the record's own key. Locked for the buffers that it reuses.
    rule: Option<Mutex<KeyRule>>,
    pub(super) payloads: Arc<PayloadFormat>,
}

impl KeyExtractor {
    pub(super) fn new(text: Option<&str>, payloads: Arc<PayloadFormat>) -> anyhow::Result<Self> {
        let rule = |text| KeyRule::new(text, Vec::new(), NoKey::Unordered, payloads.layout());
        Ok(KeyExtractor { rule: text.map(rule).transpose()?.map(Mutex::new), payloads })
    }

    pub(super) fn key_of(&self, record: &Record) -> Option<Vec<u8>> {
        let Some(rule) = &self.rule else { return record.key.clone() };
        if record.payload.is_none() || self.payloads.check(record).is_err() {
            // It has no fields; its handler refuses a payload that is not of the format.
            return None;
        }
        let seen = self.payloads.as_input(record, 0);
        let key = rule.lock().unwrap_or_else(PoisonError::into_inner).key_of(&seen);
        let key = key.expect("records without a key are not refused here");
        Some(key.bytes().to_vec()).filter(|key| !key.is_empty())
    }
}
