//! Long-lived workers: each task is answered by a worker that is well, and one that is not is replaced.

use std::io::Write;
use std::process::Stdio;
use std::time::Duration;

use crate::common::attempts::{
    JOB, ask, attempt, cancellable, lasting, named_pipe, passing, result, traced,
};
use keylane_service::handle::{AttemptResult, CommandHandler, Handler, WorkerHandler};
use serde_json::json;

/// Answers with its own number, or does what the payload says instead.
const WORKER: &str = r#"
read hello; echo '{"op":"ready"}'
while read line; do
    id=$(echo "$line" | sed 's/.*"id":"\([^"]*\)".*/\1/')
    case "$line" in
    *'"op":"bye"'*) exit ;;
    *'"op":"cancel"'*) echo '{"op":"fail","id":"'$id'","error":"gave up","retry":false}' ;;
    *'"die"'*) exit 3 ;;
    *'"half"'*) printf '{"op":"done","id"'; exit ;;
    *'"rubbish"'*) echo 'Traceback (most recent call last):' ;;
    *'"other"'*) echo '{"op":"done","id":"somebody else","result":1}' ;;
    *'"ready"'*) echo '{"op":"ready"}' ;;
    *'"fail"'*) echo '{"op":"fail","id":"'$id'","error":"no room","after_ms":1500}' ;;
    *'"refuse"'*) echo '{"op":"fail","id":"'$id'","error":"not a picture","retry":false}' ;;
    *'"wait"'*) echo "$line" > FOLDER/begun ;;
    *) echo '{"op":"done","id":"'$id'","result":'$$'}' ;;
    esac
done
"#;

fn workers(count: usize, max_tasks: Option<u64>) -> WorkerHandler {
    crew(WORKER, count, max_tasks)
}

fn crew(script: &str, count: usize, max_tasks: Option<u64>) -> WorkerHandler {
    WorkerHandler::new(CommandHandler::new(["sh", "-c", script]), count, max_tasks)
}

/// Where a worker says what it was told, when it has begun with something that it does not end.
struct Begun(tempfile::TempDir);

impl Begun {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        named_pipe(&folder.path().join("begun"));
        Begun(folder)
    }

    fn crew(&self, script: &str) -> WorkerHandler {
        crew(&script.replace("FOLDER", self.0.path().to_str().unwrap()), 1, None)
    }

    async fn next(&self) -> String {
        let path = self.0.path().join("begun");
        tokio::task::spawn_blocking(|| std::fs::read_to_string(path).unwrap()).await.unwrap()
    }
}

/// The number of the worker that does a plain task.
async fn number(workers: &WorkerHandler) -> String {
    let number = result(ask(workers, attempt("0")).await);
    assert!(number.parse::<u32>().is_ok(), "{number}");
    number
}

async fn says(workers: &WorkerHandler, what: &str) -> AttemptResult {
    ask(workers, attempt(&format!("\"{what}\""))).await
}

/// The example worker of docs/serve/kinds.md.
fn documented() -> String {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/serve/kinds.md");
    let page = std::fs::read_to_string(page).unwrap();
    let (_, section) = page.split_once("## Workers that stay\n").unwrap();
    let (_, code) = section.split_once("```python\n").unwrap();
    code.split_once("```").unwrap().0.to_owned()
}

