// A figure of a peer, as a line of JSON: `node bench.mjs PEER FIGURE COUNT`. The environment says where the
// servers are (REDIS_PORT, PG_PORT, KEYLANE_PORT), which `keylane` is used (BESIDE) and where files may be
// (DATA); TRY, as JSON, changes settings.
//
// Submitters and workers are processes of their own: see part.mjs. That all was done, once, is checked by number
// and sum.
import * as database from './postgres.mjs';
import { Measurer, now, Part } from './part.mjs';
import { Seen, telling } from './seen.mjs';

const [peerName, figure, countText, role] = process.argv.slice(2);
const count = Number(countText);
const peer = await import(`./${peerName}.mjs`);

/** Figures that use the settings of another one. */
const likes = { 'drain-jobs': 'drain', bytes: 'drain', 'bytes-jobs': 'drain' };
const own = {
  ...(peer.settings[figure] ?? peer.settings[likes[figure]]),
  ...JSON.parse(process.env.TRY ?? '{}'),
};

/** How many submits are on their way at a time, where there are several. */
const AT_A_TIME = 64;

/** How long a server runs before its idle time is measured: what it does at its start is over. */
const SETTLED_MS = 5000;

const sleep = (ms) => new Promise((done) => setTimeout(done, ms));
const sumBelow = (count) => (count * (count - 1)) / 2;

/** Whether the ends of this many jobs are on the disk. */
const areOver = async (open, count) => (open.ended ? (await open.ended()) === count : (await open.left()) === 0);

// --- the parts that are processes of their own

/** Calls it for each number from `from` below `to`, at most a given number at a time. */
async function each(from, to, atATime, call) {
  let next = from;
  const line = async () => {
    while (next < to) await call(next++);
  };
  await Promise.all(Array.from({ length: atATime }, line));
}

/** Submits a share of the jobs when it is told to: one at a time with the time of each, several, or in chunks. */
async function submitting() {
  const measurer = new Measurer();
  const settings = JSON.parse(process.env.PART);
  const { from, to, chunk, atATime, key } = settings;
  const payload = (n) => ({ key: key ?? `k${(n * 0x9e3779b9) % 100_000}`, n });
  const open = await peer.open(settings);
  // Connections are there before the clock runs.
  await Promise.all(Array.from({ length: settings.pool ?? 1 }, () => open.left()));
  await measurer.begin();
  const times = [];
  if (chunk) {
    for (let begin = from; begin < to; begin += chunk) {
      const length = Math.min(chunk, to - begin);
      await open.addMany(Array.from({ length }, (_, index) => payload(begin + index)));
    }
  } else {
    await each(from, to, atATime, async (n) => {
      const begin = now();
      await open.add(payload(n));
      if (settings.timed) times.push(now() - begin);
    });
  }
  measurer.send({ end: now(), times });
  await measurer.end();
  await open.close();
}

/** Works when it is told to, and says how much it has done, until it is told to end. */
async function working() {
  const measurer = new Measurer();
  await measurer.begin();
  const seen = new Seen();
  const stop = await peer.work(JSON.parse(process.env.PART), seen);
  const stopTelling = telling(seen, (totals) => measurer.send(totals));
  await measurer.end();
  stopTelling();
  await stop();
}

/** Submits one job after another, each when the handler of the one before has begun and its end is known. */
async function starting() {
  const measurer = new Measurer();
  const settings = JSON.parse(process.env.PART);
  const open = await peer.open(settings);
  const seen = new Seen();
  const stop = await peer.work(settings, seen);
  await measurer.begin();
  const times = [];
  for (let n = 0; n < count; n++) {
    const begin = now();
    await open.add({ key: `k${n}`, n });
    await seen.reaches(n + 1);
    times.push(seen.last - begin);
    while (!(await areOver(open, n + 1)));
  }
  measurer.send({ times });
  await measurer.end();
  await stop();
  await open.close();
}

// --- the process that measures

const part = (role, settings) => {
  const program = peer.program ?? [process.execPath, new URL(import.meta.url).pathname, peerName, figure, countText];
  return Part.start([...program, role], settings);
};

/** Submits all jobs; `settings` say how. */
async function submitAll(settings) {
  const processes = settings.processes ?? 1;
  const share = (index) => Math.floor((count * index) / processes);
  const children = await Promise.all(Array.from({ length: processes }, (_, index) => {
    const shared = { from: share(index), to: share(index + 1), atATime: AT_A_TIME / processes };
    return part('submit', { ...shared, ...settings });
  }));
  const begin = now();
  const answers = await Promise.all(children.map((child) => {
    child.send('go');
    return child.next();
  }));
  for (const child of children) await child.end();
  const end = Math.max(...answers.map(({ end }) => end));
  return { begin, end, times: answers.flatMap(({ times }) => times) };
}

