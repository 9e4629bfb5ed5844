/** Workers at a real server: order, batches, heartbeats, cancellation, failures, stops and restarts. */

import assert from "node:assert/strict";
import { once } from "node:events";
import { after, before, test } from "node:test";

import {
  Client,
  InvalidRequestError,
  TaskCancelled,
  TaskFailure,
  type SubmitSubtask,
  type Task,
  type WorkerProblem,
} from "../../src/index.js";
import { startServer, type TestServer } from "../../src/testing/index.js";

let server: TestServer;
let client: Client;

before(async () => {
  const quick = { backoff: "10ms..10ms", attempts: 3 };
  server = await startServer({
    kinds: { slow: { lease: "10m", ...quick }, short: { lease: "1s", ...quick }, echo: { command: ["cat"] } },
  });
  client = server.client();
});
after(() => server.close());

/** Tasks that have begun and wait for the test. */
class Tasks {
  readonly #begun: Task[] = [];
  readonly #ends = new Map<string, (end: () => unknown) => void>();
  #wake: (() => void) | undefined;

  readonly handler = (task: Task): Promise<unknown> => {
    this.#begun.push(task);
    this.#wake?.();
    return new Promise((resolve, reject) => {
      this.#ends.set(task.id, (end) => {
        try {
          resolve(end());
        } catch (error) {
          reject(error instanceof Error ? error : new Error(String(error)));
        }
      });
    });
  };

  async next(): Promise<Task> {
    for (;;) {
      const task = this.#begun.shift();
      if (task !== undefined) return task;
      await new Promise<void>((resolve) => (this.#wake = resolve));
    }
  }

  get count(): number {
    return this.#begun.length;
  }

  end(task: Task, how: () => unknown = () => undefined): void {
    this.#ends.get(task.id)?.(how);
  }
}

async function eventually<T>(read: () => Promise<T | undefined | false>): Promise<T> {
  for (;;) {
    const value = await read();
    if (value !== undefined && value !== false) return value;
  }
}

async function aborted(signal: AbortSignal): Promise<void> {
  if (!signal.aborted) await once(signal, "abort");
}

async function leasesOf(name: string): Promise<number> {
  return (await client.workers().toArray()).find((worker) => worker.name === name)?.leases ?? 0;
}

test("subtasks of a key run in order, and others beside them", async () => {
  const order = new Map<string, number[]>();
  const running = new Set<string>();
  let most = 0;
  const worker = client.worker({ concurrency: 8, maxLeases: 32 }).kind<number, number>("slow", async (task) => {
    const key = task.keys[0] ?? "";
    assert.ok(!running.has(key));
    running.add(key);
    most = Math.max(most, running.size);
    await new Promise((resolve) => setImmediate(resolve));
    order.set(key, [...(order.get(key) ?? []), task.number]);
    running.delete(key);
    return task.payload * 2;
  });
  function* subtasks(): Generator<SubmitSubtask> {
    for (let number = 0; number < 500; number += 1) yield { payload: number, key: `k${String(number % 10)}` };
  }
  const job = await client.submitMany({ kind: "slow" }, subtasks);
  const run = worker.run();
  assert.equal((await client.wait(job.id)).state, "succeeded");
  await worker.stop();
  await run;
  assert.ok(most > 1 && most <= 8, String(most));
  for (const [key, list] of order) {
    assert.deepEqual(
      list,
      Array.from({ length: 50 }, (_, place) => Number(key.slice(1)) + place * 10),
    );
  }
  const results = await client.results<number>(job.id).toArray();
  assert.deepEqual(
    results.map((outcome) => outcome.result),
    Array.from({ length: 500 }, (_, number) => number * 2),
  );
});

test("heartbeats keep a long task, and its progress and log are seen", async () => {
  const tasks = new Tasks();
  const worker = client.worker({ name: "long" }).kind("short", tasks.handler);
  const run = worker.run();
  const job = await client.submit({ kind: "short", payload: 1 });
  const task = await tasks.next();
  const expiry = async (): Promise<string | undefined> =>
    (await client.workers().toArray()).find((one) => one.name === "long")?.running[0]?.expires_at;
  for (let extended = 0, last = await expiry(); extended < 3; extended += 1) {
    last = await eventually(async () => {
      const next = await expiry();
      return next !== last && next;
    });
  }
  for (const progress of [0.25, 0.75]) {
    task.progress(progress);
    await eventually(async () => (await client.subtask(job.id, 0)).progress === progress);
  }
  assert.throws(() => {
    task.progress(2);
  }, RangeError);
  task.log("half done");
  tasks.end(task);
  assert.equal((await client.wait(job.id)).state, "succeeded");
  const [log] = await client.logs(job.id, 0);
  assert.deepEqual([log?.attempt, log?.text], [1, "half done\n"]);
  await worker.stop();
  await run;
});

test("a killed job aborts the signal of its task, and the outcome is discarded", async () => {
  const tasks = new Tasks();
  const worker = client.worker({ name: "killed" }).kind("short", tasks.handler);
  const run = worker.run();
  const job = await client.submit({ kind: "short", payload: 1 });
  const task = await tasks.next();
  await client.cancel(job.id, { mode: "kill" });
  await aborted(task.signal);
  assert.ok(task.signal.reason instanceof TaskCancelled);
  assert.equal(task.signal.reason.reason, "lease-lost");
  tasks.end(task, () => "too late");
  assert.equal((await client.wait(job.id)).counts.cancelled, 1);
  await worker.stop();
  await run;
});

test("a running task goes on after a graceful cancellation, and its outcome counts", async () => {
  const tasks = new Tasks();
  const worker = client.worker().kind("short", tasks.handler);
  const run = worker.run();
  const job = await client.submit({ kind: "short", payload: 1 });
  const task = await tasks.next();
  assert.equal((await client.cancel(job.id)).state, "cancelling");
  tasks.end(task, () => "done");
  const ended = await client.wait(job.id);
  assert.deepEqual([ended.state, ended.counts.succeeded], ["cancelled", 1]);
  await worker.stop();
  await run;
});

test("failures are tried again as they say", async () => {
  const attempts: number[] = [];
  const worker = client.worker().kind<string>("slow", (task) => {
    attempts.push(task.attempt);
    if (task.payload === "passing" && task.attempt === 1) throw new Error("once");
    if (task.payload === "lasting") throw new TaskFailure("the file is empty", { retry: false });
    return 1n;
  });
  const run = worker.run();
  const end = async (payload: string): Promise<unknown> => {
    const job = await client.submit({ kind: "slow", payload });
    const ended = await client.wait(job.id);
    return [ended.state, ended.error, attempts.splice(0)];
  };
  const noJson = "the result cannot be written as JSON: TypeError: Do not know how to serialize a BigInt";
  assert.deepEqual(await end("lasting"), ["failed", "the file is empty", [1]]);
  assert.deepEqual(await end("passing"), ["failed", noJson, [1, 2]]);
  await worker.stop();
  await run;
});

test("a graceful stop returns what has not begun, and waits for what runs", async () => {
  const tasks = new Tasks();
  const worker = client.worker({ name: "stopped", concurrency: 1, maxLeases: 4 }).kind("slow", tasks.handler);
  const job = await client.submit({
    kind: "slow",
    subtasks: [{ payload: 0 }, { payload: 1 }, { payload: 2 }, { payload: 3 }],
  });
  const run = worker.run();
  const task = await tasks.next();
  await eventually(async () => (await leasesOf("stopped")) === 4);
  let isStopped = false;
  const stopping = worker.stop().then(() => (isStopped = true));
  // Their leases would last for ten minutes: another worker gets them at once.
  const other = client.worker({ name: "other" }).kind("slow", () => "other");
  const otherRun = other.run();
  await eventually(async () => (await client.job(job.id)).counts.succeeded === 3);
  assert.equal(isStopped, false);
  tasks.end(task, () => "first");
  await stopping;
  await run;
  await client.wait(job.id);
  const results = await client.results(job.id).toArray();
  assert.deepEqual(
    results.map((outcome) => [outcome.result, outcome.attempt]),
    [
      ["first", 1],
      ["other", 1],
      ["other", 1],
      ["other", 1],
    ],
  );
  assert.equal(tasks.count, 0);
  await other.stop();
  await otherRun;
});

test("a stop whose time is over interrupts its tasks, which others do again", async () => {
  const tasks = new Tasks();
  const worker = client.worker().kind("slow", async (task, signal) => {
    void tasks.handler(task);
    await aborted(signal);
    throw signal.reason as Error;
  });
  const run = worker.run();
  const job = await client.submit({ kind: "slow", payload: 1 });
  await tasks.next();
  await worker.stop({ timeoutMs: 1 });
  await run;
  const other = client.worker().kind("slow", (task) => task.attempt);
  const otherRun = other.run();
  assert.equal((await client.wait(job.id)).state, "succeeded");
  assert.deepEqual(
    (await client.results(job.id).toArray()).map((outcome) => outcome.result),
    [2],
  );
  await other.stop();
  await otherRun;
});

test("a worker whose kind or token the server refuses ends with the refusal", async () => {
  await assert.rejects(
    client
      .worker()
      .kind("echo", () => 1)
      .run(),
    InvalidRequestError,
  );
  assert.throws(() => client.worker().run(), /has no handler; set one with `kind`/);
  assert.throws(
    () => client.worker({ concurrency: 0 }),
    /`concurrency` is 0; it must be a whole number from 1 to 1000/,
  );
  assert.throws(
    () => client.worker({ concurrency: 8, maxLeases: 4 }),
    /`maxLeases` is 4, below `concurrency`, which is 8/,
  );
});

test("kills of the server lose nothing, and end nothing twice", async () => {
  const own = await startServer({ kinds: { short: { lease: "1s", backoff: "10ms..10ms" } } });
  try {
    const here = own.client();
    const problems: WorkerProblem[] = [];
    const begun = new Map<string, number>();
    let ended = 0;
    let wake: (() => void) | undefined;
    const worker = here
      .worker({ concurrency: 8, maxLeases: 16, onProblem: (problem) => problems.push(problem) })
      .kind<number>("short", (task) => {
        const attempt = `${String(task.number)}/${String(task.attempt)}`;
        begun.set(attempt, (begun.get(attempt) ?? 0) + 1);
        ended += 1;
        if (ended % 100 === 0) wake?.();
        return task.payload;
      });
    const run = worker.run();
    const job = await here.submitMany({ kind: "short" }, function* () {
      for (let number = 0; number < 300; number += 1) yield { payload: number, key: `k${String(number % 20)}` };
    });
    for (let kills = 0; kills < 2; kills += 1) {
      await new Promise<void>((resolve) => (wake = resolve));
      await own.kill();
      await own.start();
    }
    assert.equal((await here.wait(job.id)).state, "succeeded");
    await worker.stop();
    await run;
    const results = await here.results<number>(job.id).toArray();
    assert.deepEqual(
      results.map((outcome) => outcome.result),
      Array.from({ length: 300 }, (_, number) => number),
    );
    assert.deepEqual(new Set(begun.values()), new Set([1]));
    assert.ok(
      problems.every((problem) => problem.message.includes("no answer") || problem.message.includes("discarded")),
      JSON.stringify(problems),
    );
  } finally {
    await own.close();
  }
});
