//! Constraints of request schemas beyond their types: limits, enums, formats and combinations of
//! fields. A request that satisfies its schema is not refused for its form.

use serde_json::{Map, Value, json};

use crate::engine::{MAX_LEASES, MAX_PAUSE_REASON, MAX_RATE, MAX_URL_BYTES, OperatorAction};
use crate::job_definition::{
    MAX_AFTER, MAX_KEY_BYTES, MAX_KEYS, MAX_LABEL_BYTES, MAX_LABELS, MAX_MS, MAX_NAME_BYTES,
};
use crate::kind::{Kind, KindExecutor};
use crate::kind_registry::KindRegistry;
use crate::tenant::Tenant;
use crate::wire::{JobState, SubtaskState};

/// Schemas of request bodies. Their optional fields may be absent, and are never null.
const REQUESTS: [&str; 18] = [
    "SubmitJob",
    "SubmitSubtask",
    "SubmitBatch",
    "SetSchedule",
    "KindPatch",
    "PauseKindRequest",
    "ResetKindRequest",
    "JobPatch",
    "CancelRequest",
    "RetryRequest",
    "RetrySubtask",
    "ClaimRequest",
    "HeartbeatRequest",
    "CompleteRequest",
    "FailRequest",
    "HeartbeatBatch",
    "CompleteBatch",
    "LeaseEnd",
];

/// Largest integer that every JSON parser preserves.
const MAX_SAFE: u64 = (1 << 53) - 1;

/// Maximum length of a reason or an error, in characters: fewer than fit in a small body in any
/// encoding.
const MAX_TEXT: usize = 8192;

/// Maximum length of a lease's id, in characters: more than any has, and so few that the maximum number
/// of them fits into a request in any encoding.
const MAX_LEASE_ID: usize = 80;

/// Schema of a string of at most this number of UTF-8 bytes. A schema counts characters, so the
/// longest strings are ASCII.
fn text(least: usize, bytes: usize) -> Value {
    json!({"type": "string", "minLength": least, "anyOf": [
        {"maxLength": bytes / 4},
        {"maxLength": bytes, "pattern": "^[\\x00-\\x7f]*$"},
    ]})
}

/// Schema of a whole number. Generators of clients choose a type by the format.
fn integer(least: u64, most: u64) -> Value {
    let format = if i32::try_from(most).is_ok() { "int32" } else { "int64" };
    json!({"type": "integer", "format": format, "minimum": least, "maximum": most})
}

