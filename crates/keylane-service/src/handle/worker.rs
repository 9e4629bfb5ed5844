//! Persistent worker processes: attempts are sent as lines of JSON.
//!
//! Protocol, version 1: one JSON object per line, on standard input and output. Output for humans
//! goes to the worker's standard error.
//!
//! | to the worker | from the worker |
//! |---|---|
//! | `{"op":"hello","v":1}` | `{"op":"ready"}` |
//! | `{"op":"task","id":…,"job":…,"kind":…,"subtask":…,"key":…,"attempt":…,"fence":…,"payload":…}` | `{"op":"done","id":…,"result":…}` or `{"op":"fail","id":…,"error":…,"retry":true,"after_ms":…}` |
//! | | `{"op":"progress","id":…,"progress":0.5}`, any number of times before the answer |
//! | `{"op":"cancel","id":…}` | one of those two answers |
//! | `{"op":"bye"}`, and the end of its input | exits |
//!
//! A task has `key` if the subtask has one, and `traceparent` and `tracestate` if the job has a
//! trace context.
//!
//! A line ends with `\n`. Text before the end of the input without a `\n` is the start of a line
//! whose writer has died: a worker must not take it for a task.
//!
//! A worker has one task at a time. Its `id` contains the attempt's number; an answer with another
//! `id` is a protocol error. A worker that exits, breaks the protocol, or does not answer in time
//! after `cancel` is killed with its process group. The attempt has then failed, and the next task
//! gets a new worker.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::process::Signal;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{ChildStdin, ChildStdout};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use keylane_process::Registry;

use super::command::{CommandHandler, not_run};
use super::group::ProcessGroup;
use super::{Attempt, AttemptFailure, AttemptResult, BoxFuture, Handler};

/// Maximum size of a line from a worker, in bytes.
const MAX_LINE_BYTES: u64 = 16 * 1024 * 1024;

/// Timeout of a worker's `ready`: an interpreter with many libraries starts slowly.
const READY: Duration = Duration::from_secs(60);

/// Grace period for a worker to answer or exit after `cancel` or `bye`.
const GRACE: Duration = Duration::from_secs(5);

/// Pool of worker processes, each with one attempt at a time. Workers are started on demand.
#[derive(Debug)]
pub struct WorkerHandler {
    crew: Arc<WorkerPool>,
}

#[derive(Debug)]
struct WorkerPool {
    command: CommandHandler,
    /// Number of tasks after which a worker is replaced by a new one.
    max_tasks: Option<u64>,
    /// Maximum number of workers.
    most: usize,
    /// One permit per worker that may exist.
    places: Arc<Semaphore>,
    /// Idle workers, used last in, first out.
    idle: Mutex<Vec<WorkerProcess>>,
}

#[derive(Debug)]
struct WorkerProcess {
    group: ProcessGroup,
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

/// Message of a worker. A tagged enum would not keep the original text of the result.
#[derive(Deserialize)]
struct FromWorker {
    op: WorkerOp,
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
    /// Finished part of the task.
    #[serde(default)]
    progress: Option<f64>,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum WorkerOp {
    Ready,
    Progress,
    Done,
    Fail,
}

impl WorkerHandler {
    /// Returns a pool of at most `workers` processes of `command`.
    pub fn new(command: CommandHandler, workers: usize, max_tasks: Option<u64>) -> Self {
        let most = workers.clamp(1, Semaphore::MAX_PERMITS);
        let places = Arc::new(Semaphore::new(most));
        WorkerHandler {
            crew: Arc::new(WorkerPool { command, max_tasks, most, places, idle: Mutex::default() }),
        }
    }
}

impl Handler for WorkerHandler {
    fn sort(&self) -> &'static str {
        "worker"
    }

    fn max_attempts(&self) -> Option<usize> {
        Some(self.crew.most)
    }

