//! Dead letters that are handled again: in order, each once, and a letter that fails again holds
//! those of its key.

use std::collections::HashSet;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::consuming::{Watched, quick};
use keylane_stream::consumer::{
    Attempt, AttemptFailure, Consumer, ConsumerBuilder, ShutdownReport, StopReason,
};
use keylane_stream::dead_letters::{DeadLetter, DeadLetterSource, DeadLetters, FileDeadLetters};
use keylane_stream::retry::{OnExhausted, RetryPolicy};
use keylane_stream::{Partition, Position, Record};
use tempfile::TempDir;

/// A folder with a file of letters.
struct Letters {
    folder: TempDir,
}

fn letter(stream: &str, partition: u32, position: u64, key: &str, payload: &str) -> DeadLetter {
    DeadLetter {
        partition: Partition::new(stream, partition),
        position: Position::new(position),
        written: SystemTime::UNIX_EPOCH + Duration::from_millis(5),
        record: Record {
            headers: vec![("a".to_owned(), Some(vec![0, 255])), ("b".to_owned(), None)],
            ..Record::new(key, payload)
        },
        failure: "no good".to_owned(),
        attempts: 3,
        failed_at: SystemTime::UNIX_EPOCH + Duration::from_millis(1_000 + position),
    }
}

impl Letters {
    fn new(letters: &[DeadLetter]) -> Self {
        let these = Letters { folder: tempfile::tempdir().unwrap() };
        these.add(letters);
        these
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("dead.ndjson")
    }

    fn state(&self) -> PathBuf {
        self.folder.path().join("dead.ndjson.redriven")
    }

    fn add(&self, letters: &[DeadLetter]) {
        FileDeadLetters::open(self.path()).unwrap().write(letters).unwrap();
    }

    fn builder(&self) -> ConsumerBuilder {
        let source = DeadLetterSource::open(self.path(), self.state()).unwrap();
        let policy = RetryPolicy::new(quick(2, OnExhausted::StopKey)).unwrap();
        Consumer::builder(source).threads(4).retry(policy, |_| ())
    }

    /// Handles the letters, except those with a payload of `failing`, and returns the names of the
    /// handled ones.
    fn redrive(&self, failing: &[&str]) -> (ShutdownReport, Vec<String>) {
        let failing: HashSet<Vec<u8>> = failing.iter().map(|it| it.as_bytes().to_vec()).collect();
        let handled = Watched::new(Vec::new());
        let handles = handled.clone();
        let consumer = self.builder().start(move |attempt: &Attempt| {
            if failing.contains(attempt.payload()) {
                return Err(AttemptFailure::from("still no good"));
            }
            let payload = String::from_utf8_lossy(attempt.payload()).into_owned();
            let name = format!("{}@{} {payload}", attempt.partition(), attempt.position());
            handles.change(|handled: &mut Vec<String>| handled.push(name));
            Ok(())
        });
        let ended = consumer.unwrap().wait();
        assert!(matches!(ended.reason, StopReason::Exhausted), "{:?}", ended.reason);
        let mut handled = handled.get();
        handled.sort();
        (ended, handled)
    }
}

#[test]
fn letters_are_handled_again_as_their_records_and_only_once() {
    let (one, two) = (letter("t", 1, 7, "ann", "x"), letter("u", 0, 3, "ann", "y"));
    let letters = Letters::new(&[one.clone(), two]);
    let seen = Watched::new(Vec::new());
    let sees = seen.clone();
    let consumer = letters.builder().start(move |attempt: &Attempt| {
        let place = (attempt.partition().clone(), attempt.position(), attempt.written());
        sees.change(|seen| seen.push((place, attempt.record().clone())));
        Ok::<_, AttemptFailure>(())
    });
    assert_eq!(consumer.unwrap().wait().counts.handled, 2);
    let place = (one.partition.clone(), one.position, one.written);
    assert!(seen.get().contains(&(place, one.record)), "{:?}", seen.get());
    let (ended, _) = letters.redrive(&[]);
    assert_eq!(ended.counts.handled, 0);
    // A letter of a later failure is another one, also of the same record.
    let later = DeadLetter { failed_at: SystemTime::UNIX_EPOCH, ..letter("t", 1, 7, "ann", "z") };
    letters.add(&[later, letter("t", 1, 9, "ann", "w")]);
    assert_eq!(letters.redrive(&[]).1, ["t[1]@7 z", "t[1]@9 w"]);
    assert_eq!(letters.redrive(&[]).1, Vec::<String>::new());
}

