// pg-boss on PostgreSQL.
import { PgBoss } from 'pg-boss';
import { versionOf } from './packages.mjs';
import { connectionString, fresh } from './postgres.mjs';

const name = 'beside';
const quiet = { supervise: false, schedule: false };

export const version = () => versionOf('pg-boss');

// As its documentation advises for speed, and fastest of the few others that were tried.
const batches = { batchSize: 1000, localConcurrency: 1 };
export const settings = {
  many: { processes: 1, pool: 16 },
  bulk: { processes: 1, chunk: 1000 },
  through: { processes: 1, pool: 16, ...batches },
  drain: { processes: 1, ...batches },
  hot: { processes: 1, ...batches },
  // Without it a worker looks twice a second; with it submits are slower, for PostgreSQL commits those that
  // notify one by one.
  start: { notify: true, batchSize: 1, localConcurrency: 1 },
  // Its defaults.
  idle: { batchSize: 1, localConcurrency: 1, pollingIntervalSeconds: 2, supervise: true, schedule: true },
};

const start = async (pool, { notify = false, supervise, schedule } = {}) => {
  const own = supervise ? { supervise, schedule } : quiet;
  const boss = new PgBoss({ connectionString, max: pool, useListenNotify: notify, ...own });
  boss.on('error', (error) => { throw error; });
  await boss.start();
  return boss;
};

export async function prepare({ notify = false }, figure) {
  await fresh(figure);
  const boss = await start(2);
  await boss.createQueue(name, { notify });
  await boss.stop();
}

/** What submits. */
export async function open({ pool = 2 } = {}) {
  const boss = await start(pool);
  const left = `select count(*)::int from pgboss.job where name = $1 and state <> 'completed'`;
  return {
    add: (payload) => boss.send(name, payload),
    addMany: (payloads) => boss.insert(name, payloads.map((data) => ({ data }))),
    left: async () => (await boss.getDb().executeSql(left, [name])).rows[0].count,
    close: () => boss.stop({ graceful: false }),
  };
}

/** What does the work. A batch is completed at once. */
export async function work(own, seen) {
  const { batchSize, localConcurrency, pollingIntervalSeconds = 0.5 } = own;
  const boss = await start(localConcurrency + 2, own);
  const options = { batchSize, localConcurrency, burstWhenBatchFull: true, pollingIntervalSeconds };
  await boss.work(name, options, async (jobs) => {
    for (const job of jobs) seen.add(job.data.n);
  });
  return () => boss.stop({ graceful: false });
}
