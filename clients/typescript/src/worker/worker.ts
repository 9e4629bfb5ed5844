/**
 * Worker: takes leases, runs their handlers beside one another, and reports their ends.
 *
 * Leases come by two ways. While tasks end, each report of ends also claims the next leases and does not
 * wait for any. When that gives too few, a request of its own waits for some at the server. So a busy
 * worker needs one request for many subtasks, and an idle one begins a subtask as soon as it is ready.
 */

import { hostname } from "node:os";

import { KeylaneError } from "../errors.js";
import { backoff, sleep } from "../retry.js";
import type { RetryNotice, Transport } from "../transport.js";
import type { Claim, ClaimRequest, Lease } from "../types.js";
import { HeldLease } from "./held-lease.js";
import { Heartbeats, intervalOf } from "./heartbeats.js";
import { release } from "./outcome.js";
import { Reporter } from "./reporter.js";
import type { Handler } from "./task.js";

const MAX_CLAIM = 1000;

export interface WorkerOptions {
  /** Name of the worker, for people. Default: the name of the machine and the number of the process. */
  name?: string | undefined;
  /** Largest number of handlers that run at the same time, up to 1000. Default: 8. */
  concurrency?: number | undefined;
  /**
   * Largest number of leases that the worker holds, up to 1000. Default: `concurrency`.
   *
   * More keep the worker busy when subtasks are short: the next ones are here before others have ended.
   * Meanwhile other workers cannot take them.
   */
  maxLeases?: number | undefined;
  /** Time for which a request waits at the server for subtasks, in milliseconds, up to a minute. Default: 20 s. */
  waitMs?: number | undefined;
  /** Called when something goes wrong that no handler sees. Default: a line on standard error. */
  onProblem?: ((problem: WorkerProblem) => void) | undefined;
}

/** Something that went wrong outside of handlers, and after which the worker goes on. */
export interface WorkerProblem {
  readonly message: string;
  readonly error: Error | undefined;
  readonly lease: Lease | undefined;
}

export interface RunOptions {
  /** Signals of the process at which the worker stops gracefully, such as `["SIGINT", "SIGTERM"]`. */
  stopOn?: readonly NodeJS.Signals[] | undefined;
  /** Stops the worker gracefully when it is aborted. */
  signal?: AbortSignal | undefined;
}

export interface StopOptions {
  /** Time for running handlers, in milliseconds; then their signals are aborted. Default: unlimited. */
  timeoutMs?: number | undefined;
}

