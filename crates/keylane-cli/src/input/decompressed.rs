//! Decompresses an input while it is read, if its first bytes are those of gzip or zstd. Data that is
//! damaged or cut off is an error, never an early end.

use std::io::{self, BufReader, Read};

use flate2::bufread::MultiGzDecoder;

use super::compressed::{CompressionFormat, DetectingReader, GZIP, ZSTD};
use super::line_reader::READ_AHEAD;
use super::zstd_frames::ZstdFrames;

/// An input in plain text, whatever its file contains.
#[derive(Debug)]
pub(super) struct DecompressedReader<R>(ReaderState<R>);

#[derive(Debug)]
enum ReaderState<R> {
    /// Nothing was read.
    New(Option<R>),
    Plain(DetectingReader<R>),
    Gzip(Box<MultiGzDecoder<BufReader<DetectingReader<R>>>>),
    Zstd(Box<ZstdFrames<BufReader<DetectingReader<R>>>>),
}

/// Compressed data cannot be decompressed further.
#[derive(Debug, thiserror::Error)]
#[error(
    "its {name} data is damaged or cut off ({error}); check it with `{name} -t FILE`, and get a \
     complete copy"
)]
struct DamagedInput {
    name: &'static str,
    error: io::Error,
}

impl<R: Read> DecompressedReader<R> {
    pub(super) fn new(input: R) -> Self {
        Self(ReaderState::New(Some(input)))
    }

    fn begin(input: R) -> io::Result<ReaderState<R>> {
        let mut input = DetectingReader::new(input);
        let ahead = |input| BufReader::with_capacity(READ_AHEAD, input);
        Ok(match input.detect()? {
            None => ReaderState::Plain(input),
            Some(format) if *format == GZIP => {
                ReaderState::Gzip(Box::new(MultiGzDecoder::new(ahead(input))))
            }
            Some(format) if *format == ZSTD => {
                ReaderState::Zstd(Box::new(ZstdFrames::new(ahead(input))))
            }
            Some(format) => return Err(format.refusal()),
        })
    }
}

impl<R: Read> Read for DecompressedReader<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if let ReaderState::New(input) = &mut self.0 {
            let input = input.take().ok_or_else(|| io::Error::other("it was not readable"))?;
            self.0 = Self::begin(input)?;
        }
        match &mut self.0 {
            ReaderState::New(_) => unreachable!("the state has just changed"),
            ReaderState::Plain(input) => input.read(into),
            ReaderState::Gzip(decoder) => decoder.read(into).map_err(|error| damaged(&GZIP, error)),
            ReaderState::Zstd(frames) => frames.read(into).map_err(|error| damaged(&ZSTD, error)),
        }
    }
}

fn damaged(format: &CompressionFormat, error: io::Error) -> io::Error {
    match error.kind() {
        // The caller reads again.
        io::ErrorKind::Interrupted => error,
        kind => io::Error::new(kind, DamagedInput { name: format.name, error }),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;
    use ruzstd::encoding::{CompressionLevel, compress_to_vec};

    use super::*;

    fn read(packed: &[u8]) -> io::Result<Vec<u8>> {
        let mut read = Vec::new();
        DecompressedReader::new(packed).read_to_end(&mut read).map(|_| read)
    }

    fn gzip(text: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(text).unwrap();
        encoder.finish().unwrap()
    }

    fn zstd(text: &[u8]) -> Vec<u8> {
        compress_to_vec(text, CompressionLevel::Fastest)
    }

    fn lines() -> Vec<u8> {
        (0..20_000).flat_map(|line| format!("line {line}\n").into_bytes()).collect()
    }

    #[test]
    fn all_members_and_frames_are_read() {
        let text = lines();
        let (first, rest) = text.split_at(text.len() / 3);
        // A frame that decoders skip, as tools for parallel decompression write it.
        let skipped = b"\x50\x2A\x4D\x18\x05\0\0\0hello".as_slice();
        for packed in [
            gzip(&text),
            zstd(&text),
            [gzip(first), gzip(b""), gzip(rest)].concat(),
            [zstd(first), skipped.to_vec(), zstd(b""), zstd(rest)].concat(),
        ] {
            assert!(read(&packed).unwrap() == text);
        }
        assert_eq!(read(b"plain\n").unwrap(), b"plain\n");
        assert_eq!(read(b"").unwrap(), b"");
    }

    #[test]
    fn data_that_is_cut_off_anywhere_is_an_error() {
        let text = b"some text, some text, some text\n".repeat(3);
        for (name, begin, packed) in [("gzip", 3, gzip(&text)), ("zstd", 4, zstd(&text))] {
            for end in begin..packed.len() {
                let error = read(&packed[..end]).expect_err(&format!("{name} of {end} bytes"));
                let said = error.to_string();
                assert!(said.contains(&format!("`{name} -t FILE`")), "{end}: {said}");
            }
            // The second part is cut off where it begins.
            for more in 1..8 {
                let cut = [&packed, &packed[..more]].concat();
                read(&cut).expect_err(&format!("{name} with {more} more bytes"));
            }
        }
    }

    #[test]
    fn changed_data_is_never_taken_for_the_text() {
        let text = lines();
        for packed in [gzip(&text), zstd(&text)] {
            for at in (20..packed.len()).step_by(packed.len() / 50) {
                let mut changed = packed.clone();
                changed[at] ^= 0x10;
                // Some bits, such as those of a name, are not part of the text.
                assert!(read(&changed).is_err() || read(&changed).unwrap() == text, "byte {at}");
            }
        }
    }

    #[test]
    fn data_behind_the_end_is_an_error() {
        for packed in [gzip(b"a\n"), zstd(b"a\n")] {
            read(&[&packed[..], b"more"].concat()).unwrap_err();
        }
    }
}
