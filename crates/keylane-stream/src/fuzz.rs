//! Fuzz targets: formats that are read from disks and brokers. Each target panics if a promise does not hold.
//!
//! The tests run them on the files in `corpus/` and on mutations of these. `fuzz/` calls the same functions from
//! `cargo fuzz`.

use crate::Position;
pub use crate::journal::fuzz_chunk as journal_chunk;
pub use crate::lines::fuzz_state as state_file;
use crate::tracker::{
    ForeignMapPolicy, OffsetMapLimit, OffsetMapPolicy, Progress, Tracker, UnreadableMapPolicy,
    decode,
};

const STREAM: &[u8] = b"orders, partition 3";

/// Metadata of a committed position: an accepted map has the same meaning when it is written again, and is refused
/// for another stream. `input` is the position, two bytes, and the text.
pub fn offset_map(input: &[u8]) {
    let Some((committed, text)) = input.split_first_chunk::<2>() else { return };
    let committed = Position::new(u64::from(u16::from_le_bytes(*committed)));
    let Ok(text) = std::str::from_utf8(text) else { return };
    for parallel_consumer in [ForeignMapPolicy::TakeOver, ForeignMapPolicy::Distrust] {
        let policy = OffsetMapPolicy { parallel_consumer, unreadable: UnreadableMapPolicy::Refuse };
        match decode(committed, text, STREAM, policy) {
            Ok(found) => check(committed, &found.into_progress()),
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
}

fn check(committed: Position, progress: &Progress) {
    assert_eq!(progress.watermark(), committed);
    let written = progress.encode(STREAM);
    let again = decode(committed, &written, STREAM, OffsetMapPolicy::default());
    assert_eq!(again.expect("a written map is read").into_progress(), *progress);
    let other = decode(committed, &written, b"another", OffsetMapPolicy::default());
    assert!(written.is_empty() || other.is_err(), "another stream takes the map");
    let resumed = Tracker::resume(progress, OffsetMapLimit::KAFKA).progress();
    assert_eq!(resumed.watermark(), committed);
}

/// Progress of a stream: each byte takes a position and completes another one. The map says of every position what
/// a list says.
pub fn progress(input: &[u8]) {
    let mut tracker = Tracker::new(Position::ZERO, OffsetMapLimit::KAFKA);
    let mut done = Vec::new();
    for byte in input.iter().take(512) {
        let next = Position::new(done.len() as u64);
        if !tracker.may_take(next) {
            break;
        }
        let _ = tracker.take(next);
        done.push(false);
        let completed = done.len().saturating_sub(1 + usize::from(*byte));
        let is_new = !std::mem::replace(&mut done[completed], true);
        let reported = tracker.complete(Position::new(completed as u64));
        assert_eq!(reported.is_ok(), is_new, "position {completed}");
    }
    let progress = tracker.progress();
    let written = progress.encode(STREAM);
    assert!(written.len() <= OffsetMapLimit::KAFKA.get());
    let read = decode(progress.watermark(), &written, STREAM, OffsetMapPolicy::default());
    let read = read.expect("a written map is read").into_progress();
    let first = done.iter().position(|done| !done).unwrap_or(done.len());
    assert_eq!(read.watermark(), Position::new(first as u64));
    for (position, is_done) in (0..).zip(&done) {
        assert_eq!(read.is_done(Position::new(position)), *is_done, "position {position}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(name: &str, target: impl Fn(&[u8])) {
        keylane_testkit::fuzz::run(format!("{}/corpus/{name}", env!("CARGO_MANIFEST_DIR")), target);
    }

    #[test]
    fn offset_maps() {
        run("offset_map", offset_map);
    }

    #[test]
    fn progress_of_streams() {
        run("progress", progress);
    }

    #[test]
    fn journal_chunks() {
        run("journal_chunk", journal_chunk);
    }

    #[test]
    fn state_files() {
        run("state_file", state_file);
    }
}
