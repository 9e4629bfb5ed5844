//! Consumers in their own processes, on a real broker: they join, leave, are killed, and are
//! suspended until the group has removed them. Order holds per key, nothing is lost, and late
//! actions of a removed member have no effect.
//!
//! All processes append starts and ends to one file. The system orders the appends, so the file has
//! the order of the events.

use std::collections::{HashMap, HashSet};
use std::env;
use std::fs::{self, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use crate::kafka_support::{committed, create_topic, fleeting, settings, until, write};
use keylane_stream::consumer::{Attempt, AttemptFailure, Consumer, ConsumerEvent};
use keylane_stream::kafka::{KafkaSettings, KafkaSource, RebalanceProtocol};
use keylane_testkit::{Broker, or_skip};
use rustix::process::{Pid, Signal, kill_process};

const PARTITIONS: i32 = 6;
const KEYS: u64 = 20;
const TOPIC: &str = "orders";

/// Variables of a child. Set only for children.
const BROKERS: &str = "KEYLANE_TEST_BROKERS";
const GROUP: &str = "KEYLANE_TEST_GROUP";
const LOG: &str = "KEYLANE_TEST_LOG";
const NAME: &str = "KEYLANE_TEST_NAME";

/// A consumer in its own process.
struct Member {
    name: &'static str,
    process: Child,
}

impl Member {
    fn start(brokers: &str, group: &str, log: &Path, name: &'static str) -> Self {
        let process = Command::new(env::current_exe().expect("a test has a path"))
            .args(["--exact", "kafka_processes::is_a_member_until_its_input_ends", "--nocapture"])
            .env(BROKERS, brokers)
            .env(GROUP, group)
            .env(LOG, log)
            .env(NAME, name)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .expect("a test can start itself");
        Member { name, process }
    }

    fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.process.id()).ok().and_then(Pid::from_raw);
        kill_process(pid.expect("it has an id"), signal).expect("it is ours, and not reaped");
    }

    /// Stops the process, and waits until it has left the group.
    fn leave(mut self) {
        drop(self.process.stdin.take());
        let status = self.process.wait().expect("it is ours");
        assert!(status.success(), "{} ended with {status}", self.name);
    }

    /// Kills the process with `kill -9`.
    fn kill(mut self) {
        self.process.kill().expect("it is ours");
        self.process.wait().expect("it is ours");
    }
}

/// Body of a child process, not a test of its own.
#[test]
fn is_a_member_until_its_input_ends() {
    let Ok(brokers) = env::var(BROKERS) else { return };
    let of = |name| env::var(name).expect("a child has all of them");
    let (group, name) = (of(GROUP), of(NAME));
    let log = OpenOptions::new().append(true).open(of(LOG)).expect("the parent has made it");
    let say = move |what: &str| {
        let line = format!("{what}\n");
        // One write, so that the line stays whole.
        (&log).write_all(line.as_bytes()).expect("the log takes it");
    };
    let settings = settings_of(&brokers, &group, &name);
    let consumer = Consumer::builder(KafkaSource::join(settings).expect("the settings are right"))
        .threads(8)
        .commit(Duration::from_millis(100), 50)
        .shutdown_timeout(Duration::from_secs(20))
        .on_event({
            let (name, log) = (name.clone(), of(LOG));
            move |notice| note(&name, &log, notice)
        })
        .start({
            let name = name.clone();
            move |attempt: &Attempt| {
                let place = format!("{} {}", attempt.partition().number(), attempt.position());
                let key = String::from_utf8_lossy(attempt.key().unwrap_or_default()).into_owned();
                say(&format!("begin {name} {place} {key}"));
                thread::sleep(Duration::from_micros(attempt.position().get() * 37 % 3_000));
                say(&format!("end {name} {place} {key}"));
                Ok::<_, AttemptFailure>(())
            }
        })
        .expect("it starts");
    // Until the parent writes or has ended.
    io::stdin().read_to_end(&mut Vec::new()).expect("it is a pipe");
    let ended = consumer.stop(Duration::from_secs(20));
    note_text(&of(LOG), &format!("left {name} {} fenced", ended.counts.fenced));
}

