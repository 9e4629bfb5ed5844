//! Reads records with a bounded length.

use std::io::{self, BufRead};

use super::MAX_LINE_BYTES;
use super::framing::RecordFraming;

/// Result of reading a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RecordRead {
    /// A whole record.
    Whole,
    /// An incomplete record at the current end of the input.
    Part,
    /// The end of the input.
    End,
}

/// Reads to the end of a record, or of the input. Appends its bytes to `record`, with the line end; `record`
/// has the bytes of a part that was read before.
pub(super) fn read_record(
    input: &mut impl BufRead,
    framing: &mut dyn RecordFraming,
    record: &mut Vec<u8>,
) -> io::Result<RecordRead> {
    let begin = record.len();
    loop {
        let bytes = match input.fill_buf() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            bytes => bytes?,
        };
        if bytes.is_empty() {
            return Ok(if record.len() == begin { RecordRead::End } else { RecordRead::Part });
        }
        let end = framing.find_end(bytes);
        let taken = end.unwrap_or(bytes.len());
        record.extend_from_slice(&bytes[..taken]);
        input.consume(taken);
        if record.len() > MAX_LINE_BYTES {
            let why = format!("a record is longer than {MAX_LINE_BYTES} bytes");
            return Err(io::Error::new(io::ErrorKind::InvalidData, why));
        }
        if end.is_some() {
            return Ok(RecordRead::Whole);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::framing::LineFraming;
    use super::*;

    #[test]
    fn lines_end_with_their_end_or_with_the_input() {
        let mut input = io::BufReader::with_capacity(3, &b"ab\r\n\nlonger than that\nlast"[..]);
        let mut lines = Vec::new();
        loop {
            let mut line = Vec::new();
            match read_record(&mut input, &mut LineFraming, &mut line).unwrap() {
                RecordRead::End => break,
                read => {
                    let content = LineFraming.content(line).unwrap();
                    lines.push((read, String::from_utf8(content).unwrap()));
                }
            }
        }
        assert_eq!(
            lines,
            [
                (RecordRead::Whole, "ab".to_owned()),
                (RecordRead::Whole, String::new()),
                (RecordRead::Whole, "longer than that".to_owned()),
                (RecordRead::Part, "last".to_owned()),
            ]
        );
    }
}
