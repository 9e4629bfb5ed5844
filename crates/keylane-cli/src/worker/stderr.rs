//! Standard error of a child: passed on, and its end kept for the records that the child fails.
//!
//! The text of a record's attempt is what the child writes between the end of the record before it and its own end.
//! The two streams of a child have no common order, so a text that was read together with an answer is that of the
//! answered record if the child had no other one, and else may be that of the next. Such a text is kept: a letter may
//! have a line too many, and lacks none.

use std::io::{self, PipeReader, Read};
use std::os::fd::AsFd;
use std::process::ChildStderr;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

/// Read at a time: a pipe's default size, so that one read empties it.
const PIECE: usize = 64 << 10;

/// Maximum number of bytes that are kept for a record: the last ones, which mostly have the reason.
const MAX_KEPT: usize = 2048;

/// End of the text that a child has written since its last answer.
#[derive(Debug, Default)]
pub(super) struct StderrTail(Vec<u8>);

impl StderrTail {
    pub(super) fn push(&mut self, text: &[u8]) {
        let new = &text[text.len().saturating_sub(MAX_KEPT)..];
        let surplus = (self.0.len() + new.len()).saturating_sub(MAX_KEPT);
        self.0.drain(..surplus);
        self.0.extend_from_slice(new);
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Takes the text out.
    pub(super) fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.0)
    }
}

/// Reader of a child's standard error; without a pipe there is never anything to read.
#[derive(Debug)]
pub(super) struct StderrReader {
    pipe: Option<ChildStderr>,
    buffer: Vec<u8>,
}

impl StderrReader {
    pub(super) fn new(pipe: Option<ChildStderr>) -> Self {
        StderrReader { pipe, buffer: Vec::new() }
    }

    /// The pipe, until its end was read.
    pub(super) fn pipe(&self) -> Option<&ChildStderr> {
        self.pipe.as_ref()
    }

    /// Reads once what is there, without waiting. An error counts as the end, because a child's failure to be heard is
    /// no failure of its records.
    pub(super) fn read_available(&mut self) -> &[u8] {
        match self.pipe.as_ref().map(is_readable) {
            Some(true) => self.read(),
            Some(false) | None => &[],
        }
    }

    /// Reads to the end of the stream, or until `stop` is readable and nothing is left to read at once. Calls `each`
    /// with every piece.
    pub(super) fn read_until(&mut self, stop: &PipeReader, mut each: impl FnMut(&[u8])) {
        while let Some(pipe) = &self.pipe {
            let mut polled =
                [pipe.as_fd(), stop.as_fd()].map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
            match poll(&mut polled, None) {
                Ok(_) => {}
                Err(Errno::INTR) => continue,
                Err(_) => return,
            }
            let (has_text, is_stopped) =
                (!polled[0].revents().is_empty(), !polled[1].revents().is_empty());
            if has_text {
                each(self.read());
            } else if is_stopped {
                return;
            }
        }
    }

    fn read(&mut self) -> &[u8] {
        self.buffer.resize(PIECE, 0);
        let Some(pipe) = &mut self.pipe else { return &[] };
        let count = loop {
            match pipe.read(&mut self.buffer) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => break other.unwrap_or(0),
            }
        };
        if count == 0 {
            self.pipe = None;
        }
        &self.buffer[..count]
    }
}

/// Whether a read returns at once.
pub(super) fn is_readable(stream: &impl AsFd) -> bool {
    let mut polled = [PollFd::new(stream, PollFlags::IN)];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut polled, Some(&at_once)).is_ok_and(|ready| ready > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_bytes_are_kept() {
        let mut tail = StderrTail::default();
        tail.push(b"forgotten");
        tail.clear();
        let mut all = Vec::new();
        for byte in 0..50 {
            let piece = vec![byte; 99];
            tail.push(&piece);
            all.extend_from_slice(&piece);
        }
        assert_eq!(tail.take(), all[all.len() - MAX_KEPT..]);
        tail.push(&all);
        assert_eq!(tail.take(), all[all.len() - MAX_KEPT..]);
        assert_eq!(tail.take(), b"");
    }

    #[test]
    fn reading_ends_with_the_stop_and_leaves_nothing_behind() {
        use std::process::{Command, Stdio};
        let (stop, stopped) = io::pipe().unwrap();
        let mut child = Command::new("sh")
            .args(["-c", "echo said >&2"])
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stderr = StderrReader::new(child.stderr.take());
        child.wait().unwrap();
        drop(stopped);
        let mut said = Vec::new();
        stderr.read_until(&stop, |text| said.extend_from_slice(text));
        assert_eq!(said, b"said\n");
        assert_eq!(stderr.read_available(), b"");
    }
}
