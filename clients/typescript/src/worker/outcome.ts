/** Outcomes of handlers, as the server takes them. */

import type { LeaseEnd } from "../types.js";
import { TaskCancelled, TaskFailure } from "./task.js";

/** Longest result that the server accepts, with room for the rest of the request. */
const MAX_RESULT_BYTES = 16 * 1024 * 1024 - 64 * 1024;
/** Longest error that the server accepts in any encoding, in characters. */
const MAX_ERROR_LENGTH = 8192;
/** The server keeps less of a log. */
export const MAX_LOG_LENGTH = 256 * 1024;

/** End of a lease: JSON of a `LeaseEnd`. */
export interface Report {
  readonly id: string;
  readonly text: string;
}

/** Report of a success. A result that JSON does not have is a failure that another attempt would repeat. */
export function success(id: string, value: unknown, log: string): Report {
  const end = JSON.stringify({ id, ...logOf(log) });
  if (value === undefined) return { id, text: end };
  const result = resultText(value);
  return { id, text: `${end.slice(0, -1)},"result":${result}}` };
}

/** Report of what a handler has thrown. */
export function failure(id: string, thrown: unknown, signal: AbortSignal, log: string): Report {
  if (thrown instanceof TaskFailure) {
    const after = thrown.afterMs === undefined ? {} : { after_ms: Math.max(0, Math.round(thrown.afterMs)) };
    return reportOf({ id, error: cut(thrown.message), retry: thrown.retry, ...after, ...logOf(log) });
  }
  const text = cut(thrown instanceof Error ? `${thrown.name}: ${thrown.message}` : String(thrown));
  const reason = signal.aborted && signal.reason instanceof TaskCancelled ? signal.reason.reason : undefined;
  // Interrupted by a stop of the worker: another one can go on at once.
  if (reason === "worker-stopped") return reportOf({ id, error: text, retry: true, after_ms: 0, ...logOf(log) });
  const stack = thrown instanceof Error ? (thrown.stack ?? "") : "";
  return reportOf({ id, error: text, retry: reason !== "job-cancelled", ...logOf(log + stack) });
}

/** Report of a subtask that was not begun. */
export function release(id: string): Report {
  return reportOf({ id, release: true });
}

function reportOf(end: LeaseEnd): Report {
  return { id: end.id, text: JSON.stringify(end) };
}

function resultText(value: unknown): string {
  if (typeof value === "function" || typeof value === "symbol") {
    throw new TaskFailure(`the result is a ${typeof value}, which JSON does not have`, { retry: false });
  }
  let text: string;
  try {
    text = JSON.stringify(value);
  } catch (cause) {
    throw new TaskFailure(`the result cannot be written as JSON: ${String(cause)}`, { retry: false, cause });
  }
  const bytes = Buffer.byteLength(text);
  if (bytes > MAX_RESULT_BYTES) {
    throw new TaskFailure(`the result has ${String(bytes)} bytes; the server accepts ${String(MAX_RESULT_BYTES)}`, {
      retry: false,
    });
  }
  return text;
}

function logOf(log: string): { log?: string } {
  return log === "" ? {} : { log: log.slice(-MAX_LOG_LENGTH) };
}

function cut(text: string): string {
  return text.length <= MAX_ERROR_LENGTH ? text : `${text.slice(0, MAX_ERROR_LENGTH - 1)}…`;
}
