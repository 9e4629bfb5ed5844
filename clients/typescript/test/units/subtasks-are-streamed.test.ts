/** Subtasks are sent in blocks of lines, and sent again from the first one where that is possible. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { KeylaneError } from "../../src/index.js";
import { SubtaskLines } from "../../src/subtask-lines.js";
import type { SubmitSubtask } from "../../src/types.js";

async function read(stream: ReadableStream<Uint8Array>): Promise<string> {
  return new Response(stream).text();
}

function* numbers(count: number, length = 0): Generator<SubmitSubtask> {
  for (let number = 0; number < count; number += 1) yield { payload: `${String(number)}${"x".repeat(length)}` };
}

const LINES = '{"kind":"a"}\n{"payload":"0"}\n{"payload":"1"}\n';

test("the first line is the job, and each further one a subtask", async () => {
  for (const subtasks of [() => numbers(2), [{ payload: "0" }, { payload: "1" }], numbers(2)]) {
    assert.equal(await read(new SubtaskLines({ kind: "a" }, subtasks).open(undefined)), LINES);
  }
});

test("an asynchronous source is read as it is sent", async () => {
  let read = 0;
  async function* source(): AsyncGenerator<SubmitSubtask> {
    for (const subtask of numbers(1000, 1000)) {
      await Promise.resolve();
      read += 1;
      yield subtask;
    }
  }
  const reader = new SubtaskLines({ kind: "a" }, source).open(undefined).getReader();
  await reader.read();
  // Blocks of 64 KiB: the one that was read, and at most two more.
  assert.ok(read < 250, String(read));
  await reader.cancel();
});

test("an iterator that broke off early is sent again from its first subtask", async () => {
  const lines = new SubtaskLines({ kind: "a" }, numbers(200, 1000));
  const reader = lines.open(undefined).getReader();
  await reader.read();
  await reader.cancel();
  const text = await read(lines.open(new Error("broken")));
  assert.equal(text.split("\n").length, 202);
  assert.ok(text.startsWith('{"kind":"a"}\n{"payload":"0x'));
});

test("an iterator of which too much was sent cannot be sent again, and the error says what to do", async () => {
  const lines = new SubtaskLines({ kind: "a" }, numbers(3000, 1000));
  await read(lines.open(undefined));
  const cause = new Error("broken");
  assert.throws(
    () => lines.open(cause),
    (error) =>
      error instanceof KeylaneError &&
      error.cause === cause &&
      error.message.includes("pass a function that returns a new iterator"),
  );
});

test("a function is called for each attempt", async () => {
  const lines = new SubtaskLines({ kind: "a" }, () => numbers(3000, 1000));
  assert.equal(await read(lines.open(undefined)), await read(lines.open(new Error("broken"))));
});

test("an error of the source is kept, and ends the body", async () => {
  function* source(): Generator<SubmitSubtask> {
    yield { payload: 1 };
    throw new RangeError("no more");
  }
  const lines = new SubtaskLines({ kind: "a" }, source);
  await assert.rejects(read(lines.open(undefined)), /no more/);
  assert.ok(lines.failure instanceof RangeError);
});
