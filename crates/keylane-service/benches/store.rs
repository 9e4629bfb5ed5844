//! What the store costs, with everything acknowledged on the disk: a job by itself and many at a time,
//! subtasks in bulk, outcomes, and opening with a million subtasks waiting; and how many bytes each needs.
//!
//! `cargo bench -p keylane-service --bench store [-- FOLDER [SIZE]]`; the folder says which disk, the size
//! how much of everything, 1 by default: 0.01 is a check that it works.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use keylane_service::store::{
    Changes, JobState, JobStatus, NewJob, OutcomeCounts, OutcomeKind, PendingWrite, Store,
    StoreSettings, SubtaskOutcome,
};
use keylane_service::{JobNumber, SubtaskId};

const NOW: u64 = 1_763_000_000_000;
const WINDOW: Duration = Duration::from_secs(1);
const RUNS: usize = 5;
const PAYLOAD: [u8; 100] = [7; 100];

/// The head of a job, as the service has it: a name, labels, some settings.
const HEAD: &[u8] =
    br#"{"name":"resize","labels":{"tenant":"ann"},"max_attempts":3,"timeout_ms":30000}"#;

fn main() {
    let mut arguments = std::env::args().skip(1).filter(|argument| !argument.starts_with('-'));
    let folder = arguments.next().map_or_else(std::env::temp_dir, PathBuf::from);
    let size: f64 = arguments.next().map_or(1.0, |size| size.parse().expect("a number"));
    println!(
        "payload {} bytes, key 8 bytes; median of {RUNS} runs (lowest to highest)\n",
        PAYLOAD.len()
    );
    println!("| what | a second | p50 µs | p99 µs | writer's CPU µs each |");
    println!("|---|---:|---:|---:|---:|");
    let window = WINDOW.mul_f64(size.max(0.05));
    for clients in [1, 64] {
        show(&format!("accept a small job, {clients} at a time"), || {
            accept(&folder, clients, window)
        });
    }
    show("the life of a small job, 64 at a time", || lives(&folder, window));
    let many = (1_000_000.0 * size) as u32;
    show("subtasks in one upload", || bulk(&folder, many));
    show("outcomes of one job", || outcomes(&folder, many.min(500_000)));
    recovery(&folder, many);
}

/// How one run went.
struct Run {
    count: u64,
    took: Duration,
    /// What each took, where that is known.
    each: Vec<Duration>,
    /// CPU time of the thread that writes.
    writer: Duration,
}

fn show(what: &str, mut run: impl FnMut() -> Run) {
    let mut rates = Vec::new();
    let mut each = Vec::new();
    let mut cpu = Vec::new();
    for _ in 0..RUNS {
        let run = run();
        rates.push(run.count as f64 / run.took.as_secs_f64());
        cpu.push(run.writer.as_secs_f64() * 1e6 / run.count as f64);
        each.extend(run.each);
    }
    rates.sort_by(f64::total_cmp);
    cpu.sort_by(f64::total_cmp);
    each.sort_unstable();
    let at = |share: f64| match each.len() {
        0 => "–".to_owned(),
        length => each[((length - 1) as f64 * share) as usize].as_micros().to_string(),
    };
    let [low, median, high] = [rates[0], rates[RUNS / 2], rates[RUNS - 1]];
    let (p50, p99, cpu) = (at(0.5), at(0.99), cpu[RUNS / 2]);
    println!("| {what} | {median:.0} ({low:.0}–{high:.0}) | {p50} | {p99} | {cpu:.2} |");
}

fn open(folder: &Path) -> (tempfile::TempDir, PathBuf, Store) {
    let folder = tempfile::tempdir_in(folder).unwrap();
    let path = folder.path().join("store");
    let (store, _) = Store::open(&path, &StoreSettings::default()).unwrap();
    (folder, path, store)
}

fn new_job() -> NewJob {
    let (kind, head, status) = ("resize".into(), HEAD.to_vec(), JobStatus::WAITING);
    NewJob { kind, created_ms: NOW, head, status, idempotency: None }
}

