//! Forced end of processes that outlive the consumer, such as a worker that ignores the end of its input.
//!
//! A second interruption cancels the running attempts, which ends their processes. Others are asked to end once the
//! consumer has ended: before that, the end of a process could be taken for a failed attempt. The consumer's end and the
//! interruption come in any order and from two threads. Each notes itself and then looks for the other, so at least one
//! of them finds both.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread;

use crate::process::ChildProcesses;

/// See the [module](self).
#[derive(Debug)]
pub(super) struct ForcedEnd {
    children: Option<Arc<ChildProcesses>>,
    has_ended: AtomicBool,
    is_forced: AtomicBool,
}

impl ForcedEnd {
    pub(super) fn new(children: Option<Arc<ChildProcesses>>) -> Self {
        ForcedEnd { children, has_ended: AtomicBool::new(false), is_forced: AtomicBool::new(false) }
    }

    /// Notes that no attempt runs any more.
    pub(super) fn consumer_ended(&self) {
        self.has_ended.store(true, SeqCst);
        self.end_if_due();
    }

    /// Notes that the user does not want to wait for the rest.
    pub(super) fn force(&self) {
        self.is_forced.store(true, SeqCst);
        self.end_if_due();
    }

    /// Sends SIGTERM to all processes, and SIGKILL after the grace time.
    fn end_if_due(&self) {
        let Some(children) = &self.children else { return };
        if self.has_ended.load(SeqCst) && self.is_forced.load(SeqCst) {
            children.terminate();
            let children = Arc::clone(children);
            thread::spawn(move || {
                thread::sleep(keylane_process::GRACE);
                children.kill();
            });
        }
    }
}
