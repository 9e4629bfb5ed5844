//! Reader of zstd data of several frames: skips the frames without content, and compares the checksum
//! of each frame that has one.

use std::fmt;
use std::io::{self, BufRead, Read};

use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

/// Content of all frames, one after the other.
pub(super) struct ZstdFrames<R> {
    input: R,
    decoder: FrameDecoder,
    /// A frame has begun, and its checksum was not compared yet.
    is_inside: bool,
    /// Bytes of the frame that were passed on.
    length: u64,
}

impl<R> fmt::Debug for ZstdFrames<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ZstdFrames").field("is_inside", &self.is_inside).finish_non_exhaustive()
    }
}

impl<R: BufRead> ZstdFrames<R> {
    pub(super) fn new(input: R) -> Self {
        ZstdFrames { input, decoder: FrameDecoder::new(), is_inside: false, length: 0 }
    }

    /// Begins the next frame with content; false at the end of the input.
    fn begin_frame(&mut self) -> io::Result<bool> {
        loop {
            if self.is_at_end()? {
                return Ok(false);
            }
            let error = match self.decoder.reset(&mut self.input) {
                Ok(()) => {
                    (self.is_inside, self.length) = (true, 0);
                    return Ok(true);
                }
                Err(error) => error,
            };
            let FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                length,
                ..
            }) = error
            else {
                return Err(io::Error::other(error));
            };
            let length = u64::from(length);
            let skipped = io::copy(&mut (&mut self.input).take(length), &mut io::sink())?;
            if skipped < length {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }

    fn is_at_end(&mut self) -> io::Result<bool> {
        loop {
            match self.input.fill_buf() {
                Ok(ahead) => return Ok(ahead.is_empty()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Compares checksum and length of a frame that was read.
    fn end_frame(&mut self) -> io::Result<()> {
        self.is_inside = false;
        let stored = self.decoder.get_checksum_from_data();
        if stored.is_some() && stored != self.decoder.get_calculated_checksum() {
            return Err(io::Error::other("the checksum of its content differs"));
        }
        // Zero if the frame does not have its length.
        let length = self.decoder.content_size();
        if length != 0 && length != self.length {
            return Err(io::Error::other("the length of its content differs"));
        }
        Ok(())
    }
}

impl<R: BufRead> Read for ZstdFrames<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            if !self.is_inside && !self.begin_frame()? {
                return Ok(0);
            }
            while self.decoder.can_collect() == 0 && !self.decoder.is_finished() {
                self.decoder
                    .decode_blocks(&mut self.input, BlockDecodingStrategy::UptoBlocks(1))
                    .map_err(io::Error::other)?;
            }
            let count = self.decoder.read(into)?;
            self.length += count as u64;
            if count > 0 || into.is_empty() {
                return Ok(count);
            }
            self.end_frame()?;
        }
    }
}
