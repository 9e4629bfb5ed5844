//! Keys of a record by all options about them, and what they mean for the order.

use std::num::NonZeroU16;
use std::sync::Arc;

use keylane::Claims;

use crate::input::{FieldLayout, InputRecord};
use crate::key::{KeyMissing, KeyRule, NoKey, RecordKey};

use crate::condition::RecordCondition;

/// Rules by which the keys of records are found.
#[derive(Debug)]
pub(crate) struct KeyRules {
    exclusive: Vec<KeyRule>,
    shared: Vec<KeyRule>,
    barrier: Option<RecordCondition>,
    no_key: NoKey,
    found: Vec<Arc<[u8]>>,
}

/// Options about the keys of records.
#[derive(Debug)]
pub(crate) struct KeySelection<'a> {
    pub(crate) key: &'a [String],
    pub(crate) shared_key: &'a [String],
    pub(crate) barrier: Option<&'a str>,
    /// Values that mean "no key".
    pub(crate) nulls: Vec<Vec<u8>>,
    pub(crate) no_key: NoKey,
}

/// Keys of one record.
#[derive(Clone, Debug)]
pub(crate) struct RecordKeys {
    /// The first key, by which messages and the command name the record.
    pub(crate) first: RecordKey,
    exclusive: Vec<RecordKey>,
    shared: Vec<RecordKey>,
    pub(crate) is_barrier: bool,
}

impl KeyRules {
    pub(crate) fn new(selection: KeySelection<'_>, layout: &FieldLayout) -> anyhow::Result<Self> {
        let KeySelection { key, shared_key, barrier, nulls, no_key } = selection;
        let rule = |option: &'static str| {
            let nulls = &nulls;
            move |text: &String| KeyRule::named(option, text, nulls.clone(), no_key, layout)
        };
        let barrier = barrier.map(|text| {
            anyhow::Context::with_context(RecordCondition::parse(text, layout), || {
                format!("--barrier {text}")
            })
        });
        Ok(KeyRules {
            exclusive: key.iter().map(rule("--key")).collect::<Result<_, _>>()?,
            shared: shared_key.iter().map(rule("--shared-key")).collect::<Result<_, _>>()?,
            barrier: barrier.transpose()?,
            no_key,
            found: Vec::new(),
        })
    }

    /// Returns the keys of a record.
    ///
    /// # Errors
    /// If it has none although it must.
    pub(crate) fn keys_of(&mut self, record: &InputRecord) -> Result<RecordKeys, KeyMissing> {
        let exclusive = named(&mut self.exclusive, record, &mut self.found);
        let shared = named(&mut self.shared, record, &mut self.found);
        let is_barrier = self.barrier.as_ref().is_some_and(|barrier| barrier.holds(record));
        let mut keys = RecordKeys::new(exclusive, shared, is_barrier);
        if keys.all().next().is_some() {
            return Ok(keys);
        }
        keys.first = match self.no_key {
            _ if is_barrier => RecordKey::Unkeyed(record.number),
            NoKey::Unordered => RecordKey::Unkeyed(record.number),
            NoKey::Serial => {
                keys.exclusive.push(RecordKey::Serial);
                RecordKey::Serial
            }
            NoKey::Error => return Err(KeyMissing),
        };
        Ok(keys)
    }
}

fn named(
    rules: &mut [KeyRule],
    record: &InputRecord,
    found: &mut Vec<Arc<[u8]>>,
) -> Vec<RecordKey> {
    found.clear();
    rules.iter_mut().for_each(|rule| rule.add_keys(record, found));
    found.drain(..).map(RecordKey::Named).collect()
}

impl RecordKeys {
    /// Creates the keys of a record; without any, the first is that of records without a key.
    pub(super) fn new(exclusive: Vec<RecordKey>, shared: Vec<RecordKey>, is_barrier: bool) -> Self {
        let first = exclusive.iter().chain(&shared).next().cloned().unwrap_or(RecordKey::Serial);
        RecordKeys { first, exclusive, shared, is_barrier }
    }

    /// All keys, the exclusive ones first.
    pub(crate) fn all(&self) -> impl Iterator<Item = &RecordKey> {
        self.exclusive.iter().chain(&self.shared)
    }

    /// Keys that the record has for itself.
    pub(crate) fn exclusive(&self) -> &[RecordKey] {
        &self.exclusive
    }

    /// Keys that the record shares.
    pub(crate) fn shared(&self) -> &[RecordKey] {
        &self.shared
    }

    /// Returns the claims of the record. With a limit, that many records of a key may run at once.
    pub(crate) fn claims(&self, limit: Option<NonZeroU16>) -> Claims<RecordKey> {
        if self.is_barrier {
            return Claims::barrier();
        }
        let exclusive = self.exclusive.iter().cloned();
        let claims = exclusive.fold(Claims::none(), |claims, key| match limit {
            Some(limit) => claims.and_limited(key, limit.get()),
            None => claims.and_exclusive(key),
        });
        self.shared.iter().cloned().fold(claims, Claims::and_shared)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(key: &[&str], shared: &[&str], barrier: Option<&str>, no_key: NoKey) -> KeyRules {
        let owned = |all: &[&str]| -> Vec<_> { all.iter().map(|one| (*one).to_owned()).collect() };
        let (key, shared_key, nulls) = (&owned(key)[..], &owned(shared)[..], vec![b"NA".to_vec()]);
        let selection = KeySelection { key, shared_key, barrier, nulls, no_key };
        KeyRules::new(selection, &FieldLayout::Ndjson).unwrap()
    }

    fn record(json: &str) -> InputRecord {
        InputRecord { number: 7, line: 7, raw: json.into(), ..InputRecord::default() }
    }

    fn texts(keys: &[RecordKey]) -> Vec<String> {
        keys.iter().map(|key| String::from_utf8_lossy(key.bytes()).into_owned()).collect()
    }

    #[test]
    fn keys_come_from_all_options_and_from_lists() {
        let mut rules = rules(&[".from", ".to[]"], &[".day"], None, NoKey::Unordered);
        let keys =
            rules.keys_of(&record(r#"{"from":"a","to":["b","c",null,"NA"],"day":3}"#)).unwrap();
        assert_eq!(texts(keys.exclusive()), ["a", "b", "c"]);
        assert_eq!(texts(keys.shared()), ["3"]);
        assert_eq!(keys.first.bytes(), b"a");
        let keys = rules.keys_of(&record(r#"{"to":[],"day":3}"#)).unwrap();
        assert_eq!((texts(keys.exclusive()).len(), keys.first.bytes()), (0, &b"3"[..]));
    }

    #[test]
    fn a_record_without_any_key_follows_the_policy() {
        let none = record("{}");
        let of = |no_key| rules(&[".a"], &[".b"], Some(".t=end"), no_key).keys_of(&none);
        assert_eq!(of(NoKey::Unordered).unwrap().first, RecordKey::Unkeyed(7));
        assert_eq!(of(NoKey::Serial).unwrap().exclusive(), [RecordKey::Serial]);
        assert!(of(NoKey::Error).is_err());
        let mut rules = rules(&[".a"], &[], Some(".t=end"), NoKey::Error);
        assert!(rules.keys_of(&record(r#"{"t":"end"}"#)).unwrap().is_barrier);
    }
}
