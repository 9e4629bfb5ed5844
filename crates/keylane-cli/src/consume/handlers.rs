//! Handlers of records: a command, or an HTTP service.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::pin::pin;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::Context;
use keylane_stream::consumer::{Attempt, AttemptFailure, CancelHook, Cancellation};
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use reqwest::{StatusCode, Url, redirect};
use tokio::sync::oneshot;

use super::environment::HandlerEnvironment;
use super::keys::KeyExtractor;
use super::metadata;
use super::payloads::UnfitPayload;
use super::settings::PayloadAs;
use super::validated::FailureClass;
use crate::http_client;
use crate::input::FieldLayout;
use crate::output::{NotWritten, StandardOutput};
use crate::process::{self, ChildProcesses, CommandEnder, CommandResult, SlotNumbers};
use crate::template::{NoField, Template};

/// The exit status of a command that refuses a record for good: `EX_DATAERR` of BSD's sysexits.
const REFUSED: i32 = 65;

/// The largest answer of a service that is read.
const MAX_ANSWER: usize = 16 << 20;

/// Maximum number of characters of a response that a message quotes.
const QUOTED: usize = 200;

/// Why a record was not handled.
#[derive(Debug, thiserror::Error)]
pub(super) enum NotHandled {
    #[error(fmt = exit)]
    Exit {
        what: String,
        /// End of its standard error.
        said: String,
        refused: bool,
    },
    #[error(fmt = not_run)]
    NotRun {
        program: String,
        #[source]
        cause: io::Error,
    },
    #[error(transparent)]
    NotWritten(#[from] NotWritten),
    #[error(transparent)]
    Unfit(#[from] NoField),
    #[error(transparent)]
    Payload(#[from] UnfitPayload),
    #[error(fmt = worker_ended)]
    WorkerEnded {
        end: String,
        /// End of its standard error during the attempt.
        said: String,
    },
    #[error("there is no worker for it")]
    NoWorker,
    #[error(
        "it contains a line end, and its handler gets a line; handle it without --worker and --batch"
    )]
    LineEnd,
    #[error(
        "the value `{0}` begins with `-`, and the command would take it for an option; write -- before the \
         placeholder, as in `./handle -- {{}}`"
    )]
    Option(String),
    #[error("the answer was {status}{quoted}")]
    Answer { status: StatusCode, quoted: String },
    #[error("the answer has more than {} MiB; a service may answer that much at most", MAX_ANSWER >> 20)]
    LongAnswer,
    #[error("it was ended, because its partition is given back or the consumer ends")]
    Ended,
    #[error("no answer")]
    NoAnswer(#[source] reqwest::Error),
}

impl NotHandled {
    pub(super) fn not_run(command: &Command, cause: io::Error) -> Self {
        NotHandled::NotRun { program: command.get_program().display().to_string(), cause }
    }
}

fn exit(what: &str, said: &str, _: &bool, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    f.write_str(what)?;
    write_said(said, f)
}

/// The cause follows, as the source of the error.
fn not_run(program: &str, cause: &io::Error, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    write!(f, "the command `{program}` was not run")?;
    match is_no_argument(cause) {
        true => f.write_str(
            ", because the payload or the key cannot be an argument; `--payload stdin` gives it the payload on \
             standard input, without a length limit and with any bytes",
        ),
        false => Ok(()),
    }
}

/// Whether a command was not started because of the bytes or the length of its arguments.
fn is_no_argument(cause: &io::Error) -> bool {
    matches!(cause.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::ArgumentListTooLong)
}

fn worker_ended(end: &str, said: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    write!(f, "its worker ended without answering it ({end})")?;
    write_said(said, f)
}

/// A process's standard error is passed on unchanged; a dead letter has its end, too.
fn write_said(said: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match said.trim() {
        said if f.alternate() && !said.is_empty() => write!(f, ": {said}"),
        _ => Ok(()),
    }
}

