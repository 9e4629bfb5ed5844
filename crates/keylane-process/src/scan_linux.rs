//! Processes of a group or a registry, found in `/proc`.

use std::fs;
use std::io;
use std::path::Path;

use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
use rustix::time::{ClockId, clock_gettime};

use crate::TAG;
use crate::table::{GroupSlot, TableHeader};

/// Scope in which process numbers are comparable: one boot of a machine, and one pid namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PidScope {
    pub(crate) boot: String,
    pub(crate) pid_namespace: String,
}

/// A process that runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RunningProcess {
    pub(crate) number: Pid,
    pub(crate) group: i32,
}

/// One line of `/proc/*/stat`.
struct ProcStat {
    number: Pid,
    /// False for a process that has ended and was not reaped.
    lives: bool,
    group: i32,
    session: i32,
    /// Milliseconds since the machine's start, rounded down to a tick.
    started: u64,
}

/// Milliseconds by which a start may lie outside of the recorded span: a tick of the slowest clock, twice.
const SLACK: u64 = 20;

/// Identifies the start of the machine. Hidden by `/proc` with the option `subset=pid`.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// The place in which this process is.
pub(crate) fn here() -> io::Result<PidScope> {
    let boot = fs::read_to_string(BOOT_ID).map_err(|error| {
        let text = format!(
            "cannot read {BOOT_ID}, without which a process of this start of the machine cannot be told from one of \
             an earlier start: {error}; mount the whole of /proc (under systemd, leave out `ProcSubset=pid`)"
        );
        io::Error::new(error.kind(), text)
    })?;
    let namespace = fs::read_link("/proc/self/ns/pid")?;
    Ok(PidScope {
        boot: boot.trim().into(),
        pid_namespace: namespace.to_string_lossy().replace(' ', "_"),
    })
}

/// Milliseconds since the machine's start, on the clock of the starts of processes.
pub(crate) fn now() -> u64 {
    let time = clock_gettime(ClockId::Boottime);
    time.tv_sec.cast_unsigned() * 1000 + time.tv_nsec.cast_unsigned() / 1_000_000
}

/// The session of this process; 0 if its leader is outside of the namespace of numbers.
pub(crate) fn own_session() -> i32 {
    let ticks = rustix::param::clock_ticks_per_second().max(1);
    read_stat(rustix::process::getpid(), ticks).map_or(0, |stat| stat.session)
}

/// Whether a process runs: false if it has ended and was not reaped.
pub(crate) fn runs(process: Pid) -> bool {
    let ticks = rustix::param::clock_ticks_per_second().max(1);
    read_stat(process, ticks).is_some_and(|stat| stat.lives)
}

/// Running processes that belong to a registry: those of its groups, and those of its parent's
/// session that have its tag.
pub(crate) fn belonging(
    header: &TableHeader,
    slots: &[GroupSlot],
) -> io::Result<Vec<RunningProcess>> {
    let all = stats()?;
    let is_ours = |slot: &GroupSlot| {
        let leader = all.iter().find(|stat| stat.number == slot.leader);
        // As long as the group has a member its number is given to no other process.
        leader.is_none_or(|stat| {
            stat.started + SLACK >= slot.before && stat.started <= slot.after + SLACK
        })
    };
    let groups: Vec<i32> = slots
        .iter()
        .filter(|slot| is_ours(slot))
        .map(|slot| slot.leader.as_raw_nonzero().get())
        .collect();
    let own = rustix::process::getpid();
    let belongs = |stat: &&ProcStat| {
        let in_session = stat.lives && stat.session == header.session && stat.number != own;
        in_session && (groups.contains(&stat.group) || has_tag(stat.number, &header.tag))
    };
    let found = all.iter().filter(belongs);
    Ok(found.map(|stat| RunningProcess { number: stat.number, group: stat.group }).collect())
}

/// Whether no process of the group runs. Zombies do not count.
pub(crate) fn is_gone(group: Pid) -> bool {
    let group = group.as_raw_nonzero().get();
    stats().is_ok_and(|all| !all.iter().any(|stat| stat.lives && stat.group == group))
}

/// Whether a child of this process has ended, be it reaped or not. It is not reaped by that.
#[must_use]
pub fn has_ended(child: Pid) -> bool {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
    !matches!(waitid(WaitId::Pid(child), options), Ok(None))
}

/// Whether the process was started with the tag in its environment. False if that cannot be seen.
fn has_tag(process: Pid, tag: &str) -> bool {
    let Ok(environment) = fs::read(format!("/proc/{}/environ", process.as_raw_nonzero())) else {
        return false;
    };
    let wanted = format!("{TAG}={tag}");
    environment.split(|byte| *byte == 0).any(|entry| entry == wanted.as_bytes())
}

fn stats() -> io::Result<Vec<ProcStat>> {
    let ticks = rustix::param::clock_ticks_per_second().max(1);
    let mut all = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let number = name.to_str().and_then(|name| name.parse().ok()).and_then(Pid::from_raw);
        if let Some(number) = number {
            // A process that ends meanwhile has no file any more.
            all.extend(read_stat(number, ticks));
        }
    }
    Ok(all)
}

fn read_stat(number: Pid, ticks: u64) -> Option<ProcStat> {
    let path = format!("/proc/{}/stat", number.as_raw_nonzero());
    // The name is no UTF-8 at times, and may contain spaces and parentheses.
    let text = fs::read(Path::new(&path)).ok()?;
    let text = String::from_utf8_lossy(&text);
    let (_, rest) = text.rsplit_once(')')?;
    // From the third field on: state, parent, group, session; the twenty-second is the start.
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    let started: u64 = fields.get(19)?.parse().ok()?;
    Some(ProcStat {
        number,
        lives: !matches!(*fields.first()?, "Z" | "X" | "x"),
        group: fields.get(2)?.parse().ok()?,
        session: fields.get(3)?.parse().ok()?,
        started: started.saturating_mul(1000) / ticks,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_seen_as_it_is() {
        let own = rustix::process::getpid();
        let all = stats().unwrap();
        let stat = all.iter().find(|stat| stat.number == own).unwrap();
        assert!(stat.lives && stat.started <= now() + SLACK);
        assert_eq!(stat.session, own_session());
        assert!(!is_gone(rustix::process::getpgrp()));
    }
}
