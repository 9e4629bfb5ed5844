//! The tables of a store in a SQLite file.

use std::ops::ControlFlow;

use keylane_storage::sqlite::SqliteError;
use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, Row, ToSql, params_from_iter};

use super::connection::{Parameter, RowVisitor, Snapshot, StoreConnection, StoredRow, StoredValue};
use super::error::ReadError;

impl StoreConnection for Connection {
    fn for_each_row(
        &self,
        sql: &str,
        parameters: &[Parameter<'_>],
        then: &mut RowVisitor<'_>,
    ) -> Result<(), ReadError> {
        let mut statement = self.prepare_cached(sql)?;
        let mut rows = statement.query(params_from_iter(parameters))?;
        while let Some(row) = rows.next()? {
            if then(row)? == ControlFlow::Break(()) {
                break;
            }
        }
        Ok(())
    }

    fn execute(&self, sql: &str, parameters: &[Parameter<'_>]) -> Result<(), SqliteError> {
        self.execute_counted(sql, parameters).map(drop)
    }

    fn execute_counted(
        &self,
        sql: &str,
        parameters: &[Parameter<'_>],
    ) -> Result<usize, SqliteError> {
        Ok(self.prepare_cached(sql)?.execute(params_from_iter(parameters))?)
    }

    fn snapshot(&self) -> Result<Snapshot<'_>, ReadError> {
        let transaction = self.unchecked_transaction()?;
        Ok(Snapshot::until(move || drop(transaction)))
    }

    fn highest_audit_number(&self) -> Result<i64, ReadError> {
        // SQLite keeps the highest number of a table with AUTOINCREMENT.
        let mut kept =
            self.prepare_cached("SELECT seq FROM sqlite_sequence WHERE name = 'audit'")?;
        let mut rows = kept.query([])?;
        Ok(rows.next()?.map_or(Ok(0), |row| row.get(0))?)
    }

    fn keep_audit_number(&self, _number: u64) -> Result<(), SqliteError> {
        Ok(())
    }

    fn rebuild_state_index(&self) -> Result<(), SqliteError> {
        Ok(self.execute_batch("REINDEX job_by_state")?)
    }
}

impl StoredRow for Row<'_> {
    fn value(&self, column: usize) -> Result<StoredValue<'_>, ReadError> {
        Ok(match self.get_ref(column)? {
            ValueRef::Null => StoredValue::Null,
            ValueRef::Integer(number) => StoredValue::Number(number),
            ValueRef::Text(text) => StoredValue::Text(text),
            ValueRef::Blob(bytes) => StoredValue::Bytes(bytes),
            ValueRef::Real(_) => StoredValue::Other,
        })
    }
}

impl ToSql for Parameter<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self {
            Parameter::Null => ValueRef::Null,
            Parameter::Number(number) => ValueRef::Integer(*number),
            Parameter::Text(text) => ValueRef::Text(text.as_bytes()),
            Parameter::Bytes(bytes) => ValueRef::Blob(bytes),
        }))
    }
}
