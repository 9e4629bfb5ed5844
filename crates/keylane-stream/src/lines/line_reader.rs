//! Reads lines with a bounded length.

use std::io::{self, BufRead};

use super::MAX_LINE_BYTES;

/// Result of reading a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LineRead {
    /// A whole line; its length in bytes, with its end.
    Line(usize),
    /// An incomplete line at the current end of the input; its length in bytes.
    Part(usize),
    /// The end of the input.
    End,
}

/// Reads to the end of a line, or of the input. Appends to `line` without the line end.
pub(super) fn read_line(input: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<LineRead> {
    let begin = line.len();
    loop {
        let bytes = match input.fill_buf() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            bytes => bytes?,
        };
        if bytes.is_empty() {
            let read = line.len() - begin;
            return Ok(if read == 0 { LineRead::End } else { LineRead::Part(read) });
        }
        let end = bytes.iter().position(|byte| *byte == b'\n');
        let taken = end.unwrap_or(bytes.len());
        line.extend_from_slice(&bytes[..taken]);
        input.consume(taken + usize::from(end.is_some()));
        if line.len() > MAX_LINE_BYTES {
            let why = format!("a line is longer than {MAX_LINE_BYTES} bytes");
            return Err(io::Error::new(io::ErrorKind::InvalidData, why));
        }
        if end.is_some() {
            return Ok(LineRead::Line(line.len() - begin + 1));
        }
    }
}

/// The byte order mark that some programs put before UTF-8.
const BOM: &[u8] = b"\xEF\xBB\xBF";

/// Removes a byte order mark, which can stand before the first line.
pub(super) fn without_mark(mut line: Vec<u8>) -> Vec<u8> {
    if line.starts_with(BOM) {
        line.drain(..BOM.len());
    }
    line
}

/// Removes the `\r` of a `\r\n`.
pub(super) fn without_return(mut line: Vec<u8>) -> Vec<u8> {
    line.pop_if(|last| *last == b'\r');
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_end_with_their_end_or_with_the_input() {
        let mut input = io::BufReader::with_capacity(3, &b"ab\r\n\nlonger than that\nlast"[..]);
        let mut lines = Vec::new();
        loop {
            let mut line = Vec::new();
            match read_line(&mut input, &mut line).unwrap() {
                LineRead::End => break,
                read => lines.push((read, String::from_utf8(without_return(line)).unwrap())),
            }
        }
        let longer = "longer than that".to_owned();
        assert_eq!(
            lines,
            [
                (LineRead::Line(4), "ab".to_owned()),
                (LineRead::Line(1), String::new()),
                (LineRead::Line(17), longer),
                (LineRead::Part(4), "last".to_owned()),
            ]
        );
    }
}
