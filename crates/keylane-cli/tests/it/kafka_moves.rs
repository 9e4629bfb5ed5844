//! C1 with the real command and a real broker: a handler of a partition that moves has ended before
//! the next owner begins the same records, and a member that loses a partition ends its handlers at
//! once.
use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, ErrorKind, Read as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::children::family::Family;
use crate::common::{feed, subcommand};
use keylane_testkit::{Broker, or_skip};

/// How long a test waits for what must come.
const PATIENCE: Duration = Duration::from_secs(180);

/// Keys of the records, one each.
const KEYS: usize = 8;

fn broker() -> Option<Broker> {
    let settings = [("auto.create.topics.enable", "true"), ("num.partitions", "2")];
    or_skip(Broker::start_with(&settings))
}

/// Makes a topic with a record of each key, and returns its address.
fn topic(broker: &Broker, name: &str) -> String {
    let topic = format!("kafka://{}/{name}", broker.address());
    let lines: String = (0..KEYS).map(|key| format!("k{key}\n")).collect();
    let produced = feed(subcommand("produce", [&topic, "--key", "1"]), lines.as_bytes());
    produced.expect(0, &[&format!("{KEYS} records are in")]);
    topic
}

/// A member. It is killed when a test fails.
struct Member(Child);

impl Member {
    fn start(topic: &str, words: &[&str]) -> Self {
        // A group of its own for each topic: none has members of another protocol.
        let usual = ["--group", topic, "--key", "1", "-j", "8", "--commit-interval", "100ms"];
        let words = [&[topic], &usual[..], words].concat();
        Member(
            subcommand("consume", words)
                .stdin(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap(),
        )
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).unwrap();
    }

