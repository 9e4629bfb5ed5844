//! Output of a command until its end: in memory while it is small, beyond that in an unnamed
//! temporary file.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};

/// Maximum number of bytes in memory per stream; with the default of one job per CPU this is far
/// below the commands' own memory.
const IN_MEMORY: usize = 1 << 20;

/// Output of one stream so far.
#[derive(Debug, Default)]
pub(crate) struct OutputCapture {
    memory: Vec<u8>,
    /// Output before `memory`.
    spilled: Option<File>,
    /// Bytes of the whole output.
    length: u64,
}

impl OutputCapture {
    pub(super) fn push(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.memory.len() + bytes.len() > IN_MEMORY {
            self.spill()?;
        }
        self.memory.extend_from_slice(bytes);
        self.length += bytes.len() as u64;
        Ok(())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.memory.is_empty() && self.spilled.is_none()
    }

    /// Returns the number of bytes.
    pub(crate) fn length(&self) -> u64 {
        self.length
    }

    /// Returns all of the output, if it is in memory.
    pub(crate) fn in_memory(&self) -> Option<&[u8]> {
        self.spilled.is_none().then_some(&*self.memory)
    }

    /// Returns the number of bytes in memory.
    pub(crate) fn memory(&self) -> usize {
        self.memory.capacity()
    }

    pub(crate) fn write_to(&mut self, sink: &mut impl Write) -> io::Result<()> {
        if let Some(file) = &mut self.spilled {
            file.rewind()?;
            io::copy(file, sink)?;
        }
        sink.write_all(&self.memory)
    }

    /// Last bytes, at most `most`.
    pub(super) fn end(&mut self, most: usize) -> io::Result<Vec<u8>> {
        let from_memory = &self.memory[self.memory.len().saturating_sub(most)..];
        let mut end = Vec::new();
        if let Some(file) = &mut self.spilled {
            let before = (most - from_memory.len()) as u64;
            let length = file.seek(SeekFrom::End(0))?;
            file.seek(SeekFrom::Start(length.saturating_sub(before)))?;
            file.read_to_end(&mut end)?;
        }
        end.extend_from_slice(from_memory);
        Ok(end)
    }

    fn spill(&mut self) -> io::Result<()> {
        let file = match &mut self.spilled {
            Some(file) => file,
            none => none.insert(tempfile::tempfile()?),
        };
        file.write_all(&self.memory)?;
        self.memory.clear();
        Ok(())
    }
}

impl Write for OutputCapture {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.push(bytes)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_output_comes_back_whole_and_not_from_memory() {
        let mut capture = OutputCapture::default();
        let mut expected = Vec::new();
        for byte in 0..100u8 {
            let piece = vec![byte; 50_000];
            capture.push(&piece).unwrap();
            expected.extend(piece);
            assert!(capture.memory.len() <= IN_MEMORY);
        }
        let mut written = Vec::new();
        capture.write_to(&mut written).unwrap();
        assert!(capture.spilled.is_some() && written == expected);
        assert_eq!(capture.length(), expected.len() as u64);
        for most in [0, 2048, IN_MEMORY + 5, expected.len() + 1] {
            let end = &expected[expected.len().saturating_sub(most)..];
            assert!(capture.end(most).unwrap() == end, "{most}");
        }
    }
}
