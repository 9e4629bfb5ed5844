//! Processes of a group, found with POSIX calls only: whether the group has a member.

use std::io;

use rustix::process::{
    Pid, WaitId, WaitIdOptions, test_kill_process, test_kill_process_group, waitid,
};

use crate::table::{GroupSlot, TableHeader};

/// Scope in which process numbers are comparable. Without a boot id that is one process only: a
/// later start ends no process by a number that may have been reused.
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

pub(crate) fn here() -> io::Result<PidScope> {
    Ok(PidScope { boot: format!("process-{}", std::process::id()), pid_namespace: "-".into() })
}

pub(crate) fn now() -> u64 {
    0
}

/// The session of this process.
pub(crate) fn own_session() -> i32 {
    rustix::process::getsid(None).map_or(0, |session| session.as_raw_nonzero().get())
}

/// Whether a process is there.
pub(crate) fn runs(process: Pid) -> bool {
    test_kill_process(process).is_ok()
}

/// The groups of the table that have a member, each as its leader.
pub(crate) fn belonging(
    _header: &TableHeader,
    slots: &[GroupSlot],
) -> io::Result<Vec<RunningProcess>> {
    let alive = slots.iter().filter(|slot| !is_gone(slot.leader));
    Ok(alive
        .map(|slot| RunningProcess {
            number: slot.leader,
            group: slot.leader.as_raw_nonzero().get(),
        })
        .collect())
}

/// Whether no process of the group is there.
pub(crate) fn is_gone(group: Pid) -> bool {
    test_kill_process_group(group).is_err()
}

/// Whether a child of this process has ended, be it reaped or not. It is not reaped by that.
#[must_use]
pub fn has_ended(child: Pid) -> bool {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
    !matches!(waitid(WaitId::Pid(child), options), Ok(None))
}
