//! Workloads of a measurement: each worker does one piece of work after another.

use std::ffi::OsString;
use std::hint::black_box;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use anyhow::Context;

use super::CalibrateArgs;
use super::args::WorkloadArg;
use crate::process::{ChildProcesses, describe, guarded, resolve};

/// Number of arithmetic steps in a piece of work: about 0.1 ms, so that counting the pieces does
/// not dominate.
const CPU_STEPS: u64 = 50_000;

/// The memory that all workers read: more than the caches of most machines. The workers share it, so
/// that it does not grow with their number.
const MEMORY_BYTES: usize = 256 << 20;

/// Number of bytes that one piece of work reads in one stretch: again about 0.1 ms.
const STRETCH_BYTES: usize = 2 << 20;

const WORD: usize = size_of::<u64>();

#[derive(Debug, Clone)]
pub(super) enum Workload {
    Cpu,
    Memory(Arc<[u64]>),
    Command { program: PathBuf, words: Vec<OsString>, children: Arc<ChildProcesses> },
}

impl Workload {
    /// Requested workloads, in order.
    pub(super) fn all(args: &CalibrateArgs) -> anyhow::Result<Vec<Workload>> {
        if !args.command.is_empty() {
            let program = resolve(&args.command[0])?;
            let children = Arc::new(ChildProcesses::new(guarded()?)?);
            return Ok(vec![Workload::Command { program, words: args.command.clone(), children }]);
        }
        let memory = || Workload::Memory((0..(MEMORY_BYTES / WORD) as u64).collect());
        Ok(match args.workload {
            WorkloadArg::Cpu => vec![Workload::Cpu],
            WorkloadArg::Memory => vec![memory()],
            WorkloadArg::Both => vec![Workload::Cpu, memory()],
        })
    }

    pub(super) fn name(&self) -> String {
        match self {
            Workload::Cpu => "cpu".to_owned(),
            Workload::Memory(_) => "memory".to_owned(),
            Workload::Command { words, .. } => {
                let words: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
                words.join(" ")
            }
        }
    }

    /// Does one piece; `state` is the worker's own, and any number to begin with.
    pub(super) fn unit(&self, state: &mut u64) -> anyhow::Result<()> {
        match self {
            Workload::Cpu => *state = arithmetic(*state),
            Workload::Memory(memory) => *state = read_a_stretch(memory, *state),
            Workload::Command { program, words, children } => run_once(program, words, children)?,
        }
        Ok(())
    }
}

/// Steps of which each needs the one before.
fn arithmetic(state: u64) -> u64 {
    (0..CPU_STEPS).fold(black_box(state), |state, _| next(state))
}

/// A step that no compiler can make several of into one: the shift keeps the multiplications apart.
fn next(state: u64) -> u64 {
    let state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9)
}

/// Reads somewhere else each time.
fn read_a_stretch(memory: &[u64], state: u64) -> u64 {
    let stretch = STRETCH_BYTES / WORD;
    let places = memory.len() / stretch;
    let place = (next(state) >> 33) as usize % places;
    let words = &memory[place * stretch..][..stretch];
    next(state).wrapping_add(black_box(words.iter().fold(0, |sum, word| sum ^ word)))
}

fn run_once(program: &Path, words: &[OsString], children: &ChildProcesses) -> anyhow::Result<()> {
    let mut command = Command::new(program);
    command.args(&words[1..]).stdin(Stdio::null()).stdout(Stdio::null()).process_group(0);
    let mut child = children
        .spawn(&mut command)
        .with_context(|| format!("cannot start {}", program.display()))?;
    let status = children.reap(&mut child).context("cannot wait for the command")?;
    anyhow::ensure!(status.success(), "the command failed: {}", describe(status));
    Ok(())
}