fn settings_of(brokers: &str, group: &str, name: &str) -> KafkaSettings {
    match (group, name) {
        ("broker-protocol", _) => {
            let client = keylane_stream::kafka::ClientSettings::new(brokers);
            let settings = settings(brokers, TOPIC, group);
            KafkaSettings { protocol: RebalanceProtocol::Broker, client, ..settings }
        }
        // Members that are killed or suspended: the others wait until the group removes them.
        ("killed", "one" | "two") | ("zombie", "zombie") => fleeting(brokers, TOPIC, group),
        _ => settings(brokers, TOPIC, group),
    }
}

fn note(name: &str, log: &str, notice: &ConsumerEvent) {
    // One line for each notice, which names the partitions that move.
    let text = format!("{notice:?}").replace('\n', " ");
    note_text(log, &format!("notice {name} {text}"));
}

fn note_text(log: &str, text: &str) {
    let mut log = OpenOptions::new().append(true).open(log).expect("the parent has made it");
    log.write_all(format!("{text}\n").as_bytes()).expect("the log takes it");
}

/// Start or end of an attempt, in the order of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Step {
    ends: bool,
    member: String,
    partition: u32,
    position: u64,
    key: String,
}

fn steps(log: &Path) -> Vec<Step> {
    let text = fs::read_to_string(log).expect("it is there");
    // The last line may be incomplete.
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    whole.lines().filter_map(step).collect()
}

fn step(line: &str) -> Option<Step> {
    let mut words = line.split(' ');
    let ends = match words.next()? {
        "begin" => false,
        "end" => true,
        _ => return None,
    };
    Some(Step {
        ends,
        member: words.next()?.to_owned(),
        partition: words.next()?.parse().ok()?,
        position: words.next()?.parse().ok()?,
        key: words.next()?.to_owned(),
    })
}

/// A broker with the topic, and records in it.
struct Stage {
    broker: Broker,
    folder: tempfile::TempDir,
    group: &'static str,
    written: u64,
}

impl Stage {
    fn new(group: &'static str) -> Option<Self> {
        // Under its own protocol the broker sets the session timeout: long enough for a busy
        // machine.
        let patient = [("group.consumer.session.timeout.ms", "45000")];
        let broker = or_skip(Broker::start_with(&patient))?;
        create_topic(&broker.address(), TOPIC, PARTITIONS);
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        fs::write(folder.path().join("log"), "").expect("it can be written to");
        Some(Stage { broker, folder, group, written: 0 })
    }

    fn log(&self) -> std::path::PathBuf {
        self.folder.path().join("log")
    }

    fn member(&self, name: &'static str) -> Member {
        Member::start(&self.broker.address(), self.group, &self.log(), name)
    }

    /// Writes `count` records to each partition, with their keys in turn.
    fn write(&mut self, count: u64) {
        let records: Vec<_> = (self.written..self.written + count)
            .map(|number| (format!("k{}", number % KEYS), number.to_string()))
            .collect();
        let records: Vec<_> = records.iter().map(|(key, text)| (&key[..], &text[..])).collect();
        for partition in 0..PARTITIONS {
            write(&self.broker.address(), TOPIC, partition, &records);
        }
        self.written += count;
    }

    /// Writes records until each of these members has begun one from now on.
    fn write_until_busy(&mut self, members: &[&Member]) {
        let from = self.now();
        for member in members {
            until(&format!("{} gets work", member.name), || {
                self.write(40);
                let begun = steps(&self.log()).split_off(from);
                begun.iter().any(|step| step.member == member.name).then_some(())
            });
        }
    }

    /// Returns the number of events.
    fn now(&self) -> usize {
        steps(&self.log()).len()
    }

    fn wait_until_all_is_done(&self) {
        for partition in 0..PARTITIONS {
            until("all is done, and stored", || {
                let (offset, _) = committed(&self.broker.address(), self.group, TOPIC, partition)?;
                (offset as u64 == self.written).then_some(())
            });
        }
    }

