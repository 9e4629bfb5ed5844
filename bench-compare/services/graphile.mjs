// Graphile Worker on PostgreSQL.
import { Logger, makeWorkerUtils, run } from 'graphile-worker';
import pg from 'pg';
import { versionOf } from './packages.mjs';
import { connectionString, fresh } from './postgres.mjs';

const logger = new Logger(() => () => {});

export const version = () => versionOf('graphile-worker');

// As its documentation advises for speed, and fastest of the few others that were tried.
const batches = { localQueue: { size: 500 }, completeJobBatchDelay: 0 };
export const settings = {
  many: { processes: 1, pool: 16 },
  bulk: { processes: 1, chunk: 1000 },
  through: { processes: 1, pool: 16, concurrency: 24, ...batches },
  drain: { processes: 1, concurrency: 24, ...batches },
  // Jobs of a named queue would be in order, too, but each would wait for a poll: the worker asks for the next
  // one before the last one's end is written.
  hot: { processes: 1, concurrency: 1, ...batches },
  start: { concurrency: 1 },
  // Its defaults.
  idle: { concurrency: 1 },
};

export async function prepare(_, figure) {
  await fresh(figure);
  const utils = await makeWorkerUtils({ connectionString, logger });
  await utils.migrate();
  await utils.release();
}

/** What submits. */
export async function open({ pool = 1 } = {}) {
  const pgPool = new pg.Pool({ connectionString, max: pool });
  const fail = (error) => { throw error; };
  pgPool.on('error', fail);
  pgPool.on('connect', (client) => client.on('error', fail));
  const utils = await makeWorkerUtils({ pgPool, logger });
  return {
    add: (payload) => utils.addJob('nothing', payload),
    addMany: (payloads) =>
      utils.addJobs(payloads.map((payload) => ({ identifier: 'nothing', payload }))),
    left: async () => {
      const { rows } = await pgPool.query('select count(*)::int from graphile_worker._private_jobs');
      return rows[0].count;
    },
    close: async () => {
      await utils.release();
      await pgPool.end();
    },
  };
}

/** What does the work. */
export async function work({ concurrency, localQueue, completeJobBatchDelay }, seen) {
  const runner = await run({
    connectionString,
    logger,
    noHandleSignals: true,
    concurrency,
    maxPoolSize: concurrency + 2,
    preset: { worker: { localQueue, completeJobBatchDelay } },
    taskList: { nothing: async (payload) => seen.add(payload.n) },
  });
  return () => runner.stop();
}
