/**
 * Body of a submission with streamed subtasks: a line of JSON for the job, and one for each subtask.
 *
 * Only blocks of lines are in memory. A function or an array can be read again when the submission has to
 * be repeated. Anything else gives its subtasks only once: its first lines are kept, so that the
 * submission can be repeated until more than these have been sent.
 */

import { setImmediate } from "node:timers/promises";

import { KeylaneError } from "./errors.js";
import type { Upload } from "./transport.js";
import type { SubmitManyJob, SubmitSubtask } from "./types.js";

type Sequence = Iterable<SubmitSubtask> | AsyncIterable<SubmitSubtask>;

/** Subtasks of a job: an array, a function that returns an iterator, or an iterator. */
export type Subtasks = Sequence | (() => Sequence);

/** Size of a block of lines: each one costs a system call. */
const BLOCK_BYTES = 64 * 1024;
/** Size of the kept beginning of lines that come only once. */
const KEPT_BYTES = 1024 * 1024;

export class SubtaskLines implements Upload {
  readonly contentType = "application/x-ndjson";
  failure: Error | undefined;
  readonly #job: SubmitManyJob;
  readonly #subtasks: Subtasks;
  /** Blocks of subtasks that come only once. */
  readonly #kept: KeptBlocks | undefined;

  constructor(job: SubmitManyJob, subtasks: Subtasks) {
    this.#job = job;
    this.#subtasks = subtasks;
    if (typeof subtasks !== "function" && !Array.isArray(subtasks)) this.#kept = new KeptBlocks(this.#blocks(subtasks));
  }

  open(after: Error | undefined): ReadableStream<Uint8Array> {
    const blocks = this.#kept?.open(after) ?? this.#blocks(this.#start());
    const fail = (error: unknown): Error => {
      this.failure = error instanceof Error ? error : new Error(String(error));
      return this.failure;
    };
    return new ReadableStream<Uint8Array>(
      {
        async pull(controller) {
          try {
            // Lets an early answer be read: after a write to a connection that the server has closed, it could not be.
            await setImmediate();
            const next = await blocks.next();
            if (next.done === true) controller.close();
            else controller.enqueue(next.value);
          } catch (error) {
            controller.error(fail(error));
          }
        },
        async cancel() {
          await blocks.return?.(undefined);
        },
      },
      { highWaterMark: 1 },
    );
  }

  #start(): Sequence {
    return typeof this.#subtasks === "function" ? this.#subtasks() : this.#subtasks;
  }

  async *#blocks(subtasks: Sequence): AsyncGenerator<Uint8Array, undefined> {
    const encoder = new TextEncoder();
    let block = `${JSON.stringify(this.#job)}\n`;
    for await (const subtask of subtasks) {
      block += `${JSON.stringify(subtask)}\n`;
      if (block.length >= BLOCK_BYTES) {
        yield encoder.encode(block);
        block = "";
      }
    }
    if (block !== "") yield encoder.encode(block);
    return undefined;
  }
}

/** Blocks that come once, of which the beginning can be read again. */
class KeptBlocks {
  readonly #source: AsyncGenerator<Uint8Array, undefined>;
  #blocks: Uint8Array[] = [];
  #bytes = 0;
  /** Number of blocks that are not kept any more. */
  #dropped = 0;
  /** Number of readers; only the newest one reads. */
  #readers = 0;
  #isAtEnd = false;
  /** Reading of the next block, which goes on when its reader has gone. */
  #reading: Promise<void> | undefined;

  constructor(source: AsyncGenerator<Uint8Array, undefined>) {
    this.#source = source;
  }

  open(after: Error | undefined): AsyncIterator<Uint8Array, undefined> {
    if (this.#dropped > 0) {
      throw new KeylaneError(
        "the submission failed on the way and cannot be repeated, because its subtasks come from an iterator and more than " +
          `${String(KEPT_BYTES)} bytes of them were sent; pass a function that returns a new iterator`,
        { cause: after },
      );
    }
    this.#readers += 1;
    const reader = this.#readers;
    let place = 0;
    const next = async (): Promise<IteratorResult<Uint8Array, undefined>> => {
      while (reader === this.#readers && place === this.#dropped + this.#blocks.length && !this.#isAtEnd)
        await this.#read();
      const block = reader === this.#readers ? this.#blocks[place - this.#dropped] : undefined;
      if (block === undefined) return { done: true, value: undefined };
      place += 1;
      this.#drop(place);
      return { done: false, value: block };
    };
    return { next };
  }

  #read(): Promise<void> {
    this.#reading ??= this.#source.next().then((next) => {
      this.#reading = undefined;
      if (next.done === true) {
        this.#isAtEnd = true;
        return;
      }
      this.#blocks.push(next.value);
      this.#bytes += next.value.length;
    });
    return this.#reading;
  }

  /** Forgets the blocks before `place` if there are too many to keep. */
  #drop(place: number): void {
    if (this.#dropped === 0 && this.#bytes <= KEPT_BYTES) return;
    const gone = this.#blocks.splice(0, place - this.#dropped);
    this.#dropped += gone.length;
  }
}
