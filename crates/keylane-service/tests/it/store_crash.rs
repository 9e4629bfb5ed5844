//! Nothing that was acknowledged is lost by `kill -9`, nothing is half there, and the order is kept.

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;

use crate::store_support::{NOW, new_job, open, outcome, place, upload, waiting};
use keylane_service::store::{
    Changes, JobState, JobStatus, OutcomeCounts, OutcomeKind, RecoveredJobs, Store,
};
use keylane_service::{JobNumber, SubtaskId};

/// Where the child finds its store. Only a child has it.
const CHILD: &str = "KEYLANE_STORE_OF_CHILD";

const CLIENTS: u32 = 4;

fn child(path: &Path) -> Child {
    Command::new(env::current_exe().unwrap())
        .args(["--exact", "store_crash::works_until_it_is_killed", "--nocapture"])
        .env(CHILD, path)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Not a test of its own: what the child does, in this same program.
#[test]
fn works_until_it_is_killed() {
    let Some(path) = env::var_os(CHILD) else { return };
    let (store, mut recovered) = open(Path::new(&path));
    finish_all(&store, &mut recovered);
    thread::scope(|scope| {
        for client in 0..CLIENTS {
            let store = &store;
            scope.spawn(move || {
                for turn in 0.. {
                    bring(store, client, turn);
                }
            });
        }
    });
}

/// Ends some of what earlier children have left.
fn finish_all(store: &Store, recovered: &mut RecoveredJobs) {
    while let Some(job) = recovered.next_job().unwrap() {
        let numbers = waiting(&job).into_iter().map(|(number, _)| number);
        end(store, job.job.number, numbers.filter(|number| number % 5 != 0).take(2));
    }
}

/// A job, small or large, some of which is done at once; or an upload that comes to nothing; and now and
/// then a job that ends and goes.
fn bring(store: &Store, client: u32, turn: u32) {
    let total = if turn % 7 == client { 4000 } else { turn % 4 + 1 };
    let upload = upload(store, total);
    if turn % 11 == 5 {
        return;
    }
    let job = upload.job();
    let accepted = upload.finish(new_job(job)).wait().unwrap().entered.unwrap();
    say(format_args!("job {} {accepted} {total}", job.0));
    let mut changes = Changes::new();
    changes.started(SubtaskId { job, number: 0 }, 3);
    store.submit(changes).wait().unwrap();
    say(format_args!("mark {}", job.0));
    let succeeded = end(store, job, (1..total).filter(|number| number % 3 == 1).take(20));
    if turn % 3 == 2 {
        // The child may be killed between the end of the job and its removal.
        let counts = OutcomeCounts { succeeded, ..OutcomeCounts::default() };
        let status =
            JobStatus { ended_ms: Some(NOW), counts, ..JobStatus::of(JobState::Cancelled) };
        let mut changes = Changes::new();
        changes.status(job, status);
        changes.purge(job);
        say(format_args!("goes {}", job.0));
        // Refused: what ends only now could not be purged before.
        let refused = store.submit(changes).wait();
        assert!(refused.is_err());
        let mut changes = Changes::new();
        changes.status(job, status);
        store.submit_and_forget(changes);
        let mut changes = Changes::new();
        changes.purge(job);
        store.submit(changes).wait().unwrap();
        say(format_args!("gone {}", job.0));
    }
}

/// Ends subtasks, and returns their number.
fn end(store: &Store, job: JobNumber, numbers: impl Iterator<Item = u32>) -> u32 {
    let mut ended = 0;
    for number in numbers {
        let mut changes = Changes::new();
        changes.ended(job, outcome(number, OutcomeKind::Succeeded));
        store.submit(changes).wait().unwrap();
        say(format_args!("end {} {number}", job.0));
        ended += 1;
    }
    ended
}

/// One write for a line, so that none is cut in two by another thread.
fn say(line: std::fmt::Arguments<'_>) {
    let mut line = line.to_string();
    line.push('\n');
    std::io::stdout().write_all(line.as_bytes()).unwrap();
}

/// What all children have said.
#[derive(Default)]
struct Said {
    /// Of each job that was acknowledged, its place and its total.
    jobs: BTreeMap<JobNumber, (u64, u32)>,
    ended: BTreeMap<JobNumber, BTreeSet<u32>>,
    marked: BTreeSet<JobNumber>,
    /// It was to go: it may be gone or not.
    going: BTreeSet<JobNumber>,
    gone: BTreeSet<JobNumber>,
}

impl Said {
    /// Notes a line, if it is whole: the last one may have been cut by the kill.
    fn note(&mut self, line: &str) -> bool {
        let words: Vec<_> = line.split(' ').collect();
        let number = |i: usize| words[i].parse::<u64>().unwrap();
        let job = || JobNumber(number(1));
        match (words[0], words.len()) {
            ("job", 4) => {
                self.jobs.insert(job(), (number(2), number(3) as u32));
            }
            ("end", 3) => {
                let is_new = self.ended.entry(job()).or_default().insert(number(2) as u32);
                assert!(is_new, "acknowledged twice: {line}");
            }
            ("mark", 2) => drop(self.marked.insert(job())),
            ("goes", 2) => drop(self.going.insert(job())),
            ("gone", 2) => drop(self.gone.insert(job())),
            _ => return false,
        }
        true
    }

    /// Lets a child print `lines` lines, and kills it at that moment.
    fn listen(&mut self, path: &Path, lines: usize) {
        let mut child = child(path);
        let mut heard = 0;
        let mut last = String::new();
        for line in BufReader::new(child.stdout.take().unwrap()).lines() {
            // A line that is not the last one is whole.
            let before = std::mem::replace(&mut last, line.unwrap());
            if self.note(&before) {
                heard += 1;
                if heard == lines {
                    // On Unix this is SIGKILL. What it has said already is still read.
                    child.kill().unwrap();
                }
            }
        }
        child.wait().unwrap();
        assert!(heard >= lines, "the child ended by itself");
    }

    /// All of it is there, and nothing in part.
    fn look(&self, path: &Path) {
        let (store, mut recovered) = open(path);
        assert!(!recovered.was_clean());
        let mut places = Vec::new();
        let mut found = BTreeSet::new();
        while let Some(job) = recovered.next_job().unwrap() {
            let number = job.job.number;
            found.insert(number);
            places.push(job.job.entered);
            let waiting = waiting(&job);
            if let Some((place, total)) = self.jobs.get(&number) {
                assert_eq!((job.job.entered, job.job.total), (*place, *total));
            }
            let ended = self.ended.get(&number).cloned().unwrap_or_default();
            let is_waiting = |number| waiting.iter().any(|(waits, _)| *waits == number);
            assert!(!ended.iter().any(|number| is_waiting(*number)), "an outcome is lost");
            if self.marked.contains(&number)
                && let Some((_, attempts)) = waiting.iter().find(|(number, _)| *number == 0)
            {
                assert_eq!(*attempts, 3);
            }
        }
        assert!(places.is_sorted());
        for job in self.jobs.keys() {
            let is_there = found.contains(job) || store.job(*job).unwrap().is_some();
            let may_be_gone = self.going.contains(job);
            assert!(is_there || may_be_gone, "{job:?} is lost");
            assert!(!is_there || !self.gone.contains(job), "{job:?} is back");
        }
        assert_eq!(store.check().unwrap().damage, []);
    }
}

#[test]
fn kill_9_loses_nothing_acknowledged() {
    let (_folder, path) = place();
    let mut said = Said::default();
    for round in 0..12 {
        said.listen(&path, 50 + round * 37);
        said.look(&path);
    }
    let (jobs, gone) = (said.jobs.len(), said.gone.len());
    assert!(jobs > 100 && gone > 10, "{jobs} jobs, of which {gone} are gone");
}
