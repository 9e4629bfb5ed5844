//! `keylane serve` with commands, workers, commands under leases and a remote worker is killed at many moments, with and without its guard, as are
//! its child processes. The subtasks of a key run in order and one at a time, no accepted subtask is lost, and
//! no process of a command is left. All of that is judged by what the subtasks have written. `KEYLANE_KILLS` says how
//! many kills there are. The same with a store in PostgreSQL, where another server takes over after each kill.

use std::collections::{BTreeMap, HashSet};
use std::env;
use std::fs::{self, OpenOptions};
use std::io::{BufRead, BufReader};
use std::process::Child;
use std::sync::Arc;
use std::thread;

use rustix::process::{Pid, Signal, kill_process};

use super::clients::{Clients, KEYS, KINDS, request, run_remote, submit};
use super::dice::Dice;
use super::family::{Family, end_by, kill_with_guard};
use crate::common::subcommand;

/// What each attempt does: it takes the lock of its key, writes when it begins and ends, and takes some milliseconds.
const ACT: &str = r#"
act() {
  flock -n 9 || echo "$key $number $fence" >> DIR/overlap
  echo "begin $number LIFE $fence" >> DIR/log-$key
  echo "$$ $key $number LIFE begin" > DIR/begun
  sleep 0.00$((number % 10))
  echo "end $number LIFE $fence" >> DIR/log-$key
  echo "$$ $key $number LIFE end" > DIR/begun
}
exec 8> DIR/alive
"#;

const COMMAND: &str = r#"
key=$KEYLANE_KEY fence=$KEYLANE_FENCE number=$(cat)
exec 9>> DIR/lock-$key
act
"#;

