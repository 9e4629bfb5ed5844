//! Follows a job to its end, through lost connections and restarts of the server.
//!
//! By its stream of events, from where the last connection broke off; where there is no such stream, because a
//! proxy in between does not let it through, by asking again and again with requests that are answered when
//! there is news. Each state of the job is told once and in order: a job has a
//! version, which grows.

use std::time::Duration;

use keylane_service::wire::{Event as Happened, EventKind, Job};
use reqwest::header::{ACCEPT, CONTENT_TYPE, ETAG, HeaderValue, IF_NONE_MATCH};
use reqwest::{Method, Response, StatusCode};
use tokio::time::{Instant, sleep, timeout};

use super::refusal::{Failed, say};
use super::server::Server;
use super::sse::Parser;
use super::words::plain;

/// How long a stream may be silent: the server says something every 15 seconds.
const MAX_SILENCE: Duration = Duration::from_secs(50);

/// How long one request waits for news: below what most proxies allow.
const POLL: u64 = 30;

/// How long to wait before connecting again, at first and at most.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const MAX_PAUSE: Duration = Duration::from_secs(10);

/// How often a stream may end without an event before it is asked for no more: some proxies take it all, and
/// hand it on at the end.
const MAX_BARREN: u32 = 3;

/// A job that is being followed.
#[derive(Debug)]
pub(super) struct Follower<'a, F> {
    server: &'a Server,
    id: &'a str,
    /// Told of each new state.
    tell: F,
    /// How long to try when the server does not answer any more.
    patience: Duration,
    /// The newest state that was told, and its tag.
    known: Option<Job>,
    tag: Option<HeaderValue>,
    /// Where the stream of events goes on.
    after: String,
    /// What the server wants between two connections.
    pause: Duration,
}

/// How a stream came to its end.
enum Left {
    /// The job is over.
    Over,
    /// It broke off; whether an event had come.
    Broken { fruitful: bool },
    /// There is none.
    NotOffered,
}

/// Follows a job until it is over, and returns how it ended.
pub(super) async fn follow(
    server: &Server,
    id: &str,
    patience: Duration,
    tell: impl FnMut(&Job),
) -> anyhow::Result<Job> {
    let follower = Follower {
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

impl<F: FnMut(&Job)> Follower<'_, F> {
    async fn run(mut self) -> anyhow::Result<Job> {
        let (mut barren, mut lost_at) = (0, None);
        let mut pause = self.pause;
        while !self.is_over() {
            let streams = barren < MAX_BARREN;
            let round = if streams { self.stream().await } else { self.poll().await };
            match round {
                Ok(Left::Over) => break,
                Ok(Left::NotOffered) => barren = MAX_BARREN,
                Ok(Left::Broken { fruitful }) => {
                    if streams {
                        barren = if fruitful { 0 } else { barren + 1 };
                    }
                    (lost_at, pause) = (None, self.pause);
                    if streams {
                        sleep(pause).await;
                    }
                }
                Err(error) => {
                    self.bear(error, &mut lost_at)?;
                    sleep(pause).await;
                    pause = (pause * 2).min(MAX_PAUSE);
                }
            }
        }
        Ok(self.known.expect("a job that is over was told"))
    }

    /// Whether it is worth trying again. Whoever was never reached will not be.
    fn bear(&self, error: anyhow::Error, lost_at: &mut Option<Instant>) -> anyhow::Result<()> {
        let may_pass = error.downcast_ref::<Failed>().is_some_and(Failed::may_pass);
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

    /// Tells of a state that was asked for, if it is another: after a crash of the server it may even be an
    /// earlier one, of which the disk knew.
    fn learn(&mut self, job: Job) {
        if self.known.as_ref().is_none_or(|known| known.version != job.version) {
            (self.tell)(&job);
            self.known = Some(job);
        }
    }

    /// Tells of a state that came by itself, if it is newer: what happened before the job was asked for may come
    /// after that. An end is not passed over for that: it is asked for.
    async fn hear(&mut self, job: Job) -> anyhow::Result<()> {
        if self.known.as_ref().is_none_or(|known| known.version < job.version) {
            self.learn(job);
        } else if job.state.is_final() {
            self.look().await?;
        }
        Ok(())
    }

    /// Asks how the job is now.
    async fn look(&mut self) -> anyhow::Result<()> {
        let answer = self.server.get(&["v1", "jobs", self.id], &[]).await?;
        self.tag = answer.headers.get(ETAG).cloned();
        self.learn(answer.read()?);
        Ok(())
    }

    async fn stream(&mut self) -> anyhow::Result<Left> {
        let url = self.server.url(&["v1", "jobs", self.id, "events"])?;
        let mut request = self.server.request(Method::GET, url).header(ACCEPT, "text/event-stream");
        if !self.after.is_empty() {
            request = request.header("last-event-id", self.after.as_str());
        }
        let response = match self.server.send(request).await {
            Ok(response) => response,
            // It may also be the job that is not there: who asks for that next will hear it.
            Err(error) if is_not_offered(&error) => return Ok(Left::NotOffered),
            Err(error) => return Err(error),
        };
        let kind = response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
        if !kind.is_some_and(|kind| kind.starts_with("text/event-stream")) {
            return Ok(Left::NotOffered);
        }
        // Now that nothing can be missed between the two.
        self.look().await?;
        if self.is_over() {
            return Ok(Left::Over);
        }
        let mut parser = Parser::after(&self.after);
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
        parser: &mut Parser,
    ) -> anyhow::Result<Left> {
        let mut fruitful = false;
        // Silence and an error are an end like any other: it goes on where it was.
        while let Ok(Ok(Some(bytes))) = timeout(MAX_SILENCE, response.chunk()).await {
            for event in parser.feed(&bytes)? {
                fruitful = true;
                self.happened(&event.name, &event.data).await?;
                if self.is_over() {
                    return Ok(Left::Over);
                }
            }
        }
        Ok(Left::Broken { fruitful })
    }

    async fn happened(&mut self, name: &str, data: &str) -> anyhow::Result<()> {
        // A newer server may tell of more than this command knows.
        let event: Option<Happened> = serde_json::from_str(data).ok();
        if name == EventKind::JobPurged.as_str() {
            anyhow::bail!("{} was removed from the server while it was followed", plain(self.id));
        }
        if name == EventKind::Reset.as_str() {
            return self.look().await;
        }
        // The stream is of one job. `self.id` may be the name that its client gave it.
        if let Some(job) = event.and_then(|event| event.job).filter(|job| self.is_followed(job)) {
            self.hear(*job).await?;
        }
        Ok(())
    }

    /// One request that is answered when there is news.
    async fn poll(&mut self) -> anyhow::Result<Left> {
        let Some(tag) = self.tag.clone() else {
            self.look().await?;
            if self.tag.is_none() {
                // A server without tags: nothing to wait for, so wait here.
                sleep(self.pause.max(Duration::from_secs(1))).await;
            }
            return Ok(Left::Broken { fruitful: true });
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
            // Who does not wait although asked to is not asked all the time.
            if asked_at.elapsed() < Duration::from_secs(1) {
                sleep(self.pause).await;
            }
            return Ok(Left::Broken { fruitful: true });
        }
        self.tag = answer.headers.get(ETAG).cloned();
        self.learn(answer.read()?);
        Ok(Left::Broken { fruitful: true })
    }
}

/// Whether there is no stream of events here, rather than no server.
fn is_not_offered(error: &anyhow::Error) -> bool {
    match error.downcast_ref::<Failed>() {
        Some(Failed::Refused(refusal)) => matches!(refusal.status.as_u16(), 404..=406 | 501),
        _ => false,
    }
}
