//! Errors of requests: the server's problem with its remedy, and the exit code for it.

use std::borrow::Cow;
use std::fmt;
use std::io::Write;

use keylane_service::wire::{FieldError, Problem};
use reqwest::StatusCode;

use super::render::plain;
use crate::exit::ExitOutcome;

/// Why a request did not succeed.
#[derive(Debug, thiserror::Error)]
pub(super) enum RequestError {
    /// The server refused the request.
    #[error("{0}")]
    Refused(ErrorResponse),
    /// The connection failed, so no request was sent.
    #[error("{server} was not reached: {why}; is `keylane serve` running there?")]
    NotConnected { server: String, why: String },
    /// The connection broke, or there was no answer in time.
    #[error("{server} gave no answer: {why}; is `keylane serve` running there?")]
    Unreachable { server: String, why: String },
    /// The TLS handshake failed, so no request was sent.
    #[error("{server} was reached and not believed: {why}")]
    Untrusted { server: String, why: String },
}

impl RequestError {
    /// Whether a retry may succeed without a change.
    pub(super) fn may_pass(&self) -> bool {
        match self {
            RequestError::Unreachable { .. } | RequestError::NotConnected { .. } => true,
            RequestError::Untrusted { .. } => false,
            RequestError::Refused(refusal) => {
                matches!(refusal.status.as_u16(), 408 | 425 | 429 | 502..=504)
            }
        }
    }
}

/// Error response of the server.
#[derive(Debug)]
pub(super) struct ErrorResponse {
    pub(super) status: StatusCode,
    /// Problem of a Keylane server; a proxy returns another text.
    problem: Result<Box<Problem>, String>,
    /// Seconds after which to try again.
    retry_after: Option<u64>,
    /// Path of the request, behind the address of the server.
    path: String,
}

/// Maximum number of characters that are quoted of a response that is not Keylane's.
const MAX_QUOTED: usize = 300;

impl ErrorResponse {
    pub(super) fn new(
        status: StatusCode,
        body: &[u8],
        retry_after: Option<u64>,
        path: &str,
    ) -> Self {
        let problem = serde_json::from_slice(body).map_err(|_| {
            let text = String::from_utf8_lossy(body);
            text.trim().chars().take(MAX_QUOTED).collect()
        });
        ErrorResponse { status, problem, retry_after, path: path.to_owned() }
    }

    /// Problem code for programs.
    pub(super) fn code(&self) -> &str {
        self.problem.as_ref().map_or("", |problem| &problem.code)
    }

    /// Remedy for the user that the server cannot know.
    fn remedy(&self) -> Option<String> {
        let text = match self.code() {
            "unauthorized" => "give a token with --token-file FILE, or in KEYLANE_TOKEN",
            "forbidden" => "ask the operator of the server to give the token more roles",
            "unknown" => return where_listed(&self.path).map(str::to_owned),
            "other-request" => "a new job needs a new --idempotency-key",
            "backlog-full" | "too-many-requests" | "unavailable" => {
                let seconds = self.retry_after.unwrap_or(1);
                return Some(format!("try again in {seconds} s"));
            }
            "too-large" => {
                "many subtasks go in as lines: --ndjson FILE, --csv FILE or --lines FILE"
            }
            "internal" => "the server's log has it under this request's number",
            "" => "it is not a Keylane server that answered; check --server",
            _ => return None,
        };
        Some(text.to_owned())
    }
}

impl fmt::Display for ErrorResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let status = self.status.as_u16();
        match &self.problem {
            Ok(problem) => {
                let (detail, fields) = without_repeats(problem);
                write!(f, "{} ({status} {})", plain(&detail), plain(&problem.code))?;
                for error in fields {
                    let pointer = if error.pointer.is_empty() { "/" } else { &*error.pointer };
                    write!(f, "\n  {}: {}", plain(pointer), plain(&error.detail))?;
                }
                if problem.code == "internal" && !problem.instance.is_empty() {
                    write!(f, "\n  request {}", plain(&problem.instance))?;
                }
            }
            Err(text) if text.is_empty() => write!(f, "the answer was {}", self.status)?,
            Err(text) => write!(f, "the answer was {}: {}", self.status, plain(text))?,
        }
        match self.remedy() {
            Some(remedy) => write!(f, "\n  {remedy}"),
            None => Ok(()),
        }
    }
}

/// Returns the command that lists what the path of a request names.
fn where_listed(path: &str) -> Option<&'static str> {
    let mut words = path.trim_start_matches('/').split('/').skip_while(|word| *word == "v1");
    Some(match (words.next()?, words.nth(1)) {
        ("jobs", Some("subtasks")) => {
            "`keylane status` lists the jobs, and `keylane status ID` has the number of its subtasks"
        }
        ("jobs", _) => "`keylane status` lists the jobs",
        ("keys", _) => "`keylane keys` lists the keys with unfinished subtasks",
        ("kinds", _) => "`keylane kinds` lists the kinds",
        ("schedules", _) => "`keylane schedules` lists the schedules",
        ("webhooks", _) => "`keylane webhooks` lists the webhooks that are not delivered",
        _ => return None,
    })
}

