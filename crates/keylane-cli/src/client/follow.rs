//! Follows a job to its end, through lost connections and restarts of the server.
//!
//! Uses the job's stream of events, resumed after the last event received. Where a proxy does not
//! pass the stream, it polls with requests that the server answers on a change. Each state of the
//! job is reported once and in order, by the job's version, which grows.

use std::time::Duration;

use keylane_service::wire::{Event as Happened, EventKind, Job};
use reqwest::header::{ACCEPT, CONTENT_TYPE, ETAG, HeaderValue, IF_NONE_MATCH};
use reqwest::{Method, Response, StatusCode};
use tokio::time::{Instant, sleep, timeout};

use super::error::{RequestError, say};
use super::render::plain;
use super::server_client::ServerClient;
use super::sse::SseParser;

/// Maximum silence of a stream: the server sends a line every 15 seconds.
const MAX_SILENCE: Duration = Duration::from_secs(50);

/// Time without an event after which the reasons for waiting are asked for.
const QUIET: Duration = Duration::from_secs(5);

/// Timeout of a polling request, in seconds: below the limit of most proxies.
const POLL: u64 = 30;

/// Initial pause before a new connection; it grows up to the maximum.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const MAX_PAUSE: Duration = Duration::from_secs(10);

/// Number of streams without an event after which polling is used: some proxies buffer the whole
/// stream until its end.
const MAX_BARREN: u32 = 3;

/// Report about a followed job.
#[derive(Debug, Clone, Copy)]
pub(super) enum FollowedJob<'j> {
    /// A new state.
    Changed(&'j Job),
    /// The last state still holds after a while, and these are the present reasons for waiting.
    Unchanged(&'j Job),
}

/// A job that is being followed.
#[derive(Debug)]
pub(super) struct JobFollower<'a, F> {
    server: &'a ServerClient,
    id: &'a str,
    /// Callback for each report.
    tell: F,
    /// Timeout for a server that does not answer.
    patience: Duration,
    /// Last reported state, and its tag.
    known: Option<Job>,
    tag: Option<HeaderValue>,
    /// Where the stream of events goes on.
    after: String,
    /// Pause between two connections that the server asks for.
    pause: Duration,
}

/// How a stream came to its end.
enum StreamEnd {
    /// The job is over.
    Over,
    /// It broke off; whether an event had come.
    Broken { fruitful: bool },
    /// The server or a proxy offers no stream.
    NotOffered,
}