    fn handle(&self, attempt: Attempt) -> BoxFuture<AttemptResult> {
        let crew = Arc::clone(&self.crew);
        Box::pin(async move {
            let begin = async {
                let place = Arc::clone(&crew.places).acquire_owned().await;
                let place = place.expect("the semaphore is never closed");
                crew.worker(&attempt.children).await.map(|worker| (place, worker))
            };
            let (place, mut worker) = tokio::select! {
                begun = begin => begun?,
                () = attempt.cancelled.cancelled() => {
                    return Err(AttemptFailure::passing("the attempt was cancelled before a worker was ready"));
                }
            };
            let answer = worker.ask(&attempt).await;
            match answer {
                Ok(answer) => {
                    crew.keep(worker, place);
                    answer
                }
                Err(lost) => {
                    // Waits until no process of the group runs: the next attempt goes to another
                    // worker.
                    let _ = worker.group.end().await;
                    Err(AttemptFailure::passing(lost))
                }
            }
        })
    }

    fn close(&self) -> BoxFuture<()> {
        let crew = Arc::clone(&self.crew);
        Box::pin(async move {
            let idle = std::mem::take(&mut *crew.idle());
            futures_util::future::join_all(idle.into_iter().map(WorkerProcess::dismiss)).await;
        })
    }
}

impl WorkerPool {
    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<WorkerProcess>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a ready worker: an idle one that is still alive, or a new one.
    async fn worker(&self, children: &Registry) -> Result<WorkerProcess, AttemptFailure> {
        loop {
            let idle = self.idle().pop();
            let Some(worker) = idle else { return self.hire(children).await };
            if !worker.group.has_ended() {
                return Ok(worker);
            }
            // Its child processes can outlive it.
            let _ = worker.group.end().await;
        }
    }

    async fn hire(&self, children: &Registry) -> Result<WorkerProcess, AttemptFailure> {
        let mut command = self.command.prepare(None)?;
        command.stderr(std::process::Stdio::inherit());
        let mut group = ProcessGroup::start(&mut command, children)
            .map_err(|error| not_run(&self.command.program(), &error))?;
        let stdin = group.child().stdin.take().expect("stdin is piped");
        let stdout = BufReader::new(group.child().stdout.take().expect("stdout is piped"));
        let mut worker = WorkerProcess { group, stdin, stdout, tasks: 0 };
        let greeting = async {
            worker.say(&ToWorker::Hello { v: 1 }).await?;
            match worker.hear().await?.op {
                WorkerOp::Ready => Ok(()),
                _ => Err("its first line was not `ready`".to_owned()),
            }
        };
        match tokio::time::timeout(READY, greeting).await {
            Ok(Ok(())) => Ok(worker),
            Ok(Err(why)) => {
                Err(AttemptFailure::passing(format!("the worker did not start: {why}")))
            }
            Err(_) => Err(AttemptFailure::passing("the worker did not send `ready` in time")),
        }
    }

    /// Returns a worker to the idle list, or ends it after its maximum number of tasks.
    fn keep(self: &Arc<Self>, mut worker: WorkerProcess, place: OwnedSemaphorePermit) {
        worker.tasks += 1;
        if self.max_tasks.is_some_and(|most| worker.tasks >= most) {
            tokio::spawn(async move {
                worker.dismiss().await;
                drop(place);
            });
        } else {
            self.idle().push(worker);
        }
    }
}

impl WorkerProcess {
    /// Sends the attempt and returns the answer. The error is a protocol error or the worker's
    /// exit.
    async fn ask(&mut self, attempt: &Attempt) -> Result<AttemptResult, String> {
        let id = format!("{}/{}", attempt.idempotency_key(), attempt.fence);
        let payload = std::str::from_utf8(&attempt.payload).ok().map(str::to_owned);
        let payload = payload.and_then(|text| RawValue::from_string(text).ok());
        let payload = payload.ok_or_else(|| "the payload is not valid JSON".to_owned())?;
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
            () = cancelled.cancelled() => return Err("the worker does not read its input".into()),
        }
        // `line` keeps a partial line when the other branch completes first.
        let mut line = Vec::new();
        tokio::select! {
            heard = self.hear_answer(&mut line, &id, attempt) => return self.understood(heard?),
            () = cancelled.cancelled() => {}
        }
        self.say(&ToWorker::Cancel { id: &id }).await?;
        match tokio::time::timeout(GRACE, self.hear_answer(&mut line, &id, attempt)).await {
            Ok(heard) => self.understood(heard?),
            Err(_) => {
                Err("the worker was killed because it did not answer `cancel` in time".into())
            }
        }
    }

