// The parts that need no page.

import assert from "node:assert/strict";
import { mock, test } from "node:test";

import { jobsOf, pointsFromBars, sharesOf } from "../js/allocation/history.js";
import { ExactNumber, parseExact, printExact } from "../js/exact.js";
import { groupByError } from "../js/failed.js";
import { age, bytes, count, duration, newer, newestFirst, percent, plural, short } from "../js/format.js";
import { marks, moved, periodOf, queryOf, stepOf } from "../js/history/periods.js";
import { highest, jobSeries, rateSeries, roundUp, summarise, waitSeries } from "../js/history/series.js";
import { barAt, gapAt, rowsByKey, rowsBySlot, sharesKey, stepFrom } from "../js/lanes/rows.js";
import { KEPT_MS, Slices } from "../js/lanes/slices.js";
import { soon } from "../js/pace.js";
import { href, parseRoute } from "../js/route.js";
import { EventParser } from "../js/sse.js";
import { waitTree } from "../js/waits.js";
import { reasonWord, ruleWord, stateWord } from "../js/words.js";

test("a number keeps the digits that it was sent with", () => {
  const text = '{"id": 9007199254740993, "price": 1.10, "huge": 1e400, "plain": 12, "minus": -0}';
  const value = parseExact(text);
  assert.equal(value.plain, 12);
  assert.ok(value.id instanceof ExactNumber);
  assert.equal(
    printExact(value),
    '{\n  "id": 9007199254740993,\n  "price": 1.10,\n  "huge": 1e400,\n  "plain": 12,\n  "minus": -0\n}',
  );
});

test("JSON is read as the standard says, and invalid JSON is refused with its position", () => {
  const good = [
    '{"a":[1,2,{"b":null}],"c":"\\u00e4\\n\\"x"}',
    "[]",
    "{}",
    " [ true , false ] ",
    '"x"',
    "-12.5e3",
    '{"__proto__":1}',
  ];
  for (const text of good) assert.deepEqual(JSON.parse(printExact(parseExact(text))), JSON.parse(text), text);
  for (const text of ["", "{", "[1,]", "{'a':1}", "01", "[1] 2", "nul", '{"a" 1}', '"\u0001"', "{,}"])
    assert.throws(() => parseExact(text), SyntaxError, text);
  assert.throws(() => parseExact('{\n  "a": x}'), /line 2, column 8/);
});

test("an event is whole, however it was cut into pieces", () => {
  const text =
    ': hello\r\nretry: 300\r\n\r\nid: 7\r\nevent: summary\r\ndata: {"a":1,\r\ndata: "b":2}\r\n\r\nid: 8\ndata: x\n\n';
  const expected = [
    { id: "7", event: "summary", data: '{"a":1,\n"b":2}' },
    { id: "8", event: "message", data: "x" },
  ];
  for (let size = 1; size < text.length; size += 1) {
    const parser = new EventParser();
    const got = [];
    for (let at = 0; at < text.length; at += size) got.push(...parser.push(text.slice(at, at + size)));
    assert.deepEqual(got, expected, `pieces of ${size}`);
    assert.equal(parser.retryMs, 300);
  }
});

test("of the spaces before a value, one is not part of it", () => {
  assert.deepEqual(new EventParser().push("data:  x \n\n")[0].data, " x ");
});

test("an event that has not ended is not handed on", () => {
  const parser = new EventParser();
  assert.deepEqual(parser.push("id: 1\ndata: half"), []);
  assert.deepEqual(parser.push("\n"), []);
  assert.deepEqual(parser.push("\n"), [{ id: "1", event: "message", data: "half" }]);
});

