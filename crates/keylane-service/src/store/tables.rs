//! Tables and their migrations, and the rows shared by several parts of the store.

use keylane_storage::checksum::{seal, unseal};
use keylane_storage::sqlite::{Layout, SqliteError};

use super::change::JobAcceptance;
use super::connection::{StoreConnection, StoredRow};
use super::error::{ReadError, StoreDamage};
use super::job_status::JobStatus;
use crate::ids::{JobId, JobNumber};

/// Layout `KLS1`. A later version adds a migration, which new stores run too.
pub(super) const LAYOUT: Layout = Layout {
    application: 0x4b4c_5331,
    tables: FIRST,
    migrations: &[
        SECOND, THIRD, FOURTH, FIFTH, SIXTH, SEVENTH, EIGHTH, NINTH, TENTH, ELEVENTH, TWELFTH,
        THIRTEENTH,
    ],
};

/// Tables of version 1. `README.md` explains the columns. Small columns precede large ones, so that
/// reading them does not touch the pages of the large ones.
const FIRST: &str = "
    CREATE TABLE meta (
        one INTEGER PRIMARY KEY CHECK (one = 1),
        id BLOB NOT NULL,
        boot INTEGER NOT NULL,
        clean INTEGER NOT NULL,
        commits INTEGER NOT NULL,
        numbers INTEGER NOT NULL,
        accepted INTEGER NOT NULL,
        seal BLOB NOT NULL
    ) STRICT;
    CREATE TABLE job (
        number INTEGER PRIMARY KEY,
        state INTEGER NOT NULL,
        status BLOB NOT NULL,
        id BLOB NOT NULL,
        accepted INTEGER NOT NULL,
        created_ms INTEGER NOT NULL,
        total INTEGER NOT NULL,
        kind TEXT NOT NULL,
        head BLOB NOT NULL,
        chunk BLOB
    ) STRICT;
    CREATE INDEX job_by_state ON job (state) WHERE state <> 16;
    CREATE TABLE chunk (
        place INTEGER PRIMARY KEY,
        count INTEGER NOT NULL,
        body BLOB NOT NULL
    ) STRICT;
    CREATE TABLE outcome (
        place INTEGER PRIMARY KEY,
        count INTEGER NOT NULL,
        numbers BLOB NOT NULL,
        body BLOB NOT NULL
    ) STRICT;
    CREATE TABLE started (
        number INTEGER PRIMARY KEY,
        body BLOB NOT NULL
    ) STRICT;
    CREATE TABLE loose (
        job INTEGER PRIMARY KEY
    ) STRICT;
    CREATE TABLE key (
        name BLOB PRIMARY KEY,
        state INTEGER NOT NULL,
        since_ms INTEGER NOT NULL,
        reason TEXT NOT NULL,
        seal BLOB NOT NULL
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE idempotency (
        scope TEXT NOT NULL,
        key TEXT NOT NULL,
        expires_ms INTEGER NOT NULL,
        body_hash BLOB NOT NULL,
        id BLOB NOT NULL,
        seal BLOB NOT NULL,
        PRIMARY KEY (scope, key)
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX idempotency_by_end ON idempotency (expires_ms);
";

/// Version 2: schedules.
const SECOND: &str = "
    CREATE TABLE schedule (
        name TEXT PRIMARY KEY,
        version INTEGER NOT NULL,
        body BLOB NOT NULL,
        seal BLOB NOT NULL
    ) STRICT;
";

/// Version 3: clients' identifiers of jobs.
const THIRD: &str = "
    CREATE TABLE alias (
        name TEXT PRIMARY KEY,
        job INTEGER NOT NULL,
        id BLOB NOT NULL,
        body_hash BLOB NOT NULL,
        seal BLOB NOT NULL
    ) STRICT;
    CREATE INDEX alias_by_job ON alias (job);
";

/// Version 4: the audit log, with numbers that never repeat.
const FOURTH: &str = "
    CREATE TABLE audit (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        at_ms INTEGER NOT NULL,
        who TEXT NOT NULL,
        what TEXT NOT NULL,
        job TEXT,
        body BLOB NOT NULL,
        seal BLOB NOT NULL
    ) STRICT;
";

/// Version 5: logs of attempts.
const FIFTH: &str = "
    CREATE TABLE log (
        place INTEGER NOT NULL,
        nth INTEGER NOT NULL,
        body BLOB NOT NULL,
        PRIMARY KEY (place, nth)
    ) STRICT;
";

/// Version 6: a job gets a new position in the order when its subtasks enter later than its
/// acceptance.
const SIXTH: &str = "
    ALTER TABLE job RENAME COLUMN accepted TO entered;
    ALTER TABLE meta RENAME COLUMN accepted TO entered;
";

/// Version 7: the number of unfinished jobs. The first start after a migration counts them.
const SEVENTH: &str = "
    ALTER TABLE meta ADD COLUMN unfinished BLOB;
";
/// Version 8: marks of attempts have stages (`started_attempts.rs`), and `meta.boot` is at least the time in
/// seconds (`boot_number.rs`). The tables are unchanged; a binary that knows neither must not write such a
/// file.
const EIGHTH: &str = "SELECT 1;";
/// Version 9: the keys of a chunk have their own checksum (`chunk.rs`). The tables are unchanged; a
/// binary that does not know such chunks would take them for damaged.
const NINTH: &str = "SELECT 1;";
/// Version 10: a subtask may share keys (`chunk.rs`). The tables are unchanged; a binary that does
/// not know such keys would take their chunks for damaged.
const TENTH: &str = "SELECT 1;";
/// Version 11: a subtask may be superseded (`outcome.rs`, `job_status.rs`), and a mark among its keys
/// says that it may be. The tables are unchanged; a binary that does not know them would take the rows for damaged.
const ELEVENTH: &str = "SELECT 1;";

/// Version 12: settings that operators have changed (`live_settings.rs`).
const TWELFTH: &str = "
    CREATE TABLE setting (
        name TEXT PRIMARY KEY,
        body BLOB NOT NULL,
        seal BLOB NOT NULL
    ) STRICT;
";

/// Version 13: settings may be webhooks that are not delivered (`live_settings.rs`). The tables are unchanged; a binary that
/// does not know them would take them for changes of kinds.
const THIRTEENTH: &str = "SELECT 1;";

/// The store's own counters: one row, written by every transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MetaRow {
    pub(super) id: [u8; 16],
    /// Boot number of the last opening: see `boot_number.rs`.
    pub(super) boot: u64,
    /// Whether the store was closed in order after its last opening.
    pub(super) clean: bool,
    /// Number of transactions.
    pub(super) commits: u64,
    /// Upper bound (exclusive) of the numbers of all jobs in the file.
    pub(super) numbers: u64,
    /// Upper bound (exclusive) of the positions in the order.
    pub(super) entered: u64,
    /// Number of unfinished jobs; `None` if an earlier version has written the store last.
    pub(super) unfinished: Option<u64>,
}

impl MetaRow {
    /// Loads the row; `None` in a new store.
    pub(super) fn load(connection: &dyn StoreConnection) -> Result<Option<MetaRow>, ReadError> {
        let sql = "SELECT id, boot, clean, commits, numbers, entered, seal, unfinished FROM meta";
        connection.first(sql, &[], MetaRow::read)
    }

    fn read(row: &dyn StoredRow) -> Result<MetaRow, ReadError> {
        let meta = MetaRow {
            id: row.array(0)?,
            boot: row.unsigned(1)?,
            clean: row.unsigned(2)? == 1,
            commits: row.unsigned(3)?,
            numbers: row.unsigned(4)?,
            entered: row.unsigned(5)?,
            unfinished: None,
        };
        let unfinished = match row.optional_bytes(7)? {
            Some(sealed) => {
                Some(meta.count_of(sealed).ok_or(ReadError::Damaged(StoreDamage::Meta))?)
            }
            None => None,
        };
        match row.bytes(6)? == meta.seal() {
            true => Ok(MetaRow { unfinished, ..meta }),
            false => Err(ReadError::Damaged(StoreDamage::Meta)),
        }
    }

    pub(super) fn put(&self, connection: &dyn StoreConnection) -> Result<(), SqliteError> {
        let sql =
            "INSERT INTO meta (one, id, boot, clean, commits, numbers, entered, seal, unfinished)
                   VALUES (1, ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
                   ON CONFLICT (one) DO UPDATE
                   SET id = excluded.id, boot = excluded.boot, clean = excluded.clean,
                       commits = excluded.commits, numbers = excluded.numbers,
                       entered = excluded.entered, seal = excluded.seal,
                       unfinished = excluded.unfinished";
        let unfinished = self.unfinished.map(|count| {
            let mut bytes = count.to_le_bytes().to_vec();
            seal(&mut bytes, &[self.commits]);
            bytes
        });
        let sealed = self.seal();
        let parameters = [
            (&self.id).into(),
            self.boot.into(),
            self.clean.into(),
            self.commits.into(),
            self.numbers.into(),
            self.entered.into(),
            (&sealed).into(),
            unfinished.as_deref().into(),
        ];
        connection.execute(sql, &parameters)?;
        Ok(())
    }

    /// Decodes the number of unfinished jobs, which has its own checksum.
    fn count_of(&self, sealed: &[u8]) -> Option<u64> {
        Some(u64::from_le_bytes(unseal(sealed, &[self.commits])?.try_into().ok()?))
    }

    fn seal(&self) -> Vec<u8> {
        let mut bytes = self.id.to_vec();
        let clean = u64::from(self.clean);
        let numbers = [self.boot, clean, self.commits, self.numbers, self.entered];
        seal(&mut bytes, &numbers);
        bytes.split_off(self.id.len())
    }
}

/// Rarely changed part of a job, without its chunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FixedColumns {
    pub(super) id: JobId,
    /// Position in the order.
    pub(super) entered: u64,
    pub(super) created_ms: u64,
    pub(super) total: u32,
    pub(super) kind: String,
    pub(super) head: Vec<u8>,
}

/// Returns the values covered by the checksum of a job's head, besides the head.
fn place_of_head(job: JobNumber, fixed: &FixedColumns, has_chunk: bool) -> [u64; 8] {
    let id = u128::from_be_bytes(fixed.id.0);
    let (high, low) = ((id >> 64) as u64, id as u64);
    let kind = crc32c::crc32c(fixed.kind.as_bytes());
    let (kind, total) = (u64::from(kind), u64::from(fixed.total));
    [job.0, high, low, fixed.entered, fixed.created_ms, total, kind, u64::from(has_chunk)]
}

/// Writes the row of an accepted job.
pub(super) fn put_job(
    connection: &dyn StoreConnection,
    accept: &JobAcceptance,
    entered: u64,
) -> Result<(), SqliteError> {
    let sql =
        "INSERT INTO job (number, state, status, id, entered, created_ms, total, kind, head, chunk)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)";
    let JobAcceptance { job, id, new, total, inline, .. } = accept;
    let mut fixed = FixedColumns {
        id: *id,
        entered,
        created_ms: new.created_ms,
        total: *total,
        kind: new.kind.clone(),
        head: Vec::new(),
    };
    let place = place_of_head(*job, &fixed, inline.is_some());
    fixed.head.reserve_exact(new.head.len() + keylane_storage::checksum::BYTES);
    fixed.head.extend(&new.head);
    seal(&mut fixed.head, &place);
    let status = new.status.encode(*job);
    let parameters = [
        job.0.into(),
        new.status.state.code().into(),
        status.as_slice().into(),
        (&fixed.id.0).into(),
        entered.into(),
        fixed.created_ms.into(),
        fixed.total.into(),
        (&fixed.kind).into(),
        (&fixed.head).into(),
        inline.as_ref().map(|chunk| chunk.sealed()).into(),
    ];
    connection.execute(sql, &parameters)?;
    Ok(())
}

/// Replaces the rarely changed part of a job.
pub(super) fn reform(
    connection: &dyn StoreConnection,
    job: JobNumber,
    change: impl FnOnce(&mut FixedColumns),
) -> Result<(), SqliteError> {
    rewrite(connection, job, change, |has, had| has.total != had)
}

/// Moves the chunk of a job out of its row, if it is there.
pub(super) fn move_chunk_out(
    connection: &dyn StoreConnection,
    job: JobNumber,
) -> Result<(), SqliteError> {
    rewrite(connection, job, |_| {}, |_, _| true)
}

/// Changes the rarely changed part of a job. `moves_out` gets the new one and the number of subtasks before, and returns
/// whether an inline chunk leaves the row.
fn rewrite(
    connection: &dyn StoreConnection,
    job: JobNumber,
    change: impl FnOnce(&mut FixedColumns),
    moves_out: impl FnOnce(&FixedColumns, u32) -> bool,
) -> Result<(), SqliteError> {
    let found = format!("SELECT {JOB} FROM job WHERE number = ?1");
    let found = connection.first(&found, &[job.0.into()], job_of)?;
    let Some((_, mut fixed, _, mut has_chunk)) = found else { return Ok(()) };
    let had = fixed.total;
    change(&mut fixed);
    if has_chunk && moves_out(&fixed, had) {
        put_out_chunk(connection, job)?;
        has_chunk = false;
    }
    let place = place_of_head(job, &fixed, has_chunk);
    seal(&mut fixed.head, &place);
    let sql = "UPDATE job SET entered = ?2, total = ?3, head = ?4 WHERE number = ?1";
    let parameters = [job.0.into(), fixed.entered.into(), fixed.total.into(), (&fixed.head).into()];
    connection.execute(sql, &parameters)?;
    Ok(())
}

/// Copies an inline chunk into a row of its own, and clears it.
fn put_out_chunk(connection: &dyn StoreConnection, job: JobNumber) -> Result<(), SqliteError> {
    let place = super::row_numbers::place(job, 0);
    // SQLite needs `WHERE` to tell `ON CONFLICT` from the condition of a join.
    let put = "INSERT INTO chunk (place, count, body)
               SELECT CAST(?2 AS BIGINT), total, chunk FROM job WHERE number = ?1
               ON CONFLICT (place) DO UPDATE SET count = excluded.count, body = excluded.body";
    connection.execute(put, &[job.0.into(), place.into()])?;
    connection.execute("UPDATE job SET chunk = NULL WHERE number = ?1", &[job.0.into()])?;
    Ok(())
}

/// Columns of a job, for [`job_of`].
pub(super) const JOB: &str =
    "number, state, status, id, entered, created_ms, total, kind, head, chunk IS NOT NULL";

/// Number, rarely changed part and status of a job, and whether its chunk is inline.
pub(super) type FoundJob = (JobNumber, FixedColumns, JobStatus, bool);

/// Decodes a row of the columns [`JOB`].
pub(super) fn job_of(row: &dyn StoredRow) -> Result<FoundJob, ReadError> {
    let job = number_of(row)?;
    let (fixed, has_chunk) = fixed_of(row)?;
    let read =
        || -> Result<_, ReadError> { Ok(JobStatus::decode(job, row.number(1)?, row.bytes(2)?)) };
    let status = read().map_err(|error| of_job(job, error))?;
    let status = status.ok_or(ReadError::Damaged(StoreDamage::Job { job }))?;
    Ok((job, fixed, status, has_chunk))
}

fn number_of(row: &dyn StoredRow) -> Result<JobNumber, ReadError> {
    Ok(JobNumber(row.unsigned(0)?))
}

/// Decodes the rarely changed part of a row of the columns [`JOB`], and whether its chunk is
/// inline, regardless of its status.
pub(super) fn fixed_of(row: &dyn StoredRow) -> Result<(FixedColumns, bool), ReadError> {
    fixed_with(row, None)
}

/// Decodes the rarely changed part of a row of the columns [`JOB`] as if its column `total` had
/// the value `total`, if that is given.
pub(super) fn fixed_with(
    row: &dyn StoredRow,
    total: Option<u32>,
) -> Result<(FixedColumns, bool), ReadError> {
    let job = number_of(row)?;
    let read = || -> Result<_, ReadError> {
        let fixed = FixedColumns {
            id: JobId(row.array(3)?),
            entered: row.unsigned(4)?,
            created_ms: row.unsigned(5)?,
            total: total.map_or_else(|| row.small(6), Ok)?,
            kind: row.text(7)?,
            head: Vec::new(),
        };
        let has_chunk = row.is_true(9)?;
        let place = place_of_head(job, &fixed, has_chunk);
        let head = unseal(row.bytes(8)?, &place);
        let head = head.ok_or(ReadError::Damaged(StoreDamage::Job { job }))?.to_vec();
        Ok((FixedColumns { head, ..fixed }, has_chunk))
    };
    read().map_err(|error| of_job(job, error))
}

/// Reports a value of a wrong type as damage of the job's row.
fn of_job(job: JobNumber, error: ReadError) -> ReadError {
    match error {
        ReadError::Damaged(_) => ReadError::Damaged(StoreDamage::Job { job }),
        other => other,
    }
}
