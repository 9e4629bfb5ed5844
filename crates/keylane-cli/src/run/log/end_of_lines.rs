//! Cut of a torn last line, which a crash or a full disk leaves.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Bytes that are read at a time, from the end.
const PIECE: u64 = 64 << 10;

/// Cuts the bytes behind the last line end of a file, which is open for reading and for writing.
pub(in crate::run) fn cut_torn_line(reader: &File, writer: &File) -> io::Result<()> {
    let length = reader.metadata()?.len();
    let end = end_of_lines(reader, length)?;
    if end < length { writer.set_len(end) } else { Ok(()) }
}

/// Returns the offset behind the last line end.
fn end_of_lines(file: &File, length: u64) -> io::Result<u64> {
    let mut end = length;
    let mut piece = Vec::new();
    while end > 0 {
        let start = end.saturating_sub(PIECE);
        piece.resize((end - start) as usize, 0);
        file.read_exact_at(&mut piece, start)?;
        if let Some(at) = memchr::memrchr(b'\n', &piece) {
            return Ok(start + at as u64 + 1);
        }
        end = start;
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn what_follows_the_last_line_end_is_cut() {
        let long = vec![b'x'; 3 * PIECE as usize + 7];
        let line = [&long[..], b"\n"].concat();
        for (whole, torn) in [
            (&b""[..], &b""[..]),
            (b"", b"{\"a\""),
            (b"a\n", b""),
            (b"a\nb\n", b"c"),
            (b"a\n", &long),
            (b"", &long),
            (&line, &long),
        ] {
            let mut file = tempfile::tempfile().unwrap();
            file.write_all(&[whole, torn].concat()).unwrap();
            cut_torn_line(&file, &file).unwrap();
            assert_eq!(file.metadata().unwrap().len(), whole.len() as u64);
        }
    }
}