fn upload(store: &Store, total: u32) -> keylane_service::store::JobUpload {
    let mut upload = store.upload(NOW).unwrap();
    for number in 0..total {
        upload.push(&[format!("key{:05}", number % 10_000)], &PAYLOAD).unwrap();
        if upload.is_full() {
            upload.flush().unwrap();
        }
    }
    upload
}

fn outcome(number: u32) -> SubtaskOutcome {
    SubtaskOutcome {
        number,
        attempt: 1,
        kind: OutcomeKind::Succeeded,
        started_ms: NOW,
        ended_ms: NOW + 5,
        result: b"ok".to_vec(),
    }
}

/// The CPU time that the writer's thread has used.
fn writer_cpu() -> Duration {
    let mut total = Duration::ZERO;
    for task in std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten() {
        let name = std::fs::read_to_string(task.path().join("comm")).unwrap_or_default();
        if name.trim() == "keylane-store" {
            let stat = std::fs::read_to_string(task.path().join("schedstat")).unwrap_or_default();
            let nanos = stat.split(' ').next().and_then(|nanos| nanos.parse().ok());
            total += Duration::from_nanos(nanos.unwrap_or(0));
        }
    }
    total
}

/// `n` small jobs in flight, from one thread: as in a server, which waits for none.
fn accept(folder: &Path, clients: usize, window: Duration) -> Run {
    let (_folder, _, store) = open(folder);
    let (start, mut each, mut waiting) = (Instant::now(), Vec::new(), VecDeque::new());
    let finish = |begun: Instant, pending: PendingWrite, each: &mut Vec<Duration>| {
        pending.wait().unwrap();
        each.push(begun.elapsed());
    };
    while start.elapsed() < window {
        if waiting.len() == clients {
            let (begun, pending) = waiting.pop_front().unwrap();
            finish(begun, pending, &mut each);
        }
        waiting.push_back((Instant::now(), upload(&store, 1).finish(new_job())));
    }
    for (begun, pending) in waiting {
        finish(begun, pending, &mut each);
    }
    Run { count: each.len() as u64, took: start.elapsed(), writer: writer_cpu(), each }
}

/// Small jobs from their acceptance to their end: accepted, begun when that is known, ended, over.
fn lives(folder: &Path, window: Duration) -> Run {
    let (_folder, _, store) = open(folder);
    let over = AtomicBool::new(false);
    let ended = AtomicU64::new(0);
    let (accepted, begun) = mpsc::channel::<JobNumber>();
    let start = Instant::now();
    thread::scope(|scope| {
        let worker = scope.spawn(|| {
            for job in begun {
                live(&store, job);
                ended.fetch_add(1, Ordering::Relaxed);
            }
        });
        scope.spawn(|| {
            thread::sleep(window);
            over.store(true, Ordering::Relaxed);
        });
        let mut waiting = VecDeque::new();
        while !over.load(Ordering::Relaxed) {
            if waiting.len() == 64 {
                wait(waiting.pop_front().unwrap());
            }
            let upload = upload(&store, 1);
            let (job, accepted) = (upload.job(), accepted.clone());
            let (told, pending) = oneshot();
            upload.finish_with(new_job(), move |committed| {
                committed.unwrap();
                accepted.send(job).unwrap();
                drop(told);
            });
            waiting.push_back(pending);
        }
        waiting.into_iter().for_each(wait);
        drop(accepted);
        worker.join().unwrap();
        // What was submitted last is on the disk when this is.
        store.submit(Changes::new()).wait().unwrap();
    });
    let count = ended.load(Ordering::Relaxed);
    Run { count, took: start.elapsed(), each: Vec::new(), writer: writer_cpu() }
}

/// What ends a wait by being dropped, and the wait.
fn oneshot() -> (mpsc::Sender<()>, mpsc::Receiver<()>) {
    mpsc::channel()
}

