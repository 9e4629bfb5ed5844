//! Several records of a key for one command, or one request: their payloads as lines.
//!
//! When such a batch fails, each of its records is handled alone, in their order, up to the first that fails: so
//! one that is bad costs the others nothing but a repetition.

use keylane_stream::consumer::{
    Attempt, Batch, BatchBy, Builder, Consumer, FailedAt, Failure, StartError,
};
use reqwest::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use tokio::runtime::Handle;

use super::handle::{Commands, NotHandled, Posts};
use super::plan;

/// Starts a consumer whose batches go to a command each.
pub(super) fn start_commands(
    builder: Builder,
    batch: plan::Batch,
    commands: Commands,
) -> Result<Consumer, StartError> {
    start(builder, batch, move |batch| commands.handle_all(batch))
}

/// Starts a consumer whose batches go to a service, a request each.
pub(super) fn start_posts(
    builder: Builder,
    batch: plan::Batch,
    posts: Posts,
    runtime: Handle,
) -> Result<Consumer, StartError> {
    start(builder, batch, move |batch| runtime.block_on(posts.post_all(batch)))
}

fn start(
    builder: Builder,
    plan::Batch { most, linger }: plan::Batch,
    handle: impl Fn(&[Attempt]) -> Result<(), NotHandled> + Send + Sync + 'static,
) -> Result<Consumer, StartError> {
    let batch = Batch { most, linger, split: true, by: BatchBy::Key };
    builder.start_batches(batch, move |batch: &[Attempt]| {
        let has_line_end = |one: &Attempt| memchr::memchr(b'\n', one.payload()).is_some();
        match batch.iter().position(has_line_end) {
            None => handle(batch).map_err(failure),
            Some(first) => {
                // It cannot be handled; those before it can.
                if first > 0 {
                    handle(&batch[..first]).map_err(failure)?;
                }
                Err(FailedAt::new(first, NotHandled::LineEnd).into())
            }
        }
    })
}

/// Where what is printed cannot be written, there is no use in handling each alone.
fn failure(error: NotHandled) -> Failure {
    match error {
        NotHandled::NotWritten(_) => FailedAt::new(0, error).into(),
        error => error.into(),
    }
}

impl Commands {
    /// Runs the command with the payloads on its standard input, and writes what it prints.
    fn handle_all(&self, batch: &[Attempt]) -> Result<(), NotHandled> {
        let (first, last) = (&batch[0], &batch[batch.len() - 1]);
        let mut command = self.command(first)?;
        command
            .env("KEYLANE_LAST_POSITION", last.position().to_string())
            .env("KEYLANE_COUNT", batch.len().to_string())
            .stdin(keylane_process::whole_input(&lines(batch)).map_err(NotHandled::NotRun)?);
        self.run(&mut command)
    }
}

impl Posts {
    async fn post_all(&self, batch: &[Attempt]) -> Result<(), NotHandled> {
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
        let kind = if self.json { "application/x-ndjson" } else { "application/octet-stream" };
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
        self.post(headers, lines(batch)).await.map(drop)
    }
}

fn lines(batch: &[Attempt]) -> Vec<u8> {
    batch.iter().flat_map(|one| [one.payload(), b"\n"]).flatten().copied().collect()
}