/// Limits of fields, by schema and field.
fn limits() -> Vec<(&'static str, &'static str, Value)> {
    let key = || text(1, MAX_KEY_BYTES);
    let keys = || json!({"type": "array", "items": key(), "maxItems": MAX_KEYS});
    let labels = || {
        let value = text(0, MAX_LABEL_BYTES);
        json!({"type": "object", "maxProperties": MAX_LABELS, "propertyNames": text(1, MAX_LABEL_BYTES),
            "additionalProperties": value})
    };
    let tenant_name = || {
        let most = Tenant::MAX_NAME_BYTES;
        json!({"type": "string", "minLength": 1, "maxLength": most, "pattern": "^[A-Za-z0-9._-]+$"})
    };
    let positive = || integer(1, u32::MAX.into());
    let leases = |items: Value| json!({"type": "array", "items": items, "minItems": 1, "maxItems": MAX_LEASES});
    let rate = || json!({"type": "number", "exclusiveMinimum": 0, "maximum": MAX_RATE});
    // A past time means now. Later times are at most a hundred years ahead.
    let time =
        json!({"type": "string", "format": "date-time", "pattern": "^(19[7-9]|20[0-9])[0-9]-"});
    vec![
        ("SubmitJob", "name", text(0, MAX_NAME_BYTES)),
        ("SubmitJob", "labels", labels()),
        ("SubmitJob", "weight", positive()),
        ("SubmitJob", "tenant", tenant_name()),
        ("SubmitJob", "attempts", positive()),
        ("SubmitJob", "timeout_ms", integer(1, MAX_MS)),
        ("SubmitJob", "max_per_key", integer(1, Kind::MAX_PER_KEY.into())),
        ("SubmitJob", "delay_ms", integer(0, MAX_MS)),
        ("SubmitJob", "run_at", time.clone()),
        ("SubmitJob", "expires_at", time),
        ("SubmitJob", "expires_ms", integer(1, MAX_MS)),
        ("SubmitJob", "unique_ms", integer(1, MAX_MS)),
        (
            "SubmitJob",
            "after",
            json!({"type": "array", "items": {"type": "string"}, "maxItems": MAX_AFTER}),
        ),
        (
            "SubmitJob",
            "webhook",
            json!({"type": "string", "format": "uri", "maxLength": MAX_URL_BYTES, "pattern": "^https?://"}),
        ),
        ("SubmitJob", "key", key()),
        ("SubmitJob", "keys", keys()),
        ("SubmitJob", "shared_keys", keys()),
        ("SubmitSubtask", "key", key()),
        ("SubmitSubtask", "keys", keys()),
        ("SubmitSubtask", "shared_keys", keys()),
        ("JobPatch", "name", text(0, MAX_NAME_BYTES)),
        ("JobPatch", "labels", labels()),
        ("JobPatch", "weight", positive()),
        ("CancelRequest", "reason", json!({"type": "string", "maxLength": MAX_TEXT})),
        ("ClaimRequest", "max", integer(1, MAX_LEASES.into())),
        ("ClaimRequest", "wait_ms", integer(0, MAX_SAFE)),
        ("HeartbeatRequest", "progress", json!({"type": "number", "minimum": 0, "maximum": 1})),
        ("FailRequest", "error", json!({"type": "string", "maxLength": MAX_TEXT})),
        ("FailRequest", "after_ms", integer(0, MAX_MS)),
        ("HeartbeatBatch", "leases", leases(json!({"type": "string", "maxLength": MAX_LEASE_ID}))),
        (
            "HeartbeatBatch",
            "progress",
            json!({"type": "object", "additionalProperties": {"type": "number", "minimum": 0, "maximum": 1}}),
        ),
        ("CompleteBatch", "leases", leases(json!({"$ref": "#/components/schemas/LeaseEnd"}))),
        ("LeaseEnd", "error", json!({"type": "string", "maxLength": MAX_TEXT})),
        ("LeaseEnd", "after_ms", integer(0, MAX_MS)),
        ("KindPatch", "concurrency", positive()),
        ("KindPatch", "burst", positive()),
        ("KindPatch", "burst_per_key", positive()),
        ("KindPatch", "attempts", positive()),
        ("KindPatch", "timeout_ms", integer(1, MAX_MS)),
        ("KindPatch", "per_second", rate()),
        ("KindPatch", "per_second_per_key", rate()),
        ("PauseKindRequest", "reason", text(0, MAX_PAUSE_REASON)),
        ("SetSchedule", "cron", json!({"type": "string", "format": "cron"})),
        ("SetSchedule", "time_zone", json!({"type": "string", "format": "iana-time-zone"})),
    ]
}

/// Completes the request schemas for a service with these kinds.
pub(super) fn complete(schemas: &mut Value, kinds: &KindRegistry) {
    for name in REQUESTS {
        refuse_null(&mut schemas[name]);
        schemas[name]["additionalProperties"] = false.into();
    }
    for (schema, field, limits) in limits() {
        let field = &mut schemas[schema]["properties"][field];
        let description = field.get("description").cloned();
        *field = limits;
        if let Some(description) = description {
            field["description"] = description;
        }
    }
    let leased = |kind: &crate::kind::Kind| matches!(kind.work, KindExecutor::Lease { .. });
    let leased = kinds.present().into_iter().filter(|entry| leased(&entry.kind));
    let leased: Vec<_> = leased.map(|entry| entry.name.to_string()).collect();
    let mut wanted = json!({"type": "string"});
    if !leased.is_empty() {
        wanted["enum"] = json!(leased);
    }
    let description = schemas["ClaimRequest"]["properties"]["kinds"]["description"].take();
    schemas["ClaimRequest"]["properties"]["kinds"] =
        json!({"type": "array", "minItems": 1, "items": wanted, "description": description});
    schemas["LeaseEnd"] = lease_end(&schemas["LeaseEnd"]);
    schemas["SubmitSubtask"] = subtask(&schemas["SubmitSubtask"]);
    let retry = schemas["RetryRequest"].take();
    let ways = ["only", "subtasks"].map(|other| without(retry.clone(), &[other]));
    schemas["RetryRequest"] = json!({"anyOf": ways, "description": retry["description"]});
    let job = schemas["SubmitJob"].take();
    let mut scheduled =
        without(job.clone(), &["run_at", "expires_at", "unique_ms", "after", "after_on"]);
    // The scheduler adds two labels.
    scheduled["properties"]["labels"]["maxProperties"] = json!(MAX_LABELS - 2);
    schemas["ScheduledJob"] = submission(scheduled, kinds);
    schemas["SubmitJob"] = submission(job, kinds);
    schemas["SetSchedule"]["properties"]["job"] =
        json!({"$ref": "#/components/schemas/ScheduledJob"});
}

