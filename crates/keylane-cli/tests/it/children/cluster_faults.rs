//! Three servers with one store in PostgreSQL meet one fault after the other: they are killed, suspended, stopped and drained, lose their
//! connections or the answer to a commit, and the database is killed, or replaced by its standby, which is promoted. Their clocks are minutes
//! apart, and messages between them take as long as between machines. The subtasks of a key run in order and one at a time, those of several keys too, and no accepted subtask is lost, whichever
//! server runs it. `KEYLANE_KILLS` says how many faults there are.

use std::fs::{self, OpenOptions};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use keylane_testkit::{Forwarder, PAUSE, PostgresServer, or_skip};
use rustix::process::{Pid, Signal, kill_process};

use super::clients::{Clients, KEYS, run_remote, submit};
use super::cluster_inbox::{KEY, submit_in_transactions};
use super::dice::Dice;
use super::family::{Family, end_by, kill_with_guard};
use super::serve_kills::kills_or;
use super::subtasks::{Faults, Step, configure, judge, judge_overlaps};
use crate::common::served::run_at;
use crate::common::{build_library, subcommand};

/// Seconds by which the clock of each server is wrong.
const SHIFTS: [i32; 3] = [0, 420, -660];

/// Time of a message from one server to another, in each direction.
const LATENCY: Duration = Duration::from_millis(15);

/// Times from one fault to the next one. Another server takes over after five seconds.
const TIMES: [u64; 6] = [100, 300, 1000, 2000, 3000, 8000];

/// Faults, the first six of one server.
const FAULTS: [&str; 12] = [
    "kill",
    "kill-with-guard",
    "suspend",
    "stop",
    "drain",
    "silence",
    "cut",
    "cut-from-others",
    "lose-commit",
    "database",
    "promote",
    "promote-beside",
];

/// A server, and the folder and connections that its successors have too.
struct Node {
    to_database: Forwarder,
    from_others: Arc<Forwarder>,
    shift: i32,
    folder: String,
    running: Option<Running>,
    is_drained: bool,
}

struct Running {
    child: Child,
    life: u64,
    /// Known as soon as it listens.
    address: Arc<Mutex<Option<String>>>,
    is_suspended: bool,
    /// Whether one of its subtasks has begun, so that it has a guard.
    has_begun: bool,
}

impl Drop for Running {
    fn drop(&mut self) {
        // It has ended, unless the test has failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn database_address(to_database: &Forwarder) -> String {
    format!("postgres://keylane@127.0.0.1:{}/postgres?sslmode=disable", to_database.port())
}

impl Node {
    fn start(&mut self, family: &Family, library: &Path, life: u64) {
        let folder = &self.folder;
        let store = format!(
            "store = \"{}\"\ndata_folder = \"{folder}\"\nnode_address = \"{}\"",
            database_address(&self.to_database),
            self.address(),
        );
        configure(family, life, &store);
        // The port of its predecessor can be that of another program.
        self.from_others.lead_to(1);
        let path = family.path(&format!("config-{life}.toml"));
        let log = OpenOptions::new().create(true).append(true).open(self.log()).unwrap();
        let mut command = subcommand("serve", ["--config", path.to_str().unwrap()]);
        command.env("LD_PRELOAD", library).env("KEYLANE_CLOCK_SHIFT", self.shift.to_string());
        let mut child = command.env("TMPDIR", family.folder()).stderr(log).spawn().unwrap();
        let address = Arc::new(Mutex::new(None));
        let (heard, stdout) = (Arc::clone(&address), child.stdout.take().unwrap());
        let from_others = Arc::clone(&self.from_others);
        // It ends with the server.
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if let Some(address) = line.strip_prefix("keylane: listening on http://") {
                    let (_, port) = address.rsplit_once(':').unwrap();
                    from_others.lead_to(port.parse().unwrap());
                    *heard.lock().unwrap() = Some(address.to_owned());
                }
            }
        });
        self.running =
            Some(Running { child, life, address, is_suspended: false, has_begun: false });
    }

    /// The address at which the others reach it.
    fn address(&self) -> String {
        format!("http://127.0.0.1:{}", self.from_others.port())
    }

    fn log(&self) -> String {
        format!("{}-stderr", self.folder)
    }

    fn signal(&self, signal: Signal) {
        let running = self.running.as_ref().unwrap();
        kill_process(Pid::from_child(&running.child), signal).unwrap();
    }

    /// The life and the address of a server that listens.
    fn listening(&self) -> Option<(u64, String)> {
        let running = self.running.as_ref().filter(|running| !running.is_suspended)?;
        let address = running.address.lock().unwrap().clone();
        Some((running.life, address?))
    }
}

