//! Log of an attempt: keeps the end of its output within a size limit.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

/// Output of an attempt for humans, such as the standard error of a command.
///
/// Keeps the last bytes, up to the limit of the [kind](crate::Kind::log_bytes), and is written to
/// disk with the attempt's end, also when the attempt was killed or timed out. Later output is
/// dropped. Clones share one log.
///
/// An attempt has a log if its handler [keeps one](super::Handler::keeps_log) and its kind allows
/// one; otherwise output is dropped at no cost.
///
/// ```
/// use keylane_service::handle::AttemptOutput;
///
/// let log = AttemptOutput::keeping(32);
/// log.say(b"reads the picture\n");
/// log.say(b"there is no picture\n");
/// let said = log.so_far().unwrap();
/// assert_eq!((&said.text[..], said.left_out), (&b"there is no picture\n"[..], 18));
/// ```
#[derive(Clone, Default)]
pub struct AttemptOutput(Option<Arc<Mutex<TailBuffer>>>);

/// Kept end of an attempt's output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutputTail {
    /// Last bytes of the output. If bytes were left out, the text starts at the beginning of a
    /// line, unless that line is too long.
    pub text: Bytes,
    /// Number of bytes left out before the text.
    pub left_out: u64,
}

/// Buffer for the end of a growing text.
struct TailBuffer {
    most: usize,
    /// At most `2 * most + 1` bytes: then the oldest are removed.
    bytes: Vec<u8>,
    /// Number of removed bytes.
    left_out: u64,
}

impl AttemptOutput {
    /// Maximum size of a kept log, in bytes. It bounds the memory of all running attempts, and the
    /// bytes read at once for a subtask's attempts.
    pub const MAX_BYTES: usize = 256 * 1024;

    /// Returns a log that keeps the last `most` bytes; 0 keeps none.
    #[must_use]
    pub fn keeping(most: usize) -> Self {
        let most = most.min(Self::MAX_BYTES);
        let tail = TailBuffer { most, bytes: Vec::new(), left_out: 0 };
        AttemptOutput((most > 0).then(|| Arc::new(Mutex::new(tail))))
    }

    /// Whether the log keeps any output.
    #[must_use]
    pub fn is_kept(&self) -> bool {
        self.0.is_some()
    }

    /// Appends output.
    pub fn say(&self, bytes: &[u8]) {
        if let Some(mut tail) = self.tail() {
            tail.push(bytes);
        }
    }

    /// Output so far, as it would be kept; none if it is empty.
    #[must_use]
    pub fn so_far(&self) -> Option<OutputTail> {
        let (bytes, most, left_out) = {
            let tail = self.tail()?;
            (tail.bytes.clone(), tail.most, tail.left_out)
        };
        said(bytes, most, left_out)
    }

    /// Takes the kept output at the end of the attempt.
    pub(crate) fn take(&self) -> Option<OutputTail> {
        let (bytes, most, left_out) = {
            let mut tail = self.tail()?;
            // Later output of clones is dropped.
            let most = std::mem::take(&mut tail.most);
            (std::mem::take(&mut tail.bytes), most, tail.left_out)
        };
        said(bytes, most, left_out)
    }

    fn tail(&self) -> Option<MutexGuard<'_, TailBuffer>> {
        let tail = self.0.as_ref()?;
        Some(tail.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl fmt::Debug for AttemptOutput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AttemptOutput").field(&self.is_kept()).finish()
    }
}

impl TailBuffer {
    fn push(&mut self, bytes: &[u8]) {
        if self.most == 0 {
            return;
        }
        // One byte more than is kept: the byte before the text tells whether a line begins there.
        let room = self.most + 1;
        if bytes.len() >= room {
            self.left_out += (self.bytes.len() + bytes.len() - room) as u64;
            self.bytes.clear();
            self.bytes.extend(&bytes[bytes.len() - room..]);
            return;
        }
        if self.bytes.len() + bytes.len() > 2 * room {
            let surplus = self.bytes.len() + bytes.len() - room;
            self.bytes.drain(..surplus);
            self.left_out += surplus as u64;
        }
        self.bytes.extend(bytes);
    }
}

/// Last bytes of the output, at most `most`.
fn said(mut bytes: Vec<u8>, most: usize, left_out: u64) -> Option<OutputTail> {
    if bytes.is_empty() {
        return None;
    }
    let cut = if bytes.len() > most { begin(&bytes, bytes.len() - most) } else { 0 };
    bytes.drain(..cut);
    Some(OutputTail { text: bytes.into(), left_out: left_out + cut as u64 })
}