/** Submits all jobs in the way that is for many jobs, to the handler of this figure. */
const submitInBulk = () => submitAll({ ...peer.settings.bulk, handler: own.handler, key: own.key, processes: 1 });

const workers = () => Promise.all(Array.from({ length: own.processes ?? 1 }, () => part('work', own)));

/** When the first began and when all was done, and nothing of it was left in the store. */
async function allDone(children) {
  const seen = new Map();
  await new Promise((done) => {
    for (const child of children) {
      child.on('message', (message) => {
        seen.set(child, message);
        const total = [...seen.values()].reduce((sum, { count }) => sum + count, 0);
        if (total >= count) done();
      });
      child.send('go');
    }
  });
  const open = await peer.open(own);
  while (!(await areOver(open, count))) await sleep(2);
  const end = now();
  await open.close();
  for (const child of children) await child.end();
  const total = new Seen();
  total.setTotals([...seen.values()]);
  if (total.count !== count || total.sum !== sumBelow(count)) {
    throw new Error(`${total.count} of ${count} were done, sum ${total.sum}`);
  }
  return { begin: total.first, end };
}

async function mustWait() {
  const open = await peer.open(own);
  const deadline = now() + 5000;
  let left;
  // Keylane counts anew only after a moment.
  while ((left = await open.left()) !== count) {
    if (now() > deadline) throw new Error(`${left} of ${count} jobs are there`);
    await sleep(10);
  }
  await open.close();
}

const rate = ({ begin, end }) => ({ per_second: count / ((end - begin) / 1000) });

function latency(times) {
  times.sort((a, b) => a - b);
  const at = (share) => times[Math.floor((times.length - 1) * share)] * 1000;
  return { p50_us: at(0.5), p99_us: at(0.99) };
}

/** Bytes of tables and write-ahead log for each job, while all wait and when all are done. */
async function bytesOfEach(submit) {
  const bytes = await database.Bytes.open();
  const before = await bytes.read();
  await submit();
  await mustWait();
  const waiting = await bytes.read();
  await allDone(await workers());
  const done = await bytes.read();
  await bytes.close();
  return {
    tables_waiting: (waiting.tables - before.tables) / count,
    tables_done: (done.tables - before.tables) / count,
    wal_submit: (waiting.wal - before.wal) / count,
    wal_done: (done.wal - waiting.wal) / count,
  };
}

const figures = {
  async one() {
    const { times } = await submitAll({ ...own, processes: 1, atATime: 1, timed: true });
    await mustWait();
    return latency(times);
  },
  async many() {
    const took = await submitAll(own);
    await mustWait();
    return rate(took);
  },
  bulk: () => figures.many(),
  async through() {
    const children = await workers();
    const done = allDone(children);
    const { begin } = await submitAll({ ...own, processes: 1 });
    return rate({ begin, end: (await done).end });
  },
  async drain() {
    await submitInBulk();
    await mustWait();
    return rate(await allDone(await workers()));
  },
  'drain-leased': () => figures.drain(),
  hot: () => figures.drain(),
  async 'drain-jobs'() {
    await submitAll({ ...peer.settings.many, handler: own.handler, processes: 1 });
    await mustWait();
    return rate(await allDone(await workers()));
  },
  async start() {
    const child = await part('start', { ...own, count });
    child.send('go');
    const { times } = await child.next();
    await child.end();
    return latency(times);
  },
  bytes: () => bytesOfEach(submitInBulk),
  'bytes-jobs': () => bytesOfEach(() => submitAll({ ...peer.settings.many, handler: own.handler, processes: 1 })),
  /** `count` is the number of seconds. */
  async idle() {
    const children = await workers();
    for (const child of children) child.send('go');
    await sleep(SETTLED_MS);
    const statements = await database.Statements.open();
    const before = await statements.read();
    const begin = now();
    await sleep(count * 1000);
    const after = await statements.read();
    const seconds = (now() - begin) / 1000;
    await statements.close();
    for (const child of children) await child.end();
    return { statements_per_second: (after - before) / seconds };
  },
  takeover: () => peer.takeover(own, count),
};

if (role === 'submit') await submitting();
else if (role === 'work') await working();
else if (role === 'start') await starting();
else {
  // Exits in order, which ends the processes of this one.
  for (const signal of ['SIGINT', 'SIGTERM']) process.once(signal, () => process.exit(1));
  if (!figures[figure]) throw new Error(`there is no figure ${figure}`);
  await peer.prepare(own, figure);
  const settings = JSON.stringify(own);
  const line = { peer: peerName, version: peer.version(), figure, count, settings, ...(await figures[figure]()) };
  await peer.finish?.();
  console.log(JSON.stringify(line));
}
process.exit(0);
