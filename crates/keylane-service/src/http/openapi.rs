//! `/openapi.json`: description of the API for programs. The schemas come from the wire types, the
//! operations from a table, and a test compares the table with the routes.

use axum::Json;
use axum::extract::State as Shared;
use serde_json::{Map, Value, json};
use utoipa::OpenApi;

use super::app_state::AppState;
use super::schemas;
use crate::kind_registry::KindRegistry;
use crate::wire;

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Keylane",
        description = "Durable jobs, shared fairly among workers, in order per key.",
        version = "1"
    ),
    components(schemas(
        wire::SubmitJob,
        wire::SubmitSubtask,
        wire::Job,
        wire::JobPatch,
        wire::CancelRequest,
        wire::RetryRequest,
        wire::RetrySubtask,
        wire::SubtaskView,
        wire::OutcomeView,
        wire::SubtaskRef,
        wire::AttemptLog,
        wire::KeyView,
        wire::ClaimRequest,
        wire::Claim,
        wire::HeartbeatRequest,
        wire::HeartbeatResponse,
        wire::CompleteRequest,
        wire::FailRequest,
        wire::HeartbeatBatch,
        wire::HeartbeatResults,
        wire::CompleteBatch,
        wire::CompleteResults,
        wire::AuditEntry,
        wire::Event,
        wire::SubmitBatch,
        wire::Batch,
        wire::KindView,
        wire::TenantView,
        wire::KindPatch,
        wire::KindSetting,
        wire::PauseKindRequest,
        wire::ResetKindRequest,
        wire::WebhookView,
        wire::SetSchedule,
        wire::Schedule,
        wire::History,
        wire::SchedulerView,
        wire::Timeline,
        wire::Summary,
        wire::Health,
        wire::Version,
        wire::Problem,
        wire::DamagedRow,
        wire::Page<wire::AuditEntry>,
        wire::Page<wire::Job>,
        wire::Page<wire::OutcomeView>,
        wire::Page<wire::SubtaskView>,
        wire::Page<wire::KeyView>,
        wire::Page<wire::AttemptLog>,
        wire::Page<wire::Schedule>,
        wire::NodeList,
        wire::Page<wire::WorkerView>,
        wire::Page<wire::WebhookView>,
        wire::Explained,
        wire::KindList,
        wire::TenantList,
    ))
)]
struct SchemaList;

/// Operation: method and path.
struct Operation {
    method: &'static str,
    path: &'static str,
    what: &'static str,
    /// Query parameters, with the names of their types.
    query: &'static [(&'static str, &'static str)],
    /// Names of header parameters.
    headers: &'static [&'static str],
    /// Schema of the body, and whether a body is required.
    body: Option<(&'static str, bool)>,
    /// Success statuses, with the schemas of their bodies.
    answers: &'static [(u16, Option<&'static str>)],
    /// Error statuses.
    problems: &'static [u16],
}

const LIMIT: &[(&str, &str)] = &[("key", "string"), ("sort", "string"), ("limit", "integer")];

macro_rules! operations {
    ($($method:ident $path:literal $what:literal $(query $query:expr;)? $(headers $headers:expr;)?
        $(body $body:literal $needed:literal;)? answers $answers:expr; problems $problems:expr;)*) => {
        &[$(Operation {
            method: stringify!($method),
            path: $path,
            what: $what,
            query: operations!(@or $($query)?),
            headers: operations!(@or $($headers)?),
            body: operations!(@body $($body $needed)?),
            answers: &$answers,
            problems: &$problems,
        }),*]
    };
    (@or) => { &[] };
    (@or $some:expr) => { $some };
    (@body) => { None };
    (@body $name:literal $needed:literal) => { Some(($name, $needed)) };
}

