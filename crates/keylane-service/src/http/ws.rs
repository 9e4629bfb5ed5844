//! `/v1/ws`: submit and follow over one connection, each client's messages handled in order.
//!
//! The subprotocol is `keylane.v1`: JSON, a message each. What a client sends has a number of its own, `seq`;
//! the answer carries it. Messages of one client are handled one after another, in the order in which
//! they came, and answered in that order; those of different clients in parallel.
//!
//! | from the client | answer |
//! |---|---|
//! | `{"op":"submit","seq":1,"job":{…}}`, with `"idempotency_key"` if wanted | `{"op":"accepted","seq":1,"job":{…}}` when it is on the disk |
//! | `{"op":"status","seq":2,"id":"job_…"}` | `{"op":"job","seq":2,"job":{…}}` |
//! | `{"op":"cancel","seq":3,"id":"job_…","mode":"kill"}` | `{"op":"job","seq":3,"job":{…}}` |
//! | `{"op":"follow","seq":4,"id":"job_…"}` | `{"op":"following","seq":4}`, then `{"op":"event","event":{…}}` as it happens |
//! | `{"op":"unfollow","seq":5,"id":"job_…"}` | `{"op":"unfollowed","seq":5}` |
//! | anything that was refused | `{"op":"refused","seq":…,"problem":{…}}` |
//!
//! Both ways are bounded. A client that sends faster than it is answered finds that nothing more is read from
//! its connection. One that does not read is sent no event that is in the way of an answer; when it has
//! fallen far behind it gets `{"op":"reset"}` in place of what it missed, and never anything out of order. When it
//! has read nothing for the server's `body_timeout` it is given up.
//!
//! Closed with 1001 when the server stops, 1002 for what is against the protocol, 1003 for bytes, 1007 for text that is
//! not UTF-8, 1009 for a message that is too large, 1013 when there are too many connections.

use std::collections::HashSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use axum::Router;
use axum::extract::ws::{CloseFrame, Message, Utf8Bytes, WebSocket, WebSocketUpgrade};
use axum::extract::{FromRequestParts, State as Shared};
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tokio::sync::mpsc;

use super::State;
use super::audit;
use super::auth::{Caller, Role};
use super::extract::Reader;
use super::guard::{need, read_only};
use super::handshake;
use super::outbox::{Gone, Outbox, Unsent, outbox};
use super::problem::Refusal;
use super::ws_errors::close_code;
use crate::JobId;
use crate::engine::{Act, Action, Answered, Core, Followed, Follower};
use crate::wire::{CancelMode, CancelRequest, Event, Job, Problem, SubmitJob};

/// How many changes of what a client follows wait for the task that sends its events.
const CHANGES: usize = 64;

/// How many jobs one client follows.
const MOST_FOLLOWED: usize = 1000;

/// How long a client may be silent before it is asked whether it is there, and then before it is given up.
const SILENCE: Duration = Duration::from_secs(30);

pub(super) fn router() -> Router<State> {
    Router::new().route("/v1/ws", get(upgrade))
}

/// A message of a client. Not an enum with a tag, for the job's payload must stay as it was written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Asked {
    op: Op,
    seq: u64,
    #[serde(default)]
    job: Option<Box<RawValue>>,
    #[serde(default)]
    idempotency_key: Option<String>,
    #[serde(default)]
    id: Option<String>,
    #[serde(default)]
    mode: CancelMode,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Op {
    Submit,
    Status,
    Cancel,
    Follow,
    Unfollow,
}

