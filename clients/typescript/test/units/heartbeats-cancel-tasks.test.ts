/** A heartbeat whose answer asks for it aborts the signal of the task; the outcome is reported all the same. */

import assert from "node:assert/strict";
import { once } from "node:events";
import { test } from "node:test";

import { Client, TaskCancelled, type Lease } from "../../src/index.js";

/** `fetch` of a server with one lease, whose heartbeats are answered in this way. */
function server(beat: object): { fetch: typeof fetch; ends: unknown[] } {
  const soon = (): string => new Date(Date.now() + 1000).toISOString();
  const lease: Lease = {
    id: "l1",
    job: "job_1",
    kind: "a",
    number: 0,
    keys: [],
    attempt: 1,
    fence: 7,
    payload: 1,
    expires_at: soon(),
  };
  const ends: unknown[] = [];
  let isLeased = false;
  const answer = (path: string, body: string, signal: AbortSignal | null | undefined): Promise<Response> | Response => {
    if (path === "/v1/leases/heartbeat") return Response.json({ items: [{ expires_at: soon(), ...beat }] });
    if (path === "/v1/leases/complete") {
      ends.push(...(JSON.parse(body) as { leases: unknown[] }).leases);
      return Response.json({ items: [{ status: 204 }], leases: [] });
    }
    if (!isLeased) {
      isLeased = true;
      return Response.json({ leases: [lease] });
    }
    return new Promise((_, reject) => {
      signal?.addEventListener("abort", () => {
        reject(new Error("aborted"));
      });
    });
  };
  const fake = async (input: unknown, init?: RequestInit): Promise<Response> =>
    answer(new URL(String(input)).pathname, typeof init?.body === "string" ? init.body : "", init?.signal);
  return { fetch: fake, ends };
}

async function run(beat: object): Promise<{ reason: unknown; ends: unknown[] }> {
  const { fetch, ends } = server(beat);
  const worker = new Client({ url: "http://a", fetch }).worker({ concurrency: 2 });
  const reason = new Promise((resolve) => {
    worker.kind("a", async (_task, signal) => {
      await once(signal, "abort");
      resolve(signal.reason);
      return "as far as it came";
    });
  });
  const running = worker.run();
  const aborted = await reason;
  await worker.stop();
  await running;
  return { reason: aborted instanceof TaskCancelled && aborted.reason, ends };
}

test("of a cancelled job the outcome counts", async () => {
  const { reason, ends } = await run({ status: 200, cancel: true });
  assert.equal(reason, "job-cancelled");
  assert.deepEqual(ends, [{ id: "l1", result: "as far as it came" }]);
});

test("of a lost lease the outcome is discarded", async () => {
  const { reason, ends } = await run({ status: 409, expires_at: undefined });
  assert.equal(reason, "lease-lost");
  assert.deepEqual(ends, []);
});
