//! Audit log: one entry for each operator action, with consecutive numbers in the order of the
//! commits.
//!
//! An entry is submitted with the changes that it describes, so both are on the disk or neither is.
//! The writer assigns the numbers, each one higher than the last, and never twice. Only the oldest
//! entries are deleted. So a gap between two numbers is damage.

use std::ops::ControlFlow;

use keylane_storage::checksum::seal;
use keylane_storage::sqlite::SqliteError;

use super::connection::{StoreConnection, StoredRow, StoredValue};
use super::error::{ReadError, StoreDamage};

/// Maximum number of entries examined for a page.
const MAX_LOOKED_AT: u64 = 10_000;

/// Maximum number of expired entries deleted in one transaction.
const MAX_REMOVED: usize = 1024;

/// Operator action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditRecord {
    /// Time of the action, in milliseconds since 1970.
    pub at_ms: u64,
    /// Name of the operator.
    pub who: String,
    /// Name of the action.
    pub what: String,
    /// Identifier of the affected job, if there is one.
    pub job: Option<String>,
    /// Service's own details, opaque to the store.
    pub body: Vec<u8>,
}

/// Entry of the audit log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditRow {
    /// Number of the entry.
    pub number: u64,
    /// Content as stored.
    pub record: AuditRecord,
    /// Whether the checksum is correct.
    pub is_whole: bool,
}

/// Page of entries, newest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditPage {
    /// Matching entries.
    pub rows: Vec<AuditRow>,
    /// Upper bound (exclusive) of the next page's numbers, or `None` after the last page.
    pub next: Option<u64>,
}

/// Filter for entries; `None` fields match all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditFilter {
    /// Name of the operator.
    pub who: Option<String>,
    /// Name of the action.
    pub what: Option<String>,
    /// Identifier of the affected job.
    pub job: Option<String>,
    /// Earliest time of the action, in milliseconds since 1970.
    pub since_ms: Option<u64>,
}

/// Retention of audit entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AuditRetention {
    /// Earliest time of an entry to keep, in milliseconds since 1970.
    pub since_ms: u64,
    /// Maximum number of entries to keep; the oldest are deleted first.
    pub most: u64,
}

impl AuditRetention {
    fn keeps(self, number: u64, at_ms: u64, last: u64) -> bool {
        at_ms >= self.since_ms && last - number < self.most
    }
}

pub(super) const COLUMNS: &str = "number, at_ms, who, what, job, body, seal";

pub(super) fn page(
    connection: &dyn StoreConnection,
    filter: &AuditFilter,
    before: Option<u64>,
    most: usize,
) -> Result<AuditPage, ReadError> {
    let _snapshot = connection.snapshot()?;
    let before = before.unwrap_or(u64::MAX).min(last(connection)? + 1);
    // Numbers are consecutive, so a range of numbers bounds the count of entries.
    let from = before.saturating_sub(MAX_LOOKED_AT);
    let AuditFilter { who, what, job, since_ms } = filter;
    let since = since_ms.unwrap_or(0).min(i64::MAX as u64);
    let mut parameters = vec![from.into(), before.into(), since.into(), most.into()];
    let mut conditions = String::new();
    for (column, wanted) in [("who", who), ("what", what), ("job", job)] {
        if let Some(wanted) = wanted {
            parameters.push(wanted.into());
            conditions.push_str(&format!(" AND {column} = ?{}", parameters.len()));
        }
    }
    let sql = format!(
        "SELECT {COLUMNS} FROM audit WHERE number >= ?1 AND number < ?2 AND at_ms >= ?3{conditions}
         ORDER BY number DESC LIMIT ?4"
    );
    let rows = connection.all(&sql, &parameters, read)?;
    let looked_to =
        if rows.len() < most { from } else { rows.last().map_or(from, |row| row.number) };
    let more = "SELECT 1 FROM audit WHERE number < ?1 LIMIT 1";
    let next = connection.finds(more, &[looked_to.into()])?.then_some(looked_to);
    Ok(AuditPage { rows, next })
}

/// Returns the last assigned number, even if its entry was deleted: SQLite keeps it. An entry with
/// a higher number takes precedence.
fn last(connection: &dyn StoreConnection) -> Result<u64, ReadError> {
    let present = "SELECT max(number) FROM audit";
    let present = connection.first(present, &[], |row| row.optional_number(0))?.flatten();
    Ok(present.unwrap_or(0).max(connection.highest_audit_number()?).cast_unsigned())
}

