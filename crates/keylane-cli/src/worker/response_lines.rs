//! Splits a child's output into whole lines, many at a time.

use std::io::{self, Read};

/// Read at a time: a pipe's default size.
const PIECE: usize = 64 << 10;

/// Longest answer. A child that prints more without a line end is not one that
/// answers with lines.
const MAX_ANSWER: usize = 16 << 20;

/// ResponseLines of one child.
#[derive(Debug)]
pub(super) struct ResponseLines<R> {
    from: R,
    /// Bytes read: whole lines up to `whole`, then the start of another up to `filled`. What follows
    /// is left from earlier, so that it need not be cleared for each read.
    buffer: Vec<u8>,
    whole: usize,
    filled: usize,
}

impl<R: Read> ResponseLines<R> {
    pub(super) fn new(from: R) -> Self {
        Self { from, buffer: Vec::new(), whole: 0, filled: 0 }
    }

    pub(super) fn source(&self) -> &R {
        &self.from
    }

    /// Reads once; returns whole lines and their number, which may be zero. None at the end of the
    /// output; a last line without line end gets one.
    pub(super) fn read(&mut self) -> io::Result<Option<(&[u8], usize)>> {
        self.buffer.copy_within(self.whole..self.filled, 0);
        let begun = self.filled - self.whole;
        (self.whole, self.filled) = (0, begun);
        if begun > MAX_ANSWER {
            return Err(io::Error::other("it printed more than 16 MiB without a line end"));
        }
        if self.buffer.len() < begun + PIECE {
            self.buffer.resize(begun + PIECE, 0);
        }
        let count = self.read_into(begun)?;
        self.filled += count;
        if count == 0 {
            if begun == 0 {
                return Ok(None);
            }
            self.buffer[begun] = b'\n';
            self.filled += 1;
        }
        let new = &self.buffer[begun..self.filled];
        self.whole = memchr::memrchr(b'\n', new).map_or(0, |last| begun + last + 1);
        let lines = memchr::memchr_iter(b'\n', new).count();
        Ok(Some((&self.buffer[..self.whole], lines)))
    }

    fn read_into(&mut self, begun: usize) -> io::Result<usize> {
        loop {
            match self.from.read(&mut self.buffer[begun..]) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => return other,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_whole_whatever_the_pieces() {
        struct Bytes(&'static [u8]);
        impl Read for Bytes {
            fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
                let count = self.0.len().min(3);
                into[..count].copy_from_slice(&self.0[..count]);
                self.0 = &self.0[count..];
                Ok(count)
            }
        }
        let mut answers = ResponseLines::new(Bytes(b"a\nbcdefg\n\nrest"));
        let mut seen = Vec::new();
        while let Some((text, lines)) = answers.read().unwrap() {
            assert_eq!(text.iter().filter(|byte| **byte == b'\n').count(), lines);
            seen.extend_from_slice(text);
        }
        assert_eq!(seen, b"a\nbcdefg\n\nrest\n");
    }
}