struct Cluster {
    database: PostgresServer,
    /// A server that runs beside its standby, which was promoted. Nothing that it writes is acknowledged.
    former: Option<PostgresServer>,
    /// Way of the application to the database.
    to_database: Arc<Forwarder>,
    nodes: Vec<Node>,
    family: Family,
    clients: Arc<Clients>,
    library: PathBuf,
    lives: u64,
    dice: Dice,
    faults: Faults,
    /// Numbers of faults of each name.
    counts: [usize; FAULTS.len()],
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if thread::panicking() {
            for node in &self.nodes {
                let log = fs::read_to_string(node.log()).unwrap_or_default();
                let lines: Vec<_> = log.lines().collect();
                let end = &lines[lines.len().saturating_sub(40)..];
                println!("{}, drained {}:\n{}", node.folder, node.is_drained, end.join("\n"));
            }
        }
    }
}

impl Cluster {
    fn new(database: PostgresServer, to_database: Arc<Forwarder>, clients: Arc<Clients>) -> Self {
        let family = Family::new();
        let library = family.path("shifted_clock.so");
        build_library("tests/data/shifted_clock.c", &library);
        let node = |(at, shift): (usize, i32)| Node {
            to_database: Forwarder::start(database.port()),
            from_others: Arc::new(Forwarder::start_with_latency(1, LATENCY)),
            shift,
            folder: family.path(&format!("node-{at}")).to_str().unwrap().to_owned(),
            running: None,
            is_drained: false,
        };
        let nodes = SHIFTS.into_iter().enumerate().map(node).collect();
        let faults = Faults { several_servers: true, ..Faults::default() };
        let counts = [0; FAULTS.len()];
        let dice = Dice::new(7);
        Cluster {
            database,
            former: None,
            to_database,
            nodes,
            family,
            clients,
            library,
            lives: 0,
            dice,
            faults,
            counts,
        }
    }

    /// Starts servers and ends what earlier faults have left, each with this chance in ten.
    fn restore(&mut self, chance: u64) {
        if self.dice.roll(10) < chance {
            self.former = None;
        }
        for at in 0..self.nodes.len() {
            let restores = self.dice.roll(10) < chance;
            let node = &mut self.nodes[at];
            match &mut node.running {
                Some(running) if running.is_suspended && restores => {
                    running.is_suspended = false;
                    node.signal(Signal::CONT);
                }
                None if restores => {
                    self.lives += 1;
                    node.start(&self.family, &self.library, self.lives);
                }
                _ => {}
            }
            if restores && self.nodes[at].is_drained {
                self.set_drained(at, false);
            }
        }
    }

    /// Drains a server, or ends that, if another server can do it.
    fn set_drained(&mut self, at: usize, is_drained: bool) {
        let Some((_, address)) = self.nodes[at].listening() else { return };
        let word = if is_drained { "drain" } else { "resume" };
        let outcome = run_at(&address, &["nodes", word, &self.nodes[at].address()]);
        if outcome.code == 0 {
            self.nodes[at].is_drained = is_drained;
        }
    }

    /// Makes one fault.
    fn fail(&mut self) {
        let is_well = |node: &Node| node.listening().is_some() && !node.is_drained;
        let well: Vec<_> = (0..self.nodes.len()).filter(|at| is_well(&self.nodes[*at])).collect();
        let fault = self.dice.roll(FAULTS.len() as u64) as usize;
        // One server stays, so that work goes on.
        if well.is_empty() || (well.len() == 1 && fault < 6) {
            return;
        }
        let at = well[self.dice.roll(well.len() as u64) as usize];
        let node = &mut self.nodes[at];
        let running = node.running.as_mut().unwrap();
        let life = running.life;
        match FAULTS[fault] {
            "kill-with-guard" if running.has_begun => {
                kill_with_guard(running.child.id());
                running.child.wait().unwrap();
                node.running = None;
            }
            "kill" | "kill-with-guard" => {
                end_by(&mut running.child, Signal::KILL);
                node.running = None;
            }
            "suspend" => {
                running.is_suspended = true;
                self.faults.cut_off.insert(life);
                node.signal(Signal::STOP);
            }
            "stop" => {
                end_by(&mut running.child, Signal::TERM);
                node.running = None;
            }
            "drain" => self.set_drained(at, true),
            "silence" => node.to_database.silence(),
            "cut" => node.to_database.cut(),
            "cut-from-others" => node.from_others.cut(),
            "lose-commit" => node.to_database.lose_next_commit(),
            "database" => {
                self.database.kill();
                self.database.restart();
            }
            promotion => self.promote(promotion == "promote-beside"),
        }
        self.counts[fault] += 1;
    }

    /// Replaces the database by a standby, which has all that was acknowledged. The former server is killed, or loses the standby and
    /// goes on, and some connections with it.
    fn promote(&mut self, goes_on: bool) {
        let mut standby = self.database.start_synchronous_standby();
        let time = self.dice.roll(1000);
        self.work(Duration::from_millis(time));
        if !goes_on {
            self.database.kill();
        }
        standby.promote();
        let former = std::mem::replace(&mut self.database, standby);
        let port = self.database.port();
        self.to_database.lead_to(port);
        for node in &self.nodes {
            node.to_database.lead_to(port);
        }
        if goes_on {
            self.former = Some(former);
            let all = self.nodes.iter().map(|node| &node.to_database);
            for forwarder in all.chain([&*self.to_database]) {
                if self.dice.roll(2) == 0 {
                    forwarder.cut();
                }
            }
        }
    }

