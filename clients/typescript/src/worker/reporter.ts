/**
 * Reports the ends of leases: all that have come together in one request, which also takes the next leases.
 *
 * One request is on its way at a time. What ends meanwhile goes with the next one, so that requests grow
 * with the load. A report is repeated until the server has accepted it or says that the lease has ended.
 */

import { ApiError } from "../errors.js";
import { backoff, sleep } from "../retry.js";
import type { RetryNotice, Transport } from "../transport.js";
import type { ClaimRequest, CompleteResults, Lease, Problem } from "../types.js";
import type { Report } from "./outcome.js";

const MAX_REPORTS = 1000;
/** Size of a request, in characters; a larger report goes alone. */
const MAX_LENGTH = 4 * 1024 * 1024;

export interface ReporterHost {
  /** Returns what to claim with the reports, if anything. */
  claim(): ClaimRequest | undefined;
  granted(leases: readonly Lease[], headers: Headers, claim: ClaimRequest): void;
  /** The server knows the end of the lease, or does not want to know it. */
  settled(id: string): void;
  /** The lease had ended before: the outcome does not count. */
  lost(id: string): void;
  refused(id: string, error: Error): void;
  retrying(notice: RetryNotice): void;
  /** All reports have been accepted. */
  drained(): void;
}

export class Reporter {
  readonly #transport: Transport;
  readonly #host: ReporterHost;
  readonly #abandoned = new AbortController();
  #queue: Report[] = [];
  /** Reports that may have reached the server before. */
  readonly #repeated = new Set<string>();
  #isRunning = false;
  #idle: (() => void)[] = [];

  constructor(transport: Transport, host: ReporterHost) {
    this.#transport = transport;
    this.#host = host;
  }

  /** Whether reports are on their way, which also claim leases. */
  get isBusy(): boolean {
    return this.#isRunning;
  }

  add(report: Report): void {
    this.#queue.push(report);
    if (this.#isRunning) return;
    this.#isRunning = true;
    // Handlers that end at the same time report together.
    setImmediate(() => void this.#run());
  }

  /** Waits until all reports have been accepted. */
  async idle(): Promise<void> {
    if (this.#isRunning) await new Promise<void>((resolve) => this.#idle.push(resolve));
  }

  /** Gives up reports that no server takes. Their leases end by themselves. */
  abandon(): void {
    this.#abandoned.abort(new Error("the worker has stopped"));
  }

  async #run(): Promise<void> {
    while (this.#queue.length > 0) {
      const batch = this.#takeBatch();
      try {
        await this.#send(batch, this.#host.claim());
      } catch (error) {
        await this.#refused(batch, error);
      }
    }
    this.#isRunning = false;
    for (const resolve of this.#idle.splice(0)) resolve();
    this.#host.drained();
  }

  #takeBatch(): Report[] {
    let length = 0;
    const over = this.#queue.findIndex((report, place) => {
      length += report.text.length;
      return place > 0 && (place >= MAX_REPORTS || length > MAX_LENGTH);
    });
    return this.#queue.splice(0, over === -1 ? this.#queue.length : over);
  }

  async #send(batch: readonly Report[], claim: ClaimRequest | undefined): Promise<void> {
    const claimText = claim === undefined ? "" : `,"claim":${JSON.stringify(claim)}`;
    try {
      const answer = await this.#transport.request<CompleteResults>({
        method: "POST",
        path: "/v1/leases/complete",
        text: `{"leases":[${batch.map((report) => report.text).join(",")}]${claimText}}`,
        signal: this.#abandoned.signal,
        retryTimeoutMs: Number.POSITIVE_INFINITY,
        onRetry: (notice) => {
          for (const report of batch) this.#repeated.add(report.id);
          this.#host.retrying(notice);
        },
      });
      const again = batch.filter((report, place) => !this.#settle(report, answer.body.items[place]));
      if (claim !== undefined) this.#host.granted(answer.body.leases ?? [], answer.headers, claim);
      if (again.length > 0) await this.#later(again);
    } catch (error) {
      if (claim !== undefined) this.#host.granted([], new Headers(), claim);
      throw error;
    }
  }

  /** Takes the server's word about one report; returns whether that is the end of it. */
  #settle(report: Report, item: { status: number; problem?: Problem | null } | undefined): boolean {
    const { problem } = item ?? {};
    const isAccepted = item === undefined || item.status < 300 || problem?.code === "not-yet-written";
    if (!isAccepted && (item.status >= 500 || item.status === 429)) return false;
    this.#forget(report, isAccepted, problem ?? undefined);
    return true;
  }

  #forget({ id }: Report, isAccepted: boolean, problem: Problem | undefined): void {
    const wasRepeated = this.#repeated.delete(id);
    const isLost = problem?.code === "lease-lost" || problem?.code === "unknown";
    // A lease that has ended after a repeated report has most likely ended by it.
    if (isLost && !wasRepeated) this.#host.lost(id);
    if (!isAccepted && !isLost && problem !== undefined)
      this.#host.refused(id, ApiError.of(problem, `report of lease ${id}`));
    this.#host.settled(id);
  }

  /** The disk is full, or the server stops: the leases stay, and the reports are sent again. */
  async #later(reports: readonly Report[]): Promise<void> {
    this.#queue.unshift(...reports);
    await sleep(backoff(5), this.#abandoned.signal).catch(() => undefined);
  }

  /** A request was refused as a whole. One report may be the cause, so each one is sent alone. */
  async #refused(batch: readonly Report[], error: unknown): Promise<void> {
    if (this.#abandoned.signal.aborted) {
      for (const report of [...batch, ...this.#queue.splice(0)]) this.#host.settled(report.id);
      return;
    }
    for (const report of batch) {
      try {
        if (batch.length === 1) throw error;
        await this.#send([report], undefined);
      } catch (cause) {
        this.#repeated.delete(report.id);
        this.#host.refused(report.id, cause instanceof Error ? cause : new Error(String(cause)));
        this.#host.settled(report.id);
      }
    }
  }
}
