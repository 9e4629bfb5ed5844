/** Client of the service. */

import { randomUUID } from "node:crypto";

import { act, type ActionOptions, type CallOptions } from "./action.js";
import { KeylaneError, TimeoutError } from "./errors.js";
import { follow } from "./events.js";
import { Keys } from "./keys.js";
import { Kinds } from "./kinds.js";
import { Pages } from "./pages.js";
import { Schedules } from "./schedules.js";
import { Deadline } from "./retry.js";
import { SubtaskLines, type Subtasks } from "./subtask-lines.js";
import { Transport, type Answer, type RequestSpec, type RetryNotice } from "./transport.js";
import {
  isFinal,
  type AttemptLog,
  type BatchItem,
  type CancelRequest,
  type ConnectedWorker,
  type Event,
  type Explained,
  type Job,
  type JobFilter,
  type JobPatch,
  type Outcome,
  type Page,
  type ResultsQuery,
  type RetryRequest,
  type SubmitJob,
  type SubmitManyJob,
  type Subtask,
  type SubtaskFilter,
  type Summary,
  type Version,
} from "./types.js";
import { Worker, type WorkerOptions } from "./worker/worker.js";

/** The server's longest wait in one request. */
const MAX_HOLD_MS = 60_000;
/** Number of items of a page. */
const PAGE_ITEMS = 1000;

export interface ClientOptions {
  /**
   * Address of the server, or several addresses of servers that share a store, separated by commas or as
   * an array. Default: the variable `KEYLANE_SERVER`, or `http://127.0.0.1:7420`.
   */
  url?: string | readonly string[] | undefined;
  /** Token, or a function that returns the present one. Default: the variable `KEYLANE_TOKEN`. */
  token?: string | (() => string | Promise<string>) | undefined;
  /** Headers of each request. */
  headers?: Readonly<Record<string, string>> | undefined;
  /** Time for which a request is repeated while no server can execute it, in milliseconds; default: one minute. */
  retryTimeoutMs?: number | undefined;
  /** Longest wait for the answer to one attempt, in milliseconds, besides the wait that it asks for; default: 15 s. */
  requestTimeoutMs?: number | undefined;
  /** Called before a failed attempt is repeated. */
  onRetry?: ((notice: RetryNotice) => void) | undefined;
  /** Replacement for the global `fetch`, for example with a proxy or certificates of its own. */
  fetch?: typeof fetch | undefined;
}

export interface SubmitOptions extends ActionOptions {
  /** Id of your own for the job, which works wherever the job's id does. A second submission with it is the same job. */
  id?: string | undefined;
  /** Time to wait for the end of the job, in milliseconds, at most a minute. */
  waitMs?: number | undefined;
  /** Trace that the job belongs to (W3C Trace Context). */
  traceparent?: string | undefined;
  tracestate?: string | undefined;
}

export interface WaitOptions extends CallOptions {
  /** Time after which the call rejects with `TimeoutError`, in milliseconds. Default: none. */
  timeoutMs?: number | undefined;
}

export interface EventsOptions extends CallOptions {
  /** Id of the last known event: the stream goes on behind it. */
  after?: string | undefined;
}

export class Client {
  readonly schedules: Schedules;
  readonly keys: Keys;
  readonly kinds: Kinds;
  readonly #transport: Transport;

