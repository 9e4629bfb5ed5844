/** Errors of the client: refusals of the server, and servers that cannot be reached. */

import type { DamagedRow, FieldError, Problem } from "./types.js";

/** Codes of refusals; later versions of the server may have more. */
export type ErrorCode =
  | "bad-syntax"
  | "unauthorized"
  | "forbidden"
  | "unknown"
  | "method-not-allowed"
  | "too-slow"
  | "conflict"
  | "lease-lost"
  | "gone"
  | "stale"
  | "too-large"
  | "unsupported-media-type"
  | "invalid"
  | "other-request"
  | "upgrade-required"
  | "precondition-required"
  | "backlog-full"
  | "too-many-requests"
  | "internal"
  | "damaged"
  | "store-failed"
  | "unavailable"
  | "disk-full"
  | "not-yet-written"
  | (string & Record<never, never>);

/** Every error of this package. */
export class KeylaneError extends Error {
  override name = "KeylaneError";
}

/** Refusal of the server, from its problem document (RFC 9457). */
export class ApiError extends KeylaneError {
  override name = "ApiError";
  /** HTTP status. */
  readonly status: number;
  /** Code of the problem, for programs. */
  readonly code: ErrorCode;
  /** Short description, the same for all problems with this code. */
  readonly title: string | undefined;
  /** Description of this occurrence, with the remedy. */
  readonly detail: string;
  /** Invalid fields of the request, as JSON pointers. */
  readonly errors: readonly FieldError[];
  /** Id of the request in the server's log. */
  readonly instance: string | undefined;
  /** Time after which the server asked to be tried again, in milliseconds. */
  readonly retryAfterMs: number | undefined;

  constructor(
    problem: Pick<Problem, "status" | "code" | "detail"> & Partial<Problem>,
    request: string,
    retryAfterMs?: number,
  ) {
    super(`${request}: ${describe(problem)}`);
    this.status = problem.status;
    this.code = problem.code;
    this.title = problem.title;
    this.detail = problem.detail;
    this.errors = problem.errors ?? [];
    this.instance = problem.instance;
    this.retryAfterMs = retryAfterMs;
  }

  /** Makes the error of a refusal, of the class for its status. */
  static of(
    problem: Pick<Problem, "status" | "code" | "detail"> & Partial<Problem>,
    request: string,
    retryAfterMs?: number,
  ): ApiError {
    const Class = problem.code === "lease-lost" ? LeaseLostError : (CLASSES[problem.status] ?? ApiError);
    return new Class(problem, request, retryAfterMs);
  }
}

/** The request breaks a rule: 400, 413, 415, 422. `errors` names the fields. */
export class InvalidRequestError extends ApiError {
  override name = "InvalidRequestError";
}

/** The server needs a token, or does not know this one: 401. */
export class UnauthorizedError extends ApiError {
  override name = "UnauthorizedError";
}

/** The token lacks the role for the request: 403. */
export class ForbiddenError extends ApiError {
  override name = "ForbiddenError";
}

/** The item does not exist: 404. */
export class NotFoundError extends ApiError {
  override name = "NotFoundError";
}

/** The item existed and was removed: 410. */
export class GoneError extends ApiError {
  override name = "GoneError";
}

/** The state of the item, or its version, does not permit the action: 409, 412, 428. */
export class ConflictError extends ApiError {
  override name = "ConflictError";
}

/** The lease has ended: another worker may have the subtask. */
export class LeaseLostError extends ConflictError {
  override name = "LeaseLostError";
}

/** The backlog or the connections are full, and stayed so while the client tried: 429. */
export class OverloadedError extends ApiError {
  override name = "OverloadedError";
}

/** The server starts, stops or cannot write, and did so while the client tried: 408, 502, 503, 504, 507. */
export class UnavailableError extends ApiError {
  override name = "UnavailableError";
}

const CLASSES: Partial<Record<number, typeof ApiError>> = {
  400: InvalidRequestError,
  401: UnauthorizedError,
  403: ForbiddenError,
  404: NotFoundError,
  408: UnavailableError,
  409: ConflictError,
  410: GoneError,
  412: ConflictError,
  413: InvalidRequestError,
  415: InvalidRequestError,
  422: InvalidRequestError,
  428: ConflictError,
  429: OverloadedError,
  502: UnavailableError,
  503: UnavailableError,
  504: UnavailableError,
  507: UnavailableError,
};

/** No server could be reached, or the connection broke before its answer. `cause` has the last error. */
export class UnreachableError extends KeylaneError {
  override name = "UnreachableError";
}

/** Some rows of a list are damaged in the server's store; the others were delivered before. */
export class DamagedDataError extends KeylaneError {
  override name = "DamagedDataError";
  readonly rows: readonly DamagedRow[];

  constructor(rows: readonly DamagedRow[]) {
    super(`${String(rows.length)} damaged rows in the store of the server: ${rows[0]?.problem ?? ""}`);
    this.rows = rows;
  }
}

/** The time that the caller has set is over. */
export class TimeoutError extends KeylaneError {
  override name = "TimeoutError";
}

function describe({ detail, code, errors }: Partial<Problem>): string {
  const places = (errors ?? []).filter((error) => detail?.includes(error.detail) !== true);
  const list = places.map((error) => `${error.pointer}: ${error.detail}`).join("; ");
  return `${detail ?? "no detail"} (${code ?? "no code"})${list === "" ? "" : `: ${list}`}`;
}
