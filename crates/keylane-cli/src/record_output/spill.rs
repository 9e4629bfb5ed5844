//! Waiting output in temporary files that many outputs share, so that neither memory nor the number of
//! open files grows with their number.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, PoisonError};

use crate::process::CapturedOutput;

/// Length at which a file is left for the next one, but for a larger output. Its space is free again
/// when the last of its outputs was written.
pub(super) const FILE_LENGTH: u64 = 64 << 20;

const PIECE: usize = 64 << 10;

/// Unnamed files with the outputs that do not fit into memory.
#[derive(Debug)]
pub(super) struct SpillFiles {
    current: Mutex<Option<SpillFile>>,
    /// Length at which a file is left for the next one.
    length: u64,
}

#[derive(Debug)]
struct SpillFile {
    file: Arc<File>,
    end: u64,
}

/// Output of an attempt in a file.
#[derive(Debug)]
pub(super) struct SpilledOutput {
    file: Arc<File>,
    offset: u64,
    stdout: u64,
    stderr: u64,
}

impl SpillFiles {
    pub(super) fn new(length: u64) -> Self {
        SpillFiles { current: Mutex::new(None), length }
    }

    /// Moves an output to a file.
    pub(super) fn store(&self, mut printed: CapturedOutput) -> io::Result<SpilledOutput> {
        let (stdout, stderr) = (printed.stdout.length(), printed.stderr.length());
        let (file, offset) = self.reserve(stdout + stderr)?;
        let mut sink = OffsetWriter { file: &file, offset };
        printed.stdout.write_to(&mut sink)?;
        printed.stderr.write_to(&mut sink)?;
        Ok(SpilledOutput { file, offset, stdout, stderr })
    }

    /// Returns a place of this length.
    fn reserve(&self, length: u64) -> io::Result<(Arc<File>, u64)> {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        let open = match current.take().filter(|open| open.end < self.length) {
            Some(open) => open,
            None => SpillFile { file: Arc::new(tempfile::tempfile()?), end: 0 },
        };
        let place = (Arc::clone(&open.file), open.end);
        *current = Some(SpillFile { end: open.end + length, ..open });
        Ok(place)
    }
}

impl SpilledOutput {
    pub(super) fn write_stdout(&self, sink: &mut impl Write) -> io::Result<()> {
        self.copy(self.offset, self.stdout, sink)
    }

    pub(super) fn write_stderr(&self, sink: &mut impl Write) -> io::Result<()> {
        self.copy(self.offset + self.stdout, self.stderr, sink)
    }

    fn copy(&self, mut offset: u64, length: u64, sink: &mut impl Write) -> io::Result<()> {
        let end = offset + length;
        let mut buffer = vec![0; PIECE.min(length as usize)];
        while offset < end {
            let piece = (end - offset).min(PIECE as u64) as usize;
            self.file.read_exact_at(&mut buffer[..piece], offset)?;
            sink.write_all(&buffer[..piece])?;
            offset += piece as u64;
        }
        Ok(())
    }
}

#[derive(Debug)]
struct OffsetWriter<'f> {
    file: &'f File,
    offset: u64,
}

impl Write for OffsetWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.file.write_at(bytes, self.offset)?;
        self.offset += count as u64;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outputs_come_back_whole_from_several_files() {
        let files = SpillFiles::new(64_000);
        let text = |index: u8| (vec![index; 9_000], vec![index + 100; 10]);
        let stored: Vec<_> = (0..20)
            .map(|index| {
                let mut printed = CapturedOutput::default();
                printed.stdout.write_all(&text(index).0).unwrap();
                printed.stderr.write_all(&text(index).1).unwrap();
                files.store(printed).unwrap()
            })
            .collect();
        let distinct = |stored: &[SpilledOutput]| {
            let mut files: Vec<_> = stored.iter().map(|one| Arc::as_ptr(&one.file)).collect();
            files.dedup();
            files.len()
        };
        assert_eq!(distinct(&stored), 3);
        for (index, one) in stored.iter().enumerate() {
            let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
            one.write_stdout(&mut stdout).unwrap();
            one.write_stderr(&mut stderr).unwrap();
            assert!((stdout, stderr) == text(index as u8), "{index}");
        }
    }
}
