//! Recording reader: keeps a copy of the bytes that a parser has read, so that the whole record is
//! available beside its fields; the size of the copy is bounded.

use std::io::{self, Read};

use super::MAX_RECORD;
use super::line_reader::READ_AHEAD;

/// A reader that keeps a copy of what passed through it.
#[derive(Debug)]
pub(super) struct RecordingReader<R> {
    inner: R,
    kept: Vec<u8>,
    /// Bytes at the front of `kept` that were taken already.
    taken: usize,
    /// Position in the input of the first byte that was not taken.
    position: u64,
    /// Set once a record outgrew the bound; reading fails from then on.
    overrun: bool,
}

impl<R> RecordingReader<R> {
    pub(super) fn new(inner: R) -> Self {
        Self { inner, kept: Vec::new(), taken: 0, position: 0, overrun: false }
    }

    /// Takes the bytes up to position `end` of the input.
    pub(super) fn take_until(&mut self, end: u64) -> &[u8] {
        let length = (end - self.position) as usize;
        let from = self.taken;
        self.taken += length;
        self.position = end;
        &self.kept[from..from + length]
    }

    pub(super) fn overrun(&self) -> bool {
        self.overrun
    }
}

impl<R: Read> Read for RecordingReader<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.kept.drain(..self.taken);
        self.taken = 0;
        self.overrun = self.kept.len() > MAX_RECORD + READ_AHEAD;
        if self.overrun {
            return Err(io::Error::other("the record is too long"));
        }
        let count = self.inner.read(into)?;
        self.kept.extend_from_slice(&into[..count]);
        Ok(count)
    }
}