    /// Reads what subtasks say until the time is over.
    fn work(&mut self, time: Duration) {
        let until = Instant::now() + time;
        loop {
            self.look();
            let left = until.saturating_duration_since(Instant::now());
            match self.family.next_within(left.min(Duration::from_millis(50))) {
                Some(line) => self.read(&line),
                None if left.is_zero() => return,
                None => {}
            }
        }
    }

    /// Reads what a subtask says, and sometimes kills its process.
    fn read(&mut self, line: &str) {
        let step = Step::of(line, &self.clients);
        let mut running = self.nodes.iter_mut().filter_map(|node| node.running.as_mut());
        if let Some(running) = running.find(|running| running.life == step.life) {
            running.has_begun = true;
        }
        if !step.has_ended && self.dice.roll(20) == 0 && step.kill(&self.family) {
            let life = step.life;
            self.faults.killed.extend(step.places.into_iter().map(|(key, one)| (key, one, life)));
        }
    }

    /// Tells the clients which servers there are, and starts those again that have ended because they had lost the store.
    fn look(&mut self) {
        for node in &mut self.nodes {
            let Some(running) = &mut node.running else { continue };
            if let Some(status) = running.child.try_wait().unwrap() {
                assert_eq!(status.code(), Some(255), "{}: {status}", node.folder);
                self.lives += 1;
                node.start(&self.family, &self.library, self.lives);
            }
        }
        self.clients.serve(self.nodes.iter().filter_map(Node::listening).collect());
    }

    /// Ends all faults and the submission, and waits until all that was accepted has ended.
    fn finish(&mut self, submitters: [JoinHandle<()>; 2]) {
        self.clients.accept_no_more();
        self.former = None;
        while submitters.iter().any(|submitter| !submitter.is_finished()) {
            self.restore(10);
            self.work(PAUSE);
        }
        for submitter in submitters {
            submitter.join().unwrap();
        }
        while !self.clients.all_ended() {
            let line = self.family.next();
            self.read(&line);
            self.look();
        }
        while self.nodes.iter().any(|node| node.is_drained || node.listening().is_none()) {
            self.work(PAUSE);
            self.restore(10);
        }
    }
}

#[test]
fn servers_that_meet_faults_keep_order_and_lose_nothing() {
    let Some(database) = or_skip(PostgresServer::start()) else { return };
    let clients = Arc::new(Clients::default());
    let to_database = Arc::new(Forwarder::start(database.port()));
    let address = database_address(&to_database);
    let psql = (database.psql(), address);
    let mut cluster = Cluster::new(database, to_database, Arc::clone(&clients));
    let folder = cluster.family.folder().to_owned();
    let with = |work: fn(&Clients, Dice), seed| {
        let clients = Arc::clone(&clients);
        thread::spawn(move || work(&clients, Dice::new(seed)))
    };
    let submitter = with(submit, 4);
    let of_inbox = Arc::clone(&clients);
    let inbox = thread::spawn(move || submit_in_transactions(&of_inbox, psql, Dice::new(5)));
    let of_worker = Arc::clone(&clients);
    let worker = thread::spawn(move || run_remote(&of_worker, &folder));

    cluster.restore(10);
    for _ in 0..kills_or(8) {
        let time = TIMES[cluster.dice.roll(TIMES.len() as u64) as usize];
        cluster.work(Duration::from_millis(time));
        cluster.restore(6);
        cluster.fail();
    }
    cluster.finish([submitter, inbox]);
    clients.check_books();
    clients.stop();
    worker.join().unwrap();
    for node in &mut cluster.nodes {
        end_by(&mut node.running.as_mut().unwrap().child, Signal::TERM);
    }
    cluster.family.wait_until_gone();
    let submitted = clients.submitted();
    assert!(submitted.len() == KEYS as usize + 1 && submitted.contains_key(KEY), "{submitted:?}");
    let (family, faults) = (&cluster.family, &cluster.faults);
    let overlaps = judge_overlaps(family, faults);
    let judged = submitted
        .iter()
        .map(|(key, total)| judge(family, (key, *total), faults, &clients.leased(key)));
    let replaced: usize = judged.sum();
    let counts: Vec<_> = FAULTS.iter().zip(cluster.counts).collect();
    println!(
        "faults: {counts:?}, {} kills of children, {} steps, {overlaps} began beside another one, {replaced} steps were of replaced attempts",
        faults.killed.len(),
        submitted.values().sum::<u64>(),
    );
}
