// What there is on the server when a test begins.

import { Engine, random } from "./engine.mjs";

/** As a kind is that no operator has changed. */
const OPEN = { running: 0, paused: false, changed: [] };

const KINDS = [
  { ...OPEN, name: "work", handler: "worker", attempts: 3, timeout_ms: 30_000, split: false, fan_in: false },
  {
    ...OPEN,
    name: "thumbnails",
    handler: "command",
    concurrency: 16,
    attempts: 3,
    timeout_ms: 60_000,
    split: true,
    fan_in: false,
  },
  { ...OPEN, name: "invoices", handler: "http", per_second: 50, attempts: 5, timeout_ms: 10_000, split: false, fan_in: true },
  { ...OPEN, name: "imports", handler: "lease", concurrency: 64, attempts: 2, split: false, fan_in: false },
];

/** Nothing was ever submitted. */
export function empty() {
  return withKinds(new Engine({ slots: 8 }));
}

/** Some jobs of each sort: running, waiting, paused, failed, stopped at a key, and over. */
export function few() {
  const engine = withKinds(new Engine({ slots: 8 }));
  const next = random(11);
  const pick = (list) => list[Math.floor(next() * list.length)];
  const customers = ["acme", "globex", "initech", "umbrella", "hooli", "stark", "wayne"].map(
    (name) => `customer-${name}`,
  );
  const many = (number, make) => Array.from({ length: number }, (_, index) => make(index));
  engine.submit({ kind: "work", name: "Nightly cleanup", subtasks: many(6, () => ({ payload: { ms: 20 } })) });
  engine.submit({
    kind: "invoices",
    name: "October invoices",
    labels: { team: "billing", month: "2026-10" },
    subtasks: many(900, (n) => ({
      key: pick(customers),
      payload: { invoice: 9007199254740993 + n * 2, ms: 420, fail_times: n % 37 === 5 ? 1 : 0, backoff_ms: 3_000 },
    })),
  });
  engine.submit({
    kind: "thumbnails",
    name: "Album 2211",
    labels: { team: "media" },
    subtasks: many(400, (n) => ({ key: `album-${n % 24}`, payload: { ms: 260 } })),
  });
  engine.submit({
    kind: "imports",
    name: "Catalogue import",
    labels: { team: "data" },
    on_fail: "stop_key",
    attempts: 1,
    subtasks: many(60, (n) => ({
      key: `supplier-${n % 6}`,
      payload: {
        file: `part-${String(n).padStart(3, "0")}.csv`,
        ms: 600,
        fail: n % 20 === 1,
        error: `row ${n * 17 + 3}: the price is not a number`,
      },
    })),
  });
  engine.submit({
    kind: "imports",
    name: "Address check",
    labels: { team: "data" },
    attempts: 1,
    subtasks: many(14, (n) => ({
      key: `region-${n % 5}`,
      payload: { ms: 150, fail: n % 4 === 2, error: `HTTP 502 from the address service, request ${8100 + n}` },
    })),
  });
  const paused = engine.submit({
    kind: "work",
    name: "Reindex search",
    labels: { team: "search" },
    subtasks: many(250, (n) => ({ key: `shard-${n % 12}`, payload: { ms: 300 } })),
  });
  engine.pause(paused.id);
  engine.submit({
    kind: "invoices",
    name: "November invoices",
    labels: { team: "billing", month: "2026-11" },
    delay_ms: 6 * 3_600_000,
    subtasks: many(80, (n) => ({ key: pick(customers), payload: { n } })),
  });
  engine.submit({
    kind: "thumbnails",
    name: "Album 2212",
    labels: { team: "media" },
    subtasks: many(160, (n) => ({ key: `album-${n % 9}`, payload: { ms: 340 } })),
  });
  return engine;
}

/** A hundred thousand subtasks of a few jobs on many slots. */
export function busy() {
  const engine = withKinds(new Engine({ slots: 64 }));
  const next = random(5);
  const names = ["Rebuild feeds", "Score ads", "Sync devices", "Ledger roll-up", "Mail digests", "Fraud sweep"];
  const sizes = [40_000, 24_000, 16_000, 10_000, 6_000, 4_000];
  for (const [at, name] of names.entries()) {
    const subtasks = Array.from({ length: sizes[at] }, (_, n) => {
      // A few keys are hot, most are not.
      const key =
        next() < 0.08
          ? `hot-${Math.floor(next() * 4)}`
          : `${["user", "ad", "device", "account", "user", "card"][at]}-${Math.floor(next() * 3_000)}`;
      return {
        key,
        payload: {
          ms: 60 + 400 * next() * next(),
          fail: n % 997 === 100,
          fail_times: n % 151 === 7 ? 1 : 0,
          backoff_ms: 1_000,
        },
      };
    });
    engine.submit({
      kind: ["thumbnails", "work", "imports", "invoices", "work", "imports"][at],
      name,
      subtasks,
      attempts: 2,
    });
  }
  return engine;
}

/** Jobs that do not change by themselves: for tests that count. */
export function still() {
  const engine = withKinds(new Engine({ slots: 4 }));
  const long = { ms: 3_600_000, steady: true };
  engine.submit({
    kind: "work",
    name: "Long",
    labels: { team: "a" },
    subtasks: Array.from({ length: 12 }, (_, n) => ({ key: `k${n % 3}`, payload: long })),
  });
  engine.submit({
    kind: "imports",
    name: "Held",
    labels: { team: "b" },
    subtasks: [
      { key: "k0", payload: long },
      { key: "k0", payload: { big: 1 } },
    ],
  });
  return engine;
}

export const SCENES = { empty, few, busy, still };

function withKinds(engine) {
  engine.kinds = KINDS.map((kind) => ({ ...kind }));
  return engine;
}
