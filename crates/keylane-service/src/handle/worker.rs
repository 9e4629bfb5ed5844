//! Attempts as lines to long-lived processes.
//!
//! The protocol, version 1: JSON, a line each, on the standard input and output. What a worker prints for
//! people goes to its standard error.
//!
//! | to the worker | from it |
//! |---|---|
//! | `{"op":"hello","v":1}` | `{"op":"ready"}` |
//! | `{"op":"task","id":…,"job":…,"kind":…,"subtask":…,"key":…,"attempt":…,"fence":…,"payload":…}` | `{"op":"done","id":…,"result":…}` or `{"op":"fail","id":…,"error":…,"retry":true,"after_ms":…}` |
//! | `{"op":"cancel","id":…}` | one of those two |
//! | `{"op":"bye"}`, and the end of its input | it ends |
//!
//! A task has `key` if it has one, and `traceparent` and `tracestate` if its job came with a trace.
//!
//! A line ends with its line end (`\n`). What comes before the end of the input without one is the beginning of a line
//! whose writer has died: a worker does not take it for a task.
//!
//! A worker has one task at a time. An `id` has the attempt in it; an answer with another is no answer.
//! A worker that ends, answers what it was not asked, or does not answer when it was told to give up, is
//! killed with its process group; its task's attempt has failed, and another worker is started for the
//! next one.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::process::Signal;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{ChildStdin, ChildStdout};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use keylane_process::Registry;

use super::command::{Command, not_run};
use super::group::Group;
use super::{Answer, Attempt, BoxFuture, Failure, Handler};

/// How many bytes a line of a worker may have.
const MOST_LINE_BYTES: u64 = 16 * 1024 * 1024;

/// How long a worker has to say that it is ready: an interpreter with many libraries takes its time.
const READY: Duration = Duration::from_secs(60);

/// How long a worker has to answer or end when it was told to.
const GRACE: Duration = Duration::from_secs(5);

/// A crew of processes, each with one attempt at a time. They are started when they are needed.
#[derive(Debug)]
pub struct Workers {
    crew: Arc<Crew>,
}

#[derive(Debug)]
struct Crew {
    command: Command,
    /// After so many tasks a worker is let go, and another takes its place.
    most_tasks: Option<u64>,
    /// A place for each worker that there may be.
    places: Arc<Semaphore>,
    /// Those that have nothing to do; the last one to become idle is the first to work again.
    idle: Mutex<Vec<Worker>>,
}

#[derive(Debug)]
struct Worker {
    group: Group,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    tasks: u64,
}

#[derive(Serialize)]
#[serde(tag = "op", rename_all = "snake_case")]
enum ToWorker<'a> {
    Hello {
        v: u32,
    },
    Task {
        id: &'a str,
        job: &'a str,
        kind: &'a str,
        subtask: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        key: Option<&'a str>,
        attempt: u32,
        fence: u64,
        #[serde(skip_serializing_if = "Option::is_none")]
        traceparent: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        tracestate: Option<&'a str>,
        payload: &'a RawValue,
    },
    Cancel {
        id: &'a str,
    },
    Bye,
}

/// A line of a worker. Not an enum with a tag, for the result must stay as it was written.
#[derive(Deserialize)]
struct FromWorker {
    op: Op,
    #[serde(default)]
    id: String,
    #[serde(default)]
    result: Option<Box<RawValue>>,
    #[serde(default)]
    error: String,
    #[serde(default)]
    retry: Option<bool>,
    #[serde(default)]
    after_ms: Option<u64>,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Op {
    Ready,
    Done,
    Fail,
}

impl Workers {
    /// Up to so many processes of this command.
    pub fn new(command: Command, workers: usize, most_tasks: Option<u64>) -> Self {
        let places = Arc::new(Semaphore::new(workers.clamp(1, Semaphore::MAX_PERMITS)));
        Workers { crew: Arc::new(Crew { command, most_tasks, places, idle: Mutex::default() }) }
    }
}

impl Handler for Workers {
    fn sort(&self) -> &'static str {
        "worker"
    }

    fn handle(&self, attempt: Attempt) -> BoxFuture<Answer> {
        let crew = Arc::clone(&self.crew);
        Box::pin(async move {
            let begin = async {
                let place = Arc::clone(&crew.places).acquire_owned().await;
                let place = place.expect("nobody closes it");
                crew.worker(&attempt.children).await.map(|worker| (place, worker))
            };
            let (place, mut worker) = tokio::select! {
                begun = begin => begun?,
                () = attempt.cancelled.cancelled() => {
                    return Err(Failure::passing("it was cancelled before a worker was there"));
                }
            };
            let answer = worker.ask(&attempt).await;
            match answer {
                Ok(answer) => {
                    crew.keep(worker, place);
                    answer
                }
                Err(lost) => {
                    // Not before nothing of it runs, for another worker gets the next attempt.
                    let _ = worker.group.end().await;
                    Err(Failure::passing(lost))
                }
            }
        })
    }

    fn close(&self) -> BoxFuture<()> {
        let crew = Arc::clone(&self.crew);
        Box::pin(async move {
            let idle = std::mem::take(&mut *crew.idle());
            futures_util::future::join_all(idle.into_iter().map(Worker::dismiss)).await;
        })
    }
}

impl Crew {
    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<Worker>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One that is ready. Those that have ended meanwhile are left out.
    async fn worker(&self, children: &Registry) -> Result<Worker, Failure> {
        loop {
            let idle = self.idle().pop();
            let Some(worker) = idle else { return self.hire(children).await };
            if !worker.group.has_ended() {
                return Ok(worker);
            }
            // With what it has left.
            let _ = worker.group.end().await;
        }
    }