    /// Reads lines of the worker until its answer to the task, and passes the progress in them on.
    async fn hear_answer(
        &mut self,
        line: &mut Vec<u8>,
        id: &str,
        attempt: &Attempt,
    ) -> Result<FromWorker, String> {
        loop {
            let heard = self.hear_into(line).await?;
            line.clear();
            if heard.op != WorkerOp::Ready && heard.id != id {
                return Err("the worker's answer has the id of another task".into());
            }
            if heard.op != WorkerOp::Progress {
                return Ok(heard);
            }
            heard.progress.into_iter().for_each(|fraction| attempt.progress.report(fraction));
        }
    }

    fn understood(&self, heard: FromWorker) -> Result<AttemptResult, String> {
        match heard.op {
            WorkerOp::Ready | WorkerOp::Progress => {
                Err("the worker sent `ready` instead of an answer".into())
            }
            WorkerOp::Done => Ok(Ok(heard.result)),
            WorkerOp::Fail => {
                let failure = match heard.retry {
                    Some(false) => AttemptFailure::lasting(heard.error),
                    _ => AttemptFailure::passing(heard.error),
                };
                Ok(Err(AttemptFailure {
                    after: heard.after_ms.map(Duration::from_millis),
                    ..failure
                }))
            }
        }
    }

    async fn say(&mut self, what: &ToWorker<'_>) -> Result<(), String> {
        let mut line = serde_json::to_vec(what).expect("messages serialize to JSON");
        // JSON has line ends only between its tokens, where a blank is equivalent.
        line.iter_mut().filter(|byte| matches!(byte, b'\n' | b'\r')).for_each(|byte| *byte = b' ');
        line.push(b'\n');
        // The worker gets the whole line or none of it, even if this process is killed.
        keylane_process::widen_pipe(&self.stdin, line.len());
        let said = self.stdin.write_all(&line).await;
        said.map_err(|_| "the worker has ended".to_owned())
    }

    async fn hear(&mut self) -> Result<FromWorker, String> {
        self.hear_into(&mut Vec::new()).await
    }

    async fn hear_into(&mut self, line: &mut Vec<u8>) -> Result<FromWorker, String> {
        let room = MAX_LINE_BYTES - (line.len() as u64).min(MAX_LINE_BYTES);
        let read = (&mut self.stdout).take(room).read_until(b'\n', line).await;
        read.map_err(|error| format!("reading from the worker failed:{error}"))?;
        match line.last() {
            Some(b'\n') => {}
            Some(_) if line.len() as u64 >= MAX_LINE_BYTES => {
                return Err(format!("a line of the worker is larger than {MAX_LINE_BYTES} bytes"));
            }
            _ => return Err("the worker exited without an answer".into()),
        }
        serde_json::from_slice(line)
            .map_err(|error| format!("a line of the worker is not a valid message: {error}"))
    }

    /// Closes the worker's input and waits for its exit within the grace period.
    async fn dismiss(mut self) {
        let _ = self.say(&ToWorker::Bye).await;
        let WorkerProcess { group, stdin, .. } = self;
        drop(stdin);
        if tokio::time::timeout(GRACE, group.ended()).await.is_err() {
            group.signal(Signal::TERM);
            let _ = tokio::time::timeout(GRACE, group.ended()).await;
        }
        let _ = group.end().await;
    }
}
