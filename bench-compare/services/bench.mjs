// A figure of a peer, as a line of JSON: `node bench.mjs PEER FIGURE COUNT`. The environment says where the
// servers are (REDIS_PORT, PG_PORT); TRY, as JSON, changes settings.
//
// Submitters and workers are processes of their own, made by this one, where there are several or one would be
// in the other's way. That all was done, once, is checked by number and sum.
import { fork } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';

const [peerName, figure, countText, role] = process.argv.slice(2);
const count = Number(countText);
const peer = await import(`./${peerName}.mjs`);
const own = { ...peer.settings[figure], ...JSON.parse(process.env.TRY ?? '{}') };

/** How many submits are on their way at a time, where there are several. */
const AT_A_TIME = 64;

/** Milliseconds, which all processes count alike. */
const now = () => performance.timeOrigin + performance.now();

const payload = (n) => ({ key: `k${(n * 0x9e3779b9) % 100_000}`, n });
const sumBelow = (count) => (count * (count - 1)) / 2;

/** Calls it for each number from `from` below `to`, at most a given number at a time. */
async function each(from, to, atATime, call) {
  let next = from;
  const line = async () => {
    while (next < to) await call(next++);
  };
  await Promise.all(Array.from({ length: atATime }, line));
}

// --- the parts that are processes of their own

/** Submits a share of the jobs, one at a time or in chunks, when it is told to. */
async function submitting() {
  const { from, to, chunk, atATime } = JSON.parse(process.env.PART);
  const open = await peer.open({ pool: own.pool });
  // Connections are there before the clock runs.
  await Promise.all(Array.from({ length: own.pool ?? 1 }, () => open.left()));
  process.send('ready');
  await once(process, 'message');
  if (chunk) {
    for (let begin = from; begin < to; begin += chunk) {
      const length = Math.min(chunk, to - begin);
      await open.addMany(Array.from({ length }, (_, index) => payload(begin + index)));
    }
  } else {
    await each(from, to, atATime, (n) => open.add(payload(n)));
  }
  process.send({ end: now() });
  await open.close();
}

/** Works when it is told to, and says how much it has done, until it is told to stop. */
async function working() {
  process.send('ready');
  await once(process, 'message');
  const seen = { first: null, count: 0, sum: 0 };
  let told = 0;
  const stop = await peer.work(own, ({ n }) => {
    seen.first ??= now();
    seen.count += 1;
    seen.sum += n;
  });
  const tell = setInterval(() => {
    if (told === seen.count) return;
    told = seen.count;
    process.send(seen);
  }, 2);
  await once(process, 'message');
  clearInterval(tell);
  await stop();
}

// --- the part that measures

async function part(role, settings = {}) {
  const env = { ...process.env, PART: JSON.stringify(settings) };
  const child = fork(new URL(import.meta.url), [peerName, figure, countText, role], { env });
  child.on('exit', (code) => {
    if (code) throw new Error(`a process of ${peerName} failed`);
  });
  await once(child, 'message');
  return child;
}

const submitters = (settings) => {
  const processes = settings.processes ?? 1;
  const share = (index) => Math.floor((count * index) / processes);
  const parts = Array.from({ length: processes }, (_, index) =>
    part('submit', { ...settings, from: share(index), to: share(index + 1), atATime: AT_A_TIME / processes }));
  return Promise.all(parts);
};

const finished = async (children) => {
  for (const child of children) {
    child.send('end');
    if (child.exitCode === null) await once(child, 'exit');
  }
};

async function submitAll(settings) {
  const children = await submitters(settings);
  const begin = now();
  const ends = children.map(async (child) => {
    const answer = once(child, 'message');
    child.send('go');
    return (await answer)[0].end;
  });
  const end = Math.max(...(await Promise.all(ends)));
  for (const child of children) if (child.exitCode === null) await once(child, 'exit');
  return { begin, end };
}

const workers = () => Promise.all(Array.from({ length: own.processes ?? 1 }, () => part('work')));

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
  const open = await peer.open();
  while ((await open.left()) !== 0) await new Promise((again) => setTimeout(again, 2));
  const end = now();
  await open.close();
  const all = [...seen.values()];
  const total = (name) => all.reduce((sum, one) => sum + one[name], 0);
  if (total('count') !== count || total('sum') !== sumBelow(count)) {
    throw new Error(`${total('count')} of ${count} were done, sum ${total('sum')}`);
  }
  await finished(children);
  return { begin: Math.min(...all.map(({ first }) => first)), end };
}

async function mustWait() {
  const open = await peer.open();
  const left = await open.left();
  if (left !== count) throw new Error(`${left} of ${count} jobs are there`);
  await open.close();
}

const rate = ({ begin, end }) => ({ per_second: count / ((end - begin) / 1000) });

function latency(times) {
  times.sort((a, b) => a - b);
  const at = (share) => times[Math.floor((times.length - 1) * share)] * 1000;
  return { p50_us: at(0.5), p99_us: at(0.99) };
}

const figures = {
  async one() {
    const open = await peer.open();
    const times = [];
    for (let n = 0; n < count; n++) {
      const begin = performance.now();
      await open.add(payload(n));
      times.push(performance.now() - begin);
    }
    await open.close();
    await mustWait();
    return latency(times);
  },
  async many() {
    const took = await submitAll(own);
    await mustWait();
    return rate(took);
  },
  async bulk() {
    const took = await submitAll(own);
    await mustWait();
    return rate(took);
  },
  async through() {
    const children = await workers();
    const done = allDone(children);
    const { begin } = await submitAll({ ...own, processes: 1 });
    return rate({ begin, end: (await done).end });
  },
  async drain() {
    await submitAll({ ...peer.settings.bulk, processes: 1 });
    await mustWait();
    return rate(await allDone(await workers()));
  },
  hot: () => figures.drain(),
  async start() {
    let started;
    const open = await peer.open();
    const stop = await peer.work(own, () => started(now()));
    const times = [];
    for (let n = 0; n < count; n++) {
      const start = new Promise((resolve) => { started = resolve; });
      const begin = now();
      await open.add(payload(n));
      times.push((await start) - begin);
      while ((await open.left()) !== 0);
    }
    await stop();
    await open.close();
    return latency(times);
  },
};

if (role === 'submit') await submitting();
else if (role === 'work') await working();
else {
  await peer.prepare(own);
  const manifest = new URL(`./node_modules/${peer.packaged}/package.json`, import.meta.url);
  const { version } = JSON.parse(readFileSync(manifest, 'utf8'));
  const settings = JSON.stringify(own);
  const line = { peer: peerName, version, figure, count, settings, ...(await figures[figure]()) };
  console.log(JSON.stringify(line));
}
process.exit(0);
