// `keylane serve` as a peer, wherever its store is.
import { Connection, Connections } from './connection.mjs';
import { firstPort, newFolder, Server, version } from './server.mjs';
import { letServerWork, takeLeases } from './workers.mjs';

// `lease`: a remote worker, which ends and takes subtasks in batches, as the documentation advises where there is
// much to do. `worker`: a process that the server runs.
const batches = { handler: 'lease', connections: 4, max: 256, slots: 2048 };
const settings = {
  one: { handler: 'lease' },
  many: { handler: 'lease', pool: 64 },
  bulk: { handler: 'lease', chunk: 10_000_000 },
  through: { pool: 64, ...batches },
  drain: batches,
  'drain-leased': { handler: 'lease', connections: 64, max: 16, each: true },
  hot: { handler: 'worker', workers: 1, key: 'hot' },
  start: { handler: 'worker', workers: 1 },
  // Its defaults, and no worker.
  idle: { processes: 0 },
  takeover: { handler: 'lease', chunk: 10_000_000 },
};

const kinds = { lease: 'leased', worker: 'worked' };

/** What submits. */
async function open({ handler = 'lease', pool = 1 } = {}) {
  const connections = await Connections.open(firstPort, pool);
  const kind = kinds[handler];
  return {
    add: ({ key, n }) => connections.ask('POST', '/v1/jobs', JSON.stringify({ kind, key, payload: { n } })),
    // One job of many subtasks, all or nothing.
    addMany: (payloads) => {
      const lines = payloads.map(({ key, n }) => `${JSON.stringify({ key, payload: { n } })}\n`);
      return connections.ask('POST', '/v1/jobs', `{"kind":"${kind}"}\n${lines.join('')}`, 'application/x-ndjson');
    },
    left: async () => {
      const { waiting, ready, busy, backing_off: backingOff, failed_total: failed } =
        await connections.ask('GET', '/v1/summary');
      if (failed) throw new Error(`${failed} have failed`);
      return waiting + ready + busy + backingOff;
    },
    /** Those whose ends are on the disk. Unlike the summary, the metrics have the present number. */
    ended: async () => {
      const { body } = await connections.request('GET', '/metrics');
      const ended = (outcome) => Number(new RegExp(`^keylane_subtasks_total{outcome="${outcome}"} (.*)$`, 'm').exec(body)[1]);
      if (ended('failed')) throw new Error(`${ended('failed')} have failed`);
      return ended('succeeded');
    },
    close: () => connections.close(),
  };
}

/** What does the work. */
const work = (own, seen) => (own.handler === 'worker' ? letServerWork(seen) : takeLeases(own, seen));

/** Returns the peer whose store is at `place(folder)`. */
export function serverPeer(place) {
  let server;
  return {
    settings,
    version,
    open,
    work,
    async prepare({ slots, workers }, figure) {
      const folder = newFolder();
      const { prepare, store } = place(folder);
      await prepare(figure);
      if (figure === 'takeover') return;
      server = new Server({ store, folder, slots, workers });
      await server.answers(200);
      const connection = await Connection.open(firstPort);
      await connection.ask('POST', '/v1/kinds/worked/pause', '{}');
      connection.close();
    },
    finish: async () => server?.stop(),
  };
}
