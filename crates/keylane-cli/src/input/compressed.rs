//! Refuses compressed input, whose bytes would be taken for lines of text.

use std::io::{self, Read};

/// A compression format, and the bytes with which its files begin.
struct CompressionFormat {
    name: &'static str,
    /// Program that decompresses its standard input with `-dc`.
    program: &'static str,
    begin: &'static [u8],
}

/// None of these beginnings is valid UTF-8, so that no text is refused.
const FORMATS: [CompressionFormat; 3] = [
    CompressionFormat { name: "gzip", program: "gzip", begin: b"\x1F\x8B\x08" },
    CompressionFormat { name: "zstd", program: "zstd", begin: b"\x28\xB5\x2F\xFD" },
    CompressionFormat { name: "xz", program: "xz", begin: b"\xFD7zXZ\0" },
];

/// The input is compressed.
#[derive(Debug, thiserror::Error)]
#[error(
    "it is compressed with {name}; decompress it first, as in `{program} -dc FILE | keylane ...`"
)]
pub(crate) struct CompressedInput {
    name: &'static str,
    program: &'static str,
}

/// An input that is checked at its beginning.
#[derive(Debug)]
pub(crate) struct UncompressedReader<R> {
    input: R,
    /// The first bytes, until they are passed on.
    head: Vec<u8>,
    is_checked: bool,
}

impl<R: Read> UncompressedReader<R> {
    pub(crate) fn new(input: R) -> Self {
        UncompressedReader { input, head: Vec::new(), is_checked: false }
    }

    /// Reads until it is certain that no format begins like this: mostly one byte suffices, so that a line from a
    /// terminal does not wait for another.
    fn check(&mut self) -> io::Result<()> {
        let may_be = |format: &CompressionFormat, head: &[u8]| format.begin.starts_with(head);
        while FORMATS.iter().any(|format| may_be(format, &self.head)) {
            let mut byte = [0];
            match self.input.read(&mut byte) {
                Ok(0) => break,
                Ok(_) => self.head.push(byte[0]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
            if let Some(CompressionFormat { name, program, .. }) =
                FORMATS.iter().find(|format| format.begin == self.head)
            {
                let refusal = CompressedInput { name, program };
                return Err(io::Error::new(io::ErrorKind::InvalidData, refusal));
            }
        }
        self.is_checked = true;
        Ok(())
    }
}

impl<R: Read> Read for UncompressedReader<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if !self.is_checked {
            self.check()?;
        }
        if self.head.is_empty() {
            return self.input.read(into);
        }
        let count = self.head.len().min(into.len());
        into[..count].copy_from_slice(&self.head[..count]);
        self.head.drain(..count);
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_format_is_refused_with_the_program_that_reads_it() {
        for CompressionFormat { name, begin, .. } in FORMATS {
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
        let first = input.read(&mut buffer).unwrap();
        let second = input.read(&mut buffer[first..]).unwrap();
        assert_eq!(&buffer[..first + second], b"x\n");
    }
}
