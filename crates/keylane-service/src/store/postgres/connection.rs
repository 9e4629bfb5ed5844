//! The tables of a store in PostgreSQL, as one connection sees them.
//!
//! A statement without rows is not sent at once, but together with the next one that is waited for: a transaction that reads
//! nothing is sent as a whole, and costs one round trip. The server executes statements in the order in which they are sent, so
//! each sees the effects of those before it. The first one that fails gives its error to the one that is waited for.
//!
//! A statement may take long, so no wait for it has a limit. But an answer can be lost on the way, without an end of the connection: then
//! the server executes nothing while the answer is missing, and that is asked on another connection. Such a connection is closed when it
//! is dropped, and what the server may still do for it can be ended.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::error::Error as StdError;
use std::fmt::Write as _;
use std::future::{Future, poll_fn};
use std::ops::ControlFlow;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::{BufMut, BytesMut};
use futures_util::TryStreamExt;
use futures_util::future::{MaybeDone, maybe_done};
use keylane_storage::sqlite::SqliteError;
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type};
use tokio_postgres::{Client, Row, Statement};

use super::client::{Clients, DatabaseError, ServerHistory, ServerProcess, Session, wait_for};
use crate::store::connection::{
    Parameter, RowVisitor, Snapshot, StoreConnection, StoredRow, StoredValue,
};
use crate::store::error::ReadError;

/// Time without an answer after which another connection is used to ask for its cause.
const PATIENCE: Duration = Duration::from_secs(3);

/// Rate below which no connection is expected to send.
const MIN_BYTES_PER_MS: u64 = 256;

/// Number of times in series for which the server has to say that it executes nothing: an answer may be on its way.
const MAX_IDLE_LOOKS: u32 = 2;

/// Connection to the database of a store.
pub(super) struct PostgresConnection {
    client: Client,
    task: AbortHandle,
    /// Notified of each notification of the server.
    notified: Arc<Notify>,
    process: ServerProcess,
    /// Source of another connection, to ask for the state of this one.
    clients: Arc<Clients>,
    /// Time without an answer after which that is asked.
    patience: Duration,
    /// Whether an answer was lost on the way, although the connection has not ended.
    is_broken: Cell<bool>,
    /// Prepared statements, by their texts.
    prepared: RefCell<HashMap<String, Statement>>,
    /// Statements that are sent with the next one that is waited for.
    unsent: RefCell<Vec<(Statement, Vec<OwnedParameter>)>>,
    /// First error of the connection since the last look, for the owner to act on.
    error: RefCell<Option<DatabaseError>>,
}

impl PostgresConnection {
    /// Opens a connection.
    ///
    /// # Errors
    /// If the server cannot be reached or refuses the connection, or is one that no store can be in.
    pub(super) fn open(clients: &Arc<Clients>) -> Result<(Self, ServerHistory), DatabaseError> {
        let Session { client, task, notified, process, history } = clients.connect()?;
        let connection = PostgresConnection {
            client,
            task,
            notified,
            process,
            clients: Arc::clone(clients),
            patience: PATIENCE,
            is_broken: Cell::new(false),
            prepared: RefCell::default(),
            unsent: RefCell::default(),
            error: RefCell::default(),
        };
        Ok((connection, history))
    }

    /// Sets the time without an answer after which the server is asked whether it executes anything.
    pub(super) fn with_patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Ends what the server may still do for an earlier connection, whose locks another statement would wait for.
    pub(super) fn end_session_of(&self, earlier: &PostgresConnection) -> Result<(), DatabaseError> {
        earlier.task.abort();
        let ServerProcess { number, since: Some(since) } = &earlier.process else { return Ok(()) };
        self.run(&format!(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
             WHERE pid = {number} AND backend_start = '{since}'"
        ))
    }

    /// Waits for a notification of the server, at most for `time`.
    pub(super) fn wait_for_notification(&self, time: Duration) {
        let _ = wait_for(pin!(self.notified.notified()), time);
    }

    /// Returns whether the connection has ended.
    pub(super) fn is_closed(&self) -> bool {
        self.is_broken.get() || self.client.is_closed()
    }

    /// Returns the first error since the last call.
    pub(super) fn take_error(&self) -> Option<DatabaseError> {
        self.error.take()
    }