test("numbers and times are said in few characters, and no claim is rounded to done", () => {
  assert.equal(count(1234567), "1\u202f234\u202f567");
  assert.deepEqual([950, 999.6, 1234, 34_200, 999_700, 5.62e9].map(short), ["950", "1k", "1.2k", "34k", "1M", "5.6G"]);
  assert.deepEqual([0, 0.0002, 0.05, 0.5, 0.9996, 1].map(percent), ["0%", "<0.1%", "5.0%", "50%", ">99.9%", "100%"]);
  assert.deepEqual([0, 340, 4200, 59_000, 61_000, 3_600_000, 93_600_000, 446_400_000].map(duration), [
    "0 ms",
    "340 ms",
    "4.2 s",
    "59 s",
    "1 min 1 s",
    "1 h",
    "1 d 2 h",
    "5 d 4 h",
  ]);
  assert.deepEqual([0, 1500, 61_000, 7_200_000, 2e8].map(age), ["now", "1 s", "1 min", "2 h", "2 d"]);
  assert.deepEqual([0, 1536, 41_943_040].map(bytes), ["0 B", "1.5 KiB", "40 MiB"]);
  assert.deepEqual([plural(1, "subtask"), plural(0, "subtask")], ["1 subtask", "0 subtasks"]);
});

test("jobs of one millisecond are in the order of their numbers, and an older answer does not count", () => {
  const job = (id, created_at, version) => ({ id, created_at, version });
  const jobs = [
    job("job_z0000000001", "t1"),
    job("job_a0000000003", "t1"),
    job("job_m0000000002", "t1"),
    job("job_a0000000004", "t0"),
  ];
  assert.deepEqual(
    jobs.sort(newestFirst).map(({ id }) => id.at(-1)),
    ["3", "2", "1", "4"],
  );
  const [old, young] = [job("a", "t", 1), job("a", "t", 2)];
  assert.deepEqual([newer(young, old), newer(old, young), newer(undefined, old)], [young, young, old]);
});

test("an address says where one is, with keys of any characters", () => {
  for (const key of ["a/b", "ä ?&=#%", "100%", "a%2Fb", ".."]) {
    const { path, query } = parseRoute(href(["keys", key], { q: key }));
    assert.deepEqual(path, ["keys", key]);
    assert.equal(query.get("q"), key);
  }
  assert.deepEqual(parseRoute("").path, []);
  assert.deepEqual(parseRoute("#/jobs?state=failed").query.get("state"), "failed");
  assert.deepEqual(parseRoute("#/keys/%zz").path, ["keys", "%zz"]);
  assert.equal(href(["jobs"], { state: "", kind: undefined }), "#/jobs");
});

test("a word of a later server is shown as it is", () => {
  assert.equal(stateWord("hibernating_now"), "Hibernating now");
  assert.equal(reasonWord("no_moon"), "No moon");
  assert.equal(ruleWord("toss"), "Toss");
});

const at = (ms) => new Date(1_000_000 + ms).toISOString();
const slice = (number, slot, begin, end, more = {}) => ({
  slot,
  job: "job_a",
  number,
  keys: [`k${number % 2}`],
  attempt: 1,
  begin: at(begin),
  ...(end === null ? {} : { end: at(end), outcome: "succeeded" }),
  rule: "least",
  ...more,
});
const timeline = (slices, dropped = 0) => ({ slices, next: 1, dropped });

test("a slice that comes twice is kept once, and one that ended no longer runs", () => {
  const slices = new Slices();
  slices.add(timeline([slice(1, 0, 0, 10), slice(2, 1, 0, null)]), 1_000_010);
  slices.add(timeline([slice(1, 0, 0, 10), slice(2, 1, 0, 20)]), 1_000_020);
  assert.deepEqual(
    slices.all().map(({ number, end }) => [number, end]),
    [
      [1, 1_000_010],
      [2, 1_000_020],
    ],
  );
  slices.add(timeline([slice(2, 1, 0, null)]), 1_000_030);
  assert.equal(slices.all().length, 2, "an older answer does not bring it back");
});

test("a first attempt after a retry of the job is another bar than the first one before", () => {
  const slices = new Slices();
  slices.add(timeline([slice(1, 0, 0, 10, { outcome: "failed" })]), 1_000_010);
  slices.add(timeline([slice(1, 0, 50, 60)]), 1_000_060);
  assert.equal(slices.all().length, 2);
});

