//! Lines as a source: reading a file continues at the committed line, and another file is refused.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::consuming::{Dice, Door, PATIENCE, Watched, quick};
use keylane_stream::Record;
use keylane_stream::consumer::{Attempt, AttemptFailure, Consumer, ConsumerBuilder, StopReason};
use keylane_stream::lines::{FileSource, PipeSource};
use keylane_stream::retry::{OnExhausted, RetryPolicy};
use keylane_stream::source::{Source, SourceError, SourceEvent};
use tempfile::TempDir;

fn place(text: &str) -> (TempDir, PathBuf, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let (path, state) = (folder.path().join("lines"), folder.path().join("state"));
    fs::write(&path, text).unwrap();
    (folder, path, state)
}

fn first_word(line: &Record) -> Option<Vec<u8>> {
    line.payload().split(|byte| *byte == b' ').next().map(<[u8]>::to_vec)
}

fn builder(source: FileSource) -> ConsumerBuilder {
    let policy = RetryPolicy::new(quick(1, OnExhausted::StopKey)).unwrap();
    Consumer::builder(source).threads(4).by(first_word).retry(policy, |_| ())
}

/// Handles all lines but those with the word "bad", and returns the lines in their order.
fn handled(source: FileSource) -> Vec<String> {
    let seen = Watched::new(Vec::new());
    let sees = seen.clone();
    let consumer = builder(source).start(move |attempt: &Attempt| {
        let line = String::from_utf8(attempt.payload().to_vec()).unwrap();
        if line.contains("bad") {
            return Err(std::io::Error::other("bad"));
        }
        sees.change(|seen| seen.push((attempt.position(), line)));
        Ok(())
    });
    let ended = consumer.unwrap().wait();
    assert!(matches!(ended.reason, StopReason::Exhausted), "{}", ended.reason);
    let mut seen = seen.get();
    seen.sort();
    seen.into_iter().map(|(_, line)| line).collect()
}

fn open(path: &Path, state: &Path) -> Result<FileSource, SourceError> {
    FileSource::open(path, state)
}

#[test]
fn a_file_is_gone_on_with_where_it_was_left() {
    let (_folder, path, state) = place("a 1\nb 2\r\n\na 3");
    assert_eq!(handled(open(&path, &state).unwrap()), ["a 1", "b 2", "", "a 3"]);
    assert_eq!(handled(open(&path, &state).unwrap()), [""; 0]);
    let (_folder, path, state) = place("a 1\nb 2\n");
    assert_eq!(handled(open(&path, &state).unwrap()), ["a 1", "b 2"]);
    fs::OpenOptions::new().append(true).open(&path).unwrap().write_all(b"a 3\nb 4\n").unwrap();
    assert_eq!(handled(open(&path, &state).unwrap()), ["a 3", "b 4"]);
}

#[test]
fn lines_completed_above_a_stuck_line_are_not_repeated() {
    let (_folder, path, state) = place("a bad\nb 1\na 2\nb 3\nc 4\n");
    assert_eq!(handled(open(&path, &state).unwrap()), ["b 1", "b 3", "c 4"]);
    // The file grows, and the key is still stuck.
    fs::OpenOptions::new().append(true).open(&path).unwrap().write_all(b"b 5\n").unwrap();
    assert_eq!(handled(open(&path, &state).unwrap()), ["b 5"]);
    assert_eq!(handled(open(&path, &state).unwrap()), [""; 0]);
    // Now the line is handled.
    let seen = Watched::new(0);
    let sees = seen.clone();
    let consumer = builder(open(&path, &state).unwrap()).start(move |_: &Attempt| {
        sees.change(|seen| *seen += 1);
        Ok::<_, AttemptFailure>(())
    });
    consumer.unwrap().wait();
    assert_eq!(seen.get(), 2);
    assert_eq!(handled(open(&path, &state).unwrap()), [""; 0]);
}

