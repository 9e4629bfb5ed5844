//! Tables of a store in PostgreSQL, in the schema `keylane`, and their migrations.
//!
//! The columns are those of the SQLite file (`README.md` of the store), with two differences: each whole number is a `bigint`, and
//! everything else is `bytea`, texts too, because a text of the database cannot have a zero character and depends on its encoding.

use super::client::{DatabaseError, ServerHistory};
use super::connection::{PostgresConnection, failure};
use crate::store::connection::StoreConnection;

/// Number of the advisory lock under which tables are created and migrated: `KLS1`.
const LOCK: i64 = 0x4b4c_5331;

/// Migration to each version, from 1 on.
///
/// A migration adds, and leaves in place what the version before reads and writes: servers of both versions share the tables while
/// they are replaced one by one. What is no longer needed is removed by a later version. One that the version before cannot work with
/// sets `layout.readable_by` to its own number.
const MIGRATIONS: &[&str] = &[FIRST, NODES, INBOX, DRAIN, OWNERSHIP];

const FIRST: &str = "
    CREATE SCHEMA IF NOT EXISTS keylane;
    CREATE TABLE keylane.layout (
        one bigint PRIMARY KEY CHECK (one = 1),
        version bigint NOT NULL
    );
    INSERT INTO keylane.layout VALUES (1, 0);
    CREATE TABLE keylane.term (
        one bigint PRIMARY KEY CHECK (one = 1),
        epoch bigint NOT NULL,
        node bytea,
        writer bytea,
        history bytea
    );
    INSERT INTO keylane.term VALUES (1, 0, NULL, NULL, NULL);
    CREATE TABLE keylane.heartbeat (
        node bytea PRIMARY KEY,
        number bigint NOT NULL
    ) WITH (fillfactor = 20);
    CREATE TABLE keylane.meta (
        one bigint PRIMARY KEY CHECK (one = 1),
        id bytea NOT NULL,
        boot bigint NOT NULL,
        clean bigint NOT NULL,
        commits bigint NOT NULL,
        numbers bigint NOT NULL,
        entered bigint NOT NULL,
        seal bytea NOT NULL,
        unfinished bytea
    ) WITH (fillfactor = 20);
    CREATE TABLE keylane.job (
        number bigint PRIMARY KEY,
        state bigint NOT NULL,
        status bytea NOT NULL,
        id bytea NOT NULL,
        entered bigint NOT NULL,
        created_ms bigint NOT NULL,
        total bigint NOT NULL,
        kind bytea NOT NULL,
        head bytea NOT NULL,
        chunk bytea
    );
    CREATE INDEX job_by_state ON keylane.job (state, number) WHERE state <> 16;
    CREATE TABLE keylane.chunk (
        place bigint PRIMARY KEY,
        count bigint NOT NULL,
        body bytea NOT NULL
    );
    CREATE TABLE keylane.outcome (
        place bigint PRIMARY KEY,
        count bigint NOT NULL,
        numbers bytea NOT NULL,
        body bytea NOT NULL
    );
    CREATE TABLE keylane.log (
        place bigint NOT NULL,
        nth bigint NOT NULL,
        body bytea NOT NULL,
        PRIMARY KEY (place, nth)
    );
    CREATE TABLE keylane.started (
        number bigint PRIMARY KEY,
        body bytea NOT NULL
    );
    CREATE TABLE keylane.loose (job bigint PRIMARY KEY);
    CREATE TABLE keylane.key (
        name bytea PRIMARY KEY,
        state bigint NOT NULL,
        since_ms bigint NOT NULL,
        reason bytea NOT NULL,
        seal bytea NOT NULL
    );
    CREATE TABLE keylane.idempotency (
        scope bytea NOT NULL,
        key bytea NOT NULL,
        expires_ms bigint NOT NULL,
        body_hash bytea NOT NULL,
        id bytea NOT NULL,
        seal bytea NOT NULL,
        PRIMARY KEY (scope, key)
    );
    CREATE INDEX idempotency_by_end ON keylane.idempotency (expires_ms);
    CREATE TABLE keylane.alias (
        name bytea PRIMARY KEY,
        job bigint NOT NULL,
        id bytea NOT NULL,
        body_hash bytea NOT NULL,
        seal bytea NOT NULL
    );
    CREATE INDEX alias_by_job ON keylane.alias (job);
    CREATE TABLE keylane.schedule (
        name bytea PRIMARY KEY,
        version bigint NOT NULL,
        body bytea NOT NULL,
        seal bytea NOT NULL
    );
    CREATE TABLE keylane.setting (
        name bytea PRIMARY KEY,
        body bytea NOT NULL,
        seal bytea NOT NULL
    );
    CREATE TABLE keylane.audit (
        number bigint PRIMARY KEY,
        at_ms bigint NOT NULL,
        who bytea NOT NULL,
        what bytea NOT NULL,
        job bytea,
        body bytea NOT NULL,
        seal bytea NOT NULL
    );
    CREATE TABLE keylane.audit_number (
        one bigint PRIMARY KEY CHECK (one = 1),
        number bigint NOT NULL
    );
    CREATE FUNCTION keylane.check_writer(wanted bytea, expected bigint) RETURNS bigint
    LANGUAGE plpgsql SET search_path = keylane AS $check$
    BEGIN
        PERFORM 1 FROM term WHERE one = 1 AND writer = wanted FOR SHARE;
        IF NOT FOUND THEN
            RAISE EXCEPTION 'another node has taken the store over' USING ERRCODE = 'KL001';
        END IF;
        PERFORM 1 FROM meta WHERE one = 1 AND commits = expected;
        IF NOT FOUND THEN
            RAISE EXCEPTION 'the database does not have the last transaction of this node'
            USING ERRCODE = 'KL002';
        END IF;
        RETURN expected;
    END
    $check$;
