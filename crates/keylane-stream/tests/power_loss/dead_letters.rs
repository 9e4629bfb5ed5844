//! Dead letters in a file after a power failure: each acknowledged one is a whole line, and the
//! file can be continued.

use std::fs::File;
use std::time::SystemTime;

use keylane_stream::dead_letters::{DeadLetter, DeadLetters, FileDeadLetters};
use keylane_stream::{Partition, Position, Record};
use keylane_testkit::Random;
use keylane_testkit::power_loss::{Crashed, Recording, SyncPoint, Trace, check_all, check_needed};

const NAME: &str = "dead.jsonl";

fn letter(number: u64) -> DeadLetter {
    DeadLetter {
        partition: Partition::new("orders", 3),
        position: Position::new(number),
        written: SystemTime::UNIX_EPOCH,
        record: Record::new("key", "x".repeat(number as usize * 37 % 900)),
        failure: "refused".into(),
        attempts: 2,
        failed_at: SystemTime::UNIX_EPOCH,
    }
}

/// Writes letters; the note of each is its position.
fn written(seed: u64) -> (Trace, ()) {
    let mut random = Random::new(seed);
    let mut recording = Recording::start();
    let mut next = 0;
    for _ in 0..=random.below(3) {
        let mut file = FileDeadLetters::open(recording.folder().join(NAME)).unwrap();
        for _ in 0..random.below(5) {
            let letters: Vec<_> = (next..).take(1 + random.below(3)).map(letter).collect();
            next += letters.len() as u64;
            file.write(&letters).unwrap();
            letters.iter().for_each(|letter| recording.note(letter.position.get()));
        }
        drop(file);
        if random.once_in(2) {
            let trace = recording.finish();
            let at = trace.len() - random.below(trace.len().min(20));
            recording = Recording::after_kill(&trace, at);
        }
    }
    (recording.finish(), ())
}

fn check(crashed: &Crashed, (): &()) -> Result<(), String> {
    let path = crashed.folder().join(NAME);
    let mut file = FileDeadLetters::open(&path).map_err(|error| error.to_string())?;
    // A consumer continues the file, which removes an incomplete line.
    let last = 1_000_000;
    file.write(&[letter(last)]).map_err(|error| error.to_string())?;
    let text = std::fs::read_to_string(&path).map_err(|error| error.to_string())?;
    let mut found = Vec::new();
    for line in text.lines() {
        let json: serde_json::Value =
            serde_json::from_str(line).map_err(|error| format!("{error}: {line:?}"))?;
        found.push(json["position"].as_u64().ok_or("no position")?);
    }
    match crashed.notes().iter().chain([&last]).find(|note| !found.contains(note)) {
        Some(lost) => Err(format!("letter {lost} is lost: {found:?}")),
        None => Ok(()),
    }
}

#[test]
fn no_acknowledged_letter_is_lost() {
    check_all(100, written, check);
}

#[test]
fn the_sync_of_the_content_is_needed() {
    let content = |sync: SyncPoint<'_>| sync == SyncPoint::File(NAME);
    check_needed("the sync of the content", content, written, check);
}

#[test]
fn the_sync_of_the_name_is_needed() {
    let name = |sync: SyncPoint<'_>| sync == SyncPoint::Folder;
    check_needed("the sync of the folder", name, written, check);
}

/// Writes letters to a file with an incomplete line, which a process left when it was killed.
fn written_after_a_kill(seed: u64) -> (Trace, ()) {
    let mut random = Random::new(seed);
    let recording = Recording::start();
    let path = recording.folder().join(NAME);
    let line = "y".repeat(600 + random.below(2000));
    std::fs::write(&path, format!("{{\"position\":2000000}}\n{{\"key\":\"{line}")).unwrap();
    File::open(&path).unwrap().sync_all().unwrap();
    let mut file = FileDeadLetters::open(&path).unwrap();
    let letters: Vec<_> = (0..8).map(letter).collect();
    file.write(&letters).unwrap();
    letters.iter().for_each(|letter| recording.note(letter.position.get()));
    (recording.finish(), ())
}

#[test]
fn no_letter_behind_an_incomplete_line_is_lost() {
    check_all(100, written_after_a_kill, check);
}

/// A line can have its end without its middle, because sectors reach the disk in any order.
#[test]
fn torn_letters_are_removed_and_whole_ones_stay() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(NAME);
    // Longer together than what is synced at a time.
    let large = |number| {
        let record = Record::new("key", "x".repeat(600_000));
        DeadLetter { record, ..letter(number) }
    };
    let letters: Vec<_> = (0..3).map(large).collect();
    FileDeadLetters::open(&path).unwrap().write(&letters).unwrap();
    let mut text = std::fs::read(&path).unwrap();
    let mut torn = [b"{\"position\":3,\"key\":\"".as_slice(), &[b'y'; 2000], b"\"}\n"].concat();
    let sector = 1024 - text.len() % 512;
    torn[sector..sector + 512].fill(0);
    let torn_at = text.len() as u64;
    text.extend(&torn);
    text.extend(b"{\"position\":4}\n{\"position\":");
    std::fs::write(&path, &text).unwrap();

    let (sender, removed) = std::sync::mpsc::channel();
    let file = FileDeadLetters::open(&path).unwrap();
    let mut file = file.on_removed(move |line| sender.send(line.clone()).unwrap());
    file.write(&[letter(5)]).unwrap();
    let removed: Vec<_> = removed.try_iter().collect();
    let places: Vec<_> = removed.iter().map(|line| (line.offset, line.length)).collect();
    let last = text.len() as u64 - 12;
    assert_eq!(places, [(torn_at, torn.len() as u64), (last, 12)]);
    assert!(removed[0].text.starts_with(r#"{\"position\":3,"#), "{removed:?}");

    let text = std::fs::read_to_string(&path).unwrap();
    let position =
        |line| serde_json::from_str::<serde_json::Value>(line).unwrap()["position"].as_u64();
    let positions: Vec<_> = text.lines().map(position).collect();
    assert_eq!(positions, [Some(0), Some(1), Some(2), Some(4), Some(5)]);
}

/// Operators annotate a file of dead letters, and other programs append to it.
#[test]
fn whole_lines_of_others_stay_whatever_they_contain() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(NAME);
    let lines = b"# replayed on Monday\n\n{\"half\":\nzero \0 and \xff bytes\n";
    std::fs::write(&path, lines).unwrap();
    let (sender, removed) = std::sync::mpsc::channel();
    let file = FileDeadLetters::open(&path).unwrap();
    let mut file = file.on_removed(move |line| sender.send(line.clone()).unwrap());
    file.write(&[letter(0)]).unwrap();
    assert_eq!(removed.try_iter().next(), None);
    let found = std::fs::read(&path).unwrap();
    assert_eq!(found[..lines.len()], *lines);
    assert_eq!(found[lines.len()..].iter().filter(|byte| **byte == b'\n').count(), 1);
}
