//! Runs the harness as a child process and notes what the rest of the machine did meanwhile.

use std::io::Read;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::Result;
use crate::probe::{self, MachineCpu};
use crate::record::Record;

/// Peers of this name run in the binary that has the other allocator.
const MIMALLOC: &str = "+mimalloc";

/// A child past this is killed; its own limit should have ended it before.
const TIME_LIMIT: Duration = Duration::from_secs(150);

/// The machine counts as quiet below this many busy cores.
const QUIET_CORES: f64 = 0.15;

pub(super) struct Runner {
    system: PathBuf,
    mimalloc: PathBuf,
    /// How long to wait for a quiet machine before a run.
    quiet_wait: Duration,
}

impl Runner {
    pub(super) fn new(quiet_wait: Duration) -> Result<Runner> {
        let system = std::env::current_exe()?;
        let mimalloc = system.with_file_name("bench-mimalloc");
        Ok(Runner { system, mimalloc, quiet_wait })
    }

    pub(super) fn run(&self, words: &[String]) -> Result<Record> {
        let under_mimalloc = words.iter().any(|word| word.ends_with(MIMALLOC));
        let program = if under_mimalloc { &self.mimalloc } else { &self.system };
        if !program.exists() {
            return Err("bench-mimalloc is missing: build with --features mimalloc".into());
        }
        self.wait_for_quiet();
        let (machine, own, start) = (MachineCpu::now(), probe::children_cpu(), Instant::now());
        let plain = words.iter().map(|word| word.trim_end_matches(MIMALLOC));
        let mut child = Command::new(program).args(plain).stdout(Stdio::piped()).spawn()?;
        let output = wait_for_output(&mut child)?;
        let wall = start.elapsed().as_secs_f64();
        let (machine_after, own_after) = (MachineCpu::now(), probe::children_cpu());
        let line = output.lines().last().ok_or("the run printed nothing")?;
        let mut record: Record = serde_json::from_str(line)?;
        if under_mimalloc {
            record.peer.push_str(MIMALLOC);
        }
        let busy = (machine_after.busy - machine.busy).as_secs_f64();
        let ours = (own_after - own).as_secs_f64();
        record.others_cores = Some((busy - ours).max(0.0) / wall);
        record.stolen_cores = Some((machine_after.stolen - machine.stolen).as_secs_f64() / wall);
        Ok(record)
    }

    fn wait_for_quiet(&self) {
        const LOOK: Duration = Duration::from_millis(200);
        let end = Instant::now() + self.quiet_wait;
        while Instant::now() < end {
            let before = MachineCpu::now();
            thread::sleep(LOOK);
            let busy = MachineCpu::now().busy.saturating_sub(before.busy);
            if busy.as_secs_f64() / LOOK.as_secs_f64() < QUIET_CORES {
                return;
            }
        }
    }
}

/// The child prints one line, which the pipe holds, so reading can wait until it has ended.
fn wait_for_output(child: &mut Child) -> Result<String> {
    let end = Instant::now() + TIME_LIMIT;
    while child.try_wait()?.is_none() {
        if Instant::now() > end {
            child.kill()?;
            child.wait()?;
            return Err("killed: it did not end".into());
        }
        thread::sleep(Duration::from_millis(10));
    }
    let mut output = String::new();
    child.stdout.take().expect("stdout is piped").read_to_string(&mut output)?;
    Ok(output)
}
