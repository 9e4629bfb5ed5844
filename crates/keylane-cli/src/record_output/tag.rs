//! Tags in front of lines.

use std::io::{self, Write};

/// Writer that puts a tag in front of every line.
#[derive(Debug)]
pub(super) struct TagWriter<'t, W> {
    sink: W,
    tag: &'t [u8],
    is_inside_line: bool,
}

impl<'t, W: Write> TagWriter<'t, W> {
    pub(super) fn new(sink: W, tag: &'t [u8]) -> Self {
        TagWriter { sink, tag, is_inside_line: false }
    }
}

impl<W: Write> Write for TagWriter<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        for line in bytes.split_inclusive(|byte| *byte == b'\n') {
            if !self.is_inside_line {
                self.sink.write_all(self.tag)?;
            }
            self.sink.write_all(line)?;
            self.is_inside_line = !line.ends_with(b"\n");
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.sink.flush()
    }
}

/// Returns the tag of a text: followed by a tab, and without line ends, which would begin a line
/// without a tag.
pub(super) fn tag_of(mut text: Vec<u8>) -> Vec<u8> {
    text.iter_mut().filter(|byte| **byte == b'\n').for_each(|byte| *byte = b' ');
    text.push(b'\t');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_has_its_tag_once_whatever_the_pieces() {
        let text = b"a\n\nbc\nd";
        for size in 1..text.len() {
            let mut tagged = Vec::new();
            let mut writer = TagWriter::new(&mut tagged, b"T\t");
            text.chunks(size).for_each(|piece| writer.write_all(piece).unwrap());
            assert_eq!(tagged, b"T\ta\nT\t\nT\tbc\nT\td", "pieces of {size}");
        }
    }

    #[test]
    fn a_tag_is_one_line() {
        assert_eq!(tag_of(b"a\nb\tc".to_vec()), b"a b\tc\t");
    }
}
