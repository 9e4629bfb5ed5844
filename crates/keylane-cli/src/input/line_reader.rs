//! Line reader that splits a byte stream and buffers at most one line.

use std::io::{self, BufRead, BufReader, Read};

use super::MAX_RECORD;
use super::error::RecordFlaw;

/// Read-ahead of the input: large enough that system calls do not show.
pub(super) const READ_AHEAD: usize = 64 << 10;

/// The byte order mark that some programs put before UTF-8.
pub(super) const BOM: &[u8] = b"\xEF\xBB\xBF";

/// A stream of lines; the line end is not part of a line, nor is a byte order mark before the first.
#[derive(Debug)]
pub(super) struct LineReader<R> {
    input: BufReader<R>,
    /// The byte that ends a line.
    end: u8,
    line: u64,
}

impl<R: Read> LineReader<R> {
    pub(super) fn new(input: R, end: u8) -> Self {
        Self { input: BufReader::with_capacity(READ_AHEAD, input), end, line: 0 }
    }

    /// The line read last, counted from one.
    pub(super) fn line(&self) -> u64 {
        self.line
    }

    /// Reads the next line into `into`; false at the end of the input.
    pub(super) fn next(&mut self, into: &mut Vec<u8>) -> Result<bool, RecordFlaw> {
        into.clear();
        self.line += 1;
        loop {
            let ahead = match self.input.fill_buf() {
                Ok(ahead) => ahead,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(RecordFlaw::Read(error)),
            };
            if ahead.is_empty() {
                self.remove_mark(into);
                return Ok(!into.is_empty());
            }
            let end = memchr::memchr(self.end, ahead);
            let taken = end.unwrap_or(ahead.len());
            into.extend_from_slice(&ahead[..taken]);
            self.input.consume(taken + usize::from(end.is_some()));
            if into.len() > MAX_RECORD {
                return Err(RecordFlaw::TooLong);
            }
            if end.is_some() {
                self.remove_mark(into);
                return Ok(true);
            }
        }
    }

    fn remove_mark(&self, line: &mut Vec<u8>) {
        if self.line == 1 && line.starts_with(BOM) {
            line.drain(..BOM.len());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_needs_no_line_end_and_empty_lines_count() {
        let mut lines = LineReader::new(&b"a\n\nb"[..], b'\n');
        let mut line = Vec::new();
        let mut seen = Vec::new();
        while lines.next(&mut line).unwrap() {
            seen.push((lines.line(), line.clone()));
        }
        assert_eq!(seen, [(1, b"a".to_vec()), (2, vec![]), (3, b"b".to_vec())]);
    }

    #[test]
    fn a_byte_order_mark_is_no_part_of_the_first_line() {
        for end in ["", "\n", "\n\u{feff}b"] {
            let text = format!("\u{feff}a{end}");
            let mut lines = LineReader::new(text.as_bytes(), b'\n');
            let mut line = Vec::new();
            assert!(lines.next(&mut line).unwrap());
            assert_eq!(line, b"a");
            if lines.next(&mut line).unwrap() {
                assert_eq!(line, "\u{feff}b".as_bytes());
            }
        }
    }

    #[test]
    fn a_line_without_end_is_refused_before_it_fills_the_memory() {
        let mut lines = LineReader::new(io::repeat(b'x'), b'\n');
        assert!(matches!(lines.next(&mut Vec::new()), Err(RecordFlaw::TooLong)));
    }
}
