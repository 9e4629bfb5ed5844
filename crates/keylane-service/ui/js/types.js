// What the server says, as types for the checker: the same as in `src/wire`. Nothing here runs.

/**
 * @typedef {"scheduled"|"queued"|"running"|"paused"|"cancelling"|"succeeded"|"failed"|"cancelled"} JobState
 * @typedef {"waiting"|"ready"|"running"|"backing_off"|"succeeded"|"failed"|"cancelled"|"skipped"|"superseded"} SubtaskState
 * @typedef {"open"|"paused"|"stopped"} KeyState
 *
 * @typedef {object} Counts
 * @property {number} total
 * @property {number} waiting
 * @property {number} ready
 * @property {number} running
 * @property {number} backing_off
 * @property {number} succeeded
 * @property {number} failed
 * @property {number} cancelled
 * @property {number} superseded
 *
 * @typedef {object} Because
 * @property {string} reason
 * @property {string} text
 * @property {number} [count]
 * @property {string} [key]
 * @property {number} [position]
 * @property {string} [job]
 * @property {number} [number]
 * @property {string} [since]
 * @property {string} [until]
 *
 * @typedef {object} Job
 * @property {string} id
 * @property {string} kind
 * @property {string} [name]
 * @property {Record<string, string>} labels
 * @property {JobState} state
 * @property {string} [tenant]
 * @property {number} weight
 * @property {"high" | "normal" | "low"} [priority]
 * @property {Counts} counts
 * @property {number} progress
 * @property {string} created_at
 * @property {string} [started_at]
 * @property {string} [ended_at]
 * @property {string} [run_at]
 * @property {string} [expires_at]
 * @property {boolean} [expired]
 * @property {string[]} [after]
 * @property {"success" | "end"} [after_on]
 * @property {string} [after_failed]
 * @property {string} [webhook]
 * @property {number} [eta_ms]
 * @property {KeyChain} [longest_key]
 * @property {number} [useful_workers]
 * @property {Because[]} [waiting_because]
 * @property {unknown} [result]
 * @property {string} [error]
 * @property {number} version
 *
 * @typedef {object} Outcome
 * @property {number} number
 * @property {string[]} [keys]
 * @property {string[]} [shared_keys]
 * @property {SubtaskState} outcome
 * @property {number} attempt
 * @property {string} [started_at]
 * @property {string} ended_at
 * @property {unknown} [result]
 * @property {string} [error]
 * @property {{job: string, number: number}} [superseded_by]
 *
 * @typedef {object} Subtask
 * @property {number} number
 * @property {string[]} keys
 * @property {string[]} [shared_keys]
 * @property {boolean} [barrier]
 * @property {boolean} [latest]
 * @property {SubtaskState} state
 * @property {number} attempts
 * @property {number} max_attempts
 * @property {unknown} payload
 * @property {number} [progress]
 * @property {Outcome} [outcome]
 * @property {Because} [waiting_because]
 *
 * @typedef {object} AttemptLog
 * @property {number} attempt
 * @property {number} fence
 * @property {SubtaskState} state
 * @property {string} started_at
 * @property {string} [ended_at]
 * @property {number} left_out_bytes
 * @property {string} text
 * @property {string} [base64]
 *
 * @typedef {object} KeyHead
 * @property {string} job
 * @property {number} number
 * @property {SubtaskState} state
 * @property {string} since
 * @property {number} age_ms
 * @property {number} attempts
 * @property {boolean} [shared]
 *
 * @typedef {object} KeyView
 * @property {string} key
 * @property {KeyState} state
 * @property {number} length
 * @property {KeyHead} [head]
 * @property {string} [paused_since]
 *
 * @typedef {object} RunningSubtask
 * @property {number} slot
 * @property {string} job
 * @property {number} number
 * @property {string[]} keys
 * @property {string[]} [shared_keys]
 * @property {number} attempt
 * @property {string} since
 * @property {string} [worker]
 *
 * @typedef {object} Decision
 * @property {string} at
 * @property {string} job
 * @property {string} rule
 *
 * @typedef {object} Scheduler
 * @property {number} slots
 * @property {number} busy
 * @property {number} jobs
 * @property {number} active
 * @property {boolean} draining
 * @property {RunningSubtask[]} running
 * @property {Decision[]} decisions
 *
 * @typedef {object} HistorySample
 * @property {string} at
 * @property {number} slots
 * @property {number} busy
 * @property {number} succeeded
 * @property {number} failed
 * @property {number} cancelled
 * @property {number} retried
 * @property {Record<"key" | "stopped" | "backoff" | "scheduled" | "entering" | "paused" | "kind" | "tenant" | "slot", number>} waiting
 * @property {{job: string, kind: string, name?: string, busy: number}[]} [jobs]
 *
 * @typedef {object} History
 * @property {string} from
 * @property {string} to
 * @property {number} interval_ms
 * @property {HistorySample[]} samples
 * @property {Slice[]} [slices]
 *
 * @typedef {object} Slice
 * @property {number} slot
 * @property {string} job
 * @property {number} number
 * @property {string[]} [keys]
 * @property {string[]} [shared_keys]
 * @property {number} attempt
 * @property {string} begin
 * @property {string} [end]
 * @property {string} [outcome]
 * @property {string} rule
 *
 * @typedef {object} Timeline
 * @property {Slice[]} slices
 * @property {number} next
 * @property {number} dropped
 *
 * @typedef {{key: string, subtasks: number}} KeyChain
 *
 * @typedef {object} Summary
 * @property {string} at
 * @property {number} slots
 * @property {number} busy
 * @property {Partial<Record<JobState, number>>} jobs
 * @property {number} waiting
 * @property {number} ready
 * @property {number} backing_off
 * @property {number} succeeded_total
 * @property {number} failed_total
 * @property {number} cancelled_total
 * @property {number} superseded_total
 * @property {number} retried_total
 * @property {number} keys
 * @property {KeyChain} [longest_key]
 * @property {number} oldest_head_ms
 * @property {number} store_bytes
 * @property {string} store
 * @property {number} websockets
 * @property {string} started_at
 * @property {boolean} draining
 *
 * @typedef {object} ServerEvent
 * @property {string} id
 * @property {string} event
 * @property {string} at
 * @property {Job} [job]
 * @property {number} [number]
 * @property {string} [key]
 * @property {string} [error]
 * @property {Summary} [summary]
 * @property {Timeline} [timeline]
 *
 * @typedef {object} Version
 * @property {string} name
 * @property {string} version
 * @property {string | null} [environment]
 * @property {boolean} read_only
 *
 * @typedef {object} Health
 * @property {string} status
 * @property {{name: string, ok: boolean, detail?: string}[]} checks
 *
 * @typedef {object} Kind
 * @property {string} name
 * @property {string} handler
 * @property {number} [concurrency]
 * @property {number} [max_per_key]
 * @property {number} [per_second]
 * @property {number} [per_second_per_key]
 * @property {number} attempts
 * @property {number} [timeout_ms]
 * @property {number} [retention_ms]
 * @property {boolean} [keeps_forever]
 * @property {boolean} split
 * @property {boolean} fan_in
 * @property {number} running
 * @property {boolean} paused
 * @property {string} [pause_reason]
 * @property {string[]} changed settings that operators have changed
 *
 * @typedef {object} Node a server that shares the store
 * @property {string} address
 * @property {string} version
 * @property {boolean} owner
 * @property {boolean} drained whether an operator has drained it
 * @property {string} last_contact
 *
 * @typedef {object} Worker a remote worker
 * @property {string} [name]
 * @property {string} [token]
 * @property {string[]} kinds
 * @property {number} waiting
 * @property {number} leases
 * @property {WorkerLease[]} running
 * @property {string} [last_contact]
 *
 * @typedef {object} WorkerLease
 * @property {string} job
 * @property {string} kind
 * @property {number} number
 * @property {string[]} keys
 * @property {string[]} [shared_keys]
 * @property {number} attempt
 * @property {string} since
 * @property {string} expires_at
 *
 * @typedef {object} Webhook a webhook that is not delivered
 * @property {string} id
 * @property {string} job
 * @property {string} kind
 * @property {string} event
 * @property {string} url
 * @property {"waiting" | "failed"} state
 * @property {number} attempts
 * @property {number} max_attempts
 * @property {string} created_at
 * @property {string} [next_at]
 * @property {string} [failed_at]
 * @property {string} [error]
 *
 * @typedef {object} Tenant
 * @property {string} name
 * @property {boolean} configured
 * @property {number} weight
 * @property {number} min_workers
 * @property {number} [max_workers]
 * @property {number} [per_second]
 * @property {number} [max_waiting]
 * @property {number} jobs
 * @property {number} running
 * @property {number} unfinished
 *
 * @typedef {object} Schedule
 * @property {string} name
 * @property {string} cron
 * @property {string} time_zone
 * @property {boolean} paused
 * @property {string[]} next
 * @property {string} [last_job]
 * @property {string} [last_fired]
 * @property {{at: string, reason: string, text: string}} [last_passed]
 * @property {string} [held_up]
 * @property {number} fired
 * @property {number} passed
 *
 * @typedef {object} AuditEntry
 * @property {number} number
 * @property {string} at
 * @property {string} who
 * @property {string} [from]
 * @property {string} what
 * @property {string} [job]
 * @property {string} [key]
 * @property {string} [schedule]
 * @property {string} [reason]
 * @property {string} outcome
 * @property {string} [problem]
 *
 * @typedef {object} ProblemBody
 * @property {string} type
 * @property {string} title
 * @property {number} status
 * @property {string} detail
 * @property {string} [instance]
 * @property {string} [code]
 * @property {{pointer: string, detail: string}[]} [errors]
 */

/**
 * A damaged row of the store, which is not among the items.
 * @typedef {{id?: string, number: number, problem: string}} DamagedRow
 */

/**
 * @template T
 * @typedef {{items: T[], next_cursor?: string, damaged?: DamagedRow[]}} Page
 */

export {};