/// Returns the detail of a problem, and the fields that it does not name already: it often repeats the first one.
fn without_repeats(problem: &Problem) -> (Cow<'_, str>, Vec<&FieldError>) {
    let named = |error: &FieldError| format!("{}: {}", error.pointer, error.detail);
    match &problem.errors[..] {
        // The pointer is said nowhere else.
        [only] if only.detail == problem.detail && !only.pointer.is_empty() => {
            (named(only).into(), Vec::new())
        }
        [only] if problem.detail.ends_with(&only.detail) => {
            (problem.detail.as_str().into(), Vec::new())
        }
        all => {
            let is_new = |error: &&FieldError| named(error) != problem.detail;
            (problem.detail.as_str().into(), all.iter().filter(is_new).collect())
        }
    }
}

/// Writes a line to standard error. A lost standard error cannot be reported.
pub(super) fn say(message: impl fmt::Display) {
    let _ = writeln!(std::io::stderr().lock(), "keylane: {message}");
}

/// Converts errors with an exit code of their own to that ending; other errors are unchanged.
pub(super) fn settle(result: anyhow::Result<ExitOutcome>) -> anyhow::Result<ExitOutcome> {
    let error = match result {
        Ok(ending) => return Ok(ending),
        Err(error) => error,
    };
    let ending = match error.downcast_ref::<RequestError>() {
        Some(RequestError::Refused(_)) => ExitOutcome::Refused,
        Some(
            RequestError::Unreachable { .. }
            | RequestError::NotConnected { .. }
            | RequestError::Untrusted { .. },
        ) => ExitOutcome::Unreachable,
        None if is_closed_pipe(&error) => {
            return Ok(ExitOutcome::Signalled { signal: signal_hook::consts::SIGPIPE });
        }
        None => return Err(error),
    };
    say(format_args!("{error:#}"));
    Ok(ending)
}

/// Whether the reader of the output has closed it.
fn is_closed_pipe(error: &anyhow::Error) -> bool {
    let io = error.downcast_ref::<std::io::Error>();
    io.is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_is_said_with_its_places_and_what_can_be_done() {
        let body = br#"{"type":"/problems/invalid","title":"It makes no sense","status":422,
            "detail":"there is no kind `x`","instance":"1-2","code":"invalid",
            "errors":[{"pointer":"/kind","detail":"there is: resize"}]}"#;
        let text = ErrorResponse::new(StatusCode::UNPROCESSABLE_ENTITY, body, None, "").to_string();
        assert_eq!(text, "there is no kind `x` (422 invalid)\n  /kind: there is: resize");
        let body = br#"{"type":"","title":"","status":429,"detail":"5 wait","instance":"","code":"backlog-full"}"#;
        let text = ErrorResponse::new(StatusCode::TOO_MANY_REQUESTS, body, Some(7), "").to_string();
        assert_eq!(text, "5 wait (429 backlog-full)\n  try again in 7 s");
    }

    /// A refusal of one field printed the same sentence twice.
    #[test]
    fn no_sentence_is_said_twice() {
        let text = |detail: &str, errors: &[(&str, &str)]| {
            let errors = errors
                .iter()
                .map(|(pointer, detail)| serde_json::json!({"pointer": pointer, "detail": detail}));
            let body = serde_json::json!({"type": "", "title": "", "status": 422, "detail": detail,
                "instance": "", "code": "invalid", "errors": errors.collect::<Vec<_>>()});
            let body = body.to_string();
            ErrorResponse::new(StatusCode::UNPROCESSABLE_ENTITY, body.as_bytes(), None, "")
                .to_string()
        };
        let no_kind = "/kind: there is no kind `x` (422 invalid)";
        assert_eq!(
            text("/kind: there is no kind `x`", &[("/kind", "there is no kind `x`")]),
            no_kind
        );
        assert_eq!(text("there is no kind `x`", &[("/kind", "there is no kind `x`")]), no_kind);
        assert_eq!(text("nothing to do", &[("", "nothing to do")]), "nothing to do (422 invalid)");
        assert_eq!(
            text("limit: too many", &[("?limit", "too many")]),
            "limit: too many (422 invalid)"
        );
        let several = text("/weight: no", &[("/weight", "no"), ("/key", "no")]);
        assert_eq!(several, "/weight: no (422 invalid)\n  /key: no");
    }

    /// Unknown kinds, schedules and webhooks were looked for in lists of jobs and keys.
    #[test]
    fn an_unknown_object_has_the_command_that_lists_it() {
        let body = br#"{"type":"","title":"","status":404,"detail":"there is none","instance":"","code":"unknown"}"#;
        let text = |path| ErrorResponse::new(StatusCode::NOT_FOUND, body, None, path).to_string();
        for (path, command) in [
            ("/v1/jobs/a", "`keylane status` lists the jobs"),
            ("/v1/jobs/a/subtasks/7/logs", "`keylane status ID` has the number of its subtasks"),
            ("/v1/keys/a/pause", "`keylane keys`"),
            ("/v1/kinds/a/pause", "`keylane kinds`"),
            ("/v1/schedules/a", "`keylane schedules`"),
            ("/v1/webhooks/a/retry", "`keylane webhooks`"),
        ] {
            assert!(text(path).contains(command), "{path}: {}", text(path));
        }
        assert_eq!(text("/v1/other"), "there is none (404 unknown)");
    }

    #[test]
    fn foreign_responses_are_quoted_without_control_characters() {
        let refusal = ErrorResponse::new(StatusCode::BAD_GATEWAY, b"<html>\x1b[31m", None, "");
        let text = refusal.to_string();
        assert!(text.starts_with("the answer was 502 Bad Gateway: <html>"), "{text}");
        assert!(!text.contains('\x1b') && text.contains("check --server"), "{text}");
        assert!(RequestError::Refused(refusal).may_pass());
    }
}
