//! G3 and G4: a consumer is killed at random, again and again. Nothing is lost, order is never broken, and
//! what is done twice stays within its bound.

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

/// Where the child finds its journal. Only a child has it.
const CHILD: &str = "KEYLANE_JOURNAL_OF_CONSUMER";
/// How often the child is killed, if not as often as usual.
const KILLS: &str = "KEYLANE_KILLS";

const KEYS: u64 = 40;
/// How many records there are for each kill.
const RECORDS_A_LIFE: u64 = 400;

const COMMIT_AFTER: u64 = 50;
const MOST_INCOMPLETE: u64 = 100;
/// What is done since the last commit: what makes one due, and what can end while it is made.
const MOST_REPEATED: u64 = COMMIT_AFTER + 2 * MOST_INCOMPLETE;

fn child(path: &Path) -> Child {
    Command::new(env::current_exe().unwrap())
        .args(["--exact", "consumer_crash::handles_until_it_is_killed", "--nocapture"])
        .env(CHILD, path)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Not a test of its own: what the child does, in this same program.
#[test]
fn handles_until_it_is_killed() {
    let Some(path) = env::var_os(CHILD) else { return };
    // With one processor the harness has begun a line.
    println!();
    let journal = Journal::open(path).unwrap();
    let source = JournalSource::new(journal, "group").to_the_end();
    let consumer = Consumer::builder(source)
        .threads(8)
        .commit(Duration::from_secs(3600), COMMIT_AFTER)
        .max_in_flight(MOST_INCOMPLETE as usize, usize::MAX)
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

/// One write for a line, so that none is cut in two by another thread.
fn say(line: std::fmt::Arguments<'_>) {
    let mut line = line.to_string();
    line.push('\n');
    let mut out = std::io::stdout().lock();
    out.write_all(line.as_bytes()).and_then(|()| out.flush()).unwrap();
}

/// What was seen of all lives.
#[derive(Default)]
struct Ledger {
    /// For each position the one before it of its key.
    before: HashMap<u64, u64>,
    /// How often each position was done.
    done: HashMap<u64, u32>,
    /// Per key: what runs in this life, and the last that was done in it.
    running: HashMap<u64, u64>,
    last: HashMap<u64, u64>,
    done_in_this_life: HashSet<u64>,
    /// How often something was done again, and how much was done in a life and not committed in it.
    repeated: u64,
    most_uncommitted: u64,
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
                // The one before it has been done, in this life or in an earlier one, and so have all.
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

    /// A life has ended, with this committed.
    fn dies(&mut self, progress: Option<&Progress>) {
        self.running.clear();
        self.last.clear();
        let is_done = |at: &u64| progress.is_some_and(|done| done.is_done(Position::new(*at)));
        let done = std::mem::take(&mut self.done_in_this_life);
        let uncommitted = done.into_iter().filter(|at| !is_done(at)).count() as u64;
        self.most_uncommitted = self.most_uncommitted.max(uncommitted);
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
        // It is killed when it has said so much, wherever it is then.
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
    let (repeated, uncommitted) = (ledger.repeated, ledger.most_uncommitted);
    assert!(uncommitted <= MOST_REPEATED, "{uncommitted} were to be done again");
    assert!(repeated <= killed * MOST_REPEATED);
    let journal = Journal::open(&path).unwrap();
    let progress = journal.committed("group").unwrap().unwrap();
    assert_eq!(progress.watermark(), Position::new(records));
    println!(
        "killed {killed} times: {records} records, {} attempts, 0 lost, 0 out of order, {repeated} \
         done again, at most {uncommitted} because of one kill (bound: {MOST_REPEATED})",
        ledger.attempts
    );
}
