//! `/v1/keys`: waiting keys, and the actions on one.

use axum::extract::{Path, State as Shared};
use axum::http::request::Parts;
use axum::routing::{get, post};
use axum::{Extension, Json, Router};
use serde::Deserialize;

use super::app_state::AppState;
use super::auth::Caller;
use super::extract::{Reader, query};
use super::operator::OperatorCaller;
use super::problem::ApiError;
use super::response::key_or_empty;
use super::token_kinds::permit_all;
use crate::engine::{AuditedRequest, KeyCommand, OperatorAction};
use crate::scheduler::KeySort;
use crate::wire::{KeyView, Page};

pub(super) fn router() -> Router<AppState> {
    Router::new().route("/v1/keys", get(list)).route("/v1/keys/{key}", get(show))
}

/// Routes for operators.
pub(super) fn operator_router() -> Router<AppState> {
    Router::new().route("/v1/keys", post(steer_asked)).route("/v1/keys/{key}/{what}", post(steer))
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum SortQuery {
    #[default]
    HeadAge,
    Length,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct KeyListQuery {
    /// Key to return; `None` for all.
    key: Option<String>,
    sort: Option<SortQuery>,
    limit: Option<usize>,
}

async fn list(
    Shared(state): Shared<AppState>,
    _: Reader,
    parts: Parts,
) -> Result<Json<Page<KeyView>>, ApiError> {
    const MOST: usize = 1000;
    let asked: KeyListQuery = query(&parts)?;
    let limit = asked.limit.unwrap_or(50);
    if !(1..=MOST).contains(&limit) {
        let why = format!("must be from 1 to {MOST}");
        return Err(ApiError::new("invalid", format!("limit: {why}")).at("?limit", why));
    }
    let sort = match asked.sort.unwrap_or_default() {
        SortQuery::HeadAge => KeySort::HeadAge,
        SortQuery::Length => KeySort::Length,
    };
    let items = match asked.key {
        Some(key) => state.core.query.key(key.as_bytes()).into_iter().collect(),
        None => state.core.query.keys(sort, limit),
    };
    Ok(Json(Page::new(items, None)))
}

async fn show(
    Shared(state): Shared<AppState>,
    _: Reader,
    Path(key): Path<String>,
) -> Result<Json<KeyView>, ApiError> {
    let view = state.core.query.key(key.as_bytes());
    view.map(Json)
        .ok_or_else(|| ApiError::unknown(format!("unfinished subtask with the key `{key}`")))
}

async fn steer(
    Shared(state): Shared<AppState>,
    OperatorCaller(act): OperatorCaller,
    Extension(caller): Extension<Caller>,
    Path((key, what)): Path<(String, String)>,
) -> Result<Json<KeyView>, ApiError> {
    permit_all(&caller, "a key")?;
    let command = match &*what {
        "pause" => KeyCommand::Pause,
        "resume" => KeyCommand::Resume,
        "retry-head" => KeyCommand::RetryHead,
        "skip-head" => KeyCommand::SkipHead,
        _ => {
            let actions = "such action on a key; write pause, resume, retry-head or skip-head";
            return Err(ApiError::unknown(actions));
        }
    };
    tell(&state, key, command, &act).await
}

/// Form of the path for keys that do not pass through proxies unchanged: some decode `%2F`, `.` and
/// `..`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct KeyActionQuery {
    key: String,
    what: KeyAction,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum KeyAction {
    Pause,
    Resume,
    RetryHead,
    SkipHead,
}

async fn steer_asked(
    Shared(state): Shared<AppState>,
    OperatorCaller(act): OperatorCaller,
    Extension(caller): Extension<Caller>,
    parts: Parts,
) -> Result<Json<KeyView>, ApiError> {
    permit_all(&caller, "a key")?;
    let KeyActionQuery { key, what } = query(&parts)?;
    let command = match what {
        KeyAction::Pause => KeyCommand::Pause,
        KeyAction::Resume => KeyCommand::Resume,
        KeyAction::RetryHead => KeyCommand::RetryHead,
        KeyAction::SkipHead => KeyCommand::SkipHead,
    };
    tell(&state, key, command, &act).await
}

async fn tell(
    state: &AppState,
    key: String,
    command: KeyCommand,
    act: &AuditedRequest,
) -> Result<Json<KeyView>, ApiError> {
    act.on_key(&key);
    act.is(match command {
        KeyCommand::Pause => OperatorAction::PauseKey,
        KeyCommand::Resume => OperatorAction::ResumeKey,
        KeyCommand::RetryHead => OperatorAction::RetryHead,
        KeyCommand::SkipHead => OperatorAction::SkipHead,
    });
    let view = state.core.control.steer_key(&key, command, act).await?;
    Ok(Json(key_or_empty(view, key)))
}