const OPERATIONS: &[Operation] = operations! {
    get "/v1/jobs" "Jobs, newest first"
        query &[("state", "string"), ("kind", "string"), ("label", "string"), ("tenant", "string"), ("q", "string"), ("cursor", "string"), ("limit", "integer")];
        answers [(200, Some("Page_Job"))]; problems [422];
    post "/v1/jobs" "Submit a job; answered when it is on the disk"
        headers &["Idempotency-Key", "Prefer", "traceparent", "tracestate"]; body "SubmitJob" true;
        answers [(202, Some("Job")), (200, Some("Job"))]; problems [400, 409, 413, 415, 422, 429, 503, 507];
    get "/v1/jobs/{id}" "A job" headers &["Prefer", "If-None-Match"];
        answers [(200, Some("Job")), (304, None)]; problems [404, 410];
    post "/v1/jobs/batch" "Submit several jobs: all or none, unless `atomic` is false; answered when they are on the disk"
        query &[("atomic", "boolean")]; headers &["Idempotency-Key", "traceparent", "tracestate"]; body "SubmitBatch" true;
        answers [(202, Some("Batch")), (200, Some("Batch"))]; problems [400, 409, 413, 415, 422, 429, 503, 507];
    put "/v1/jobs/{id}" "Submit a job with an identifier of the client's, valid in place of the server's"
        headers &["Prefer", "traceparent", "tracestate"]; body "SubmitJob" true;
        answers [(202, Some("Job")), (200, Some("Job"))]; problems [400, 409, 413, 415, 422, 429, 503, 507];
    patch "/v1/jobs/{id}" "Change a job's name, labels or weight" headers &["If-Match"]; body "JobPatch" false;
        answers [(200, Some("Job"))]; problems [400, 404, 409, 410, 412, 413, 415, 422, 428, 503, 507];
    delete "/v1/jobs/{id}" "Remove an ended job" answers [(204, None)]; problems [404, 409, 410, 503, 507];
    get "/v1/jobs/{id}/results" "Outcomes of its subtasks"
        query &[("order", "string"), ("cursor", "string"), ("limit", "integer")];
        answers [(200, Some("Page_OutcomeView"))]; problems [404, 410, 422];
    get "/v1/jobs/{id}/subtasks" "Subtasks of a job"
        query &[("state", "string"), ("key", "string"), ("cursor", "string"), ("limit", "integer")];
        answers [(200, Some("Page_SubtaskView"))]; problems [404, 410, 422];
    get "/v1/jobs/{id}/subtasks/{number}" "A subtask of a job" answers [(200, Some("SubtaskView"))]; problems [404, 410];
    get "/v1/jobs/{id}/subtasks/{number}/logs" "Logs of a subtask's attempts; `split` and `fan-in` name those steps"
        answers [(200, Some("Page_AttemptLog"))]; problems [404, 410];
    get "/v1/jobs/{id}/explain" "Reasons why a job's subtasks wait" answers [(200, Some("Explained"))]; problems [404, 410];
    post "/v1/jobs/{id}/cancel" "Cancel a job" body "CancelRequest" false;
        answers [(202, Some("Job")), (200, Some("Job"))]; problems [400, 404, 410, 413, 415, 422, 503, 507];
    post "/v1/jobs/{id}/pause" "Pause a job" answers [(200, Some("Job"))]; problems [404, 409, 410, 503, 507];
    post "/v1/jobs/{id}/resume" "Resume a job" answers [(200, Some("Job"))]; problems [404, 409, 410, 503, 507];
    post "/v1/jobs/{id}/retry" "Retry subtasks of an ended job" body "RetryRequest" false;
        answers [(202, Some("Job")), (200, Some("Job"))]; problems [400, 404, 409, 410, 413, 415, 422, 429, 503, 507];
    get "/v1/jobs/{id}/events" "Events of a job, as server-sent events"
        query &[("after", "string")]; headers &["Last-Event-ID"];
        answers [(200, Some("text/event-stream"))]; problems [404, 410, 422];
    get "/v1/events" "All events, as server-sent events"
        query &[("include", "string"), ("after", "string")]; headers &["Last-Event-ID"];
        answers [(200, Some("text/event-stream"))]; problems [422];
    get "/v1/ws" "Submit and follow over a WebSocket, in order" answers [(101, None)]; problems [400, 426];
    get "/v1/keys" "Keys with unfinished subtasks" query LIMIT;
        answers [(200, Some("Page_KeyView"))]; problems [422];
    post "/v1/keys" "`what` is `pause`, `resume`, `retry-head` or `skip-head`; for keys that do not fit into a path"
        query &[("key", "string"), ("what", "string")];
        answers [(200, Some("KeyView"))]; problems [404, 409, 422, 503, 507];
    get "/v1/keys/{key}" "A key" answers [(200, Some("KeyView"))]; problems [404];
    post "/v1/keys/{key}/{what}" "`pause`, `resume`, `retry-head` or `skip-head`"
        answers [(200, Some("KeyView"))]; problems [404, 409, 503, 507];
    post "/v1/leases" "Claim subtasks" body "ClaimRequest" true;
        answers [(200, Some("Claim"))]; problems [400, 413, 422, 503];
    post "/v1/leases/heartbeat" "Extend leases, each by itself" body "HeartbeatBatch" true;
        answers [(200, Some("HeartbeatResults"))]; problems [400, 413, 422];
    post "/v1/leases/complete" "Report the ends of leases, each by itself, and possibly claim the next subtasks"
        body "CompleteBatch" true;
        answers [(200, Some("CompleteResults"))]; problems [400, 413, 422, 503, 507];
    post "/v1/leases/{id}/heartbeat" "Extend a lease" body "HeartbeatRequest" false;
        answers [(200, Some("HeartbeatResponse"))]; problems [400, 404, 409, 413, 415, 422];
    post "/v1/leases/{id}/complete" "Report a success" body "CompleteRequest" false;
        answers [(204, None)]; problems [400, 404, 409, 413, 422, 503, 507];
    post "/v1/leases/{id}/fail" "Report a failure" body "FailRequest" true;
        answers [(204, None)]; problems [400, 404, 409, 413, 422, 503, 507];
    get "/v1/workers" "Remote workers that have leases, wait for some, or were heard of lately, in the order of their first requests"
        query &[("cursor", "string"), ("limit", "integer")];
        answers [(200, Some("Page_WorkerView"))]; problems [422];
    get "/v1/schedules" "Schedules, by name" query &[("cursor", "string"), ("limit", "integer")];
        answers [(200, Some("Page_Schedule"))]; problems [422];
    get "/v1/schedules/{name}" "A schedule" answers [(200, Some("Schedule"))]; problems [404];
    put "/v1/schedules/{name}" "Create or replace a schedule" body "SetSchedule" true;
        answers [(201, Some("Schedule")), (200, Some("Schedule"))]; problems [400, 409, 413, 415, 422, 503, 507];
    delete "/v1/schedules/{name}" "Remove a schedule; its jobs stay" answers [(204, None)]; problems [404, 409, 503, 507];
    post "/v1/schedules/{name}/pause" "Pause a schedule" answers [(200, Some("Schedule"))]; problems [404, 409, 503, 507];
    post "/v1/schedules/{name}/resume" "Resume a schedule" answers [(200, Some("Schedule"))]; problems [404, 409, 503, 507];
    post "/v1/schedules/{name}/run" "Run a schedule now" headers &["Idempotency-Key", "Prefer"];
        answers [(202, Some("Job")), (200, Some("Job"))]; problems [404, 409, 413, 422, 429, 503, 507];
    get "/v1/audit" "Audit log, newest first"
        query &[("who", "string"), ("what", "string"), ("job", "string"), ("since", "string"), ("cursor", "string"), ("limit", "integer")];
        answers [(200, Some("Page_AuditEntry"))]; problems [422];
    post "/v1/backup" "A copy of the store, for administrators"
        answers [(200, Some("application/vnd.sqlite3"))]; problems [503, 507];
    get "/v1/kinds" "Kinds of jobs" answers [(200, Some("Kinds"))]; problems [];
    get "/v1/kinds/{kind}" "A kind of jobs" answers [(200, Some("KindView"))]; problems [404];
    patch "/v1/kinds/{kind}" "Change limits of a kind, until they are reset" body "KindPatch" false;
        answers [(200, Some("KindView"))]; problems [400, 404, 409, 413, 415, 422, 503, 507];
    post "/v1/kinds/{kind}/pause" "Pause a kind: nothing of it starts" body "PauseKindRequest" false;
        answers [(200, Some("KindView"))]; problems [400, 404, 409, 413, 415, 422, 503, 507];
    post "/v1/kinds/{kind}/resume" "Resume a kind" answers [(200, Some("KindView"))]; problems [404, 409, 503, 507];
    post "/v1/kinds/{kind}/reset" "Reset changed limits of a kind" body "ResetKindRequest" false;
        answers [(200, Some("KindView"))]; problems [400, 404, 409, 413, 415, 422, 503, 507];
    get "/v1/webhooks" "Webhooks that are not delivered, those of the newest jobs first"
        query &[("state", "string"), ("cursor", "string"), ("limit", "integer")];
        answers [(200, Some("Page_WebhookView"))]; problems [422];
    post "/v1/webhooks/{webhook}/retry" "Send a webhook now, with all its attempts again"
        answers [(200, Some("WebhookView"))]; problems [404, 409, 503, 507];
    delete "/v1/webhooks/{webhook}" "Remove a webhook" answers [(204, None)]; problems [404, 503, 507];
    get "/v1/nodes" "Servers that share the store in a database" answers [(200, Some("Nodes"))]; problems [503];
    post "/v1/nodes/drain" "Drain a server: it takes no more subtasks, and another one becomes the owner"
        query &[("address", "string")];
        answers [(200, Some("NodeView"))]; problems [404, 409, 422, 503];
    post "/v1/nodes/resume" "Resume a drained server"
        query &[("address", "string")];
        answers [(200, Some("NodeView"))]; problems [404, 422, 503];
    get "/v1/tenants" "Tenants that are configured or have unfinished jobs" answers [(200, Some("Tenants"))]; problems [];
    get "/v1/history" "Past of the service, for charts"
        query &[("from", "string"), ("to", "string"), ("include", "string")];
        answers [(200, Some("History"))]; problems [422];
    get "/v1/scheduler" "Allocation of slots" answers [(200, Some("SchedulerView"))]; problems [];
    get "/v1/summary" "Counts of the server" answers [(200, Some("Summary"))]; problems [];
    get "/v1/timeline" "Timeline of attempts" query &[("after", "integer")];
        answers [(200, Some("Timeline"))]; problems [422];
    get "/metrics" "Metrics for Prometheus" answers [(200, Some("text/plain"))]; problems [];
    get "/livez" "Liveness" answers [(200, Some("text/plain"))]; problems [];
    get "/readyz" "Readiness" answers [(200, Some("Health")), (503, Some("Health"))]; problems [];
    get "/version" "Version of the server" answers [(200, Some("Version"))]; problems [];
    get "/problems/{code}" "What a problem's type means" answers [(200, Some("text/plain"))]; problems [404];
    get "/openapi.json" "This document" answers [(200, Some("application/json"))]; problems [];
};

