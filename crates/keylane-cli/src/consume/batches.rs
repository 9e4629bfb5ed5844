//! Batches: several records of a key for one command or one request, with a payload per line.
//!
//! When a batch fails, its records are handled alone, in order, up to the first that fails. So a
//! bad record costs the others only a repetition.

use std::sync::Arc;

use keylane_stream::consumer::{
    Attempt, AttemptFailure, BatchBy, BatchConfig, BatchFailure, Consumer, ConsumerBuilder,
    StartError,
};
use reqwest::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use tokio::runtime::Handle;

use super::handlers::{CommandHandler, HttpHandler, NotHandled, unless_forced};
use super::validated;

/// Starts a consumer with a command per batch.
pub(super) fn start_commands(
    builder: ConsumerBuilder,
    batch: validated::BatchLimits,
    commands: CommandHandler,
) -> Result<Consumer, StartError> {
    let commands = Arc::new(commands);
    let lines = Arc::clone(&commands);
    start(builder, batch, move |one| lines.line_of(one), move |batch| commands.handle_all(batch))
}

/// Starts a consumer with a request per batch.
pub(super) fn start_posts(
    builder: ConsumerBuilder,
    batch: validated::BatchLimits,
    posts: HttpHandler,
    runtime: Handle,
) -> Result<Consumer, StartError> {
    let posts = Arc::new(posts);
    let lines = Arc::clone(&posts);
    let handle = move |batch: RecordLines<'_>| {
        let first = &batch.0[0];
        runtime.block_on(unless_forced(first, posts.post_all((batch.0, batch.1))))
    };
    start(builder, batch, move |one| lines.line_of(one), handle)
}

/// Records of a key with the lines that their handler gets, one behind another.
type RecordLines<'a> = (&'a [Attempt], Vec<u8>);

fn start(
    builder: ConsumerBuilder,
    validated::BatchLimits { most, linger }: validated::BatchLimits,
    line_of: impl Fn(&Attempt) -> Result<Vec<u8>, NotHandled> + Send + Sync + 'static,
    handle: impl Fn(RecordLines<'_>) -> Result<(), NotHandled> + Send + Sync + 'static,
) -> Result<Consumer, StartError> {
    let batch = BatchConfig { max_records: most, linger, split: true, by: BatchBy::Key };
    builder.start_batches(batch, move |batch: &[Attempt]| {
        let mut lines = Vec::new();
        for (number, attempt) in batch.iter().enumerate() {
            match line_of(attempt) {
                Ok(line) => lines.extend(line),
                Err(unfit) => {
                    // This record cannot be handled; the earlier ones can.
                    if number > 0 {
                        handle((&batch[..number], lines)).map_err(failure)?;
                    }
                    return Err(BatchFailure::new(number, unfit).into());
                }
            }
        }
        handle((batch, lines)).map_err(failure)
    })
}

/// If the output cannot be written, handling the records alone would not help.
fn failure(error: NotHandled) -> AttemptFailure {
    match error {
        NotHandled::NotWritten(_) => BatchFailure::new(0, error).into(),
        error => error.into(),
    }
}

impl CommandHandler {
    /// Runs the command with the payloads on its standard input, and writes its output.
    fn handle_all(&self, (batch, lines): RecordLines<'_>) -> Result<(), NotHandled> {
        let (first, last) = (&batch[0], &batch[batch.len() - 1]);
        let mut command = self.command(first)?;
        let input = keylane_process::whole_input(&lines);
        let input = input.map_err(|cause| NotHandled::not_run(&command, cause))?;
        command
            .env("KEYLANE_LAST_POSITION", last.position().to_string())
            .env("KEYLANE_COUNT", batch.len().to_string())
            .stdin(input);
        self.run(&mut command, first)
    }
}

impl HttpHandler {
    async fn post_all(&self, (batch, lines): RecordLines<'_>) -> Result<(), NotHandled> {
        let (first, last) = (&batch[0], &batch[batch.len() - 1]);
        let mut headers = self.headers(first);
        let mut put = |name, value: String| {
            // Digits, and a stream's name, which is left out if it is no header's value.
            if let Ok(value) = HeaderValue::try_from(value) {
                headers.insert(HeaderName::from_static(name), value);
            }
        };
        let (from, to) = (first.position(), last.position());
        put("keylane-last-position", to.to_string());
        put("keylane-count", batch.len().to_string());
        // Between its ends it has all that there is of the key.
        put("idempotency-key", format!("{}@{from}-{to}", first.partition()));
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(self.media_types().1));
        self.post(headers, lines).await.map(drop)
    }
}