/// Returns the start of a line at or after `least`. A line that takes more than half of the rest is
/// cut between characters instead of left out.
fn begin(bytes: &[u8], least: usize) -> usize {
    let farthest = least + (bytes.len() - least) / 2;
    let line = bytes[least - 1..farthest].iter().position(|byte| *byte == b'\n');
    if let Some(at) = line {
        return least + at;
    }
    let within = |byte: &&u8| **byte & 0b1100_0000 == 0b1000_0000;
    // A UTF-8 character has at most three continuation bytes; more are not text.
    least + bytes[least..].iter().take(3).take_while(within).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn kept(most: usize, parts: &[&[u8]]) -> Option<(String, u64)> {
        let log = AttemptOutput::keeping(most);
        parts.iter().for_each(|part| log.say(part));
        let so_far = log.so_far();
        let said = log.take();
        assert_eq!(so_far, said);
        said.map(|said| (String::from_utf8(said.text.to_vec()).unwrap(), said.left_out))
    }

    fn of(text: &str, left_out: u64) -> Option<(String, u64)> {
        Some((text.to_owned(), left_out))
    }

    #[test]
    fn what_is_not_much_is_kept_whole() {
        assert_eq!(kept(100, &[b"one\n", b"two"]), of("one\ntwo", 0));
        assert_eq!(kept(7, &[b"one\n", b"two"]), of("one\ntwo", 0));
        assert_eq!(kept(100, &[]), None);
        assert_eq!(kept(0, &[b"one\n"]), None);
    }

    #[test]
    fn of_what_is_much_the_last_lines_are_kept() {
        assert_eq!(kept(10, &[b"one\ntwo\nthree\nfour\n"]), of("four\n", 14));
        // The cut is exactly at the start of a line.
        assert_eq!(kept(11, &[b"one\ntwo\nthree\nfour\n"]), of("three\nfour\n", 8));
        let bytes = b"one\ntwo\nthree\nfour\n".map(|byte| [byte]);
        let bytes: Vec<&[u8]> = bytes.iter().map(|byte| &byte[..]).collect();
        assert_eq!(kept(11, &bytes), of("three\nfour\n", 8));
        assert_eq!(kept(10, &bytes), of("four\n", 14));
    }

    #[test]
    fn a_line_that_is_too_long_is_cut_between_characters() {
        assert_eq!(kept(4, &[b"0123456789"]), of("6789", 6));
        // The line end is the last byte: the next line start would leave an empty text.
        assert_eq!(kept(4, &[b"0123456789\n"]), of("789\n", 7));
        let text = "äöü€".as_bytes();
        assert_eq!(kept(4, &[text]), of("€", 6));
        assert_eq!(kept(5, &[text]), of("ü€", 4));
        // Bytes that are not UTF-8 are cut at any position.
        let log = AttemptOutput::keeping(4);
        log.say(&[0x80; 9]);
        assert_eq!(log.take().map(|said| (said.text.len(), said.left_out)), Some((1, 8)));
    }

    #[test]
    fn what_is_said_after_the_end_is_kept_nowhere() {
        let log = AttemptOutput::keeping(10);
        log.say(b"one");
        assert!(log.take().is_some());
        log.say(b"two");
        assert_eq!(log.so_far(), None);
    }

    proptest! {
        /// For every split of every input, memory is bounded and the end of the output is kept.
        #[test]
        fn it_is_bounded_and_nothing_is_lost_but_the_begin(
            most in 1usize..50,
            parts in prop::collection::vec(prop::collection::vec(prop::sample::select(&b"ab\n"[..]), 0..80), 0..20),
        ) {
            let log = AttemptOutput::keeping(most);
            for part in &parts {
                log.say(part);
                let tail = log.tail().unwrap();
                prop_assert!(tail.bytes.len() <= 2 * (most + 1));
            }
            let all = parts.concat();
            let Some(said) = log.take() else {
                prop_assert!(all.is_empty());
                return Ok(());
            };
            prop_assert!(said.text.len() <= most && !said.text.is_empty());
            prop_assert!(all.ends_with(&said.text));
            let left_out = usize::try_from(said.left_out).unwrap();
            prop_assert_eq!(left_out + said.text.len(), all.len());
            prop_assert!(left_out > 0 || all.len() <= most);
            // The text starts at a line, or inside a line that is too long.
            let begins = left_out == 0 || all[left_out - 1] == b'\n';
            prop_assert!(begins || !said.text[..said.text.len() / 2].contains(&b'\n'));
        }
    }
}