    /// Checks the events: every record was handled; none began before the previous one of its key
    /// had ended; and no two of a key ran at the same time, except records of members that are
    /// `gone` for the group and were begun again elsewhere.
    fn check(&self, gone: &[&str]) {
        let all = steps(&self.log());
        let mut ended: HashSet<(u32, u64)> = HashSet::new();
        let mut running: HashMap<(u32, &str), (&str, u64)> = HashMap::new();
        let mut repeated = 0;
        for step in &all {
            let lane = (step.partition, &step.key[..]);
            let this = (&step.member[..], step.position);
            if step.ends {
                repeated += usize::from(!ended.insert((step.partition, step.position)));
                if running.get(&lane) == Some(&this) {
                    running.remove(&lane);
                } else {
                    assert!(gone.contains(&this.0), "{step:?} was begun again meanwhile");
                }
                continue;
            }
            // A removed member may have been suspended since it took the record, and begin it only
            // now.
            let is_late = gone.contains(&this.0) && running.contains_key(&lane);
            if !is_late && let Some((member, position)) = running.insert(lane, this) {
                assert!(gone.contains(&member), "{step:?} overlaps {position} of {member}");
            }
            let before = step.position.checked_sub(KEYS);
            let in_order = before.is_none_or(|before| ended.contains(&(step.partition, before)));
            assert!(in_order, "{step:?} began before the one before it had ended");
        }
        assert_eq!(ended.len() as u64, self.written * PARTITIONS as u64, "records are missing");
        println!("{} steps, {} records, {repeated} handled again", all.len(), ended.len());
        if gone.is_empty() {
            assert_eq!(repeated, 0, "members that leave in good order repeat nothing");
        }
    }

    /// Returns the number of revocations that a member reported.
    fn given_up(&self, name: &str) -> usize {
        let text = fs::read_to_string(self.log()).expect("it is there");
        let begin = format!("notice {name} Released");
        text.lines().filter(|line| line.starts_with(&begin)).count()
    }
}

/// Three members join and leave in order: no record is handled twice, and none of a key at the same
/// time.
fn come_and_go(group: &'static str) {
    let Some(mut stage) = Stage::new(group) else { return };
    stage.write(300);
    let one = stage.member("one");
    stage.write_until_busy(&[&one]);
    let two = stage.member("two");
    stage.write_until_busy(&[&two]);
    let three = stage.member("three");
    stage.write_until_busy(&[&one, &two, &three]);
    one.leave();
    let four = stage.member("four");
    stage.write_until_busy(&[&two, &three, &four]);
    two.leave();
    stage.write(100);
    stage.wait_until_all_is_done();
    three.leave();
    four.leave();
    stage.check(&[]);
}

#[test]
fn g2_g4_members_that_come_and_go_in_good_order_repeat_nothing() {
    come_and_go("cooperative");
}

#[test]
fn g2_g4_members_that_come_and_go_under_the_brokers_own_protocol_repeat_nothing() {
    come_and_go("broker-protocol");
}

#[test]
fn g3_g9_members_and_broker_are_killed_and_nothing_is_lost() {
    let Some(mut stage) = Stage::new("killed") else { return };
    stage.write(400);
    let (one, two, three) = (stage.member("one"), stage.member("two"), stage.member("three"));
    stage.write_until_busy(&[&one, &two, &three]);
    one.kill();
    stage.write_until_busy(&[&two, &three]);
    stage.broker.kill();
    stage.broker.restart();
    stage.write_until_busy(&[&two, &three]);
    two.kill();
    let four = stage.member("four");
    stage.write_until_busy(&[&three, &four]);
    stage.wait_until_all_is_done();
    three.leave();
    four.leave();
    // The broker is unavailable for longer than a session, so the group removes even live members.
    stage.check(&["one", "two", "three"]);
}

#[test]
fn g9_what_a_zombie_does_late_does_not_count() {
    let Some(mut stage) = Stage::new("zombie") else { return };
    stage.write(300);
    let (zombie, other) = (stage.member("zombie"), stage.member("other"));
    stage.write_until_busy(&[&zombie, &other]);
    stage.write(300);
    zombie.signal(Signal::STOP);
    let given_up = stage.given_up("zombie");
    // The group removes the member, and the other one handles all its records.
    stage.wait_until_all_is_done();
    stage.write(100);
    stage.wait_until_all_is_done();
    // It resumes within an attempt, with fetched records, and with progress to commit.
    zombie.signal(Signal::CONT);
    until("it gives up what it had", || (stage.given_up("zombie") > given_up).then_some(()));
    // None of that has moved the committed progress, back or forward.
    stage.wait_until_all_is_done();
    stage.write_until_busy(&[&zombie, &other]);
    stage.wait_until_all_is_done();
    zombie.leave();
    other.leave();
    stage.wait_until_all_is_done();
    stage.check(&["zombie"]);
}
