//! Other consumers, in processes of their own, that run the workload `capture` on the same broker.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use crate::stage::{Stage, Took};

/// A consumer that runs the workload when it is told to. `bench-compare/java/StreamRun.java` has the protocol.
pub(crate) struct Peer {
    pub(crate) name: String,
    process: Child,
    orders: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Peer {
    /// Starts the peers of the arguments `--peer=NAME=COMMAND`. The words of the command are separated by spaces.
    pub(crate) fn start_all(stage: &Stage, topic: &str, records: u64, keys: u64) -> Vec<Peer> {
        let named = std::env::args().filter_map(|word| {
            let (name, command) = word.strip_prefix("--peer=")?.split_once('=')?;
            Some((name.to_owned(), command.to_owned()))
        });
        named
            .map(|(name, command)| {
                let mut words = command.split(' ');
                let mut process = Command::new(words.next().expect("there is a first word"))
                    .args(words)
                    .args([&stage.brokers, topic, &records.to_string(), &keys.to_string()])
                    .stdin(Stdio::piped())
                    .stdout(Stdio::piped())
                    .spawn()
                    .unwrap_or_else(|error| panic!("{name} cannot be started: {error}"));
                let orders = process.stdin.take();
                let answers = BufReader::new(process.stdout.take().expect("it is piped"));
                Peer { name, process, orders, answers }
            })
            .collect()
    }

    /// Measures a run.
    pub(crate) fn run(&mut self, stage: &Stage, park: Duration, at_a_time: u32) -> Took {
        let orders = self.orders.as_mut().expect("it is open until the drop");
        writeln!(orders, "{} {} {at_a_time}", stage.new_group(), park.as_micros()).unwrap();
        let mut answer = String::new();
        self.answers.read_line(&mut answer).unwrap();
        let mut times =
            answer.split_whitespace().map(|nanos| Duration::from_nanos(nanos.parse().unwrap()));
        let mut next = || times.next().unwrap_or_else(|| panic!("{} has failed", self.name));
        let work = next();
        Took { work, all: next(), least: Duration::ZERO }
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // The end of its input ends it.
        self.orders = None;
        _ = self.process.wait();
    }
}
