/**
 * Requests: which server gets them, and when they are sent again.
 *
 * Every request that this client sends can be repeated: reads, requests with an idempotency key, and
 * requests about leases, which the server judges by the lease's id. So an attempt that failed on the way
 * is repeated, at the next address if there are several, and so is one that the server refused for a
 * passing reason. A refusal of the request itself is not repeated.
 */

import { ApiError, UnreachableError, KeylaneError } from "./errors.js";
import type { Problem } from "./types.js";
import { Deadline, backoff, reasonOf, retryAfterMs, sleep } from "./retry.js";

/** Body that can be sent several times. */
export interface Upload {
  readonly contentType: string;
  /** Starts the body anew, after this failure of an attempt. Throws if that is not possible. */
  open(after: Error | undefined): ReadableStream<Uint8Array>;
  /** Error of the source of the body, which ends the request. */
  readonly failure?: Error | undefined;
}

export type Query = Readonly<Record<string, string | number | boolean | readonly string[] | undefined>>;

export interface RequestSpec {
  readonly method: "GET" | "POST" | "PUT" | "PATCH" | "DELETE";
  readonly path: string;
  readonly query?: Query | undefined;
  readonly headers?: Readonly<Record<string, string | undefined>> | undefined;
  /** Value that the body has as JSON. */
  readonly json?: unknown;
  /** JSON of the body. */
  readonly text?: string | undefined;
  readonly upload?: Upload | undefined;
  readonly signal?: AbortSignal | undefined;
  /** Time for which the server may hold the request back, in milliseconds. */
  readonly holdMs?: number | undefined;
  /** Time for which failed attempts are repeated, in milliseconds, instead of the client's. */
  readonly retryTimeoutMs?: number | undefined;
  /** Whether `signal` counts only until the answer begins, so that what it says is not lost. */
  readonly isAnswerKept?: boolean | undefined;
  /** Called before a failed attempt is repeated, besides the client's own. */
  readonly onRetry?: ((notice: RetryNotice) => void) | undefined;
}

export interface Answer<T> {
  readonly status: number;
  readonly headers: Headers;
  readonly body: T;
}

/** Notice of a failed attempt that is repeated. */
export interface RetryNotice {
  readonly request: string;
  readonly url: string;
  readonly error: Error;
  /** Pause before the next attempt, in milliseconds. */
  readonly pauseMs: number;
}

export interface TransportSettings {
  readonly urls: readonly string[];
  readonly token: string | (() => string | Promise<string>) | undefined;
  readonly fetch: typeof fetch;
  readonly headers: Readonly<Record<string, string>>;
  readonly requestTimeoutMs: number;
  readonly retryTimeoutMs: number;
  readonly onRetry: ((notice: RetryNotice) => void) | undefined;
}

/** Statuses of refusals that pass. */
const PASSING: ReadonlySet<number> = new Set([408, 429, 502, 503, 504, 507]);
/** Statuses after which another server may accept the request. */
const ELSEWHERE: ReadonlySet<number> = new Set([502, 503, 504]);

export class Transport {
  readonly settings: TransportSettings;
  /** Place in `urls` of the server that answered last. */
  #current = 0;

  constructor(settings: TransportSettings) {
    this.settings = settings;
  }