";

const NODES: &str = "
    ALTER TABLE keylane.layout ADD COLUMN readable_by bigint NOT NULL DEFAULT 1;
    CREATE TABLE keylane.node (
        name bytea PRIMARY KEY,
        address bytea NOT NULL,
        certificate bytea,
        secret bytea NOT NULL,
        version bytea NOT NULL,
        seen_ms bigint NOT NULL
    ) WITH (fillfactor = 20);
";

const INBOX: &str = "
    CREATE TABLE keylane.inbox (
        id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        name bytea NOT NULL,
        request bytea NOT NULL
    );
    CREATE TABLE keylane.inbox_refused (
        id bigint PRIMARY KEY,
        name bytea NOT NULL,
        request bytea NOT NULL,
        why bytea NOT NULL,
        refused_ms bigint NOT NULL
    );
    CREATE FUNCTION keylane.submit_job(job json) RETURNS text
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = keylane, pg_temp AS $submit$
    DECLARE
        request bytea;
        name text := 'sql_' || replace(gen_random_uuid()::text, '-', '');
    BEGIN
        IF job IS NULL OR json_typeof(job) <> 'object' THEN
            RAISE EXCEPTION 'a job is a JSON object, such as {\"kind\": \"mail\", \"payload\": 1}'
            USING ERRCODE = 'invalid_parameter_value';
        END IF;
        IF json_typeof(job -> 'kind') IS DISTINCT FROM 'string' THEN
            RAISE EXCEPTION 'a job names its kind: {\"kind\": \"mail\"}'
            USING ERRCODE = 'invalid_parameter_value';
        END IF;
        request := convert_to(job::text, 'UTF8');
        IF length(request) > 1048576 THEN
            RAISE EXCEPTION 'a job that is submitted by SQL has at most 1048576 bytes, and this one has %', length(request)
            USING ERRCODE = 'program_limit_exceeded', HINT = 'Submit it over HTTP, or in parts.';
        END IF;
        INSERT INTO inbox (name, request) VALUES (convert_to(name, 'UTF8'), request);
        RETURN name;
    END
    $submit$;
    CREATE FUNCTION keylane.submit(
        kind text, payload json DEFAULT NULL, key text DEFAULT NULL, options json DEFAULT NULL
    ) RETURNS text
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = keylane, pg_temp AS $submit$
    DECLARE
        job text := '{\"kind\":' || coalesce(to_json(kind)::text, 'null');
    BEGIN
        IF options IS NOT NULL AND json_typeof(options) <> 'object' THEN
            RAISE EXCEPTION 'options are a JSON object, such as {\"attempts\": 3}'
            USING ERRCODE = 'invalid_parameter_value';
        END IF;
        IF options IS NULL OR options -> 'subtasks' IS NULL THEN
            job := job || ',\"payload\":' || coalesce(payload::text, 'null');
        END IF;
        IF key IS NOT NULL THEN
            job := job || ',\"key\":' || to_json(key)::text;
        END IF;
        job := job || coalesce((
            SELECT string_agg(',' || to_json(one.key)::text || ':' || one.value::text, '')
            FROM json_each(options) AS one
        ), '') || '}';
        RETURN submit_job(job::json);
    END
    $submit$;
    REVOKE ALL ON FUNCTION keylane.submit_job(json) FROM PUBLIC;
    REVOKE ALL ON FUNCTION keylane.submit(text, json, text, json) FROM PUBLIC;
";

const DRAIN: &str = "
    ALTER TABLE keylane.node ADD COLUMN drained bigint NOT NULL DEFAULT 0;
";

