use std::io::{self, BufRead};

use super::MAX_LINE_BYTES;

/// What was read of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LineRead {
    /// All of it; so many bytes with its end.
    Line(usize),
    /// So many bytes, behind which there is nothing, for now.
    Part(usize),
    /// Nothing is left.
    End,
}

/// Reads on until the end of a line, or of what there is. `line` keeps what was read, without the end.
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

/// The text of a line: `\r\n` ends one as well.
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
