/** Heartbeats: they keep the leases of a worker, and learn which of its tasks should stop. */

import { ApiError } from "../errors.js";
import type { Answer, Transport } from "../transport.js";
import type { HeartbeatResponse, HeartbeatResults } from "../types.js";
import type { HeldLease } from "./held-lease.js";

const MAX_LEASES = 1000;
/** Heartbeats that are due within this part of an interval go together. */
const TOGETHER = 0.25;
const MIN_INTERVAL_MS = 200;
const MAX_INTERVAL_MS = 20_000;
/** Pause after a heartbeat that did not get through. */
const PAUSE_MS = 500;
/** Shortest time between two reports of progress of a task. */
const PROGRESS_INTERVAL_MS = 500;

export interface HeartbeatsHost {
  readonly held: ReadonlyMap<string, HeldLease>;
  lost(held: HeldLease): void;
  refused(error: Error): void;
}

export class Heartbeats {
  readonly #transport: Transport;
  readonly #host: HeartbeatsHost;
  #timer: NodeJS.Timeout | undefined;
  /** Tasks whose progress is on its way, or was a moment ago. */
  readonly #reporting = new Set<HeldLease>();

  constructor(transport: Transport, host: HeartbeatsHost) {
    this.#transport = transport;
    this.#host = host;
  }

  /** Sets the timer for the next heartbeat. Call it when leases were granted. */
  arm(): void {
    let next = Number.POSITIVE_INFINITY;
    for (const held of this.#host.held.values()) {
      if (!held.isRenewing && !held.isLost) next = Math.min(next, held.renewAt);
    }
    clearTimeout(this.#timer);
    if (next === Number.POSITIVE_INFINITY) return;
    this.#timer = setTimeout(() => void this.#renew(), Math.max(0, next - performance.now()));
  }

  stop(): void {
    clearTimeout(this.#timer);
  }

  /** Reports the progress of a task soon. */
  progress(held: HeldLease): void {
    if (this.#reporting.has(held)) return;
    this.#reporting.add(held);
    void this.#report(held).finally(() => {
      setTimeout(() => {
        this.#reporting.delete(held);
        if (held.progress !== undefined && this.#isHeld(held)) this.progress(held);
      }, PROGRESS_INTERVAL_MS).unref();
    });
  }

  async #report(held: HeldLease): Promise<void> {
    const { progress } = held;
    held.progress = undefined;
    const path = `/v1/leases/${encodeURIComponent(held.lease.id)}/heartbeat`;
    try {
      const answer = await this.#transport.request<HeartbeatResponse>({
        method: "POST",
        path,
        json: { progress },
        retryTimeoutMs: 0,
      });
      if (this.#isHeld(held)) this.#renewed(held, answer.body, answer.headers);
    } catch (error) {
      if (error instanceof ApiError && isGone(error.status) && this.#isHeld(held)) this.#host.lost(held);
    }
  }

  async #renew(): Promise<void> {
    const now = performance.now();
    const due: HeldLease[] = [];
    for (const held of this.#host.held.values()) {
      const isDue =
        held.renewAt <= now + MIN_INTERVAL_MS * TOGETHER || held.renewAt - now <= held.intervalMs * TOGETHER;
      if (isDue && !held.isRenewing && !held.isLost && due.length < MAX_LEASES) due.push(held);
    }
    for (const held of due) held.isRenewing = true;
    // Further leases have heartbeats of their own meanwhile.
    this.arm();
    try {
      if (due.length > 0) await this.#send(due);
    } catch (error) {
      for (const held of due) held.renewAt = performance.now() + PAUSE_MS;
      if (error instanceof ApiError && error.status < 500 && error.status !== 429) this.#host.refused(error);
    } finally {
      for (const held of due) held.isRenewing = false;
      this.arm();
    }
  }

  async #send(due: readonly HeldLease[]): Promise<void> {
    const answer: Answer<HeartbeatResults> = await this.#transport.request({
      method: "POST",
      path: "/v1/leases/heartbeat",
      json: { leases: due.map((held) => held.lease.id) },
      // Another attempt has the leases of that time.
      retryTimeoutMs: 0,
    });
    due.forEach((held, place) => {
      const item = answer.body.items[place];
      if (item === undefined || !this.#isHeld(held)) return;
      if (isGone(item.status)) this.#host.lost(held);
      else if (item.expires_at != null)
        this.#renewed(held, { expires_at: item.expires_at, cancel: item.cancel === true }, answer.headers);
      else held.renewAt = performance.now() + PAUSE_MS;
    });
  }

  #renewed(held: HeldLease, { expires_at, cancel }: HeartbeatResponse, headers: Headers): void {
    held.renewEvery(intervalOf(expires_at, headers));
    if (cancel) held.cancel("job-cancelled");
  }

  #isHeld(held: HeldLease): boolean {
    return this.#host.held.get(held.lease.id) === held;
  }
}

/**
 * Returns the time between heartbeats for a lease: a third of the time until it expires.
 *
 * The clocks of server and worker may differ, so the time that is left is counted from the `Date` of the
 * answer, which has whole seconds: the next one may be about to begin.
 */
export function intervalOf(expiresAt: string, headers: Headers): number {
  const date = Date.parse(headers.get("date") ?? "");
  const leftMs = Number.isNaN(date) ? Date.parse(expiresAt) - Date.now() : Date.parse(expiresAt) - date - 1000;
  return Math.min(MAX_INTERVAL_MS, Math.max(MIN_INTERVAL_MS, leftMs / 3));
}

function isGone(status: number): boolean {
  return status === 409 || status === 404 || status === 410;
}