fn refuse_null(schema: &mut Value) {
    let Some(properties) = schema["properties"].as_object_mut() else { return };
    for property in properties.values_mut() {
        if let Some(types) = property.get_mut("type").and_then(Value::as_array_mut) {
            types.retain(|kind| kind != "null");
            if let [one] = &types[..] {
                property["type"] = one.clone();
            }
        }
        if let Some(ways) = property.get_mut("oneOf").and_then(Value::as_array_mut) {
            ways.retain(|way| way["type"] != "null");
        }
    }
}

/// Returns a schema without some of its fields.
fn without(mut schema: Value, fields: &[&str]) -> Value {
    if let Some(properties) = schema["properties"].as_object_mut() {
        properties.retain(|name, _| !fields.contains(&name.as_str()));
    }
    schema
}

fn requiring(mut schema: Value, fields: &[&str]) -> Value {
    schema["required"] = json!(fields);
    schema
}

/// Schema of a subtask, with `key` or `keys`.
fn subtask(schema: &Value) -> Value {
    let description = schema["description"].clone();
    let [one, several] = [["keys"], ["key"]].map(|other| without(schema.clone(), &other));
    let latest = requiring(without(one.clone(), &["shared_keys", "barrier"]), &["key", "latest"]);
    let mut ways = vec![with_latest(beside_key(one), false), with_latest(latest, true)];
    ways.extend(with_keys(&several).map(|way| with_latest(way, false)));
    json!({"anyOf": ways, "description": description})
}

/// Schema of the end of a lease: a success, a failure or a release.
fn lease_end(schema: &Value) -> Value {
    let description = schema["description"].clone();
    let released = &["result", "error", "retry", "after_ms", "log"];
    let mut released = requiring(without(schema.clone(), released), &["id", "release"]);
    released["properties"]["release"]["enum"] = json!([true]);
    let mut success = without(schema.clone(), &["error", "retry", "after_ms"]);
    success["properties"]["release"]["enum"] = json!([false]);
    let mut failure = requiring(without(schema.clone(), &["result"]), &["id", "error"]);
    failure["properties"]["release"]["enum"] = json!([false]);
    json!({"anyOf": [success, failure, released], "description": description})
}

/// Returns a schema with at most one key, so that all keys are at most [`MAX_KEYS`].
fn beside_key(mut schema: Value) -> Value {
    schema["properties"]["shared_keys"]["maxItems"] = json!(MAX_KEYS - 1);
    schema
}

/// Returns the schemas of one with `keys` and possibly `shared_keys`, which are at most [`MAX_KEYS`] together: either
/// one list alone, or half as many in each. A schema cannot have the sum.
fn with_keys(schema: &Value) -> [Value; 2] {
    let mut both = schema.clone();
    for list in ["keys", "shared_keys"] {
        both["properties"][list]["maxItems"] = json!(MAX_KEYS / 2);
    }
    [without(schema.clone(), &["shared_keys"]), both]
}

/// Returns a schema in which `latest` has this value. A subtask with it has exactly one key.
fn with_latest(mut schema: Value, value: bool) -> Value {
    schema["properties"]["latest"]["enum"] = json!([value]);
    schema
}

/// Schema of a submission: either `subtasks`, or a payload with `key`, `keys` or `shared_keys`; for a kind that
/// splits its jobs, a payload alone. At most one of `run_at` and `delay_ms`, and
/// one of `expires_at` and `expires_ms`.
fn submission(schema: Value, kinds: &KindRegistry) -> Value {
    let description = schema["description"].clone();
    let named = |splits: bool| -> Vec<String> {
        let all = kinds.present().into_iter();
        let named = all.filter(|entry| entry.kind.split.is_some() == splits);
        named.map(|entry| entry.name.to_string()).collect()
    };
    let mut ways = Vec::new();
    let times = ["run_at", "delay_ms"].into_iter();
    let times = times.flat_map(|begin| ["expires_at", "expires_ms"].map(|end| [begin, end]));
    for excluded in times {
        let mut plain = without(schema.clone(), &excluded);
        let mut split =
            without(plain.clone(), &["subtasks", "key", "keys", "shared_keys", "latest"]);
        plain["properties"]["kind"]["enum"] = json!(named(false));
        split["properties"]["kind"]["enum"] = json!(named(true));
        if !named(false).is_empty() {
            let one = beside_key(without(plain.clone(), &["subtasks", "keys"]));
            let latest = with_latest(without(one.clone(), &["shared_keys"]), true);
            ways.push(requiring(latest, &["kind", "key", "latest"]));
            let one = with_latest(one, false);
            ways.push(requiring(one.clone(), &["kind", "payload"]));
            ways.push(requiring(one.clone(), &["kind", "key"]));
            ways.push(requiring(one, &["kind", "shared_keys"]));
            let many = with_keys(&without(plain.clone(), &["subtasks", "key"]));
            ways.extend(many.map(|way| requiring(with_latest(way, false), &["kind", "keys"])));
            let several = without(plain, &["payload", "key", "keys", "shared_keys", "latest"]);
            ways.push(requiring(several, &["kind", "subtasks"]));
        }
        if !named(true).is_empty() {
            ways.push(requiring(split, &["kind"]));
        }
    }
    json!({"anyOf": ways, "description": description})
}