/// Class of a failure.
pub(super) fn classify(failure: &AttemptFailure) -> FailureClass {
    let refused = match failure.downcast_ref::<NotHandled>() {
        Some(NotHandled::NotWritten(_)) => return FailureClass::NotWritten,
        Some(NotHandled::Exit { refused, .. }) => *refused,
        // The record's bytes are not valid as a command line.
        Some(NotHandled::NotRun { cause, .. }) => is_no_argument(cause),
        Some(
            NotHandled::Unfit(_)
            | NotHandled::Payload(_)
            | NotHandled::LineEnd
            | NotHandled::Option(_),
        ) => true,
        Some(NotHandled::WorkerEnded { .. } | NotHandled::NoWorker) => false,
        Some(NotHandled::Answer { status, .. }) => is_refusal(*status),
        Some(NotHandled::NoAnswer(_) | NotHandled::LongAnswer | NotHandled::Ended) => false,
        None => matches!(failure, AttemptFailure::NoKey),
    };
    if refused { FailureClass::Refused } else { FailureClass::Failed }
}

/// Whether a retry would get the same response. False for statuses that mean too early, too late or
/// too often.
fn is_refusal(status: StatusCode) -> bool {
    let passing =
        [StatusCode::REQUEST_TIMEOUT, StatusCode::TOO_EARLY, StatusCode::TOO_MANY_REQUESTS];
    status.is_redirection() || status.is_client_error() && !passing.contains(&status)
}

/// Runs a command for each record.
#[derive(Debug)]
pub(super) struct CommandHandler {
    words: Vec<Template>,
    /// Path of the program, if it is equal for all records.
    program: Option<PathBuf>,
    payload: PayloadAs,
    keys: Arc<KeyExtractor>,
    environment: HandlerEnvironment,
    pub(super) children: Arc<ChildProcesses>,
    pub(super) output: Arc<StandardOutput>,
    timeout: Option<Duration>,
    slots: SlotNumbers,
}

impl CommandHandler {
    pub(super) fn new(
        words: &[String],
        payload: PayloadAs,
        keys: Arc<KeyExtractor>,
        environment: HandlerEnvironment,
        output: Arc<StandardOutput>,
        children: Arc<ChildProcesses>,
    ) -> anyhow::Result<Self> {
        let mut words = templates(words, keys.payloads.layout())?;
        if payload == PayloadAs::Arg && !words.iter().any(Template::has_placeholder) {
            words.push(Template::whole());
        }
        Self::of(words, payload, keys, environment, output, children)
    }

    /// For batches, which a command gets as lines: its arguments are equal for all.
    pub(super) fn for_batches(
        words: &[String],
        payload: PayloadAs,
        keys: Arc<KeyExtractor>,
        environment: HandlerEnvironment,
        output: Arc<StandardOutput>,
        children: Arc<ChildProcesses>,
    ) -> anyhow::Result<Self> {
        let words = templates(words, keys.payloads.layout())?;
        anyhow::ensure!(
            !words.iter().any(Template::has_placeholder),
            "a command gets a batch as lines on its standard input; leave out {{}} or --batch"
        );
        Self::of(words, payload, keys, environment, output, children)
    }

    fn of(
        words: Vec<Template>,
        payload: PayloadAs,
        keys: Arc<KeyExtractor>,
        environment: HandlerEnvironment,
        output: Arc<StandardOutput>,
        children: Arc<ChildProcesses>,
    ) -> anyhow::Result<Self> {
        let program = words.first().and_then(Template::constant);
        let program = program.map(|name| process::resolve(OsStr::from_bytes(name))).transpose()?;
        let (timeout, slots) = (None, SlotNumbers::default());
        Ok(CommandHandler {
            words,
            program,
            payload,
            keys,
            environment,
            children,
            output,
            timeout,
            slots,
        })
    }

    /// Ends a command after this time.
    pub(super) fn with_timeout(mut self, timeout: Option<Duration>) -> Self {
        self.timeout = timeout;
        self
    }

    /// Runs the command and writes its output.
    pub(super) fn handle(&self, attempt: &Attempt) -> Result<(), NotHandled> {
        self.run(&mut self.with_payload(attempt)?, attempt)
    }

    /// Runs a prepared command for an attempt, or for several of which this is the first, and writes
    /// its output.
    pub(super) fn run(&self, command: &mut Command, attempt: &Attempt) -> Result<(), NotHandled> {
        let slot = self.slots.take();
        command.env("KEYLANE_SLOT", slot.number.to_string());
        let watch = |ender| end_when_cancelled(attempt, ender);
        let ended = process::run_once(&self.children, command, &self.output, self.timeout, watch);
        let ended = ended.map_err(|cause| NotHandled::not_run(command, cause))?;
        let result = succeeded(&ended);
        // However it ended: the policy for that could have the record done.
        ended.written?;
        result
    }

