/** A stream of a job's events goes on behind the last event after a broken connection. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { Client, NotFoundError } from "../../src/index.js";

type Told = [id: string, event: string, state?: string];

function stream(...events: Told[]): Response {
  const texts = events.map(([id, event, state]) => {
    const data = {
      id,
      event,
      at: "2026-01-31T08:00:00.000Z",
      ...(state === undefined ? {} : { job: { id: "j", state } }),
    };
    return `id: ${id}\nevent: ${event}\ndata: ${JSON.stringify(data)}\n\n`;
  });
  return new Response(`retry: 1\n: keylane\n\n${texts.join("")}`, { headers: { "content-type": "text/event-stream" } });
}

function connections(...list: Response[]): { client: Client; known: (string | null)[] } {
  const known: (string | null)[] = [];
  const fake = (_: unknown, init?: RequestInit): Promise<Response> => {
    known.push(new Headers(init?.headers).get("last-event-id"));
    const next = list.shift();
    assert.ok(next !== undefined, "more connections than expected");
    return Promise.resolve(next);
  };
  return { client: new Client({ url: "http://a", fetch: fake }), known };
}

async function idsOf(client: Client): Promise<string[]> {
  const seen: string[] = [];
  for await (const { id, event } of client.events("j")) seen.push(`${id} ${event}`);
  return seen;
}

test("the state at the begin of a further connection is left out, and missed events come in order", async () => {
  const { client, known } = connections(
    stream(["1-4", "job_changed", "running"], ["1-5", "subtask_failed"]),
    // The job has ended meanwhile. The events before its end are not lost.
    stream(["1-5", "job_ended", "failed"], ["1-6", "subtask_failed"], ["1-7", "job_ended", "failed"]),
  );
  assert.deepEqual(await idsOf(client), [
    "1-4 job_changed",
    "1-5 subtask_failed",
    "1-6 subtask_failed",
    "1-7 job_ended",
  ]);
  assert.deepEqual(known, [null, "1-5"]);
});

test("after a reset the state is told anew", async () => {
  const { client } = connections(
    stream(["1-4", "job_changed", "running"]),
    stream(["2-0", "reset"], ["2-0", "job_ended", "succeeded"]),
  );
  assert.deepEqual(await idsOf(client), ["1-4 job_changed", "2-0 reset", "2-0 job_ended"]);
});

test("a refusal ends the stream", async () => {
  const body = { status: 404, code: "unknown", detail: "there is no job `j`" };
  const { client } = connections(Response.json(body, { status: 404 }));
  await assert.rejects(idsOf(client), NotFoundError);
});
