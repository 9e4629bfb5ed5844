/** A request is repeated while its failure passes, at the next server if there is one, and never after a refusal. */

import assert from "node:assert/strict";
import { test } from "node:test";

import {
  ApiError,
  Client,
  ForbiddenError,
  InvalidRequestError,
  KeylaneError,
  OverloadedError,
  UnreachableError,
  type RetryNotice,
} from "../../src/index.js";

type Reply = Response | Error;

interface Sent {
  readonly url: string;
  readonly headers: Headers;
  readonly body: string | undefined;
}

/** `fetch` that gives these replies one after another. */
function replies(...list: Reply[]): { fetch: typeof fetch; sent: Sent[] } {
  const sent: Sent[] = [];
  const fake = async (input: unknown, init?: RequestInit): Promise<Response> => {
    const body =
      init?.body instanceof ReadableStream ? await new Response(init.body).text() : (init?.body as string | undefined);
    sent.push({ url: String(input), headers: new Headers(init?.headers), body });
    const reply = list.shift();
    assert.ok(reply !== undefined, "more requests than replies");
    if (reply instanceof Error) throw reply;
    return reply;
  };
  return { fetch: fake, sent };
}

const JOB = { id: "job_1", kind: "a", state: "queued" };
const ok = (): Response => Response.json(JOB, { status: 202 });
const broken = (): Error => new TypeError("fetch failed", { cause: new Error("other side closed") });

function problem(status: number, code: string, headers: Record<string, string> = {}): Response {
  const body = {
    type: `/problems/${code}`,
    title: "t",
    status,
    code,
    detail: "why",
    instance: "7",
    errors: [{ pointer: "/key", detail: "rule" }],
  };
  return Response.json(body, { status, headers });
}

test("a broken connection is repeated with the same idempotency key", async () => {
  const { fetch, sent } = replies(broken(), broken(), ok());
  const job = await new Client({ url: "http://a", fetch }).submit({ kind: "a" });
  assert.equal(job.id, "job_1");
  const keys = sent.map((one) => one.headers.get("idempotency-key"));
  assert.equal(keys.length, 3);
  assert.equal(new Set(keys).size, 1);
  assert.match(keys[0] ?? "", /^[0-9a-f-]{36}$/);
});

test("two submissions have two idempotency keys", async () => {
  const { fetch, sent } = replies(ok(), ok());
  const client = new Client({ url: "http://a", fetch });
  await client.submit({ kind: "a" });
  await client.submit({ kind: "a" });
  assert.notEqual(sent[0]?.headers.get("idempotency-key"), sent[1]?.headers.get("idempotency-key"));
});

test("Retry-After is the shortest pause", async () => {
  const notices: RetryNotice[] = [];
  const { fetch } = replies(problem(503, "unavailable", { "retry-after": "1" }), problem(429, "backlog-full"), ok());
  await new Client({ url: "http://a", fetch, onRetry: (notice) => notices.push(notice) }).submit({ kind: "a" });
  assert.deepEqual(
    notices.map((notice) => notice.error instanceof ApiError && notice.error.code),
    ["unavailable", "backlog-full"],
  );
  assert.ok((notices[0]?.pauseMs ?? 0) >= 1000);
});

test("a Retry-After beyond the time for repetitions ends them", async () => {
  const { fetch, sent } = replies(problem(429, "backlog-full", { "retry-after": "3600" }));
  const client = new Client({ url: "http://a", fetch });
  await assert.rejects(
    client.submit({ kind: "a" }),
    (error) => error instanceof OverloadedError && error.retryAfterMs === 3_600_000,
  );
  assert.equal(sent.length, 1);
});

test("a refusal is not repeated, and has the fields of its problem document", async () => {
  const { fetch, sent } = replies(problem(422, "invalid"));
  await assert.rejects(new Client({ url: "http://a", fetch }).submit({ kind: "a" }), (error) => {
    assert.ok(error instanceof InvalidRequestError);
    assert.deepEqual(
      [error.status, error.code, error.title, error.detail, error.errors, error.instance],
      [422, "invalid", "t", "why", [{ pointer: "/key", detail: "rule" }], "7"],
    );
    assert.equal(error.message, "POST /v1/jobs: why (invalid): /key: rule");
    return true;
  });
  assert.equal(sent.length, 1);
});

