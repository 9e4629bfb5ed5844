/** Client of the task service of Client, and workers for it. */

export type { ActionOptions, CallOptions } from "./action.js";
export { Client, type EventsOptions, type ClientOptions, type SubmitOptions, type WaitOptions } from "./client.js";
export {
  ApiError,
  ConflictError,
  DamagedDataError,
  ForbiddenError,
  GoneError,
  InvalidRequestError,
  KeylaneError,
  LeaseLostError,
  NotFoundError,
  OverloadedError,
  TimeoutError,
  UnauthorizedError,
  UnavailableError,
  UnreachableError,
  type ErrorCode,
} from "./errors.js";
export type { Keys } from "./keys.js";
export type { Kinds } from "./kinds.js";
export type { Pages } from "./pages.js";
export type { Schedules } from "./schedules.js";
export type { Subtasks } from "./subtask-lines.js";
export type { RetryNotice } from "./transport.js";
export type * from "./types.js";
export { isFinal } from "./types.js";
export { TaskCancelled, TaskFailure, type CancelReason, type Handler, type Task } from "./worker/task.js";
export type { RunOptions, StopOptions, Worker, WorkerOptions, WorkerProblem } from "./worker/worker.js";
