//! `/v1/ws`: submission and events over one connection, with each client's messages handled in
//! order.
//!
//! The subprotocol is `keylane.v1`: one JSON document per message. A client's message has a number,
//! `seq`, which its answer repeats. Messages of one client are handled and answered one after
//! another, in order of arrival; those of different clients in parallel.
//!
//! | from the client | answer |
//! | `{"op":"submit","seq":1,"job":{…}}`, optionally with `"idempotency_key"` |
//! `{"op":"accepted","seq":1,"job":{…}}` when it is on the disk |
//! | `{"op":"submit","seq":1,"job":{…}}`, with `"idempotency_key"` if wanted | `{"op":"accepted","seq":1,"job":{…}}` when it is on the disk |
//! | `{"op":"status","seq":2,"id":"job_…"}` | `{"op":"job","seq":2,"job":{…}}` |
//! | `{"op":"cancel","seq":3,"id":"job_…","mode":"kill"}` | `{"op":"job","seq":3,"job":{…}}` |
//! | `{"op":"follow","seq":4,"id":"job_…"}` | `{"op":"following","seq":4}`, then `{"op":"event","event":{…}}` as it happens |
//! | `{"op":"unfollow","seq":5,"id":"job_…"}` | `{"op":"unfollowed","seq":5}` |
//! | any refused message | `{"op":"refused","seq":…,"problem":{…}}` |
//!
//! Both directions are bounded. While a client's messages wait for their answers, its connection is
//! not read. For a client that does not read, answers precede events; if it falls far behind, it
//! gets `{"op":"reset"}` in place of the missed events, and never events out of order. It is
//! disconnected after reading nothing for the server's `body_timeout`.
//!
//! Close codes: 1001 when the server stops, 1002 for a protocol error, 1003 for binary messages,
//! 1007 for text that is not UTF-8, 1009 for a message that is too large. Beyond the maximum number
//! of WebSockets, a further one is refused with 429 before the upgrade.

use std::net::IpAddr;
use std::sync::Arc;
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
use std::sync::atomic::Ordering::Relaxed;
use tokio::task::JoinHandle;

use super::app_state::AppState;
use super::auth::{Caller, Role};
use super::blocking::blocking;
use super::connection_limits::{self, SharedConnectionPermit};
use super::extract::{Reader, json, peer};
use super::handshake;
use super::permission::{need, not_expired, read_only};
use super::problem::ApiError;
use super::request_headers;
use super::send_queue::{Disconnected, SendQueue, SendQueueReceiver, outbox};
use super::tenants::assign;
use super::token_kinds::{permit, permit_job};
use super::ws_errors::close_code;
use crate::JobId;
use crate::engine::{
    ActionAnswer, AuditedRequest, Core, ExtraWrites, FeedReader, FollowedItem, JobFeed,
    OperatorAction,
};
use crate::wire::{CancelMode, CancelRequest, Event, Job, Problem, SubmitJob};

/// Initial size of a connection's read buffer, in bytes. Each idle connection has one; it grows for
/// a larger message.
const READ_BUFFER: usize = 2 * 1024;

/// Size of a connection's write buffer, in bytes. Each message is flushed, so none waits for it to
/// fill.
const WRITE_BUFFER: usize = 4 * 1024;

/// Maximum number of jobs followed by one client.
const MAX_FOLLOWED: usize = 1000;

/// Silence after which a client is sent a ping, and then again before it is disconnected.
const SILENCE: Duration = Duration::from_secs(30);

pub(super) fn router() -> Router<AppState> {
    Router::new().route("/v1/ws", get(upgrade))
}

/// Client's message. A struct, because a tagged enum would not preserve the job's payload verbatim.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ClientMessage {
    op: ClientOp,
    pub(super) seq: u64,
    #[serde(default)]
    pub(super) job: Option<Box<RawValue>>,
    #[serde(default)]
    idempotency_key: Option<String>,
    #[serde(default)]
    id: Option<String>,
    #[serde(default)]
    mode: CancelMode,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ClientOp {
    Submit,
    Status,
    Cancel,
    Follow,
    Unfollow,
}

