//! G3, G4, G9, G10 and G13 with the real command and a real broker: `keylane consume` and the broker are killed at random,
//! and consumers are asked to end in the middle of their work. Nothing is lost, order is never broken, what is
//! done twice stays within its bound, and after an orderly end nothing is.
//!
//! `KEYLANE_KILLS=500` kills as often, and `KEYLANE_STOPS=100` stops as often.
use std::collections::{HashMap, HashSet};
use std::env;
use std::fmt;
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

use crate::common::{feed, named_pipe, subcommand};
use keylane_testkit::{Broker, or_skip};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// How long a test waits for what must come.
const PATIENCE: Duration = Duration::from_secs(180);

/// How often consumers are killed, if not as often as usual.
const KILLS: &str = "KEYLANE_KILLS";

const PARTITIONS: u64 = 3;
const KEYS: u64 = 40;
/// How many consumers there are at a time.
const MEMBERS: usize = 3;
/// How many records there are for each kill, and about how many bytes of the log come of one.
const RECORDS_A_LIFE: u64 = 200;
const BYTES_A_RECORD: u64 = 36;
const COMMIT_AFTER: u64 = 10;
const MAX_RECORDS: u64 = 20;
/// What a member that is killed has done and not stored, of each partition: what makes a commit due, and what
/// can end before it is stored; all of that in the worst case.
const MAX_REPEATED: u64 = PARTITIONS * (COMMIT_AFTER + 2 * MAX_RECORDS);

/// Writes what it begins and ends into the log, a line each, with its consumer's name; and whether another worker
/// is busy with the key.
const WORKER: &str = "while read -r key number; do
    exec 9>>\"$LOG-$key\"
    flock -n 9 || echo \"beside $NAME $key $number\" >> \"$LOG\"
    echo \"begin $NAME $key $number\" >> \"$LOG\"
    echo \"end $NAME $key $number\" >> \"$LOG\"
    exec 9>&-
    echo ok
done";

fn times(variable: &str, usual: u64) -> u64 {
    env::var(variable).map_or(usual, |times| times.parse().expect("it is a number"))
}

fn until<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(Instant::now() < deadline, "it never came about that {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// A generator of numbers that only spread things. Source: S. Vigna's splitmix64.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % below
    }

    /// Small numbers are frequent, as in Zipf's law with exponent 1.
    fn roll_skewed(&mut self, below: u64) -> u64 {
        let share = self.roll(1 << 20) as f64 / f64::from(1 << 20);
        ((below as f64).powf(share) - 1.0) as u64
    }
}

/// A topic with records, each of which is its key and its number among those of the key; and a log of what was
/// done with them.
struct Stage {
    topic: String,
    folder: TempDir,
    dice: Dice,
    /// How many records of each key there are.
    written: HashMap<u64, u64>,
    /// Names of consumers are told apart by it.
    lives: usize,
}

impl Stage {
    fn new(brokers: &str, topic: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("log"), "").unwrap();
        let topic = format!("kafka://{brokers}/{topic}");
        Stage { topic, folder, dice: Dice(1), written: HashMap::new(), lives: 0 }
    }

    /// Writes `count` records, and waits until the broker has them.
    fn write(&mut self, records: u64) {
        let mut lines = String::new();
        for _ in 0..records {
            let key = self.dice.roll_skewed(KEYS);
            let number = self.written.entry(key).or_default();
            *number += 1;
            lines += &format!("k{key} {number}\n");
        }
        let produced = feed(subcommand("produce", [&self.topic, "--key", "1"]), lines.as_bytes());
        produced.expect(0, &[&format!("{records} records are in")]);
    }

    /// Starts a consumer, perhaps as a member that comes back under its name.
    fn consume(&mut self, member: Option<usize>) -> Member {
        let member = member.map(|number| format!("member-{number}"));
        let (after, most) = (COMMIT_AFTER.to_string(), MAX_RECORDS.to_string());
        let member = member.iter().flat_map(|member| ["--group-instance-id", member]);
        let words = [&self.topic, "--group", "g", "--key", "1", "-j", "4", "--env", "*"]
            .into_iter()
            .chain(member);
        // A member that was away for a moment should look again soon.
        let client = ["-X", "reconnect.backoff.max.ms=500"];
        let bounds = ["--commit-batch-size", &after, "--max-in-flight", &most, "--worker"];
        let words = words.chain(client).chain(bounds).chain(["--", "sh", "-c", WORKER]);
        self.lives += 1;
        let name = format!("life-{}", self.lives);
        let process = subcommand("consume", words)
            .env("NAME", &name)
            .env("LOG", self.log())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Member { name, process }
    }

    fn log(&self) -> PathBuf {
        self.folder.path().join("log")
    }

    /// Writes records, and waits until some of them, or of those before, have been handled.
    fn write_and_see_some(&mut self, records: u64) {
        let before = self.log().metadata().unwrap().len();
        self.write(records);
        let more = self.dice.roll(records * BYTES_A_RECORD);
        until("records are handled", || {
            (self.log().metadata().unwrap().len() >= before + more).then_some(())
        });
    }

    /// Waits until all is done and stored, and returns what has happened until then.
    fn wait_for_all(&self) -> Ledger {
        let records = self.written.values().sum::<u64>();
        until("all is done and stored", || (self.committed() == Some(records)).then_some(()));
        let ledger = Ledger::read(&self.log());
        assert_eq!(ledger.last, self.written, "records are missing");
        assert!(ledger.beside.is_empty(), "ran beside others of their keys: {:?}", ledger.beside);
        ledger
    }

    /// How many records are done, by what is stored; none if the brokers were too slow to say.
    fn committed(&self) -> Option<u64> {
        let lag = feed(subcommand("lag", [&self.topic, "--group", "g", "--json"]), b"");
        if lag.code != 0 {
            return None;
        }
        let committed = lag.stdout.split("\"committed\":").skip(1).map(|rest| {
            let digits = rest.split(|c: char| !c.is_ascii_digit()).next().unwrap();
            digits.parse::<u64>().unwrap()
        });
        Some(committed.sum())
    }
}

