//! G3 and G4: a consumer is killed at random, again and again. Nothing is lost, order is kept, and
//! the number of repeated records stays within its bound.

use std::collections::{HashMap, HashSet};
use std::env;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use crate::common::place;
use crate::consuming::{Dice, keyed, number, quick};
use keylane_stream::Position;
use keylane_stream::consumer::{Attempt, Consumer, StopReason};
use keylane_stream::journal::{Journal, JournalSource};
use keylane_stream::retry::{OnExhausted, RetryPolicy};
use keylane_stream::tracker::Progress;

/// Variable with the path of the child's journal. Set only for a child.
const CHILD: &str = "KEYLANE_JOURNAL_OF_CONSUMER";
/// Variable that overrides the number of kills.
const KILLS: &str = "KEYLANE_KILLS";

const KEYS: u64 = 40;
/// Number of records for each kill.
const RECORDS_A_LIFE: u64 = 400;

const COMMIT_AFTER: u64 = 50;
const MAX_INCOMPLETE: u64 = 100;
/// Bound of the records that one kill repeats: those that make a commit due, and those in flight
/// before and while it is written.
const MAX_REPEATED: u64 = COMMIT_AFTER + 2 * MAX_INCOMPLETE;

fn child(path: &Path) -> Child {
    Command::new(env::current_exe().unwrap())
        .args(["--exact", "consumer_crash::handles_until_it_is_killed", "--nocapture"])
        .env(CHILD, path)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Body of the child process, not a test of its own.
#[test]
fn handles_until_it_is_killed() {
    let Some(path) = env::var_os(CHILD) else { return };
    // On one processor the harness has begun a line, which this ends.
    println!();
    let journal = Journal::open(path).unwrap();
    let source = JournalSource::new(journal, "group").to_the_end();
    let consumer = Consumer::builder(source)
        .threads(8)
        .commit(Duration::from_secs(3600), COMMIT_AFTER)
        .max_in_flight(MAX_INCOMPLETE as usize, usize::MAX)
        .retry(RetryPolicy::new(quick(9, OnExhausted::Stop)).unwrap(), |_| ());
    let consumer = consumer.start(|attempt: &Attempt| {
        let mut dice = Dice(number(attempt) * 3 + u64::from(attempt.number()));
        say(format_args!("begin {}", attempt.position()));
        thread::sleep(Duration::from_micros(dice.roll_skewed(2_000)));
        if dice.roll(8) == 0 {
            say(format_args!("fail {}", attempt.position()));
            return Err(std::io::Error::other("not today"));
        }
        say(format_args!("done {}", attempt.position()));
        Ok(())
    });
    let ended = consumer.unwrap().wait();
    assert!(matches!(ended.reason, StopReason::Exhausted), "{:?}", ended.reason);
    say(format_args!("ended 0"));
}

/// Writes a line with one call, so that no other thread can write in the middle of it.
fn say(line: std::fmt::Arguments<'_>) {
    let mut line = line.to_string();
    line.push('\n');
    let mut out = std::io::stdout().lock();
    out.write_all(line.as_bytes()).and_then(|()| out.flush()).unwrap();
}

/// Observations of all lives of the child.
#[derive(Default)]
struct Ledger {
    /// For each position, the position before it of the same key.
    before: HashMap<u64, u64>,
    /// Number of completions of each position.
    done: HashMap<u64, u32>,
    /// Per key: the running position, and the last completed one of this life.
    running: HashMap<u64, u64>,
    last: HashMap<u64, u64>,
    done_in_this_life: HashSet<u64>,
    /// Number of repeated records, and of those that a life completed and did not commit.
    repeated: u64,
    max_uncommitted: u64,
    attempts: u64,
    ended: bool,
}

impl Ledger {
    fn note(&mut self, line: &str, key_of: impl Fn(u64) -> u64) {
        let Some((what, position)) = line.split_once(' ') else { return };
        let Ok(position) = position.parse::<u64>() else { return };
        let key = key_of(position);
        match what {
            "begin" => {
                self.attempts += 1;
                let other = self.running.insert(key, position);
                assert_eq!(other, None, "{position} began while another of its key ran");
                let last = self.last.get(&key);
                assert!(last.is_none_or(|last| *last < position), "{position} after {last:?}");
                // The position before it is complete, in this life or an earlier one, and so are
                // all before that.
                if let Some(before) = self.before.get(&position) {
                    assert!(self.done.contains_key(before), "{position} before {before}");
                }
            }
            "fail" => assert_eq!(self.running.remove(&key), Some(position)),
            "done" => {
                assert_eq!(self.running.remove(&key), Some(position));
                self.last.insert(key, position);
                let times = self.done.entry(position).or_default();
                *times += 1;
                self.repeated += u64::from(*times > 1);
                self.done_in_this_life.insert(position);
            }
            "ended" => self.ended = true,
            _ => {}
        }
    }

    /// Ends a life, with the committed progress.
    fn dies(&mut self, progress: Option<&Progress>) {
        self.running.clear();
        self.last.clear();
        let is_done = |at: &u64| progress.is_some_and(|done| done.is_done(Position::new(*at)));
        let done = std::mem::take(&mut self.done_in_this_life);
        let uncommitted = done.into_iter().filter(|at| !is_done(at)).count() as u64;
        self.max_uncommitted = self.max_uncommitted.max(uncommitted);
    }
}

#[test]
fn nothing_is_lost_and_little_repeated_however_often_it_is_killed() {
    if env::var_os(CHILD).is_some() {
        return;
    }
    let kills: u64 = env::var(KILLS).map_or(8, |kills| kills.parse().unwrap());
    let records = kills * RECORDS_A_LIFE;
    let (_folder, path) = place();
    let journal = Journal::open(&path).unwrap();
    let mut dice = Dice(kills);
    let keys: Vec<_> = (0..records).map(|_| dice.roll_skewed(KEYS)).collect();
    let all: Vec<_> = (0..).zip(&keys).map(|(number, key)| keyed(key, number)).collect();
    for some in all.chunks(5_000) {
        journal.append_all(some).unwrap();
    }
    drop(journal);

    let key_of = |position: u64| keys[position as usize];
    let mut ledger = Ledger::default();
    let mut last_of_key = HashMap::new();
    for position in 0..records {
        if let Some(before) = last_of_key.insert(key_of(position), position) {
            ledger.before.insert(position, before);
        }
    }
    let mut killed = 0;
    while !ledger.ended {
        let mut child = child(&path);
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        // Killed after a random number of lines, wherever it is then.
        let lives_for = if killed < kills { dice.roll(4 * RECORDS_A_LIFE) } else { u64::MAX };
        let mut said = 0;
        for line in lines {
            ledger.note(&line.unwrap(), key_of);
            said += 1;
            if said == lives_for {
                child.kill().unwrap();
                killed += 1;
            }
        }
        let status = child.wait().unwrap();
        assert!(!status.success() || ledger.ended, "it gave up by itself");
        let journal = Journal::open(&path).unwrap();
        ledger.dies(journal.committed("group").unwrap().as_ref());
    }
    assert_eq!(ledger.done.len() as u64, records, "something was lost");
    let (repeated, uncommitted) = (ledger.repeated, ledger.max_uncommitted);
    assert!(uncommitted <= MAX_REPEATED, "{uncommitted} were to be done again");
    assert!(repeated <= killed * MAX_REPEATED);
    let journal = Journal::open(&path).unwrap();
    let progress = journal.committed("group").unwrap().unwrap();
    assert_eq!(progress.watermark(), Position::new(records));
    println!(
        "killed {killed} times: {records} records, {} attempts, 0 lost, 0 out of order, {repeated} \
         done again, at most {uncommitted} because of one kill (bound: {MAX_REPEATED})",
        ledger.attempts
    );
}