#[derive(Debug, Serialize)]
#[serde(tag = "op", rename_all = "snake_case")]
enum ServerMessage<'a> {
    Accepted { seq: u64, job: &'a Job, replayed: bool },
    Job { seq: u64, job: &'a Job },
    Following { seq: u64 },
    Unfollowed { seq: u64 },
    Event { event: &'a Event },
    Reset,
    Refused { seq: Option<u64>, problem: Problem },
}

async fn upgrade(
    Shared(state): Shared<AppState>,
    Reader(caller): Reader,
    mut parts: Parts,
) -> Result<Response, ApiError> {
    let from = peer(&parts.extensions);
    if let Err(refused) = handshake::check(&parts.headers) {
        return Ok(*refused);
    }
    let upgrade = match WebSocketUpgrade::from_request_parts(&mut parts, &state).await {
        Ok(upgrade) => upgrade,
        Err(refused) => return Ok(refused.into_response()),
    };
    let place = connection_limits::follow_by_websocket(
        &parts.extensions,
        &state.websockets,
        state.settings.max_websockets,
    )?;
    let connection = parts.extensions.get::<SharedConnectionPermit>().cloned();
    let most = state.core.settings.bounds.body_bytes;
    let upgrade = upgrade.read_buffer_size(READ_BUFFER).write_buffer_size(WRITE_BUFFER);
    let upgrade = upgrade.max_message_size(most).max_frame_size(most).protocols(["keylane.v1"]);
    Ok(upgrade.on_upgrade(move |socket| {
        let streams = state.streams.clone();
        let places = (connection, place, ConnectionCountGuard::new(&state.core));
        let client = WsClient::serve(state, caller, from, socket);
        // Tracked, so that a server's stop waits for its close message.
        streams.track_future(Box::pin(async move {
            client.await;
            drop(places);
        }))
    }))
}

struct WsClient {
    state: AppState,
    caller: Caller,
    from: Option<IpAddr>,
    /// Subscription of the client. Created with the first followed job, because most clients follow
    /// none.
    follows: Option<WsSubscription>,
    /// Job to follow after the answer is sent, with the first event to send.
    to_follow: Option<(JobId, u64)>,
    say: SendQueue<Message>,
}

/// Subscription of a client, with the task that forwards its events.
struct WsSubscription {
    feed: JobFeed,
    jobs: usize,
    sending: JoinHandle<()>,
}

impl Drop for WsSubscription {
    fn drop(&mut self) {
        self.sending.abort();
    }
}

impl WsClient {
    async fn serve(state: AppState, caller: Caller, from: Option<IpAddr>, socket: WebSocket) {
        let (out, incoming) = socket.split();
        let (say, said) = outbox();
        let writer = tokio::spawn(write(out, said));
        let (closing, end) = (state.closing.clone(), state.admitted.end_of(&caller));
        let mut client =
            WsClient { state, caller, from, follows: None, to_follow: None, say: say.clone() };
        let goodbye = tokio::select! {
            goodbye = client.listen(incoming) => goodbye,
            () = end.cancelled() => Some(match closing.is_cancelled() {
                true => close(1001, "the server stops"),
                false => close(1008, "the token was revoked, or has expired"),
            }),
            // The client has disconnected or reads nothing.
            () = say.closed() => None,
        };
        drop(client);
        if let Some(goodbye) = goodbye {
            let _ = tokio::time::timeout(Duration::from_secs(1), put(&say, goodbye)).await;
        }
        drop(say);
        // A slow reader has a moment for the remaining messages.
        let writer = tokio::time::timeout(Duration::from_secs(2), writer);
        let _ = writer.await;
    }

    /// Handles messages one after another. Later ones wait in the connection's buffers.
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
                    // Boxed, so that an idle connection does not reserve memory for the largest
                    // operation.
                    let answer = Box::pin(self.handle(&text)).await;
                    put(&self.say, answer).await.ok()?;
                    self.begin_to_follow();
                }
                Ok(Message::Binary(_)) => return Some(close(1003, "messages are text")),
                Ok(Message::Close(_)) => return None,
                // The library answers pings.
                Ok(Message::Ping(_) | Message::Pong(_)) => {}
                Err(error) => {
                    return close_code(&error).map(|(code, reason)| close(code, reason));
                }
            }
        }
    }

    async fn handle(&mut self, text: &str) -> Message {
        let (seq, done) = match json::<ClientMessage>(text.as_bytes()) {
            Ok(asked) => (Some(asked.seq), self.act(asked).await),
            Err(refusal) => (seq_of(text), Err(refusal)),
        };
        match done {
            Ok(message) => message,
            Err(refusal) => {
                message(&ServerMessage::Refused { seq, problem: refusal.into_problem() })
            }
        }
    }

    /// Checks a message like the guard checks a request: the handshake itself was a read.
    fn may_change(&self, role: Role) -> Result<(), ApiError> {
        if self.state.settings.read_only {
            return Err(read_only());
        }
        // The token may have been revoked since the handshake.
        if !self.state.tokens.get().has(&self.caller) {
            return Err(ApiError::new(
                "unauthorized",
                "this server does not know the token any more",
            ));
        }
        not_expired(&self.caller)?;
        need(&self.caller, role)
    }

    async fn act(&mut self, asked: ClientMessage) -> Result<Message, ApiError> {
        let ClientMessage { op, seq, job, idempotency_key, id, mode } = asked;
        let missing = |field: &str| {
            let why = format!("`{field}` is missing");
            ApiError::new("invalid", why.clone()).at(format!("/{field}"), why)
        };
        if let ClientOp::Submit = op {
            return self.submit(seq, &job.ok_or_else(|| missing("job"))?, idempotency_key).await;
        }
        let id = id.ok_or_else(|| missing("id"))?;
        if let ClientOp::Cancel = op {
            return self.cancel(seq, id, mode).await;
        }
        let id = self.named(id).await?;
        match op {
            ClientOp::Submit | ClientOp::Cancel => unreachable!("it was done above"),
            ClientOp::Status => Ok(message(&ServerMessage::Job { seq, job: &self.job(id).await? })),
            ClientOp::Follow => self.follow(seq, id).await,
            ClientOp::Unfollow => {
                self.unfollow(id);
                Ok(message(&ServerMessage::Unfollowed { seq }))
            }
        }
    }

    async fn submit(
        &self,
        seq: u64,
        text: &RawValue,
        idempotency_key: Option<String>,
    ) -> Result<Message, ApiError> {
        self.may_change(Role::Submit)?;
        let key = idempotency_key
            .map(|key| request_headers::idempotency_key(key.as_bytes(), "/idempotency_key"))
            .transpose()?;
        let mut job: SubmitJob = json(text.get().as_bytes())?;
        assign(&self.caller, &mut job)?;
        permit(&self.caller, &job.kind)?;
        let mut intake = self.state.core.submission.begin_intake(job, false)?;
        intake.hash(text.get().as_bytes());
        intake.flush().await?;
        let scope = key.map(|key| (self.caller.name.clone(), key));
        let submitted = intake.submit(scope, ExtraWrites::default()).await?.outcome().await?;
        Ok(message(&ServerMessage::Accepted {
            seq,
            job: &submitted.job,
            replayed: submitted.replayed,
        }))
    }

    async fn named(&self, id: String) -> Result<JobId, ApiError> {
        blocking(&self.state.core, move |core| core.query.resolve(&id)).await
    }

    async fn job(&self, id: JobId) -> Result<Job, ApiError> {
        blocking(&self.state.core, move |core| core.query.job(id)).await
    }

    /// Cancels a job. The audit entry is written before the answer.
    async fn cancel(&self, seq: u64, id: String, mode: CancelMode) -> Result<Message, ApiError> {
        if self.state.settings.read_only {
            return Err(read_only());
        }
        let act = AuditedRequest::new(&self.caller.name, self.from, OperatorAction::CancelJob);
        act.on_job(&id);
        act.with(serde_json::json!({"mode": mode}));
        let cancelled = self.cancel_as(&act, id, mode).await;
        let answered = match &cancelled {
            Ok(_) => ActionAnswer::Well,
            Err(refusal) if refusal.code == "forbidden" => ActionAnswer::Denied,
            Err(refusal) => ActionAnswer::Refused(refusal.code),
        };
        self.state.core.audit.log_rest(&act, answered).await?;
        Ok(message(&ServerMessage::Job { seq, job: &cancelled? }))
    }

    async fn cancel_as(
        &self,
        act: &AuditedRequest,
        id: String,
        mode: CancelMode,
    ) -> Result<Job, ApiError> {
        need(&self.caller, Role::Operate)?;
        let id = self.named(id).await?;
        act.on_job(id);
        permit_job(&self.state, &self.caller, id).await?;
        let request = CancelRequest { mode, reason: None };
        Ok(self.state.core.control.cancel_job(id, &request, act).await?)
    }

    async fn follow(&mut self, seq: u64, id: JobId) -> Result<Message, ApiError> {
        self.job(id).await?;
        let follows = self.follows.as_ref();
        if follows.is_some_and(|it| it.jobs >= MAX_FOLLOWED && !it.feed.has(id.number())) {
            return Err(ApiError::new(
                "too-many-requests",
                format!("a connection can follow at most {MAX_FOLLOWED} jobs; unfollow one first"),
            ));
        }
        // Events count from now on, and not from the answer.
        self.to_follow = Some((id, self.state.core.events.end()));
        Ok(message(&ServerMessage::Following { seq }))
    }

    /// Starts to follow after the answer is sent, so that the answer precedes all events.
    fn begin_to_follow(&mut self) {
        let Some((id, from)) = self.to_follow.take() else { return };
        let follows = self.follows.get_or_insert_with(|| {
            let feed = JobFeed::new(&self.state.core.events);
            let sending = tokio::spawn(forward(feed.reader(), self.say.clone()));
            WsSubscription { feed, jobs: 0, sending }
        });
        follows.jobs += usize::from(!follows.feed.has(id.number()));
        follows.feed.add(id.number(), from);
    }

    fn unfollow(&mut self, id: JobId) {
        let Some(follows) = &mut self.follows else { return };
        if follows.feed.has(id.number()) {
            follows.feed.remove(id.number());
            follows.jobs -= 1;
        }
        if follows.jobs == 0 {
            self.follows = None;
        }
    }
}

