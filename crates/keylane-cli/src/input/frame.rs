//! Line reader that splits a byte stream and buffers at most one line.

use std::io::{self, BufRead, BufReader, Read};

use super::MAX_RECORD;
use super::error::Flaw;

/// Read-ahead of the input: large enough that system calls do not show.
pub(super) const READ_AHEAD: usize = 64 << 10;

/// A stream of lines; the line end is not part of a line.
#[derive(Debug)]
pub(super) struct Frames<R> {
    input: BufReader<R>,
    line: u64,
}

impl<R: Read> Frames<R> {
    pub(super) fn new(input: R) -> Self {
        Self { input: BufReader::with_capacity(READ_AHEAD, input), line: 0 }
    }

    /// The line read last, counted from one.
    pub(super) fn line(&self) -> u64 {
        self.line
    }

    /// Reads the next line into `into`; false at the end of the input.
    pub(super) fn next(&mut self, into: &mut Vec<u8>) -> Result<bool, Flaw> {
        into.clear();
        self.line += 1;
        loop {
            let ahead = match self.input.fill_buf() {
                Ok(ahead) => ahead,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(Flaw::Read(error)),
            };
            if ahead.is_empty() {
                return Ok(!into.is_empty());
            }
            let end = memchr::memchr(b'\n', ahead);
            let taken = end.unwrap_or(ahead.len());
            into.extend_from_slice(&ahead[..taken]);
            self.input.consume(taken + usize::from(end.is_some()));
            if into.len() > MAX_RECORD {
                return Err(Flaw::TooLong);
            }
            if end.is_some() {
                return Ok(true);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_needs_no_line_end_and_empty_lines_count() {
        let mut frames = Frames::new(&b"a\n\nb"[..]);
        let mut line = Vec::new();
        let mut seen = Vec::new();
        while frames.next(&mut line).unwrap() {
            seen.push((frames.line(), line.clone()));
        }
        assert_eq!(seen, [(1, b"a".to_vec()), (2, vec![]), (3, b"b".to_vec())]);
    }

    #[test]
    fn a_line_without_end_is_refused_before_it_fills_the_memory() {
        let mut frames = Frames::new(io::repeat(b'x'));
        assert!(matches!(frames.next(&mut Vec::new()), Err(Flaw::TooLong)));
    }
}