/// A consumer, and what it is called in the log.
struct Member {
    name: String,
    process: Child,
}

impl Member {
    /// `kill -9`.
    fn kill(mut self) -> String {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
        std::mem::take(&mut self.name)
    }

    /// Asks it to end, and waits until it has.
    fn end(mut self) {
        kill_process(Pid::from_child(&self.process), Signal::TERM).unwrap();
        let status = until("it ends", || self.process.try_wait().unwrap());
        assert_eq!(status.code(), Some(143), "{} ended with {status}", self.name);
    }
}

impl Drop for Member {
    /// A test that fails leaves no process that reads on and holds the broker's partitions.
    fn drop(&mut self) {
        // Both fail if it has been waited for; then it is gone already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// What the log says.
#[derive(Default)]
struct Ledger {
    begun: u64,
    ended: u64,
    /// Of each key the highest that has ended.
    last: HashMap<u64, u64>,
    /// How often a record ended that had ended before.
    repeated: u64,
    /// By whom, of each key, one was begun that has not ended.
    running: HashMap<u64, (String, u64)>,
    /// Records that began when another of their key had begun and not ended, with the process of that one.
    overlaps: Vec<(String, String)>,
    /// Lines of workers that began while another worker was busy with the key.
    beside: Vec<String>,
}

impl Ledger {
    /// Reads it, and checks that each record was begun after the one before it of its key had ended.
    fn read(log: &Path) -> Self {
        let text = fs::read_to_string(log).unwrap();
        // The last line may be on its way.
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        let mut ledger = Ledger::default();
        for line in whole.lines() {
            let words: Vec<_> = line.split(' ').collect();
            let [what, name, key, number] = words[..] else { panic!("{line:?} is no line of it") };
            let (key, number) = (key[1..].parse().unwrap(), number.parse().unwrap());
            match what {
                "begin" => ledger.begins(name, key, number),
                "end" => ledger.ends(name, key, number),
                "beside" => ledger.beside.push(line.to_owned()),
                _ => panic!("{line:?} is no line of it"),
            }
        }
        ledger
    }

    fn begins(&mut self, name: &str, key: u64, number: u64) {
        self.begun += 1;
        let last = self.last.get(&key).copied().unwrap_or(0);
        assert!(number <= last + 1, "{name} began {number} of {key} after {last}");
        if let Some((other, _)) = self.running.insert(key, (name.to_owned(), number)) {
            self.overlaps.push((name.to_owned(), other));
        }
    }

    fn ends(&mut self, name: &str, key: u64, number: u64) {
        self.ended += 1;
        let last = self.last.entry(key).or_default();
        self.repeated += u64::from(number <= *last);
        *last = number.max(*last);
        if self.running.get(&key).is_some_and(|running| *running == (name.to_owned(), number)) {
            self.running.remove(&key);
        }
    }
}

impl fmt::Display for Ledger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Ledger { begun, ended, repeated, overlaps, .. } = self;
        write!(
            f,
            "{begun} begun, {ended} ended, 0 lost, 0 out of order, 0 beside others, {repeated} done again, \
             {} of them after one that a kill ended",
            overlaps.len()
        )
    }
}

/// The broker that tests share which do it no harm. It ends with the process.
fn shared() -> Option<String> {
    static BROKER: OnceLock<Option<Broker>> = OnceLock::new();
    BROKER.get_or_init(broker).as_ref().map(Broker::address)
}

fn broker() -> Option<Broker> {
    let partitions = PARTITIONS.to_string();
    let settings = [("auto.create.topics.enable", "true"), ("num.partitions", &*partitions)];
    or_skip(Broker::start_with(&settings))
}