/// Guard of the connection count, decremented on drop.
struct ConnectionCountGuard(Arc<Core>);

impl ConnectionCountGuard {
    fn new(core: &Arc<Core>) -> Self {
        core.query.websockets.fetch_add(1, Relaxed);
        ConnectionCountGuard(Arc::clone(core))
    }
}

impl Drop for ConnectionCountGuard {
    fn drop(&mut self) {
        self.0.query.websockets.fetch_sub(1, Relaxed);
    }
}

/// Forwards events of the followed jobs. After waiting too long for capacity, it receives a reset
/// from the ring buffer.
async fn forward(events: FeedReader, say: SendQueue<Message>) {
    loop {
        let said = match events.next().await {
            FollowedItem::Event(event) => message(&ServerMessage::Event { event: &event }),
            FollowedItem::Reset(_) => message(&ServerMessage::Reset),
        };
        if put(&say, said).await.is_err() {
            return;
        }
    }
}

/// Queues a message. Fails if the client has disconnected.
async fn put(say: &SendQueue<Message>, message: Message) -> Result<(), Disconnected> {
    let bytes = match &message {
        Message::Text(text) => text.len(),
        // Control messages are small.
        _ => 0,
    };
    say.send(message, bytes).await
}

async fn write(mut out: SplitSink<WebSocket, Message>, mut said: SendQueueReceiver<Message>) {
    while let Some((message, _room)) = said.recv().await {
        if out.send(message).await.is_err() {
            return;
        }
    }
    let _ = out.close().await;
}

