//! Codes and checksums of the rows of keys and idempotency keys.

use keylane_storage::checksum::seal;

use super::change::{IdempotencyEntry, KeyBlockReason, KeyRecord};
use crate::ids::JobId;

impl KeyBlockReason {
    pub(super) fn code(self) -> i64 {
        match self {
            KeyBlockReason::Paused => 1,
            KeyBlockReason::Stopped => 2,
        }
    }

    pub(super) fn of_code(code: i64) -> Option<Self> {
        [KeyBlockReason::Paused, KeyBlockReason::Stopped]
            .into_iter()
            .find(|state| state.code() == code)
    }
}

pub(super) fn seal_of_key(key: &[u8], record: &KeyRecord) -> Vec<u8> {
    let mut bytes = [key, record.reason.as_bytes()].concat();
    let length = bytes.len();
    seal(&mut bytes, &[key.len() as u64, record.state.code().cast_unsigned(), record.since_ms]);
    bytes.split_off(length)
}

pub(super) fn seal_of_idempotency(entry: &IdempotencyEntry, id: JobId) -> Vec<u8> {
    let IdempotencyEntry { scope, key, body_hash, expires_ms } = entry;
    let mut bytes = [scope.as_bytes(), key.as_bytes(), body_hash, &id.0].concat();
    let length = bytes.len();
    seal(&mut bytes, &[scope.len() as u64, *expires_ms]);
    bytes.split_off(length)
}
