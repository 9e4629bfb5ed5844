/** Types of the API, by their names in the server's OpenAPI document. */

import type { components, operations } from "./generated/openapi.js";

type Schemas = components["schemas"];
type QueryOf<Name extends keyof operations> = NonNullable<operations[Name]["parameters"]["query"]>;

export type Job = Schemas["Job"];
export type JobState = Schemas["JobState"];
export type Counts = Schemas["Counts"];
/** Job to submit: with a `payload`, or with `subtasks`. */
export type SubmitJob = Schemas["SubmitJob"];
/** Job whose subtasks are streamed. */
export type SubmitManyJob = Omit<SubmitJob, "payload" | "subtasks" | "key" | "keys" | "shared_keys" | "latest">;
export type SubmitSubtask = Schemas["SubmitSubtask"];
export type BatchItem = Schemas["BatchItem"];
export type JobPatch = Schemas["JobPatch"];
export type CancelRequest = Schemas["CancelRequest"];
export type RetryRequest = Schemas["RetryRequest"];
export type Explained = Schemas["Explained"];
export type Because = Schemas["Because"];
export type Subtask = Schemas["SubtaskView"];
export type SubtaskState = Schemas["SubtaskState"];
export type AttemptLog = Schemas["AttemptLog"];
/** Outcome of a subtask, with a result of type `R`. */
export type Outcome<R = unknown> = Omit<Schemas["OutcomeView"], "result"> & { result?: R };
export type Event = Schemas["Event"];
export type EventKind = Schemas["EventKind"];
export type Key = Schemas["KeyView"];
export type Kind = Schemas["KindView"];
export type KindPatch = Schemas["KindPatch"];
export type KindSetting = Schemas["KindSetting"];
export type Schedule = Schemas["Schedule"];
/** Settings of a schedule; an absent field has its default. */
export type SetSchedule = Pick<Schemas["SetSchedule"], "cron"> & { job: ScheduledJob } & Partial<
    Schemas["SetSchedule"]
  >;
export type ScheduledJob = Schemas["ScheduledJob"];
export type ConnectedWorker = Schemas["WorkerView"];
export type Summary = Schemas["Summary"];
export type Version = Schemas["Version"];
export type Lease = Schemas["Lease"];
export type LeaseEnd = Schemas["LeaseEnd"];
export type ClaimRequest = Schemas["ClaimRequest"];
export type Claim = Schemas["Claim"];
export type CompleteBatch = Schemas["CompleteBatch"];
export type CompleteResults = Schemas["CompleteResults"];
export type HeartbeatResponse = Schemas["HeartbeatResponse"];
export type HeartbeatResults = Schemas["HeartbeatResults"];
export type Problem = Schemas["Problem"];
export type FieldError = Schemas["FieldError"];
export type DamagedRow = Schemas["DamagedRow"];

/** Page of a list. */
export interface Page<T> {
  items: T[];
  next_cursor?: string | null;
  damaged?: DamagedRow[];
}

export type JobFilter = Omit<QueryOf<"get_v1_jobs">, "cursor" | "state"> & { state?: JobState | readonly JobState[] };
export type SubtaskFilter = Omit<QueryOf<"get_v1_jobs_id_subtasks">, "cursor">;
export type ResultsQuery = Omit<QueryOf<"get_v1_jobs_id_results">, "cursor">;
export type KeysQuery = Omit<QueryOf<"get_v1_keys">, "key">;

const FINAL: ReadonlySet<JobState> = new Set(["succeeded", "failed", "cancelled"]);

/** Whether a job with this state has ended. */
export function isFinal(state: JobState): boolean {
  return FINAL.has(state);
}