fn wait(pending: mpsc::Receiver<()>) {
    assert!(pending.recv().is_err(), "nothing is sent");
}

/// Everything that is said of a small job after it was accepted.
fn live(store: &Store, job: JobNumber) {
    let mut changes = Changes::new();
    changes.started(SubtaskId { job, number: 0 }, 1);
    store.submit_and_forget(changes);
    let mut changes = Changes::new();
    changes.ended(job, outcome(0));
    let counts = OutcomeCounts { succeeded: 1, ..OutcomeCounts::default() };
    let (started_ms, ended_ms) = (Some(NOW), Some(NOW + 5));
    let status = JobStatus { started_ms, ended_ms, counts, ..JobStatus::of(JobState::Succeeded) };
    changes.status(job, status);
    store.submit_and_forget(changes);
}

fn bulk(folder: &Path, subtasks: u32) -> Run {
    let (_folder, _, store) = open(folder);
    let start = Instant::now();
    upload(&store, subtasks).finish(new_job()).wait().unwrap();
    let took = start.elapsed();
    Run { count: u64::from(subtasks), took, each: Vec::new(), writer: writer_cpu() }
}

/// Each in a submission of its own, with its mark before, as executors do; a thousand on the way.
fn outcomes(folder: &Path, subtasks: u32) -> Run {
    let (_folder, _, store) = open(folder);
    let upload = upload(&store, subtasks);
    let job = upload.job();
    upload.finish(new_job()).wait().unwrap();
    let before = writer_cpu();
    let (start, mut waiting) = (Instant::now(), VecDeque::new());
    for number in 0..subtasks {
        if waiting.len() == 1000 {
            let pending: PendingWrite = waiting.pop_front().unwrap();
            pending.wait().unwrap();
        }
        let mut changes = Changes::new();
        changes.started(SubtaskId { job, number }, 1);
        store.submit_and_forget(changes);
        let mut changes = Changes::new();
        changes.ended(job, outcome(number));
        waiting.push_back(store.submit(changes));
    }
    for pending in waiting {
        pending.wait().unwrap();
    }
    let (took, writer) = (start.elapsed(), writer_cpu() - before);
    Run { count: u64::from(subtasks), took, each: Vec::new(), writer }
}

/// Opening as after a crash, with all subtasks waiting in a few large jobs, and with a job for each.
fn recovery(folder: &Path, subtasks: u32) {
    println!("\n| what waits | MiB in the file | bytes a subtask | opened s | recovered s |");
    println!("|---|---:|---:|---:|---:|");
    for jobs in [4, subtasks] {
        let (_folder, path, store) = open(folder);
        let mut pending = VecDeque::new();
        for _ in 0..jobs {
            pending.push_back(upload(&store, subtasks / jobs).finish(new_job()));
            if pending.len() == 1000 {
                pending.pop_front().unwrap().wait().unwrap();
            }
        }
        for pending in pending {
            pending.wait().unwrap();
        }
        drop(store);
        let bytes = std::fs::metadata(&path).unwrap().len() as f64;
        let start = Instant::now();
        let (store, mut recovered) = Store::open(&path, &StoreSettings::default()).unwrap();
        let opened = start.elapsed();
        let (mut waiting, mut key_bytes) = (0u64, 0);
        while let Some(job) = recovered.next_job().unwrap() {
            job.for_each_waiting(|one| {
                waiting += 1;
                key_bytes += one.subtask.keys().map(|claim| claim.key.len()).sum::<usize>();
            })
            .unwrap();
        }
        let took = start.elapsed();
        assert_eq!((waiting, key_bytes as u64), (u64::from(subtasks / jobs * jobs), waiting * 8));
        drop(store);
        println!(
            "| {waiting} subtasks in {jobs} jobs | {:.0} | {:.0} | {:.2} | {:.2} |",
            bytes / 1048576.0,
            bytes / waiting as f64,
            opened.as_secs_f64(),
            took.as_secs_f64()
        );
    }
}
