//! Unfinished jobs of a SQLite file according to the rows themselves, and not to the index.
//!
//! The column that decides whether a job is in the index has no checksum, and the index has none either. So the store counts its
//! unfinished jobs; if the index has another number of them, the rows decide.

use rusqlite::Connection;

use super::error::ReadError;
use super::job_status::FIRST_FINAL;
use super::read;
use crate::ids::JobNumber;

/// Unfinished jobs according to the rows themselves, and not to the index.
#[derive(Debug, Default)]
pub(super) struct UnfinishedCensus {
    /// Order positions and numbers. A damaged row that claims that its job has ended counts as
    /// unfinished.
    pub(super) unfinished: Vec<(u64, JobNumber)>,
    /// Jobs that are unfinished by their rows and missing in the index.
    pub(super) not_in_index: Vec<JobNumber>,
}

/// Reads the rows of all jobs in a file.
pub(super) fn take(connection: &Connection) -> Result<UnfinishedCensus, ReadError> {
    let mut all =
        connection.prepare("SELECT number, state, status, entered FROM job NOT INDEXED")?;
    let mut listed = connection.prepare(
        "SELECT EXISTS (SELECT 1 FROM job INDEXED BY job_by_state WHERE state = ?2 AND state <> 16 AND number = ?1)",
    )?;
    let mut rows = all.query([])?;
    let mut census = UnfinishedCensus::default();
    while let Some(row) = rows.next()? {
        if read::is_validly_over(row)? {
            continue;
        }
        let job = JobNumber(row.get::<_, i64>(0)?.cast_unsigned());
        let entered = row.get::<_, i64>(3).map_or(0, i64::cast_unsigned);
        census.unfinished.push((entered, job));
        let state: Option<i64> = row.get(1).ok();
        if let Some(state) = state.filter(|state| *state < FIRST_FINAL)
            && !listed.query_row([job.0.cast_signed(), state], |row| row.get::<_, bool>(0))?
        {
            census.not_in_index.push(job);
        }
    }
    census.unfinished.sort_unstable();
    Ok(census)
}