test("old data is dropped, and is shown as unknown", () => {
  const slices = new Slices();
  slices.add(timeline([slice(1, 0, 0, 10), slice(2, 0, KEPT_MS, KEPT_MS + 5)], 3), 1_000_010);
  assert.equal(slices.knownFrom, 1_000_000);
  assert.equal(slices.dropped(0), 3);
  slices.add(timeline([]), 1_000_020 + KEPT_MS);
  assert.deepEqual(
    slices.all().map(({ number }) => number),
    [2],
  );
  assert.equal(slices.dropped(0), 0);
});

const bars = () => {
  const slices = new Slices();
  slices.add(
    timeline([
      slice(0, 0, 0, 100),
      slice(1, 1, 10, 60),
      slice(2, 0, 200, 300),
      slice(3, 1, 80, null),
      slice(4, 0, 310, 320, { job: "job_b", keys: [] }),
    ]),
    1_000_400,
  );
  return slices.all();
};

test("rows are all slots, or the keys of a job", () => {
  assert.deepEqual(
    rowsBySlot(bars(), 3).map(({ bars: row }) => row.map(({ number }) => number)),
    [[0, 2, 4], [1, 3], []],
  );
  assert.deepEqual(
    rowsByKey(bars(), "job_a")
      .map(({ label }) => label)
      .sort(),
    ["k0", "k1"],
  );
  assert.deepEqual(
    rowsByKey(bars(), "job_b").map(({ label }) => label),
    ["no key"],
  );
});

test("a bar of two keys is in the rows of both", () => {
  const slices = new Slices();
  slices.add(timeline([slice(1, 0, 0, 10, { keys: ["a", "b"] })]), 1_000_010);
  assert.deepEqual(
    rowsByKey(slices.all(), "job_a").map(({ label, bars: row }) => [label, row.length]),
    [
      ["a", 1],
      ["b", 1],
    ],
  );
});

test("a point finds the bar under it, the one beside it, or the gap", () => {
  const [row] = rowsBySlot(bars(), 1);
  const base = 1_000_000;
  const found = (ms, slack) => barAt(row.bars, base + ms, base + 400, slack)?.number;
  assert.deepEqual([found(50), found(250), found(150), found(150, 60)], [0, 2, undefined, 0]);
  assert.equal(found(190, 20), 2);
  assert.deepEqual(gapAt(row.bars, base + 150, base, base + 400), { begin: base + 100, end: base + 200 });
  assert.deepEqual(gapAt(row.bars, base + 350, base, base + 400), { begin: base + 320, end: base + 400 });
});

test("arrow keys go from bar to bar, and stay where there is none", () => {
  const rows = rowsBySlot(bars(), 2);
  const span = { from: 1_000_000, to: 1_000_400 };
  const walk = (...steps) => steps.reduce((focus, step) => stepFrom(rows, focus, step, span), null)?.bar.number;
  assert.equal(walk("left"), 4, "the newest of the first row is first");
  assert.equal(walk("left", "left"), 2);
  assert.equal(walk("left", "home"), 0);
  assert.equal(walk("left", "home", "left"), 0);
  assert.equal(walk("left", "home", "down"), 1);
  assert.equal(walk("left", "home", "down", "down"), 1);
  assert.equal(walk("left", "home", "down", "end", "up"), 2);
  assert.equal(stepFrom([], null, "left", span), null);
});

test("bars are lit together if they have a key in common", () => {
  const [a, b, c, d, none] = bars().sort((one, other) => one.number - other.number);
  assert.deepEqual(
    [sharesKey(a, c), sharesKey(b, d), sharesKey(a, b), sharesKey(none, none), sharesKey(none, a)],
    [true, true, false, true, false],
  );
});

test("a bar has the keys that its subtask shares, and names them", () => {
  const slices = new Slices();
  slices.add(timeline([slice(1, 0, 0, 10, { keys: ["a"], shared_keys: ["s"] }), slice(2, 1, 0, 10)]), 1_000_010);
  const [both, neither] = slices.all();
  assert.deepEqual([both.keys, both.shared, neither.shared], [["a", "s"], ["s"], []]);
});

