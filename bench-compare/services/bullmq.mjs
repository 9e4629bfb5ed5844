// BullMQ on Redis that syncs its log before it answers.
import { Queue, Worker } from 'bullmq';
import { Redis } from 'ioredis';
import { versionOf } from './packages.mjs';

const connection = { host: '127.0.0.1', port: Number(process.env.REDIS_PORT) };
const name = 'beside';

export const version = () => versionOf('bullmq');

// As its documentation advises for speed, and fastest of the few others that were tried.
export const settings = {
  many: { processes: 1 },
  bulk: { processes: 1, chunk: 1000 },
  through: { processes: 1, concurrency: 64 },
  drain: { processes: 2, concurrency: 64 },
  hot: { processes: 1, concurrency: 1 },
  start: { concurrency: 1 },
};

export async function prepare() {
  const client = new Redis(connection);
  for (const [setting, wanted] of [['appendonly', 'yes'], ['appendfsync', 'always']]) {
    const [, is] = await client.config('GET', setting);
    if (is !== wanted) throw new Error(`Redis has ${setting} ${is}`);
  }
  await client.flushall();
  await client.quit();
}

/** What submits. */
export async function open() {
  const queue = new Queue(name, { connection, defaultJobOptions: { removeOnComplete: true } });
  await queue.waitUntilReady();
  return {
    add: (payload) => queue.add('nothing', payload),
    addMany: (payloads) => queue.addBulk(payloads.map((data) => ({ name: 'nothing', data }))),
    left: async () => {
      const counts = await queue.getJobCounts('wait', 'active', 'delayed', 'failed', 'prioritized');
      if (counts.failed) throw new Error(`${counts.failed} have failed`);
      return Object.values(counts).reduce((sum, count) => sum + count, 0);
    },
    close: () => queue.close(),
  };
}

/** What does the work. */
export async function work({ concurrency }, seen) {
  const worker = new Worker(name, async (job) => seen.add(job.data.n), { connection, concurrency });
  await worker.waitUntilReady();
  return () => worker.close();
}
