//! Connection to the tables of a store, and the rows that it reads.
//!
//! The statements are in the part of SQL that SQLite and PostgreSQL have in common, so that each is written once, with its
//! reasons, beside the code that needs it. Parameters are `?1`, `?2` and so on. Whole numbers are signed, with 64 bits.

use std::ops::ControlFlow;

use keylane_storage::sqlite::SqliteError;

use super::error::{ReadError, StoreDamage};

/// Connection of a reader or of the writer.
pub(super) trait StoreConnection {
    /// Calls `then` for each row that a statement finds, until it breaks or fails.
    ///
    /// # Errors
    /// If the statement or `then` fails.
    fn for_each_row(
        &self,
        sql: &str,
        parameters: &[Parameter<'_>],
        then: &mut RowVisitor<'_>,
    ) -> Result<(), ReadError>;

    /// Executes a statement that finds no rows. It may be executed later, but before the next one that finds rows and before the end of the
    /// transaction, which then gets its error.
    ///
    /// # Errors
    /// If the statement fails.
    fn execute(&self, sql: &str, parameters: &[Parameter<'_>]) -> Result<(), SqliteError>;

    /// Executes a statement at once. Returns the number of changed rows.
    ///
    /// # Errors
    /// If the statement fails.
    fn execute_counted(
        &self,
        sql: &str,
        parameters: &[Parameter<'_>],
    ) -> Result<usize, SqliteError>;

    /// Begins a snapshot: until its end, all statements see the same commits.
    ///
    /// # Errors
    /// If the database refuses.
    fn snapshot(&self) -> Result<Snapshot<'_>, ReadError>;

    /// Returns the highest number that an entry of the audit log has had, also if it is deleted; 0 if none was
    /// written. It need not include entries that are there.
    ///
    /// # Errors
    /// If the database cannot be read.
    fn highest_audit_number(&self) -> Result<i64, ReadError>;

    /// Keeps the number of the last entry of the audit log, for when it is deleted.
    ///
    /// # Errors
    /// If the database fails.
    fn keep_audit_number(&self, number: u64) -> Result<(), SqliteError>;

    /// Builds the index of the jobs' states again from the rows, if it may disagree with them.
    ///
    /// # Errors
    /// If the database fails.
    fn rebuild_state_index(&self) -> Result<(), SqliteError>;
}

/// Callback for the rows of a statement.
pub(super) type RowVisitor<'a> =
    dyn FnMut(&dyn StoredRow) -> Result<ControlFlow<()>, ReadError> + 'a;

/// Value for a parameter of a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Parameter<'a> {
    Null,
    Number(i64),
    Text(&'a str),
    Bytes(&'a [u8]),
}

/// Value in a column of a row. Text may be damaged, so it need not be UTF-8.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StoredValue<'a> {
    Null,
    Number(i64),
    Text(&'a [u8]),
    Bytes(&'a [u8]),
    /// A value of a type that no column of a store has.
    Other,
}

/// Row that a statement has found.
pub(super) trait StoredRow {
    /// Returns the value in a column, numbered from 0.
    ///
    /// # Errors
    /// If the row has no such column, or it cannot be read.
    fn value(&self, column: usize) -> Result<StoredValue<'_>, ReadError>;
}

/// Snapshot that ends when it is dropped.
pub(super) struct Snapshot<'a>(Option<Box<dyn FnOnce() + 'a>>);

impl<'a> Snapshot<'a> {
    /// Creates a snapshot that `end` ends.
    pub(super) fn until(end: impl FnOnce() + 'a) -> Self {
        Snapshot(Some(Box::new(end)))
    }
}

impl Drop for Snapshot<'_> {
    fn drop(&mut self) {
        if let Some(end) = self.0.take() {
            end();
        }
    }
}

impl dyn StoreConnection + '_ {
    /// Returns what `read` makes of the first row, if there is one.
    pub(super) fn first<T>(
        &self,
        sql: &str,
        parameters: &[Parameter<'_>],
        read: impl FnOnce(&dyn StoredRow) -> Result<T, ReadError>,
    ) -> Result<Option<T>, ReadError> {
        let (mut read, mut first) = (Some(read), None);
        self.for_each_row(sql, parameters, &mut |row| {
            if let Some(read) = read.take() {
                first = Some(read(row)?);
            }
            Ok(ControlFlow::Break(()))
        })?;
        Ok(first)
    }

    /// Returns what `read` makes of each row.
    pub(super) fn all<T>(
        &self,
        sql: &str,
        parameters: &[Parameter<'_>],
        mut read: impl FnMut(&dyn StoredRow) -> Result<T, ReadError>,
    ) -> Result<Vec<T>, ReadError> {
        let mut all = Vec::new();
        self.each(sql, parameters, |row| {
            all.push(read(row)?);
            Ok(())
        })?;
        Ok(all)
    }

    /// Calls `then` for each row.
    pub(super) fn each(
        &self,
        sql: &str,
        parameters: &[Parameter<'_>],
        mut then: impl FnMut(&dyn StoredRow) -> Result<(), ReadError>,
    ) -> Result<(), ReadError> {
        self.for_each_row(sql, parameters, &mut |row| {
            then(row)?;
            Ok(ControlFlow::Continue(()))
        })
    }

    /// Returns whether a statement finds a row.
    pub(super) fn finds(&self, sql: &str, parameters: &[Parameter<'_>]) -> Result<bool, ReadError> {
        Ok(self.first(sql, parameters, |_| Ok(()))?.is_some())
    }
}

impl<'r> dyn StoredRow + 'r {
    pub(super) fn number(&self, column: usize) -> Result<i64, ReadError> {
        match self.value(column)? {
            StoredValue::Number(number) => Ok(number),
            other => Err(of_another_type(column, other)),
        }
    }

    /// Returns a number that was stored as the signed one with the same bits.
    pub(super) fn unsigned(&self, column: usize) -> Result<u64, ReadError> {
        Ok(self.number(column)?.cast_unsigned())
    }

    pub(super) fn small(&self, column: usize) -> Result<u32, ReadError> {
        let number = self.number(column)?;
        u32::try_from(number).map_err(|_| {
            damaged(format!("column {column} has {number}, which is no number of 32 bits"))
        })
    }

    pub(super) fn is_true(&self, column: usize) -> Result<bool, ReadError> {
        Ok(self.number(column)? != 0)
    }

    /// Returns a number, or `None` for a null value.
    pub(super) fn optional_number(&self, column: usize) -> Result<Option<i64>, ReadError> {
        match self.value(column)? {
            StoredValue::Null => Ok(None),
            _ => self.number(column).map(Some),
        }
    }

    pub(super) fn bytes(&self, column: usize) -> Result<&[u8], ReadError> {
        match self.value(column)? {
            StoredValue::Bytes(bytes) => Ok(bytes),
            other => Err(of_another_type(column, other)),
        }
    }

    /// Returns bytes, or `None` for a null value.
    pub(super) fn optional_bytes(&self, column: usize) -> Result<Option<&[u8]>, ReadError> {
        match self.value(column)? {
            StoredValue::Null => Ok(None),
            StoredValue::Bytes(bytes) => Ok(Some(bytes)),
            other => Err(of_another_type(column, other)),
        }
    }

    pub(super) fn array<const LENGTH: usize>(
        &self,
        column: usize,
    ) -> Result<[u8; LENGTH], ReadError> {
        self.bytes(column)?
            .try_into()
            .map_err(|_| damaged(format!("column {column} does not have {LENGTH} bytes")))
    }

    pub(super) fn text(&self, column: usize) -> Result<String, ReadError> {
        match self.value(column)? {
            StoredValue::Text(text) | StoredValue::Bytes(text) => str::from_utf8(text)
                .map(str::to_owned)
                .map_err(|_| damaged(format!("column {column} has text that is not UTF-8"))),
            other => Err(of_another_type(column, other)),
        }
    }

    /// Returns text, with replacements where it is damaged. The row's checksum fails then anyway.
    pub(super) fn text_or_replaced(&self, column: usize) -> Result<String, ReadError> {
        match self.value(column)? {
            StoredValue::Text(text) | StoredValue::Bytes(text) => {
                Ok(String::from_utf8_lossy(text).into_owned())
            }
            other => Err(of_another_type(column, other)),
        }
    }
}

fn of_another_type(column: usize, value: StoredValue<'_>) -> ReadError {
    let found = match value {
        StoredValue::Null => "no value",
        StoredValue::Number(_) => "a number",
        StoredValue::Text(_) => "text",
        StoredValue::Bytes(_) => "bytes",
        StoredValue::Other => "a value of a foreign type",
    };
    damaged(format!("column {column} has {found}, which no store writes there"))
}

fn damaged(why: String) -> ReadError {
    ReadError::Damaged(StoreDamage::File { why })
}

impl From<i64> for Parameter<'_> {
    fn from(number: i64) -> Self {
        Parameter::Number(number)
    }
}

impl From<u64> for Parameter<'_> {
    fn from(number: u64) -> Self {
        Parameter::Number(number.cast_signed())
    }
}

impl From<u32> for Parameter<'_> {
    fn from(number: u32) -> Self {
        Parameter::Number(number.into())
    }
}

impl From<usize> for Parameter<'_> {
    fn from(number: usize) -> Self {
        Parameter::Number(number as i64)
    }
}

impl From<bool> for Parameter<'_> {
    fn from(is_so: bool) -> Self {
        Parameter::Number(is_so.into())
    }
}

impl<'a> From<&'a str> for Parameter<'a> {
    fn from(text: &'a str) -> Self {
        Parameter::Text(text)
    }
}

impl<'a> From<&'a String> for Parameter<'a> {
    fn from(text: &'a String) -> Self {
        Parameter::Text(text)
    }
}

impl<'a> From<&'a [u8]> for Parameter<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        Parameter::Bytes(bytes)
    }
}

impl<'a> From<&'a Vec<u8>> for Parameter<'a> {
    fn from(bytes: &'a Vec<u8>) -> Self {
        Parameter::Bytes(bytes)
    }
}

impl<'a, const LENGTH: usize> From<&'a [u8; LENGTH]> for Parameter<'a> {
    fn from(bytes: &'a [u8; LENGTH]) -> Self {
        Parameter::Bytes(bytes)
    }
}

impl<'a, T: Into<Parameter<'a>>> From<Option<T>> for Parameter<'a> {
    fn from(value: Option<T>) -> Self {
        value.map_or(Parameter::Null, Into::into)
    }
}

/// A read of the writer that fails breaks its transaction.
impl From<ReadError> for SqliteError {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Unavailable { .. } => SqliteError::Busy,
            error => SqliteError::Broken(error.to_string().into()),
        }
    }
}