test("an answer of something before the server is an error with its status and text", async () => {
  const { fetch } = replies(new Response("<h1>no</h1>", { status: 403 }));
  await assert.rejects(
    new Client({ url: "http://a", fetch }).job("j"),
    (error) => error instanceof ForbiddenError && error.detail === "<h1>no</h1>",
  );
});

test("the next server is asked at once, and stays the one that is asked", async () => {
  const notices: RetryNotice[] = [];
  const { fetch, sent } = replies(problem(503, "unavailable", { "retry-after": "30" }), ok(), ok());
  const client = new Client({ url: "http://a, http://b/", fetch, onRetry: (notice) => notices.push(notice) });
  await client.job("j");
  await client.job("j");
  assert.deepEqual(
    sent.map((one) => one.url),
    ["http://a/v1/jobs/j", "http://b/v1/jobs/j", "http://b/v1/jobs/j"],
  );
  assert.deepEqual(
    notices.map((notice) => notice.pauseMs),
    [0],
  );
});

test("after a round over all servers there is a pause", async () => {
  const notices: RetryNotice[] = [];
  const { fetch, sent } = replies(broken(), problem(503, "unavailable", { "retry-after": "1" }), broken(), ok());
  await new Client({ url: ["http://a", "http://b"], fetch, onRetry: (notice) => notices.push(notice) }).job("j");
  assert.deepEqual(
    sent.map((one) => new URL(one.url).host),
    ["a", "b", "a", "b"],
  );
  const [first, second, third] = notices.map((notice) => notice.pauseMs);
  assert.deepEqual([first, third], [0, 0]);
  assert.ok((second ?? 0) >= 1000);
});

test("a full backlog is waited out at the same server", async () => {
  const { fetch, sent } = replies(problem(429, "backlog-full"), ok());
  await new Client({ url: ["http://a", "http://b"], fetch }).submit({ kind: "a" });
  assert.deepEqual(
    sent.map((one) => new URL(one.url).host),
    ["a", "a"],
  );
});

test("when the time for repetitions is over, the last error is thrown", async () => {
  const unreachable = replies(broken());
  const error: unknown = await new Client({ url: "http://a", fetch: unreachable.fetch, retryTimeoutMs: 0 })
    .job("j")
    .catch((thrown: unknown) => thrown);
  assert.ok(error instanceof UnreachableError);
  assert.match(error.message, /GET \/v1\/jobs\/j: no answer from http:\/\/a: other side closed/);
});

test("an aborted call rejects with the reason of its signal", async () => {
  const stop = new AbortController();
  const { fetch } = replies(broken());
  const client = new Client({
    url: "http://a",
    fetch,
    onRetry: () => {
      stop.abort(new Error("enough"));
    },
  });
  await assert.rejects(client.job("j", { signal: stop.signal }), /enough/);
});

test("a token can be a function, which is asked for each attempt", async () => {
  const { fetch, sent } = replies(broken(), ok());
  let number = 0;
  await new Client({ url: "http://a", fetch, token: () => `t${String((number += 1))}` }).job("j");
  assert.deepEqual(
    sent.map((one) => one.headers.get("authorization")),
    ["Bearer t1", "Bearer t2"],
  );
});

test("an address that is none, and a contradiction, are told before any request", async () => {
  assert.throws(
    () => new Client({ url: "localhost:7420" }),
    /`localhost:7420`, which is no address; it must begin with http/,
  );
  assert.throws(() => new Client({ url: " , " }), /`url` is empty/);
  const client = new Client({ url: "http://a" });
  await assert.rejects(client.submit({ kind: "a" }, { id: "mine", idempotencyKey: "k" }), KeylaneError);
  await assert.rejects(client.job(""), /the id of a job is empty/);
});