/// Returns the schema of a parameter.
pub(super) fn parameter(method: &str, path: &str, name: &str, kind: &str) -> Value {
    let states = |all: &[&str]| all.join("|");
    match (path, name) {
        (_, "limit") => integer(1, 1000),
        ("/v1/schedules", "cursor") => json!({"type": "string"}),
        ("/v1/webhooks", "cursor") => {
            json!({"type": "string", "pattern": "^job_[0-9a-f]{32}[.][1-9][0-9]{0,15}$"})
        }
        ("/v1/webhooks", "state") => json!({"type": "string", "enum": ["waiting", "failed"]}),
        (_, "cursor") => json!({"type": "string", "pattern": "^[0-9]{1,15}$"}),
        ("/v1/jobs", "state") => {
            let one = states(&JobState::ALL.map(JobState::as_str));
            json!({"type": "string", "pattern": format!("^({one})(,({one}))*$")})
        }
        ("/v1/jobs/{id}/subtasks", "state") => {
            json!({"type": "string", "enum": SubtaskState::ALL.map(SubtaskState::as_str)})
        }
        (_, "label") => json!({"type": "string", "pattern": "^[^:]*:"}),
        (_, "order") => json!({"type": "string", "enum": ["submit", "completion", "key"]}),
        (_, "sort") => json!({"type": "string", "enum": ["head_age", "length"]}),
        ("/v1/audit", "what") => {
            json!({"type": "string", "enum": OperatorAction::ALL.map(OperatorAction::word)})
        }
        (_, "what") => {
            json!({"type": "string", "enum": ["pause", "resume", "retry-head", "skip-head"]})
        }
        (_, "since" | "from" | "to") => json!({"type": "string", "format": "date-time"}),
        ("/v1/history", "include") => json!({"type": "string", "enum": ["slices"]}),
        (_, "include") => {
            json!({"type": "string", "pattern": "^(summary|timeline)(,(summary|timeline))*$"})
        }
        (_, "Idempotency-Key") => {
            json!({"type": "string", "maxLength": 255, "pattern": "^[!-~]([ -~]*[!-~])?$"})
        }
        (_, "If-Match") => json!({"type": "string", "pattern": r#"^(\*|(W/)?"[0-9]{1,15}")$"#}),
        ("/v1/timeline", "after") => integer(0, MAX_SAFE),
        ("/v1/jobs/{id}", "id") if method == "put" => {
            // A client's identifier cannot have the form of a server's.
            json!({"type": "string", "pattern": "^(?!job_|batch$)[A-Za-z0-9_~-][A-Za-z0-9._~:-]{0,127}$"})
        }
        ("/v1/jobs/{id}/subtasks/{number}", "number") => integer(0, u32::MAX.into()),
        ("/v1/jobs/{id}/subtasks/{number}/logs", "number") => {
            json!({"type": "string", "pattern": "^([0-9]{1,9}|split|fan-in)$"})
        }
        (
            "/v1/schedules/{name}"
            | "/v1/schedules/{name}/pause"
            | "/v1/schedules/{name}/resume"
            | "/v1/schedules/{name}/run",
            "name",
        ) => {
            json!({"type": "string", "pattern": "^[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}$"})
        }
        ("/v1/keys", "key") | (_, "key") => text(1, MAX_KEY_BYTES),
        _ => {
            let mut schema = Map::new();
            schema.insert("type".into(), kind.into());
            Value::Object(schema)
        }
    }
}

/// Returns whether a query or header parameter is required.
pub(super) fn is_required(method: &str, path: &str, name: &str) -> bool {
    matches!(
        (method, path, name),
        ("patch", _, "If-Match")
            | ("post", "/v1/keys", "key" | "what")
            | ("post", "/v1/nodes/drain" | "/v1/nodes/resume", "address")
    )
}

/// Returns whether an operation is an operator's action, which takes an idempotency key.
pub(super) fn is_done_once(method: &str, path: &str) -> bool {
    let names_one = |prefix: &str| path.starts_with(prefix);
    match method {
        "patch" | "delete" => true,
        "put" => names_one("/v1/schedules/"),
        "post" => {
            names_one("/v1/keys")
                || names_one("/v1/kinds/{kind}/")
                || (names_one("/v1/jobs/{id}/") || names_one("/v1/schedules/{name}/"))
                    && !path.ends_with("/run")
        }
        _ => false,
    }
}