/// Paths without authentication.
const OPEN: &[&str] = &["/livez", "/readyz", "/version", "/problems/{code}", "/openapi.json"];

pub(super) async fn document(Shared(state): Shared<AppState>) -> Json<Value> {
    Json(build(&state.core.kinds))
}

/// Builds the document for a service with these kinds.
fn build(kinds: &KindRegistry) -> Value {
    let mut document =
        serde_json::to_value(SchemaList::openapi()).expect("it can be written as JSON");
    let mut paths = Map::new();
    for operation in OPERATIONS {
        let path = paths.entry(operation.path).or_insert_with(|| json!({}));
        path[operation.method] = operation.describe();
    }
    document["paths"] = Value::Object(paths);
    schemas::complete(&mut document["components"]["schemas"], kinds);
    document["components"]["securitySchemes"] = json!({"token": {"type": "http", "scheme": "bearer", "description": "A token of the server, if it has some"}});
    document["security"] = json!([{"token": []}, {}]);
    document
}

fn reference(schema: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{schema}")})
}

impl Operation {
    fn describe(&self) -> Value {
        let mut described = json!({
            "summary": self.what,
            "operationId": self.id(),
            "parameters": self.parameters(),
            "responses": self.responses(),
        });
        if let Some((schema, needed)) = self.body {
            let mut content = json!({"application/json": {"schema": reference(schema)}});
            if schema == "SubmitJob" {
                content["application/x-ndjson"] = json!({"schema": {"type": "string"}});
            }
            described["requestBody"] = json!({"required": needed, "content": content});
        }
        described
    }

