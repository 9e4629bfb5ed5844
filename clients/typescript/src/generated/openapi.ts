// Generated from the server's OpenAPI document by `npm run types`; do not edit.

export interface paths {
    "/livez": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Liveness */
        get: operations["get_livez"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/metrics": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Metrics for Prometheus */
        get: operations["get_metrics"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/openapi.json": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** This document */
        get: operations["get_openapi_json"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/problems/{code}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** What a problem's type means */
        get: operations["get_problems_code"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/readyz": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Readiness */
        get: operations["get_readyz"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/audit": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Audit log, newest first */
        get: operations["get_v1_audit"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/backup": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** A copy of the store, for administrators */
        post: operations["post_v1_backup"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/events": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** All events, as server-sent events */
        get: operations["get_v1_events"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/history": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Past of the service, for charts */
        get: operations["get_v1_history"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/jobs": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Jobs, newest first */
        get: operations["get_v1_jobs"];
        put?: never;
        /** Submit a job; answered when it is on the disk */
        post: operations["post_v1_jobs"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/jobs/batch": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Submit several jobs: all or none, unless `atomic` is false; answered when they are on the disk */
        post: operations["post_v1_jobs_batch"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/jobs/{id}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** A job */
        get: operations["get_v1_jobs_id"];
        /** Submit a job with an identifier of the client's, valid in place of the server's */
        put: operations["put_v1_jobs_id"];
        post?: never;
        /** Remove an ended job */
        delete: operations["delete_v1_jobs_id"];
        options?: never;
        head?: never;
        /** Change a job's name, labels or weight */
        patch: operations["patch_v1_jobs_id"];
        trace?: never;
    };
    "/v1/jobs/{id}/cancel": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Cancel a job */
        post: operations["post_v1_jobs_id_cancel"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/jobs/{id}/events": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Events of a job, as server-sent events */
        get: operations["get_v1_jobs_id_events"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/jobs/{id}/explain": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Reasons why a job's subtasks wait */
        get: operations["get_v1_jobs_id_explain"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/jobs/{id}/pause": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Pause a job */
        post: operations["post_v1_jobs_id_pause"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/jobs/{id}/results": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Outcomes of its subtasks */
        get: operations["get_v1_jobs_id_results"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/jobs/{id}/resume": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Resume a job */
        post: operations["post_v1_jobs_id_resume"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/jobs/{id}/retry": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Retry subtasks of an ended job */
        post: operations["post_v1_jobs_id_retry"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/jobs/{id}/subtasks": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Subtasks of a job */
        get: operations["get_v1_jobs_id_subtasks"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/jobs/{id}/subtasks/{number}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** A subtask of a job */
        get: operations["get_v1_jobs_id_subtasks_number"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/jobs/{id}/subtasks/{number}/logs": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Logs of a subtask's attempts; `split` and `fan-in` name those steps */
        get: operations["get_v1_jobs_id_subtasks_number_logs"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/keys": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Keys with unfinished subtasks */
        get: operations["get_v1_keys"];
        put?: never;
        /** `what` is `pause`, `resume`, `retry-head` or `skip-head`; for keys that do not fit into a path */
        post: operations["post_v1_keys"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/keys/{key}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** A key */
        get: operations["get_v1_keys_key"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/keys/{key}/{what}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** `pause`, `resume`, `retry-head` or `skip-head` */
        post: operations["post_v1_keys_key_what"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/kinds": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Kinds of jobs */
        get: operations["get_v1_kinds"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/kinds/{kind}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** A kind of jobs */
        get: operations["get_v1_kinds_kind"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        /** Change limits of a kind, until they are reset */
        patch: operations["patch_v1_kinds_kind"];
        trace?: never;
    };
    "/v1/kinds/{kind}/pause": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Pause a kind: nothing of it starts */
        post: operations["post_v1_kinds_kind_pause"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/kinds/{kind}/reset": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Reset changed limits of a kind */
        post: operations["post_v1_kinds_kind_reset"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/kinds/{kind}/resume": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Resume a kind */
        post: operations["post_v1_kinds_kind_resume"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/leases": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Claim subtasks */
        post: operations["post_v1_leases"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/leases/complete": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Report the ends of leases, each by itself, and possibly claim the next subtasks */
        post: operations["post_v1_leases_complete"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/leases/heartbeat": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Extend leases, each by itself */
        post: operations["post_v1_leases_heartbeat"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/leases/{id}/complete": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Report a success */
        post: operations["post_v1_leases_id_complete"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/leases/{id}/fail": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Report a failure */
        post: operations["post_v1_leases_id_fail"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/leases/{id}/heartbeat": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Extend a lease */
        post: operations["post_v1_leases_id_heartbeat"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/nodes": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Servers that share the store in a database */
        get: operations["get_v1_nodes"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/nodes/drain": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Drain a server: it takes no more subtasks, and another one becomes the owner */
        post: operations["post_v1_nodes_drain"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/nodes/resume": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Resume a drained server */
        post: operations["post_v1_nodes_resume"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/scheduler": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Allocation of slots */
        get: operations["get_v1_scheduler"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/schedules": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Schedules, by name */
        get: operations["get_v1_schedules"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/schedules/{name}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** A schedule */
        get: operations["get_v1_schedules_name"];
        /** Create or replace a schedule */
        put: operations["put_v1_schedules_name"];
        post?: never;
        /** Remove a schedule; its jobs stay */
        delete: operations["delete_v1_schedules_name"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/schedules/{name}/pause": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Pause a schedule */
        post: operations["post_v1_schedules_name_pause"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/schedules/{name}/resume": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Resume a schedule */
        post: operations["post_v1_schedules_name_resume"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/schedules/{name}/run": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Run a schedule now */
        post: operations["post_v1_schedules_name_run"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/summary": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Counts of the server */
        get: operations["get_v1_summary"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/tenants": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Tenants that are configured or have unfinished jobs */
        get: operations["get_v1_tenants"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/timeline": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Timeline of attempts */
        get: operations["get_v1_timeline"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/webhooks": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Webhooks that are not delivered, those of the newest jobs first */
        get: operations["get_v1_webhooks"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/webhooks/{webhook}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post?: never;
        /** Remove a webhook */
        delete: operations["delete_v1_webhooks_webhook"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/webhooks/{webhook}/retry": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Send a webhook now, with all its attempts again */
        post: operations["post_v1_webhooks_webhook_retry"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/workers": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Remote workers that have leases, wait for some, or were heard of lately, in the order of their first requests */
        get: operations["get_v1_workers"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/ws": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Submit and follow over a WebSocket, in order */
        get: operations["get_v1_ws"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/version": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Version of the server */
        get: operations["get_version"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
}
export type webhooks = Record<string, never>;
export interface components {
    schemas: {
        /**
         * @description End that other jobs must have before a job begins.
         * @enum {string}
         */
        AfterCondition: "success" | "end";
        /**
         * @description Log of an attempt for humans, such as a command's standard error: an item of
         *     `GET /v1/jobs/{id}/subtasks/{number}/logs`.
         */
        AttemptLog: {
            /**
             * Format: int32
             * @description Number of the attempt, from 1; a reopened job starts again at 1.
             */
            attempt: number;
            /** @description Exact bytes of the output, if it is not UTF-8. */
            base64?: string | null;
            ended_at?: components["schemas"]["Timestamp"] | null;
            /**
             * Format: int64
             * @description Fencing token: higher than that of any earlier attempt.
             */
            fence: number;
            /**
             * Format: int64
             * @description Number of bytes of output before `text`.
             */
            left_out_bytes: number;
            /** @description Start of the attempt. */
            started_at: components["schemas"]["Timestamp"];
            /** @description `running`, or the outcome: `succeeded`, `failed` or `cancelled`. */
            state: components["schemas"]["SubtaskState"];
            /** @description Output: all of it, or its end. Bytes that are not UTF-8 are replaced. */
            text: string;
        };
        /** @description Command of an operator, done or refused: an entry of `GET /v1/audit`. */
        AuditEntry: {
            /** @description Time of the command. */
            at: components["schemas"]["Timestamp"];
            /** @description Client address: the address of the proxy, if there is one. */
            from?: string | null;
            /** @description Id of the target job, or of the job that the command made. */
            job?: string | null;
            /** @description Target key. */
            key?: string | null;
            /** @description Target kind. */
            kind?: string | null;
            /**
             * Format: int64
             * @description Number of the entry: one more than that of the previous entry, and never reused. Only the
             *     oldest entries are removed, so a copier of the log can detect missing entries.
             */
            number: number;
            /** @description Outcome of the command. */
            outcome: components["schemas"]["AuditOutcome"];
            /** @description Parameters of the command, without payloads. */
            parameters?: Record<string, never>;
            /** @description `code` of the problem with which the command was refused. */
            problem?: string | null;
            /** @description Reason given by the operator. */
            reason?: string | null;
            /** @description Target schedule. */
            schedule?: string | null;
            /**
             * @description Command: `job.cancel`, `job.pause`, `job.resume`, `job.retry`, `job.patch`, `job.purge`,
             *     `key.pause`, `key.resume`, `key.retry-head`, `key.skip-head`, `schedule.put`,
             *     `schedule.delete`, `schedule.pause`, `schedule.resume`, `schedule.run`, `kind.pause`, `kind.resume`, `kind.patch`,
             *     `kind.reset` or `store.backup`; `key.steer` if a
             *     command on a key was refused before it was parsed.
             */
            what: string;
            /**
             * @description Name of the token; `anyone` if the server needs none, `in-process` for the program that
             *     embeds the service.
             */
            who: string;
        };
        /**
         * @description Outcome of an operator's command.
         * @enum {string}
         */
        AuditOutcome: "done" | "unchanged" | "refused" | "damaged";
        /** @description Result of a batch. */
        Batch: {
            /** @description One item per job, in the order of the request. */
            items: components["schemas"]["BatchItem"][];
        };
        /** @description Result of one job of a batch. */
        BatchItem: {
            job?: components["schemas"]["Job"] | null;
            problem?: components["schemas"]["Problem"] | null;
            /**
             * Format: int32
             * @description HTTP status as for a single submission: 202 if the job was accepted.
             */
            status: number;
        };
        /** @description Reason for which subtasks wait. */
        Because: {
            /**
             * Format: int64
             * @description Number of the job's subtasks that wait for this reason, in answers about a job.
             */
            count?: number | null;
            /** @description Id of the job that it waits for. */
            job?: string | null;
            /** @description Key that blocks the subtask. */
            key?: string | null;
            /**
             * Format: int32
             * @description Number of the subtask that it waits for.
             */
            number?: number | null;
            /**
             * Format: int64
             * @description Position in the key's lane, from 1 for the next one.
             */
            position?: number | null;
            /**
             * @description Reason code: `key_order`, `starting`, `no_slot`, `not_admitted`, `kind_at_limit`, `kind_paused`,
             *     `no_worker`, `kind_rate_limited`, `backing_off`, `job_paused`, `key_paused`, `key_stopped`,
             *     `scheduled`, `after_job`, `split`, `fan_in`, `disk_full`, `draining`, `entering`, `no_kind`, `damaged`,
             *     `behind_damaged`, `barrier`, `priority`, `tenant_at_limit`, `tenant_rate_limited`. Later versions may add codes.
             */
            reason: string;
            since?: components["schemas"]["Timestamp"] | null;
            /** @description Reason in a sentence, with the remedy where there is one. */
            text: string;
            until?: components["schemas"]["Timestamp"] | null;
        };
        /**
         * @description Mode of a cancellation.
         * @enum {string}
         */
        CancelMode: "graceful" | "kill";
        /** @description `POST /v1/jobs/{id}/cancel`. */
        CancelRequest: {
            /** @description Mode of the cancellation. */
            mode?: components["schemas"]["CancelMode"];
            /** @description Reason, for the audit log. */
            reason?: string;
        };
        /** @description Response to a request for subtasks; may be empty. */
        Claim: {
            /** @description One lease per subtask. */
            leases: components["schemas"]["Lease"][];
        };
        /** @description Request of a remote worker for subtasks: `POST /v1/leases`. */
        ClaimRequest: {
            /** @description Kinds that the worker can handle; each must be for remote workers. */
            kinds: string[];
            /**
             * Format: int32
             * @description Maximum number of subtasks; default 1.
             */
            max?: number;
            /**
             * Format: int64
             * @description Time to wait for a subtask, in milliseconds; default 0, maximum one minute.
             */
            wait_ms?: number;
            /** @description Name of the worker for humans. */
            worker?: string;
        };
        /** @description `POST /v1/leases/complete`: ends of leases, and possibly a request for the next ones. */
        CompleteBatch: {
            /** @description Subtasks to lease after these ends. The response then waits for them. */
            claim?: components["schemas"]["ClaimRequest"];
            /** @description From 1 to 1000 leases with their results. Each counts by itself. */
            leases: components["schemas"]["LeaseEnd"][];
        };
        /** @description `POST /v1/leases/{id}/complete`. */
        CompleteRequest: {
            /** @description Log for humans: its end is kept, up to the kind's limit. */
            log?: string;
            /** @description Result: any JSON. */
            result?: unknown;
        };
        /** @description Result of the end of one lease. */
        CompleteResult: {
            problem?: components["schemas"]["Problem"] | null;
            /**
             * Format: int32
             * @description HTTP status as for a single lease: 204 if the end counts, and is on the disk.
             */
            status: number;
        };
        /** @description Response to ends of several leases. */
        CompleteResults: {
            claim_problem?: components["schemas"]["Problem"] | null;
            /** @description One item per lease, in the order of the request. */
            items: components["schemas"]["CompleteResult"][];
            /** @description Leases for the claim of the request, if it had one; may be empty. */
            leases?: components["schemas"]["Lease"][] | null;
        };
        /** @description Number of a job's subtasks by state. An end counts once it is on disk. */
        Counts: {
            /**
             * Format: int64
             * @description Subtasks that wait for their next attempt.
             */
            backing_off: number;
            /**
             * Format: int64
             * @description Subtasks that were cancelled or skipped.
             */
            cancelled: number;
            /**
             * Format: int64
             * @description Subtasks that failed on their last attempt.
             */
            failed: number;
            /**
             * Format: int64
             * @description Subtasks that wait for a slot.
             */
            ready: number;
            /**
             * Format: int64
             * @description Subtasks that run, or have ended and are not on the disk yet.
             */
            running: number;
            /**
             * Format: int64
             * @description Subtasks that succeeded.
             */
            succeeded: number;
            /**
             * Format: int64
             * @description Subtasks that were replaced by later ones of their keys.
             */
            superseded?: number;
            /**
             * Format: int64
             * @description Number of all subtasks, without those that a split step has not made yet.
             */
            total: number;
            /**
             * Format: int64
             * @description Subtasks that wait for a key or a time, or are stopped or paused.
             */
            waiting: number;
        };
        /** @description Damaged row of the store: its content is not the content that was written. */
        DamagedRow: {
            /** @description Id of the job, as far as the row is readable. */
            id?: string | null;
            /**
             * Format: int64
             * @description Number of the job in the store.
             */
            number: number;
            /** @description Description of the damage, and the remedy. */
            problem: string;
        };
        /** @description Assignment of a free slot to a job. */
        Decision: {
            /** @description Time of the decision. */
            at: components["schemas"]["Timestamp"];
            /** @description Id of the job. */
            job: string;
            /** @description Rule: `keep`, `aged`, `admit` or `least`. */
            rule: string;
        };
        /** @description Event: the `data:` of `GET /v1/events` and `GET /v1/jobs/{id}/events`. */
        Event: {
            /** @description Time of the event. */
            at: components["schemas"]["Timestamp"];
            /** @description Error message. */
            error?: string | null;
            /** @description Type of the event. */
            event: components["schemas"]["EventKind"];
            /** @description Position among all events, for `Last-Event-ID`. */
            id: string;
            job?: components["schemas"]["Job"] | null;
            /** @description The key. */
            key?: string | null;
            /**
             * Format: int32
             * @description Number of the subtask in the job.
             */
            number?: number | null;
            /** @description The schedule. */
            schedule?: string | null;
            summary?: components["schemas"]["Summary"] | null;
            superseded_by?: components["schemas"]["SubtaskRef"] | null;
            timeline?: components["schemas"]["Timeline"] | null;
        };
        /**
         * @description Type of an event: the `event:` line of the stream.
         * @enum {string}
         */
        EventKind: "job_accepted" | "job_changed" | "job_ended" | "job_purged" | "subtask_failed" | "subtask_superseded" | "key_changed" | "schedule_fired" | "schedule_passed" | "schedule_changed" | "summary" | "timeline" | "reset";
        /** @description Reasons why a job waits. */
        Explained: {
            /** @description Reasons, most frequent first. */
            because: components["schemas"]["Because"][];
            longest_key?: components["schemas"]["KeyChain"] | null;
            /**
             * Format: int64
             * @description As in the job.
             */
            useful_workers?: number | null;
        };
        /** @description `POST /v1/leases/{id}/fail`. */
        FailRequest: {
            /**
             * Format: int64
             * @description Minimum delay before the retry, in milliseconds; default: the kind's backoff.
             */
            after_ms?: number;
            /** @description Error message. */
            error: string;
            /** @description Log for humans, in addition to the error: its end is kept, up to the kind's limit. */
            log?: string;
            /** @description Whether a retry may help; default true. */
            retry?: boolean;
        };
        /** @description Invalid field of a request. */
        FieldError: {
            /** @description Description of the error. */
            detail: string;
            /** @description JSON pointer (RFC 6901) of the field; for NDJSON, `line 7` and a pointer. */
            pointer: string;
        };
        /** @description Health of the server: `GET /readyz`. */
        Health: {
            /** @description Results of the checks. */
            checks: components["schemas"]["HealthCheck"][];
            /** @description `ok`, or `unavailable`. */
            status: string;
        };
        /** @description Result of one check. */
        HealthCheck: {
            /** @description Description of the failure, and the remedy. */
            detail?: string | null;
            /** @description Name of the check. */
            name: string;
            /** @description Whether the check passed. */
            ok: boolean;
        };
        /** @description `POST /v1/leases/heartbeat`. */
        HeartbeatBatch: {
            /** @description Ids of the leases to extend: from 1 to 1000. */
            leases: string[];
            /** @description Progress of attempts, from 0 to 1, by the ids of their leases. It counts for leases in `leases` only. */
            progress?: {
                [key: string]: number;
            };
        };
        /** @description `POST /v1/leases/{id}/heartbeat`. */
        HeartbeatRequest: {
            /** @description Progress of the attempt, from 0 to 1. */
            progress?: number;
        };
        /** @description Response to a heartbeat. */
        HeartbeatResponse: {
            /** @description Always `false`. The heartbeat of a lease whose job was killed has the status 409, `lease-lost`. */
            cancel: boolean;
            /** @description New end of the lease, within the job's timeout and the kind's maximum duration. */
            expires_at: components["schemas"]["Timestamp"];
            /**
             * Format: int64
             * @description Time until then when the response was made, in milliseconds.
             */
            expires_in_ms?: number;
        };
        /** @description Result of the heartbeat of one lease. */
        HeartbeatResult: {
            /** @description Always `false`. The heartbeat of a lease whose job was killed has the status 409, `lease-lost`. */
            cancel?: boolean | null;
            expires_at?: components["schemas"]["Timestamp"] | null;
            /**
             * Format: int64
             * @description Time until then when the response was made, in milliseconds.
             */
            expires_in_ms?: number | null;
            problem?: components["schemas"]["Problem"] | null;
            /**
             * Format: int32
             * @description HTTP status as for a single heartbeat: 200 if the lease was extended.
             */
            status: number;
        };
        /** @description Response to heartbeats of several leases. */
        HeartbeatResults: {
            /** @description One item per lease, in the order of the request. */
            items: components["schemas"]["HeartbeatResult"][];
        };
        /** @description Past of the service: `GET /v1/history`. Intervals in which the server did not run are absent. */
        History: {
            /** @description Begin of the period. */
            from: components["schemas"]["Timestamp"];
            /**
             * Format: int64
             * @description Length of an interval: 10 seconds in the last hour, a minute in the last 24 hours, 15 minutes before.
             */
            interval_ms: number;
            /** @description Intervals, the earliest first. The last ones may be incomplete. */
            samples: components["schemas"]["HistorySample"][];
            /**
             * @description Longest attempts that ended in the period, the earliest end first; with `include=slices`. Absent before the last
             *     24 hours.
             */
            slices?: components["schemas"]["Slice"][];
            /** @description End of the period. */
            to: components["schemas"]["Timestamp"];
        };
        /** @description State of the service in an interval. */
        HistorySample: {
            /** @description Begin of the interval. */
            at: components["schemas"]["Timestamp"];
            /**
             * Format: double
             * @description Average number of running subtasks.
             */
            busy: number;
            /**
             * Format: int64
             * @description Subtasks that were cancelled, skipped or replaced.
             */
            cancelled: number;
            /**
             * Format: int64
             * @description Subtasks that failed on their last attempt.
             */
            failed: number;
            /** @description Jobs with the most running subtasks, at most 8. */
            jobs?: components["schemas"]["HistoryShare"][];
            /**
             * Format: int64
             * @description Failed attempts that were followed by another.
             */
            retried: number;
            /**
             * Format: int64
             * @description Maximum number of running subtasks.
             */
            slots: number;
            /**
             * Format: int64
             * @description Subtasks that succeeded.
             */
            succeeded: number;
            /** @description Subtasks that waited, by reason. */
            waiting: components["schemas"]["HistoryWaits"];
        };
        /** @description Share of a job in the slots. */
        HistoryShare: {
            /**
             * Format: double
             * @description Average number of its running subtasks.
             */
            busy: number;
            /** @description Id of the job. */
            job: string;
            /** @description Kind of the job. */
            kind: string;
            /** @description Name of the job, cut to 64 bytes. */
            name?: string | null;
        };
        /** @description Average numbers of waiting subtasks by reason. */
        HistoryWaits: {
            /**
             * Format: double
             * @description For their next attempt.
             */
            backoff: number;
            /**
             * Format: double
             * @description For their entry into the order.
             */
            entering: number;
            /**
             * Format: double
             * @description For earlier subtasks of a key, the end of a pause of a key, or the rate of a key.
             */
            key: number;
            /**
             * Format: double
             * @description For the limit or the rate of their kind.
             */
            kind: number;
            /**
             * Format: double
             * @description For the end of a pause of their job or kind.
             */
            paused: number;
            /**
             * Format: double
             * @description For the start time of their job, or the end of another job.
             */
            scheduled: number;
            /**
             * Format: double
             * @description For a slot only.
             */
            slot: number;
            /**
             * Format: double
             * @description For an operator: they failed on their last attempt and block their keys.
             */
            stopped: number;
            /**
             * Format: double
             * @description For the limit or the rate of their tenant.
             */
            tenant: number;
        };
        /** @description A job. */
        Job: {
            /** @description Jobs that had to end, or have to end, before it enters the order. */
            after?: string[];
            /** @description Job of `after` that did not succeed, for which this one was cancelled. */
            after_failed?: string | null;
            after_on?: components["schemas"]["AfterCondition"] | null;
            /** @description Id given by the client, if it was submitted with one. */
            client_id?: string | null;
            /** @description Number of its subtasks by state. */
            counts: components["schemas"]["Counts"];
            /** @description Time of its acceptance. */
            created_at: components["schemas"]["Timestamp"];
            ended_at?: components["schemas"]["Timestamp"] | null;
            /** @description Error of the first failed subtask. */
            error?: string | null;
            /**
             * Format: int64
             * @description Estimated time to its end at its present speed, in milliseconds. Absent before the first
             *     subtask has ended, and while subtasks wait for an operator, a worker or disk space.
             */
            eta_ms?: number | null;
            /** @description Whether this time came before the end of the job. */
            expired?: boolean;
            expires_at?: components["schemas"]["Timestamp"] | null;
            /** @description Id of the job: `job_` and 32 hexadecimal digits. */
            id: string;
            /** @description Kind of the job. */
            kind: string;
            /** @description Labels by which the job can be found. */
            labels: {
                [key: string]: string;
            };
            longest_key?: components["schemas"]["KeyChain"] | null;
            /**
             * Format: int32
             * @description Number of its subtasks that may run with a key at the same time, if they run in no order.
             */
            max_per_key?: number | null;
            /** @description Name for humans. */
            name?: string | null;
            /** @description Priority among the jobs of its tenant. */
            priority?: components["schemas"]["JobPriority"];
            /**
             * Format: double
             * @description Fraction of its subtasks that has ended, from 0 to 1; 1 for a job without subtasks.
             */
            progress: number;
            /** @description Result of its fan-in step. */
            result?: unknown;
            run_at?: components["schemas"]["Timestamp"] | null;
            started_at?: components["schemas"]["Timestamp"] | null;
            /** @description State of the job. */
            state: components["schemas"]["JobState"];
            /** @description Tenant of the job. */
            tenant?: string;
            /** @description `traceparent` of its submission (W3C Trace Context). */
            traceparent?: string | null;
            /** @description `tracestate` of its submission. */
            tracestate?: string | null;
            /**
             * Format: int64
             * @description Number of workers beyond which more do not end the job earlier, if all subtasks take equally long: its unfinished
             *     subtasks divided by this chain.
             */
            useful_workers?: number | null;
            /**
             * Format: int64
             * @description Version, which grows with every change of the job, also over restarts and when the system's
             *     clock is set back: its `ETag`.
             */
            version: number;
            /** @description Reasons for which unfinished subtasks do not run, the most frequent first. */
            waiting_because?: components["schemas"]["Because"][];
            /** @description Address to which its end is sent. */
            webhook?: string | null;
            /**
             * Format: int32
             * @description Weight of its claim to spare workers.
             */
            weight: number;
        };
        /** @description Changes to a job: `PATCH /v1/jobs/{id}`. */
        JobPatch: {
            /** @description New labels, which replace all labels. */
            labels?: {
                [key: string]: string;
            };
            /** @description Name for humans. */
            name?: string;
            /**
             * Format: int64
             * @description Weight of the job's claim to spare workers.
             */
            weight?: number;
        };
        /**
         * @description Priority of a job among the jobs of its tenant.
         * @enum {string}
         */
        JobPriority: "high" | "normal" | "low";
        /**
         * @description State of a job.
         * @enum {string}
         */
        JobState: "scheduled" | "queued" | "running" | "paused" | "cancelling" | "succeeded" | "failed" | "cancelled";
        /** @description Unfinished subtasks that run one after another because they have a key. */
        KeyChain: {
            /** @description The key. */
            key: string;
            /**
             * Format: int64
             * @description Number of the subtasks, those of all jobs included.
             */
            subtasks: number;
        };
        /** @description First unfinished subtask of a key: the others wait for it. */
        KeyHead: {
            /**
             * Format: int64
             * @description Time for which it has been the head, in milliseconds.
             */
            age_ms: number;
            /**
             * Format: int32
             * @description Number of started attempts.
             */
            attempts: number;
            /** @description Id of its job. */
            job: string;
            /**
             * Format: int32
             * @description Its number in the job.
             */
            number: number;
            /** @description Whether it shares the key: others that share it may run at the same time. */
            shared?: boolean;
            /** @description Time at which it became the head. */
            since: components["schemas"]["Timestamp"];
            /** @description State of the subtask. */
            state: components["schemas"]["SubtaskState"];
        };
        /**
         * @description State of a key.
         * @enum {string}
         */
        KeyState: "open" | "paused" | "stopped";
        /** @description Key that is paused or has unfinished subtasks. */
        KeyView: {
            head?: components["schemas"]["KeyHead"] | null;
            /** @description The key. */
            key: string;
            /**
             * Format: int64
             * @description Number of its unfinished subtasks.
             */
            length: number;
            paused_since?: components["schemas"]["Timestamp"] | null;
            /** @description State of the key. */
            state: components["schemas"]["KeyState"];
        };
        /** @description Changes of a kind: `PATCH /v1/kinds/{name}`. Absent settings stay as they are. */
        KindPatch: {
            /**
             * Format: int64
             * @description Maximum number of attempts per subtask, of jobs that are submitted from now on.
             */
            attempts?: number;
            /**
             * Format: int64
             * @description Maximum number of starts at once after a pause.
             */
            burst?: number;
            /**
             * Format: int64
             * @description Maximum number of starts with the same key at once after a pause.
             */
            burst_per_key?: number;
            /**
             * Format: int64
             * @description Maximum number of running subtasks. Running ones beyond it go on.
             */
            concurrency?: number;
            /** @description Maximum number of starts per second. */
            per_second?: number;
            /** @description Maximum number of starts per second with the same key. */
            per_second_per_key?: number;
            /**
             * Format: int64
             * @description Timeout of an attempt, in milliseconds, of jobs that are submitted from now on.
             */
            timeout_ms?: number;
        };
        /**
         * @description Setting of a kind that an operator can change.
         * @enum {string}
         */
        KindSetting: "concurrency" | "per_second" | "burst" | "per_second_per_key" | "burst_per_key" | "attempts" | "timeout_ms";
        /** @description A kind of job: `GET /v1/kinds`. */
        KindView: {
            /**
             * Format: int32
             * @description Maximum number of attempts per subtask.
             */
            attempts: number;
            /**
             * @description Settings that operators have changed. Their values here are those in force; a reset brings the
             *     configured ones back.
             */
            changed: components["schemas"]["KindSetting"][];
            /**
             * Format: int64
             * @description Maximum number of running subtasks.
             */
            concurrency?: number | null;
            /** @description Whether the kind has a fan-in step. */
            fan_in: boolean;
            /** @description Type of handler: `command`, `worker`, `http`, `lease` or `function`. */
            handler: string;
            /** @description Whether its finished jobs are kept until an operator removes them, unlike those of the server. */
            keeps_forever?: boolean;
            /**
             * Format: int32
             * @description Maximum number of subtasks that run with a key at the same time, if they run in no order.
             */
            max_per_key?: number | null;
            /** @description Name of the kind. */
            name: string;
            /** @description Reason of the pause. */
            pause_reason?: string | null;
            /** @description Whether an operator has paused the kind: nothing of it starts. */
            paused: boolean;
            paused_since?: components["schemas"]["Timestamp"] | null;
            /**
             * Format: double
             * @description Maximum number of starts per second.
             */
            per_second?: number | null;
            /**
             * Format: double
             * @description Maximum number of starts per second with the same key.
             */
            per_second_per_key?: number | null;
            /**
             * Format: int64
             * @description Time for which its finished jobs are kept, in milliseconds, if it differs from the server's.
             */
            retention_ms?: number | null;
            /**
             * Format: int64
             * @description Number of its running steps.
             */
            running: number;
            /** @description Whether the kind has a split step. */
            split: boolean;
            /**
             * Format: int64
             * @description Timeout of an attempt, in milliseconds.
             */
            timeout_ms?: number | null;
        };
        /** @description Configured kinds. */
        Kinds: {
            /** @description All kinds. */
            items: components["schemas"]["KindView"][];
        };
        /** @description Exclusive right of a remote worker to a subtask until the lease ends. */
        Lease: {
            /**
             * Format: int32
             * @description Number of the attempt, from 1.
             */
            attempt: number;
            /** @description End of the lease without a heartbeat. A restart of the server extends it. */
            expires_at: components["schemas"]["Timestamp"];
            /**
             * Format: int64
             * @description Time until then when the response was made, in milliseconds: for workers whose clocks differ from the server's.
             */
            expires_in_ms?: number;
            /**
             * Format: int64
             * @description Fencing token: higher than that of any earlier attempt, across restarts and restored
             *     backups, and below 2^53. Other systems can refuse a lower one.
             */
            fence: number;
            /** @description Id of the lease, which belongs to one attempt. */
            id: string;
            /** @description Id of the job. */
            job: string;
            /** @description Its keys. */
            keys: string[];
            /** @description Kind of the job. */
            kind: string;
            /**
             * Format: int32
             * @description Number of the subtask in the job.
             */
            number: number;
            /** @description Input of the subtask. */
            payload: unknown;
            /** @description Its keys that other subtasks may share. */
            shared_keys?: string[];
            /**
             * Format: int64
             * @description Timeout of the attempt, in milliseconds, if its job or its kind has one. Heartbeats do not extend the lease beyond it.
             */
            timeout_ms?: number | null;
            /** @description `traceparent` of the job: the parent of the worker's spans (W3C Trace Context). */
            traceparent?: string | null;
            /** @description `tracestate` of the job. */
            tracestate?: string | null;
        };
        /** @description End of a lease: a failure with `error`, a return with `release`, otherwise a success. */
        LeaseEnd: {
            /**
             * Format: int64
             * @description Minimum delay before the retry of a failure, in milliseconds; default: the kind's backoff.
             */
            after_ms?: number;
            /** @description Error message of a failure. */
            error?: string;
            /** @description Id of the lease. */
            id: string;
            /** @description Log for humans: its end is kept, up to the kind's limit. */
            log?: string;
            /**
             * @description Whether the worker returns the subtask and has not begun it: the attempt does not count, and the
             *     subtask can be leased at once.
             */
            release?: boolean;
            /** @description Result of a success: any JSON. */
            result?: unknown;
            /** @description Whether a retry of a failure may help; default true. */
            retry?: boolean;
        };
        /**
         * @description Handling of times that passed by a minute or more before the server could make their jobs,
         *     because it was down or its disk was full.
         * @enum {string}
         */
        MissedChoice: "once" | "skip";
        /** @description Server that shares the store in a database with others: `GET /v1/nodes`. */
        NodeView: {
            /** @description Address at which the other servers reach it. */
            address: string;
            /** @description Whether it is drained: it owns no store and leases no subtasks until it is resumed. */
            drained?: boolean;
            /**
             * @description Time at which it last wrote to the database that it is there: it does so every few seconds. A minute later it is no longer listed,
             *     unless it is drained.
             */
            last_contact: components["schemas"]["Timestamp"];
            /** @description Whether it owns the store and decides what runs. The others forward requests to it. */
            owner: boolean;
            /** @description Version of the program. */
            version: string;
        };
        /** @description Servers that share the store. */
        Nodes: {
            /** @description All servers, by address. Empty if the store is in a file. */
            items: components["schemas"]["NodeView"][];
        };
        /**
         * @description Effect of a subtask's last failed attempt on the other subtasks.
         * @enum {string}
         */
        OnError: "finish_all" | "fail_fast";
        /**
         * @description Effect of a subtask's last failed attempt on its keys.
         * @enum {string}
         */
        OnFail: "continue" | "stop_key";
        /** @description Outcome of a subtask: a line of `GET /v1/jobs/{id}/results`. */
        OutcomeView: {
            /**
             * Format: int32
             * @description Number of its last attempt.
             */
            attempt: number;
            /** @description End of the subtask. */
            ended_at: components["schemas"]["Timestamp"];
            /** @description Error of the last attempt. */
            error?: string | null;
            /** @description Its keys. */
            keys?: string[];
            /**
             * Format: int32
             * @description Its number in the job.
             */
            number: number;
            /** @description `succeeded`, `failed`, `cancelled`, `skipped` or `superseded`. */
            outcome: components["schemas"]["SubtaskState"];
            /** @description Result of its handler. */
            result?: unknown;
            /** @description Its keys that other subtasks may share. */
            shared_keys?: string[];
            started_at?: components["schemas"]["Timestamp"] | null;
            superseded_by?: components["schemas"]["SubtaskRef"] | null;
        };
        /**
         * @description Whether a job is made while the previous one is unfinished.
         * @enum {string}
         */
        OverlapChoice: "allow" | "skip";
        /** @description Page of a list. */
        Page_AttemptLog: {
            /** @description Rows of this page that cannot be shown because they are damaged. */
            damaged?: components["schemas"]["DamagedRow"][];
            /** @description Items of the page. */
            items: components["schemas"]["AttemptLog"][];
            /** @description Cursor of the next page; none on the last one. */
            next_cursor?: string | null;
        };
        /** @description Page of a list. */
        Page_AuditEntry: {
            /** @description Rows of this page that cannot be shown because they are damaged. */
            damaged?: components["schemas"]["DamagedRow"][];
            /** @description Items of the page. */
            items: components["schemas"]["AuditEntry"][];
            /** @description Cursor of the next page; none on the last one. */
            next_cursor?: string | null;
        };
        /** @description Page of a list. */
        Page_Job: {
            /** @description Rows of this page that cannot be shown because they are damaged. */
            damaged?: components["schemas"]["DamagedRow"][];
            /** @description Items of the page. */
            items: components["schemas"]["Job"][];
            /** @description Cursor of the next page; none on the last one. */
            next_cursor?: string | null;
        };
        /** @description Page of a list. */
        Page_KeyView: {
            /** @description Rows of this page that cannot be shown because they are damaged. */
            damaged?: components["schemas"]["DamagedRow"][];
            /** @description Items of the page. */
            items: components["schemas"]["KeyView"][];
            /** @description Cursor of the next page; none on the last one. */
            next_cursor?: string | null;
        };
        /** @description Page of a list. */
        Page_OutcomeView: {
            /** @description Rows of this page that cannot be shown because they are damaged. */
            damaged?: components["schemas"]["DamagedRow"][];
            /** @description Items of the page. */
            items: components["schemas"]["OutcomeView"][];
            /** @description Cursor of the next page; none on the last one. */
            next_cursor?: string | null;
        };
        /** @description Page of a list. */
        Page_Schedule: {
            /** @description Rows of this page that cannot be shown because they are damaged. */
            damaged?: components["schemas"]["DamagedRow"][];
            /** @description Items of the page. */
            items: components["schemas"]["Schedule"][];
            /** @description Cursor of the next page; none on the last one. */
            next_cursor?: string | null;
        };
        /** @description Page of a list. */
        Page_SubtaskView: {
            /** @description Rows of this page that cannot be shown because they are damaged. */
            damaged?: components["schemas"]["DamagedRow"][];
            /** @description Items of the page. */
            items: components["schemas"]["SubtaskView"][];
            /** @description Cursor of the next page; none on the last one. */
            next_cursor?: string | null;
        };
        /** @description Page of a list. */
        Page_WebhookView: {
            /** @description Rows of this page that cannot be shown because they are damaged. */
            damaged?: components["schemas"]["DamagedRow"][];
            /** @description Items of the page. */
            items: components["schemas"]["WebhookView"][];
            /** @description Cursor of the next page; none on the last one. */
            next_cursor?: string | null;
        };
        /** @description Page of a list. */
        Page_WorkerView: {
            /** @description Rows of this page that cannot be shown because they are damaged. */
            damaged?: components["schemas"]["DamagedRow"][];
            /** @description Items of the page. */
            items: components["schemas"]["WorkerView"][];
            /** @description Cursor of the next page; none on the last one. */
            next_cursor?: string | null;
        };
        /** @description Time that made no job. */
        PassedOver: {
            /** @description The time; of several, the last one. */
            at: components["schemas"]["Timestamp"];
            /**
             * @description Reason code: `overlap`, `missed`, `refused`; or `changed`, `paused` for a change while the
             *     time was due.
             */
            reason: string;
            /** @description Reason in a sentence. */
            text: string;
        };
        /** @description `POST /v1/kinds/{name}/pause`. */
        PauseKindRequest: {
            /** @description Reason, shown to operators and to clients whose jobs wait. */
            reason?: string;
        };
        /** @description Error response: `application/problem+json` (RFC 9457). */
        Problem: {
            /** @description Code of the type, for programs. */
            code: string;
            /** @description Description of this occurrence, with the remedy. */
            detail: string;
            /** @description Invalid fields of the request. */
            errors?: components["schemas"]["FieldError"][];
            /** @description Id of the request in the log. */
            instance: string;
            /**
             * Format: int32
             * @description HTTP status code.
             */
            status: number;
            /** @description Short description, fixed per type. */
            title: string;
            /** @description Path of this server's page about the problem type: `/problems/` and `code`. */
            type: string;
        };
        /** @description `POST /v1/kinds/{name}/reset`. */
        ResetKindRequest: {
            /** @description Settings that get their configured values again; all by default. */
            settings?: components["schemas"]["KindSetting"][];
        };
        /**
         * @description Selection of subtasks to retry.
         * @enum {string}
         */
        RetryOnly: "failed" | "unsuccessful";
        /** @description `POST /v1/jobs/{id}/retry`. */
        RetryRequest: {
            /** @description Selection by result. Default: subtasks that failed. */
            only?: components["schemas"]["RetryOnly"];
            /** @description Chosen subtasks that failed or were cancelled, instead of `only`: 1 to 1,000. The others keep their results. */
            subtasks?: components["schemas"]["RetrySubtask"][];
        };
        /** @description Subtask to retry. */
        RetrySubtask: {
            /**
             * Format: int32
             * @description Number of the subtask in its job, from 0.
             */
            number: number;
            /** @description Payload that replaces the present one, for good: any JSON. A request has at most 100. */
            payload?: unknown;
        };
        /** @description Running subtask. */
        RunningSubtask: {
            /**
             * Format: int32
             * @description Number of the attempt, from 1.
             */
            attempt: number;
            /** @description Id of its job. */
            job: string;
            /** @description Its keys. */
            keys: string[];
            /**
             * Format: int32
             * @description Its number in the job.
             */
            number: number;
            /**
             * Format: double
             * @description Progress of the attempt, from 0 to 1, if its handler reports it.
             */
            progress?: number | null;
            /** @description Its keys that other subtasks may share. */
            shared_keys?: string[];
            /** @description Start of the attempt. */
            since: components["schemas"]["Timestamp"];
            /**
             * Format: int32
             * @description Number of its slot, from 0.
             */
            slot: number;
            /** @description Remote worker that holds its lease. */
            worker?: string | null;
        };
        /** @description A schedule. */
        Schedule: {
            /** @description Time of its last change by an operator. */
            changed_at: components["schemas"]["Timestamp"];
            /** @description Time of its creation. */
            created_at: components["schemas"]["Timestamp"];
            /** @description Cron pattern of its times. */
            cron: string;
            /**
             * Format: int64
             * @description Number of times that made a job.
             */
            fired: number;
            /** @description Reason for which a due time has not made its job yet. It is retried. */
            held_up?: string | null;
            /** @description Job that is submitted each time. */
            job: unknown;
            last_fired?: components["schemas"]["Timestamp"] | null;
            /** @description Id of its last job, made by schedule or by hand. */
            last_job?: string | null;
            last_passed?: components["schemas"]["PassedOver"] | null;
            /** @description Handling of missed times. */
            missed: components["schemas"]["MissedChoice"];
            /** @description Name of the schedule. */
            name: string;
            /** @description Its next times; empty while it is paused, or if there are none. */
            next: components["schemas"]["Timestamp"][];
            /** @description Whether a job is made while the previous one is unfinished. */
            overlap: components["schemas"]["OverlapChoice"];
            /**
             * Format: int64
             * @description Number of times that made no job, except those during a pause.
             */
            passed: number;
            /** @description Whether the schedule is paused. */
            paused: boolean;
            /** @description Time zone of the pattern. */
            time_zone: string;
            /**
             * Format: int64
             * @description Version, which grows with every change.
             */
            version: number;
        };
        /**
         * @description Job to submit: `POST /v1/jobs`.
         *
         *     Its work is either `subtasks`, or a `payload`, with an optional `key` or `keys`, and optional
         *     `shared_keys`. A payload is the input of the only subtask, or of the kind's split step. In an NDJSON request the first line
         *     is this object without `subtasks`, and every further line is a subtask.
         */
        ScheduledJob: {
            /**
             * Format: int64
             * @description Maximum number of attempts per subtask; default: the kind's setting.
             */
            attempts?: number;
            /**
             * Format: int64
             * @description Minimum delay before the start, in milliseconds.
             */
            delay_ms?: number;
            /**
             * Format: int64
             * @description The same as a time after the submission, in milliseconds.
             */
            expires_ms?: number;
            /** @description Whether the kind's fan-in step, if there is one, runs over the results; default true. */
            fan_in?: boolean;
            /** @description Key of the only subtask. */
            key?: string;
            /** @description Keys of the only subtask, if it has several. */
            keys?: string[];
            /** @description Name of one of the server's kinds. */
            kind: string;
            /** @description Labels by which the job can be found. */
            labels?: {
                [key: string]: string;
            };
            /**
             * @description Whether the only subtask replaces the latest one of its key, as `latest` of a subtask; default
             *     false.
             */
            latest?: boolean;
            /**
             * Format: int32
             * @description Number of subtasks that may run with a `key` at the same time, without an order among them;
             *     default: the kind's setting.
             */
            max_per_key?: number;
            /** @description Name for humans. Not unique. */
            name?: string;
            /**
             * @description Whether other subtasks go on after a subtask has failed on its last attempt; default: the
             *     kind's setting.
             */
            on_error?: components["schemas"]["OnError"];
            /** @description Effect of a subtask's last failed attempt on its keys; default: the kind's setting. */
            on_fail?: components["schemas"]["OnFail"];
            /** @description Input of the only subtask or of the split step: any JSON. */
            payload?: unknown;
            /** @description Priority among the jobs of its tenant; default `normal`. */
            priority?: components["schemas"]["JobPriority"];
            /** @description Keys that the only subtask shares with others. */
            shared_keys?: string[];
            /** @description Subtasks, in order. */
            subtasks?: components["schemas"]["SubmitSubtask"][];
            /** @description Tenant of the job; default: that of the token, or `default`. */
            tenant?: string;
            /**
             * Format: int64
             * @description Timeout of an attempt, in milliseconds; default: the kind's setting.
             */
            timeout_ms?: number;
            /**
             * Format: uri
             * @description Address to which the end of the job is sent, `http://` or `https://`; default: the kind's setting.
             */
            webhook?: string;
            /**
             * Format: int64
             * @description Weight of the job's claim to spare workers; default 1.
             */
            weight?: number;
        };
        /** @description State of the slots and decisions: `GET /v1/scheduler`. */
        SchedulerView: {
            /**
             * Format: int64
             * @description Number of jobs that run or can run.
             */
            active: number;
            /**
             * Format: int64
             * @description Number of running subtasks.
             */
            busy: number;
            /** @description Last decisions, newest last. */
            decisions: components["schemas"]["Decision"][];
            /** @description Whether the server is shutting down and starts no subtask. */
            draining: boolean;
            /**
             * Format: int64
             * @description Number of unfinished jobs.
             */
            jobs: number;
            /** @description Running subtasks. */
            running: components["schemas"]["RunningSubtask"][];
            /**
             * Format: int64
             * @description Maximum number of running subtasks.
             */
            slots: number;
        };
        /** @description Recurring job: `PUT /v1/schedules/{name}`. */
        SetSchedule: {
            /**
             * Format: cron
             * @description Cron pattern: minute, hour, day of the month, month, day of the week; or `@hourly`,
             *     `@daily`, `@weekly`, `@monthly`, `@yearly`.
             */
            cron: string;
            job: components["schemas"]["ScheduledJob"];
            /** @description Handling of times at which the server could not make a job. */
            missed?: components["schemas"]["MissedChoice"];
            /** @description Whether a job is made while the previous one is unfinished. */
            overlap?: components["schemas"]["OverlapChoice"];
            /** @description Whether the schedule is paused; default: unchanged, and false for a new one. */
            paused?: boolean;
            /**
             * Format: iana-time-zone
             * @description Time zone of the pattern: an IANA name such as `Europe/Berlin`; default `UTC`.
             *
             *     A pattern with one hour and one minute fires once per day: if the clock is put forward over
             *     it, right after that; if it is put back, at the first occurrence. Every other pattern
             *     follows the local clock: skipped times do not fire, and repeated ones fire twice.
             */
            time_zone?: string;
        };
        /** @description Use of a slot by an attempt, for a picture of the slots over time. */
        Slice: {
            /**
             * Format: int32
             * @description Number of the attempt, from 1.
             */
            attempt: number;
            /** @description Start of the attempt. */
            begin: components["schemas"]["Timestamp"];
            end?: components["schemas"]["Timestamp"] | null;
            /** @description Id of the job. */
            job: string;
            /** @description Its keys. */
            keys?: string[];
            /**
             * Format: int32
             * @description Number of the subtask in the job.
             */
            number: number;
            /** @description Outcome: `succeeded`, `failed`, `retry`, `cancelled` or `lost`. */
            outcome?: string | null;
            /** @description Rule by which the job got the slot: `keep`, `aged`, `admit` or `least`. */
            rule: string;
            /** @description Its keys that other subtasks may share. */
            shared_keys?: string[];
            /**
             * Format: int32
             * @description Number of the slot, from 0.
             */
            slot: number;
        };
        /** @description Jobs to submit: `POST /v1/jobs/batch`. */
        SubmitBatch: {
            /** @description From 1 to 1000 jobs, accepted in this order. */
            jobs: components["schemas"]["SubmitJob"][];
        };
        /**
         * @description Job to submit: `POST /v1/jobs`.
         *
         *     Its work is either `subtasks`, or a `payload`, with an optional `key` or `keys`, and optional
         *     `shared_keys`. A payload is the input of the only subtask, or of the kind's split step. In an NDJSON request the first line
         *     is this object without `subtasks`, and every further line is a subtask.
         */
        SubmitJob: {
            /** @description Jobs that must end before this one enters the order: their ids, or the ids that clients gave them; at most 64. */
            after?: string[];
            /** @description The end that the jobs in `after` must have; default: `success`. */
            after_on?: components["schemas"]["AfterCondition"];
            /**
             * Format: int64
             * @description Maximum number of attempts per subtask; default: the kind's setting.
             */
            attempts?: number;
            /**
             * Format: int64
             * @description Minimum delay before the start, in milliseconds.
             */
            delay_ms?: number;
            /** Format: date-time */
            expires_at?: string;
            /**
             * Format: int64
             * @description The same as a time after the submission, in milliseconds.
             */
            expires_ms?: number;
            /** @description Whether the kind's fan-in step, if there is one, runs over the results; default true. */
            fan_in?: boolean;
            /** @description Key of the only subtask. */
            key?: string;
            /** @description Keys of the only subtask, if it has several. */
            keys?: string[];
            /** @description Name of one of the server's kinds. */
            kind: string;
            /** @description Labels by which the job can be found. */
            labels?: {
                [key: string]: string;
            };
            /**
             * @description Whether the only subtask replaces the latest one of its key, as `latest` of a subtask; default
             *     false.
             */
            latest?: boolean;
            /**
             * Format: int32
             * @description Number of subtasks that may run with a `key` at the same time, without an order among them;
             *     default: the kind's setting.
             */
            max_per_key?: number;
            /** @description Name for humans. Not unique. */
            name?: string;
            /**
             * @description Whether other subtasks go on after a subtask has failed on its last attempt; default: the
             *     kind's setting.
             */
            on_error?: components["schemas"]["OnError"];
            /** @description Effect of a subtask's last failed attempt on its keys; default: the kind's setting. */
            on_fail?: components["schemas"]["OnFail"];
            /** @description Input of the only subtask or of the split step: any JSON. */
            payload?: unknown;
            /** @description Priority among the jobs of its tenant; default `normal`. */
            priority?: components["schemas"]["JobPriority"];
            /** Format: date-time */
            run_at?: string;
            /** @description Keys that the only subtask shares with others. */
            shared_keys?: string[];
            /** @description Subtasks, in order. */
            subtasks?: components["schemas"]["SubmitSubtask"][];
            /** @description Tenant of the job; default: that of the token, or `default`. */
            tenant?: string;
            /**
             * Format: int64
             * @description Timeout of an attempt, in milliseconds; default: the kind's setting.
             */
            timeout_ms?: number;
            /**
             * Format: int64
             * @description Time for which an equal job is not accepted again, in milliseconds: one with the same kind, tenant, keys and
             *     payloads. The response to such a request is the first job.
             */
            unique_ms?: number;
            /**
             * Format: uri
             * @description Address to which the end of the job is sent, `http://` or `https://`; default: the kind's setting.
             */
            webhook?: string;
            /**
             * Format: int64
             * @description Weight of the job's claim to spare workers; default 1.
             */
            weight?: number;
        };
        /** @description Subtask to submit. */
        SubmitSubtask: {
            /**
             * @description Whether it is a barrier: it runs after all earlier subtasks of its job, and before all later
             *     ones; default false.
             */
            barrier?: boolean;
            /** @description Key: the subtask runs after all earlier ones with this key, of this and other jobs. */
            key?: string;
            /** @description Several keys: the subtask runs after all earlier ones with any of them. */
            keys?: string[];
            /**
             * @description Whether it replaces the last subtask of its key that has `latest`, too, if that has not
             *     started: the replaced one ends as `superseded`. It needs exactly one key, and neither shared
             *     keys nor a barrier; default false.
             */
            latest?: boolean;
            /** @description Input of the handler: any JSON; default null. */
            payload?: unknown;
            /**
             * @description Keys that the subtask only uses: it runs beside others that share them, but after all
             *     earlier ones that have them as `key` or `keys`, and before all later ones.
             */
            shared_keys?: string[];
        };
        /** @description Subtask of some job. */
        SubtaskRef: {
            /** @description Id of its job. */
            job: string;
            /**
             * Format: int32
             * @description Its number in the job.
             */
            number: number;
        };
        /**
         * @description State of a subtask.
         * @enum {string}
         */
        SubtaskState: "waiting" | "ready" | "running" | "backing_off" | "succeeded" | "failed" | "cancelled" | "skipped" | "superseded";
        /** @description A subtask. */
        SubtaskView: {
            /**
             * Format: int32
             * @description Number of started attempts.
             */
            attempts: number;
            /**
             * @description Whether it is a barrier: it runs after all earlier subtasks of its job, and before all later
             *     ones.
             */
            barrier?: boolean;
            /** @description Its keys. */
            keys: string[];
            /** @description Whether it replaces the latest subtask of its key, and may be replaced by the next one. */
            latest?: boolean;
            /**
             * Format: int32
             * @description Maximum number of attempts.
             */
            max_attempts?: number;
            /**
             * Format: int32
             * @description Its number in the job, from 0.
             */
            number: number;
            outcome?: components["schemas"]["OutcomeView"] | null;
            /** @description Input of its handler. */
            payload: unknown;
            /**
             * Format: double
             * @description Progress of its running attempt, from 0 to 1, if its handler reports it.
             */
            progress?: number | null;
            /** @description Its keys that other subtasks may share. */
            shared_keys?: string[];
            /** @description State of the subtask. */
            state: components["schemas"]["SubtaskState"];
            waiting_because?: components["schemas"]["Because"] | null;
        };
        /**
         * @description State of the server in numbers: once per second in the dashboard's stream, and `GET
         *     /v1/summary`.
         */
        Summary: {
            /** @description Time of the summary. */
            at: components["schemas"]["Timestamp"];
            /**
             * Format: int64
             * @description Subtasks that wait for their next attempt.
             */
            backing_off: number;
            /**
             * Format: int64
             * @description Number of running subtasks.
             */
            busy: number;
            /**
             * Format: int64
             * @description Subtasks that were cancelled or skipped since the server started.
             */
            cancelled_total: number;
            /** @description Whether the server is shutting down. */
            draining: boolean;
            /**
             * Format: int64
             * @description Subtasks that failed on their last attempt since the server started.
             */
            failed_total: number;
            /** @description Number of unfinished jobs by state; only states with jobs. */
            jobs: {
                [key: string]: number;
            };
            /**
             * Format: int64
             * @description Keys with unfinished subtasks.
             */
            keys: number;
            longest_key?: components["schemas"]["KeyChain"] | null;
            /**
             * Format: int64
             * @description Time for which the oldest head of a key has been its head, in milliseconds.
             */
            oldest_head_ms: number;
            /**
             * Format: int64
             * @description Subtasks that wait for a slot.
             */
            ready: number;
            /**
             * Format: int64
             * @description Failed attempts that were followed by another.
             */
            retried_total: number;
            /**
             * Format: int64
             * @description Maximum number of running subtasks.
             */
            slots: number;
            /** @description Start time of the server. */
            started_at: components["schemas"]["Timestamp"];
            /** @description `ok`, `full`, or `failed`. */
            store: string;
            /**
             * Format: int64
             * @description Size of the store on disk, in bytes: its file and its write-ahead log.
             */
            store_bytes: number;
            /**
             * Format: int64
             * @description Subtasks that succeeded since the server started.
             */
            succeeded_total: number;
            /**
             * Format: int64
             * @description Subtasks that were replaced by later ones since the server started.
             */
            superseded_total?: number;
            /**
             * Format: int64
             * @description Unfinished subtasks that wait for a key or a time, or are stopped or paused.
             */
            waiting: number;
            /**
             * Format: int64
             * @description Number of WebSocket connections.
             */
            websockets: number;
        };
        /** @description A tenant: `GET /v1/tenants`. */
        TenantView: {
            /** @description Whether it has settings in the configuration. */
            configured: boolean;
            /**
             * Format: int64
             * @description Number of its unfinished jobs.
             */
            jobs: number;
            /**
             * Format: int64
             * @description Maximum number of its unfinished subtasks.
             */
            max_waiting?: number | null;
            /**
             * Format: int64
             * @description Maximum number of its running subtasks.
             */
            max_workers?: number | null;
            /**
             * Format: int64
             * @description Number of slots that it gets before other tenants get more than their minimum.
             */
            min_workers: number;
            /** @description Name of the tenant. */
            name: string;
            /**
             * Format: double
             * @description Maximum number of its starts per second.
             */
            per_second?: number | null;
            /**
             * Format: int64
             * @description Number of its running steps.
             */
            running: number;
            /**
             * Format: int64
             * @description Number of its unfinished subtasks.
             */
            unfinished: number;
            /**
             * Format: int32
             * @description Weight of its share of the slots.
             */
            weight: number;
        };
        /** @description Tenants that are configured or have unfinished jobs. */
        Tenants: {
            /** @description All tenants, by name. */
            items: components["schemas"]["TenantView"][];
        };
        /**
         * @description Recent runs: `GET /v1/timeline`. Under load it is a sample, and `dropped` has the number of
         *     missing slices.
         */
        Timeline: {
            /**
             * Format: int64
             * @description Number of ended slices that are not shown.
             */
            dropped: number;
            /**
             * Format: int64
             * @description Cursor for later slices: the next request's `after`.
             */
            next: number;
            /** @description Slices in the order of their ends; running ones last. */
            slices: components["schemas"]["Slice"][];
        };
        /** Format: date-time */
        Timestamp: string;
        /** @description Identity of the server: `GET /version`. */
        Version: {
            /** @description Name of this environment, to tell production from a test. */
            environment?: string | null;
            /** @description `keylane`. */
            name: string;
            /** @description Whether the API refuses all changes. */
            read_only: boolean;
            /** @description Version of the server. */
            version: string;
        };
        /**
         * @description State of a webhook that is not delivered.
         * @enum {string}
         */
        WebhookState: "waiting" | "failed";
        /** @description A webhook that is not delivered: `GET /v1/webhooks`. */
        WebhookView: {
            /**
             * Format: int32
             * @description Number of failed attempts.
             */
            attempts: number;
            /** @description Time of the job's end. */
            created_at: components["schemas"]["Timestamp"];
            /** @description Error of the last failed attempt. */
            error?: string | null;
            /** @description Type of the event: `job.succeeded`, `job.failed` or `job.cancelled`. */
            event: string;
            failed_at?: components["schemas"]["Timestamp"] | null;
            /** @description Id of the webhook, which its receiver gets as `webhook-id`. */
            id: string;
            /** @description Id of the job. */
            job: string;
            /** @description Kind of the job. */
            kind: string;
            /**
             * Format: int32
             * @description Maximum number of attempts.
             */
            max_attempts: number;
            next_at?: components["schemas"]["Timestamp"] | null;
            /** @description State of the webhook. */
            state: components["schemas"]["WebhookState"];
            /** @description Address of the receiver. */
            url: string;
        };
        /** @description Lease of a remote worker. */
        WorkerLease: {
            /**
             * Format: int32
             * @description Number of the attempt, from 1.
             */
            attempt: number;
            /** @description End of the lease without a heartbeat. */
            expires_at: components["schemas"]["Timestamp"];
            /** @description Id of the job. */
            job: string;
            /** @description Its keys. */
            keys: string[];
            /** @description Kind of the job. */
            kind: string;
            /**
             * Format: int32
             * @description Number of the subtask in the job.
             */
            number: number;
            /** @description Its keys that other subtasks may share. */
            shared_keys?: string[];
            /** @description Start of the attempt. */
            since: components["schemas"]["Timestamp"];
        };
        /** @description Remote worker: `GET /v1/workers`. Workers that give the same name with the same token are one. */
        WorkerView: {
            /** @description Kinds that it asked for last. */
            kinds: string[];
            last_contact?: components["schemas"]["Timestamp"] | null;
            /**
             * Format: int64
             * @description Number of its leases.
             */
            leases: number;
            /** @description Name that the worker gives in its requests for leases; absent if it gives none. */
            name?: string | null;
            /** @description Its oldest leases, at most 20. */
            running: components["schemas"]["WorkerLease"][];
            /**
             * @description Name of its token; `anyone` on a server without tokens. Absent after a restart of the server,
             *     until the first request of the worker.
             */
            token?: string | null;
            /**
             * Format: int32
             * @description Number of its requests that wait for leases.
             */
            waiting: number;
        };
    };
    responses: never;
    parameters: never;
    requestBodies: never;
    headers: never;
    pathItems: never;
}
export type $defs = Record<string, never>;
export interface operations {
    get_livez: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Liveness */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "text/plain": unknown;
                };
            };
        };
    };
    get_metrics: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Metrics for Prometheus */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "text/plain": unknown;
                };
            };
            /** @description refused */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    get_openapi_json: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description This document */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": unknown;
                };
            };
        };
    };
    get_problems_code: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                code: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description What a problem's type means */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "text/plain": unknown;
                };
            };
            /** @description refused */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    get_readyz: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Readiness */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Health"];
                };
            };
            /** @description Readiness */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Health"];
                };
            };
        };
    };
    get_v1_audit: {
        parameters: {
            query?: {
                who?: string;
                what?: "job.cancel" | "job.pause" | "job.resume" | "job.retry" | "job.patch" | "job.purge" | "key.steer" | "key.pause" | "key.resume" | "key.retry-head" | "key.skip-head" | "schedule.put" | "schedule.delete" | "schedule.pause" | "schedule.resume" | "schedule.run" | "kind.pause" | "kind.resume" | "kind.patch" | "kind.reset" | "webhook.retry" | "webhook.remove" | "store.backup" | "node.drain" | "node.resume";
                job?: string;
                since?: string;
                cursor?: string;
                limit?: number;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Audit log, newest first */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Page_AuditEntry"];
                };
            };
            /** @description refused */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    post_v1_backup: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description A copy of the store, for administrators */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/vnd.sqlite3": unknown;
                };
            };
            /** @description refused */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            507: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    get_v1_events: {
        parameters: {
            query?: {
                include?: string;
                after?: string;
            };
            header?: {
                "Last-Event-ID"?: string;
            };
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description All events, as server-sent events */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "text/event-stream": unknown;
                };
            };
            /** @description refused */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    get_v1_history: {
        parameters: {
            query?: {
                from?: string;
                to?: string;
                include?: "slices";
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Past of the service, for charts */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["History"];
                };
            };
            /** @description refused */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    get_v1_jobs: {
        parameters: {
            query?: {
                state?: string;
                kind?: string;
                label?: string;
                tenant?: string;
                q?: string;
                cursor?: string;
                limit?: number;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Jobs, newest first */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Page_Job"];
                };
            };
            /** @description refused */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    post_v1_jobs: {
        parameters: {
            query?: never;
            header?: {
                "Idempotency-Key"?: string;
                Prefer?: string;
                traceparent?: string;
                tracestate?: string;
            };
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["SubmitJob"];
                "application/x-ndjson": string;
            };
        };
        responses: {
            /** @description Submit a job; answered when it is on the disk */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Job"];
                };
            };
            /** @description Submit a job; answered when it is on the disk */
            202: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Job"];
                };
            };
            /** @description refused */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            408: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            413: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            415: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            507: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    post_v1_jobs_batch: {
        parameters: {
            query?: {
                atomic?: boolean;
            };
            header?: {
                "Idempotency-Key"?: string;
                traceparent?: string;
                tracestate?: string;
            };
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["SubmitBatch"];
            };
        };
        responses: {
            /** @description Submit several jobs: all or none, unless `atomic` is false; answered when they are on the disk */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Batch"];
                };
            };
            /** @description Submit several jobs: all or none, unless `atomic` is false; answered when they are on the disk */
            202: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Batch"];
                };
            };
            /** @description refused */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            408: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            413: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            415: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            507: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    get_v1_jobs_id: {
        parameters: {
            query?: never;
            header?: {
                Prefer?: string;
                "If-None-Match"?: string;
            };
            path: {
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description A job */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Job"];
                };
            };
            /** @description A job */
            304: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description refused */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            410: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    put_v1_jobs_id: {
        parameters: {
            query?: never;
            header?: {
                Prefer?: string;
                traceparent?: string;
                tracestate?: string;
            };
            path: {
                id: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["SubmitJob"];
                "application/x-ndjson": string;
            };
        };
        responses: {
            /** @description Submit a job with an identifier of the client's, valid in place of the server's */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Job"];
                };
            };
            /** @description Submit a job with an identifier of the client's, valid in place of the server's */
            202: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Job"];
                };
            };
            /** @description refused */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            408: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            413: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            415: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            507: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    delete_v1_jobs_id: {
        parameters: {
            query?: never;
            header?: {
                "Idempotency-Key"?: string;
            };
            path: {
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Remove an ended job */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description refused */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            410: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            413: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            507: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    patch_v1_jobs_id: {
        parameters: {
            query?: never;
            header: {
                "If-Match": string;
                "Idempotency-Key"?: string;
            };
            path: {
                id: string;
            };
            cookie?: never;
        };
        requestBody?: {
            content: {
                "application/json": components["schemas"]["JobPatch"];
            };
        };
        responses: {
            /** @description Change a job's name, labels or weight */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Job"];
                };
            };
            /** @description refused */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            408: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            410: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            412: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            413: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            415: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            428: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            507: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    post_v1_jobs_id_cancel: {
        parameters: {
            query?: never;
            header?: {
                "Idempotency-Key"?: string;
            };
            path: {
                id: string;
            };
            cookie?: never;
        };
        requestBody?: {
            content: {
                "application/json": components["schemas"]["CancelRequest"];
            };
        };
        responses: {
            /** @description Cancel a job */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Job"];
                };
            };
            /** @description Cancel a job */
            202: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Job"];
                };
            };
            /** @description refused */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            408: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            410: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            413: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            415: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            507: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    get_v1_jobs_id_events: {
        parameters: {
            query?: {
                after?: string;
            };
            header?: {
                "Last-Event-ID"?: string;
            };
            path: {
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Events of a job, as server-sent events */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "text/event-stream": unknown;
                };
            };
            /** @description refused */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            410: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    get_v1_jobs_id_explain: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Reasons why a job's subtasks wait */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Explained"];
                };
            };
            /** @description refused */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            410: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    post_v1_jobs_id_pause: {
        parameters: {
            query?: never;
            header?: {
                "Idempotency-Key"?: string;
            };
            path: {
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Pause a job */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Job"];
                };
            };
            /** @description refused */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            410: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            413: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            507: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    get_v1_jobs_id_results: {
        parameters: {
            query?: {
                order?: "submit" | "completion" | "key";
                cursor?: string;
                limit?: number;
            };
            header?: never;
            path: {
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Outcomes of its subtasks */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Page_OutcomeView"];
                    "application/x-ndjson": unknown;
                };
            };
            /** @description refused */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            410: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    post_v1_jobs_id_resume: {
        parameters: {
            query?: never;
            header?: {
                "Idempotency-Key"?: string;
            };
            path: {
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Resume a job */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Job"];
                };
            };
            /** @description refused */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            410: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            413: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            507: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    post_v1_jobs_id_retry: {
        parameters: {
            query?: never;
            header?: {
                "Idempotency-Key"?: string;
            };
            path: {
                id: string;
            };
            cookie?: never;
        };
        requestBody?: {
            content: {
                "application/json": components["schemas"]["RetryRequest"];
            };
        };
        responses: {
            /** @description Retry subtasks of an ended job */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Job"];
                };
            };
            /** @description Retry subtasks of an ended job */
            202: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Job"];
                };
            };
            /** @description refused */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            408: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            410: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            413: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            415: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            507: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    get_v1_jobs_id_subtasks: {
        parameters: {
            query?: {
                state?: "waiting" | "ready" | "running" | "backing_off" | "succeeded" | "failed" | "cancelled" | "skipped" | "superseded";
                key?: string;
                cursor?: string;
                limit?: number;
            };
            header?: never;
            path: {
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Subtasks of a job */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Page_SubtaskView"];
                };
            };
            /** @description refused */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            410: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    get_v1_jobs_id_subtasks_number: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                id: string;
                number: number;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description A subtask of a job */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["SubtaskView"];
                };
            };
            /** @description refused */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            410: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    get_v1_jobs_id_subtasks_number_logs: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                id: string;
                number: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Logs of a subtask's attempts; `split` and `fan-in` name those steps */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Page_AttemptLog"];
                    "text/plain": string;
                };
            };
            /** @description refused */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            410: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    get_v1_keys: {
        parameters: {
            query?: {
                key?: string;
                sort?: "head_age" | "length";
                limit?: number;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Keys with unfinished subtasks */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Page_KeyView"];
                };
            };
            /** @description refused */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    post_v1_keys: {
        parameters: {
            query: {
                key: string;
                what: "pause" | "resume" | "retry-head" | "skip-head";
            };
            header?: {
                "Idempotency-Key"?: string;
            };
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description `what` is `pause`, `resume`, `retry-head` or `skip-head`; for keys that do not fit into a path */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["KeyView"];
                };
            };
            /** @description refused */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            413: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            507: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    get_v1_keys_key: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                key: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description A key */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["KeyView"];
                };
            };
            /** @description refused */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    post_v1_keys_key_what: {
        parameters: {
            query?: never;
            header?: {
                "Idempotency-Key"?: string;
            };
            path: {
                key: string;
                what: "pause" | "resume" | "retry-head" | "skip-head";
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description `pause`, `resume`, `retry-head` or `skip-head` */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["KeyView"];
                };
            };
            /** @description refused */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            413: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            507: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    get_v1_kinds: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Kinds of jobs */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Kinds"];
                };
            };
            /** @description refused */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    get_v1_kinds_kind: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                kind: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description A kind of jobs */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["KindView"];
                };
            };
            /** @description refused */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    patch_v1_kinds_kind: {
        parameters: {
            query?: never;
            header?: {
                "Idempotency-Key"?: string;
            };
            path: {
                kind: string;
            };
            cookie?: never;
        };
        requestBody?: {
            content: {
                "application/json": components["schemas"]["KindPatch"];
            };
        };
        responses: {
            /** @description Change limits of a kind, until they are reset */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["KindView"];
                };
            };
            /** @description refused */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            408: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            413: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            415: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            507: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    post_v1_kinds_kind_pause: {
        parameters: {
            query?: never;
            header?: {
                "Idempotency-Key"?: string;
            };
            path: {
                kind: string;
            };
            cookie?: never;
        };
        requestBody?: {
            content: {
                "application/json": components["schemas"]["PauseKindRequest"];
            };
        };
        responses: {
            /** @description Pause a kind: nothing of it starts */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["KindView"];
                };
            };
            /** @description refused */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            408: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            413: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            415: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            507: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    post_v1_kinds_kind_reset: {
        parameters: {
            query?: never;
            header?: {
                "Idempotency-Key"?: string;
            };
            path: {
                kind: string;
            };
            cookie?: never;
        };
        requestBody?: {
            content: {
                "application/json": components["schemas"]["ResetKindRequest"];
            };
        };
        responses: {
            /** @description Reset changed limits of a kind */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["KindView"];
                };
            };
            /** @description refused */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            408: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            413: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            415: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            507: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    post_v1_kinds_kind_resume: {
        parameters: {
            query?: never;
            header?: {
                "Idempotency-Key"?: string;
            };
            path: {
                kind: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Resume a kind */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["KindView"];
                };
            };
            /** @description refused */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            413: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            507: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    post_v1_leases: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["ClaimRequest"];
            };
        };
        responses: {
            /** @description Claim subtasks */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Claim"];
                };
            };
            /** @description refused */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            408: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            413: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    post_v1_leases_complete: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["CompleteBatch"];
            };
        };
        responses: {
            /** @description Report the ends of leases, each by itself, and possibly claim the next subtasks */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["CompleteResults"];
                };
            };
            /** @description refused */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            408: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            413: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            507: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    post_v1_leases_heartbeat: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["HeartbeatBatch"];
            };
        };
        responses: {
            /** @description Extend leases, each by itself */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["HeartbeatResults"];
                };
            };
            /** @description refused */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            408: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            413: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    post_v1_leases_id_complete: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                id: string;
            };
            cookie?: never;
        };
        requestBody?: {
            content: {
                "application/json": components["schemas"]["CompleteRequest"];
            };
        };
        responses: {
            /** @description Report a success */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description refused */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            408: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            413: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            507: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    post_v1_leases_id_fail: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                id: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["FailRequest"];
            };
        };
        responses: {
            /** @description Report a failure */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description refused */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            408: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            413: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            507: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    post_v1_leases_id_heartbeat: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                id: string;
            };
            cookie?: never;
        };
        requestBody?: {
            content: {
                "application/json": components["schemas"]["HeartbeatRequest"];
            };
        };
        responses: {
            /** @description Extend a lease */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["HeartbeatResponse"];
                };
            };
            /** @description refused */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            408: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            413: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            415: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    get_v1_nodes: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Servers that share the store in a database */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Nodes"];
                };
            };
            /** @description refused */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    post_v1_nodes_drain: {
        parameters: {
            query: {
                address: string;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Drain a server: it takes no more subtasks, and another one becomes the owner */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["NodeView"];
                };
            };
            /** @description refused */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    post_v1_nodes_resume: {
        parameters: {
            query: {
                address: string;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Resume a drained server */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["NodeView"];
                };
            };
            /** @description refused */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    get_v1_scheduler: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Allocation of slots */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["SchedulerView"];
                };
            };
            /** @description refused */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    get_v1_schedules: {
        parameters: {
            query?: {
                cursor?: string;
                limit?: number;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Schedules, by name */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Page_Schedule"];
                };
            };
            /** @description refused */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    get_v1_schedules_name: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                name: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description A schedule */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Schedule"];
                };
            };
            /** @description refused */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    put_v1_schedules_name: {
        parameters: {
            query?: never;
            header?: {
                "Idempotency-Key"?: string;
            };
            path: {
                name: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["SetSchedule"];
            };
        };
        responses: {
            /** @description Create or replace a schedule */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Schedule"];
                };
            };
            /** @description Create or replace a schedule */
            201: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Schedule"];
                };
            };
            /** @description refused */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            408: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            413: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            415: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            507: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    delete_v1_schedules_name: {
        parameters: {
            query?: never;
            header?: {
                "Idempotency-Key"?: string;
            };
            path: {
                name: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Remove a schedule; its jobs stay */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description refused */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            413: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            507: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    post_v1_schedules_name_pause: {
        parameters: {
            query?: never;
            header?: {
                "Idempotency-Key"?: string;
            };
            path: {
                name: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Pause a schedule */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Schedule"];
                };
            };
            /** @description refused */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            413: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            507: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    post_v1_schedules_name_resume: {
        parameters: {
            query?: never;
            header?: {
                "Idempotency-Key"?: string;
            };
            path: {
                name: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Resume a schedule */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Schedule"];
                };
            };
            /** @description refused */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            413: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            507: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    post_v1_schedules_name_run: {
        parameters: {
            query?: never;
            header?: {
                "Idempotency-Key"?: string;
                Prefer?: string;
            };
            path: {
                name: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Run a schedule now */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Job"];
                };
            };
            /** @description Run a schedule now */
            202: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Job"];
                };
            };
            /** @description refused */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            413: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            507: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    get_v1_summary: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Counts of the server */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Summary"];
                };
            };
            /** @description refused */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    get_v1_tenants: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Tenants that are configured or have unfinished jobs */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Tenants"];
                };
            };
            /** @description refused */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    get_v1_timeline: {
        parameters: {
            query?: {
                after?: number;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Timeline of attempts */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Timeline"];
                };
            };
            /** @description refused */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    get_v1_webhooks: {
        parameters: {
            query?: {
                state?: "waiting" | "failed";
                cursor?: string;
                limit?: number;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Webhooks that are not delivered, those of the newest jobs first */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Page_WebhookView"];
                };
            };
            /** @description refused */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    delete_v1_webhooks_webhook: {
        parameters: {
            query?: never;
            header?: {
                "Idempotency-Key"?: string;
            };
            path: {
                webhook: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Remove a webhook */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description refused */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            413: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            507: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    post_v1_webhooks_webhook_retry: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                webhook: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Send a webhook now, with all its attempts again */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["WebhookView"];
                };
            };
            /** @description refused */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            507: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    get_v1_workers: {
        parameters: {
            query?: {
                cursor?: string;
                limit?: number;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Remote workers that have leases, wait for some, or were heard of lately, in the order of their first requests */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Page_WorkerView"];
                };
            };
            /** @description refused */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    get_v1_ws: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Submit and follow over a WebSocket, in order */
            101: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description refused */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description refused */
            426: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    get_version: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Version of the server */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Version"];
                };
            };
        };
    };
}