    /// Runs the command and returns its output.
    pub(super) fn ask(&self, attempt: &Attempt) -> Result<Vec<u8>, NotHandled> {
        let mut command = self.with_payload(attempt)?;
        let slot = self.slots.take();
        command.env("KEYLANE_SLOT", slot.number.to_string());
        let watch = |ender| end_when_cancelled(attempt, ender);
        let ended =
            process::ask_once(&self.children, &mut command, &self.output, self.timeout, watch);
        let ended = ended.map_err(|cause| NotHandled::not_run(&command, cause))?;
        succeeded(&ended).map(|()| ended.written)
    }

    /// The command for a record, with its payload where that is wanted.
    fn with_payload(&self, attempt: &Attempt) -> Result<Command, NotHandled> {
        self.keys.payloads.check(attempt.record())?;
        let mut command = self.command(attempt)?;
        let payload = match self.payload {
            PayloadAs::Arg => return Ok(command),
            PayloadAs::Stdin => keylane_process::whole_input(attempt.payload()),
            PayloadAs::Json => keylane_process::whole_input(&metadata::envelope(attempt)),
        };
        let payload = payload.map_err(|cause| NotHandled::not_run(&command, cause))?;
        command.stdin(payload);
        Ok(command)
    }

    /// The line that a handler of lines gets for a record.
    pub(super) fn line_of(&self, attempt: &Attempt) -> Result<Vec<u8>, NotHandled> {
        line_of(attempt, &self.keys, self.payload)
    }

    /// The command for a record, or for several of which this is the first; its standard input is empty.
    pub(super) fn command(&self, attempt: &Attempt) -> Result<Command, NotHandled> {
        let number = attempt.position().get() + 1;
        let record = self.keys.payloads.as_input(attempt.record(), number);
        let key = self.keys.key_of(attempt.record()).unwrap_or_default();
        let mut words = Vec::with_capacity(self.words.len());
        let mut may_be_option = true;
        for word in &self.words {
            let mut text = Vec::new();
            word.render(&record, &key, &mut text)?;
            may_be_option &= word.constant() != Some(b"--");
            if may_be_option && word.begins_with_placeholder() && text.starts_with(b"-") {
                return Err(NotHandled::Option(quoted(&text)));
            }
            words.push(OsString::from_vec(text));
        }
        let name = &words[0];
        let program = self.program.as_deref().map_or(name.as_os_str(), |path| path.as_os_str());
        let mut command = Command::new(program);
        command.arg0(name).args(&words[1..]);
        self.environment.give(&mut command);
        metadata::describe(&mut command, attempt, &key);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        Ok(command)
    }
}

/// Ends the command of an attempt when the attempt is cancelled: SIGTERM on request, SIGKILL when its
/// end is forced.
fn end_when_cancelled(attempt: &Attempt, ender: Arc<CommandEnder>) -> CancelHook {
    attempt.on_cancel(move |stage| match stage {
        Cancellation::Requested => ender.terminate(),
        Cancellation::Forced => ender.kill(),
    })
}

/// Returns the result of a request for an attempt, or drops the request when the end of the attempt
/// is forced.
pub(super) async fn unless_forced<T>(
    attempt: &Attempt,
    request: impl Future<Output = Result<T, NotHandled>>,
) -> Result<T, NotHandled> {
    let (tell, told) = oneshot::channel();
    let tell = Mutex::new(Some(tell));
    let _hook = attempt.on_cancel(move |stage| {
        let mut tell = tell.lock().expect("no holder of the lock panics");
        if let Some(tell) = tell.take_if(|_| stage == Cancellation::Forced) {
            // The request may have ended already.
            let _ = tell.send(());
        }
    });
    // After the hook, so that it is dropped before the hook.
    let mut request = pin!(request);
    tokio::select! {
        biased;
        result = &mut request => result,
        Ok(()) = told => Err(NotHandled::Ended),
    }
}

