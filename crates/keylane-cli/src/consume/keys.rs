//! Keys of a record, by the rules of `keylane run`.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use keylane_stream::Record;
use keylane_stream::consumer::RecordClaims;

use super::key_settings::PlannedKeys;
use super::payloads::PayloadFormat;
use crate::key::{NoKey, RecordKey};
use crate::record_keys::{KeyRules, KeySelection, RecordKeys};

/// How the keys of records are found.
#[derive(Debug)]
pub(super) struct KeyExtractor {
    /// Locked for the buffers that they reuse.
    rules: Mutex<KeyRules>,
    /// The record's own key counts, because no setting names another.
    has_own: bool,
    /// The settings name no key at all.
    has_only_own: bool,
    pub(super) payloads: Arc<PayloadFormat>,
}

impl KeyExtractor {
    pub(super) fn new(keys: &PlannedKeys, payloads: Arc<PayloadFormat>) -> anyhow::Result<Self> {
        let selection = KeySelection {
            key: &keys.key,
            shared_key: &keys.shared_key,
            barrier: keys.barrier.as_deref(),
            nulls: Vec::new(),
            // The consumer decides about records without a key.
            no_key: NoKey::Unordered,
        };
        let rules = Mutex::new(KeyRules::new(selection, payloads.layout())?);
        let (has_own, has_only_own) = (keys.key.is_empty(), !keys.names_any());
        Ok(KeyExtractor { rules, has_own, has_only_own, payloads })
    }

    /// Returns the key by which the handler and messages name a record: its first one.
    pub(super) fn key_of(&self, record: &Record) -> Option<Vec<u8>> {
        if self.has_only_own || self.has_own && record.key.is_some() {
            return record.key.as_deref().map(<[u8]>::to_vec);
        }
        let keys = self.by_rules(record)?;
        match keys.first {
            RecordKey::Named(key) => Some(key.to_vec()),
            RecordKey::Unkeyed(_) | RecordKey::Serial => None,
        }
    }

    /// Returns all keys of a record.
    pub(super) fn claims_of(&self, record: &Record) -> RecordClaims {
        let mut claims = RecordClaims::default();
        let own = record.key.as_deref().filter(|_| self.has_own);
        claims.exclusive.extend(own.map(<[u8]>::to_vec));
        if let Some(keys) = self.by_rules(record) {
            let bytes = |keys: &[RecordKey]| keys.iter().map(|key| key.bytes().to_vec()).collect();
            let own: Vec<_> = bytes(keys.exclusive());
            claims.exclusive.extend(own);
            claims.shared = bytes(keys.shared());
            claims.is_barrier = keys.is_barrier;
        }
        claims
    }

    /// Returns the keys by the settings. A record without fields has none: its handler refuses a payload
    /// that is not of the format.
    fn by_rules(&self, record: &Record) -> Option<RecordKeys> {
        if record.payload.is_none() || self.payloads.check(record).is_err() {
            return None;
        }
        let seen = self.payloads.as_input(record, 0);
        let keys = self.rules().keys_of(&seen);
        Some(keys.expect("records without a key are not refused here"))
    }

    fn rules(&self) -> MutexGuard<'_, KeyRules> {
        self.rules.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::input::{FieldLayout, InputFormat};

    fn keys(key: &[&str], shared: &[&str], barrier: Option<&str>) -> KeyExtractor {
        let owned = |all: &[&str]| all.iter().map(|one| (*one).to_owned()).collect();
        let planned = PlannedKeys {
            key: owned(key),
            shared_key: owned(shared),
            barrier: barrier.map(str::to_owned),
        };
        let payloads = PayloadFormat::new(InputFormat::Ndjson, FieldLayout::Ndjson);
        KeyExtractor::new(&planned, Arc::new(payloads)).unwrap()
    }

    fn texts(keys: &[Vec<u8>]) -> Vec<&str> {
        keys.iter().map(|key| std::str::from_utf8(key).unwrap()).collect()
    }

    #[test]
    fn keys_come_from_all_settings_and_else_from_the_record() {
        let record = Record::new("own", r#"{"from":"a","to":["b","c"],"day":3}"#);
        let several = keys(&[".from", ".to[]"], &[".day"], None);
        let claims = several.claims_of(&record);
        assert_eq!(texts(&claims.exclusive), ["a", "b", "c"]);
        assert_eq!((texts(&claims.shared), claims.is_barrier), (vec!["3"], false));
        assert_eq!(several.key_of(&record).as_deref(), Some(&b"a"[..]));
        let own = keys(&[], &[".day"], Some(".day=3"));
        let claims = own.claims_of(&record);
        assert_eq!((texts(&claims.exclusive), texts(&claims.shared)), (vec!["own"], vec!["3"]));
        assert!(claims.is_barrier);
        assert_eq!(own.key_of(&record).as_deref(), Some(&b"own"[..]));
        let none = several.claims_of(&Record::new("own", "no JSON"));
        assert_eq!(none, RecordClaims::default());
        assert_eq!(several.key_of(&Record::tombstone("own")), None);
    }
}