fn message(said: &ServerMessage<'_>) -> Message {
    let text = serde_json::to_string(said).expect("an answer can be written as JSON");
    Message::Text(Utf8Bytes::from(text))
}

fn close(code: u16, reason: &'static str) -> Message {
    Message::Close(Some(CloseFrame { code, reason: Utf8Bytes::from_static(reason) }))
}

/// Reads the number of a message that cannot be decoded.
pub(super) fn seq_of(text: &str) -> Option<u64> {
    serde_json::from_str::<serde_json::Value>(text).ok()?.get("seq")?.as_u64()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::JobNumber;
    use crate::engine::events::{EventHub, event};
    use crate::wire::{EventKind, Timestamp};

    fn ended(events: &EventHub, job: JobId) {
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

    /// Regression: a client that follows a job learns of its end, even if the forwarding task
    /// starts late.
    #[tokio::test]
    async fn one_follows_from_when_one_was_told_so() {
        let events = Arc::new(EventHub::new(7));
        tokio::spawn(Arc::clone(&events).distribute(CancellationToken::new()));
        let (say, mut said) = outbox();
        let mut feed = JobFeed::new(&events);
        let id = |number| JobId::new(JobNumber(number), 0, 0);
        for job in [id(1), id(2)] {
            let from = events.end();
            ended(&events, job);
            feed.add(job.number(), from);
        }
        ended(&events, id(3));
        let sending = tokio::spawn(forward(feed.reader(), say));
        for job in [id(1), id(2)] {
            let Some((Message::Text(text), _)) = said.recv().await else {
                panic!("it is not told")
            };
            assert!(text.contains(&job.to_string()), "{text}");
        }
        ended(&events, id(2));
        let Some((Message::Text(text), _)) = said.recv().await else { panic!("it is not told") };
        assert!(text.contains(&id(2).to_string()), "nothing of the third, but {text}");
        sending.abort();
    }
}