#[test]
fn g3_g4_consumers_are_killed_and_nothing_is_lost_and_little_repeated() {
    let Some(brokers) = shared() else { return };
    let kills = times(KILLS, 20);
    let mut stage = Stage::new(&brokers, "killed");
    stage.write(RECORDS_A_LIFE);
    let mut members: Vec<_> = (0..MEMBERS).map(|number| stage.consume(Some(number))).collect();
    let mut killed = HashSet::new();
    for _ in 0..kills {
        stage.write_and_see_some(RECORDS_A_LIFE);
        // One that is back at once gets its partitions back; the group need not wait for a session to end.
        let one = stage.dice.roll(MEMBERS as u64) as usize;
        killed.insert(members.remove(one).kill());
        members.insert(one, stage.consume(Some(one)));
    }
    let ledger = stage.wait_for_all();
    println!("{kills} kills of consumers: {ledger}; bound: {}", kills * MAX_REPEATED);
    assert!(ledger.repeated <= kills * MAX_REPEATED, "{ledger}");
    for (one, other) in &ledger.overlaps {
        assert!(killed.contains(one) || killed.contains(other), "{one} overlaps {other}");
    }
    members.into_iter().for_each(Member::end);
}

#[test]
fn g3_g9_the_broker_is_killed_and_nothing_is_lost() {
    let Some(mut broker) = broker() else { return };
    let kills = times(KILLS, 20).div_ceil(20);
    let mut stage = Stage::new(&broker.address(), "broker-killed");
    stage.write(RECORDS_A_LIFE);
    let mut members: Vec<_> = (0..MEMBERS).map(|number| stage.consume(Some(number))).collect();
    for kill in 0..kills {
        stage.write_and_see_some(RECORDS_A_LIFE);
        broker.kill();
        broker.restart();
        stage.write_and_see_some(RECORDS_A_LIFE);
        let one = kill as usize % MEMBERS;
        members.remove(one).kill();
        members.insert(one, stage.consume(Some(one)));
    }
    let ledger = stage.wait_for_all();
    println!("{kills} kills of the broker, and as many of consumers: {ledger}");
    members.into_iter().for_each(Member::end);
}

#[test]
fn g10_a_consumer_that_is_asked_to_end_under_load_repeats_nothing() {
    let Some(brokers) = shared() else { return };
    let stops = times("KEYLANE_STOPS", 8);
    let mut stage = Stage::new(&brokers, "stopped");
    for _ in 0..stops {
        let member = stage.consume(None);
        stage.write_and_see_some(RECORDS_A_LIFE);
        member.end();
    }
    let last = stage.consume(None);
    let ledger = stage.wait_for_all();
    last.end();
    println!("{stops} orderly ends: {ledger}");
    assert_eq!((ledger.repeated, &ledger.overlaps[..]), (0, &[][..]));
}

/// Asks for a page, and returns its status and body.
fn get(address: &str, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let status = text.split(' ').nth(1).unwrap().parse().unwrap();
    let body = text.split_once("\r\n\r\n").unwrap().1.to_owned();
    (status, body)
}

#[test]
fn g13_a_wedged_partition_turns_the_health_red_until_it_goes_on() {
    let Some(brokers) = shared() else { return };
    let stage = Stage::new(&brokers, "wedged");
    let produced = feed(subcommand("produce", [&stage.topic, "--key", "1"]), b"a 1\nwedge 1\n");
    produced.expect(0, &["2 records are in"]);
    let pipe = stage.folder.path().join("pipe");
    named_pipe(&pipe);
    let words = [
        &stage.topic,
        "--group",
        "g",
        "--key",
        "1",
        "-j",
        "4",
        "--env",
        "*",
        "--stall-timeout",
        "300ms",
    ];
    let handler = "case $1 in wedge*) read word < \"$PIPE\" ;; esac";
    let process = subcommand("consume", words)
        .args(["--listen", "127.0.0.1:0", "--", "sh", "-c", handler, "sh"])
        .env("PIPE", &pipe)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let mut member = Member { name: "it".to_owned(), process };
    let mut stderr = BufReader::new(member.process.stderr.take().unwrap()).lines();
    let listens = stderr.find_map(|line| Some(line.unwrap().split_once("http://")?.1.to_owned()));
    let address = listens.unwrap().trim().to_owned();
    // What else it says is read, so that it never waits for that.
    let rest = thread::spawn(move || stderr.map_while(Result::ok).for_each(drop));

    let (_, why) = until("the health is red", || {
        let answer = get(&address, "/healthz");
        // If it was too slow to say why, it is asked again.
        (answer.0 == 503 && answer.1.contains("wedged[")).then_some(answer)
    });
    assert!(why.contains("has made no progress for"), "{why}");
    assert_eq!(why.lines().count(), 1, "the other partitions have nothing to do: {why}");
    File::options().write(true).open(&pipe).unwrap().write_all(b"go\n").unwrap();
    until("the health is good again", || (get(&address, "/healthz").0 == 200).then_some(()));
    member.end();
    rest.join().unwrap();
    until("both are stored", || (stage.committed() == Some(2)).then_some(()));
}