export class Worker {
  readonly #transport: Transport;
  readonly #settings: {
    name: string;
    concurrency: number;
    maxLeases: number;
    waitMs: number;
    onProblem: (problem: WorkerProblem) => void;
  };
  readonly #handlers = new Map<string, Handler>();
  readonly #held = new Map<string, HeldLease>();
  /** Leases whose handlers have not begun, in the order of their grants. */
  #waiting: HeldLease[] = [];
  readonly #running = new Set<HeldLease>();
  /** Number of leases that were asked for and have not come. */
  #asked = 0;
  readonly #reporter: Reporter;
  readonly #heartbeats: Heartbeats;
  readonly #stopping = new AbortController();
  #run: Promise<void> | undefined;
  #fatal: Error | undefined;
  /** Whether no server takes requests, as far as is known. */
  #isAway = false;
  #listeners: (() => void)[] = [];

  /** @internal */
  constructor(transport: Transport, options: WorkerOptions) {
    const concurrency = checked("concurrency", options.concurrency ?? 8, MAX_CLAIM);
    const maxLeases = checked("maxLeases", options.maxLeases ?? concurrency, MAX_CLAIM);
    if (maxLeases < concurrency) {
      throw new RangeError(
        `\`maxLeases\` is ${String(maxLeases)}, below \`concurrency\`, which is ${String(concurrency)}; give at least as many`,
      );
    }
    this.#transport = transport;
    this.#settings = {
      name: options.name ?? `${hostname()}-${String(process.pid)}`,
      concurrency,
      maxLeases,
      waitMs: options.waitMs ?? 20_000,
      onProblem: options.onProblem ?? print,
    };
    this.#heartbeats = new Heartbeats(transport, {
      held: this.#held,
      lost: (held) => {
        this.#lose(held);
      },
      refused: (error) => {
        this.#problem("a heartbeat was refused", error);
      },
    });
    this.#reporter = new Reporter(transport, {
      claim: () => this.#claim(0),
      granted: (leases, headers, claim) => {
        this.#granted(leases, headers, claim);
      },
      settled: (id) => {
        this.#settle(id);
      },
      lost: (id) => {
        this.#problem("the lease had ended, and the outcome was discarded", undefined, this.#held.get(id)?.lease);
      },
      refused: (id, error) => {
        this.#problem("the outcome was refused", error, this.#held.get(id)?.lease);
      },
      retrying: (notice) => {
        this.#retrying(notice);
      },
      drained: () => {
        this.#changed();
      },
    });
  }

  /** Sets the handler of a kind. */
  kind<P = unknown, R = unknown>(name: string, handler: Handler<P, R>): this {
    if (this.#run !== undefined)
      throw new KeylaneError(`the worker runs already; set the handler of \`${name}\` before`);
    if (this.#handlers.has(name)) throw new KeylaneError(`\`${name}\` has a handler already; a kind has one`);
    this.#handlers.set(name, handler as Handler);
    return this;
  }

  /**
   * Works until the worker is stopped. Rejects if the server refuses its requests for good, for example
   * because of the token or of a kind that is not for remote workers.
   */
  run(options: RunOptions = {}): Promise<void> {
    if (this.#handlers.size === 0) throw new KeylaneError("the worker has no handler; set one with `kind`");
    if (this.#run !== undefined) throw new KeylaneError("the worker runs already, or has stopped; make another one");
    const stop = (): void => {
      this.#beginStop();
    };
    for (const name of options.stopOn ?? []) process.once(name, stop);
    if (options.signal?.aborted === true) stop();
    options.signal?.addEventListener("abort", stop, { once: true });
    this.#run = this.#work().finally(() => {
      for (const name of options.stopOn ?? []) process.removeListener(name, stop);
      options.signal?.removeEventListener("abort", stop);
    });
    return this.#run;
  }

  /**
   * Stops gracefully: takes no more leases, returns those that have not begun, and waits for the running
   * handlers and for the reports of their outcomes.
   */
  async stop(options: StopOptions = {}): Promise<void> {
    this.#beginStop();
    const timer =
      options.timeoutMs === undefined
        ? undefined
        : setTimeout(() => {
            this.#interrupt();
          }, options.timeoutMs);
    try {
      // An error of the run is for the caller of `run`.
      await this.#run?.catch(() => undefined);
    } finally {
      clearTimeout(timer);
    }
  }

  async #work(): Promise<void> {
    while (!this.#stopping.signal.aborted) {
      const claim = this.#reporter.isBusy ? undefined : this.#claim(this.#settings.waitMs);
      if (claim === undefined) await this.#change();
      else await this.#poll(claim);
    }
    while (this.#running.size > 0) await this.#change();
    await this.#reporter.idle();
    this.#heartbeats.stop();
    if (this.#fatal !== undefined) throw this.#fatal;
  }

  /** Returns a request for as many leases as there is room for, if there is any. */
  #claim(waitMs: number): ClaimRequest | undefined {
    const { maxLeases, name } = this.#settings;
    const max = maxLeases - this.#waiting.length - this.#running.size - this.#asked;
    if (max <= 0 || this.#stopping.signal.aborted) return undefined;
    this.#asked += max;
    return { kinds: [...this.#handlers.keys()], max, wait_ms: waitMs, worker: name };
  }

  async #poll(claim: ClaimRequest): Promise<void> {
    try {
      const answer = await this.#transport.request<Claim>({
        method: "POST",
        path: "/v1/leases",
        json: claim,
        holdMs: claim.wait_ms,
        signal: this.#stopping.signal,
        isAnswerKept: true,
        retryTimeoutMs: Number.POSITIVE_INFINITY,
        onRetry: (notice) => {
          this.#retrying(notice);
        },
      });
      this.#granted(answer.body.leases, answer.headers, claim);
    } catch (error) {
      this.#granted([], new Headers(), claim);
      if (this.#stopping.signal.aborted) return;
      this.#fatal = error instanceof Error ? error : new Error(String(error));
      this.#beginStop();
    }
  }

  #granted(leases: readonly Lease[], headers: Headers, claim: ClaimRequest): void {
    this.#asked -= claim.max ?? 0;
    if (headers.has("content-type")) this.#isAway = false;
    for (const lease of leases) {
      const held = new HeldLease(lease, intervalOf(lease.expires_at, headers));
      this.#held.set(lease.id, held);
      this.#waiting.push(held);
    }
    if (this.#stopping.signal.aborted) this.#releaseWaiting();
    this.#begin();
    this.#heartbeats.arm();
    this.#changed();
  }

  /** Begins handlers while there is room. */
  #begin(): void {
    while (this.#running.size < this.#settings.concurrency) {
      const held = this.#waiting.shift();
      if (held === undefined) return;
      this.#running.add(held);
      void this.#handle(held);
    }
  }

  async #handle(held: HeldLease): Promise<void> {
    const handler = this.#handlers.get(held.lease.kind);
    const report =
      handler === undefined
        ? release(held.lease.id)
        : await held.run(handler, () => {
            this.#heartbeats.progress(held);
          });
    this.#running.delete(held);
    if (held.isLost) this.#settle(held.lease.id);
    else this.#reporter.add(report);
    this.#begin();
    this.#changed();
  }

  /** The server has ended a lease: another worker may have the subtask. */
  #lose(held: HeldLease): void {
    const isWaiting = this.#waiting.includes(held);
    if (!isWaiting && !this.#running.has(held)) return;
    held.cancel("lease-lost");
    if (!isWaiting) return;
    this.#waiting = this.#waiting.filter((other) => other !== held);
    this.#settle(held.lease.id);
    this.#changed();
  }

  #settle(id: string): void {
    this.#held.delete(id);
    this.#heartbeats.arm();
  }

  #beginStop(): void {
    if (this.#stopping.signal.aborted) return;
    this.#stopping.abort(new Error("the worker stops"));
    this.#releaseWaiting();
    this.#changed();
  }

  #releaseWaiting(): void {
    for (const held of this.#waiting.splice(0)) this.#reporter.add(release(held.lease.id));
  }

  /** Ends a graceful stop whose time is over. */
  #interrupt(): void {
    for (const held of this.#running) held.cancel("worker-stopped");
    // A report that no server takes would keep the process for ever.
    void this.#abandonLater();
  }

  async #abandonLater(): Promise<void> {
    while (this.#running.size > 0) await this.#change();
    await sleep(backoff(16));
    this.#reporter.abandon();
  }

  #retrying({ error, url }: RetryNotice): void {
    if (this.#isAway) return;
    this.#isAway = true;
    this.#problem(`no answer from ${url}; trying again until there is one`, error);
  }

  #problem(message: string, error: Error | undefined, lease?: Lease): void {
    this.#settings.onProblem({ message, error, lease });
  }

  #change(): Promise<void> {
    return new Promise((resolve) => this.#listeners.push(resolve));
  }

  #changed(): void {
    for (const resolve of this.#listeners.splice(0)) resolve();
  }
}

function checked(name: string, value: number, max: number): number {
  if (Number.isSafeInteger(value) && value >= 1 && value <= max) return value;
  throw new RangeError(`\`${name}\` is ${String(value)}; it must be a whole number from 1 to ${String(max)}`);
}

function print({ message, error, lease }: WorkerProblem): void {
  const where = lease === undefined ? "" : ` (subtask ${String(lease.number)} of ${lease.job})`;
  console.error(`keylane worker: ${message}${where}${error === undefined ? "" : `: ${error.message}`}`);
}