    fn id(&self) -> String {
        let words = self.path.split(['/', '{', '}', '.', '-']).filter(|word| !word.is_empty());
        words.fold(self.method.to_owned(), |id, word| format!("{id}_{word}"))
    }

    fn parameters(&self) -> Vec<Value> {
        let in_path = self.path.split('{').skip(1).filter_map(|part| part.split('}').next());
        let in_path = in_path.map(|name| {
            let schema = schemas::parameter(self.method, self.path, name, "string");
            json!({"name": name, "in": "path", "required": true, "schema": schema})
        });
        let other = |name: &str, place: &str, kind: &str| {
            let schema = schemas::parameter(self.method, self.path, name, kind);
            let required = schemas::is_required(self.method, self.path, name);
            json!({"name": name, "in": place, "required": required, "schema": schema})
        };
        let query = self.query.iter().map(|(name, kind)| other(name, "query", kind));
        let actions = if schemas::is_done_once(self.method, self.path) {
            &["Idempotency-Key"][..]
        } else {
            &[]
        };
        let headers = self.headers.iter().chain(actions);
        let headers = headers.map(|name| other(name, "header", "string"));
        in_path.chain(query).chain(headers).collect()
    }

    fn responses(&self) -> Value {
        let mut responses = Map::new();
        for (status, schema) in self.answers {
            let content = match schema {
                None => None,
                Some(kind) if kind.contains('/') => Some(json!({*kind: {"schema": {}}})),
                Some(schema) => Some(json!({"application/json": {"schema": reference(schema)}})),
            };
            let mut response = json!({"description": self.what});
            if let Some(content) = content {
                response["content"] = content;
            }
            if self.path.ends_with("/results") {
                response["content"]["application/x-ndjson"] = json!({"schema": {}});
            }
            if self.path.ends_with("/logs") {
                response["content"]["text/plain"] = json!({"schema": {"type": "string"}});
            }
            responses.insert(status.to_string(), response);
        }
        let guarded: &[u16] = if OPEN.contains(&self.path) { &[] } else { &[401, 403] };
        let slow: &[u16] = if self.body.is_some() { &[408] } else { &[] };
        // Errors of idempotency keys: a key that was used for another request, and a body that is
        // too large to store with it.
        let once: &[u16] =
            if schemas::is_done_once(self.method, self.path) { &[400, 413, 422] } else { &[] };
        for status in self.problems.iter().chain(guarded).chain(slow).chain(once) {
            let content = json!({"application/problem+json": {"schema": reference("Problem")}});
            let response = json!({"description": "refused", "content": content});
            responses.insert(status.to_string(), response);
        }
        Value::Object(responses)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds() -> KindRegistry {
        let kinds = KindRegistry::default();
        let plain =
            || crate::Kind::new(crate::handle::FunctionHandler::new(|_| async { Ok(None) }));
        kinds.add("plain", plain());
        let step = crate::handle::FunctionHandler::new(|_| async { Ok(None) });
        kinds.add("split", crate::Kind { split: Some(std::sync::Arc::new(step)), ..plain() });
        kinds.add("remote", crate::Kind::leased(std::time::Duration::from_secs(1)));
        kinds
    }

    #[test]
    fn requests_have_limits_enums_and_formats() {
        let document = build(&kinds());
        let schemas = &document["components"]["schemas"];
        let ways = schemas["SubmitJob"]["anyOf"].as_array().unwrap();
        let of = |fields: &str| {
            let fields: Value = serde_json::from_str(fields).unwrap();
            ways.iter().find(|way| way["required"] == fields).unwrap()
        };
        let plain = &of(r#"["kind","payload"]"#)["properties"];
        assert_eq!(plain["kind"]["enum"], json!(["plain", "remote"]));
        assert_eq!(of(r#"["kind"]"#)["properties"]["kind"]["enum"], json!(["split"]));
        assert_eq!(
            (&plain["weight"]["minimum"], &plain["key"]["minLength"]),
            (&json!(1), &json!(1))
        );
        assert!(plain.get("keys").is_none() && plain.get("subtasks").is_none());
        assert!(of(r#"["kind","subtasks"]"#)["properties"].get("payload").is_none());
        assert!(ways.iter().all(|way| way["additionalProperties"] == false));
        let times = ["run_at", "delay_ms", "expires_at", "expires_ms"]
            .map(|name| ways.iter().filter(|way| way["properties"].get(name).is_some()).count());
        assert_eq!(times, [ways.len() / 2; 4]);
        let claim = &schemas["ClaimRequest"]["properties"];
        assert_eq!(claim["kinds"]["items"]["enum"], json!(["remote"]));
        assert_eq!(
            (&claim["max"]["maximum"], &claim["max"]["type"]),
            (&json!(1000), &json!("integer"))
        );
        let parameter = |path: &str, method: &str, name: &str| {
            let all = document["paths"][path][method]["parameters"].as_array().unwrap();
            all.iter().find(|parameter| parameter["name"] == name).unwrap().clone()
        };
        let limit = parameter("/v1/jobs", "get", "limit")["schema"].clone();
        assert_eq!((&limit["minimum"], &limit["maximum"]), (&json!(1), &json!(1000)));
        assert_eq!(parameter("/v1/jobs/{id}", "patch", "If-Match")["required"], true);
        let since = parameter("/v1/audit", "get", "since");
        assert_eq!(since["schema"]["format"], "date-time");
        for (path, method) in [("/v1/jobs/{id}/retry", "post"), ("/v1/jobs/{id}", "delete")] {
            parameter(path, method, "Idempotency-Key");
        }
        let retry = &document["paths"]["/v1/jobs/{id}/retry"]["post"]["responses"];
        assert!(retry.get("429").is_some(), "a retry needs capacity: {retry}");
    }

    /// Collects all references in a document.
    fn references(of: &Value, found: &mut Vec<String>) {
        match of {
            Value::Object(fields) => {
                found.extend(fields.get("$ref").and_then(Value::as_str).map(str::to_owned));
                fields.values().for_each(|field| references(field, found));
            }
            Value::Array(items) => items.iter().for_each(|item| references(item, found)),
            _ => {}
        }
    }

    #[test]
    fn every_schema_that_is_named_is_there() {
        let document = build(&kinds());
        let mut named = Vec::new();
        references(&document, &mut named);
        assert!(named.len() > 50);
        for name in named {
            let schema = name.strip_prefix("#/components/schemas/").unwrap();
            assert!(document["components"]["schemas"].get(schema).is_some(), "{schema}");
        }
    }

    #[test]
    fn whatever_takes_a_job_takes_its_trace() {
        let takes = |operation: &&Operation| {
            matches!(operation.body, Some(("SubmitJob" | "SubmitBatch", _)))
        };
        let all: Vec<_> = OPERATIONS.iter().filter(takes).collect();
        assert_eq!(all.len(), 3);
        for operation in all {
            let parameters = json!(operation.parameters()).to_string();
            for name in ["traceparent", "tracestate"] {
                assert!(parameters.contains(&format!("\"{name}\"")), "{}", operation.path);
            }
        }
    }

    #[test]
    fn operations_have_names_of_their_own() {
        let mut names: Vec<_> = OPERATIONS.iter().map(Operation::id).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), OPERATIONS.len());
    }
}
