//! Compression formats, detected by the first bytes of an input; refuses those that cannot be read.

use std::io::{self, Read};

use super::line_reader::BOM;

/// A compression format, and the bytes with which its files begin.
#[derive(Debug, PartialEq)]
pub(super) struct CompressionFormat {
    pub(super) name: &'static str,
    begin: &'static [u8],
}

pub(super) const GZIP: CompressionFormat =
    CompressionFormat { name: "gzip", begin: b"\x1F\x8B\x08" };
pub(super) const ZSTD: CompressionFormat =
    CompressionFormat { name: "zstd", begin: b"\x28\xB5\x2F\xFD" };
const XZ: CompressionFormat = CompressionFormat { name: "xz", begin: b"\xFD7zXZ\0" };

/// None of these beginnings is valid UTF-8, so that no text is taken for compressed data.
const FORMATS: [CompressionFormat; 3] = [GZIP, ZSTD, XZ];

/// The input is compressed. The program for a format has its name.
#[derive(Debug, thiserror::Error)]
#[error("it is compressed with {0}; decompress it first, as in `{0} -dc FILE | keylane ...`")]
pub(super) struct CompressedInput(&'static str);

impl CompressionFormat {
    /// Returns the error for an input of this format, which names the remedy.
    pub(super) fn refusal(&self) -> io::Error {
        io::Error::new(io::ErrorKind::InvalidData, CompressedInput(self.name))
    }
}

/// An input of which the first bytes were looked at, and are still read first.
#[derive(Debug)]
pub(super) struct DetectingReader<R> {
    input: R,
    /// The first bytes; those up to `passed` were passed on.
    head: Vec<u8>,
    passed: usize,
}

impl<R: Read> DetectingReader<R> {
    pub(super) fn new(input: R) -> Self {
        DetectingReader { input, head: Vec::new(), passed: 0 }
    }

    /// Reads until it is certain which format begins like this, or that none does: mostly one read suffices, so
    /// that a line from a terminal does not wait for another. A byte order mark comes as a whole too, because
    /// the reader of tables knows no other.
    pub(super) fn detect(&mut self) -> io::Result<Option<&'static CompressionFormat>> {
        let begins = || FORMATS.iter().map(|format| format.begin).chain([BOM]);
        let mut piece = [0; 4096];
        while begins().any(|begin| begin.len() > self.head.len() && begin.starts_with(&self.head)) {
            match self.input.read(&mut piece) {
                Ok(0) => break,
                Ok(count) => self.head.extend_from_slice(&piece[..count]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(FORMATS.iter().find(|format| self.head.starts_with(format.begin)))
    }
}

impl<R: Read> Read for DetectingReader<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let head = &self.head[self.passed..];
        if head.is_empty() {
            return self.input.read(into);
        }
        let count = head.len().min(into.len());
        into[..count].copy_from_slice(&head[..count]);
        self.passed += count;
        Ok(count)
    }
}

/// An input that is refused if it is compressed: positions in it are those of its bytes.
#[derive(Debug)]
pub(crate) struct UncompressedReader<R> {
    input: DetectingReader<R>,
    is_checked: bool,
}

impl<R: Read> UncompressedReader<R> {
    pub(crate) fn new(input: R) -> Self {
        UncompressedReader { input: DetectingReader::new(input), is_checked: false }
    }
}

impl<R: Read> Read for UncompressedReader<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if !self.is_checked {
            if let Some(format) = self.input.detect()? {
                return Err(format.refusal());
            }
            self.is_checked = true;
        }
        self.input.read(into)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_format_is_refused_with_the_program_that_reads_it() {
        for CompressionFormat { name, begin } in FORMATS {
            let input = [begin, b"more"].concat();
            let error =
                UncompressedReader::new(&input[..]).read(&mut [0; 9]).unwrap_err().to_string();
            let remedy = format!("with {name}; decompress it first, as in `{name} -dc FILE");
            assert!(error.contains(&remedy), "{error}");
        }
    }

    #[test]
    fn all_else_is_passed_on_byte_for_byte() {
        for text in
            [&b""[..], b"a", b"a\nb", b"(", b"\x28\xB5", b"\x1F\x8B\x09 no gzip", b"\xFD7zip"]
        {
            let mut read = Vec::new();
            UncompressedReader::new(text).read_to_end(&mut read).unwrap();
            assert_eq!(read, text);
        }
    }

    /// A reader that would wait for ever after its first line.
    #[test]
    fn a_short_line_is_passed_on_at_once() {
        struct Terminal(&'static [u8]);
        impl Read for Terminal {
            fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
                assert!(!self.0.is_empty(), "it waits for a second line");
                let count = self.0.len().min(into.len());
                into[..count].copy_from_slice(&self.0[..count]);
                self.0 = &self.0[count..];
                Ok(count)
            }
        }
        let mut input = UncompressedReader::new(Terminal(b"x\n"));
        let mut buffer = [0; 9];
        let count = input.read(&mut buffer).unwrap();
        assert_eq!(&buffer[..count], b"x\n");
    }

    #[test]
    fn a_byte_order_mark_is_passed_on_in_one_piece() {
        struct Bytes(&'static [u8]);
        impl Read for Bytes {
            fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
                (&mut self.0).take(1).read(into)
            }
        }
        let mut buffer = [0; 9];
        let mut input = UncompressedReader::new(Bytes(b"\xEF\xBB\xBFk,v\n"));
        assert_eq!(input.read(&mut buffer).unwrap(), 3);
        assert_eq!(&buffer[..3], BOM);
    }
}
