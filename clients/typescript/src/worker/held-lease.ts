/** Lease that the worker holds: from its grant until the server knows its end. */

import type { Lease } from "../types.js";
import { failure, MAX_LOG_LENGTH, success, type Report } from "./outcome.js";
import { Task, TaskCancelled, type CancelReason, type Handler } from "./task.js";

export class HeldLease {
  readonly lease: Lease;
  /** Time of the next heartbeat, on the monotonic clock. */
  renewAt = 0;
  /** Time between heartbeats, in milliseconds. */
  intervalMs = 0;
  /** Whether a heartbeat is on its way. */
  isRenewing = false;
  /** Progress that the server does not know yet. */
  progress: number | undefined;
  readonly #controller = new AbortController();
  #log = "";
  #isLost = false;

  constructor(lease: Lease, intervalMs: number) {
    this.lease = lease;
    this.renewEvery(intervalMs);
  }

  /** Sets the time of the next heartbeat, after one that got through. */
  renewEvery(intervalMs: number): void {
    this.intervalMs = intervalMs;
    this.renewAt = performance.now() + intervalMs;
  }

  /** Whether the outcome does not count any more. */
  get isLost(): boolean {
    return this.#isLost;
  }

  /** Tells the handler to stop. */
  cancel(reason: CancelReason): void {
    if (reason === "lease-lost") this.#isLost = true;
    this.#controller.abort(new TaskCancelled(reason));
  }

  /** Runs the handler, and returns how the lease ends. */
  async run(handler: Handler, onProgress: () => void): Promise<Report> {
    const { id } = this.lease;
    const { signal } = this.#controller;
    const task = new Task(this.lease, signal, {
      progress: (fraction) => {
        this.progress = fraction;
        onProgress();
      },
      log: (text) => {
        this.#log = `${this.#log}${text}\n`.slice(-MAX_LOG_LENGTH);
      },
    });
    try {
      return success(id, await handler(task, signal), this.#log);
    } catch (thrown) {
      return failure(id, thrown, signal, this.#log);
    }
  }
}
