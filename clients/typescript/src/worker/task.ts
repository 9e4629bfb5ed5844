/** Task of a handler, and the reasons for which it ends early. */

import { KeylaneError } from "../errors.js";
import type { Lease } from "../types.js";

/** Failure of a subtask, with what the server needs to know about another attempt. */
export class TaskFailure extends KeylaneError {
  override name = "TaskFailure";
  /** Whether another attempt may succeed. */
  readonly retry: boolean;
  /** Shortest pause before the next attempt, in milliseconds; by default the kind's backoff. */
  readonly afterMs: number | undefined;

  constructor(message: string, options: { retry?: boolean; afterMs?: number; cause?: unknown } = {}) {
    super(message, options.cause === undefined ? {} : { cause: options.cause });
    this.retry = options.retry ?? true;
    this.afterMs = options.afterMs;
  }
}

/**
 * Why a task was told to stop:
 *
 * - `lease-lost`: its lease has ended, because its job was killed, its time is over, or the worker was away
 *   for too long. Its outcome is discarded, and another worker may have the subtask.
 * - `job-cancelled`: its job was cancelled. Its outcome still counts.
 * - `worker-stopped`: the time for a graceful stop is over. A failure is tried again elsewhere.
 */
export type CancelReason = "lease-lost" | "job-cancelled" | "worker-stopped";

/** Reason of the aborted `signal` of a task. */
export class TaskCancelled extends KeylaneError {
  override name = "TaskCancelled";
  readonly reason: CancelReason;

  constructor(reason: CancelReason) {
    super(TEXTS[reason]);
    this.reason = reason;
  }
}

const TEXTS: Record<CancelReason, string> = {
  "lease-lost": "the lease of this task has ended",
  "job-cancelled": "the job of this task was cancelled",
  "worker-stopped": "the worker stops",
};

/** What a task uses of its worker. */
export interface TaskHost {
  progress(fraction: number): void;
  log(text: string): void;
}

/** Subtask that this worker has leased, for its handler. */
export class Task<P = unknown> {
  /** Id of the lease. */
  readonly id: string;
  /** Id of the job. */
  readonly job: string;
  readonly kind: string;
  /** Number of the subtask in its job, from 0. */
  readonly number: number;
  readonly keys: readonly string[];
  /** Keys that other subtasks may share at the same time. */
  readonly sharedKeys: readonly string[];
  /** Number of this attempt, from 1. */
  readonly attempt: number;
  /** Number that is higher than that of every earlier attempt, so that other systems can refuse a late one. */
  readonly fence: number;
  /** Input of the subtask. */
  readonly payload: P;
  /** Trace of the job (W3C Trace Context), if it has one. */
  readonly traceparent: string | undefined;
  readonly tracestate: string | undefined;
  /** Aborted when the task should stop; its reason is a `TaskCancelled`. */
  readonly signal: AbortSignal;
  readonly #host: TaskHost;

  /** @internal */
  constructor(lease: Lease, signal: AbortSignal, host: TaskHost) {
    this.id = lease.id;
    this.job = lease.job;
    this.kind = lease.kind;
    this.number = lease.number;
    this.keys = lease.keys;
    this.sharedKeys = lease.shared_keys ?? [];
    this.attempt = lease.attempt;
    this.fence = lease.fence;
    this.payload = lease.payload as P;
    this.traceparent = lease.traceparent ?? undefined;
    this.tracestate = lease.tracestate ?? undefined;
    this.signal = signal;
    this.#host = host;
  }

  /** Reports the finished part of the task, from 0 to 1. People see it in the dashboard; it has no other effect. */
  progress(fraction: number): void {
    if (!(fraction >= 0 && fraction <= 1))
      throw new RangeError(`progress is ${String(fraction)}; it must be from 0 to 1`);
    this.#host.progress(fraction);
  }

  /** Adds a line to the log of the attempt, of which the server keeps the end. */
  log(text: string): void {
    this.#host.log(text);
  }
}

/** Executes a task. What it returns is the result; what it throws is a failure that is tried again. */
export type Handler<P = unknown, R = unknown> = (task: Task<P>, signal: AbortSignal) => R | Promise<R>;