    /// Adds a statement to those that are sent with the next one that is waited for.
    pub(super) fn add(&self, sql: &str, parameters: &[Parameter<'_>]) -> Result<(), DatabaseError> {
        let statement = self.note(self.prepare(sql))?;
        let parameters = parameters.iter().map(OwnedParameter::from).collect();
        self.unsent.borrow_mut().push((statement, parameters));
        Ok(())
    }

    /// Sends the statements that were added, and waits until all are executed.
    pub(super) fn send(&self) -> Result<(), DatabaseError> {
        let unsent = self.unsent.take();
        if unsent.is_empty() {
            return Ok(());
        }
        let bytes = unsent.iter().flat_map(|(_, all)| all).map(OwnedParameter::bytes).sum();
        let executed = unsent
            .iter()
            .map(|(statement, parameters)| {
                Box::pin(maybe_done(self.client.execute_raw(statement, parameters)))
            })
            .collect();
        self.note(self.answer_to(bytes, in_order(executed)).map(drop))
    }

    /// Forgets the statements that were added and not sent.
    pub(super) fn forget(&self) {
        self.unsent.borrow_mut().clear();
    }

    /// Executes a statement without parameters or rows.
    pub(super) fn run(&self, sql: &str) -> Result<(), DatabaseError> {
        self.send()?;
        self.note(self.answer(self.client.batch_execute(sql)))
    }

    /// Executes a statement. Returns the number of changed rows.
    pub(super) fn change(
        &self,
        sql: &str,
        parameters: &[Parameter<'_>],
    ) -> Result<u64, DatabaseError> {
        self.send()?;
        let statement = self.note(self.prepare(sql))?;
        let parameters: Vec<_> = parameters.iter().map(OwnedParameter::from).collect();
        let bytes = parameters.iter().map(OwnedParameter::bytes).sum();
        self.note(self.answer_to(bytes, self.client.execute_raw(&statement, parameters)))
    }

    fn prepare(&self, sql: &str) -> Result<Statement, DatabaseError> {
        if let Some(statement) = self.prepared.borrow().get(sql) {
            return Ok(statement.clone());
        }
        let statement = self.answer(self.client.prepare(&numbered(sql)))?;
        self.prepared.borrow_mut().insert(sql.to_owned(), statement.clone());
        Ok(statement)
    }

    /// Waits for an answer of the server.
    fn answer<T, E: Into<DatabaseError>>(
        &self,
        future: impl Future<Output = Result<T, E>>,
    ) -> Result<T, DatabaseError> {
        self.answer_to(0, future)
    }

    /// Waits for an answer of the server to statements with parameters of this size.
    fn answer_to<T, E: Into<DatabaseError>>(
        &self,
        bytes: usize,
        future: impl Future<Output = Result<T, E>>,
    ) -> Result<T, DatabaseError> {
        // It executes nothing while the parameters are on their way.
        let patience = self.patience + Duration::from_millis(bytes as u64 / MIN_BYTES_PER_MS);
        let mut future = pin!(future);
        let mut idle_looks = 0;
        while !self.is_broken.get() {
            if let Some(answer) = wait_for(future.as_mut(), patience) {
                return answer.map_err(Into::into);
            }
            // A server that cannot be asked either may still execute it.
            idle_looks = match self.clients.is_executing(&self.process) {
                Some(false) => idle_looks + 1,
                Some(true) | None => 0,
            };
            self.is_broken.set(idle_looks == MAX_IDLE_LOOKS);
        }
        let why = "an answer of the database was lost on the way";
        Err(DatabaseError::Unavailable(why.into()))
    }

    /// Keeps the first error for the owner of the connection.
    fn note<T>(&self, result: Result<T, DatabaseError>) -> Result<T, DatabaseError> {
        result.inspect_err(|error| {
            self.error.borrow_mut().get_or_insert_with(|| error.clone());
        })
    }

    fn visit(
        &self,
        sql: &str,
        parameters: &[Parameter<'_>],
        then: &mut RowVisitor<'_>,
    ) -> Result<(), ReadError> {
        self.send()?;
        let statement = self.note(self.prepare(sql))?;
        let parameters = parameters.iter().map(OwnedParameter::from);
        let rows = self.answer(self.client.query_raw(&statement, parameters));
        let mut rows = pin!(self.note(rows)?);
        while let Some(row) = self.note(self.answer(rows.try_next()))? {
            if then(&row)? == ControlFlow::Break(()) {
                break;
            }
        }
        Ok(())
    }
}

impl Drop for PostgresConnection {
    fn drop(&mut self) {
        if self.is_broken.get() {
            // Its task waits for the answer, and would keep the connection open.
            self.task.abort();
        }
    }
}

type Executed<F> = Pin<Box<MaybeDone<F>>>;

/// Waits for the results of statements, which are sent in this order. Returns the first error.
async fn in_order<F: Future<Output = Result<u64, tokio_postgres::Error>>>(
    mut statements: Vec<Executed<F>>,
) -> Result<u64, DatabaseError> {
    // A statement is sent when its future is polled for the first time.
    poll_fn(|context| {
        for statement in &mut statements {
            let _ = statement.as_mut().poll(context);
        }
        Poll::Ready(())
    })
    .await;
    let mut changed = 0;
    for mut statement in statements {
        statement.as_mut().await;
        changed = statement.as_mut().take_output().expect("it has been awaited")?;
    }
    Ok(changed)
}

impl StoreConnection for PostgresConnection {
    fn for_each_row(
        &self,
        sql: &str,
        parameters: &[Parameter<'_>],
        then: &mut RowVisitor<'_>,
    ) -> Result<(), ReadError> {
        self.visit(sql, parameters, then)
    }

    fn execute(&self, sql: &str, parameters: &[Parameter<'_>]) -> Result<(), SqliteError> {
        Ok(self.add(sql, parameters)?)
    }

    fn execute_counted(
        &self,
        sql: &str,
        parameters: &[Parameter<'_>],
    ) -> Result<usize, SqliteError> {
        Ok(self.change(sql, parameters)? as usize)
    }

    fn snapshot(&self) -> Result<Snapshot<'_>, ReadError> {
        self.run("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")?;
        // A connection that has ended has no transaction either.
        Ok(Snapshot::until(|| drop(self.run("ROLLBACK"))))
    }

    fn highest_audit_number(&self) -> Result<i64, ReadError> {
        let connection: &dyn StoreConnection = self;
        let kept = connection.first("SELECT number FROM audit_number", &[], |row| row.number(0))?;
        Ok(kept.unwrap_or(0))
    }

    fn keep_audit_number(&self, number: u64) -> Result<(), SqliteError> {
        let sql = "INSERT INTO audit_number (one, number) VALUES (1, ?1)
                   ON CONFLICT (one) DO UPDATE SET number = excluded.number";
        Ok(self.add(sql, &[number.into()])?)
    }

    fn rebuild_state_index(&self) -> Result<(), SqliteError> {
        // The server keeps its indexes in agreement with the rows.
        Ok(())
    }
}

/// Returns the cause of a failed read.
pub(super) fn failure(connection: &PostgresConnection, error: ReadError) -> DatabaseError {
    let cause = connection.take_error();
    cause.unwrap_or_else(|| DatabaseError::Other(error.to_string().into()))
}

/// Returns a statement with PostgreSQL's form of parameters.
fn numbered(sql: &str) -> String {
    let mut numbered = String::with_capacity(sql.len());
    let mut parts = sql.split('?');
    numbered.push_str(parts.next().unwrap_or_default());
    for part in parts {
        let _ = write!(numbered, "${part}");
    }
    numbered
}

impl StoredRow for Row {
    fn value(&self, column: usize) -> Result<StoredValue<'_>, ReadError> {
        self.try_get(column).map_err(|error| ReadError::from(DatabaseError::from(error)))
    }
}

impl<'a> FromSql<'a> for StoredValue<'a> {
    fn from_sql(kind: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn StdError + Sync + Send>> {
        Ok(match *kind {
            Type::INT8 => StoredValue::Number(i64::from_sql(kind, raw)?),
            Type::INT4 => StoredValue::Number(i32::from_sql(kind, raw)?.into()),
            Type::BOOL => StoredValue::Number(bool::from_sql(kind, raw)?.into()),
            Type::BYTEA => StoredValue::Bytes(raw),
            _ => StoredValue::Other,
        })
    }

    fn from_sql_null(_: &Type) -> Result<Self, Box<dyn StdError + Sync + Send>> {
        Ok(StoredValue::Null)
    }

    fn accepts(_: &Type) -> bool {
        true
    }
}

/// Value for a parameter of a statement that is sent later. Text is in columns of bytes, as is everything else that is not a number: the
/// database could not keep a zero character.
#[derive(Clone, Debug)]
enum OwnedParameter {
    Null,
    Number(i64),
    Bytes(Vec<u8>),
}

impl OwnedParameter {
    /// Returns the length of its bytes, beside which a number is small.
    fn bytes(&self) -> usize {
        match self {
            OwnedParameter::Bytes(bytes) => bytes.len(),
            OwnedParameter::Null | OwnedParameter::Number(_) => 0,
        }
    }
}

impl From<&Parameter<'_>> for OwnedParameter {
    fn from(parameter: &Parameter<'_>) -> Self {
        match parameter {
            Parameter::Null => OwnedParameter::Null,
            Parameter::Number(number) => OwnedParameter::Number(*number),
            Parameter::Text(text) => OwnedParameter::Bytes(text.as_bytes().to_vec()),
            Parameter::Bytes(bytes) => OwnedParameter::Bytes(bytes.to_vec()),
        }
    }
}

impl ToSql for OwnedParameter {
    fn to_sql(
        &self,
        kind: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn StdError + Sync + Send>> {
        match (self, kind) {
            (OwnedParameter::Null, _) => return Ok(IsNull::Yes),
            (OwnedParameter::Number(number), &Type::INT8) => out.put_i64(*number),
            (OwnedParameter::Number(number), &Type::INT4) => out.put_i32((*number).try_into()?),
            (OwnedParameter::Bytes(bytes), &Type::BYTEA) => out.put_slice(bytes),
            (value, kind) => return Err(format!("{value:?} is no value for {kind}").into()),
        }
        Ok(IsNull::No)
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    tokio_postgres::types::to_sql_checked!();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_numbered_as_the_server_wants_them() {
        let sql = "SELECT 1 FROM job WHERE number = ?1 AND state < ?12 LIMIT ?2";
        let wanted = "SELECT 1 FROM job WHERE number = $1 AND state < $12 LIMIT $2";
        assert_eq!(numbered(sql), wanted);
        assert_eq!(numbered("SELECT 1"), "SELECT 1");
    }
}
