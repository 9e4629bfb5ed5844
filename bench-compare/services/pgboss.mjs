// pg-boss on PostgreSQL.
import { PgBoss } from 'pg-boss';
import { connectionString, fresh } from './postgres.mjs';

const name = 'beside';
const quiet = { supervise: false, schedule: false };

export const packaged = 'pg-boss';

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
};

const start = async (pool, notify = false) => {
  const boss = new PgBoss({ connectionString, max: pool, useListenNotify: notify, ...quiet });
  boss.on('error', (error) => { throw error; });
  await boss.start();
  return boss;
};

export async function prepare({ notify = false }) {
  await fresh();
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
export async function work({ batchSize, localConcurrency, notify }, handle) {
  const boss = await start(localConcurrency + 2, notify);
  const options = { batchSize, localConcurrency, burstWhenBatchFull: true, pollingIntervalSeconds: 0.5 };
  await boss.work(name, options, async (jobs) => {
    for (const job of jobs) handle(job.data);
  });
  return () => boss.stop({ graceful: false });
}
