//! Dead letters in a file after a power failure: each acknowledged one is a whole line, and the
//! file can be continued.

use std::time::SystemTime;

use keylane_stream::dead_letters::{DeadLetter, DeadLetters, FileDeadLetters};
use keylane_stream::{Partition, Position, Record};
use keylane_testkit::power_loss::{
    Crashed, Random, Recording, SyncPoint, Trace, check_all, check_needed,
};

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
    text.extend(b"{\"position\":3,\"key\":\"\0\0\0\"}\n{\"position\":4}\n{\"position\":");
    std::fs::write(&path, text).unwrap();
    FileDeadLetters::open(&path).unwrap().write(&[letter(5)]).unwrap();
    let text = std::fs::read_to_string(&path).unwrap();
    let position =
        |line| serde_json::from_str::<serde_json::Value>(line).unwrap()["position"].as_u64();
    let positions: Vec<_> = text.lines().map(position).collect();
    assert_eq!(positions, [Some(0), Some(1), Some(2), Some(4), Some(5)]);
}
