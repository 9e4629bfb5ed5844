// The time from `kill -9` of the server that owns a store until another server has started a subtask.
import { now } from '../part.mjs';
import { answerIfAny, Connection } from './connection.mjs';
import { firstPort, newFolder, Server } from './server.mjs';

/** Subtasks that are done before the kill, and those that run during it: together at most as many as there are slots. */
const DONE = 32;
const RUNNING = 16;

const claim = (max) => JSON.stringify({ kinds: ['leased'], max, wait_ms: 1000, worker: 'beside' });

async function submit(connection, count) {
  const lines = Array.from({ length: count }, (_, n) => `{"key":"k${n}","payload":{"n":${n}}}\n`);
  await connection.ask('POST', '/v1/jobs', `{"kind":"leased"}\n${lines.join('')}`, 'application/x-ndjson');
}

/** Takes leases from a server, and ends them if `end`. Returns the numbers of their subtasks. */
async function takeLeases(connection, count, end) {
  const { leases } = await connection.ask('POST', '/v1/leases', claim(count));
  if (leases.length !== count) throw new Error(`${leases.length} of ${count} leases were given`);
  if (end) {
    const ended = JSON.stringify({ leases: leases.map(({ id }) => ({ id })) });
    await connection.ask('POST', '/v1/leases/complete', ended);
  }
  return leases.map(({ payload }) => payload.n);
}

/** Asks a server that waits for a lease until it gives one. */
async function firstLease(port) {
  for (;;) {
    const answer = await answerIfAny(port, 'POST', '/v1/leases', claim(1));
    if (answer?.status === 200) {
      const [lease] = JSON.parse(answer.body).leases;
      if (lease) return lease.payload.n;
    } else if (answer && answer.status !== 503) {
      throw new Error(`POST /v1/leases: ${answer.status} ${answer.body}`);
    }
    await new Promise((again) => setTimeout(again, 10));
  }
}

/** Returns the measurement for servers that share the store at this address. */
export const takeoverBy = (store) => async (_, count) => {
  const owner = new Server({ store, folder: newFolder() });
  await owner.answers(200);
  const other = new Server({ port: firstPort + 1, store, folder: newFolder() });
  await other.answers(503);

  // `count` are unfinished when the owner is killed.
  const connection = await Connection.open(owner.port);
  await submit(connection, count + DONE);
  const taken = await takeLeases(connection, DONE, true);
  taken.push(...await takeLeases(connection, RUNNING, false));

  const begin = now();
  await owner.kill();
  const first = await firstLease(other.port);
  const took = now() - begin;

  if (taken.includes(first)) throw new Error(`subtask ${first} was started again while its lease was valid`);
  const after = await Connection.open(other.port);
  const { waiting, ready, busy } = await after.ask('GET', '/v1/summary');
  if (waiting + ready + busy !== count) throw new Error(`${waiting + ready + busy} of ${count} subtasks are unfinished`);
  await other.stop();
  return { takeover_ms: took };
};
