// The database of those that use PostgreSQL.
import pg from 'pg';

const at = `postgres://postgres@127.0.0.1:${process.env.PG_PORT}`;
export const connectionString = `${at}/beside`;

/** Makes the database anew, and checks that what it acknowledges is on the disk. */
export async function fresh() {
  const client = new pg.Client({ connectionString: `${at}/postgres` });
  await client.connect();
  for (const setting of ['fsync', 'synchronous_commit', 'full_page_writes']) {
    const { rows } = await client.query(`show ${setting}`);
    if (rows[0][setting] !== 'on') throw new Error(`PostgreSQL has ${setting} ${rows[0][setting]}`);
  }
  await client.query('drop database if exists beside with (force)');
  await client.query('create database beside');
  await client.query('checkpoint');
  await client.end();
}