test("the allocation before the page was opened is worked out from what ran", () => {
  const slices = new Slices();
  slices.add(
    timeline([slice(0, 0, 0, 2_500), slice(1, 1, 500, 1_500, { job: "job_b" }), slice(2, 1, 2_000, null)]),
    1_004_000,
  );
  const points = pointsFromBars(slices.all(), 0, 1_003_500);
  assert.deepEqual(
    points.map(({ at: time, slots }) => [time - 1_000_000, slots.get("job_a") ?? 0, slots.get("job_b") ?? 0]),
    [
      [0, 1, 0],
      [1_000, 1, 1],
      [2_000, 2, 0],
      [3_000, 1, 0],
    ],
  );
  assert.deepEqual(jobsOf(points), ["job_a", "job_b"]);
  assert.deepEqual(sharesOf(points), [
    { job: "job_a", now: 1, most: 2, mean: 1.25 },
    { job: "job_b", now: 0, most: 1, mean: 0.25 },
  ]);
  assert.deepEqual(pointsFromBars([], 0, 1_000), []);
});

/** @param {Partial<import("../js/types.js").HistorySample>} more */
const sample = (more) => ({
  at: "2026-01-31T12:00:00.000Z",
  slots: 4,
  busy: 0,
  succeeded: 0,
  failed: 0,
  cancelled: 0,
  retried: 0,
  waiting: { key: 0, stopped: 0, backoff: 0, scheduled: 0, entering: 0, paused: 0, kind: 0, tenant: 0, slot: 0 },
  ...more,
});

test("a chart of the past shows the busiest jobs, and all others as one", () => {
  const few = [
    sample({ busy: 3, jobs: [{ job: "a", kind: "k", name: "A", busy: 1 }, { job: "b", kind: "k", busy: 2 }] }),
    sample({ busy: 3.5, jobs: [{ job: "a", kind: "k", name: "A", busy: 3.45 }] }),
  ];
  assert.deepEqual(
    jobSeries(few).map(({ name, label, values }) => [name, label, values]),
    [
      ["a", "A", [1, 3.45]],
      ["b", "k b", [2, 0]],
    ],
    "a difference from rounding is no job",
  );
  const jobs = Array.from({ length: 8 }, (_, index) => ({ job: `j${index}`, kind: "k", busy: 8 - index }));
  const many = [sample({ busy: 40, jobs }), sample({ busy: 5, jobs: [{ job: "j8", kind: "k", busy: 1 }, { job: "j9", kind: "k", busy: 0.5 }] })];
  const series = jobSeries(many);
  assert.equal(series.length, 10);
  assert.deepEqual(series.at(-1)?.values, [4, 4]);
  assert.equal(highest(series), 40);
});

test("a chart of the past has rates, and only reasons that some subtask waited for", () => {
  const { waiting } = sample({});
  const samples = [
    sample({ succeeded: 50, failed: 5, waiting: { ...waiting, key: 3 } }),
    sample({ retried: 20, waiting: { ...waiting, key: 1 } }),
  ];
  const [succeeded, failed, , retried] = rateSeries(samples, 10_000);
  assert.deepEqual([succeeded.values, failed.values, retried.values], [[5, 0], [0.5, 0], [0, 2]]);
  const waits = waitSeries(samples);
  assert.deepEqual(waits.map(({ name }) => name), ["key"]);
  assert.deepEqual(summarise(waits), [{ name: "key", label: "For a key", mean: 2, most: 3 }]);
  assert.deepEqual([0, 0.3, 1, 7, 12, 201].map(roundUp), [1, 0.5, 1, 10, 20, 500]);
});

