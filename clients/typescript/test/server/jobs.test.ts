/** Jobs are submitted, followed, read and controlled at a real server. */

import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import {
  Client,
  ConflictError,
  ForbiddenError,
  InvalidRequestError,
  NotFoundError,
  TimeoutError,
  UnauthorizedError,
  type Event,
  type SubmitSubtask,
} from "../../src/index.js";
import { startServer, type TestServer } from "../../src/testing/index.js";

let server: TestServer;
let client: Client;

before(async () => {
  server = await startServer({ kinds: { echo: { command: ["cat"] }, hold: { lease: "1m" } } });
  client = server.client();
});
after(() => server.close());

function* numbers(count: number): Generator<SubmitSubtask> {
  for (let number = 0; number < count; number += 1) yield { payload: number, key: `k${String(number % 100)}` };
}

test("a job is submitted, waited for, and its results are read in order", async () => {
  const job = await client.submit({
    kind: "echo",
    name: "first",
    labels: { team: "a" },
    subtasks: [
      { key: "a", payload: { n: 1 } },
      { key: "a", payload: { n: 2 } },
    ],
  });
  assert.deepEqual([job.name, job.labels, job.counts.total], ["first", { team: "a" }, 2]);
  assert.equal((await client.wait(job.id)).state, "succeeded");
  const results = await client.results<{ n: number }>(job.id).toArray();
  assert.deepEqual(
    results.map((outcome) => outcome.result?.n),
    [1, 2],
  );
  assert.equal((await client.subtask(job.id, 1)).state, "succeeded");
  assert.deepEqual(await client.logs(job.id, 1), []);
});

test("a submission can wait for the end", async () => {
  assert.equal((await client.submit({ kind: "echo", payload: 1 }, { waitMs: 30_000 })).state, "succeeded");
});

test("an id of the caller is the job's from then on", async () => {
  const job = await client.submit({ kind: "echo", payload: 1 }, { id: "order-4711" });
  assert.equal((await client.submit({ kind: "echo", payload: 1 }, { id: "order-4711" })).id, job.id);
  assert.equal((await client.job("order-4711")).client_id, "order-4711");
  await assert.rejects(client.submit({ kind: "echo", payload: 2 }, { id: "order-4711" }), ConflictError);
});

test("a hundred thousand subtasks are streamed, and their job is cancelled", async () => {
  const job = await client.submitMany({ kind: "hold", name: "many" }, () => numbers(100_000));
  assert.equal(job.counts.total, 100_000);
  const last = await client.subtask(job.id, 99_999);
  assert.deepEqual([last.payload, last.keys], [99_999, ["k99"]]);
  await client.cancel(job.id, { reason: "a test" });
  const ended = await client.wait(job.id);
  assert.deepEqual([ended.state, ended.counts.cancelled], ["cancelled", 100_000]);
});

test("a refusal in the middle of a stream names the line and its field", async () => {
  function* wrong(): Generator<SubmitSubtask> {
    yield* numbers(10_000);
    yield { paylod: 1 } as SubmitSubtask;
    yield* numbers(100_000);
  }
  await assert.rejects(client.submitMany({ kind: "hold" }, wrong), (error) => {
    assert.ok(error instanceof InvalidRequestError);
    assert.match(error.errors[0]?.pointer ?? "", /line 10002/);
    return true;
  });
});

test("an error of the source submits nothing, and is the caller's own", async () => {
  function* broken(): Generator<SubmitSubtask> {
    yield { payload: 1 };
    throw new RangeError("the file ends here");
  }
  await assert.rejects(client.submitMany({ kind: "hold", name: "broken" }, broken), RangeError);
  assert.deepEqual(await client.jobs({ q: "broken" }).toArray(), []);
});

test("jobs are listed over pages", async () => {
  for (let number = 0; number < 5; number += 1)
    await client.submit({ kind: "hold", payload: number, labels: { list: "pages" } });
  const found = await client.jobs({ label: "list:pages", limit: 2, state: ["queued", "running"] }).toArray();
  assert.equal(found.length, 5);
  assert.equal((await client.jobs({ label: "list:pages", limit: 2 }).toArray(3)).length, 3);
  for (const job of found) await client.cancel(job.id);
});

test("a batch is accepted as a whole, or each job by itself", async () => {
  const jobs = [{ kind: "echo", payload: 1 }, { kind: "none" }];
  await assert.rejects(client.submitBatch(jobs), InvalidRequestError);
  const items = await client.submitBatch(jobs, { atomic: false });
  assert.deepEqual(
    items.map((item) => item.status),
    [202, 422],
  );
});