  /** Sends a request, and returns its answer with the JSON of its body. */
  async request<T>(spec: RequestSpec): Promise<Answer<T>> {
    return this.#repeat(spec, async (url, after) => {
      const deadline = new Deadline(spec.signal);
      try {
        const response = await this.#attempt(url, spec, deadline, after);
        if (spec.isAnswerKept === true) deadline.detach();
        const text = await this.#text(response, deadline);
        const body = (text === "" || response.status === 304 ? undefined : JSON.parse(text)) as T;
        return { status: response.status, headers: response.headers, body };
      } finally {
        deadline.dispose();
      }
    });
  }

  /** Sends a request, and returns its answer with a body to be read. `deadline` follows the reading. */
  async stream(spec: RequestSpec): Promise<{ response: Response; deadline: Deadline }> {
    return this.#repeat(spec, async (url, after) => {
      const deadline = new Deadline(spec.signal);
      try {
        const response = await this.#attempt(url, spec, deadline, after);
        deadline.pause();
        return { response, deadline };
      } catch (error) {
        deadline.dispose();
        throw error;
      }
    });
  }

  async #repeat<T>(spec: RequestSpec, attempt: (url: string, after: Error | undefined) => Promise<T>): Promise<T> {
    const { urls, retryTimeoutMs, onRetry } = this.settings;
    const end = performance.now() + (spec.retryTimeoutMs ?? retryTimeoutMs);
    let round = new Round();
    let last: Error | undefined;
    for (let failures = 0; ; failures += 1) {
      const place = this.#current;
      const url = urls[place % urls.length] ?? "";
      try {
        return await attempt(url, last);
      } catch (error) {
        const failed = this.#failure(error, spec, url);
        if (failed === undefined) throw error;
        if (spec.upload?.failure !== undefined) throw spec.upload.failure;
        last = failed;
        round.add(failed);
        if (isElsewhere(failed) && this.#current === place) this.#current = (place + 1) % urls.length;
        // All servers are asked before any pause.
        const isRound = !isElsewhere(failed) || round.size >= urls.length;
        const pauseMs = isRound ? Math.max(backoff(failures), round.retryAfterMs) : 0;
        if (performance.now() + pauseMs >= end) throw failed;
        const notice = { request: nameOf(spec), url, error: failed, pauseMs };
        onRetry?.(notice);
        spec.onRetry?.(notice);
        if (isRound) {
          round = new Round();
          await sleep(pauseMs, spec.signal);
        }
      }
    }
  }

  /** Returns the error of an attempt that can be repeated, or `undefined` for one that cannot. */
  #failure(error: unknown, spec: RequestSpec, url: string): Error | undefined {
    if (spec.signal?.aborted === true) throw reasonOf(spec.signal);
    if (error instanceof ApiError) return PASSING.has(error.status) ? error : undefined;
    if (error instanceof KeylaneError) return undefined;
    const why = error instanceof Error && error.cause instanceof Error ? error.cause.message : String(error);
    return new UnreachableError(`${nameOf(spec)}: no answer from ${url}: ${why}`, { cause: error });
  }

  async #attempt(url: string, spec: RequestSpec, deadline: Deadline, after?: Error): Promise<Response> {
    const { requestTimeoutMs } = this.settings;
    const { upload } = spec;
    const body = upload === undefined ? (spec.text ?? bodyOf(spec.json)) : upload.open(after);
    // An upload takes as long as it takes; the server ends one that pauses for too long.
    if (upload === undefined) deadline.set(requestTimeoutMs + (spec.holdMs ?? 0));
    const response = await this.settings.fetch(addressOf(url, spec), {
      method: spec.method,
      headers: await this.#headers(spec),
      signal: deadline.signal,
      redirect: "manual",
      ...(body === undefined ? {} : { body }),
      ...(upload === undefined ? {} : { duplex: "half" }),
    });
    deadline.set(requestTimeoutMs);
    if (response.status >= 300 && response.status !== 304) throw await refusalOf(response, nameOf(spec));
    return response;
  }

  /** Reads a body, which may be long: only a pause in it ends the attempt. */
  async #text(response: Response, deadline: Deadline): Promise<string> {
    if (response.body === null) return "";
    const decoder = new TextDecoder();
    let text = "";
    for await (const piece of response.body as AsyncIterable<Uint8Array>) {
      deadline.set(this.settings.requestTimeoutMs);
      text += decoder.decode(piece, { stream: true });
    }
    return text + decoder.decode();
  }

  async #headers(spec: RequestSpec): Promise<Headers> {
    const headers = new Headers(this.settings.headers);
    const { token } = this.settings;
    const secret = typeof token === "function" ? await token() : token;
    if (secret !== undefined) headers.set("authorization", `Bearer ${secret}`);
    if (spec.upload !== undefined) headers.set("content-type", spec.upload.contentType);
    else if (spec.json !== undefined || spec.text !== undefined) headers.set("content-type", "application/json");
    for (const [name, value] of Object.entries(spec.headers ?? {})) {
      if (value !== undefined) headers.set(name, value);
    }
    return headers;
  }
}

/** Attempts since the last pause: at most one for each server. */
class Round {
  size = 0;
  #retryAfterMs: number | undefined;

  add(failed: Error): void {
    this.size += 1;
    const asked = failed instanceof ApiError ? failed.retryAfterMs : undefined;
    if (asked !== undefined) this.#retryAfterMs = Math.min(asked, this.#retryAfterMs ?? asked);
  }

  /** Shortest time that a server has asked for. */
  get retryAfterMs(): number {
    return this.#retryAfterMs ?? 0;
  }
}

function isElsewhere(failed: Error): boolean {
  return failed instanceof UnreachableError || (failed instanceof ApiError && ELSEWHERE.has(failed.status));
}

function bodyOf(json: unknown): string | undefined {
  return json === undefined ? undefined : JSON.stringify(json);
}

function nameOf(spec: RequestSpec): string {
  return `${spec.method} ${spec.path}`;
}

function addressOf(url: string, { path, query }: RequestSpec): string {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(query ?? {})) {
    if (value === undefined || (Array.isArray(value) && value.length === 0)) continue;
    search.set(name, Array.isArray(value) ? value.join(",") : String(value));
  }
  const text = search.toString();
  return `${url}${path}${text === "" ? "" : `?${text}`}`;
}

/** Reads the problem document of a refusal, or makes one for an answer of something before the server. */
async function refusalOf(response: Response, request: string): Promise<ApiError> {
  const text = await response.text();
  const after = retryAfterMs(response.headers.get("retry-after"));
  const { status } = response;
  const problem = parse(text);
  if (typeof problem?.code === "string" && typeof problem.detail === "string") {
    return ApiError.of({ ...problem, code: problem.code, detail: problem.detail, status }, request, after);
  }
  const detail = text === "" ? response.statusText : text.slice(0, 300);
  return ApiError.of({ status, code: `http-${String(status)}`, detail }, request, after);
}

function parse(text: string): Partial<Problem> | undefined {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === "object" && value !== null ? value : undefined;
  } catch {
    return undefined;
  }
}