#[tokio::test]
async fn the_worker_in_the_documentation_works() {
    let workers =
        WorkerHandler::new(CommandHandler::new(["python3", "-c", &documented()]), 1, Some(3));
    let length = async |payload: &str| result(ask(&workers, attempt(payload)).await);
    assert_eq!(length(r#"{"text":"four"}"#).await, r#"{"length": 4, "attempt": 2}"#);
    let refused = ask(&workers, attempt("{}")).await;
    assert_eq!(lasting(refused), "no 'text'");
    // The last task of the first process, and the first of the next one.
    assert_eq!(length("{\"text\":\"a\\nb\"}").await, r#"{"length": 3, "attempt": 2}"#);
    assert_eq!(length(r#"{"text":""}"#).await, r#"{"length": 0, "attempt": 2}"#);
    workers.close().await;
}

#[test]
fn the_worker_in_the_documentation_does_not_take_the_beginning_of_a_line_for_a_task() {
    let mut command = std::process::Command::new("python3");
    command.args(["-c", &documented()]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut worker = command.spawn().unwrap();
    let task = |id| format!(r#"{{"op":"task","id":"{id}","attempt":1,"payload":{{"text":"x"}}}}"#);
    // The second one would be whole, but for its end.
    let input = format!("{{\"op\":\"hello\",\"v\":1}}\n{}\n{}", task("a"), task("b"));
    worker.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = worker.wait_with_output().unwrap();
    assert!(output.status.success());
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.contains(r#""id": "a""#) && !said.contains(r#""id": "b""#), "{said}");
}

#[tokio::test]
async fn a_worker_stays_for_as_many_tasks_as_was_said() {
    let workers = workers(1, Some(3));
    let mut numbers = Vec::new();
    for _ in 0..7 {
        numbers.push(number(&workers).await);
    }
    let of = |range: std::ops::Range<usize>| numbers[range].to_vec();
    assert!(of(0..3).iter().all(|number| *number == numbers[0]), "{numbers:?}");
    assert!(of(3..6).iter().all(|number| *number == numbers[3]), "{numbers:?}");
    assert!(numbers[0] != numbers[3] && numbers[3] != numbers[6], "{numbers:?}");
    workers.close().await;
}

#[tokio::test]
async fn what_a_worker_says_becomes_of_the_attempt() {
    let workers = workers(1, None);
    let first = number(&workers).await;
    let failure = says(&workers, "fail").await.unwrap_err();
    assert_eq!((&*failure.error, failure.retry), ("no room", true));
    assert_eq!(failure.after, Some(Duration::from_millis(1500)));
    assert_eq!(lasting(says(&workers, "refuse").await), "not a picture");
    // A worker that fails a task is well for the next.
    assert_eq!(number(&workers).await, first);
    workers.close().await;
}

/// Answers with what it was told.
const PARROT: &str = r#"
read hello; echo '{"op":"ready"}'
while read line; do
    id=$(echo "$line" | sed 's/.*"id":"\([^"]*\)".*/\1/')
    echo '{"op":"done","id":"'$id'","result":'"$line"'}'
done
"#;

#[tokio::test]
async fn a_worker_is_told_the_trace_if_there_is_one() {
    let workers = crew(PARROT, 1, None);
    let told = result(ask(&workers, traced("1")).await);
    let told: serde_json::Value = serde_json::from_str(&told).unwrap();
    let expected = json!({
        "op": "task", "id": format!("{JOB}/7/99"), "job": JOB, "kind": "resize", "subtask": "7",
        "key": "ann", "attempt": 2, "fence": 99, "payload": 1, "tracestate": "a=1",
        "traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
    });
    assert_eq!(told, expected);
    let told = result(ask(&workers, attempt("1")).await);
    assert!(!told.contains("trace"), "{told}");
    workers.close().await;
}

#[tokio::test]
async fn a_worker_that_dies_or_answers_rubbish_is_replaced() {
    let workers = workers(1, None);
    let mut last = number(&workers).await;
    for (what, why) in [
        ("die", "exited without an answer"),
        ("half", "exited without an answer"),
        ("rubbish", "not a valid message"),
        ("other", "the id of another task"),
        ("ready", "instead of an answer"),
    ] {
        let said = passing(says(&workers, what).await);
        assert!(said.contains(why), "{what}: {said}");
        let next = number(&workers).await;
        assert_ne!(next, last, "{what}");
        last = next;
    }
    workers.close().await;
}

#[tokio::test]
async fn one_that_gives_up_when_it_is_told_to_is_well() {
    let begun = Begun::new();
    let workers = begun.crew(WORKER);
    let first = number(&workers).await;
    let (attempt, cancel) = cancellable("\"wait\"");
    let answer = tokio::spawn(ask(&workers, attempt));
    let told: serde_json::Value = serde_json::from_str(&begun.next().await).unwrap();
    let expected = json!({
        "op": "task", "id": format!("{JOB}/7/99"), "job": JOB, "kind": "resize", "subtask": "7",
        "key": "ann", "attempt": 2, "fence": 99, "payload": "wait",
    });
    assert_eq!(told, expected);
    cancel.cancel();
    assert_eq!(lasting(answer.await.unwrap()), "gave up");
    assert_eq!(number(&workers).await, first);
    workers.close().await;
}

/// It takes the five seconds that a worker has to give up.
#[tokio::test]
async fn one_that_never_answers_is_killed_and_replaced() {
    let begun = Begun::new();
    let deaf =
        "read hello; echo '{\"op\":\"ready\"}'; read task; echo $$ > FOLDER/begun; sleep 1000";
    let workers = begun.crew(deaf);
    let mut numbers = Vec::new();
    for _ in 0..2 {
        let (attempt, cancel) = cancellable("1");
        let answer = tokio::spawn(ask(&workers, attempt));
        numbers.push(begun.next().await);
        if numbers.len() == 2 {
            // This one ends with its attempt.
            answer.abort();
            break;
        }
        cancel.cancel();
        assert!(passing(answer.await.unwrap()).contains("was killed"));
    }
    assert_ne!(numbers[0], numbers[1]);
}

#[tokio::test]
async fn one_that_does_not_begin_as_it_should_is_not_asked() {
    let odd = crew("read hello; echo '{\"op\":\"done\",\"id\":\"x\"}'; cat", 1, None);
    assert!(passing(ask(&odd, attempt("1")).await).contains("its first line was not `ready`"));
    let gone = crew("exit 0", 1, None);
    assert!(passing(ask(&gone, attempt("1")).await).contains("did not start"));
    let missing = WorkerHandler::new(CommandHandler::new(["/nowhere/at-all"]), 1, None);
    assert!(lasting(ask(&missing, attempt("1")).await).contains("not run"));
}

/// An attempt that was cancelled while all workers were busy went on waiting for one.
#[tokio::test]
async fn who_is_cancelled_waits_for_no_worker() {
    let begun = Begun::new();
    let workers = begun.crew(WORKER);
    let (first, end_first) = cancellable("\"wait\"");
    let busy = tokio::spawn(ask(&workers, first));
    begun.next().await;
    let (second, end_second) = cancellable("1");
    let waiting = tokio::spawn(ask(&workers, second));
    end_second.cancel();
    assert!(passing(waiting.await.unwrap()).contains("before a worker was ready"));
    end_first.cancel();
    assert_eq!(lasting(busy.await.unwrap()), "gave up");
    workers.close().await;
}
