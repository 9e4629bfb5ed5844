//! Reader of both output streams of a child in one thread, so that neither can block it.

use std::io::{self, PipeReader, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::process::Child;
use std::time::Instant;

use rustix::event::{PollFd, PollFlags};

use super::capture::OutputCapture;
use super::children::poll_until;

/// A pipe's default size, so that one read empties it.
const PIECE: usize = 64 << 10;

/// Output of a child.
#[derive(Debug, Default)]
pub(crate) struct CapturedOutput {
    pub(crate) stdout: OutputCapture,
    pub(crate) stderr: OutputCapture,
}

/// A stream of a child's output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OutputStream {
    Stdout,
    Stderr,
}

/// Receives the output of a child while it runs.
pub(crate) trait OutputReceiver {
    /// Receives the next bytes of a stream.
    fn receive(&mut self, stream: OutputStream, bytes: &[u8]) -> io::Result<()>;
}

impl OutputReceiver for CapturedOutput {
    fn receive(&mut self, stream: OutputStream, bytes: &[u8]) -> io::Result<()> {
        self.stream(stream).push(bytes)
    }
}

impl CapturedOutput {
    pub(crate) fn stream(&mut self, stream: OutputStream) -> &mut OutputCapture {
        match stream {
            OutputStream::Stdout => &mut self.stdout,
            OutputStream::Stderr => &mut self.stderr,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.stdout.is_empty() && self.stderr.is_empty()
    }

    /// Returns the number of bytes in memory.
    pub(crate) fn memory(&self) -> usize {
        self.stdout.memory() + self.stderr.memory()
    }

    /// Returns the number of temporary files.
    pub(crate) fn files(&self) -> usize {
        [&self.stdout, &self.stderr].iter().filter(|output| output.in_memory().is_none()).count()
    }
}

/// Reads until all writers have closed both streams, or one of `abandoned` becomes readable. Whenever
/// `deadline` has passed, calls `on_deadline`, which returns the next one, or `None` to end.
pub(super) fn collect(
    child: &mut Child,
    receiver: &mut impl OutputReceiver,
    abandoned: [&PipeReader; 2],
    buffer: &mut Vec<u8>,
    mut deadline: Option<Instant>,
    mut on_deadline: impl FnMut() -> Option<Instant>,
) -> io::Result<()> {
    let (mut stdout, mut stderr) = (child.stdout.take(), child.stderr.take());
    buffer.resize(PIECE, 0);
    while stdout.is_some() || stderr.is_some() {
        let ready = match wait([as_fd(&stdout), as_fd(&stderr)], abandoned, deadline)? {
            Some(ready) => ready,
            None => {
                let Some(next) = on_deadline() else { return Ok(()) };
                deadline = Some(next);
                continue;
            }
        };
        if ready[0] {
            take(&mut stdout, OutputStream::Stdout, receiver, buffer)?;
        }
        if ready[1] {
            take(&mut stderr, OutputStream::Stderr, receiver, buffer)?;
        }
        if ready == [false, false] {
            break;
        }
    }
    Ok(())
}

/// Waits until a stream can be read; neither can when all is abandoned. `None` if the deadline came
/// first.
fn wait(
    streams: [Option<BorrowedFd<'_>>; 2],
    abandoned: [&PipeReader; 2],
    deadline: Option<Instant>,
) -> io::Result<Option<[bool; 2]>> {
    let [all, this] = abandoned.map(AsFd::as_fd);
    // A closed stream's place is taken by a pipe that is polled anyway.
    let [out, err] = streams.map(|stream| stream.unwrap_or(all));
    let mut polled = [out, err, all, this].map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
    if !poll_until(&mut polled, deadline)? {
        return Ok(None);
    }
    let ready = |index: usize| !polled[index].revents().is_empty();
    if ready(2) || ready(3) {
        return Ok(Some([false, false]));
    }
    Ok(Some([streams[0].is_some() && ready(0), streams[1].is_some() && ready(1)]))
}

fn as_fd<S: AsFd>(stream: &Option<S>) -> Option<BorrowedFd<'_>> {
    stream.as_ref().map(AsFd::as_fd)
}

/// Reads available bytes; drops the stream at its end.
fn take<S: Read>(
    stream: &mut Option<S>,
    name: OutputStream,
    receiver: &mut impl OutputReceiver,
    buffer: &mut [u8],
) -> io::Result<()> {
    let Some(open) = stream else { return Ok(()) };
    match open.read(buffer) {
        Ok(0) => *stream = None,
        Ok(count) => receiver.receive(name, &buffer[..count])?,
        Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
        Err(error) => return Err(error),
    }
    Ok(())
}