test("a job is paused, resumed, changed, retried and deleted", async () => {
  const job = await client.submit({ kind: "hold", payload: 1 });
  assert.equal((await client.pause(job.id)).state, "paused");
  assert.ok((await client.explain(job.id)).because.some((because) => because.reason === "job_paused"));
  const resumed = await client.resume(job.id);
  assert.equal(resumed.state, "queued");
  assert.equal((await client.update(job.id, { name: "second" }, { version: resumed.version })).name, "second");
  await assert.rejects(client.update(job.id, { name: "third" }, { version: resumed.version }), ConflictError);
  await client.cancel(job.id, { mode: "kill" });
  await client.wait(job.id);
  assert.notEqual((await client.retry(job.id, { only: "unsuccessful" })).state, "cancelled");
  await client.cancel(job.id, { mode: "kill" });
  await client.wait(job.id);
  await client.delete(job.id);
  await assert.rejects(client.job(job.id));
});

test("a wait has a limit of the caller", async () => {
  const job = await client.submit({ kind: "hold", payload: 1 });
  await assert.rejects(client.wait(job.id, { timeoutMs: 50 }), TimeoutError);
  const stop = new AbortController();
  const waiting = client.wait(job.id, { signal: stop.signal });
  stop.abort(new Error("not needed any more"));
  await assert.rejects(waiting, /not needed any more/);
  await client.cancel(job.id);
});

test("the events of a job end with its end", async () => {
  const job = await client.submit({ kind: "hold", payload: 1 });
  const seen: Event[] = [];
  for await (const event of client.events(job.id)) {
    seen.push(event);
    if (seen.length === 1) await client.cancel(job.id, { mode: "kill" });
  }
  assert.deepEqual([seen[0]?.event, seen[0]?.job?.id], ["job_changed", job.id]);
  assert.deepEqual([seen.at(-1)?.event, seen.at(-1)?.job?.state], ["job_ended", "cancelled"]);
});

test("the events of all jobs go on until the caller leaves", async () => {
  const submitted: string[] = [];
  const seen: string[] = [];
  const known = new AbortController();
  const follow = (async () => {
    for await (const event of client.events(undefined, { signal: known.signal })) {
      if (event.event === "job_accepted" && event.job != null) seen.push(event.job.id);
      if (seen.length >= 2 && submitted.every((id) => seen.includes(id))) break;
    }
  })();
  // The first jobs may come before the stream is there.
  while (seen.length < 2) {
    submitted.splice(0, submitted.length, (await client.submit({ kind: "echo", payload: 1 }, { waitMs: 10_000 })).id);
  }
  await follow;
  assert.ok(seen.includes(submitted[0] ?? ""));
});

test("keys, kinds and schedules are read and controlled", async () => {
  const job = await client.submit({ kind: "hold", key: "a/../b", payload: 1 });
  assert.equal((await client.keys.pause("a/../b")).state, "paused");
  assert.deepEqual([(await client.keys.get("a/../b"))?.state, await client.keys.get("other")], ["paused", undefined]);
  assert.equal((await client.keys.resume("a/../b")).state, "open");
  assert.ok((await client.keys.list({ sort: "length" })).some((key) => key.key === "a/../b"));
  await client.cancel(job.id, { mode: "kill" });

  assert.deepEqual((await client.kinds.list()).map((kind) => kind.handler).sort(), ["command", "lease"]);
  assert.equal((await client.kinds.pause("hold", "a test")).pause_reason, "a test");
  assert.equal((await client.kinds.resume("hold")).paused, false);
  assert.deepEqual((await client.kinds.change("hold", { concurrency: 2 })).changed, ["concurrency"]);
  assert.deepEqual((await client.kinds.reset("hold")).changed, []);

  const schedule = await client.schedules.put("nightly", {
    cron: "@daily",
    overlap: "skip",
    job: { kind: "echo", payload: 1 },
  });
  assert.deepEqual([schedule.name, schedule.overlap, schedule.time_zone], ["nightly", "skip", "UTC"]);
  assert.equal((await client.schedules.pause("nightly")).paused, true);
  assert.equal((await client.schedules.resume("nightly")).paused, false);
  const run = await client.schedules.run("nightly");
  assert.equal((await client.wait(run.id)).labels["schedule"], "nightly");
  assert.deepEqual(
    (await client.schedules.list().toArray()).map((one) => one.name),
    ["nightly"],
  );
  await client.schedules.delete("nightly");
  await assert.rejects(client.schedules.get("nightly"), NotFoundError);
});

test("a token that is wrong or lacks a role is told", async () => {
  const { writeFile } = await import("node:fs/promises");
  const tokens = `${server.folder}/tokens.txt`;
  await writeFile(tokens, "ann read plain:token-of-ann-with-32-characters-\n", { mode: 0o600 });
  const guarded = await startServer({ kinds: { echo: { command: ["cat"] } }, settings: { tokens } });
  try {
    await assert.rejects(guarded.client({ token: "wrong" }).summary(), UnauthorizedError);
    const ann = guarded.client({ token: "token-of-ann-with-32-characters-" });
    assert.deepEqual(
      (await ann.kinds.list()).map((kind) => kind.name),
      ["echo"],
    );
    await assert.rejects(ann.submit({ kind: "echo", payload: 1 }), ForbiddenError);
  } finally {
    await guarded.close();
  }
});