#[test]
fn a_letter_that_fails_again_holds_the_later_ones_of_its_key_until_it_is_edited() {
    let letters = Letters::new(&[
        letter("t", 0, 5, "ann", "bad"),
        letter("t", 0, 9, "bob", "b1"),
        letter("t", 0, 6, "ann", "a2"),
        letter("t", 1, 6, "ann", "another partition"),
        letter("t", 0, 8, "ann", "a3"),
    ]);
    let (ended, handled) = letters.redrive(&["bad"]);
    assert_eq!(handled, ["t[0]@9 b1", "t[1]@6 another partition"]);
    let [stopped] = &ended.stopped[..] else { panic!("{:?}", ended.stopped) };
    assert_eq!((&stopped.partition, stopped.record.position.get()), (&Partition::new("t", 0), 5));
    // It stays as it is until it is corrected.
    assert_eq!(letters.redrive(&["bad"]).1, Vec::<String>::new());
    let text = fs::read_to_string(letters.path()).unwrap();
    let text: String = text
        .lines()
        .filter(|line| !line.contains("a3"))
        .map(|line| line.replace(r#""payload":"bad""#, r#""payload":{"n":1}"#) + "\n")
        .collect();
    fs::write(letters.path(), text).unwrap();
    assert_eq!(letters.redrive(&["bad"]).1, [r#"t[0]@5 {"n":1}"#, "t[0]@6 a2"]);
    assert_eq!(letters.redrive(&[]).1, Vec::<String>::new());
}

#[test]
fn letters_that_an_earlier_process_has_handled_are_left_out_in_any_order() {
    let all: Vec<_> = (0..300)
        .map(|number| letter("t", number % 3, 1_000 - u64::from(number), "k", &number.to_string()))
        .collect();
    let letters = Letters::new(&all);
    let mut handled = HashSet::new();
    for rest in (0..5).rev() {
        let failing: Vec<String> =
            (0..300).filter(|number| number % 5 < rest).map(|number| number.to_string()).collect();
        let failing: HashSet<Vec<u8>> = failing.into_iter().map(String::into_bytes).collect();
        let seen = Watched::new(Vec::new());
        let sees: Arc<Watched<Vec<Vec<u8>>>> = seen.clone();
        let consumer = letters.builder().unordered().start(move |attempt: &Attempt| {
            if failing.contains(attempt.payload()) {
                return Err(AttemptFailure::from("not yet"));
            }
            sees.change(|seen| seen.push(attempt.payload().to_vec()));
            Ok(())
        });
        consumer.unwrap().wait();
        assert_eq!(seen.get().len(), 60);
        assert!(seen.get().into_iter().all(|payload| handled.insert(payload)), "some twice");
    }
    assert_eq!(handled.len(), 300);
    // Each name is there once; a line that was cut off by a kill is removed.
    let state = fs::read_to_string(letters.state()).unwrap();
    assert_eq!(state.lines().collect::<HashSet<_>>().len(), 300);
    fs::write(letters.state(), &state[..state.len() - 9]).unwrap();
    assert_eq!(letters.redrive(&[]).1.len(), 1);
    assert_eq!(fs::read_to_string(letters.state()).unwrap().lines().count(), 300);
}

#[test]
fn what_is_no_letter_is_refused_with_its_line_and_an_empty_file_ends() {
    let letters = Letters::new(&[letter("t", 0, 5, "ann", "1")]);
    let text = fs::read_to_string(letters.path()).unwrap();
    fs::write(letters.path(), format!("{text}\n{{\"stream\":\"t\"}}\n")).unwrap();
    let open = || DeadLetterSource::open(letters.path(), letters.state());
    let error = open().unwrap_err();
    let cause = std::error::Error::source(&error).unwrap().to_string();
    assert!(cause.contains("line 3 is not a dead letter: `partition`"), "{cause}");
    fs::write(letters.path(), "").unwrap();
    assert_eq!(letters.redrive(&[]).0.counts.handled, 0);
    // Another process would handle the letters a second time.
    let first = open().unwrap();
    let error = open().unwrap_err();
    let cause = std::error::Error::source(&error).unwrap().to_string();
    assert!(cause.contains("another process handles these letters"), "{cause}");
    drop(first);
    open().unwrap();
}

#[test]
fn a_file_that_changes_while_it_is_read_ends_the_consumer() {
    let letters = Letters::new(&[letter("t", 0, 5, "ann", "1"), letter("t", 0, 6, "ann", "2")]);
    let source = DeadLetterSource::open(letters.path(), letters.state()).unwrap();
    let text = fs::read_to_string(letters.path()).unwrap();
    fs::write(letters.path(), text.replace("\"ann\"", "\"anna\"")).unwrap();
    let handle = |_: &Attempt| Ok::<_, AttemptFailure>(());
    let ended = Consumer::builder(source).start(handle).unwrap().wait();
    let StopReason::Source(error) = ended.reason else { panic!("{:?}", ended.reason) };
    let cause = std::error::Error::source(&error).unwrap().to_string();
    assert!(cause.contains("start again"), "{cause}");
}
