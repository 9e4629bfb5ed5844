//! File of the samples: a SQLite database beside the store.

use std::fs;
use std::path::Path;

use keylane_storage::files;
use keylane_storage::sqlite::{self, Checkpoint, Layout, LayoutError};
use rusqlite::{Connection, params};
use thiserror::Error;

use super::resolution::Resolution;
use super::sample::StoredSample;

/// Layout `KLH1`.
const LAYOUT: Layout = Layout {
    application: 0x4b4c_4831,
    tables: "
        CREATE TABLE sample (
            resolution INTEGER NOT NULL,
            row INTEGER NOT NULL,
            at_ms INTEGER NOT NULL,
            body TEXT NOT NULL,
            PRIMARY KEY (resolution, row)
        ) STRICT;
    ",
    migrations: &[],
};

/// Upper bound of the file, beyond what samples of the maximum size need.
const MAX_BYTES: u64 = 64 * 1024 * 1024;

/// Reason why the history cannot be opened.
#[derive(Debug, Error)]
pub(super) enum HistoryError {
    #[error(transparent)]
    Io(#[from] std::io::Error),
    #[error(transparent)]
    Sqlite(#[from] rusqlite::Error),
    #[error("it belongs to another program; remove it, or move it away")]
    Foreign,
    #[error("a later version has written it (layout {0}); use that version, or remove the file")]
    Later(i32),
}

/// Open file of the samples.
#[derive(Debug)]
pub(super) struct HistoryFile {
    connection: Connection,
}

impl HistoryFile {
    /// Opens the file, or creates it. A damaged one is replaced.
    pub(super) fn open(path: &Path) -> Result<Self, HistoryError> {
        match Self::try_open(path) {
            Err(HistoryError::Sqlite(error)) if sqlite::failure(&error).0 => {
                tracing::warn!(%error, "the history in {} is damaged; a new one begins", path.display());
                remove(path)?;
                Self::try_open(path)
            }
            opened => opened,
        }
    }

    fn try_open(path: &Path) -> Result<Self, HistoryError> {
        // Only the user of the service may read it.
        drop(files::open(path)?);
        let mut connection = sqlite::writer(path, Some(MAX_BYTES))?;
        // A power failure may cost the last minutes, and never the file.
        connection.pragma_update(None, "synchronous", "NORMAL")?;
        LAYOUT.prepare(&mut connection)?;
        match LAYOUT.examine(&connection)? {
            Ok(()) => {}
            Err(LayoutError::Later(version)) => return Err(HistoryError::Later(version)),
            Err(LayoutError::Foreign) => return Err(HistoryError::Foreign),
        }
        let text: String = connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
        if text != "ok" {
            let code = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_CORRUPT);
            return Err(rusqlite::Error::SqliteFailure(code, Some(text)).into());
        }
        Ok(HistoryFile { connection })
    }

    /// Writes samples of the finest resolution, and those of coarser ones that contain them.
    pub(super) fn write(&mut self, samples: &[StoredSample]) -> rusqlite::Result<()> {
        if samples.is_empty() {
            return Ok(());
        }
        let transaction = self.connection.transaction()?;
        let mut changed: Vec<u64> = Vec::new();
        for sample in samples {
            let at = sample.sample.at.0;
            let mut parts = read(&transaction, Resolution::FINEST, at, at + 1)?;
            parts.push(sample.clone());
            let joined = StoredSample::join_equal(&parts).expect("there is at least this one");
            put(&transaction, Resolution::FINEST, &joined)?;
            changed.push(at);
        }
        for pair in Resolution::ALL.windows(2) {
            let (finer, coarser) = (pair[0], pair[1]);
            changed.iter_mut().for_each(|at| *at = coarser.begin(*at));
            changed.dedup();
            for at in &changed {
                let parts = read(&transaction, finer, *at, at + coarser.interval_ms)?;
                if let Some(joined) = StoredSample::join(&parts, *at, coarser.has_slices) {
                    put(&transaction, coarser, &joined)?;
                }
            }
        }
        transaction.commit()?;
        sqlite::checkpoint(&self.connection, Checkpoint::Reset)?;
        Ok(())
    }

    /// Reads the samples of intervals that begin in a period, the earliest first.
    pub(super) fn read(
        &self,
        resolution: Resolution,
        from: u64,
        to: u64,
    ) -> rusqlite::Result<Vec<StoredSample>> {
        read(&self.connection, resolution, from, to)
    }
}

fn remove(path: &Path) -> std::io::Result<()> {
    for path in [path.to_owned(), files::beside(path, "-wal"), files::beside(path, "-shm")] {
        match fs::remove_file(path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

fn put(
    connection: &Connection,
    resolution: Resolution,
    sample: &StoredSample,
) -> rusqlite::Result<()> {
    let at = sample.sample.at.0;
    let body =
        serde_json::to_string(sample).expect("a sample has no map with other keys than text");
    let mut put = connection.prepare_cached(
        "INSERT OR REPLACE INTO sample (resolution, row, at_ms, body) VALUES (?1, ?2, ?3, ?4)",
    )?;
    let row = resolution.row(at).cast_signed();
    put.execute(params![resolution.number, row, at.cast_signed(), body])?;
    Ok(())
}

fn read(
    connection: &Connection,
    resolution: Resolution,
    from: u64,
    to: u64,
) -> rusqlite::Result<Vec<StoredSample>> {
    let mut find = connection.prepare_cached(
        "SELECT body FROM sample WHERE resolution = ?1 AND at_ms >= ?2 AND at_ms < ?3 ORDER BY at_ms",
    )?;
    let [from, to] = [from, to].map(|at| i64::try_from(at).unwrap_or(i64::MAX));
    let mut rows = find.query(params![resolution.number, from, to])?;
    let mut samples = Vec::new();
    while let Some(row) = rows.next()? {
        // A sample that cannot be read is a gap.
        samples.extend(serde_json::from_slice::<StoredSample>(row.get_ref(0)?.as_bytes()?).ok());
    }
    Ok(samples)
}
