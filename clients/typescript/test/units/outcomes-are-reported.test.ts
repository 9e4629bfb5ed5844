/** What a handler returns or throws becomes an end of the lease that the server accepts. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { TaskCancelled, TaskFailure } from "../../src/index.js";
import { failure, success } from "../../src/worker/outcome.js";
import { intervalOf } from "../../src/worker/heartbeats.js";

const quiet = new AbortController().signal;

function parsed(report: { text: string }): unknown {
  return JSON.parse(report.text);
}

test("a result is any JSON, or absent", () => {
  assert.deepEqual(parsed(success("l", undefined, "")), { id: "l" });
  assert.deepEqual(parsed(success("l", { a: [1, null] }, "line\n")), {
    id: "l",
    log: "line\n",
    result: { a: [1, null] },
  });
  assert.deepEqual(parsed(success("l", null, "")), { id: "l", result: null });
});

test("a result that is no JSON fails for good", () => {
  for (const value of [1n, () => 1, Symbol("s")]) {
    assert.throws(
      () => success("l", value, ""),
      (error) => error instanceof TaskFailure && !error.retry,
    );
  }
  assert.throws(
    () => success("l", "x".repeat(17 * 1024 * 1024), ""),
    /the result has 17825794 bytes; the server accepts/,
  );
});

test("a failure says whether and when it is tried again", () => {
  assert.deepEqual(parsed(failure("l", new TaskFailure("no room", { retry: false }), quiet, "")), {
    id: "l",
    error: "no room",
    retry: false,
  });
  assert.deepEqual(parsed(failure("l", new TaskFailure("busy", { afterMs: 12.4 }), quiet, "a\n")), {
    id: "l",
    error: "busy",
    retry: true,
    after_ms: 12,
    log: "a\n",
  });
});

test("any other error is tried again, and its stack is in the log", () => {
  const report = parsed(failure("l", new RangeError("too far"), quiet, "before\n")) as {
    error: string;
    retry: boolean;
    log: string;
  };
  assert.deepEqual([report.error, report.retry], ["RangeError: too far", true]);
  assert.match(report.log, /^before\nRangeError: too far\n +at /);
  assert.deepEqual((parsed(failure("l", "a text", quiet, "")) as { error: string }).error, "a text");
});

test("a long error is cut", () => {
  const { error } = parsed(failure("l", new TaskFailure("x".repeat(9000)), quiet, "")) as { error: string };
  assert.equal(error.length, 8192);
});

test("an interrupted task is tried again at once if the worker stops, and never if its job was cancelled", () => {
  const aborted = (reason: "worker-stopped" | "job-cancelled"): unknown => {
    const cancelled = new TaskCancelled(reason);
    const report = parsed(failure("l", cancelled, AbortSignal.abort(cancelled), "")) as Record<string, unknown>;
    return [report["retry"], report["after_ms"]];
  };
  assert.deepEqual(aborted("worker-stopped"), [true, 0]);
  assert.deepEqual(aborted("job-cancelled"), [false, undefined]);
});

test("heartbeats come three times in a lease, by the server's clock", () => {
  const headers = new Headers({ date: "Sat, 31 Jan 2026 08:00:00 GMT" });
  assert.equal(intervalOf("2026-01-31T08:00:31.000Z", headers), 10_000);
  assert.equal(intervalOf("2026-01-31T08:00:01.000Z", headers), 200);
  assert.equal(intervalOf("2026-02-01T08:00:00.000Z", headers), 20_000);
});
