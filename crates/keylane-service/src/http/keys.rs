//! `/v1/keys`: waiting keys, and the actions on one.

use axum::Json;
use axum::Router;
use axum::extract::{Path, State as Shared};
use axum::http::request::Parts;
use axum::routing::{get, post};
use serde::Deserialize;

use super::State;
use super::audit::Operator;
use super::extract::{Reader, query};
use super::problem::Refusal;
use crate::engine::{Act, Action, KeyCommand};
use crate::schedule::KeySort;
use crate::wire::{KeyState, KeyView, Page};

pub(super) fn router() -> Router<State> {
    Router::new().route("/v1/keys", get(list)).route("/v1/keys/{key}", get(show))
}

/// Routes for operators.
pub(super) fn operator_router() -> Router<State> {
    Router::new().route("/v1/keys", post(steer_asked)).route("/v1/keys/{key}/{what}", post(steer))
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Sort {
    #[default]
    HeadAge,
    Length,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct ListQuery {
    /// Key to return; `None` for all.
    key: Option<String>,
    sort: Option<Sort>,
    limit: Option<usize>,
}

async fn list(
    Shared(state): Shared<State>,
    _: Reader,
    parts: Parts,
) -> Result<Json<Page<KeyView>>, Refusal> {
    const MOST: usize = 1000;
    let asked: ListQuery = query(&parts)?;
    let limit = asked.limit.unwrap_or(50);
    if !(1..=MOST).contains(&limit) {
        let why = format!("it is from 1 to {MOST}");
        return Err(Refusal::new("invalid", format!("limit: {why}")).at("?limit", why));
    }
    let sort = match asked.sort.unwrap_or_default() {
        Sort::HeadAge => KeySort::HeadAge,
        Sort::Length => KeySort::Length,
    };
    let items = match asked.key {
        Some(key) => state.core.key(key.as_bytes()).into_iter().collect(),
        None => state.core.keys(sort, limit),
    };
    Ok(Json(Page::new(items, None)))
}

async fn show(
    Shared(state): Shared<State>,
    _: Reader,
    Path(key): Path<String>,
) -> Result<Json<KeyView>, Refusal> {
    let view = state.core.key(key.as_bytes());
    view.map(Json)
        .ok_or_else(|| Refusal::unknown(format!("unfinished subtask with the key `{key}`")))
}

async fn steer(
    Shared(state): Shared<State>,
    Operator(act): Operator,
    Path((key, what)): Path<(String, String)>,
) -> Result<Json<KeyView>, Refusal> {
    let command = match &*what {
        "pause" => KeyCommand::Pause,
        "resume" => KeyCommand::Resume,
        "retry-head" => KeyCommand::RetryHead,
        "skip-head" => KeyCommand::SkipHead,
        _ => return Err(Refusal::unknown("such path")),
    };
    tell(&state, key, command, &act).await
}

/// Form of the path for keys that do not pass through proxies unchanged: some decode `%2F`, `.` and
/// `..`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SteerQuery {
    pub(super) key: String,
    what: What,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum What {
    Pause,
    Resume,
    RetryHead,
    SkipHead,
}

async fn steer_asked(
    Shared(state): Shared<State>,
    Operator(act): Operator,
    parts: Parts,
) -> Result<Json<KeyView>, Refusal> {
    let SteerQuery { key, what } = query(&parts)?;
    let command = match what {
        What::Pause => KeyCommand::Pause,
        What::Resume => KeyCommand::Resume,
        What::RetryHead => KeyCommand::RetryHead,
        What::SkipHead => KeyCommand::SkipHead,
    };
    tell(&state, key, command, &act).await
}

async fn tell(
    state: &State,
    key: String,
    command: KeyCommand,
    act: &Act,
) -> Result<Json<KeyView>, Refusal> {
    act.on_key(&key);
    act.is(match command {
        KeyCommand::Pause => Action::PauseKey,
        KeyCommand::Resume => Action::ResumeKey,
        KeyCommand::RetryHead => Action::RetryHead,
        KeyCommand::SkipHead => Action::SkipHead,
    });
    let view = state.core.steer_key(&key, command, act).await?;
    Ok(Json(unless_gone(view, key)))
}

/// Returns the view of a key, empty if the key has no state left.
pub(super) fn unless_gone(view: Option<KeyView>, key: String) -> KeyView {
    let nothing = KeyView { key, state: KeyState::Open, length: 0, head: None, paused_since: None };
    view.unwrap_or(nothing)
}
