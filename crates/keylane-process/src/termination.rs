//! End of the processes that a registry lists, by a process that is not their parent: SIGTERM, a
//! grace period, SIGKILL, until none is left.

use std::collections::HashSet;
use std::io;
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use crate::scan::{self, RunningProcess};
use crate::table::{GroupSlot, TableHeader};

/// Pause between two looks at the processes: the shortest and the longest.
const PAUSES: (Duration, Duration) = (Duration::from_millis(2), Duration::from_millis(50));

/// Ends all processes that belong to the registry and returns their number at the start, once none
/// is left.
///
/// The table's parent is gone, so the table does not change meanwhile. A process that cannot be
/// killed, because the system waits for a device on its behalf, is waited for.
pub(crate) fn end_all(
    header: &TableHeader,
    slots: &[GroupSlot],
    grace: Duration,
    mut tell: impl FnMut(usize),
) -> io::Result<usize> {
    let groups: HashSet<i32> =
        slots.iter().map(|slot| slot.leader.as_raw_nonzero().get()).collect();
    let kill_at = Instant::now() + grace;
    let (mut told, mut count) = (HashSet::new(), 0);
    let (mut pause, mut empty_looks) = (PAUSES.0, 0);
    loop {
        let found = scan::belonging(header, slots)?;
        if found.is_empty() {
            empty_looks += 1;
            // A process that was forked behind the place where a look had arrived is found by the next one.
            if empty_looks == 2 {
                return Ok(count);
            }
            continue;
        }
        empty_looks = 0;
        if count == 0 {
            count = found.len();
            tell(count);
        }
        let is_over = Instant::now() >= kill_at;
        for process in found {
            if is_over {
                send(process, &groups, Signal::KILL);
            } else if told.insert(process.number) {
                send(process, &groups, Signal::TERM);
                // A process that was stopped hears of it only when it goes on.
                send(process, &groups, Signal::CONT);
            }
        }
        sleep(pause);
        pause = (pause * 2).min(PAUSES.1);
    }
}

/// Signals a registered group as a whole, so that no process slips through by forking. Another process is signalled
/// alone: its group may contain processes that are not ours.
fn send(process: RunningProcess, groups: &HashSet<i32>, signal: Signal) {
    // It may have ended meanwhile.
    let _ = match Pid::from_raw(process.group)
        .filter(|group| groups.contains(&group.as_raw_nonzero().get()))
    {
        Some(group) => kill_process_group(group, signal),
        None => kill_process(process.number, signal),
    };
}