/// A heartbeat and a takeover lock the row of the owner's heartbeat first, so one of the two comes after the other and sees its effects: each
/// statement of a function has a snapshot of its own. An owner that connects again reads the number of the last transaction under the
/// lock of its row, so it is not that of a later owner.
const OWNERSHIP: &str = "
    CREATE FUNCTION keylane.beat(beating bytea, own_epoch bigint) RETURNS bigint
    LANGUAGE plpgsql SET search_path = keylane AS $beat$
    BEGIN
        INSERT INTO heartbeat (node, number) VALUES (beating, 1)
        ON CONFLICT (node) DO UPDATE SET number = heartbeat.number + 1;
        PERFORM 1 FROM term WHERE node = beating AND epoch = own_epoch;
        IF NOT FOUND THEN
            RAISE EXCEPTION 'another node has taken the store over' USING ERRCODE = 'KL001';
        END IF;
        RETURN own_epoch;
    END
    $beat$;
    CREATE FUNCTION keylane.take_over(
        taker bytea, new_writer bytea, seen_epoch bigint, seen_number bigint
    ) RETURNS bigint
    LANGUAGE plpgsql SET search_path = keylane AS $take$
    DECLARE
        found_number bigint;
    BEGIN
        SELECT number INTO found_number FROM heartbeat
        WHERE node = (SELECT node FROM term WHERE epoch = seen_epoch) FOR UPDATE;
        IF coalesce(found_number, 0) <> seen_number THEN
            RETURN 0;
        END IF;
        UPDATE term SET epoch = epoch + 1, node = taker, writer = new_writer WHERE epoch = seen_epoch;
        IF NOT FOUND THEN
            RETURN 0;
        END IF;
        DELETE FROM heartbeat WHERE node <> taker;
        INSERT INTO heartbeat (node, number) VALUES (taker, 1)
        ON CONFLICT (node) DO UPDATE SET number = heartbeat.number + 1;
        RETURN 1;
    END
    $take$;
    CREATE FUNCTION keylane.rename_writer(
        renaming bytea, own_epoch bigint, new_writer bytea
    ) RETURNS bigint
    LANGUAGE plpgsql SET search_path = keylane AS $rename$
    BEGIN
        UPDATE term SET writer = new_writer WHERE node = renaming AND epoch = own_epoch;
        IF NOT FOUND THEN
            RAISE EXCEPTION 'another node has taken the store over' USING ERRCODE = 'KL001';
        END IF;
        RETURN (SELECT commits FROM meta);
    END
    $rename$;
";

/// Step to a later version of the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Migration {
    /// Version of the tables afterwards.
    pub version: i64,
    /// Statements.
    pub sql: &'static str,
}

/// Error of the tables.
#[derive(Debug)]
pub(super) enum LayoutError {
    Database(DatabaseError),
    /// A later version of this program has created the tables, in this version.
    Later(i64),
}

impl From<DatabaseError> for LayoutError {
    fn from(error: DatabaseError) -> Self {
        LayoutError::Database(error)
    }
}

impl From<LayoutError> for DatabaseError {
    fn from(error: LayoutError) -> Self {
        match error {
            LayoutError::Database(error) => error,
            LayoutError::Later(version) => {
                let why = format!("its tables have version {version}, of a later keylane");
                DatabaseError::Other(why.into())
            }
        }
    }
}

/// Creates the tables, or migrates them to this version, on a server with this history. Returns the steps that were made.
///
/// # Errors
/// If the role may not do that, the tables are of a later version, or the database fails.
pub(super) fn prepare(
    connection: &PostgresConnection,
    history: &ServerHistory,
) -> Result<Vec<Migration>, LayoutError> {
    connection.run(&format!("BEGIN; SELECT pg_advisory_xact_lock({LOCK})"))?;
    let prepared = migrate(connection, history);
    let end = if prepared.is_ok() { "COMMIT" } else { "ROLLBACK" };
    let ended = connection.run(end);
    let done = prepared?;
    ended?;
    Ok(done)
}

fn migrate(
    connection: &PostgresConnection,
    history: &ServerHistory,
) -> Result<Vec<Migration>, LayoutError> {
    let steps = plan(connection)?;
    for Migration { version, sql } in &steps {
        connection.run(sql)?;
        connection.run(&format!("UPDATE keylane.layout SET version = {version}"))?;
    }
    if !steps.is_empty() {
        // From the beginning, because a promotion may lose the first takeover.
        let sql = "UPDATE keylane.term SET history = ?1 WHERE history IS NULL";
        connection.change(sql, &[history.to_string().as_str().into()])?;
    }
    Ok(steps)
}

/// Returns the steps that the tables lack.
///
/// # Errors
/// If the tables are of a later version, or the database fails.
pub(super) fn plan(connection: &PostgresConnection) -> Result<Vec<Migration>, LayoutError> {
    let last = MIGRATIONS.len() as i64;
    let version = number(connection, "SELECT version FROM keylane.layout")?;
    if version > last {
        return match number(connection, "SELECT readable_by FROM keylane.layout")? {
            needed if needed > last => Err(LayoutError::Later(version)),
            _ => Ok(Vec::new()),
        };
    }
    let steps = (1..).zip(MIGRATIONS).skip(version as usize);
    Ok(steps.map(|(version, sql)| Migration { version, sql }).collect())
}

/// Returns a number about the tables, 0 if there are none.
fn number(connection: &PostgresConnection, sql: &str) -> Result<i64, LayoutError> {
    let tables: &dyn StoreConnection = connection;
    let read = |sql: &str| {
        let number = tables.first(sql, &[], |row| row.number(0));
        number.map_err(|error| failure(connection, error))
    };
    let exists = "SELECT (to_regclass('keylane.layout') IS NOT NULL)";
    if read(exists)? != Some(1) {
        return Ok(0);
    }
    Ok(read(sql)?.unwrap_or(0))
}