#[test]
fn another_file_is_not_taken_for_it() {
    let refused = |path: &Path, state: &Path| {
        let error = open(path, state).unwrap_err();
        assert!(error.to_string().contains("to begin anew, remove"), "{error}");
        std::error::Error::source(&error).unwrap().to_string()
    };
    let (_folder, path, state) = place("a 1\nb 2\nc 3\n");
    handled(open(&path, &state).unwrap());
    fs::write(&path, "a 1\nb 5\nc 3\nd 4\n").unwrap();
    assert_eq!(refused(&path, &state), "it is not what it was when it was consumed");
    fs::write(&path, "a 1\n").unwrap();
    assert_eq!(refused(&path, &state), "it is shorter than when it was consumed");
    fs::write(&path, "a 1\nb 2\nc 3\nd 4\n").unwrap();
    assert_eq!(handled(open(&path, &state).unwrap()), ["d 4"]);

    let (_folder, path, state) = place("a 1\nb 2");
    handled(open(&path, &state).unwrap());
    fs::write(&path, "a 1\nb 2 and more\n").unwrap();
    assert_eq!(refused(&path, &state), "its last line was consumed, and has become longer");
}

#[test]
fn a_damaged_state_is_refused_whatever_is_damaged_in_it() {
    let (_folder, path, state) = place("a bad\nb 1\na 2\nb 3\n");
    handled(open(&path, &state).unwrap());
    let good = fs::read(&state).unwrap();
    let mut refused = 0;
    for at in 0..good.len() {
        for change in [1, 4] {
            let mut damaged = good.clone();
            damaged[at] ^= change;
            fs::write(&state, &damaged).unwrap();
            match open(&path, &state) {
                Err(_) => refused += 1,
                // An altered white-space character has no meaning.
                Ok(_) => assert!(good[at].is_ascii_whitespace(), "{at} of {}", good.len()),
            }
        }
    }
    assert!(refused > good.len());
}

#[test]
fn a_state_has_one_user_at_a_time() {
    let (_folder, path, state) = place("a 1\n");
    let first = open(&path, &state).unwrap();
    assert!(open(&path, &state).is_err());
    drop(first);
    assert!(open(&path, &state).is_ok());
}

#[test]
fn a_file_that_is_followed_delivers_whole_lines_as_they_come() {
    let (_folder, path, state) = place("a 1\na ");
    let seen = Watched::new(Vec::new());
    let sees: Arc<Watched<Vec<String>>> = seen.clone();
    let source = open(&path, &state).unwrap().follow();
    let consumer = builder(source).start(move |attempt: &Attempt| {
        let line = String::from_utf8(attempt.payload().to_vec()).unwrap();
        sees.change(|seen| seen.push(line));
        Ok::<_, AttemptFailure>(())
    });
    let consumer = consumer.unwrap();
    seen.until(|seen| seen.len() == 1);
    let mut file = fs::OpenOptions::new().append(true).open(&path).unwrap();
    file.write_all(b"2\na 3\nno").unwrap();
    seen.until(|seen| seen.len() == 3);
    assert_eq!(seen.get(), ["a 1", "a 2", "a 3"]);
    consumer.stop(PATIENCE);
    file.write_all(b"w whole\n").unwrap();
    assert_eq!(handled(open(&path, &state).unwrap()), ["now whole"]);
}