/// Reads the fields of a task from its line.
const WORKER: &str = r#"
text() { rest=${line#*"\"$1\":\""}; echo "${rest%%\"*}"; }
number() { rest=${line#*"\"$1\":"}; echo "${rest%%[,\}]*}"; }
while IFS= read -r line; do
  case $line in
    *'"op":"hello"'*) echo '{"op":"ready"}' ;;
    *'"op":"task"'*)
      key=$(text key) fence=$(number fence) number=$(number payload) id=$(number id)
      exec 9>> DIR/lock-$key
      act
      exec 9>&-
      echo "{\"op\":\"done\",\"id\":$id,\"result\":$number}" ;;
    *'"op":"bye"'*) exit ;;
  esac
done
"#;

/// Lines of the configuration for a store in a file.
const IN_FILE: &str = r#"store = "DIR/tasks.db""#;

/// Starts a server whose children name `life` in what they write, with these lines of the configuration for its store. It has
/// not said its address yet.
fn start(family: &Family, life: u64, store: &str) -> Server {
    let folder = family.folder().to_str().unwrap();
    let of_life = |text: &str| {
        let text = text.replace("DIR", folder).replace("LIFE", &life.to_string());
        text.replace("NODE", &(life / 2).to_string())
    };
    // A shell reads a script as it runs, so each life has its own.
    for (name, body) in [("command", COMMAND), ("worker", WORKER)] {
        fs::write(family.path(&format!("{name}-{life}")), of_life(&format!("{ACT}{body}")))
            .unwrap();
    }
    let config = of_life(&format!(
        "[server]\nlisten = \"127.0.0.1:0\"\n{store}\n\
         [kinds.command]\ncommand = [\"sh\", \"DIR/command-LIFE\"]\nattempts = 1000\nbackoff = \"1ms..5ms\"\n\
         [kinds.worker]\nworker = [\"sh\", \"DIR/worker-LIFE\"]\nworkers = 2\nattempts = 1000\nbackoff = \"1ms..5ms\"\n\
         [kinds.remote]\nlease = \"10s\"\nattempts = 1000\nbackoff = \"1ms..5ms\"\n\
         [kinds.shared]\nlease = \"1s\"\ncommand = [\"sh\", \"DIR/command-LIFE\"]\nattempts = 1000\nbackoff = \"1ms..5ms\"\n",
    ));
    let path = family.path("config.toml");
    fs::write(&path, config).unwrap();
    let log = OpenOptions::new().create(true).append(true).open(family.path("stderr")).unwrap();
    let mut command = subcommand("serve", ["--config", path.to_str().unwrap()]);
    Server(command.env("TMPDIR", folder).stderr(log).spawn().unwrap())
}

/// A server that does not outlive a failed test.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        // It has ended, unless the test has failed.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits for the address of a server.
fn address_of(server: &mut Server, family: &Family) -> String {
    let mut line = String::new();
    BufReader::new(server.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let stderr = || fs::read_to_string(family.path("stderr")).unwrap();
    assert!(line.starts_with("keylane: listening on http://"), "{line:?} {}", stderr());
    line.trim_end().rsplit("//").next().unwrap().to_owned()
}

/// Line of a subtask that begins or ends.
struct Step {
    pid: i32,
    key: String,
    number: u64,
    life: u64,
    has_ended: bool,
}

fn next_step(family: &Family, clients: &Clients) -> Step {
    let line = family.next();
    let words: Vec<&str> = line.split(' ').collect();
    let [pid, key, number, life, step] = words[..] else { panic!("{line:?}") };
    let [number, life] = [number, life].map(|word| word.parse().unwrap());
    let (pid, key) = (pid.parse().unwrap(), key.to_owned());
    let has_ended = step == "end";
    if has_ended {
        clients.ended(&key, number);
    }
    Step { pid, key, number, life, has_ended }
}

/// Kills a child process, if it is still there. Returns whether it was.
fn kill_child(family: &Family, step: &Step) -> bool {
    let words = fs::read(format!("/proc/{}/cmdline", step.pid)).unwrap_or_default();
    let words = String::from_utf8_lossy(&words);
    let Some(pid) = Pid::from_raw(step.pid).filter(|pid| pid.as_raw_pid() > 1) else {
        return false;
    };
    // Its number may be another process's by now.
    words.contains(family.folder().to_str().unwrap()) && kill_process(pid, Signal::KILL).is_ok()
}

/// Subtasks whose process was killed, each with the life.
type KilledChildren = HashSet<(String, u64, u64)>;

/// Runs a server until `count` of its subtasks have begun, and kills it. Every fifth of them is killed itself.
fn live(
    family: &Family,
    clients: &Clients,
    (life, store): (u64, &str),
    dice: &mut Dice,
    killed: &mut KilledChildren,
) {
    let mut server = start(family, life, store);
    // One of eight ends while it starts.
    if dice.roll(8) > 0 {
        clients.serve(Some((life, address_of(&mut server, family))));
        let mut left = dice.roll(30);
        while left > 0 {
            let step = next_step(family, clients);
            if step.life != life || step.has_ended {
                continue;
            }
            left -= 1;
            if step.pid > 0 && dice.roll(5) == 0 && kill_child(family, &step) {
                killed.insert((step.key, step.number, life));
            }
        }
    }
    // Clients find out by broken connections that it is gone.
    if dice.roll(2) == 0 && clients.has_server() {
        kill_with_guard(server.0.id());
        server.0.wait().unwrap();
    } else {
        end_by(&mut server.0, Signal::KILL);
    }
    clients.serve(None);
}

/// Steps of a key in the order of their writes, which the key's lock orders.
fn steps_of(family: &Family, key: &str) -> Vec<(bool, u64, u64, u64)> {
    let text = fs::read_to_string(family.path(&format!("log-{key}"))).unwrap();
    let step = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        let [step, number, life, fence] = words[..] else { panic!("{key}: {line:?}") };
        let [number, life, fence] = [number, life, fence].map(|word| word.parse().unwrap());
        (step == "begin", number, life, fence)
    };
    text.lines().map(step).collect()
}

/// Checks what the subtasks of a key have written, of which `total` were accepted.
///
/// A kill undoes ends that are not on the disk: the key continues behind those that are. So a later life may repeat
/// subtasks, in their order. A leased subtask begins only when the end of its predecessor is on the disk, so
/// none before it is repeated.
fn judge(family: &Family, key: &str, total: u64, killed: &KilledChildren, remote: &HashSet<u64>) {
    let steps = steps_of(family, key);
    let (mut last, mut last_fence, mut last_life) = (0, 0, 0);
    let (mut first_possible, mut is_open) = (1, false);
    // The last life in which each subtask has ended.
    let mut ended = BTreeMap::new();
    for (at, (begins, number, life, fence)) in steps.iter().copied().enumerate() {
        let before = &steps[at.saturating_sub(10)..=at];
        let place = format!("{key}, subtask {number}, (begins, number, life, fence): {before:?}");
        if !begins {
            assert!(is_open && (number, fence) == (last, last_fence), "the end of none: {place}");
            ended.insert(number, life);
            is_open = false;
            continue;
        }
        assert!(number <= last + u64::from(!is_open), "too early: {place}");
        assert!(number >= last || life > last_life, "repeated in the same life: {place}");
        assert!(number >= first_possible, "repeated after a lease behind it: {place}");
        assert!(fence > last_fence && fence < 1 << 53, "a fence that is not higher: {place}");
        let was_killed = killed.contains(&(key.to_owned(), number, life));
        let is_repeated = ended.get(&number) == Some(&life) && !remote.contains(&number);
        assert!(!is_repeated || was_killed, "twice in a life: {place}");
        if remote.contains(&number) {
            first_possible = number;
        }
        (last, last_fence, last_life, is_open) = (number, fence, life, true);
    }
    assert!(ended.keys().copied().eq(1..=total), "{key}: {total} accepted, ended: {ended:?}");
}

/// Checks that the server has every accepted job as succeeded, and one result of each subtask.
fn check_books(clients: &Clients, address: &str) {
    for (id, total) in clients.jobs() {
        let path = format!("/v1/jobs/{id}");
        let wait = [("prefer", "wait=60".to_owned())];
        let (_, job) = request(address, "GET", &path, &wait, "").unwrap();
        assert_eq!(job["state"], "succeeded", "{job}");
        let (_, results) = request(address, "GET", &format!("{path}/results"), &[], "").unwrap();
        let results = results["items"].as_array().unwrap();
        let numbers: HashSet<u64> =
            results.iter().map(|one| one["number"].as_u64().unwrap()).collect();
        assert_eq!((results.len(), numbers.len()), (total, total), "{results:?}");
    }
}

fn kills_or(default: u64) -> u64 {
    env::var("KEYLANE_KILLS").map_or(default, |kills| kills.parse().expect("it is a number"))
}

#[test]
fn a_server_that_is_killed_keeps_order_and_loses_nothing() {
    run_with_kills(kills_or(8), IN_FILE);
}

/// Every second server has another folder than the killed one, as if it were on another machine, and takes over when that has
/// been silent for some seconds; the others go on at once.
#[cfg(feature = "postgres")]
#[test]
fn a_server_on_postgres_that_takes_over_from_a_killed_one_keeps_order_and_loses_nothing() {
    use keylane_testkit::{PostgresServer, or_skip};
    let Some(server) = or_skip(PostgresServer::start()) else { return };
    let folder = "data_folder = \"DIR/node-NODE\"";
    run_with_kills(kills_or(4), &format!("store = \"{}\"\n{folder}", server.address()));
}

/// Kills servers with this store while clients work with them, and judges what the subtasks have written.
fn run_with_kills(kills: u64, store: &str) {
    let mut dice = Dice::new(3);
    let mut family = Family::new();
    let clients = Arc::new(Clients::default());
    let (submitter, worker) = (Arc::clone(&clients), Arc::clone(&clients));
    let folder = family.folder().to_owned();
    let submitter = thread::spawn(move || submit(&submitter, Dice::new(4)));
    let worker = thread::spawn(move || run_remote(&worker, &folder));

    let mut killed = KilledChildren::new();
    for life in 1..=kills {
        live(&family, &clients, (life, store), &mut dice, &mut killed);
    }
    let mut server = start(&family, kills + 1, store);
    let address = address_of(&mut server, &family);
    clients.serve(Some((kills + 1, address.clone())));
    clients.accept_no_more();
    submitter.join().unwrap();
    while !clients.all_ended() {
        next_step(&family, &clients);
    }
    check_books(&clients, &address);
    clients.stop();
    worker.join().unwrap();
    end_by(&mut server.0, Signal::TERM);
    family.wait_until_gone();
    family.assert_no_overlap();
    let submitted = clients.submitted();
    assert!(submitted.len() == KEYS as usize, "{submitted:?}");
    for (key, total) in &submitted {
        judge(&family, key, *total, &killed, &clients.remote(key));
    }
    assert_eq!(KINDS.len(), 4);
    let total: u64 = submitted.values().sum();
    println!("{kills} kills, {} kills of children, {total} subtasks", killed.len());
}