    async fn hire(&self, children: &Registry) -> Result<Worker, Failure> {
        let mut command = self.command.prepare(None)?;
        command.stderr(std::process::Stdio::inherit());
        let mut group = Group::start(&mut command, children).map_err(|error| not_run(&error))?;
        let stdin = group.child().stdin.take().expect("it was asked for");
        let stdout = BufReader::new(group.child().stdout.take().expect("it was asked for"));
        let mut worker = Worker { group, stdin, stdout, tasks: 0 };
        let greeting = async {
            worker.say(&ToWorker::Hello { v: 1 }).await?;
            match worker.hear().await?.op {
                Op::Ready => Ok(()),
                Op::Done | Op::Fail => Err("it did not begin with `ready`".to_owned()),
            }
        };
        match tokio::time::timeout(READY, greeting).await {
            Ok(Ok(())) => Ok(worker),
            Ok(Err(why)) => Err(Failure::passing(format!("the worker did not begin: {why}"))),
            Err(_) => Err(Failure::passing("the worker did not say that it is ready")),
        }
    }

    /// It may have more to do, if it has not done enough.
    fn keep(self: &Arc<Self>, mut worker: Worker, place: OwnedSemaphorePermit) {
        worker.tasks += 1;
        if self.most_tasks.is_some_and(|most| worker.tasks >= most) {
            tokio::spawn(async move {
                worker.dismiss().await;
                drop(place);
            });
        } else {
            self.idle().push(worker);
        }
    }
}

impl Worker {
    /// Its answer; or why there is none.
    async fn ask(&mut self, attempt: &Attempt) -> Result<Answer, String> {
        let id = format!("{}/{}", attempt.idempotency_key(), attempt.fence);
        let payload = std::str::from_utf8(&attempt.payload).ok().map(str::to_owned);
        let payload = payload.and_then(|text| RawValue::from_string(text).ok());
        let payload = payload.ok_or_else(|| "its payload is no JSON".to_owned())?;
        let key = attempt.key();
        let task = ToWorker::Task {
            id: &id,
            job: &attempt.job.to_string(),
            kind: &attempt.kind,
            subtask: &attempt.subtask_name(),
            key: key.as_deref(),
            attempt: attempt.number,
            fence: attempt.fence,
            traceparent: attempt.traceparent(),
            tracestate: attempt.tracestate(),
            payload: &payload,
        };
        let cancelled = attempt.cancelled.clone();
        tokio::select! {
            said = self.say(&task) => said?,
            () = cancelled.cancelled() => return Err("it does not read".into()),
        }
        // What has been read of a line is kept when the other branch wins, for it is in `line`.
        let mut line = Vec::new();
        tokio::select! {
            heard = self.hear_into(&mut line) => return self.understood(heard?, &id),
            () = cancelled.cancelled() => {}
        }
        self.say(&ToWorker::Cancel { id: &id }).await?;
        match tokio::time::timeout(GRACE, self.hear_into(&mut line)).await {
            Ok(heard) => self.understood(heard?, &id),
            Err(_) => Err("it was killed, as it did not give up when it was told to".into()),
        }
    }

    fn understood(&self, heard: FromWorker, id: &str) -> Result<Answer, String> {
        match heard.op {
            Op::Ready => Err("the worker said `ready` in place of an answer".into()),
            _ if heard.id != id => Err("the worker answered what it was not asked".into()),
            Op::Done => Ok(Ok(heard.result)),
            Op::Fail => {
                let failure = match heard.retry {
                    Some(false) => Failure::lasting(heard.error),
                    _ => Failure::passing(heard.error),
                };
                Ok(Err(Failure { after: heard.after_ms.map(Duration::from_millis), ..failure }))
            }
        }
    }

    async fn say(&mut self, what: &ToWorker<'_>) -> Result<(), String> {
        let mut line = serde_json::to_vec(what).expect("this can be written as JSON");
        // JSON may contain line ends between its parts, and nowhere else.
        line.iter_mut().filter(|byte| matches!(byte, b'\n' | b'\r')).for_each(|byte| *byte = b' ');
        line.push(b'\n');
        // So that the worker gets all of it or nothing, even if this process is killed.
        keylane_process::widen_pipe(&self.stdin, line.len());
        let said = self.stdin.write_all(&line).await;
        said.map_err(|_| "the worker has ended".to_owned())
    }

    async fn hear(&mut self) -> Result<FromWorker, String> {
        self.hear_into(&mut Vec::new()).await
    }

    async fn hear_into(&mut self, line: &mut Vec<u8>) -> Result<FromWorker, String> {
        let room = MOST_LINE_BYTES - (line.len() as u64).min(MOST_LINE_BYTES);
        let read = (&mut self.stdout).take(room).read_until(b'\n', line).await;
        read.map_err(|error| format!("the worker cannot be heard: {error}"))?;
        match line.last() {
            Some(b'\n') => {}
            Some(_) if line.len() as u64 >= MOST_LINE_BYTES => {
                return Err(format!("the worker's line has over {MOST_LINE_BYTES} bytes"));
            }
            _ => return Err("the worker has ended without an answer".into()),
        }
        serde_json::from_slice(line)
            .map_err(|error| format!("the worker's line is not understood: {error}"))
    }

    /// Lets it end by itself, within its time.
    async fn dismiss(mut self) {
        let _ = self.say(&ToWorker::Bye).await;
        let Worker { group, stdin, .. } = self;
        drop(stdin);
        if tokio::time::timeout(GRACE, group.ended()).await.is_err() {
            group.signal(Signal::TERM);
            let _ = tokio::time::timeout(GRACE, group.ended()).await;
        }
        let _ = group.end().await;
    }
}
