// The two kinds of workers: remote ones, which take leases over HTTP, and processes that the server runs.
import net from 'node:net';
import { createInterface } from 'node:readline';
import { Connection } from './connection.mjs';
import { firstPort, seenSocket } from './server.mjs';

/** How long a request for leases waits when there are none. */
const WAIT_MS = 100;

/** Takes leases and ends them, on some connections; returns a function that stops it. */
export async function takeLeases({ connections, max, each = false }, seen) {
  const state = { stopped: false };
  const open = await Promise.all(Array.from({ length: connections }, () => Connection.open(firstPort)));
  const lines = open.map((connection) => (each ? endEach : endTogether)(connection, max, seen, state));
  return async () => {
    state.stopped = true;
    await Promise.all(lines);
    for (const connection of open) connection.close();
  };
}

const claim = (max) => ({ kinds: ['leased'], max, wait_ms: WAIT_MS, worker: 'beside' });

/** Ends all leases that it got in one request, which also asks for the next. */
async function endTogether(connection, max, seen, state) {
  let ended = [];
  while (!state.stopped || ended.length !== 0) {
    const answer = ended.length === 0
      ? await connection.ask('POST', '/v1/leases', JSON.stringify(claim(max)))
      : await connection.ask('POST', '/v1/leases/complete', JSON.stringify({ leases: ended, claim: claim(max) }));
    const refused = answer.items?.find(({ status }) => status >= 300);
    if (refused) throw new Error(`an end was refused: ${JSON.stringify(refused)}`);
    ended = answer.leases.map(({ id }) => ({ id }));
    for (const { payload } of answer.leases) seen.add(payload.n);
  }
}

/** Ends each lease with a request. */
async function endEach(connection, max, seen, state) {
  while (!state.stopped) {
    const { leases } = await connection.ask('POST', '/v1/leases', JSON.stringify(claim(max)));
    for (const { id, payload } of leases) {
      seen.add(payload.n);
      await connection.ask('POST', `/v1/leases/${id}/complete`, '{}');
    }
  }
}

/** Lets the server run the subtasks of its own workers, and hears what they have seen. */
export async function letServerWork(seen) {
  const totals = new Map();
  const listener = net.createServer((socket) => {
    socket.on('error', () => {});
    createInterface({ input: socket }).on('line', (line) => {
      totals.set(socket, JSON.parse(line));
      seen.setTotals([...totals.values()]);
    });
  });
  await new Promise((listening) => listener.listen(seenSocket(), listening));
  const connection = await Connection.open(firstPort);
  await connection.ask('POST', '/v1/kinds/worked/resume', '{}');
  return async () => {
    connection.close();
    for (const socket of totals.keys()) socket.destroy();
    listener.close();
  };
}
