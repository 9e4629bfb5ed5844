//! What the subtasks of killed servers do and write, and whether that is in order: one at a time for each key, each after its predecessor, none
//! lost, and with fences that rise.

use std::collections::{BTreeMap, HashSet};
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::Path;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::clients::Clients;
use super::family::Family;

/// What each attempt does: it takes the locks of its keys, writes to the log of each when it begins and ends, and takes up to 0.29 s.
/// Its payload has the number of the subtask for each key, such as `k0:12 k3:4`.
const ACT: &str = r#"
act() {
  at=5
  for one in $places; do
    at=$((at + 1))
    eval "exec $at>> DIR/lock-${one%:*}"
    flock -n $at || echo "$one LIFE $fence" >> DIR/overlap
  done
  step begin
  number=${places##*:}
  sleep 0.$((number % 3))$((number % 10))
  step end
  exec 6>&- 7>&-
}
step() {
  for one in $places; do echo "$1 ${one#*:} LIFE $fence" >> DIR/log-${one%:*}; done
  echo "$$ LIFE $1 $places" > DIR/begun
}
exec 8> DIR/alive
"#;

const COMMAND: &str = r#"
fence=$KEYLANE_FENCE places=$(tr -d '"')
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
      fence=$(number fence) places=$(text payload) id=$(number id)
      act
      echo "{\"op\":\"done\",\"id\":$id,\"result\":1}" ;;
    *'"op":"bye"'*) exit ;;
  esac
done
"#;

/// Writes the configuration of a server whose children name `life` in what they write, with these lines for its store.
pub(crate) fn configure(family: &Family, life: u64, store: &str) {
    let folder = family.folder().to_str().unwrap();
    let of_life = |text: &str| text.replace("DIR", folder).replace("LIFE", &life.to_string());
    // A shell reads a script as it runs, so each life has its own.
    for (name, body) in [("command", COMMAND), ("worker", WORKER)] {
        fs::write(family.path(&format!("{name}-{life}")), of_life(&format!("{ACT}{body}")))
            .unwrap();
    }
    let again = "attempts = 1000\nbackoff = \"1ms..5ms\"\n";
    let config = of_life(&format!(
        "[server]\nlisten = \"127.0.0.1:0\"\n{store}\n\
         [kinds.command]\ncommand = [\"sh\", \"DIR/command-LIFE\"]\n{again}\
         [kinds.worker]\nworker = [\"sh\", \"DIR/worker-LIFE\"]\nworkers = 2\n{again}\
         [kinds.remote]\nlease = \"10s\"\n{again}\
         [kinds.shared]\nlease = \"1s\"\ncommand = [\"sh\", \"DIR/command-LIFE\"]\n{again}",
    ));
    fs::write(family.path(&format!("config-{life}.toml")), config).unwrap();
}

/// Returns the payload of a subtask with these keys and its number among those of each.
pub(crate) fn payload(places: &[(String, u64)]) -> String {
    let places: Vec<_> = places.iter().map(|(key, number)| format!("{key}:{number}")).collect();
    places.join(" ")
}

/// Returns the parts of a payload: each key with the number of the subtask among those of the key.
pub(crate) fn places(payload: &str) -> Vec<(String, u64)> {
    let place = |one: &str| {
        let (key, number) = one.split_once(':').unwrap_or_else(|| panic!("{payload:?}"));
        (key.to_owned(), number.parse().unwrap())
    };
    payload.split(' ').map(place).collect()
}

/// Does for a lease what an attempt of a command does. `life` is that of the server that gave it.
pub(crate) fn act(folder: &Path, life: u64, lease: &Value) {
    let text = |value: &Value| value.as_str().unwrap_or_else(|| panic!("{lease}")).to_owned();
    let (fence, payload) = (&lease["fence"], text(&lease["payload"]));
    let open =
        |name: &str| OpenOptions::new().create(true).append(true).open(folder.join(name)).unwrap();
    let say = |mut to: File, line: String| to.write_all(line.as_bytes()).unwrap();
    let lock = |(key, number): &(String, u64)| {
        let lock = open(&format!("lock-{key}"));
        if lock.try_lock().is_err() {
            say(open("overlap"), format!("{key}:{number} {life} {fence}\n"));
        }
        lock
    };
    let places = places(&payload);
    let _locks: Vec<_> = places.iter().map(lock).collect();
    for step in ["begin", "end"] {
        for (key, number) in &places {
            say(open(&format!("log-{key}")), format!("{step} {number} {life} {fence}\n"));
        }
        say(open("begun"), format!("0 {life} {step} {payload}\n"));
    }
}

/// Line of a subtask that begins or ends.
pub(crate) struct Step {
    pub(crate) pid: i32,
    pub(crate) places: Vec<(String, u64)>,
    pub(crate) life: u64,
    pub(crate) has_ended: bool,
}

