//! Size of offset maps by the number and distance of incomplete records, and the time to encode and
//! decode them.

use std::collections::BTreeSet;
use std::time::Instant;

use keylane_stream::Position;
use keylane_stream::tracker::{OffsetMapLimit, OffsetMapPolicy, Progress, Tracker, decode};

fn main() {
    println!("| incomplete | over | characters | written in µs | read in µs |");
    println!("|---:|---:|---:|---:|---:|");
    for (count, span) in [
        (1, 1_000_000),
        (100, 10_000),
        (1_000, 20_000),
        (1_000, 100_000),
        (2_000, 100_000),
        (2_000, 1_000_000),
    ] {
        let progress = random(count, span);
        let text = progress.encode(b"a stream");
        let written = micros(|| drop(progress.encode(b"a stream")));
        let watermark = progress.watermark();
        let readable = || decode(watermark, &text, b"a stream", OffsetMapPolicy::default());
        assert_eq!(readable().map(|found| found.into_progress()), Ok(progress));
        let read = micros(|| drop(readable()));
        println!("| {count} | {span} | {} | {written:.1} | {read:.1} |", text.len());
    }

    const RECORDS: u64 = 1_000_000;
    let mut tracker = Tracker::new(Position::ZERO, OffsetMapLimit::KAFKA);
    let start = Instant::now();
    // One record is stuck; the others end in reverse order within each hundred.
    tracker.take(Position::ZERO);
    for hundred in 0..RECORDS / 100 {
        let numbers = hundred * 100 + 1..hundred * 100 + 101;
        for position in numbers.clone().map(Position::new) {
            assert!(tracker.may_take(position));
            tracker.take(position);
        }
        for position in numbers.rev().map(Position::new) {
            tracker.complete(position).expect("it was taken on above");
        }
    }
    let nanos = start.elapsed().as_nanos() as f64 / RECORDS as f64;
    println!("\n{nanos:.0} ns to ask for, take on and complete a position");
}

/// Returns random incomplete positions: the first at the beginning, and everything else complete.
fn random(count: usize, span: u64) -> Progress {
    let mut state = 42u64;
    let mut incomplete = BTreeSet::new();
    while incomplete.len() < count - 1 {
        // Knuth's generator; its upper bits are random enough for positions.
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        incomplete.insert(Position::new(1 + (state >> 33) % (span - 2)));
    }
    let end = Position::new(span);
    Progress::with_map(Position::ZERO, end, incomplete.into_iter().collect())
}

/// Returns the median of 100 runs.
fn micros(mut work: impl FnMut()) -> f64 {
    let mut times: Vec<_> = (0..100)
        .map(|_| {
            let start = Instant::now();
            work();
            start.elapsed().as_nanos()
        })
        .collect();
    times.sort_unstable();
    times[50] as f64 / 1000.0
}