pub(super) fn read(row: &dyn StoredRow) -> Result<AuditRow, ReadError> {
    let number = row.unsigned(0)?;
    let job = match row.value(4)? {
        StoredValue::Null => None,
        _ => Some(row.text_or_replaced(4)?),
    };
    let record = AuditRecord {
        at_ms: row.unsigned(1)?,
        who: row.text_or_replaced(2)?,
        what: row.text_or_replaced(3)?,
        job,
        body: row.bytes(5)?.to_vec(),
    };
    let is_whole = row.bytes(6)? == seal_of(number, &record);
    Ok(AuditRow { number, record, is_whole })
}

/// Reads the entries from the oldest on, and continues after a damaged or missing one.
pub(super) fn for_each(
    connection: &dyn StoreConnection,
    mut then: impl FnMut(Result<AuditRow, ReadError>) -> Result<(), ReadError>,
) -> Result<(), ReadError> {
    let mut expected = None;
    connection.each(&format!("SELECT {COLUMNS} FROM audit ORDER BY number"), &[], |row| {
        let row = read(row)?;
        let number = row.number;
        if let Some(from) = expected.filter(|expected| *expected != number) {
            then(Err(ReadError::Damaged(StoreDamage::MissingAudit { from, until: number })))?;
        }
        expected = Some(number + 1);
        then(match row.is_whole {
            true => Ok(row),
            false => Err(ReadError::Damaged(StoreDamage::Audit { number })),
        })
    })
}

/// Returns whether no entry was ever written.
pub(super) fn is_unused(connection: &dyn StoreConnection) -> Result<bool, ReadError> {
    Ok(last(connection)? == 0)
}

/// Writes an entry with the given number, which is beyond all others, or the next one.
pub(super) fn put(
    connection: &dyn StoreConnection,
    number: Option<u64>,
    record: &AuditRecord,
) -> Result<(), SqliteError> {
    let number = match number {
        Some(number) => number,
        None => last(connection)? + 1,
    };
    let sql = format!("INSERT INTO audit ({COLUMNS}) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)");
    let AuditRecord { at_ms, who, what, job, body } = record;
    let sealed = seal_of(number, record);
    let (job, at) = (job.as_deref().into(), (*at_ms).into());
    let parameters =
        [number.into(), at, who.into(), what.into(), job, body.into(), (&sealed).into()];
    connection.execute(&sql, &parameters)?;
    connection.keep_audit_number(number)
}

/// Returns the approximate size of an entry, in bytes.
pub(super) fn bytes(record: &AuditRecord) -> usize {
    let AuditRecord { who, what, job, body, .. } = record;
    who.len() + what.len() + job.as_ref().map_or(0, String::len) + body.len()
}

/// Deletes the oldest entries, up to the first one to keep.
pub(super) fn forget(
    connection: &dyn StoreConnection,
    kept: AuditRetention,
) -> Result<(), SqliteError> {
    if let Some(old) = last_old(connection, kept, MAX_REMOVED)? {
        connection.execute("DELETE FROM audit WHERE number <= ?1", &[old.into()])?;
    }
    Ok(())
}

/// Returns the last of the oldest entries to delete, examining at most `most`.
pub(super) fn last_old(
    connection: &dyn StoreConnection,
    kept: AuditRetention,
    most: usize,
) -> Result<Option<u64>, ReadError> {
    let last = last(connection)?;
    let oldest = "SELECT number, at_ms FROM audit ORDER BY number LIMIT ?1";
    let mut old = None;
    connection.for_each_row(oldest, &[most.into()], &mut |row| {
        let (number, at_ms) = (row.unsigned(0)?, row.unsigned(1)?);
        if kept.keeps(number, at_ms, last) {
            return Ok(ControlFlow::Break(()));
        }
        old = Some(number);
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(old)
}

fn seal_of(number: u64, record: &AuditRecord) -> Vec<u8> {
    let AuditRecord { at_ms, who, what, job, body } = record;
    let text = job.as_deref().unwrap_or_default();
    let mut bytes = [who.as_bytes(), what.as_bytes(), text.as_bytes(), body].concat();
    let length = bytes.len();
    let lengths = [who.len(), what.len(), text.len()].map(|length| length as u64);
    let has_job = u64::from(job.is_some());
    seal(&mut bytes, &[&[number, *at_ms, has_job], &lengths[..]].concat());
    bytes.split_off(length)
}