impl Step {
    /// Reads a line. Clients learn of an end.
    pub(crate) fn of(line: &str, clients: &Clients) -> Step {
        let words: Vec<&str> = line.splitn(4, ' ').collect();
        let [pid, life, step, payload] = words[..] else { panic!("{line:?}") };
        let (pid, life) = (pid.parse().unwrap(), life.parse().unwrap());
        let (places, has_ended) = (places(payload), step == "end");
        if has_ended {
            clients.ended(&places);
        }
        Step { pid, places, life, has_ended }
    }

    /// Kills its process, if that is a child of a server and still there. Returns whether it was.
    pub(crate) fn kill(&self, family: &Family) -> bool {
        let words = fs::read(format!("/proc/{}/cmdline", self.pid)).unwrap_or_default();
        let words = String::from_utf8_lossy(&words);
        let Some(pid) = Pid::from_raw(self.pid).filter(|pid| pid.as_raw_pid() > 1) else {
            return false;
        };
        // Its number may be another process's by now.
        words.contains(family.folder().to_str().unwrap()) && kill_process(pid, Signal::KILL).is_ok()
    }
}

/// What the order of the subtasks must allow for.
#[derive(Default)]
pub(crate) struct Faults {
    /// Whether several servers run at the same time: a life with a lower number can then begin after one with a higher one.
    pub(crate) several_servers: bool,
    /// Key, number and life of each subtask whose process was killed.
    pub(crate) killed: HashSet<(String, u64, u64)>,
    /// Lives of the servers that stood still or lost the database for a time. Another one may have taken over meanwhile, and an attempt that such a
    /// server has begun, or begins at that moment, has a lower fence than the next one.
    pub(crate) cut_off: HashSet<u64>,
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

/// Checks that an attempt began beside another one of its key only if the server of one of both was cut off. Returns the number of such attempts.
pub(crate) fn judge_overlaps(family: &Family, faults: &Faults) -> usize {
    let text = fs::read_to_string(family.path("overlap")).unwrap_or_default();
    for line in text.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let [place, life, fence] = words[..] else { panic!("{line:?}") };
        let (key, number) = places(place).remove(0);
        let begin = (true, number, life.parse().unwrap(), fence.parse().unwrap());
        let begun: Vec<_> = steps_of(family, &key).into_iter().filter(|step| step.0).collect();
        let at = begun.iter().position(|step| *step == begin).unwrap_or_else(|| panic!("{line}"));
        let around = &begun[at.saturating_sub(1)..begun.len().min(at + 2)];
        let may = around.iter().any(|(_, _, life, _)| faults.cut_off.contains(life));
        assert!(may, "began beside another one: {line}: {around:?}");
    }
    text.lines().count()
}

/// Checks what the subtasks of a key have written, of which `total` were accepted. Returns the number of steps of attempts that another one
/// had replaced.
///
/// A kill undoes ends that are not on the disk: the key continues behind those that are. So a later life may repeat
/// subtasks, in their order. A leased subtask begins only when the end of its predecessor is on the disk, so
/// none before it is repeated.
pub(crate) fn judge(
    family: &Family,
    (key, total): (&str, u64),
    faults: &Faults,
    leased: &HashSet<u64>,
) -> usize {
    let steps = steps_of(family, key);
    let (mut last, mut last_fence, mut last_life) = (0, 0, 0);
    let (mut first_possible, mut is_open, mut replaced) = (1, false, 0);
    // The last life in which each subtask has ended.
    let mut ended = BTreeMap::new();
    for (at, (begins, number, life, fence)) in steps.iter().copied().enumerate() {
        let before = &steps[at.saturating_sub(10)..=at];
        let place = format!("{key}, subtask {number}, (begins, number, life, fence): {before:?}");
        let is_latest = if begins { fence > last_fence } else { fence == last_fence };
        if !is_latest && faults.cut_off.contains(&life) {
            // A system that compares fences refuses it.
            replaced += 1;
            continue;
        }
        if !begins {
            assert!(is_open && is_latest && number == last, "the end of none: {place}");
            ended.insert(number, life);
            is_open = false;
            continue;
        }
        assert!(number <= last + u64::from(!is_open), "too early: {place}");
        let is_leased = leased.contains(&number);
        let is_other_life = match faults.several_servers {
            false => life > last_life,
            // A leased one names the server that runs it, which need not be the one that decides.
            true => life != last_life || is_leased,
        };
        assert!(number >= last || is_other_life, "repeated in the same life: {place}");
        assert!(number >= first_possible, "repeated after a lease behind it: {place}");
        assert!(is_latest && fence < 1 << 53, "a fence that is not higher: {place}");
        let was_killed = faults.killed.contains(&(key.to_owned(), number, life));
        let is_repeated = ended.get(&number) == Some(&life) && !is_leased;
        assert!(!is_repeated || was_killed, "twice in a life: {place}");
        if is_leased {
            first_possible = number;
        }
        (last, last_fence, last_life, is_open) = (number, fence, life, true);
    }
    assert!(ended.keys().copied().eq(1..=total), "{key}: {total} accepted, ended: {ended:?}");
    replaced
}