    /// Waits until it has ended, and returns its exit code.
    fn ends(&mut self) -> Option<i32> {
        until("it ends", || self.0.try_wait().unwrap()).code()
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        // Both fail if it has been waited for.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
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

/// A command or worker that reads a key, has a lock of that key while it or a child of it runs, takes
/// no notice of SIGTERM, and says the key and its number. A lock that is taken leaves a file `overlap`.
fn deaf_script(family: &Family) -> String {
    let script = "trap '' TERM; read -r key; exec 8>DIR/alive 9>>DIR/lock-$key; \
                  flock -n 9 || echo $key >> DIR/overlap; sleep infinity & \
                  echo $key $$ > DIR/begun; wait; wait";
    script.replace("DIR", family.folder().to_str().unwrap())
}

/// The key and the process number of the next handler that has begun.
fn next(family: &Family) -> (String, u32) {
    let line = family.next();
    let (key, number) = line.split_once(' ').unwrap();
    (key.to_owned(), number.parse().unwrap())
}

#[test]
fn a_partition_moves_when_its_commands_have_ended() {
    let Some(broker) = broker() else { return };
    // Each key needs a worker of its own: a worker never ends its first record.
    let workers = &["--worker", "--worker-keys", "any"][..];
    for (protocol, handler) in [("cooperative", &["--payload=stdin"][..]), ("broker", workers)] {
        let mut family = Family::new();
        let topic = topic(&broker, &format!("moves-{protocol}"));
        let script = deaf_script(&family);
        let words = ["--protocol", protocol, "--shutdown-timeout", "1s"];
        let words = [&words[..], handler, &["--", "sh", "-c", &script]].concat();
        let mut first = Member::start(&topic, &words);
        let mut begun: HashMap<String, u32> = HashMap::new();
        let mut see = |count: &dyn Fn(&HashMap<String, u32>) -> bool| {
            while !count(&begun) {
                *begun.entry(next(&family).0).or_default() += 1;
            }
        };
        see(&|begun| begun.len() == KEYS);
        // A rebalance gives one of two partitions to the second member, an orderly end the other one.
        let mut second = Member::start(&topic, &words);
        see(&|begun| begun.values().any(|times| *times == 2));
        first.signal(Signal::TERM);
        see(&|begun| begun.len() == KEYS && begun.values().all(|times| *times >= 2));
        assert_eq!(first.ends(), Some(143));
        family.assert_no_overlap();
        second.signal(Signal::TERM);
        assert_eq!(second.ends(), Some(143));
        family.wait_until_gone();
    }
}

/// Waits until a process has ended.
fn until_gone(number: u32) {
    let process = format!("/proc/{number}");
    until("the command ends", || (!Path::new(&process).exists()).then_some(()));
}

#[test]
fn commands_of_a_lost_partition_are_killed_at_once() {
    let Some(broker) = broker() else { return };
    let mut family = Family::new();
    let topic = topic(&broker, "lost");
    let script = deaf_script(&family);
    let words = ["--shutdown-timeout", "280s", "-X", "session.timeout.ms=3000"];
    let words = [&words[..], &["--payload", "stdin", "--", "sh", "-c", &script]].concat();
    let first = Member::start(&topic, &words);
    let begun: Vec<_> = (0..KEYS).map(|_| next(&family)).collect();
    // The group removes a member that does not run. Its commands run meanwhile.
    first.signal(Signal::STOP);
    let second = Member::start(&topic, &words);
    (0..KEYS).for_each(|_| drop(next(&family)));
    first.signal(Signal::CONT);
    begun.iter().for_each(|(_, number)| until_gone(*number));
    drop((first, second));
    family.wait_until_gone();
}

#[test]
fn a_member_whose_name_is_taken_kills_its_commands() {
    let Some(broker) = broker() else { return };
    let mut family = Family::new();
    let topic = topic(&broker, "taken");
    let script = deaf_script(&family);
    let words = ["--group-instance-id", "one", "--shutdown-timeout", "280s"];
    let words = [&words[..], &["--payload", "stdin", "--", "sh", "-c", &script]].concat();
    let mut first = Member::start(&topic, &words);
    let begun: Vec<_> = (0..KEYS).map(|_| next(&family)).collect();
    let second = Member::start(&topic, &words);
    assert_eq!(first.ends(), Some(255));
    // It has waited for them, and nothing ends them later.
    for (_, number) in begun {
        assert!(!Path::new(&format!("/proc/{number}")).exists(), "the command {number} runs");
    }
    drop(second);
    family.wait_until_gone();
}

#[test]
fn commands_of_a_killed_member_end_before_its_session() {
    let Some(broker) = broker() else { return };
    let mut family = Family::new();
    let topic = topic(&broker, "killed");
    let script = deaf_script(&family);
    let session = ["-X", "session.timeout.ms=3000", "-X", "heartbeat.interval.ms=500"];
    let words = ["--payload", "stdin", "--", "sh", "-c", &script];
    let start = || Member::start(&topic, &[&session[..], &words].concat());
    let first = start();
    (0..KEYS).for_each(|_| drop(next(&family)));
    let second = start();
    first.signal(Signal::KILL);
    // It has all partitions now, with all records.
    (0..KEYS).for_each(|_| drop(next(&family)));
    family.assert_no_overlap();
    drop((first, second));
    family.wait_until_gone();
}

/// A service that answers no request, and knows which are open.
struct Service {
    address: String,
    /// The body of each request.
    requests: mpsc::Receiver<String>,
    /// Bodies of requests that came while one with the same body was open.
    overlaps: Arc<Mutex<Vec<String>>>,
}

impl Service {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let (tell, requests) = mpsc::channel();
        let overlaps = Arc::new(Mutex::new(Vec::new()));
        let (found, open) = (overlaps.clone(), Arc::new(Mutex::new(HashMap::new())));
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (tell, found, open) = (tell.clone(), found.clone(), open.clone());
                thread::spawn(move || {
                    let body = body_of(&stream);
                    let before = open.lock().unwrap().insert(body.clone(), stream);
                    if before.is_some_and(|before| is_open(&before)) {
                        found.lock().unwrap().push(body.clone());
                    }
                    let _ = tell.send(body);
                });
            }
        });
        Service { address, requests, overlaps }
    }

    fn next(&self) -> String {
        self.requests.recv_timeout(PATIENCE).expect("no request has come")
    }
}

/// Reads a request, and returns its body.
fn body_of(stream: &TcpStream) -> String {
    let mut reader = BufReader::new(stream);
    let mut length = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        let line = line.trim().to_ascii_lowercase();
        if let Some(value) = line.strip_prefix("content-length: ") {
            length = value.parse().unwrap();
        }
        if line.is_empty() {
            break;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    String::from_utf8(body).unwrap()
}

/// Whether the client has not closed a connection.
fn is_open(stream: &TcpStream) -> bool {
    stream.set_nonblocking(true).unwrap();
    match stream.peek(&mut [0]) {
        Ok(0) => false,
        Err(error) => error.kind() == ErrorKind::WouldBlock,
        Ok(_) => true,
    }
}

#[test]
fn a_partition_moves_when_its_requests_are_dropped() {
    let Some(broker) = broker() else { return };
    let topic = topic(&broker, "requests");
    let service = Service::start();
    for batch in [&[][..], &["--batch", "2", "--linger", "0s"]] {
        let group = format!("g{}", batch.len());
        let words = ["--group", &group, "--shutdown-timeout", "1s", "--http-timeout", "1h"];
        let words = [&words[..], batch, &["--http", &service.address]].concat();
        let start = || {
            let words = [&[&*topic, "--key", "1", "-j", "8"], &words[..]].concat();
            let mut process = subcommand("consume", words);
            Member(process.stdin(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
        };
        let first = start();
        (0..KEYS).for_each(|_| drop(service.next()));
        let second = start();
        service.next();
        drop((first, second));
    }
    assert!(service.overlaps.lock().unwrap().is_empty(), "requests ran beside others");
}