test("a period of the past moves by half its length, and not beyond now", () => {
  const now = Date.parse("2026-01-31T12:00:00Z");
  const earlier = moved({ span: "6h", to: null }, -1, now);
  assert.deepEqual(earlier, { span: "6h", to: now - 3 * 3_600_000 });
  assert.deepEqual(moved(earlier, 1, now), { span: "6h", to: null });
  assert.deepEqual(periodOf(new URLSearchParams(/** @type {any} */ (queryOf(earlier)))), earlier);
  assert.deepEqual(periodOf(new URLSearchParams("span=2y&to=never")), { span: "1h", to: null });
  assert.deepEqual(queryOf({ span: "1h", to: null }), { span: undefined, to: undefined });
  assert.deepEqual([3_600_000, 86_400_000, 30 * 86_400_000].map((span) => stepOf(span, 8) / 60_000), [10, 180, 7200]);
  assert.equal(marks(now - 3_600_000, now, 600_000).length, 7);
});

test("what waits for what is followed to the causes, and each job and subtask stands once", async () => {
  const behind = (/** @type {string} */ job, /** @type {number} */ number) => ({ reason: "key_order", text: "", job, number });
  const cause = { reason: "kind_paused", text: "the kind is paused" };
  /** @type {Record<string, any[]>} */
  const reasons = { a: [behind("b", 1), behind("c", 2)], "b/1": [behind("c", 2)], "c/2": [behind("b", 1), cause] };
  const asked = [];
  const read = async (/** @type {{job: string, number?: number}} */ of) => {
    const id = of.number === undefined ? of.job : `${of.job}/${of.number}`;
    asked.push(id);
    return { of, title: id, state: "waiting", reasons: reasons[id] };
  };
  const { root, isAll } = await waitTree({ job: "a" }, read);
  assert.deepEqual([asked, isAll], [["a", "b/1", "c/2"], true]);
  const [first, second] = root.edges;
  assert.deepEqual([first.to?.title, second.to?.title], ["b/1", "c/2"]);
  assert.deepEqual([first.to?.edges[0].isKnown, first.to?.edges[0].to], [true, undefined]);
  assert.deepEqual(second.to?.edges.map(({ isKnown, because }) => [isKnown, because.reason]), [
    [true, "key_order"],
    [undefined, "kind_paused"],
  ]);
  // A chain without end is cut, and says so.
  const endless = await waitTree({ job: "a" }, async (of) => ({
    of,
    title: of.job,
    state: "waiting",
    reasons: [behind(`${of.job}a`, 1)],
  }));
  assert.equal(endless.isAll, false);
});

test("failures that differ only in numbers are one reason", () => {
  const failed = (number, error) => ({
    number,
    keys: [],
    state: "failed",
    attempts: 1,
    payload: null,
    outcome: { number, outcome: "failed", attempt: 1, ended_at: at(0), error },
  });
  const groups = groupByError([
    failed(1, "row 7: no price"),
    failed(2, "timeout"),
    failed(3, "row 8: no price"),
    failed(4, undefined),
  ]);
  assert.deepEqual(
    groups.map(({ error, items }) => [error, items.map(({ number }) => number)]),
    [
      ["row …: no price", [1, 3]],
      ["timeout", [2]],
      ["no reason given", [4]],
    ],
  );
});

test("endless requests run at intervals, and never overlap", async () => {
  mock.timers.enable({ apis: ["setTimeout"] });
  /** @type {(() => void)[]} */
  const begun = [];
  const ask = soon(() => new Promise((resolve) => begun.push(() => resolve(null))), 100);
  const settle = () => new Promise((resolve) => setImmediate(resolve));
  const pass = async (/** @type {number} */ ms) => {
    for (let at = 0; at < ms; at += 10) {
      ask();
      mock.timers.tick(10);
      await settle();
    }
  };
  await pass(90);
  assert.equal(begun.length, 0);
  await pass(10);
  assert.equal(begun.length, 1, "although it was asked for all the time");
  await pass(500);
  assert.equal(begun.length, 1, "the first is not done");
  begun[0]();
  await settle();
  mock.timers.tick(100);
  await settle();
  assert.equal(begun.length, 2, "it was asked for meanwhile");
  begun[1]();
  await settle();
  mock.timers.tick(1_000);
  await settle();
  assert.equal(begun.length, 2, "no request since");
  mock.timers.reset();
});
