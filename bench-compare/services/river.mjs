// River on PostgreSQL. What submits and works is the Go program in the folder river.
import { execFileSync } from 'node:child_process';
import pg from 'pg';
import { connectionString, fresh } from './postgres.mjs';

const binary = new URL('./river/river', import.meta.url).pathname;
const run = (role) => execFileSync(binary, [role], { encoding: 'utf8' }).trim();

// As its documentation advises for speed, and fastest of the few others that were tried. Milliseconds.
const fast = { workers: 1000, fetchCooldown: 2, fetchPollInterval: 20 };
export const settings = {
  many: { pool: 16 },
  bulk: { chunk: 1000 },
  through: { pool: 16, ...fast },
  drain: { pool: 16, ...fast },
  hot: { ...fast, workers: 1, fetchCooldown: 1 },
  start: { ...fast, fetchCooldown: 1 },
  // Its defaults.
  idle: { workers: 100, fetchCooldown: 100, fetchPollInterval: 1000 },
};

export const program = [binary];
export const version = () => run('version');

export async function prepare(_, figure) {
  await fresh(figure);
  process.env.DATABASE = connectionString;
  run('migrate');
}

/** What the process that measures asks. */
export async function open() {
  const client = new pg.Client({ connectionString });
  await client.connect();
  return {
    left: async () => {
      const { rows } = await client.query(`
        select count(*) filter (where state <> 'completed')::int as left,
          count(*) filter (where state in ('retryable', 'discarded', 'cancelled'))::int as failed
        from river_job where kind = 'nothing'`);
      if (rows[0].failed) throw new Error(`${rows[0].failed} have failed`);
      return rows[0].left;
    },
    close: () => client.end(),
  };
}
