//! The command line: one workload, or a table of them.

use std::process::ExitCode;

use crate::Result;
use crate::args::Args;
use crate::table;
use crate::workloads::{
    jobs_mix, jobs_start, jobs_tiny, w1_tiny, w2_sleeps, w3_rollups, w4_gate, w4_queue, w5_memory,
    w6_predicate,
};

const USAGE: &str = "\
usage: bench w1|w2|w3|w4|w4-gate|w5|w6|jobs|jobs-mix|jobs-start --peer NAME [--keys N] [--tasks N] [--producers N]
                         [--workers N] [--capacity N] [--zipf S] [--every N] [--what idle-keys|queued-tasks]
                         [--millis N] [--slow true|false] [--handed true|false] [--unfinished N]
                         [--load 0.8] [--seed N] [--csv FILE] [--micros N]
       bench table w1|w2|w3|w4|w4-gate|w5|w6|jobs|jobs-mix|jobs-start
                         [--rounds 5] [--peers A,B] [--against A,B] [--producers 1,2,4]
                         [--columns TITLE,TITLE]
                         [--keys 1,1000] [--scale 1.0] [--quiet-wait 10] [--raw FILE]
       bench machine     what the tables were measured on, as markdown
       bench peers       the peers of each workload in this build";

/// Runs the program under the allocator named `allocator`.
pub fn run(allocator: &str) -> ExitCode {
    match dispatch(allocator) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("bench: {error}");
            ExitCode::from(2)
        }
    }
}

fn dispatch(allocator: &str) -> Result<ExitCode> {
    let mut words = std::env::args().skip(1);
    let command = words.next().ok_or(USAGE)?;
    match command.as_str() {
        "table" => {
            let workload = words.next().ok_or(USAGE)?;
            table::run(&workload, Args::parse(words)?)
        }
        "machine" => {
            print!("{}", table::machine::describe());
            Ok(ExitCode::SUCCESS)
        }
        "peers" => {
            print!("{}", table::spec::list_peers());
            Ok(ExitCode::SUCCESS)
        }
        _ => one(&command, allocator, Args::parse(words)?),
    }
}

/// One run. The caller ends the process, and with it the pool and its threads.
fn one(workload: &str, allocator: &str, args: Args) -> Result<ExitCode> {
    let mut record = match workload {
        "w1" => w1_tiny::run(args)?,
        "w2" => w2_sleeps::run(args)?,
        "w3" => w3_rollups::run(args)?,
        "w4" => w4_queue::run(args)?,
        "w4-gate" => w4_gate::run(args)?,
        "w5" => w5_memory::run(args)?,
        "w6" => w6_predicate::run(args)?,
        "jobs" => jobs_tiny::run(args)?,
        "jobs-mix" => jobs_mix::run(args)?,
        "jobs-start" => jobs_start::run(args)?,
        _ => return Err(USAGE.into()),
    };
    record.allocator = allocator.to_owned();
    println!("{}", serde_json::to_string(&record)?);
    Ok(if record.is_right() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
