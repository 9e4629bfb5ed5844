/** Waiting between attempts of a request. */

/** Longest pause between two attempts, in milliseconds. */
const MAX_BACKOFF_MS = 5_000;
const FIRST_BACKOFF_MS = 100;

/** Returns the pause before the next attempt: it doubles, with jitter, so that clients do not come back together. */
export function backoff(failures: number, random: () => number = Math.random): number {
  const longest = Math.min(MAX_BACKOFF_MS, FIRST_BACKOFF_MS * 2 ** Math.min(failures, 16));
  return longest * (0.5 + random() / 2);
}

/** Returns the time that a `Retry-After` asks for, in milliseconds: a number of seconds or a date. */
export function retryAfterMs(header: string | null, now: number = Date.now()): number | undefined {
  if (header === null) return undefined;
  if (/^\d+$/.test(header.trim())) return Number(header) * 1000;
  const at = Date.parse(header);
  return Number.isNaN(at) ? undefined : Math.max(0, at - now);
}

/** Waits; rejects with the signal's reason when it is aborted. */
export function sleep(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    if (signal?.aborted === true) {
      reject(reasonOf(signal));
      return;
    }
    const onAbort = (): void => {
      clearTimeout(timer);
      if (signal !== undefined) reject(reasonOf(signal));
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", onAbort);
      resolve();
    }, ms);
    signal?.addEventListener("abort", onAbort, { once: true });
  });
}

/** Returns the reason of an aborted signal as an error. */
export function reasonOf(signal: AbortSignal): Error {
  const reason: unknown = signal.reason;
  return reason instanceof Error ? reason : new Error(String(reason));
}

/** Signal that follows another one, and is aborted after a pause that can be started anew. */
export class Deadline {
  readonly #controller = new AbortController();
  readonly #outer: AbortSignal | undefined;
  #timer: NodeJS.Timeout | undefined;
  /** Whether the time was over. */
  isOver = false;

  constructor(outer: AbortSignal | undefined) {
    this.#outer = outer;
    if (outer?.aborted === true) this.#follow();
    else outer?.addEventListener("abort", this.#follow, { once: true });
  }

  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  /** Starts the time anew. */
  set(ms: number): void {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => {
      this.isOver = true;
      this.#controller.abort(new Error(`no answer in ${String(ms)} ms`));
    }, ms);
  }

  /** Stops the time, and goes on to follow the other signal. */
  pause(): void {
    clearTimeout(this.#timer);
  }

  /** Follows the other signal no more. */
  detach(): void {
    this.#outer?.removeEventListener("abort", this.#follow);
  }

  /** Ends it without an abort. */
  dispose(): void {
    clearTimeout(this.#timer);
    this.detach();
  }

  readonly #follow = (): void => {
    this.#controller.abort(this.#outer?.reason);
  };
}