#[derive(Debug, Serialize)]
#[serde(tag = "op", rename_all = "snake_case")]
enum Said<'a> {
    Accepted { seq: u64, job: &'a Job, replayed: bool },
    Job { seq: u64, job: &'a Job },
    Following { seq: u64 },
    Unfollowed { seq: u64 },
    Event { event: &'a Event },
    Reset,
    Refused { seq: Option<u64>, problem: Problem },
}

async fn upgrade(
    Shared(state): Shared<State>,
    Reader(caller): Reader,
    mut parts: Parts,
) -> Response {
    let from = audit::peer(&parts.extensions);
    if let Err(refused) = handshake::check(&parts.headers) {
        return *refused;
    }
    let upgrade = match WebSocketUpgrade::from_request_parts(&mut parts, &state).await {
        Ok(upgrade) => upgrade,
        Err(refused) => return refused.into_response(),
    };
    let most = state.core.settings.bounds.body_bytes;
    let upgrade = upgrade.max_message_size(most).max_frame_size(most).protocols(["keylane.v1"]);
    upgrade.on_upgrade(move |socket| async move {
        let streams = state.streams.clone();
        // Tracked, so that a stop waits for its goodbye.
        let _ = streams.spawn(Client::serve(state, caller, from, socket)).await;
    })
}

struct Client {
    state: State,
    caller: Caller,
    from: Option<IpAddr>,
    followed: HashSet<JobId>,
    /// Changed when `followed` is.
    follow: mpsc::Sender<Follow>,
    say: Outbox<Message>,
}

enum Follow {
    /// With what comes from then on.
    Begin(JobId, Follower),
    End(JobId),
}

impl Client {
    async fn serve(state: State, caller: Caller, from: Option<IpAddr>, mut socket: WebSocket) {
        let connected = state.core.websockets.fetch_add(1, Relaxed) + 1;
        let _leaving = Leaving(Arc::clone(&state.core));
        if connected > state.settings.most_websockets as u64 {
            let _ =
                socket.send(close(1013, "there are too many connections; try again later")).await;
            return;
        }
        let (out, incoming) = socket.split();
        let (say, said) = outbox();
        let (follow, following) = mpsc::channel(CHANGES);
        let writer = tokio::spawn(write(out, said));
        let events = tokio::spawn(forward(following, say.clone()));
        let closing = state.closing.clone();
        let mut client =
            Client { state, caller, from, followed: HashSet::new(), follow, say: say.clone() };
        let goodbye = tokio::select! {
            goodbye = client.listen(incoming) => goodbye,
            () = closing.cancelled() => Some(close(1001, "the server stops")),
            // Nothing can be said to it any more: it has gone, or reads nothing.
            () = say.closed() => None,
        };
        drop(client);
        events.abort();
        if let Some(goodbye) = goodbye {
            let _ = tokio::time::timeout(Duration::from_secs(1), put(&say, goodbye)).await;
        }
        drop(say);
        // A client that does not read has a moment for what is still to be said.
        let writer = tokio::time::timeout(Duration::from_secs(2), writer);
        let _ = writer.await;
    }

    /// Handles one message after another. What comes meanwhile waits in the connection.
    async fn listen(&mut self, mut incoming: SplitStream<WebSocket>) -> Option<Message> {
        let mut was_asked = false;
        loop {
            let Ok(message) = tokio::time::timeout(SILENCE, incoming.next()).await else {
                if std::mem::replace(&mut was_asked, true) {
                    return None;
                }
                put(&self.say, Message::Ping(bytes::Bytes::new())).await.ok()?;
                continue;
            };
            was_asked = false;
            match message? {
                Ok(Message::Text(text)) => {
                    let answer = self.handle(&text).await;
                    put(&self.say, answer).await.ok()?;
                }
                Ok(Message::Binary(_)) => return Some(close(1003, "messages are text")),
                Ok(Message::Close(_)) => return None,
                // The library answers pings by itself.
                Ok(Message::Ping(_) | Message::Pong(_)) => {}
                Err(error) => {
                    return close_code(&error).map(|(code, reason)| close(code, reason));
                }
            }
        }
    }

    async fn handle(&mut self, text: &str) -> Message {
        let (seq, done) = match super::extract::json::<Asked>(text.as_bytes()) {
            Ok(asked) => (Some(asked.seq), self.act(asked).await),
            Err(refusal) => (seq_of(text), Err(refusal)),
        };
        match done {
            Ok(message) => message,
            Err(refusal) => message(&Said::Refused { seq, problem: refusal.into_problem() }),
        }
    }

    /// What the guard checks of a request, for a message: the connection began with one that only looks.
    fn may_change(&self, role: Role) -> Result<(), Refusal> {
        if self.state.settings.read_only {
            return Err(read_only());
        }
        need(&self.caller, role)
    }

    async fn act(&mut self, asked: Asked) -> Result<Message, Refusal> {
        let Asked { op, seq, job, idempotency_key, id, mode } = asked;
        let missing = |field: &str| {
            let why = format!("`{field}` is missing");
            Refusal::new("invalid", why.clone()).at(format!("/{field}"), why)
        };
        if let Op::Submit = op {
            return self.submit(seq, &job.ok_or_else(|| missing("job"))?, idempotency_key).await;
        }
        let id = id.ok_or_else(|| missing("id"))?;
        if let Op::Cancel = op {
            return self.cancel(seq, id, mode).await;
        }
        let id = self.named(id).await?;
        match op {
            Op::Submit | Op::Cancel => unreachable!("it was done above"),
            Op::Status => Ok(message(&Said::Job { seq, job: &self.job(id).await? })),
            Op::Follow => self.follow(seq, id).await,
            Op::Unfollow => {
                self.followed.remove(&id);
                let _ = self.follow.send(Follow::End(id)).await;
                Ok(message(&Said::Unfollowed { seq }))
            }
        }
    }

    async fn submit(
        &self,
        seq: u64,
        text: &RawValue,
        idempotency_key: Option<String>,
    ) -> Result<Message, Refusal> {
        self.may_change(Role::Submit)?;
        let key = idempotency_key
            .map(|key| super::jobs::idempotency_key(key.as_bytes(), "/idempotency_key"))
            .transpose()?;
        let job: SubmitJob = super::extract::json(text.get().as_bytes())?;
        let mut intake = self.state.core.begin_intake(job, false)?;
        intake.hash(text.get().as_bytes());
        intake.flush().await?;
        let scope = key.map(|key| (self.caller.name.clone(), key));
        let submitted = intake.finish(scope).await?;
        Ok(message(&Said::Accepted { seq, job: &submitted.job, replayed: submitted.replayed }))
    }

    async fn named(&self, id: String) -> Result<JobId, Refusal> {
        let core = Arc::clone(&self.state.core);
        super::jobs::blocking(move || core.resolve(&id)).await
    }

    async fn job(&self, id: JobId) -> Result<Job, Refusal> {
        let core = Arc::clone(&self.state.core);
        let job = tokio::task::spawn_blocking(move || core.job(id)).await;
        Ok(job.map_err(|_| Refusal::new("internal", "something went wrong in the server"))??)
    }

    /// Cancels a job. What came of it is in the log before it is answered.
    async fn cancel(&self, seq: u64, id: String, mode: CancelMode) -> Result<Message, Refusal> {
        if self.state.settings.read_only {
            return Err(read_only());
        }
        let act = Act::new(&self.caller.name, self.from, Action::CancelJob);
        act.on_job(&id);
        act.with(serde_json::json!({"mode": mode}));
        let cancelled = self.cancel_as(&act, id, mode).await;
        let answered = match &cancelled {
            Ok(_) => Answered::Well,
            Err(refusal) if refusal.code == "forbidden" => Answered::Denied,
            Err(refusal) => Answered::Refused(refusal.code),
        };
        self.state.core.log_rest(&act, answered).await?;
        Ok(message(&Said::Job { seq, job: &cancelled? }))
    }

    async fn cancel_as(&self, act: &Act, id: String, mode: CancelMode) -> Result<Job, Refusal> {
        need(&self.caller, Role::Operate)?;
        let id = self.named(id).await?;
        act.on_job(id);
        let request = CancelRequest { mode, reason: None };
        Ok(self.state.core.cancel_job(id, &request, act).await?)
    }

    async fn follow(&mut self, seq: u64, id: JobId) -> Result<Message, Refusal> {
        self.job(id).await?;
        if self.followed.len() >= MOST_FOLLOWED && !self.followed.contains(&id) {
            return Err(Refusal::new(
                "too-many-requests",
                format!("{MOST_FOLLOWED} jobs are the most"),
            ));
        }
        self.followed.insert(id);
        // From here on, and not from when the other task gets to it.
        let from = self.state.core.events.follow(None).0;
        let _ = self.follow.send(Follow::Begin(id, from)).await;
        Ok(message(&Said::Following { seq }))
    }
}

/// Counted as connected until it is dropped.
struct Leaving(Arc<Core>);

impl Drop for Leaving {
    fn drop(&mut self) {
        self.0.websockets.fetch_sub(1, Relaxed);
    }
}

/// What is followed, and how far it was sent.
#[derive(Default)]
struct Following {
    jobs: HashSet<JobId>,
    /// Who follows nothing is woken by nothing.
    events: Option<Follower>,
}

impl Following {
    fn change(&mut self, change: Follow) {
        match change {
            Follow::Begin(id, from) => {
                self.jobs.insert(id);
                self.events.get_or_insert(from);
            }
            Follow::End(id) => {
                self.jobs.remove(&id);
                if self.jobs.is_empty() {
                    self.events = None;
                }
            }
        }
    }
}

/// Sends events of the followed jobs. It waits for room, and so is told to begin anew when it has waited for
/// too long.
async fn forward(mut changes: mpsc::Receiver<Follow>, say: Outbox<Message>) {
    let mut following = Following::default();
    loop {
        let next = async {
            match &mut following.events {
                Some(events) => events.next().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            change = changes.recv() => match change {
                Some(change) => following.change(change),
                None => return,
            },
            next = next => {
                // Who was told to follow a job was told before anything that they have done to it since.
                while let Ok(change) = changes.try_recv() {
                    following.change(change);
                }
                let said = match &next {
                    Followed::Event(event) if is_followed(&following.jobs, event) => {
                        message(&Said::Event { event })
                    }
                    Followed::Event(_) => continue,
                    Followed::Reset(_) => message(&Said::Reset),
                };
                if put(&say, said).await.is_err() {
                    return;
                }
            }
        }
    }
}

fn is_followed(followed: &HashSet<JobId>, event: &Event) -> bool {
    let job = event.job.as_ref().and_then(|job| JobId::parse(&job.id));
    job.is_some_and(|job| followed.contains(&job))
}

/// Errors if the client is gone.
async fn put(say: &Outbox<Message>, message: Message) -> Result<(), Gone> {
    let bytes = match &message {
        Message::Text(text) => text.len(),
        // What the protocol itself needs is small.
        _ => 0,
    };
    say.send(message, bytes).await
}

async fn write(mut out: SplitSink<WebSocket, Message>, mut said: Unsent<Message>) {
    while let Some((message, _room)) = said.recv().await {
        if out.send(message).await.is_err() {
            return;
        }
    }
    let _ = out.close().await;
}

fn message(said: &Said<'_>) -> Message {
    let text = serde_json::to_string(said).expect("an answer can be written as JSON");
    Message::Text(Utf8Bytes::from(text))
}

fn close(code: u16, reason: &'static str) -> Message {
    Message::Close(Some(CloseFrame { code, reason: Utf8Bytes::from_static(reason) }))
}

/// The number of a message that is not understood otherwise.
fn seq_of(text: &str) -> Option<u64> {
    serde_json::from_str::<serde_json::Value>(text).ok()?.get("seq")?.as_u64()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::engine::events::{Events, event};
    use crate::wire::{EventKind, Timestamp};

    fn ended(events: &Events, job: JobId) {
        let counts = json!({"total": 1, "waiting": 0, "ready": 0, "running": 0, "backing_off": 0,
            "succeeded": 1, "failed": 0, "cancelled": 0, "skipped": 0});
        let job: Job = serde_json::from_value(json!({
            "id": job.to_string(), "kind": "work", "labels": {}, "state": "succeeded", "weight": 1,
            "counts": counts, "progress": 1.0, "created_at": "2026-05-04T10:10:00.000Z", "version": 1,
        }))
        .unwrap();
        events.publish(|id| Event {
            job: Some(Box::new(job)),
            ..event(id, EventKind::JobEnded, Timestamp(0))
        });
    }

    /// Who was told that they follow a job learns of its end, however late the task that sends it comes to it.
    #[tokio::test]
    async fn one_follows_from_when_one_was_told_so() {
        let events = Arc::new(Events::new(7));
        let (follow, changes) = mpsc::channel(8);
        let (say, mut said) = outbox();
        for job in [JobId([1; 16]), JobId([2; 16])] {
            follow.send(Follow::Begin(job, events.follow(None).0)).await.unwrap();
            ended(&events, job);
        }
        ended(&events, JobId([3; 16]));
        drop(tokio::spawn(forward(changes, say)));
        for job in [JobId([1; 16]), JobId([2; 16])] {
            let Some((Message::Text(text), _)) = said.recv().await else {
                panic!("it is not told")
            };
            assert!(text.contains(&job.to_string()), "{text}");
        }
        drop(follow);
        assert!(said.recv().await.is_none(), "nobody follows the third");
    }
}
