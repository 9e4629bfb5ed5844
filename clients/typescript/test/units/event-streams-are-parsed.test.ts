/** Server-sent events are read as the standard says, in whatever pieces they come. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { messages, type Part } from "../../src/event-stream.js";

const TEXT =
  '\uFEFFretry: 2000\n: comment\n\nid: 1-2\nevent: job_changed\ndata: {"a":\ndata:"ü"}\n\nid: 1-3\r\ndata: x\r\n\r\nevent: empty\n\ndata: y\r\rdata: cut off';

async function* pieces(bytes: Uint8Array, size: number): AsyncGenerator<Uint8Array> {
  for (let place = 0; place < bytes.length; place += size) {
    await Promise.resolve();
    yield bytes.subarray(place, place + size);
  }
}

test("messages are the same in pieces of any size", async () => {
  const bytes = new TextEncoder().encode(TEXT);
  for (let size = 1; size <= bytes.length; size += 1) {
    const parts: Part[] = [];
    let count = 0;
    for await (const part of messages(pieces(bytes, size), () => {
      count += 1;
    }))
      parts.push(part);
    assert.deepEqual(parts, [
      { retryMs: 2000 },
      { message: { event: "job_changed", data: '{"a":\n"ü"}', id: "1-2" } },
      { message: { event: "message", data: "x", id: "1-3" } },
      { message: { event: "message", data: "y", id: "1-3" } },
    ]);
    assert.equal(count, Math.ceil(bytes.length / size));
  }
});
