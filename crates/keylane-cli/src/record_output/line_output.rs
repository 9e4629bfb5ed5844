//! Output of an attempt, written line by line while the command runs, or while it has its turn. Its
//! unfinished lines wait in memory, beyond that in a temporary file.

use std::io::{self, BufWriter, Write};

use crate::output::StandardOutput;
use crate::process::{CapturedOutput, OutputCapture, OutputStream};

use super::ordered::OutputTurn;
use super::tag::TagWriter;

/// Output of an attempt, in lines.
#[derive(Debug)]
pub(crate) struct LineOutput<'s> {
    output: &'s StandardOutput,
    /// The turn in which lines appear, if not at once.
    turn: Option<&'s OutputTurn>,
    tag: &'s [u8],
    /// Lines without their end.
    begun: CapturedOutput,
    /// All output, if it is needed after the end.
    pub(super) copy: Option<CapturedOutput>,
    is_refused: bool,
}

impl<'s> LineOutput<'s> {
    pub(super) fn new(
        output: &'s StandardOutput,
        turn: Option<&'s OutputTurn>,
        tag: &'s [u8],
        is_copied: bool,
    ) -> Self {
        let copy = is_copied.then(CapturedOutput::default);
        LineOutput { output, turn, tag, begun: CapturedOutput::default(), copy, is_refused: false }
    }

    pub(super) fn push(&mut self, stream: OutputStream, bytes: &[u8]) -> io::Result<()> {
        if let Some(copy) = &mut self.copy {
            copy.stream(stream).write_all(bytes)?;
        }
        let Some(last) = memchr::memrchr(b'\n', bytes) else {
            return self.begun.stream(stream).write_all(bytes);
        };
        let (lines, rest) = bytes.split_at(last + 1);
        self.write(stream, lines)?;
        self.begun.stream(stream).write_all(rest)
    }

    /// Writes the last lines, which have no end. Returns whether all of standard output was written.
    pub(super) fn finish(&mut self) -> io::Result<bool> {
        for stream in [OutputStream::Stdout, OutputStream::Stderr] {
            if !self.begun.stream(stream).is_empty() {
                self.write(stream, b"")?;
            }
        }
        self.turn.map_or(Ok(()), OutputTurn::end_lines)?;
        Ok(!self.is_refused)
    }

    /// Writes what has begun, and these lines behind it.
    fn write(&mut self, stream: OutputStream, lines: &[u8]) -> io::Result<()> {
        let mut begun = std::mem::take(self.begun.stream(stream));
        let tag = self.tag;
        if let Some(turn) = self.turn {
            return turn
                .add_lines(|live| write_tagged(live.stream(stream), tag, &mut begun, lines));
        }
        match stream {
            OutputStream::Stdout => {
                let written = self
                    .output
                    .write_both(|out| write_tagged(out, tag, &mut begun, lines), |_| Ok(()));
                // A write error ends the run, which reports it.
                self.is_refused |= written.is_err();
            }
            OutputStream::Stderr => {
                self.output.write_error(|err| write_tagged(err, tag, &mut begun, lines));
            }
        }
        Ok(())
    }
}

fn write_tagged(
    sink: &mut impl Write,
    tag: &[u8],
    begun: &mut OutputCapture,
    lines: &[u8],
) -> io::Result<()> {
    if tag.is_empty() && begun.is_empty() {
        return sink.write_all(lines);
    }
    let mut sink = BufWriter::with_capacity(64 << 10, sink);
    if tag.is_empty() {
        begun.write_to(&mut sink)?;
        sink.write_all(lines)?;
    } else {
        let mut sink = TagWriter::new(&mut sink, tag);
        begun.write_to(&mut sink)?;
        sink.write_all(lines)?;
    }
    sink.flush()
}
