//! Bytes of any length as a JSON string, in pieces: as text if they are UTF-8, else in base64.

use std::io::{self, Write};

use base64::engine::general_purpose::STANDARD;
use base64::write::EncoderWriter;

use crate::process::OutputCapture;

/// Appends `,"NAME":"..."`, or `,"NAME_base64":"..."` for bytes that are not UTF-8.
pub(super) fn append_field(
    into: &mut OutputCapture,
    name: &str,
    content: &mut OutputCapture,
) -> io::Result<()> {
    let mut check = Utf8Check::default();
    content.write_to(&mut check)?;
    if check.is_utf8() {
        write!(into, ",\"{name}\":\"")?;
        content.write_to(&mut JsonEscaper(&mut *into))?;
    } else {
        write!(into, ",\"{name}_base64\":\"")?;
        let mut encoder = EncoderWriter::new(&mut *into, &STANDARD);
        content.write_to(&mut encoder)?;
        encoder.finish()?;
    }
    into.write_all(b"\"")
}

/// Finds out whether all bytes written are UTF-8.
#[derive(Debug, Default)]
struct Utf8Check {
    /// The beginning of a character whose end has not come: three bytes at most.
    begun: Vec<u8>,
    is_bad: bool,
}

impl Utf8Check {
    fn is_utf8(&self) -> bool {
        !self.is_bad && self.begun.is_empty()
    }

    /// Checks bytes at a character's beginning, and keeps a character that is cut off.
    fn check(&mut self, bytes: &[u8]) {
        if let Err(error) = std::str::from_utf8(bytes) {
            self.is_bad |= error.error_len().is_some();
            self.begun = bytes[error.valid_up_to()..].to_vec();
        }
    }
}

impl Write for Utf8Check {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut rest = bytes;
        while !self.is_bad && !self.begun.is_empty() {
            let Some((byte, after)) = rest.split_first() else { return Ok(bytes.len()) };
            rest = after;
            let mut begun = std::mem::take(&mut self.begun);
            begun.push(*byte);
            self.check(&begun);
        }
        if !self.is_bad {
            self.check(rest);
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes UTF-8 as the content of a JSON string. Only single bytes are escaped, so pieces may end anywhere.
#[derive(Debug)]
struct JsonEscaper<W>(W);

impl<W: Write> Write for JsonEscaper<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut plain = 0;
        for (at, byte) in bytes.iter().enumerate() {
            if *byte >= b' ' && *byte != b'"' && *byte != b'\\' {
                continue;
            }
            self.0.write_all(&bytes[plain..at])?;
            plain = at + 1;
            match byte {
                b'"' => self.0.write_all(b"\\\"")?,
                b'\\' => self.0.write_all(b"\\\\")?,
                b'\n' => self.0.write_all(b"\\n")?,
                b'\r' => self.0.write_all(b"\\r")?,
                b'\t' => self.0.write_all(b"\\t")?,
                other => write!(self.0, "\\u{other:04x}")?,
            }
        }
        self.0.write_all(&bytes[plain..])?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[cfg(test)]
mod tests {
    use base64::Engine;
    use serde_json::Value;

    use super::*;

    fn field(content: &[u8]) -> Value {
        let (mut into, mut capture) = (OutputCapture::default(), OutputCapture::default());
        into.write_all(b"{\"a\":1").unwrap();
        capture.write_all(content).unwrap();
        append_field(&mut into, "out", &mut capture).unwrap();
        into.write_all(b"}").unwrap();
        let mut text = Vec::new();
        into.write_to(&mut text).unwrap();
        serde_json::from_slice(&text).unwrap()
    }

    #[test]
    fn text_is_a_string_with_the_same_content() {
        let all: String =
            (0..0x300).filter_map(char::from_u32).chain("€😀\u{ffff}".chars()).collect();
        let long = "é".repeat(2_000_000);
        for text in ["", "a\"\\\n", &all, &long] {
            assert!(field(text.as_bytes())["out"] == text);
        }
    }

    #[test]
    fn other_bytes_are_in_base64() {
        for bytes in [&b"\xff"[..], b"text \xc3", b"\xe2\x82", b"\xed\xa0\x80", b"a\0\xfe\n"] {
            let field = field(bytes);
            let decoded = STANDARD.decode(field["out_base64"].as_str().unwrap()).unwrap();
            assert_eq!((decoded.as_slice(), field.get("out")), (bytes, None));
        }
    }

    #[test]
    fn characters_may_be_cut_anywhere() {
        for text in ["aé€😀z".as_bytes(), b"a\xe2\x82z", b"\xf0\x9f\x98", b"\xc3\xa9\xc3"] {
            for size in 1..=text.len() {
                let mut check = Utf8Check::default();
                text.chunks(size).for_each(|piece| check.write_all(piece).unwrap());
                assert_eq!(check.is_utf8(), std::str::from_utf8(text).is_ok(), "{text:?} {size}");
            }
        }
    }
}