/// Follows a job until it is over, and returns how it ended.
pub(super) async fn follow(
    server: &ServerClient,
    id: &str,
    patience: Duration,
    tell: impl FnMut(FollowedJob<'_>),
) -> anyhow::Result<Job> {
    let follower = JobFollower {
        server,
        id,
        tell,
        patience,
        known: None,
        tag: None,
        after: String::new(),
        pause: FIRST_PAUSE,
    };
    follower.run().await
}

impl<F: FnMut(FollowedJob<'_>)> JobFollower<'_, F> {
    async fn run(mut self) -> anyhow::Result<Job> {
        let (mut barren, mut lost_at) = (0, None);
        let mut pause = self.pause;
        while !self.is_over() {
            let streams = barren < MAX_BARREN;
            let round = if streams { self.stream().await } else { self.poll().await };
            match round {
                Ok(StreamEnd::Over) => break,
                Ok(StreamEnd::NotOffered) => barren = MAX_BARREN,
                Ok(StreamEnd::Broken { fruitful }) => {
                    if streams {
                        barren = if fruitful { 0 } else { barren + 1 };
                    }
                    (lost_at, pause) = (None, self.pause);
                    if streams {
                        sleep(pause).await;
                    }
                }
                Err(error) => {
                    self.on_error(error, &mut lost_at)?;
                    sleep(pause).await;
                    pause = (pause * 2).min(MAX_PAUSE);
                }
            }
        }
        Ok(self.known.expect("a finished job was reported"))
    }

    /// Whether to retry after an error. A server that was never reached is not retried.
    fn on_error(&self, error: anyhow::Error, lost_at: &mut Option<Instant>) -> anyhow::Result<()> {
        let may_pass = error.downcast_ref::<RequestError>().is_some_and(RequestError::may_pass);
        if !may_pass || self.known.is_none() {
            return Err(error);
        }
        let since = *lost_at.get_or_insert_with(|| {
            say(format_args!("{error:#}\n  trying again"));
            Instant::now()
        });
        if since.elapsed() < self.patience { Ok(()) } else { Err(error) }
    }

    fn is_followed(&self, job: &Job) -> bool {
        self.known.as_ref().is_none_or(|known| known.id == job.id)
    }

    fn is_over(&self) -> bool {
        self.known.as_ref().is_some_and(|job| job.state.is_final())
    }

    /// Reports a requested state if it differs from the last one: after a crash of the server it
    /// may even be an earlier one, which was on the disk.
    fn update(&mut self, job: Job) {
        if self.known.as_ref().is_none_or(|known| known.version != job.version) {
            (self.tell)(FollowedJob::Changed(&job));
            self.known = Some(job);
        }
    }

    /// Reports a state from the stream if it is newer: events from before the request may arrive
    /// after it. The end of the job is confirmed by a request.
    async fn on_event(&mut self, job: Job) -> anyhow::Result<()> {
        if self.known.as_ref().is_none_or(|known| known.version < job.version) {
            self.update(job);
        } else if job.state.is_final() {
            self.poll_once().await?;
        }
        Ok(())
    }

    /// Asks how the job is now.
    async fn poll_once(&mut self) -> anyhow::Result<()> {
        let answer = self.server.get(&["v1", "jobs", self.id], &[]).await?;
        self.tag = answer.headers.get(ETAG).cloned();
        self.update(answer.read()?);
        Ok(())
    }

    /// Asks why the job waits, after a while without an event.
    async fn explain_silence(&mut self) -> anyhow::Result<()> {
        let answer = self.server.get(&["v1", "jobs", self.id], &[]).await?;
        let job: Job = answer.read()?;
        self.tag = answer.headers.get(ETAG).cloned();
        match &self.known {
            Some(known) if known.version == job.version => {
                (self.tell)(FollowedJob::Unchanged(&job));
            }
            _ => self.update(job),
        }
        Ok(())
    }

    async fn stream(&mut self) -> anyhow::Result<StreamEnd> {
        let url = self.server.url(&["v1", "jobs", self.id, "events"])?;
        let mut request = self.server.request(Method::GET, url).header(ACCEPT, "text/event-stream");
        if !self.after.is_empty() {
            request = request.header("last-event-id", self.after.as_str());
        }
        let response = match self.server.send(request).await {
            Ok(response) => response,
            // The job itself may be missing: the next request for it will report that.
            Err(error) if is_not_offered(&error) => return Ok(StreamEnd::NotOffered),
            Err(error) => return Err(error),
        };
        let kind = response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
        if !kind.is_some_and(|kind| kind.starts_with("text/event-stream")) {
            return Ok(StreamEnd::NotOffered);
        }
        // The stream is open, so no change between request and stream is missed.
        self.poll_once().await?;
        if self.is_over() {
            return Ok(StreamEnd::Over);
        }
        let mut parser = SseParser::after(&self.after);
        let left = self.listen(response, &mut parser).await;
        parser.id().clone_into(&mut self.after);
        if let Some(millis) = parser.retry_ms() {
            self.pause = Duration::from_millis(millis).min(MAX_PAUSE);
        }
        left
    }

    async fn listen(
        &mut self,
        mut response: Response,
        parser: &mut SseParser,
    ) -> anyhow::Result<StreamEnd> {
        let (mut fruitful, mut last_event) = (false, Instant::now());
        // Silence and an error are an end like any other: it goes on where it was.
        while let Ok(Ok(Some(bytes))) = timeout(MAX_SILENCE, response.chunk()).await {
            let events = parser.feed(&bytes)?;
            if !events.is_empty() {
                last_event = Instant::now();
            } else if last_event.elapsed() >= QUIET {
                // A sign of life of the server, and nothing else.
                self.explain_silence().await?;
                if self.is_over() {
                    return Ok(StreamEnd::Over);
                }
            }
            for event in events {
                fruitful = true;
                self.happened(&event.name, &event.data).await?;
                if self.is_over() {
                    return Ok(StreamEnd::Over);
                }
            }
        }
        Ok(StreamEnd::Broken { fruitful })
    }

    async fn happened(&mut self, name: &str, data: &str) -> anyhow::Result<()> {
        // A newer server may send events that this command does not know.
        let event: Option<Happened> = serde_json::from_str(data).ok();
        if name == EventKind::JobPurged.as_str() {
            anyhow::bail!("{} was removed from the server while it was followed", plain(self.id));
        }
        if name == EventKind::Reset.as_str() {
            return self.poll_once().await;
        }
        // The stream is of one job. `self.id` may be the name that its client gave it.
        if let Some(job) = event.and_then(|event| event.job).filter(|job| self.is_followed(job)) {
            self.on_event(*job).await?;
        }
        Ok(())
    }

    /// One request that is answered when there is news.
    async fn poll(&mut self) -> anyhow::Result<StreamEnd> {
        let Some(tag) = self.tag.clone() else {
            self.poll_once().await?;
            if self.tag.is_none() {
                // A server without tags answers at once, so the pause is here.
                sleep(self.pause.max(Duration::from_secs(1))).await;
            }
            return Ok(StreamEnd::Broken { fruitful: true });
        };
        let url = self.server.url(&["v1", "jobs", self.id])?;
        let request = self.server.request(Method::GET, url);
        let request = request
            .header("prefer", format!("wait={POLL}"))
            .header(IF_NONE_MATCH, tag)
            .timeout(MAX_SILENCE.max(Duration::from_secs(POLL + 20)));
        let asked_at = Instant::now();
        let answer = self.server.answer(request).await?;
        if answer.status == StatusCode::NOT_MODIFIED {
            // A server that answers at once although asked to wait must not be polled without a
            // pause.
            if asked_at.elapsed() < Duration::from_secs(1) {
                sleep(self.pause).await;
            }
            self.explain_silence().await?;
            return Ok(StreamEnd::Broken { fruitful: true });
        }
        self.tag = answer.headers.get(ETAG).cloned();
        self.update(answer.read()?);
        Ok(StreamEnd::Broken { fruitful: true })
    }
}

/// Whether there is no stream of events here, rather than no server.
fn is_not_offered(error: &anyhow::Error) -> bool {
    match error.downcast_ref::<RequestError>() {
        Some(RequestError::Refused(refusal)) => matches!(refusal.status.as_u16(), 404..=406 | 501),
        _ => false,
    }
}