  constructor(options: ClientOptions = {}) {
    this.#transport = new Transport({
      urls: addresses(options.url ?? process.env["KEYLANE_SERVER"] ?? "http://127.0.0.1:7420"),
      token: options.token ?? process.env["KEYLANE_TOKEN"],
      headers: options.headers ?? {},
      fetch: options.fetch ?? globalFetch(),
      retryTimeoutMs: options.retryTimeoutMs ?? 60_000,
      requestTimeoutMs: options.requestTimeoutMs ?? 15_000,
      onRetry: options.onRetry,
    });
    this.schedules = new Schedules(this.#transport);
    this.keys = new Keys(this.#transport);
    this.kinds = new Kinds(this.#transport);
  }

  // Submission

  /** Submits a job. It is on the server's disk when the call resolves. */
  async submit(job: SubmitJob, options: SubmitOptions = {}): Promise<Job> {
    return this.#submit({ json: job }, options);
  }

  /**
   * Submits a job whose subtasks are streamed: any number of them, in bounded memory. All are accepted, or none.
   *
   * Pass an array, or a function that returns an iterator, so that the submission can be repeated if the
   * connection breaks. An iterator that can be read only once works until then.
   */
  async submitMany(job: SubmitManyJob, subtasks: Subtasks, options: SubmitOptions = {}): Promise<Job> {
    return this.#submit({ upload: new SubtaskLines(job, subtasks) }, options);
  }

  /**
   * Submits up to 1000 jobs in one request, in this order. All are accepted, or none; with `atomic: false`
   * each one by itself.
   */
  async submitBatch(
    jobs: readonly SubmitJob[],
    options: ActionOptions & { atomic?: boolean } = {},
  ): Promise<BatchItem[]> {
    const query = options.atomic === undefined ? undefined : { atomic: options.atomic };
    const answer = await act<{ items: BatchItem[] }>(
      this.#transport,
      { method: "POST", path: "/v1/jobs/batch", query, json: { jobs } },
      options,
    );
    return answer.body.items;
  }

  async #submit(body: Pick<RequestSpec, "json" | "upload">, options: SubmitOptions): Promise<Job> {
    const { id, waitMs = 0, traceparent, tracestate, signal, idempotencyKey } = options;
    if (id !== undefined && idempotencyKey !== undefined) {
      throw new KeylaneError(
        "`id` and `idempotencyKey` exclude each other: a submission with an `id` is recognized by it",
      );
    }
    const seconds = Math.ceil(Math.min(waitMs, MAX_HOLD_MS) / 1000);
    const answer = await this.#transport.request<Job>({
      ...body,
      method: id === undefined ? "POST" : "PUT",
      path: id === undefined ? "/v1/jobs" : `/v1/jobs/${encodeURIComponent(id)}`,
      headers: {
        "idempotency-key": id === undefined ? (idempotencyKey ?? randomUUID()) : undefined,
        prefer: seconds > 0 ? `wait=${String(seconds)}` : undefined,
        traceparent,
        tracestate,
      },
      holdMs: seconds * 1000,
      signal,
    });
    return answer.body;
  }

  // Reading

  /** Returns a job. */
  async job(id: string, options: CallOptions = {}): Promise<Job> {
    return this.#read(jobPath(id), options);
  }

  /** Waits until a job has ended, and returns it. Goes on over restarts of the server. */
  async wait(id: string, options: WaitOptions = {}): Promise<Job> {
    const deadline = new Deadline(options.signal);
    const { timeoutMs } = options;
    if (timeoutMs !== undefined) deadline.set(timeoutMs);
    try {
      return await this.#untilEnded(id, deadline.signal);
    } catch (error) {
      if (deadline.isOver) throw new TimeoutError(`job ${id} has not ended in ${String(timeoutMs)} ms`);
      throw error;
    } finally {
      deadline.dispose();
    }
  }

  async #untilEnded(id: string, signal: AbortSignal): Promise<Job> {
    let known: Job | undefined;
    for (;;) {
      // The answer comes when the job is not the known one any more, or the wait is over.
      const hold = { prefer: `wait=${String(MAX_HOLD_MS / 2000)}`, "if-none-match": `W/"${String(known?.version)}"` };
      const answer: Answer<Job | undefined> = await this.#transport.request({
        method: "GET",
        path: jobPath(id),
        headers: known === undefined ? {} : hold,
        holdMs: known === undefined ? 0 : MAX_HOLD_MS / 2,
        retryTimeoutMs: Number.POSITIVE_INFINITY,
        signal,
      });
      known = answer.body ?? known;
      if (known !== undefined && isFinal(known.state)) return known;
    }
  }

  /** Lists jobs, newest first. */
  jobs(filter: JobFilter = {}, options: CallOptions = {}): Pages<Job> {
    return this.#pages("/v1/jobs", filter, options);
  }

  /** Results of a job's ended subtasks, in the order of their numbers, their ends or their keys. */
  results<R = unknown>(id: string, query: ResultsQuery = {}, options: CallOptions = {}): Pages<Outcome<R>> {
    return this.#pages(`${jobPath(id)}/results`, { limit: PAGE_ITEMS, ...query }, options);
  }

  /** Lists the subtasks of a job. */
  subtasks(id: string, filter: SubtaskFilter = {}, options: CallOptions = {}): Pages<Subtask> {
    return this.#pages(`${jobPath(id)}/subtasks`, filter, options);
  }

  /** Returns a subtask of a job. */
  async subtask(id: string, number: number, options: CallOptions = {}): Promise<Subtask> {
    return this.#read(`${jobPath(id)}/subtasks/${String(number)}`, options);
  }

  /** Returns the logs of the attempts at a subtask. */
  async logs(id: string, number: number, options: CallOptions = {}): Promise<AttemptLog[]> {
    const page = await this.#read<Page<AttemptLog>>(`${jobPath(id)}/subtasks/${String(number)}/logs`, options);
    return page.items;
  }

  /** Returns the reasons why a job waits. */
  async explain(id: string, options: CallOptions = {}): Promise<Explained> {
    return this.#read(`${jobPath(id)}/explain`, options);
  }

  /**
   * Events of a job, from its present state until it has ended; or of all jobs, without an end.
   *
   * The stream goes on over broken connections. After an event `reset`, events are missing: read the state again.
   */
  events(id?: string, options: EventsOptions = {}): AsyncGenerator<Event, void, undefined> {
    const path = id === undefined ? "/v1/events" : `${jobPath(id)}/events`;
    return follow(this.#transport, { path, job: id, after: options.after, signal: options.signal });
  }

  // Control

  /** Cancels a job: nothing more of it starts. With the mode `kill` running attempts end, too. */
  async cancel(id: string, request?: CancelRequest, options: ActionOptions = {}): Promise<Job> {
    return this.#steer(id, "cancel", request, options);
  }

  /** Pauses a job: nothing more of it starts until it is resumed. */
  async pause(id: string, options: ActionOptions = {}): Promise<Job> {
    return this.#steer(id, "pause", undefined, options);
  }

  /** Resumes a paused job. */
  async resume(id: string, options: ActionOptions = {}): Promise<Job> {
    return this.#steer(id, "resume", undefined, options);
  }

  /** Retries failed subtasks of an ended job, by default all of them. */
  async retry(id: string, request?: RetryRequest, options: ActionOptions = {}): Promise<Job> {
    return this.#steer(id, "retry", request, options);
  }

  /** Changes the name, the labels or the weight of a job; with `version`, only if the job still has that version. */
  async update(id: string, patch: JobPatch, options: ActionOptions & { version?: number } = {}): Promise<Job> {
    const tag = options.version === undefined ? "*" : `W/"${String(options.version)}"`;
    const spec = { method: "PATCH", path: jobPath(id), json: patch, headers: { "if-match": tag } } as const;
    return (await act<Job>(this.#transport, spec, options)).body;
  }

  /** Removes an ended job with its results. */
  async delete(id: string, options: ActionOptions = {}): Promise<void> {
    await act(this.#transport, { method: "DELETE", path: jobPath(id) }, options);
  }

  // The server

  /** Lists the remote workers that the server has heard of lately. */
  workers(options: CallOptions = {}): Pages<ConnectedWorker> {
    return this.#pages("/v1/workers", {}, options);
  }

  /** Returns figures of the server. */
  async summary(options: CallOptions = {}): Promise<Summary> {
    return this.#read("/v1/summary", options);
  }

  /** Returns the version of the server. */
  async version(options: CallOptions = {}): Promise<Version> {
    return this.#read("/version", options);
  }

  /** Makes a worker, which takes subtasks from this server. */
  worker(options: WorkerOptions = {}): Worker {
    return new Worker(this.#transport, options);
  }

  #pages<T>(path: string, query: NonNullable<RequestSpec["query"]>, { signal }: CallOptions): Pages<T> {
    return new Pages<T>(async (cursor) => {
      const answer = await this.#transport.request<Page<T>>({
        method: "GET",
        path,
        query: { ...query, cursor },
        signal,
      });
      return answer.body;
    });
  }

  async #read<T>(path: string, { signal }: CallOptions): Promise<T> {
    return (await this.#transport.request<T>({ method: "GET", path, signal })).body;
  }

  async #steer(id: string, action: string, json: unknown, options: ActionOptions): Promise<Job> {
    return (await act<Job>(this.#transport, { method: "POST", path: `${jobPath(id)}/${action}`, json }, options)).body;
  }
}

/** The global `fetch`, looked up at each call, so that a replaced one is used. */
function globalFetch(): typeof fetch {
  // Node loads its HTTP parser with the first call, and misses the end of a connection that comes meanwhile.
  void fetch("data:,").catch(() => undefined);
  return (input, init) => fetch(input, init);
}

function jobPath(id: string): string {
  if (id === "") throw new KeylaneError("the id of a job is empty; pass the `id` of a submitted job");
  return `/v1/jobs/${encodeURIComponent(id)}`;
}

function addresses(url: string | readonly string[]): string[] {
  const list = (typeof url === "string" ? url.split(",") : url)
    .map((text) => text.trim())
    .filter((text) => text !== "");
  if (list.length === 0)
    throw new KeylaneError("`url` is empty; pass the address of a server, such as http://127.0.0.1:7420");
  return list.map((text) => {
    const isHttp = URL.canParse(text) && /^https?:$/.test(new URL(text).protocol);
    if (!isHttp)
      throw new KeylaneError(`\`url\` has \`${text}\`, which is no address; it must begin with http:// or https://`);
    return text.replace(/\/+$/, "");
  });
}