/// Stopped at random, again and again, while lines are stuck and the file grows: each line is
/// completed once.
#[test]
fn a_file_that_is_left_anywhere_is_done_once() {
    for seed in 0..10 {
        let mut dice = Dice(seed);
        let (_folder, path, state) = place("");
        let seen = Watched::new(std::collections::HashMap::<u64, u32>::new());
        let (mut written, mut free) = (0, 0);
        for round in 0..12 {
            let mut file = fs::OpenOptions::new().append(true).open(&path).unwrap();
            for _ in 0..dice.roll(200) {
                let key = dice.roll(20);
                writeln!(file, "{key} {}", "x".repeat(dice.roll(30) as usize)).unwrap();
                free += u64::from(key != 7);
                written += 1;
            }
            let sees = seen.clone();
            let last = round == 11;
            let door = Door::closed();
            let stuck = door.clone();
            let source = open(&path, &state).unwrap();
            let consumer = builder(source).commit(Duration::ZERO, 3);
            let consumer = consumer.start(move |attempt: &Attempt| {
                if !last && attempt.payload().starts_with(b"7 ") {
                    stuck.pass();
                    return Err(std::io::Error::other("not in this round"));
                }
                let at = attempt.position().get();
                sees.change(|seen| *seen.entry(at).or_default() += 1);
                Ok(())
            });
            let consumer = consumer.unwrap();
            if last {
                consumer.wait();
                continue;
            }
            let enough = dice.roll(free + 1) as usize;
            seen.until(|seen| seen.len() >= enough);
            door.open();
            consumer.stop(PATIENCE);
        }
        seen.change(|seen| {
            assert_eq!(seen.len() as u64, written);
            assert!(seen.values().all(|times| *times == 1));
        });
    }
}

#[test]
fn a_pipe_is_read_to_its_end() {
    let (read, mut write) = std::io::pipe().unwrap();
    let source = PipeSource::new("stdin", read).unwrap();
    let seen = Watched::new(0);
    let sees = seen.clone();
    let consumer = Consumer::builder(source).unordered().start(move |_: &Attempt| {
        sees.change(|seen| *seen += 1);
        Ok::<_, AttemptFailure>(())
    });
    let consumer = consumer.unwrap();
    write.write_all(b"1\n2\n").unwrap();
    seen.until(|seen| *seen == 2);
    write.write_all(&b"more\n".repeat(5_000)).unwrap();
    write.write_all(b"the last").unwrap();
    drop(write);
    let ended = consumer.wait();
    assert!(matches!(ended.reason, StopReason::Exhausted));
    assert_eq!(ended.counts.handled, 5_003);
}

#[test]
fn a_pipe_that_fails_ends_its_consumer() {
    struct Failing;
    impl std::io::Read for Failing {
        fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
            Err(std::io::Error::other("unplugged"))
        }
    }
    let source = PipeSource::new("stdin", Failing).unwrap();
    let ended =
        Consumer::builder(source).start(|_: &Attempt| Ok::<_, AttemptFailure>(())).unwrap().wait();
    assert_eq!(ended.reason.to_string(), "cannot read stdin: unplugged");
}

/// Regression: this looked like the end of the input.
#[test]
fn a_pipe_whose_reader_panics_ends_its_consumer() {
    struct Panicking(bool);
    impl std::io::Read for Panicking {
        fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
            assert!(!std::mem::replace(&mut self.0, true), "it is read twice");
            into[..4].copy_from_slice(b"one\n");
            Ok(4)
        }
    }
    let source = PipeSource::new("stdin", Panicking(false)).unwrap();
    let ended =
        Consumer::builder(source).start(|_: &Attempt| Ok::<_, AttemptFailure>(())).unwrap().wait();
    assert_eq!(ended.reason.to_string(), "cannot read stdin: the reader has panicked");
}

/// Input without a line, whose close blocks while the door is closed.
struct Lingering(Door);

impl std::io::Read for Lingering {
    fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
        Ok(0)
    }
}

impl Drop for Lingering {
    fn drop(&mut self) {
        self.0.pass();
    }
}

/// Regression: the notification preceded the visible state, so the end was noticed only after the
/// next wait.
#[test]
fn a_waiting_poll_sees_the_end_of_a_pipe_at_once() {
    let door = Door::closed();
    let mut pipe = PipeSource::new("pipe", Lingering(door.clone())).unwrap();
    let mut events = Vec::new();
    pipe.poll(Duration::ZERO, 1, &mut events).unwrap();
    assert!(matches!(events[0], SourceEvent::Assigned(_)), "{events:?}");
    if events.len() == 1 {
        // Only the notification ends such a wait.
        events.clear();
        pipe.poll(PATIENCE, 1, &mut events).unwrap();
    }
    assert!(matches!(events.last(), Some(SourceEvent::Exhausted(_))), "{events:?}");
    door.open();
}
