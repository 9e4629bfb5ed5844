// The database of those that use PostgreSQL, and what the server counts of it.
import pg from 'pg';

const at = `postgres://postgres@127.0.0.1:${process.env.PG_PORT}`;
export const connectionString = `${at}/beside`;

async function connect(database) {
  const client = new pg.Client({ connectionString: `${at}/${database}` });
  await client.connect();
  return client;
}

/** Makes the database anew, and checks that what it acknowledges is on the disk. */
export async function fresh(figure) {
  const client = await connect('postgres');
  for (const setting of ['fsync', 'synchronous_commit', 'full_page_writes']) {
    const { rows } = await client.query(`show ${setting}`);
    if (rows[0][setting] !== 'on') throw new Error(`PostgreSQL has ${setting} ${rows[0][setting]}`);
  }
  await client.query('drop database if exists beside with (force)');
  await client.query('create database beside');
  // Counting costs a little, so it is on for this figure only.
  if (figure === 'idle') {
    await client.query('create extension if not exists pg_stat_statements');
    await client.query(`alter database beside set compute_query_id = 'on'`);
    await client.query(`alter database beside set pg_stat_statements.track = 'top'`);
  }
  await client.query('checkpoint');
  await client.end();
}

/** Statements that clients have sent to the database. `begin` and `commit` are statements, too. */
export class Statements {
  static async open() {
    const statements = new Statements();
    // From another database, so that it does not count itself.
    statements.client = await connect('postgres');
    return statements;
  }

  async read() {
    const { rows } = await this.client.query(`
      select coalesce(sum(calls), 0)::float8 as calls
      from pg_stat_statements join pg_database on pg_database.oid = dbid where datname = 'beside'`);
    return rows[0].calls;
  }

  close() {
    return this.client.end();
  }
}

/** Bytes of all tables with their indexes, and of the write-ahead log so far. */
export class Bytes {
  static async open() {
    const bytes = new Bytes();
    bytes.client = await connect('beside');
    return bytes;
  }

  async read() {
    const { rows } = await this.client.query(`
      select pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::float8 as wal,
        (select coalesce(sum(pg_total_relation_size(pg_class.oid)), 0)::float8
         from pg_class join pg_namespace on pg_namespace.oid = relnamespace
         where relkind in ('r', 'm') and nspname not like 'pg\\_%' and nspname <> 'information_schema') as tables`);
    return rows[0];
  }

  close() {
    return this.client.end();
  }
}