/// Record as a line: its payload, or the whole record.
pub(super) fn line_of(
    attempt: &Attempt,
    keys: &KeyExtractor,
    payload: PayloadAs,
) -> Result<Vec<u8>, NotHandled> {
    keys.payloads.check(attempt.record())?;
    if payload == PayloadAs::Json {
        return Ok(metadata::envelope(attempt));
    }
    let payload = attempt.payload();
    if memchr::memchr(b'\n', payload).is_some() {
        return Err(NotHandled::LineEnd);
    }
    Ok([payload, b"\n"].concat())
}

fn succeeded<W>(ended: &CommandResult<W>) -> Result<(), NotHandled> {
    match ended.status.success() {
        true => Ok(()),
        false => Err(NotHandled::Exit {
            what: process::describe_end(ended.status, ended.exceeded),
            said: String::from_utf8_lossy(&ended.said).into_owned(),
            refused: ended.status.code() == Some(REFUSED),
        }),
    }
}

/// The beginning of a text, for a message.
fn quoted(text: &[u8]) -> String {
    String::from_utf8_lossy(&text[..text.len().min(QUOTED)]).into_owned()
}

fn templates(words: &[String], layout: &FieldLayout) -> anyhow::Result<Vec<Template>> {
    words.iter().map(|word| Template::parse(word.as_bytes(), layout)).collect()
}

/// Posts each record to a service.
#[derive(Debug)]
pub(super) struct HttpHandler {
    client: reqwest::Client,
    url: Url,
    keys: Arc<KeyExtractor>,
    pub(super) payload: PayloadAs,
}

impl HttpHandler {
    pub(super) fn new(
        url: &str,
        timeout: Duration,
        keys: Arc<KeyExtractor>,
        payload: PayloadAs,
    ) -> anyhow::Result<Self> {
        let url = Url::parse(url).with_context(|| format!("`{url}` is no address"))?;
        let client = http_client::client_for(&url, |client| {
            client
                .timeout(timeout)
                // A redirected POST can turn into a GET without the record.
                .redirect(redirect::Policy::none())
                .user_agent(concat!("keylane/", env!("CARGO_PKG_VERSION")))
        })?;
        Ok(HttpHandler { client, url, keys, payload })
    }

    /// Posts the record and returns the response.
    pub(super) async fn ask(&self, attempt: &Attempt) -> Result<Vec<u8>, NotHandled> {
        self.keys.payloads.check(attempt.record())?;
        let body = match self.payload {
            PayloadAs::Json => metadata::envelope(attempt),
            PayloadAs::Arg | PayloadAs::Stdin => attempt.payload().to_vec(),
        };
        self.post(self.headers(attempt), body).await
    }

    /// Posts a body and returns the response.
    pub(super) async fn post(
        &self,
        headers: HeaderMap,
        body: Vec<u8>,
    ) -> Result<Vec<u8>, NotHandled> {
        let request = self.client.post(self.url.clone()).headers(headers).body(body);
        let mut answer = request.send().await.map_err(NotHandled::NoAnswer)?;
        let status = answer.status();
        // To its end, so that the connection can be used again.
        let mut body = Vec::new();
        while let Some(part) = answer.chunk().await.map_err(NotHandled::NoAnswer)? {
            if body.len() + part.len() > MAX_ANSWER {
                return Err(NotHandled::LongAnswer);
            }
            body.extend_from_slice(&part);
        }
        if status.is_success() {
            return Ok(body);
        }
        let quoted = match quoted(&body).trim() {
            "" => String::new(),
            text => format!(": {}", text.escape_debug()),
        };
        Err(NotHandled::Answer { status, quoted })
    }

    pub(super) fn headers(&self, attempt: &Attempt) -> HeaderMap {
        let key = self.keys.key_of(attempt.record());
        let mut headers = metadata::headers_of(attempt, key.as_deref());
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(self.media_types().0));
        headers
    }

    /// Media type of a body for a record, and of one with several records.
    pub(super) fn media_types(&self) -> (&'static str, &'static str) {
        match self.payload {
            PayloadAs::Json => ("application/json", "application/x-ndjson"),
            PayloadAs::Arg | PayloadAs::Stdin => self.keys.payloads.media_types(),
        }
    }

    /// The line that a handler of lines gets for a record.
    pub(super) fn line_of(&self, attempt: &Attempt) -> Result<Vec<u8>, NotHandled> {
        line_of(attempt, &self.keys, self.payload)
    }
}
