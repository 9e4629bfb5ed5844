//! What an attempt says while it runs: the end of it is kept, within a bound.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

/// Where an attempt puts what it says for people: a command its standard error.
///
/// The last bytes are kept, as many as the [kind](crate::Kind::log_bytes) allows, and go to the disk with the
/// attempt's end, however that comes: also when it was killed or took too long. What is said after that is kept
/// nowhere. Clones are of the same log.
///
/// An attempt has one if its handler [keeps a log](super::Handler::keeps_log) and its kind allows one; otherwise
/// what is said goes nowhere, and costs nothing.
///
/// ```
/// use keylane_service::handle::Log;
///
/// let log = Log::keeping(32);
/// log.say(b"reads the picture\n");
/// log.say(b"there is no picture\n");
/// let said = log.so_far().unwrap();
/// assert_eq!((&said.text[..], said.left_out), (&b"there is no picture\n"[..], 18));
/// ```
#[derive(Clone, Default)]
pub struct Log(Option<Arc<Mutex<Tail>>>);

/// What an attempt has said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Said {
    /// The end of it, or all. If something was left out it begins with a line, unless that one is too long.
    pub text: Bytes,
    /// How many bytes came before that.
    pub left_out: u64,
}

/// The end of a text that goes on.
struct Tail {
    most: usize,
    /// Never more than twice as much as is kept, and one more: then the first of it goes.
    bytes: Vec<u8>,
    /// How many have gone.
    left_out: u64,
}

impl Log {
    /// The longest that can be kept of an attempt. So what all attempts that run keep in memory has a bound, and
    /// what is read at once of those at a subtask.
    pub const MOST_BYTES: usize = 256 * 1024;

    /// Keeps the last bytes, so many of them; nothing with 0.
    #[must_use]
    pub fn keeping(most: usize) -> Self {
        let most = most.min(Self::MOST_BYTES);
        let tail = Tail { most, bytes: Vec::new(), left_out: 0 };
        Log((most > 0).then(|| Arc::new(Mutex::new(tail))))
    }

    /// Whether something of what is said is kept.
    #[must_use]
    pub fn is_kept(&self) -> bool {
        self.0.is_some()
    }

    /// Says something more.
    pub fn say(&self, bytes: &[u8]) {
        if let Some(mut tail) = self.tail() {
            tail.push(bytes);
        }
    }

    /// What was said so far, as it would be kept; none if that is nothing.
    #[must_use]
    pub fn so_far(&self) -> Option<Said> {
        let (bytes, most, left_out) = {
            let tail = self.tail()?;
            (tail.bytes.clone(), tail.most, tail.left_out)
        };
        said(bytes, most, left_out)
    }

    /// What was said: the attempt is over.
    pub(crate) fn take(&self) -> Option<Said> {
        let (bytes, most, left_out) = {
            let mut tail = self.tail()?;
            // Who still says something says it to nobody.
            let most = std::mem::take(&mut tail.most);
            (std::mem::take(&mut tail.bytes), most, tail.left_out)
        };
        said(bytes, most, left_out)
    }

    fn tail(&self) -> Option<MutexGuard<'_, Tail>> {
        let tail = self.0.as_ref()?;
        Some(tail.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl fmt::Debug for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Log").field(&self.is_kept()).finish()
    }
}

impl Tail {
    fn push(&mut self, bytes: &[u8]) {
        if self.most == 0 {
            return;
        }
        // One more than is kept, for the byte before says whether a line begins.
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

/// The end of what there is, no more than `most`.
fn said(mut bytes: Vec<u8>, most: usize, left_out: u64) -> Option<Said> {
    if bytes.is_empty() {
        return None;
    }
    let cut = if bytes.len() > most { begin(&bytes, bytes.len() - most) } else { 0 };
    bytes.drain(..cut);
    Some(Said { text: bytes.into(), left_out: left_out + cut as u64 })
}

/// Where a line begins, at `least` or behind it. A line that takes more than half of what is left is cut, between
/// characters, rather than left out.
fn begin(bytes: &[u8], least: usize) -> usize {
    let farthest = least + (bytes.len() - least) / 2;
    let line = bytes[least - 1..farthest].iter().position(|byte| *byte == b'\n');
    if let Some(at) = line {
        return least + at;
    }
    let within = |byte: &&u8| **byte & 0b1100_0000 == 0b1000_0000;
    // A character has three such bytes at most; what has more of them is no text.
    least + bytes[least..].iter().take(3).take_while(within).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn kept(most: usize, parts: &[&[u8]]) -> Option<(String, u64)> {
        let log = Log::keeping(most);
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
        // Cut exactly where a line begins.
        assert_eq!(kept(11, &[b"one\ntwo\nthree\nfour\n"]), of("three\nfour\n", 8));
        let bytes = b"one\ntwo\nthree\nfour\n".map(|byte| [byte]);
        let bytes: Vec<&[u8]> = bytes.iter().map(|byte| &byte[..]).collect();
        assert_eq!(kept(11, &bytes), of("three\nfour\n", 8));
        assert_eq!(kept(10, &bytes), of("four\n", 14));
    }

    #[test]
    fn a_line_that_is_too_long_is_cut_between_characters() {
        assert_eq!(kept(4, &[b"0123456789"]), of("6789", 6));
        // Its line end is the last byte, and nothing would be left behind it.
        assert_eq!(kept(4, &[b"0123456789\n"]), of("789\n", 7));
        let text = "äöü€".as_bytes();
        assert_eq!(kept(4, &[text]), of("€", 6));
        assert_eq!(kept(5, &[text]), of("ü€", 4));
        // Bytes that are no text are cut anywhere.
        let log = Log::keeping(4);
        log.say(&[0x80; 9]);
        assert_eq!(log.take().map(|said| (said.text.len(), said.left_out)), Some((1, 8)));
    }

    #[test]
    fn what_is_said_after_the_end_is_kept_nowhere() {
        let log = Log::keeping(10);
        log.say(b"one");
        assert!(log.take().is_some());
        log.say(b"two");
        assert_eq!(log.so_far(), None);
    }

    proptest! {
        /// Whatever comes in whatever parts: memory has its bound, and what is kept is the end of what was said.
        #[test]
        fn it_is_bounded_and_nothing_is_lost_but_the_begin(
            most in 1usize..50,
            parts in prop::collection::vec(prop::collection::vec(prop::sample::select(&b"ab\n"[..]), 0..80), 0..20),
        ) {
            let log = Log::keeping(most);
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
            // It begins with a line, or in one that is too long for that.
            let begins = left_out == 0 || all[left_out - 1] == b'\n';
            prop_assert!(begins || !said.text[..said.text.len() / 2].contains(&b'\n'));
        }
    }
}
