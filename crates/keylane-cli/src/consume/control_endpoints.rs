//! `/pause`, `/resume`, `/retry` and `/paused` of a running consumer: commands of an operator with a
//! token.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{AUTHORIZATION, HeaderValue, WWW_AUTHENTICATE};
use hyper::{Method, Request, Response, StatusCode};
use keylane_stream::consumer::{ConsumerHandle, ControlError, Target};
use serde_json::json;
use tokio::time::timeout;

use super::control_target::{listed, parse};
use super::listen_token::ListenToken;
use super::log::{LogLevel, ThrottledLog};
use super::responses::{json, text};

/// Timeout for the consumer's answer. It answers between two waits of at most 100 ms, unless its source
/// hangs.
const PATIENCE: Duration = Duration::from_secs(2);

/// Maximum size of a request's body, in bytes. A key of a record can be long.
const MAX_BODY: usize = 64 << 10;

/// Timeout of a request's body.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum number of refused requests that are logged in a burst.
const REFUSALS_AT_ONCE: u32 = 20;

/// Access to the commands.
#[derive(Debug)]
pub(super) struct ControlAccess {
    /// Token that a request must have. Without one, every command is refused.
    pub(super) token: Option<ListenToken>,
    /// Log for refused requests.
    pub(super) log: Arc<ThrottledLog>,
}

/// A command of an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ControlCommand {
    Pause,
    Resume,
    Retry,
    List,
}

/// Result of a command.
enum ControlResult {
    Changed(bool),
    Retried(usize),
}

impl ControlCommand {
    /// Returns the command at a path, if there is one.
    pub(super) fn at(path: &str) -> Option<Self> {
        match path {
            "/pause" => Some(ControlCommand::Pause),
            "/resume" => Some(ControlCommand::Resume),
            "/retry" => Some(ControlCommand::Retry),
            "/paused" => Some(ControlCommand::List),
            _ => None,
        }
    }

    fn path(self) -> &'static str {
        match self {
            ControlCommand::Pause => "/pause",
            ControlCommand::Resume => "/resume",
            ControlCommand::Retry => "/retry",
            ControlCommand::List => "/paused",
        }
    }

    fn method(self) -> Method {
        if self == ControlCommand::List { Method::GET } else { Method::POST }
    }

    /// Sends the command to the consumer, and waits for its answer.
    fn send(self, handle: &ConsumerHandle, target: &Target) -> Result<ControlResult, ControlError> {
        match self {
            ControlCommand::Pause => handle.pause(target, PATIENCE).map(ControlResult::Changed),
            ControlCommand::Resume => handle.resume(target, PATIENCE).map(ControlResult::Changed),
            ControlCommand::Retry => handle.retry(target, PATIENCE).map(ControlResult::Retried),
            ControlCommand::List => unreachable!("it has no target"),
        }
    }
}

/// Answers a request for a command.
pub(super) async fn answer(
    command: ControlCommand,
    request: Request<Incoming>,
    peer: IpAddr,
    access: &ControlAccess,
    handle: ConsumerHandle,
) -> Response<Full<Bytes>> {
    if let Some(refusal) = check_token(command, &request, peer, access) {
        return refusal;
    }
    if request.method() != command.method() {
        let (path, method) = (command.path(), command.method());
        return text(StatusCode::METHOD_NOT_ALLOWED, format!("{path} is for {method}\n"));
    }
    if command == ControlCommand::List {
        return list(handle).await;
    }
    let body = match body(request).await {
        Ok(body) => body,
        Err((status, why)) => return text(status, why),
    };
    let target = match parse(&body) {
        Ok(target) => target,
        Err(why) => return text(StatusCode::BAD_REQUEST, format!("{why}\n")),
    };
    let name = target.to_string();
    let sent = tokio::task::spawn_blocking(move || command.send(&handle, &target)).await;
    match sent.unwrap_or(Err(ControlError::Ended)) {
        Ok(ControlResult::Changed(changed)) => json(&json!({ "target": name, "changed": changed })),
        Ok(ControlResult::Retried(records)) => json(&json!({ "target": name, "records": records })),
        Err(error @ ControlError::TooMany(_)) => text(StatusCode::CONFLICT, format!("{error}\n")),
        Err(error) => text(StatusCode::SERVICE_UNAVAILABLE, format!("{error}\n")),
    }
}

/// Returns the response to a request without the right token, and nothing for one that has it.
fn check_token(
    command: ControlCommand,
    request: &Request<Incoming>,
    peer: IpAddr,
    access: &ControlAccess,
) -> Option<Response<Full<Bytes>>> {
    let path = command.path();
    let Some(token) = &access.token else {
        let what = format!(
            "{path} needs a token, and the consumer has none; start it with --listen-token-file FILE\n"
        );
        return Some(text(StatusCode::FORBIDDEN, what));
    };
    let given = request.headers().get(AUTHORIZATION).map(HeaderValue::as_bytes);
    let why = match given.and_then(bearer) {
        Some(given) if token.is(given) => return None,
        Some(_) => "a wrong token",
        None => "no bearer token",
    };
    let message = format_args!("refused a request for {path} from {peer}: it has {why}");
    access.log.say_seldom(LogLevel::Warn, REFUSALS_AT_ONCE, message);
    let what = format!("the request has {why}; send the header Authorization: Bearer TOKEN\n");
    let mut response = text(StatusCode::UNAUTHORIZED, what);
    response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    Some(response)
}

/// Returns the token of an authorization by token.
fn bearer(authorization: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = authorization.split_at_checked("Bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then(|| token.trim_ascii())
}

/// Reads the body of a request. The error is the status of the response, and its text.
async fn body(request: Request<Incoming>) -> Result<Bytes, (StatusCode, String)> {
    let limited = Limited::new(request.into_body(), MAX_BODY);
    match timeout(BODY_TIMEOUT, limited.collect()).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(_)) => {
            let what = format!("the body cannot be read, or has more than {MAX_BODY} bytes\n");
            Err((StatusCode::PAYLOAD_TOO_LARGE, what))
        }
        Err(_) => Err((StatusCode::REQUEST_TIMEOUT, "the body does not come\n".to_owned())),
    }
}

/// Lists the paused targets.
async fn list(handle: ConsumerHandle) -> Response<Full<Bytes>> {
    let status = tokio::task::spawn_blocking(move || handle.status(PATIENCE)).await;
    match status.ok().flatten() {
        Some(status) => json(&status.paused.iter().map(listed).collect::<Vec<_>>()),
        None => {
            let what = "the consumer does not answer\n".to_owned();
            text(StatusCode::SERVICE_UNAVAILABLE, what)
        }
    }
}
